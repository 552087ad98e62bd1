package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"

	"golang.org/x/sys/unix"
)

const bigSize = 900 << 10 // three of them fit into the store of these tests

// lossRig is a rig with a store of 4 MiB, in which values are lost by emptying the files that they were spilled to.
type lossRig struct {
	*rig
	dir   string
	arena []byte
	runs  atomic.Int32 // of value
}

func newLossRig(t *testing.T, cpus float64, change ...func(*engine.Options)) *lossRig {
	t.Helper()
	l := &lossRig{dir: t.TempDir()}
	small := func(o *engine.Options) {
		o.ObjectStoreMemory, o.SpillDirs = 4<<20, []string{l.dir}
	}
	l.rig = newRig(t, cpus, append([]func(*engine.Options){small}, change...)...)
	arena, err := unix.Mmap(int(asInt(l.c.Welcome["arena_fd"])), 0, int(asInt(l.c.Welcome["arena_size"])), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	l.arena = arena // it stays mapped: a worker may be writing when the test ends
	l.on("value", func(x *exec) {
		l.runs.Add(1)
		x.answer(l.big(x, 1, x.Args[0]))
	})
	l.on("filler", func(x *exec) { x.answer(l.big(x, 1, 'f')) })
	return l
}

// big writes a value of one repeated letter into the arena.
func (l *lossRig) big(x *exec, index uint32, letter byte, refs ...wire.OID) wire.Value {
	blob := wire.Blob(wire.FormatBytes, bytes.Repeat([]byte{letter}, bigSize))
	x.w.out(wire.AppendCreate(nil, x.id, wire.CreateFrame{Index: index, Size: uint64(len(blob))}))
	k := <-x.w.spaces
	if k.Status != 0 {
		l.t.Errorf("no space: %s", k.Message)
	}
	copy(l.arena[k.Offset:], blob)
	return wire.Value{Index: index, Kind: wire.Arena, Len: uint64(len(blob)), Offset: wire.NoOffset, Refs: wire.MakeOIDs(refs...)}
}

// letter is the letter that an argument of big repeats.
func (l *lossRig) letter(x *exec, i int) byte {
	rest := x.Top
	for range i {
		_, _, rest, _ = wire.TakeArg(rest)
	}
	oid, v, _, _ := wire.TakeArg(rest)
	if v.Kind != wire.Arena {
		_, body, _, _ := wire.ParseBlob(v.Data)
		return body[0]
	}
	defer x.w.out(wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, oid))
	_, body, _, _ := wire.ParseBlob(l.arena[v.Offset : v.Offset+v.Len])
	return body[0]
}

// lose has all values that are in the store now lost.
func (l *lossRig) lose() {
	l.t.Helper()
	f := l.function("filler", "max_retries", 0)
	var fillers []client.Ref
	for range 8 {
		fillers = append(fillers, l.submit(f, ""))
	}
	for _, x := range fillers {
		l.wantBig(x, 'f')
	}
	links, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		l.t.Fatal(err)
	}
	emptied := 0
	for _, link := range links {
		path := "/proc/self/fd/" + link.Name()
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, l.dir) {
			continue
		}
		if err := os.Truncate(path, 0); err != nil {
			l.t.Fatal(err)
		}
		emptied++
	}
	if emptied == 0 {
		l.t.Fatal("nothing was spilled")
	}
	for _, x := range fillers {
		x.Release()
	}
}

func (l *lossRig) wantBig(ref client.Ref, letter byte) {
	l.t.Helper()
	got, err := l.get(ref)
	if err != nil || len(got) != bigSize || got[0] != letter || got[bigSize-1] != letter {
		l.t.Fatalf("%d bytes, %.20q, %v; want %q", len(got), got, err, letter)
	}
}

func (l *lossRig) stat(key string) int64 { l.t.Helper(); return asInt(l.ask("node.stats", nil)[key]) }

func (l *lossRig) wantError(ref client.Ref, code errs.Code, parts ...string) {
	l.t.Helper()
	_, err := l.get(ref)
	if !errors.Is(err, code) {
		l.t.Fatalf("%v; want %s", err, code.Name())
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			l.t.Errorf("%q lacks %q", err, part)
		}
	}
}

func TestLostValueIsMadeAgain(t *testing.T) {
	l := newLossRig(t, 2)
	f := l.function("value")
	a, b := l.submit(f, "a"), l.submit(f, "b")
	l.wantBig(a, 'a')
	l.wantBig(b, 'b')
	l.lose()
	l.wantBig(a, 'a')
	l.wantBig(b, 'b')
	if l.runs.Load() != 4 || l.stat("tasks_rerun") != 2 || l.stat("objects_lost") != 2 {
		t.Error(l.runs.Load(), l.ask("node.stats", nil))
	}
	if l.stat("lineage_tasks") != 2 || l.stat("lineage_bytes") == 0 {
		t.Error(l.ask("node.stats", nil))
	}
	a.Release()
	b.Release()
	eventually(t, "no lineage is left", func() bool {
		return l.stat("lineage_tasks") == 0 && l.stat("lineage_bytes") == 0 && l.stat("units") == 0
	})
}

// TestChainAndDiamond: the arguments are held by nobody when the last value is lost, so the whole tree runs again, each task of it once.
func TestChainAndDiamond(t *testing.T) {
	l := newLossRig(t, 1)
	runs := map[byte]*atomic.Int32{}
	for _, c := range []byte("abcdez") {
		runs[c] = &atomic.Int32{}
	}
	l.on("next", func(x *exec) {
		for i := range x.NTop {
			if got := l.letter(x, int(i)); got != x.Args[1+i] {
				t.Errorf("argument %d of %s is %q", i, x.Args, got)
			}
		}
		runs[x.Args[0]].Add(1)
		x.answer(l.big(x, 1, x.Args[0]))
	})
	f := l.function("next")
	at := l.submit(f, "a")
	for _, step := range []string{"ba", "cb"} {
		next := l.submit(f, step, at)
		at.Release()
		at = next
	}
	left, right := l.submit(f, "dc", at), l.submit(f, "ec", at)
	end := l.submit(f, "zde", left, right)
	for _, x := range []client.Ref{at, left, right} {
		x.Release()
	}
	l.wantBig(end, 'z')
	l.lose()
	if got := l.stat("lineage_tasks"); got != 6 {
		t.Error(got, "tasks are kept; want 6")
	}
	l.wantBig(end, 'z')
	for c, n := range runs {
		if n.Load() != 2 {
			t.Errorf("%q ran %d times", c, n.Load())
		}
	}
	end.Release()
	eventually(t, "nothing is left", func() bool { return l.stat("lineage_tasks") == 0 && l.stat("units") == 0 })
}

// TestLongChain: neither keeping, making again nor forgetting a long chain may go down the Go stack.
func TestLongChain(t *testing.T) {
	l := newLossRig(t, 1)
	l.on("link", func(x *exec) {
		if x.NTop > 0 {
			l.letter(x, 0)
		}
		x.answer(l.big(x, 1, 'l'))
	})
	f := l.function("link")
	const length = 300
	at := l.submit(f, "")
	for range length - 1 {
		next := l.submit(f, "", at)
		at.Release()
		at = next
	}
	l.wantBig(at, 'l')
	l.lose()
	l.wantBig(at, 'l')
	if got := l.stat("tasks_rerun"); got != length {
		t.Error(got)
	}
	at.Release()
	eventually(t, "nothing is left", func() bool { return l.stat("lineage_tasks") == 0 && l.stat("units") == 0 })
}

// TestSmallArgumentsAreKept: a small value has no lineage of its own, so its bytes stay; what it contains is made again.
func TestSmallArgumentsAreKept(t *testing.T) {
	l := newLossRig(t, 1)
	inner := l.submit(l.function("value"), "i")
	l.on("small", func(x *exec) {
		v := inlineValue(1, []byte("s"))
		v.Refs = wire.MakeOIDs(inner.OID())
		x.answer(v)
	})
	small := l.submit(l.function("small"), "")
	l.on("get inner", func(x *exec) {
		x.w.out(wire.AppendOIDFrame(nil, wire.AddRef, 0, 0, inner.OID()))
		x.w.out(wire.AppendOIDFrame(nil, wire.Pin, 0, 0, inner.OID()))
		v := <-x.w.objects
		_, body, _, _ := wire.ParseBlob(l.arena[v.Offset : v.Offset+v.Len])
		if body[0] != 'i' || l.letter(x, 0) != 's' {
			t.Errorf("%.10q", body)
		}
		x.w.out(wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, inner.OID()))
		x.w.out(wire.AppendOIDFrame(nil, wire.Release, 0, 0, inner.OID()))
		x.answer(l.big(x, 1, 'o'))
	})
	outer := l.submit(l.function("get inner"), "", small)
	l.want(small, "s")
	l.wantBig(outer, 'o')
	small.Release()
	inner.Release()
	eventually(t, "the arguments are freed", func() bool { return l.stat("units") == 1 })
	l.lose()
	l.wantBig(outer, 'o')
	if l.runs.Load() != 2 {
		t.Error(l.runs.Load(), "runs of the inner task")
	}
	outer.Release()
	eventually(t, "nothing is left", func() bool { return l.stat("lineage_tasks") == 0 && l.stat("units") == 0 })
}

// TestOneRunMakesAllValues and leaves alone those that are still there.
func TestOneRunMakesAllValues(t *testing.T) {
	l := newLossRig(t, 1)
	var runs atomic.Int32
	l.on("three", func(x *exec) {
		k := byte('0' + runs.Add(1))
		x.answer(l.big(x, 1, k), inlineValue(2, []byte{k}), l.big(x, 3, k))
	})
	refs, err := l.function("three", "num_returns", 3).SubmitRaw(0, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.wantBig(refs[0], '1')
	l.lose()
	l.wantBig(refs[2], '2')
	if _, err := l.get(refs[0]); err != nil { // lost as well, which shows only now
		t.Fatal(err)
	}
	l.wantBig(refs[0], '3')
	l.wantBig(refs[2], '2')
	l.want(refs[1], "1")
	if runs.Load() != 3 {
		t.Error(runs.Load(), "runs")
	}
}

func TestRetriesBoundHowOftenAValueIsMade(t *testing.T) {
	l := newLossRig(t, 1)
	a := l.submit(l.function("value", "max_retries", 1), "a")
	b := l.submit(l.function("value", "max_retries", 0), "b")
	l.wantBig(a, 'a')
	l.wantBig(b, 'b')
	l.lose()
	l.wantBig(a, 'a')
	l.wantError(b, errs.EREBUILD, "value 1 of task value", fmt.Sprint(bigSize+16, " bytes"), l.dir, "max_retries", "is 0")
	l.lose()
	l.wantError(a, errs.EREBUILD, "used up its retries")
	l.wantError(a, errs.EREBUILD, "used up its retries")
	if l.stat("lineage_tasks") != 0 {
		t.Error(l.ask("node.stats", nil))
	}
}

func TestLostPut(t *testing.T) {
	l := newLossRig(t, 1)
	put, err := l.c.Put(ctx(t), bytes.Repeat([]byte("p"), bigSize))
	if err != nil {
		t.Fatal(err)
	}
	l.on("of", func(x *exec) { l.letter(x, 0); x.answer(l.big(x, 1, 'o')) })
	of := l.submit(l.function("of"), "", put)
	of2 := l.submit(l.function("of"), "", of)
	l.wantBig(of2, 'o')
	of.Release()
	put.Release() // the lineage of the first task keeps it, in vain
	l.lose()
	l.wantError(of2, errs.EREBUILD, "value 1 of task of", "argument of its task is lost as well", "put by the driver with pid", l.dir, "no task that could make them again")
	of2.Release()
	eventually(t, "nothing is left", func() bool { return l.stat("lineage_tasks") == 0 && l.stat("units") == 0 })
}

// TestWhatWasPutStaysForItsTask: large arguments given by value are put, and their reference is dropped at once.
func TestWhatWasPutStaysForItsTask(t *testing.T) {
	l := newLossRig(t, 1)
	put, err := l.c.Put(ctx(t), bytes.Repeat([]byte("p"), bigSize))
	if err != nil {
		t.Fatal(err)
	}
	l.on("of", func(x *exec) { x.answer(l.big(x, 1, l.letter(x, 0))) })
	of := l.submit(l.function("of"), "", put)
	l.wantBig(of, 'p')
	oid := put.OID()
	put.Release()
	held, err := l.c.Ref(oid)
	if err != nil {
		t.Fatal(err)
	}
	err = l.c.GetBlob(ctx(t), held, func([]byte) error { l.lose(); return nil }) // while it is pinned, so it is not lost itself
	if err != nil {
		t.Fatal(err)
	}
	held.Release()
	l.wantBig(of, 'p')
	of.Release()
	eventually(t, "nothing is left", func() bool { return l.stat("lineage_tasks") == 0 && l.stat("units") == 0 })
}

func TestLineageIsBounded(t *testing.T) {
	limit := int64(4000)
	l := newLossRig(t, 1, func(o *engine.Options) { o.MaxLineage = &limit })
	f := l.function("value")
	a := l.submit(f, "a"+strings.Repeat("x", 2000))
	l.wantBig(a, 'a')
	b := l.submit(f, "b"+strings.Repeat("x", 2000))
	l.wantBig(b, 'b')
	if l.stat("lineage_tasks") != 1 || l.stat("lineage_bytes") > limit || l.stat("lineage_evicted") != 1 {
		t.Error(l.ask("node.stats", nil))
	}
	l.lose()
	l.wantBig(b, 'b')
	l.wantError(a, errs.EREBUILD, "within 4000 bytes", "RAY_max_lineage_bytes")
}

func TestGeneratorIsRunAgainForItsItems(t *testing.T) {
	l := newLossRig(t, 1)
	var runs atomic.Int32
	l.on("gen", func(x *exec) {
		runs.Add(1)
		for i := range byte(4) {
			x.w.out(wire.End(wire.AppendValue(wire.Begin(nil, wire.Item, 0, x.id), l.big(x, 2+uint32(i), 'A'+i)), 0))
		}
		x.answer(inlineValue(1, []byte("4")))
	})
	end := l.submit(l.function("gen", "streaming", true, "max_retries", -1), "")
	l.want(end, "4")
	var items []client.Ref
	for i := range uint32(4) {
		item, err := l.c.Ref(wire.OID{Task: end.OID().Task, Index: 2 + i})
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	if err := l.c.Consumed(end.OID().Task, 4); err != nil {
		t.Fatal(err)
	}
	for i, item := range items {
		l.wantBig(item, 'A'+byte(i))
	}
	items[3].Release()
	l.lose()
	l.wantBig(items[2], 'C')
	l.wantBig(items[0], 'A')
	if got := runs.Load(); got < 2 || got > 3 {
		t.Error(got, "runs")
	}
	l.on("gen", func(x *exec) {
		x.w.out(wire.End(wire.AppendValue(wire.Begin(nil, wire.Item, 0, x.id), l.big(x, 2, 'A')), 0))
		x.answer(inlineValue(1, []byte("1")))
	})
	l.lose()
	l.wantBig(items[0], 'A')
	l.wantError(items[1], errs.EREPLAY, "item 1 of task gen", "yielded no item 1")
	for _, item := range append(items[:3:3], end) {
		item.Release()
	}
	if err := l.c.Consumed(end.OID().Task, wire.Dropped); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() bool { return l.stat("lineage_tasks") == 0 && l.stat("units") == 0 })
}

// TestQueuedTasksWaitForTheirLostArgument: the loss is noticed by a get while they are queued, or when their turn comes.
func TestQueuedTasksWaitForTheirLostArgument(t *testing.T) {
	l := newLossRig(t, 1)
	start := make(chan struct{})
	l.on("block", func(x *exec) { <-start; x.answer(inlineValue(1, nil)) })
	l.on("use", func(x *exec) { x.answer(inlineValue(1, []byte{l.letter(x, 0)})) })
	a := l.submit(l.function("value"), "a")
	b := l.submit(l.function("value"), "b")
	l.wantBig(a, 'a')
	l.wantBig(b, 'b')
	l.lose()
	block := l.submit(l.function("block", "max_retries", 0), "")
	use := l.function("use")
	var refs []client.Ref
	for range 3 {
		refs = append(refs, l.submit(use, "", a), l.submit(use, "", b))
	}
	actor := l.actor("Actor", "placement", map[string]int{})
	l.on("call", func(x *exec) { x.answer(inlineValue(1, x.Args)) })
	l.on("call with", func(x *exec) { x.answer(inlineValue(1, []byte{l.letter(x, 0)})) })
	var calls []client.Ref
	with, err := l.method("call with").SubmitRaw(actor.OID().Task, nil, []wire.OID{a.OID()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		calls = append(calls, l.call(actor, l.method("call"), fmt.Sprint(i)))
	}
	close(start)
	l.want(block, "")
	for i, r := range refs {
		l.want(r, string("ab"[i%2]))
	}
	l.want(with[0], "a")
	for i, c := range calls {
		l.want(c, fmt.Sprint(i))
	}
	if l.runs.Load() != 4 {
		t.Error(l.runs.Load(), "runs")
	}
}

// TestActorIsCreatedWithALostArgument and its calls wait.
func TestActorIsCreatedWithALostArgument(t *testing.T) {
	l := newLossRig(t, 1)
	a := l.submit(l.function("value"), "a")
	l.wantBig(a, 'a')
	l.lose()
	var got atomic.Int32
	l.on("Keeper", func(x *exec) { got.Store(int32(l.letter(x, 0))); x.answer() })
	l.on("get", func(x *exec) { x.answer(inlineValue(1, []byte{byte(got.Load())})) })
	keeper := l.submit(l.define(map[string]any{"kind": "actor", "name": "Keeper", "resources": map[string]int{"CPU": 10000}}), "", a)
	l.want(l.call(keeper, l.method("get"), ""), "a")
}

// TestWorkerWaitsForALostValue: the only CPU is the waiting task's; the value's task gets it.
func TestWorkerWaitsForALostValue(t *testing.T) {
	l := newLossRig(t, 1)
	a := l.submit(l.function("value"), "a")
	l.wantBig(a, 'a')
	l.lose()
	l.on("reader", func(x *exec) {
		x.w.out(wire.AppendOIDFrame(nil, wire.Pin, 0, 0, a.OID()))
		v := <-x.w.objects
		_, body, _, _ := wire.ParseBlob(l.arena[v.Offset : v.Offset+v.Len])
		x.answer(inlineValue(1, body[:1]))
	})
	l.want(l.submit(l.function("reader"), ""), "a")
}

// TestActorsResults can be made again while the actor lives, if its calls may be retried; a call that waits for one that would come after it is told.
func TestActorsResults(t *testing.T) {
	l := newLossRig(t, 1)
	actor := l.actor("Actor", "max_task_retries", 1)
	once := l.call(actor, l.method("value", "max_task_retries", 0), "o")
	again := l.call(actor, l.method("value"), "a")
	l.wantBig(once, 'o')
	l.wantBig(again, 'a')
	l.lose()
	l.wantBig(again, 'a')
	l.wantError(once, errs.EREBUILD, "call Actor.value", "max_task_retries")

	waited := l.call(actor, l.method("value"), "w")
	late := l.call(actor, l.method("value"), "l")
	l.wantBig(waited, 'w')
	l.wantBig(late, 'l')
	l.lose()
	l.on("wait", func(x *exec) {
		x.w.out(wire.AppendOIDFrame(nil, wire.Pin, 0, 0, waited.OID()))
		v := <-x.w.objects
		x.answer(inlineValue(1, []byte(fmt.Sprint(v.Kind == wire.SysErr))))
	})
	l.want(l.call(actor, l.method("wait"), ""), "true")
	l.wantError(waited, errs.EDEADLOCK, "would never end", "Actor.wait")
	l.c.Kill(actor.OID().Task, true)
	l.wantError(late, errs.EREBUILD, "actor is dead")
}
