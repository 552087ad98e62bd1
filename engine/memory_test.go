package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
)

// ram is a machine of 1000 MiB whose processes hold what a test says.
type ram struct {
	t    *testing.T
	root string
	mu   sync.Mutex
	wg   sync.WaitGroup // of greedy ones
	held map[int]int    // MiB by pid
	base int            // held by others
}

const ramTotal = 1000 // MiB; the threshold is at 950

func newRAM(t *testing.T) *ram {
	m := &ram{t: t, root: t.TempDir(), held: map[int]int{}, base: 100}
	t.Cleanup(m.wg.Wait) // after the node's end and before the folder's
	m.set(0, 0)
	return m
}

func (m *ram) write(path, text string) {
	path = filepath.Join(m.root, "proc", path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil { // at once, as a reader sees a real one
		err = os.WriteFile(path+".new", []byte(text), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		m.t.Error(err)
	}
}

// set has a process hold so many MiB; 0: it is gone.
func (m *ram) set(pid, mib int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mib > 0 && pid > 0 {
		m.write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (fake) R 1 %d 0", pid, pid))
		m.write(fmt.Sprintf("%d/statm", pid), fmt.Sprintf("0 %d 0", mib<<20/os.Getpagesize()))
		m.held[pid] = mib
	} else {
		delete(m.held, pid)
		defer os.RemoveAll(filepath.Join(m.root, "proc", fmt.Sprint(pid))) // a real one too has given its memory back when it is seen to be gone
	}
	used := m.base
	for _, k := range m.held {
		used += k
	}
	m.write("meminfo", fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", ramTotal<<10, (ramTotal-used)<<10))
}

func (m *ram) options(more ...func(*engine.Options)) func(*engine.Options) {
	return func(o *engine.Options) {
		refresh, delay := int64(5), int64(20)
		o.ProcRoot, o.MemoryRefresh, o.OOMRetryDelay, o.ObjectStoreMemory = m.root, &refresh, &delay, 8<<20
		for _, f := range more {
			f(o)
		}
	}
}

// pause lets a look or two pass. What the tests assert holds however long it takes.
func pause() { time.Sleep(3 * time.Millisecond) }

// greedy holds ever more until its process is killed. That of a fake one is its connection.
func (m *ram) greedy(x *exec, from int) {
	m.wg.Add(1)
	defer m.wg.Done()
	const near = 780 // slowly from here on: who looks has to see it grow, however seldom it comes to look
	for mib := from; !x.w.ended.Load(); {
		m.set(x.w.pid, min(mib, 900))
		pause()
		if mib += 20; mib > near {
			mib -= 18
		}
	}
	m.set(x.w.pid, 0)
}

func sysError(t *testing.T, err error) *client.SysError {
	t.Helper()
	var e *client.SysError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an error of raygo's own", err)
	}
	return e
}

func TestTheStoreGivesMemoryBackFirst(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 2, m.options())
	stats := func() map[string]any { return r.ask("store.stats", nil) }
	big, err := r.c.Put(ctx(t), make([]byte, 2<<20))
	if err != nil {
		t.Fatal(err)
	}
	big.Release()
	eventually(t, "free pages", func() bool { s := stats(); return asInt(s["used"]) == 0 && asInt(s["warm"]) >= 2<<20 })
	end := make(chan struct{})
	r.on("waits", func(x *exec) { <-end; x.answer(inlineValue(1, []byte("alive"))) })
	ref := r.submit(r.function("waits"), "")
	m.mu.Lock()
	m.base = 960 // over by 10 MiB, and nobody whose end would help
	m.mu.Unlock()
	m.set(0, 0)
	eventually(t, "the store gives back", func() bool { return asInt(stats()["warm"]) == 0 })
	close(end)
	r.want(ref, "alive")
}

func TestAnIdleActorIsWatched(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 2, m.options())
	looking := func() bool { return r.ask("node.memory", map[string]any{})["looking"].(bool) }
	r.on("Grower", func(x *exec) { x.answer(inlineValue(1, nil)) })
	a := r.actor("Grower")
	eventually(t, "the actor lives and does nothing", func() bool {
		var rows []map[string]any
		if err := r.c.Call(ctx(t), "state.actors", map[string]any{}, &rows); err != nil {
			t.Fatal(err)
		}
		return len(rows) == 1 && rows[0]["state"] == "ALIVE"
	})
	time.Sleep(50 * time.Millisecond) // several looks
	if !looking() {
		t.Error("nobody looks at what an idle actor's threads do")
	}
	a.Release()
	eventually(t, "it stops looking", func() bool { return !looking() })
}

func TestGreedyTaskIsEnded(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 2, m.options())
	held := make(chan struct{})
	r.on("modest", func(x *exec) { m.set(x.w.pid, 30); <-held; x.answer(inlineValue(1, []byte("alive"))) })
	r.on("greedy", func(x *exec) { m.greedy(x, 50) })
	modest := r.submit(r.function("modest"), "")
	_, err := r.get(r.submit(r.function("greedy", "max_retries", 0), ""))
	e := sysError(t, err)
	for _, part := range []string{"task greedy", "to save memory", "of the 0.98 GiB of the machine", "RAY_memory_usage_threshold, 0.95", "its memory grew last", "USS", "task modest", "memory=<bytes>"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("%q is missing in: %s", part, e.Message)
		}
	}
	if e.Code != errs.EOUTOFMEMORY || e.PID == 0 {
		t.Errorf("code %v, pid %d", e.Code, e.PID)
	}
	close(held)
	r.want(modest, "alive")
	if k := asInt(r.ask("node.memory", map[string]any{})["kills"]); k != 1 {
		t.Errorf("%d kills, want 1", k)
	}
}

func TestEndedForOthersIsTriedAgainWithoutEnd(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 2, m.options())
	release := make(chan struct{})
	r.on("big", func(x *exec) { m.set(x.w.pid, 700); <-release; m.set(x.w.pid, 1); x.answer(inlineValue(1, nil)) })
	var tries atomic.Int32
	r.on("second", func(x *exec) {
		switch tries.Add(1) {
		case 1, 2, 3: // more often than max_retries has it
			m.greedy(x, 200)
			if tries.Load() == 3 {
				close(release)
			}
		default:
			x.answer(inlineValue(1, []byte("done")))
		}
	})
	big := r.submit(r.function("big", "max_retries", 0), "")
	eventually(t, "the big one runs", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.held) == 1 })
	r.want(r.submit(r.function("second", "max_retries", 1), ""), "done")
	if _, err := r.get(big); err != nil {
		t.Error(err)
	}
	if k := tries.Load(); k != 4 {
		t.Errorf("%d tries, want 4", k)
	}
}

func TestEndedAloneCountsAsARetry(t *testing.T) {
	for name, c := range map[string]struct {
		retries int
		limit   *int
		want    int32
	}{
		"max_retries":                          {2, nil, 3},
		"task_oom_retries":                     {2, new(int), 1},
		"without retries there is none at all": {0, func() *int { k := -1; return &k }(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := newRAM(t)
			r := newRig(t, 1, m.options(func(o *engine.Options) { o.OOMRetries = c.limit }))
			var tries atomic.Int32
			r.on("greedy", func(x *exec) { tries.Add(1); m.greedy(x, 700) })
			_, err := r.get(r.submit(r.function("greedy", "max_retries", c.retries), ""))
			if e := sysError(t, err); e.Code != errs.EOUTOFMEMORY {
				t.Errorf("code %v", e.Code)
			}
			if k := tries.Load(); k != c.want {
				t.Errorf("%d tries, want %d", k, c.want)
			}
		})
	}
}

func TestCancelledWhileItWaitsForMemory(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 1, m.options(func(o *engine.Options) { hour := int64(3_600_000); o.OOMRetryDelay = &hour }))
	r.on("greedy", func(x *exec) { m.greedy(x, 700) })
	ref := r.submit(r.function("greedy"), "")
	var text string
	eventually(t, "it waits for memory", func() bool {
		if err := r.c.Call(ctx(t), "explain", map[string]any{"objects": [][]uint64{{ref.OID().Task, 1}}}, &text); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(text, "is tried again in")
	})
	if err := r.c.Cancel(ref, false, false); err != nil {
		t.Fatal(err)
	}
	_, err := r.get(ref)
	if e := sysError(t, err); e.Code != errs.ECANCELED {
		t.Errorf("code %v: %s", e.Code, e.Message)
	}
}

func TestGreedyActorRestarts(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 2, m.options())
	var creations, calls atomic.Int32
	r.on("actor", func(x *exec) { creations.Add(1); x.answer() })
	r.on("grow", func(x *exec) {
		if calls.Add(1) <= 2 {
			m.greedy(x, 700)
			return
		}
		x.answer(inlineValue(1, []byte("ok")))
	})
	a := r.actor("actor", "max_restarts", 1)
	_, err := r.get(r.call(a, r.method("grow"), ""))
	if e := sysError(t, err); e.Code != errs.EACTORUNAVAILABLE || !strings.Contains(e.Message, "to save memory") {
		t.Errorf("first: %v: %s", e.Code, e.Message)
	}
	_, err = r.get(r.call(a, r.method("grow"), ""))
	if e := sysError(t, err); e.Code != errs.EOUTOFMEMORY || !strings.Contains(e.Message, "actor actor in actor.grow") {
		t.Errorf("second: %v: %s", e.Code, e.Message)
	}
	if k := creations.Load(); k != 2 {
		t.Errorf("%d processes, want 2", k)
	}
}

func TestIdleProcessIsEndedFirst(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 2, m.options())
	kills := func() int64 { return asInt(r.ask("node.memory", map[string]any{})["kills"]) }
	leave, grow, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	workers := make(chan *fakeWorker, 1)
	r.on("leaves", func(x *exec) { m.set(x.w.pid, 300); workers <- x.w; <-leave; x.answer(inlineValue(1, nil)) })
	r.on("grows", func(x *exec) {
		<-grow
		for mib := 100; kills() == 0; mib += 20 {
			m.set(x.w.pid, min(mib, 600))
			pause()
		}
		<-end
		x.answer(inlineValue(1, []byte("alive")))
	})
	leaves, grows := r.submit(r.function("leaves", "max_retries", 0), ""), r.submit(r.function("grows", "max_retries", 0), "")
	idle := <-workers
	close(leave)
	r.want(leaves, "")
	close(grow)
	eventually(t, "the idle process is ended", idle.ended.Load)
	m.set(idle.pid, 0)
	close(end)
	r.want(grows, "alive")
}

func TestNothingIsLookedAtWhenNothingRuns(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 2, m.options())
	looking := func() bool { return r.ask("node.memory", map[string]any{})["looking"].(bool) }
	if looking() {
		t.Error("it looks before anything ran")
	}
	gate := make(chan struct{})
	r.on("wait", func(x *exec) { <-gate; x.answer(inlineValue(1, nil)) })
	ref := r.submit(r.function("wait"), "")
	eventually(t, "it looks while a task runs", looking)
	close(gate)
	r.want(ref, "")
	eventually(t, "it stops looking", func() bool { return !looking() })
}

func TestMemoryMonitorIsOff(t *testing.T) {
	m := newRAM(t)
	m.base = ramTotal
	r := newRig(t, 1, m.options(func(o *engine.Options) { o.MemoryRefresh = new(int64) }))
	m.set(0, 0)
	r.on("echo", echo)
	r.want(r.submit(r.function("echo"), "x"), "x")
	if answer := r.ask("node.memory", map[string]any{}); answer["looking"].(bool) || asInt(answer["monitor_ms"]) != 0 {
		t.Errorf("%v", answer)
	}
}

func TestMemoryThresholdIsAPart(t *testing.T) {
	for _, bad := range []float64{-0.1, 1.5, 95} {
		_, err := engine.Start(engine.Options{TempDir: t.TempDir(), MemoryThreshold: &bad})
		if errs.CodeOf(err) != errs.EINVAL {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestMemoryIsAResource(t *testing.T) {
	m := newRAM(t)
	m.base = 200
	m.set(0, 0)
	r := newRig(t, 8, m.options())
	var total map[string]float64
	if err := r.c.Call(ctx(t), "resources.total", nil, &total); err != nil {
		t.Fatal(err)
	}
	if want := float64(800<<20 - 8<<20); total["memory"] != want {
		t.Errorf("%v bytes of memory, want what is available without the object store: %v", total["memory"], want)
	}
	var running, most atomic.Int32
	r.on("asks", func(x *exec) {
		most.Store(max(most.Load(), running.Add(1)))
		pause()
		running.Add(-1)
		x.answer(inlineValue(1, nil))
	})
	f := r.function("asks", "resources", map[string]int64{"CPU": 10000, "memory": 350 << 20 * 10000})
	var refs []client.Ref
	for range 12 {
		refs = append(refs, r.submit(f, ""))
	}
	for _, ref := range refs {
		r.want(ref, "")
	}
	if k := most.Load(); k > 2 {
		t.Errorf("%d ran at a time, and there is memory for 2", k)
	}
}

func TestMemoryMonitorLooksAgainWhenItSawNothing(t *testing.T) {
	m := newRAM(t)
	r := newRig(t, 1, m.options())
	blind := make(chan struct{})
	r.on("greedy", func(x *exec) { <-blind; m.greedy(x, 50) })
	if err := os.Remove(filepath.Join(m.root, "proc", "meminfo")); err != nil {
		t.Fatal(err)
	}
	ref := r.submit(r.function("greedy", "max_retries", 0), "")
	eventually(t, "a look has failed", func() bool {
		text, err := os.ReadFile(filepath.Join(r.n.SessionDir(), "logs", "engine.log"))
		return err == nil && strings.Contains(string(text), "the memory monitor sees nothing")
	})
	close(blind)
	_, err := r.get(ref)
	if e := sysError(t, err); e.Code != errs.EOUTOFMEMORY {
		t.Errorf("%v", e)
	}
}
