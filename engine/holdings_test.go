package engine_test

import (
	"bytes"
	"testing"

	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/wire"
)

// objectRows asks for the rows of state.objects.
func (r *rig) objectRows(filters ...[]any) (rows []map[string]any) {
	r.t.Helper()
	if err := r.c.Call(ctx(r.t), "state.objects", map[string]any{"filters": filters}, &rows); err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// only finds the row of a reference's object; there must be one.
func (r *rig) only(ref client.Ref) map[string]any {
	r.t.Helper()
	var found []map[string]any
	for _, row := range r.objectRows() {
		id, _ := row["object_id"].(string)
		if len(id) == 56 && bytes.Equal([]byte(id[:16]), hexNumber(ref.OID().Task)) && id[48:50] == string(hexNumber(uint64(ref.OID().Index))[:2]) {
			found = append(found, row)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%d rows for %v: %v", len(found), ref.OID(), found)
	}
	return found[0]
}

// hexNumber is a number as it stands in an id: its bytes, the lowest first.
func hexNumber(n uint64) []byte {
	const digits = "0123456789abcdef"
	var out []byte
	for range 8 {
		out = append(out, digits[n>>4&15], digits[n&15])
		n >>= 8
	}
	return out
}

func TestWhyObjectsStay(t *testing.T) {
	r := newRig(t, 1)
	gate := make(chan struct{})
	r.on("slow", func(x *exec) { <-gate; x.answer(inlineValue(1, []byte("A"))) })
	r.on("make", func(x *exec) { x.answer(inlineValue(1, x.Args)) })
	small, err := r.c.Put(ctx(t), []byte("small"))
	if err != nil {
		t.Fatal(err)
	}
	big, err := r.c.Put(ctx(t), make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	made := r.submit(r.function("make"), "value")
	r.want(made, "value")
	slow := r.submit(r.function("slow"), "", small)
	late := r.submit(r.function("make"), "x", slow)

	for _, c := range []struct {
		ref  client.Ref
		want map[string]any
	}{
		{small, map[string]any{"reference_type": "USED_BY_PENDING_TASK", "where": "inline", "creator": "driver", "task_status": "NIL", "type": "DRIVER"}},
		{big, map[string]any{"reference_type": "LOCAL_REFERENCE", "where": "arena", "creator": "driver", "call_site": "disabled"}},
		{made, map[string]any{"reference_type": "LOCAL_REFERENCE", "where": "inline", "creator": "make", "task_status": "FINISHED"}},
		{slow, map[string]any{"reference_type": "USED_BY_PENDING_TASK", "where": "pending", "creator": "slow"}},
		{late, map[string]any{"reference_type": "LOCAL_REFERENCE", "where": "pending", "creator": "make", "task_status": "PENDING_ARGS_AVAIL"}},
	} {
		row := r.only(c.ref)
		for k, want := range c.want {
			if row[k] != want {
				t.Errorf("%s of %v: %v, not %v", k, c.ref.OID(), row[k], want)
			}
		}
	}
	if rows := r.objectRows(); asInt(rows[0]["object_size"]) < 1<<20 || asInt(r.only(slow)["object_size"]) != -1 {
		t.Error("the largest object is not the first:", rows)
	}
	small.Release()
	if row := r.only(small); row["reference_type"] != "USED_BY_PENDING_TASK" || asInt(row["pid"]) == 0 {
		t.Error(row)
	}
	close(gate)
	r.want(late, "x")
	eventually(t, "the argument is freed", func() bool { return len(r.objectRows()) == 4 })
	for _, ref := range []client.Ref{big, made, slow, late} {
		ref.Release()
	}
	eventually(t, "all is freed", func() bool { return len(r.objectRows()) == 0 })
}

func TestTotalsCountEachObjectOnce(t *testing.T) {
	r := newRig(t, 1)
	big, err := r.c.Put(ctx(t), make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	other := r.driver(client.Hello{})
	if _, err := other.Ref(big.OID()); err != nil {
		t.Fatal(err)
	}
	var found struct {
		Objects    int                         `msgpack:"objects"`
		Bytes      int64                       `msgpack:"bytes"`
		References map[string]map[string]int64 `msgpack:"references"`
	}
	eventually(t, "two references to one object", func() bool {
		if err := r.c.Call(ctx(t), "objects.totals", nil, &found); err != nil {
			t.Fatal(err)
		}
		return found.References["LOCAL_REFERENCE"]["count"] == 2
	})
	size := found.References["LOCAL_REFERENCE"]["bytes"] / 2
	if found.Objects != 1 || found.Bytes != size || size < 1<<20 {
		t.Errorf("%+v", found)
	}
}

func TestWhatIsReadOrContainedStays(t *testing.T) {
	r := newRig(t, 1)
	c := raw(t, r.n)
	inner, outer := uint64(1<<40), uint64(1<<40|1)
	value := wire.Value{Kind: wire.Inline, Data: wire.Blob(wire.FormatBytes, []byte("in"))}
	b := wire.AppendFrame(nil, wire.Put, 0, inner, wire.AppendValue(nil, value))
	value.Refs = wire.MakeOIDs(wire.OID{Task: inner})
	b = wire.AppendFrame(b, wire.Put, 0, outer, wire.AppendValue(nil, value))
	b = wire.AppendOIDFrame(b, wire.Release, 0, 0, wire.OID{Task: inner})
	if err := c.Input(b); err != nil {
		t.Fatal(err)
	}
	if got := r.objectRows([]any{"reference_type", "=", "CAPTURED_IN_OBJECT"}); len(got) != 1 {
		t.Error(r.objectRows())
	}
	c.Detach()
	eventually(t, "both are freed", func() bool { return len(r.objectRows()) == 0 })

	c = raw(t, r.n)
	read := uint64(1<<40 | 2)
	b = wire.AppendCreate(nil, read, wire.CreateFrame{Size: 1 << 20})
	if err := c.Input(b); err != nil {
		t.Fatal(err)
	}
	if got := r.objectRows(); len(got) != 1 || got[0]["where"] != "writing" {
		t.Error(got)
	}
	b = wire.AppendFrame(nil, wire.Seal, 0, read, wire.AppendValue(nil, wire.Value{Kind: wire.Arena, Len: 1 << 20, Offset: wire.NoOffset}))
	b = wire.AppendOIDFrame(b, wire.Pin, 0, 0, wire.OID{Task: read})
	b = wire.AppendSite(b, read, wire.SiteFrame{Count: 1, Text: []byte("a.py:f:1")})
	if err := c.Input(b); err != nil {
		t.Fatal(err)
	}
	if got := r.objectRows(); len(got) != 1 || got[0]["reference_type"] != "PINNED_IN_MEMORY" || got[0]["creator"] != "driver" {
		t.Error(got)
	}
	if err := c.Input(wire.AppendOIDFrame(nil, wire.Release, 0, 0, wire.OID{Task: read})); err != nil {
		t.Fatal(err)
	}
	// No reference is left, but its bytes are still being read, so they still take up space.
	if got := r.objectRows(); len(got) != 1 || got[0]["reference_type"] != "PINNED_IN_MEMORY" || asInt(got[0]["object_size"]) != 1<<20 || got[0]["creator"] != "driver" || got[0]["call_site"] != "a.py:f:1" {
		t.Error(got)
	}
	c.Detach()
	eventually(t, "all is freed", func() bool { return len(r.objectRows()) == 0 })
}

func TestSites(t *testing.T) {
	r := newRig(t, 1)
	c := raw(t, r.n)
	put := func(num uint64) []byte {
		return wire.AppendFrame(nil, wire.Put, 0, num, wire.AppendValue(nil, wire.Value{Kind: wire.Inline, Data: wire.Blob(wire.FormatNone, nil)}))
	}
	site := func(num uint64, text string) []byte {
		return wire.AppendSite(nil, num, wire.SiteFrame{Count: 1, Text: []byte(text)})
	}
	b := append(put(1<<40), site(1<<40, "a.py:f:1")...)
	b = append(b, site(1<<40, "a.py:g:2")...) // of a further handle: the first one says where it came from
	b = append(b, put(1<<40|1)...)
	b = append(b, site(1<<40|2, "nowhere")...) // of an object that is gone
	if err := c.Input(b); err != nil {
		t.Fatal(err)
	}
	got := map[any]int{}
	for _, row := range r.objectRows() {
		got[row["call_site"]]++
	}
	if len(got) != 2 || got["a.py:f:1"] != 1 || got[""] != 1 {
		t.Error(got)
	}
	if err := c.Input(wire.AppendOIDFrame(nil, wire.Release, 0, 0, wire.OID{Task: 1 << 40})); err != nil {
		t.Fatal(err)
	}
	if err := c.Input(put(1 << 40)); err != nil { // the number is free again
		t.Fatal(err)
	}
	if got := r.objectRows([]any{"call_site", "=", "a.py:f:1"}); len(got) != 0 {
		t.Error("a site outlives its reference:", got)
	}
	c.Detach()
}
