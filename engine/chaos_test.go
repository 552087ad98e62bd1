package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/wire"

	"golang.org/x/sys/unix"
)

// TestNothingIsLeftAfterChaos submits a web of tasks and calls while processes die and tasks are cancelled at random. Every value must become ready, and
// when all references are dropped, no object, no unit and no resource may be left.
func TestNothingIsLeftAfterChaos(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		r := newRig(t, 3)
		chaos(t, r, rand.New(rand.NewPCG(seed, 3)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func chaos(t *testing.T, r *rig, rng *rand.Rand) {
	r.on("quick", echo)
	r.on("slow", func(x *exec) { time.Sleep(time.Millisecond); echo(x) })
	r.on("bad", func(x *exec) { x.status(wire.StatusError, errorValue("bad")) })
	r.on("retry", func(x *exec) {
		if x.Attempt == 0 {
			x.status(wire.StatusRetry, errorValue("again"))
			return
		}
		echo(x)
	})
	r.on("gen", func(x *exec) {
		for i := range 3 {
			x.w.out(wire.End(wire.AppendValue(wire.Begin(nil, wire.Item, 0, x.id), inlineValue(uint32(2+i), []byte("i"))), 0))
		}
		x.answer(inlineValue(1, nil))
	})
	r.on("m", func(x *exec) {
		if string(x.Args) == "slow" {
			time.Sleep(time.Millisecond)
		}
		echo(x)
	})
	functions := []*client.Function{
		r.function("quick"), r.function("slow"), r.function("bad"), r.function("retry", "max_retries", 1), r.function("quick", "max_retries", 0), r.function("slow", "max_calls", 2),
		r.function("gen", "streaming", true), r.function("quick", "resources", map[string]int{"CPU": 25000}), r.function("quick", "num_returns", 2),
	}
	method := r.method("m")
	var refs, actors []client.Ref
	for step := range 600 {
		switch k := rng.IntN(20); {
		case k < 12:
			var top, nested []wire.OID
			for range rng.IntN(3) {
				if len(refs) > 0 {
					top = append(top, refs[rng.IntN(len(refs))].OID())
				}
			}
			if len(refs) > 0 && k == 0 {
				nested = append(nested, refs[rng.IntN(len(refs))].OID())
			}
			got, err := functions[rng.IntN(len(functions))].SubmitRaw(0, []byte("x"), top, nested)
			if err != nil {
				t.Fatal(err)
			}
			refs = append(refs, got...)
		case k < 14:
			if len(actors) < 4 {
				actors = append(actors, r.actor("A", "max_restarts", rng.IntN(3)-1, "max_task_retries", rng.IntN(2)))
			} else if i := rng.IntN(len(actors)); step%3 == 0 {
				actors[i].Release()
				actors = append(actors[:i], actors[i+1:]...)
			}
		case k < 17:
			if len(actors) > 0 {
				refs = append(refs, r.call(actors[rng.IntN(len(actors))], method, []string{"slow", "quick"}[rng.IntN(2)]))
			}
		case k == 17:
			if len(refs) > 0 {
				if err := r.c.Cancel(refs[rng.IntN(len(refs))], rng.IntN(2) == 0, true); err != nil {
					t.Fatal(err)
				}
			}
		case k == 18:
			r.mu.Lock()
			w := r.workers
			r.mu.Unlock()
			if len(w) > 0 {
				w[rng.IntN(len(w))].die(unix.WaitStatus(unix.SIGKILL))
			}
		case len(refs) > 0:
			i := rng.IntN(len(refs))
			drop(t, r, refs[i])
			refs = append(refs[:i], refs[i+1:]...)
		}
	}
	ready, rest, err := r.c.Wait(ctx(t), refs, len(refs))
	if err != nil {
		for _, ref := range rest {
			t.Log(r.explain(ref))
		}
		t.Fatalf("%d of %d are ready: %v", len(ready), len(refs), err)
	}
	for _, ref := range append(refs, actors...) {
		drop(t, r, ref)
	}
	defer func() {
		if !t.Failed() {
			return
		}
		for _, m := range []string{"state.objects", "state.tasks", "state.workers", "state.actors"} {
			var rows []map[string]any
			r.c.Call(ctx(t), m, map[string]any{"filters": [][]any{{"state", "!=", "FINISHED"}, {"state", "!=", "FAILED"}, {"state", "!=", "DEAD"}}}, &rows)
			for _, row := range rows {
				t.Log(m, row)
			}
		}
		t.Log(r.ask("node.stats", nil), r.ask("resources.available", nil))
	}()
	eventually(t, "nothing is left", func() bool {
		var free map[string]float64
		if err := r.c.Call(ctx(t), "resources.available", nil, &free); err != nil {
			t.Fatal(err)
		}
		stats := r.ask("node.stats", nil)
		return free["CPU"] == 3 && asInt(stats["units"]) == 0 && asInt(stats["queued"]) == 0 && asInt(r.ask("store.stats", nil)["objects"]) == 0
	})
}

// drop lets a reference go. A generator's items are held until it is said that nobody takes them.
func drop(t *testing.T, r *rig, ref client.Ref) {
	t.Helper()
	if err := r.c.Consumed(ref.OID().Task, wire.Dropped); err != nil {
		t.Error(err)
	}
	if err := ref.Release(); err != nil {
		t.Error(err)
	}
}
