package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"

	"golang.org/x/sys/unix"
)

func echo(x *exec) { x.answer(inlineValue(1, x.Args)) }

func TestTaskAndResult(t *testing.T) {
	r := newRig(t, 2)
	r.on("echo", echo)
	f := r.function("echo")
	for i := range 20 {
		want := fmt.Sprint(i)
		r.want(r.submit(f, want), want)
	}
	refs, err := f.SubmitBatch(1000, 0, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		r.want(ref, "x")
		ref.Release()
	}
}

func TestArgumentsAreResolved(t *testing.T) {
	r := newRig(t, 2)
	gate := make(chan struct{})
	r.on("slow", func(x *exec) { <-gate; x.answer(inlineValue(1, []byte("A"))) })
	r.on("join", func(x *exec) { x.answer(inlineValue(1, append(x.arg(0), x.arg(1)...))) })
	a := r.submit(r.function("slow"), "")
	b, err := r.c.Put(ctx(t), []byte("B"))
	if err != nil {
		t.Fatal(err)
	}
	join := r.function("join")
	j := r.submit(join, "", a, b)
	jj := r.submit(join, "", j, b)
	a.Release()
	b.Release()
	j.Release()
	close(gate)
	r.want(jj, "ABB")
	jj.Release()
	eventually(t, "everything is freed", func() bool { return asInt(r.ask("store.stats", nil)["objects"]) == 0 })
}

func TestErrorsSpread(t *testing.T) {
	r := newRig(t, 1)
	r.on("bad", func(x *exec) { x.status(wire.StatusError, errorValue("boom")) })
	r.on("echo", echo)
	e := r.submit(r.function("echo"), "", r.submit(r.function("bad"), ""))
	_, err := r.get(e)
	var te *client.TaskError
	if !errors.As(err, &te) {
		t.Fatal(err)
	}
	if _, body, _, _ := wire.ParseBlob(te.Blob); string(body) != "boom" {
		t.Error("the error is another one")
	}
	two := r.function("bad", "num_returns", 2)
	refs, err := two.SubmitMany()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.get(refs[1]); !errors.As(err, &te) {
		t.Error("one error stands for all values:", err)
	}
}

func TestRetries(t *testing.T) {
	r := newRig(t, 1)
	r.on("flaky", func(x *exec) {
		if x.Attempt < 2 {
			x.status(wire.StatusRetry, errorValue("again"))
			return
		}
		x.answer(inlineValue(1, []byte(fmt.Sprint(x.Attempt))))
	})
	r.on("crash", func(x *exec) {
		if x.Attempt < 1 {
			x.w.die(unix.WaitStatus(unix.SIGKILL))
			return
		}
		x.answer(inlineValue(1, []byte("alive")))
	})
	r.want(r.submit(r.function("flaky", "max_retries", 2), ""), "2")
	if _, err := r.get(r.submit(r.function("flaky", "max_retries", 1), "")); err == nil {
		t.Error("no retry was left")
	}
	start := time.Now()
	r.want(r.submit(r.function("crash", "max_retries", 1), ""), "alive")
	if d := time.Since(start); d > time.Second {
		t.Error("a retry took", d)
	}
	r.tail = "the last line"
	_, err := r.get(r.submit(r.function("crash", "max_retries", 0), ""))
	if !errors.Is(err, errs.EWORKERDIED) || !strings.Contains(err.Error(), "SIGKILL") || !strings.Contains(err.Error(), "the last line") {
		t.Error(err)
	}
}

func TestPutAndGetInTheArena(t *testing.T) {
	r := newRig(t, 1)
	big := bytes.Repeat([]byte("0123456789"), 100_000)
	ref, err := r.c.Put(ctx(t), big)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.get(ref)
	if err != nil || got != string(big) {
		t.Fatal(len(got), err)
	}
	r.on("length", func(x *exec) {
		_, v, _, _ := wire.TakeArg(x.Top)
		x.answer(inlineValue(1, []byte(fmt.Sprint(v.Kind, v.Len))))
	})
	r.want(r.submit(r.function("length"), "", ref), fmt.Sprint(wire.Arena, len(big)+16))
	ref.Release()
	huge := bytes.Repeat([]byte("9876543210"), 6_600_000) // more than the store: in a file
	if ref, err = r.c.Put(ctx(t), huge); err != nil {
		t.Fatal(err)
	}
	if got, err := r.get(ref); err != nil || got != string(huge) {
		t.Fatal(len(got), err)
	}
	r.want(r.submit(r.function("length"), "", ref), fmt.Sprint(wire.Arena, len(huge)+16))
	ref.Release()
	r.workers[0].die(0) // it has not unpinned
	eventually(t, "the store is empty", func() bool { return asInt(r.ask("store.stats", nil)["used"]) == 0 })
}

func TestBlockedGivesItsCPUBack(t *testing.T) {
	r := newRig(t, 1)
	r.on("leaf", func(x *exec) { x.answer(inlineValue(1, []byte("leaf"))) })
	leaf := r.function("leaf")
	r.want(r.submit(leaf, ""), "leaf")
	r.on("root", func(x *exec) {
		x.w.out(wire.AppendFrame(nil, wire.Template, 0, 1, pack(map[string]any{"kind": "function", "name": "leaf", "resources": map[string]int{"CPU": 10000}})))
		v, ok := x.w.wait(x, x.w.submitNested(x, 1, 0, 0))
		if !ok {
			t.Error("no value")
		}
		_, body, _, _ := wire.ParseBlob(v.Data)
		x.answer(inlineValue(1, append([]byte("root+"), body...)))
	})
	r.want(r.submit(r.function("root"), ""), "root+leaf")
	eventually(t, "the CPU is back", func() bool {
		var free map[string]float64
		r.c.Call(ctx(t), "resources.available", nil, &free)
		return free["CPU"] == 1
	})
}

func TestActorKeepsOrder(t *testing.T) {
	r := newRig(t, 2)
	gate := make(chan struct{})
	r.on("slow", func(x *exec) { <-gate; x.answer(inlineValue(1, []byte("0"))) })
	var mu sync.Mutex
	var got []string
	r.on("add", func(x *exec) {
		mu.Lock()
		defer mu.Unlock()
		s := string(x.Args)
		if x.NTop > 0 {
			s = string(x.arg(0))
		}
		got = append(got, s)
		x.answer(inlineValue(1, []byte(fmt.Sprint(len(got)))))
	})
	a := r.actor("A")
	add := r.method("add")
	first, err := add.SubmitRaw(a.OID().Task, nil, []wire.OID{r.submit(r.function("slow"), "").OID()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var last client.Ref
	for i := 1; i <= 2000; i++ {
		last = r.call(a, add, fmt.Sprint(i))
	}
	close(gate)
	r.want(first[0], "1")
	r.want(last, "2001")
	mu.Lock()
	defer mu.Unlock()
	for i, s := range got {
		if s != fmt.Sprint(i) {
			t.Fatalf("call %d came as number %d", i, asIntText(s))
		}
	}
}

func asIntText(s string) (n int) { fmt.Sscan(s, &n); return n }

func TestActorDeathAndRestart(t *testing.T) {
	r := newRig(t, 1)
	r.on("die", func(x *exec) {
		if x.Attempt == 0 {
			x.w.die(unix.WaitStatus(unix.SIGSEGV))
		} else {
			x.answer(inlineValue(1, []byte("survived")))
		}
	})
	r.on("hello", func(x *exec) { x.answer(inlineValue(1, []byte("hello"))) })
	die, hello := r.method("die"), r.method("hello")
	a := r.actor("A")
	r.want(r.call(a, hello, ""), "hello")
	_, err := r.get(r.call(a, die, ""))
	if !errors.Is(err, errs.EACTORDIED) || !strings.Contains(err.Error(), "SIGSEGV") {
		t.Error(err)
	}
	if _, err := r.get(r.call(a, hello, "")); !errors.Is(err, errs.EACTORDIED) {
		t.Error(err)
	}
	b := r.actor("B", "max_restarts", 1, "max_task_retries", 0)
	if _, err := r.get(r.call(b, die, "")); !errors.Is(err, errs.EACTORUNAVAILABLE) {
		t.Error(err)
	}
	r.want(r.call(b, hello, ""), "hello")
	c := r.actor("C", "max_restarts", -1, "max_task_retries", 1)
	r.want(r.call(c, die, ""), "survived")
	if err := r.c.Kill(c.OID().Task, true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.get(r.call(c, hello, "")); !errors.Is(err, errs.EACTORDIED) || !strings.Contains(err.Error(), "raygo.kill") {
		t.Error(err)
	}
}

func TestActorConstructorFails(t *testing.T) {
	r := newRig(t, 1)
	r.on("Bad", func(x *exec) { x.status(wire.StatusError, errorValue("in __init__")) })
	r.on("m", echo)
	a := r.actor("Bad")
	_, err := r.get(r.call(a, r.method("m"), ""))
	var se *client.SysError
	if !errors.As(err, &se) || se.Code != errs.EACTORDIED {
		t.Fatal(err)
	}
	if _, body, _, _ := wire.ParseBlob(se.Cause); string(body) != "in __init__" {
		t.Errorf("%+v", se)
	}
}

func TestActorEndsWithItsHandle(t *testing.T) {
	r := newRig(t, 1)
	r.on("m", echo)
	a := r.actor("A", "actor_name", "bob", "namespace", "ns")
	m := r.method("m")
	r.want(r.call(a, m, "x"), "x")
	found := r.ask("actor.lookup", map[string]any{"name": "bob", "namespace": "ns"})
	if toUint(found["actor"]) != a.OID().Task {
		t.Fatal(found)
	}
	b := r.actor("A", "actor_name", "bob", "namespace", "ns")
	if _, err := r.get(r.call(b, m, "x")); !errors.Is(err, errs.EACTORDIED) || !strings.Contains(err.Error(), "bob") {
		t.Error(err)
	}
	last := r.call(a, m, "y")
	a.Release()
	r.want(last, "y")
	eventually(t, "the name is free", func() bool {
		err := r.c.Call(ctx(t), "actor.lookup", map[string]any{"name": "bob", "namespace": "ns"}, nil)
		return errors.Is(err, errs.ENOTFOUND)
	})
	eventually(t, "its process is gone", func() bool { return asInt(r.ask("node.stats", nil)["workers"]) <= 1 })
}

func TestCancel(t *testing.T) {
	r := newRig(t, 1)
	begun := make(chan struct{}, 1)
	stop := make(chan struct{})
	r.on("long", func(x *exec) { begun <- struct{}{}; <-stop; x.status(wire.StatusCanceled) })
	r.on("on_cancel", func(x *exec) { close(stop) })
	r.on("echo", echo)
	running := r.submit(r.function("long"), "")
	<-begun
	queued := r.submit(r.function("echo"), "")
	waiting := r.submit(r.function("echo"), "", running)
	for _, ref := range []client.Ref{queued, waiting, running} {
		if err := r.c.Cancel(ref, false, false); err != nil {
			t.Fatal(err)
		}
		if _, err := r.get(ref); !errors.Is(err, errs.ECANCELED) {
			t.Error(err)
		}
	}
	r.on("hang", func(x *exec) { begun <- struct{}{} })
	forced := r.submit(r.function("hang", "max_retries", 3), "")
	<-begun
	if err := r.c.Cancel(forced, true, false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.get(forced); !errors.Is(err, errs.ECANCELED) {
		t.Error(err)
	}
	r.want(r.submit(r.function("echo"), "fine"), "fine")
}

func TestPrefetchedTasksAreTakenBack(t *testing.T) {
	r := newRig(t, 2)
	var slow atomic.Bool
	gate := make(chan struct{})
	r.on("f", func(x *exec) {
		if string(x.Args) == "slow" && slow.CompareAndSwap(false, true) {
			<-gate
		}
		echo(x)
	})
	f := r.function("f")
	warm, _ := f.SubmitBatch(100, 0, []byte("fast"))
	for _, ref := range warm {
		r.want(ref, "fast")
	}
	first := r.submit(f, "slow")
	rest, _ := f.SubmitBatch(500, 0, []byte("fast"))
	for _, ref := range rest {
		r.want(ref, "fast")
	}
	close(gate)
	r.want(first, "slow")
}

func TestInfeasible(t *testing.T) {
	limit := 0.05
	r := newRig(t, 1, func(o *engine.Options) { o.InfeasibleTimeout = &limit })
	start := time.Now()
	_, err := r.get(r.submit(r.function("f", "resources", map[string]int{"GPU": 10000}), ""))
	if !errors.Is(err, errs.EUNSCHEDULABLE) || !strings.Contains(err.Error(), "GPU") || time.Since(start) > 2*time.Second {
		t.Error(err)
	}
	a := r.actor("A", "placement", map[string]int{"widget": 10000})
	_, err = r.get(r.call(a, r.method("m"), ""))
	if !errors.Is(err, errs.EACTORUNSCHEDULABLE) {
		t.Error(err)
	}
}

func TestDeadlockIsReported(t *testing.T) {
	r := newRig(t, 2)
	r.on("outer", func(x *exec) {
		x.w.out(wire.AppendFrame(nil, wire.Template, 0, 1, pack(map[string]any{"kind": "method", "name": "inner", "method": "inner"})))
		v, ok := x.w.wait(x, x.w.submitNested(x, 1, wire.FlagActorCall, x.Actor))
		if ok {
			t.Error("the wait ended")
		}
		x.status(wire.StatusError, wire.Value{Index: 1, Kind: wire.SysErr, IsError: true, Data: v.Data})
	})
	r.on("inner", echo)
	a := r.actor("A")
	_, err := r.get(r.call(a, r.method("outer"), ""))
	if !errors.Is(err, errs.EDEADLOCK) || !strings.Contains(err.Error(), "A.outer waits for A.inner") {
		t.Error(err)
	}
}

func TestPlacementGroup(t *testing.T) {
	r := newRig(t, 2)
	r.on("echo", echo)
	pg := uint64(1) << 60
	r.ask("pg.create", map[string]any{"pg": pg, "bundles": []map[string]int{{"CPU": 10000}, {"CPU": 10000}}, "strategy": "PACK", "name": "g"})
	ready, err := r.c.Ref(wire.OID{Task: pg, Index: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.c.Get(ctx(t), ready, nil); err != nil {
		t.Fatal(err)
	}
	in := r.function("echo", "strategy", map[string]any{"type": "pg", "pg": pg, "bundle": 1})
	r.want(r.submit(in, "inside"), "inside")
	outside := r.submit(r.function("echo"), "outside")
	time.Sleep(20 * time.Millisecond)
	if text := r.explain(outside); !strings.Contains(text, "CPU") || !strings.Contains(text, "placement group") {
		t.Error(text)
	}
	r.ask("pg.remove", map[string]any{"pg": pg})
	r.want(outside, "outside")
	if _, err := r.get(r.submit(in, "")); !errors.Is(err, errs.EPGREMOVED) {
		t.Error(err)
	}
}

func (r *rig) explain(ref client.Ref) string {
	var text string
	o := ref.OID()
	if err := r.c.Call(ctx(r.t), "explain", map[string]any{"objects": [][]uint64{{o.Task, uint64(o.Index)}}}, &text); err != nil {
		r.t.Fatal(err)
	}
	return text
}

func TestGenerator(t *testing.T) {
	r := newRig(t, 1)
	resumed := make(chan uint64, 100)
	r.on("on_resume", func(x *exec) { resumed <- le.Uint64(x.Args) })
	stop := make(chan struct{})
	r.on("gen", func(x *exec) {
		for i := range 3 {
			v := inlineValue(uint32(2+i), []byte(fmt.Sprint(i)))
			x.w.out(wire.End(wire.AppendValue(wire.Begin(nil, wire.Item, 0, x.id), v), 0))
		}
		<-stop
		x.answer(inlineValue(1, []byte("3")))
	})
	end := r.submit(r.function("gen", "streaming", true), "")
	for i := range 3 {
		item, err := r.c.Ref(wire.OID{Task: end.OID().Task, Index: uint32(2 + i)})
		if err != nil {
			t.Fatal(err)
		}
		r.want(item, fmt.Sprint(i))
		item.Release()
		if err := r.c.Consumed(end.OID().Task, uint64(i+1)); err != nil {
			t.Fatal(err)
		}
		if k := <-resumed; k != uint64(i+1) {
			t.Error(k)
		}
	}
	beyond, _ := r.c.Ref(wire.OID{Task: end.OID().Task, Index: 5})
	close(stop)
	r.want(end, "3")
	end.Release()
	beyond.Release()
	eventually(t, "everything is freed", func() bool { return asInt(r.ask("store.stats", nil)["objects"]) == 0 })
}

func TestDriverGone(t *testing.T) {
	r := newRig(t, 2)
	begun := make(chan struct{}, 2)
	r.on("hang", func(x *exec) { begun <- struct{}{} })
	r.on("m", echo)
	other := r.driver(client.Hello{Namespace: "other"})
	mine := r.c
	r.c = other
	r.submit(r.function("hang"), "")
	<-begun
	kept := r.actor("Kept", "detached", true, "actor_name", "kept")
	r.want(r.call(kept, r.method("m"), "1"), "1")
	r.actor("Gone", "actor_name", "gone")
	r.c = mine
	other.Close()
	eventually(t, "only the detached actor is left", func() bool {
		var names []map[string]string
		if err := r.c.Call(ctx(t), "actor.list_named", map[string]any{"namespace": ""}, &names); err != nil {
			t.Fatal(err)
		}
		return len(names) == 1 && names[0]["name"] == "kept"
	})
	found := r.ask("actor.lookup", map[string]any{"name": "kept", "namespace": "other"})
	a, _ := r.c.Ref(wire.OID{Task: toUint(found["actor"])})
	r.want(r.call(a, r.method("m"), "2"), "2")
	r.want(r.submit(r.function("m"), "3"), "3")
}

func TestNamedFunctionOverASocket(t *testing.T) {
	r := newRig(t, 1, func(o *engine.Options) { o.Listen = true })
	server, err := client.Dial(r.n.Socket(), client.Hello{Role: "client"})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(ctx(t), "add", 2, func(args []any) (any, error) { return asInt(args[0]) + asInt(args[1]), nil }); err != nil {
		t.Fatal(err)
	}
	add, err := r.c.Named("add", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	two, _ := r.c.Put(ctx(t), 2)
	ref, err := add.Submit(40, two)
	if err != nil {
		t.Fatal(err)
	}
	var sum int
	if err := r.c.Get(ctx(t), ref, &sum); err != nil || sum != 42 {
		t.Fatal(sum, err)
	}
	server.Close()
	eventually(t, "it is served no more", func() bool {
		ref, _ := add.Submit(1, 2)
		err := r.c.Get(ctx(t), ref, nil)
		return errors.Is(err, errs.ENOTFOUND)
	})
}

func TestMalformedFramesEndOnlyThatConnection(t *testing.T) {
	r := newRig(t, 1, func(o *engine.Options) { o.Listen = true })
	r.on("echo", echo)
	f := r.function("echo")
	for _, junk := range [][]byte{
		[]byte("GET / HTTP/1.1\r\n\r\n"), wire.AppendFrame(nil, 99, 0, 0, nil), wire.AppendFrame(nil, wire.Submit, 0, 1, []byte("short")),
		wire.AppendHeader(nil, wire.Header{Len: 1 << 31}), wire.AppendFrame(nil, wire.Hello, 0, 0, []byte{0xc1}),
	} {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: r.n.Socket()}); err != nil {
			t.Fatal(err)
		}
		unix.Write(fd, junk)
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
		buf := make([]byte, 4096)
		for {
			k, err := unix.Read(fd, buf)
			if err != nil && err != unix.ECONNRESET {
				t.Errorf("%q did not end the connection: %v", junk, err)
			}
			if k <= 0 {
				break
			}
		}
		unix.Close(fd)
		r.want(r.submit(f, "still here"), "still here")
	}
}

func TestVersionIsChecked(t *testing.T) {
	if _, err := engine.Start(engine.Options{Version: "0.0.0", TempDir: t.TempDir()}); !errors.Is(err, errs.EVERSION) || !strings.Contains(err.Error(), "0.0.0") {
		t.Error(err)
	}
}

func TestCallsAnswer(t *testing.T) {
	r := newRig(t, 1)
	r.on("echo", echo)
	r.want(r.submit(r.function("echo"), "x"), "x")
	call := func(method string, arg any, out any) {
		t.Helper()
		if err := r.c.Call(ctx(t), method, arg, out); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	var isNew bool
	call("kv.put", map[string]any{"ns": "a", "key": []byte("k"), "value": []byte("v")}, &isNew)
	if !isNew {
		t.Error("k was new")
	}
	var v []byte
	call("kv.get", map[string]any{"ns": "a", "key": []byte("k")}, &v)
	if string(v) != "v" {
		t.Errorf("%q", v)
	}
	var keys [][]byte
	call("kv.keys", map[string]any{"ns": "a", "prefix": []byte("")}, &keys)
	if len(keys) != 1 {
		t.Error(keys)
	}
	var k int
	call("kv.del", map[string]any{"ns": "a", "key": []byte("k"), "prefix": true}, &k)
	if k != 1 {
		t.Error(k)
	}
	call("metrics.record", []map[string]any{
		{"name": "hits", "type": "counter", "tags": map[string]string{"a": "b"}, "value": 2}, {"name": "lat", "type": "histogram", "value": 3, "buckets": []float64{1, 5}},
	}, nil)
	var text string
	call("metrics.text", nil, &text)
	for _, want := range []string{"ray_hits{a=\"b\"} 2", "ray_lat_bucket{le=\"5\"} 1", "raygo_tasks_finished_total 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, m := range []string{"state.tasks", "state.actors", "state.objects", "state.workers", "state.jobs", "state.nodes", "state.placement_groups"} {
		var rows []map[string]any
		call(m, map[string]any{"limit": 10, "filters": [][]any{}}, &rows)
		if m == "state.tasks" && (len(rows) != 1 || rows[0]["state"] != "FINISHED") {
			t.Error(rows)
		}
	}
	var events []map[string]any
	call("timeline", nil, &events)
	if len(events) != 1 {
		t.Error(events)
	}
	for _, m := range []string{"nodes", "resources.total", "resources.available", "resources.per_node", "job.info", "store.stats", "node.stats", "drain.logs", "prefix.next"} {
		call(m, nil, nil)
	}
	if err := r.c.Call(ctx(t), "no.such", nil, nil); !errors.Is(err, errs.EINVAL) {
		t.Error(err)
	}
}

func TestStopEndsWaits(t *testing.T) {
	r := newRig(t, 1)
	begun := make(chan struct{}, 1)
	r.on("hang", func(x *exec) { begun <- struct{}{} })
	ref := r.submit(r.function("hang"), "")
	<-begun
	done := make(chan error, 1)
	go func() { done <- r.c.Get(context.Background(), ref, nil) }()
	if err := r.n.Stop(5 * time.Second); err != nil {
		t.Error(err)
	}
	r.c.Close()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("a get outlives the engine")
	}
}
