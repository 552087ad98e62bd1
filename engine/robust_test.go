package engine_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/engine/worker"

	"golang.org/x/sys/unix"
)

// Faults of processes and senseless frames: each ends what it concerns, with an error, and nothing else.

type forkless struct{ *fakeTemplate }

func (forkless) Fork(uint64) (*os.File, error) { return nil, errors.New("no more processes") }

func TestWorkersThatCannotBeForked(t *testing.T) {
	f := newFakes(t)
	r := newRig(t, 4, func(o *engine.Options) {
		o.Launch = func(c worker.Config, h worker.Handler) (engine.Template, error) {
			f.forks.Add(1)
			go h.Ready(nil, 1)
			return forkless{&fakeTemplate{f, h}}, nil
		}
	})
	fn := r.function("f")
	for range 4 {
		if _, err := r.get(r.submit(fn, "")); !errors.Is(err, errs.EWORKERDIED) || !strings.Contains(err.Error(), "no more processes") {
			t.Error(err)
		}
	}
	if k := f.forks.Load(); k != 3 {
		t.Errorf("%d templates were started", k)
	}
}

func TestAnswerThatMakesNoSense(t *testing.T) {
	r := newRig(t, 1)
	r.on("f", func(x *exec) { x.answer(wire.Value{Index: 1, Kind: wire.Arena, Len: 10, Offset: wire.NoOffset}) }) // no space was made for it
	if _, err := r.get(r.submit(r.function("f", "max_retries", 0), "")); !errors.Is(err, errs.EWORKERDIED) || !strings.Contains(err.Error(), "makes no sense") {
		t.Error(err)
	}
	r.on("f", echo)
	r.want(r.submit(r.function("f"), "x"), "x")
}

func TestGeneratorThatIsRetriedKnowsWhatWasTaken(t *testing.T) {
	r := newRig(t, 1)
	resumed := make(chan uint64, 100)
	r.on("on_resume", func(x *exec) { resumed <- le.Uint64(x.Args) })
	begun := make(chan *exec, 2)
	r.on("gen", func(x *exec) { begun <- x })
	end := r.submit(r.function("gen", "streaming", true, "max_retries", 2), "")
	x := <-begun
	for _, told := range []uint64{7, wire.Dropped} {
		if err := r.c.Consumed(end.OID().Task, told); err != nil {
			t.Fatal(err)
		}
		if k := <-resumed; k != told {
			t.Error(k)
		}
		x.w.die(unix.WaitStatus(unix.SIGKILL))
		x = <-begun
		if k := <-resumed; k != told { // or it would wait for the consumer at an item that was taken long ago
			t.Error(k)
		}
	}
	x.answer(inlineValue(1, nil))
}

func TestActorKeepsNoMoreThanItWasPlacedWith(t *testing.T) {
	r := newRig(t, 1)
	c := r.driver(client.Hello{})
	defer c.Close()
	f, err := c.Define(map[string]any{"kind": "actor", "name": "A", "placement": map[string]int{"CPU": 10000}, "resources": map[string]int{"x": 10000}})
	if err == nil {
		_, err = f.SubmitRaw(0, nil, nil, nil)
	}
	if err == nil { // it is sent, and the engine's answer is still under way
		err = c.Call(ctx(t), "node.stats", nil, nil)
	}
	if !errors.Is(err, errs.ECONNECTION) {
		t.Error(err)
	}
}

func TestBundleWithAnAmountOfNothing(t *testing.T) {
	r := newRig(t, 1)
	r.ask("pg.create", map[string]any{"pg": 1 << 40, "bundles": []map[string]int{{"CPU": 10000, "y": 0}}})
	r.ask("pg.remove", map[string]any{"pg": 1 << 40})
	r.ask("node.stats", nil)
}

// raw is a connection that sends what it likes.
func raw(t *testing.T, n *engine.Node) *engine.Conn {
	t.Helper()
	c, err := n.Attach(pack(map[string]any{"version": version.Version, "role": "driver"}), func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Detach)
	return c
}

func TestParentsInACircle(t *testing.T) {
	r := newRig(t, 2)
	begun := make(chan *exec, 2)
	r.on("f", func(x *exec) { begun <- x })
	c := raw(t, r.n)
	in := wire.AppendFrame(nil, wire.Template, 0, 1, pack(map[string]any{"kind": "function", "name": "f", "resources": map[string]int{"CPU": 10000}}))
	in = wire.AppendSubmit(in, 1<<40|1, 0, wire.SubmitFrame{Template: 1, NReturns: 1, Parent: 1<<40 | 2})
	in = wire.AppendSubmit(in, 1<<40|2, 0, wire.SubmitFrame{Template: 1, NReturns: 1, Parent: 1<<40 | 1})
	if err := c.Input(in); err != nil {
		t.Fatal(err)
	}
	x, y := <-begun, <-begun
	if err := c.Input(wire.AppendFrame(nil, wire.Cancel, wire.FlagRecursive, x.id, nil)); err != nil {
		t.Fatal(err)
	}
	x.answer()
	y.answer()
}

func TestCreationThatIsACallAsWell(t *testing.T) {
	r := newRig(t, 1)
	c := raw(t, r.n)
	in := wire.AppendFrame(nil, wire.Template, 0, 1, pack(map[string]any{"kind": "actor", "name": "A"}))
	in = wire.AppendSubmit(in, 1<<40|1, wire.FlagActorCreate|wire.FlagActorCall, wire.SubmitFrame{Template: 1})
	if err := c.Input(in); err != nil {
		t.Fatal(err)
	}
	if err := c.Input(nil); !errors.Is(err, errs.ECONNECTION) {
		t.Error(err)
	}
}

func TestNameThatAWorkerTookIsFreeAfterItsDeath(t *testing.T) {
	r := newRig(t, 1)
	r.on("f", func(x *exec) {
		x.w.out(wire.AppendFrame(nil, wire.Call, 0, 1, pack([]any{"actor.reserve", map[string]any{"name": "n", "namespace": "s", "actor": 1 << 40}})))
		x.w.die(unix.WaitStatus(unix.SIGKILL))
	})
	if _, err := r.get(r.submit(r.function("f", "max_retries", 0), "")); !errors.Is(err, errs.EWORKERDIED) {
		t.Error(err)
	}
	if got := r.ask("actor.reserve", map[string]any{"name": "n", "namespace": "s", "actor": 2 << 40}); got["exists"] != false {
		t.Error(got)
	}
}

// TestDescriptorOfAProcessThatLeftMuchUnread: whoever goes while a goroutine writes to it leaves the descriptor to that.
func TestDescriptorOfAProcessThatLeftMuchUnread(t *testing.T) {
	var mu sync.Mutex
	open := map[int]bool{}
	r := newRig(t, 1, func(o *engine.Options) {
		o.Listen = true
		o.RegisterFD = func(fd int, on bool) {
			mu.Lock()
			defer mu.Unlock()
			if on {
				open[fd] = true
			} else {
				delete(open, fd)
			}
		}
	})
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(open) }
	r.on("echo", echo)
	r.want(r.submit(r.function("echo"), ""), "") // the worker is up
	before := count()
	var x any
	if err := r.c.Call(ctx(t), "kv.put", map[string]any{"ns": "", "key": []byte("k"), "value": make([]byte, 8<<20)}, &x); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		c, err := net.Dial("unix", r.n.Socket())
		if err != nil {
			t.Fatal(err)
		}
		in := wire.AppendFrame(nil, wire.Hello, 0, 0, pack(map[string]any{"version": version.Version, "role": "client"}))
		in = wire.AppendFrame(in, wire.Call, 0, 1, pack([]any{"kv.get", map[string]any{"ns": "", "key": []byte("k")}}))
		if _, err := c.Write(in); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4096)); err != nil { // more is on its way than the socket takes
			t.Fatal(err)
		}
		c.Close()
	}
	eventually(t, "all descriptors are closed", func() bool { return count() == before })
}

func TestTasksOfAnEndedJobEndOnce(t *testing.T) {
	r := newRig(t, 1)
	c := r.driver(client.Hello{})
	f, err := c.Define(map[string]any{"kind": "function", "name": "f", "resources": map[string]int{"none": 10000}})
	if err != nil {
		t.Fatal(err)
	}
	var top []wire.OID
	for range 5 { // each ends with the one before it
		refs, err := f.SubmitRaw(0, nil, top, nil)
		if err != nil {
			t.Fatal(err)
		}
		top = []wire.OID{refs[0].OID()}
	}
	c.Close()
	var text string
	if err := r.c.Call(ctx(t), "metrics.text", nil, &text); err != nil || !strings.Contains(text, "raygo_tasks_failed_total 5\n") {
		t.Error(text, err)
	}
}

func TestMetricOfAnUnknownTypeTakesNoName(t *testing.T) {
	r := newRig(t, 1)
	record := func(kind string) error {
		var x any
		return r.c.Call(ctx(t), "metrics.record", []map[string]any{{"name": "m", "type": kind, "value": 1}}, &x)
	}
	if err := record("thermometer"); !errors.Is(err, errs.EINVAL) {
		t.Error(err)
	}
	if err := record("gauge"); err != nil {
		t.Error(err)
	}
}

func TestSpaceAskedForTwice(t *testing.T) {
	r := newRig(t, 1)
	stats := func(key string) int64 { return asInt(r.ask("store.stats", nil)[key]) }
	c := raw(t, r.n)
	create := func(num, size uint64) []byte {
		return wire.AppendFrame(nil, wire.Create, 0, num, wire.AppendUint64(wire.AppendUint64(nil, 0), size))
	}
	abort := func(num uint64) []byte { return wire.AppendOIDFrame(nil, wire.Abort, 0, num, wire.OID{Task: num}) }
	full := create(1<<40, 64<<20)
	if err := c.Input(append(append(full, create(1<<40|1, 1<<20)...), create(1<<40|1, 1<<20)...)); err != nil { // both wait for room
		t.Fatal(err)
	}
	if err := c.Input(abort(1 << 40)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is room", func() bool { return stats("arena_objects") == 1 })
	c.Detach()
	eventually(t, "all is given back", func() bool { return stats("arena_objects") == 0 && stats("used") == 0 })
}

// A parent that dies takes along the tasks whose values nobody else can have; what it has let go of goes on.
func TestTasksOfADeadParentEnd(t *testing.T) {
	r := newRig(t, 3)
	template := func(x *exec, name string) uint32 {
		n := uint32(x.w.number.Add(1) & 0xffffffff)
		x.w.out(wire.AppendFrame(nil, wire.Template, 0, uint64(n), pack(map[string]any{"kind": "function", "name": name})))
		return n
	}
	begun, release := make(chan struct{}, 10), make(chan struct{})
	r.on("endless", func(x *exec) {
		begun <- struct{}{}
		<-release
	})
	var second, free atomic.Int32
	r.on("second", func(x *exec) { second.Add(1); x.answer(inlineValue(1, nil)) })
	r.on("free", func(x *exec) { free.Add(1); x.answer(inlineValue(1, nil)) })
	r.on("parent", func(x *exec) {
		if x.Attempt > 0 {
			x.answer(inlineValue(1, []byte("again")))
			return
		}
		first := x.w.submitNested(x, template(x, "endless"), 0, 0)
		x.w.submitNested(x, template(x, "second"), 0, 0, first)
		x.w.out(wire.AppendOIDFrame(nil, wire.Release, 0, 0, x.w.submitNested(x, template(x, "free"), 0, 0)))
		<-begun
		x.w.die(unix.WaitStatus(unix.SIGKILL))
	})
	r.want(r.submit(r.function("parent", "max_retries", 1), ""), "again")
	close(release)
	eventually(t, "nothing of the first attempt is left", func() bool {
		return asInt(r.ask("node.stats", nil)["queued"]) == 0 && asInt(r.ask("node.stats", nil)["units"]) <= 1
	})
	if second.Load() != 0 || free.Load() != 1 {
		t.Errorf("the task whose value nobody could have ran %d times, the one that was let go %d times", second.Load(), free.Load())
	}
}
