package wire

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strconv"
	"testing"
)

func TestNumbersAreThoseOfTheHeader(t *testing.T) {
	text, err := os.ReadFile("../../capi/wire.h")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"HELLO": uint64(Hello), "TEMPLATE": uint64(Template), "SUBMIT": uint64(Submit), "PUT": uint64(Put), "CREATE": uint64(Create), "SEAL": uint64(Seal),
		"ABORT": uint64(Abort), "ADDREF": uint64(AddRef), "RELEASE": uint64(Release), "SUBSCRIBE": uint64(Subscribe), "PIN": uint64(Pin), "UNPIN": uint64(Unpin),
		"CALL": uint64(Call), "CANCEL": uint64(Cancel), "KILL": uint64(Kill), "RESULT": uint64(Result), "ITEM": uint64(Item), "BLOCKED": uint64(Blocked),
		"UNBLOCKED": uint64(Unblocked), "RETURN": uint64(Return), "CONSUMED": uint64(Consumed), "GOODBYE": uint64(Goodbye), "SITE": uint64(Site),
		"CHUNK_ASK": uint64(ChunkAsk), "CHUNK_BACK": uint64(ChunkBack), "CHUNK": uint64(Chunk), "CHUNK_RECALL": uint64(ChunkRecall),
		"WELCOME": uint64(Welcome), "OBJECT": uint64(Object), "CREATED": uint64(Created), "REPLY": uint64(Reply), "TEMPLATE_DEF": uint64(TemplateDef), "EXEC": uint64(Exec),
		"CANCEL_EXEC": uint64(CancelExec), "RECALL": uint64(Recall), "RESUME": uint64(Resume), "LOG": uint64(Log), "EXIT": uint64(Exit), "WAIT_ERROR": uint64(WaitError),
		"F_FORCE": uint64(FlagForce), "F_RECURSIVE": uint64(FlagRecursive), "F_NO_RESTART": uint64(FlagNoRestart), "F_ANY": uint64(FlagAny),
		"F_ACTOR_CREATE": uint64(FlagActorCreate), "F_ACTOR_CALL": uint64(FlagActorCall), "F_STREAMING": uint64(FlagStreaming), "F_HAS_CONTEXT": uint64(FlagHasContext), "F_TIMED": uint64(FlagTimed), "F_LEASE": uint64(FlagLease), "F_ASIDE": uint64(FlagAside),
		"V_INLINE": uint64(Inline), "V_ARENA": uint64(Arena), "V_SYSERR": uint64(SysErr),
		"R_OK": uint64(StatusOK), "R_ERROR": uint64(StatusError), "R_RETRY": uint64(StatusRetry), "R_CANCELED": uint64(StatusCanceled), "R_EXIT_ACTOR": uint64(StatusExitActor),
		"B_NONE": uint64(FormatNone), "B_PICKLE": uint64(FormatPickle), "B_BYTES": uint64(FormatBytes), "B_MSGPACK": uint64(FormatMsgpack), "B_ARROW": uint64(FormatArrow), "B_TENSOR": uint64(FormatTensor), "B_ERROR": uint64(FormatError),
	}
	seen := 0
	for _, m := range regexp.MustCompile(`RG_([A-Z_]+) = (\d+)`).FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.ParseUint(m[2], 10, 64)
		got, known := want[m[1]]
		if !known || got != n {
			t.Errorf("RG_%s is %d in wire.h and %d here (known: %v)", m[1], n, got, known)
		}
		seen++
	}
	if seen != len(want) {
		t.Errorf("wire.h names %d numbers, this package %d", seen, len(want))
	}
}

func one(t *testing.T, b []byte) (Header, []byte) {
	t.Helper()
	h, payload, rest, err := Next(b)
	if err != nil || len(rest) != 0 {
		t.Fatalf("Next: %v, %d bytes left", err, len(rest))
	}
	return h, payload
}

func TestSiteRoundTrip(t *testing.T) {
	h, payload := one(t, AppendSite(nil, 42, SiteFrame{1, 3, []byte("(put object) | a.py:f:3")}))
	out, err := ParseSite(payload)
	if err != nil || h.ID != 42 || h.Type != Site || out.Index != 1 || out.Count != 3 || string(out.Text) != "(put object) | a.py:f:3" {
		t.Fatal(h, out, err)
	}
	for _, bad := range [][]byte{payload[:8], payload[:24], append(bytes.Clone(payload), make([]byte, 8)...)} {
		if _, err := ParseSite(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	_, payload = one(t, AppendSite(nil, 42, SiteFrame{1, 3, make([]byte, MaxSite+1)}))
	if _, err := ParseSite(payload); !errors.Is(err, ErrMalformed) {
		t.Error("a text that is too long is taken")
	}
}

func TestSubmitRoundTrip(t *testing.T) {
	in := SubmitFrame{7, 2, 9, 11, MakeOIDs(OID{1, 2}), MakeOIDs(OID{3, 0}, OID{4, 1}), []byte("hello")}
	h, payload := one(t, AppendSubmit(nil, 42, FlagActorCall, in))
	out, err := ParseSubmit(payload)
	if err != nil || h.ID != 42 || h.Type != Submit || h.Flags != FlagActorCall {
		t.Fatal(h, err)
	}
	if out.Template != 7 || out.NReturns != 2 || out.Actor != 9 || out.Parent != 11 || out.Top.At(0) != (OID{1, 2}) || out.Nested.At(1) != (OID{4, 1}) || string(out.Args) != "hello" {
		t.Fatalf("%+v", out)
	}
}

func TestExecRoundTrip(t *testing.T) {
	top := AppendValue(AppendOID(nil, OID{5, 1}), Value{Index: 1, Kind: Inline, Data: []byte("abc")})
	top = AppendValue(AppendOID(top, OID{6, 1}), Value{Index: 1, Kind: Arena, Len: 1 << 20, Offset: 4096})
	in := ExecFrame{Template: 1, NReturns: 1, NTop: 2, Attempt: 3, RetriesLeft: 4, Top: top, Args: []byte("args"), Context: []byte("context!!")}
	h, payload := one(t, AppendExec(nil, 42, FlagHasContext, &in))
	out, err := ParseExec(payload)
	if err != nil || h.Type != Exec || out.Attempt != 3 || out.RetriesLeft != 4 || string(out.Args) != "args" || string(out.Context) != "context!!" {
		t.Fatalf("%+v %v", out, err)
	}
	id, v, rest, err := TakeArg(out.Top)
	if err != nil || id != (OID{5, 1}) || string(v.Data) != "abc" {
		t.Fatal(id, v, err)
	}
	if id, v, rest, err = TakeArg(rest); err != nil || id.Task != 6 || v.Offset != 4096 || v.Len != 1<<20 || len(rest) != 0 {
		t.Fatal(id, v, err)
	}
}

func TestResultRoundTrip(t *testing.T) {
	v := Value{Index: 1, Kind: Inline, IsError: true, Refs: MakeOIDs(OID{8, 0}), Data: []byte("xyz")}
	_, payload := one(t, AppendResult(nil, 1, ResultFrame{Status: StatusError, ExecNS: 5, Attempt: 2}, v, Value{Index: 2, Kind: SysErr, Data: []byte{}}))
	r, err := ParseResult(payload)
	if err != nil || r.NValues != 2 || r.Status != StatusError || r.ExecNS != 5 || r.Attempt != 2 {
		t.Fatal(r, err)
	}
	got, _, err := TakeValue(r.Values)
	if err != nil || !got.IsError || got.Refs.At(0).Task != 8 || string(got.Data) != "xyz" {
		t.Fatal(got, err)
	}
}

func TestChunkRoundTrip(t *testing.T) {
	h, payload := one(t, AppendChunk(nil, ChunkFrame{Range{4096, 1 << 22}, 9}))
	if c, err := ParseChunk(payload); err != nil || h.Type != Chunk || c != (ChunkFrame{Range{4096, 1 << 22}, 9}) {
		t.Fatal(c, err)
	}
	h, payload = one(t, AppendChunkBack(nil, Range{1, 2}, Range{3, 4}))
	if r, err := ParseRanges(payload); err != nil || h.Type != ChunkBack || len(r) != 2 || r[1] != (Range{3, 4}) {
		t.Fatal(r, err)
	}
	if _, err := ParseRanges(make([]byte, 24)); !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
	if _, err := ParseChunk(make([]byte, 16)); !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}

func TestCreateRoundTrip(t *testing.T) {
	_, payload := one(t, AppendCreate(nil, 1, CreateFrame{3, 1 << 40}))
	if c, err := ParseCreate(payload); err != nil || c.Size != 1<<40 || c.Index != 3 {
		t.Fatal(c, err)
	}
	_, payload = one(t, AppendCreated(nil, 1, CreatedFrame{Index: 3, Status: 19, Offset: 64, File: 6, Generation: 7, Lease: 8, LeaseGen: 9, LeaseFile: 10, Message: "full"}))
	if c, err := ParseCreated(payload); err != nil || c.Message != "full" || c.Status != 19 || c.Offset != 64 || c.File != 6 || c.Generation != 7 || c.Lease != 8 || c.LeaseGen != 9 || c.LeaseFile != 10 {
		t.Fatal(c, err)
	}
}

func TestMalformedIsRefused(t *testing.T) {
	good := AppendSubmit(nil, 1, 0, SubmitFrame{Args: []byte("x")})[HeaderSize:]
	for name, change := range map[string]func([]byte) []byte{
		"short":         func(b []byte) []byte { return b[:SubmitSize-8] },
		"too many refs": func(b []byte) []byte { le.PutUint32(b[24:], 1<<31); return b },
		"nested":        func(b []byte) []byte { le.PutUint32(b[28:], 1); return b },
		"args too long": func(b []byte) []byte { le.PutUint32(b[32:], 9); return b },
		"reserved":      func(b []byte) []byte { b[36] = 1; return b },
		"left over":     func(b []byte) []byte { return append(b, zeros[:]...) },
	} {
		if _, err := ParseSubmit(change(bytes.Clone(good))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, _, err := Next(AppendHeader(nil, Header{Len: MaxFrame + 8})); !errors.Is(err, ErrMalformed) {
		t.Error("a frame that is too long:", err)
	}
	if _, _, _, err := Next(AppendHeader(nil, Header{Len: 4})); !errors.Is(err, ErrMalformed) {
		t.Error("a length that is no multiple of 8:", err)
	}
	if _, _, _, err := Next(AppendHeader(nil, Header{Len: 8})); err != ErrShort {
		t.Error("a frame that is not whole:", err)
	}
}

func TestWhole(t *testing.T) {
	b := AppendFrame(nil, Call, 0, 1, []byte("abc"))
	b = AppendFrame(b, Call, 0, 2, nil)
	n := len(b)
	b = append(b, AppendFrame(nil, Call, 0, 3, make([]byte, 100))[:20]...)
	whole, next, err := Whole(b)
	if err != nil || whole != n || next != HeaderSize+104 {
		t.Fatal(whole, next, err)
	}
}

// FuzzFrame checks that no bytes make a parser panic or read outside its frame, and that what is parsed can be written again.
func FuzzFrame(f *testing.F) {
	f.Add(AppendSubmit(nil, 1, 0, SubmitFrame{Top: MakeOIDs(OID{1, 1}), Args: []byte("x")}))
	f.Add(AppendResult(nil, 1, ResultFrame{}, Value{Index: 1, Kind: Inline, Data: []byte("abc")}))
	f.Add(AppendExec(nil, 1, 0, &ExecFrame{NTop: 1, Top: AppendValue(AppendOID(nil, OID{5, 1}), Value{Kind: Arena, Len: 9})}))
	f.Add(AppendCreated(nil, 1, CreatedFrame{Index: 1, Status: 2, Offset: 3, Generation: 4, Lease: 5, Message: "m"}))
	f.Add(AppendOIDFrame(nil, AddRef, 0, 0, OID{1, 1}, OID{2, 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			h, p, rest, err := Next(b)
			if err != nil {
				return
			}
			if len(p) != int(h.Len) || len(b) != HeaderSize+len(p)+len(rest) {
				t.Fatal("bytes were lost")
			}
			if s, err := ParseSubmit(p); err == nil {
				again, err := ParseSubmit(AppendSubmit(nil, 0, 0, s)[HeaderSize:])
				if err != nil || !bytes.Equal(again.Args, s.Args) || !bytes.Equal(again.Top, s.Top) {
					t.Fatal("submit does not survive", err)
				}
			}
			if r, err := ParseResult(p); err == nil {
				var vs []Value
				for in := r.Values; len(in) > 0; {
					var v Value
					v, in, _ = TakeValue(in)
					vs = append(vs, v)
				}
				if _, err := ParseResult(AppendResult(nil, 0, r, vs...)[HeaderSize:]); err != nil {
					t.Fatal("result does not survive", err)
				}
			}
			if x, err := ParseExec(p); err == nil {
				if _, err := ParseExec(AppendExec(nil, 0, 0, &x)[HeaderSize:]); err != nil {
					t.Fatal("exec does not survive", err)
				}
			}
			ParseValue(p)
			ParseCreate(p)
			ParseCreated(p)
			ParseChunk(p)
			ParseRanges(p)
			ParseUint64(p)
			ParseUint64s(p)
			_, _, _, _ = ParseBlob(p)
			if o, err := ParseOIDs(p); err == nil {
				for i := range o.Len() {
					o.At(i)
				}
			}
			b = rest
		}
	})
}

func BenchmarkFraming(b *testing.B) {
	args := make([]byte, 64)
	buf := make([]byte, 0, 1<<16)
	b.ReportAllocs()
	for range b.N {
		buf = AppendSubmit(buf[:0], 1, 0, SubmitFrame{Template: 1, NReturns: 1, Args: args})
		_, p, _, _ := Next(buf)
		if _, err := ParseSubmit(p); err != nil {
			b.Fatal(err)
		}
		buf = AppendResult(buf[:0], 1, ResultFrame{ExecNS: 1}, Value{Index: 1, Kind: Inline, Data: args})
		_, p, _, _ = Next(buf)
		r, err := ParseResult(p)
		if err != nil {
			b.Fatal(err)
		}
		TakeValue(r.Values)
	}
}
