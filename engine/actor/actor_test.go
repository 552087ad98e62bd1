package actor

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestOrderPerCaller(t *testing.T) {
	m := NewMailbox(1, true)
	a1, a2, b1 := &Call{Value: "a1"}, &Call{Value: "a2"}, &Call{Value: "b1"}
	m.Add(a1, 1, false)
	m.Add(a2, 1, true)
	m.Add(b1, 2, true)
	if c := m.Take(); c != b1 {
		t.Fatal("another caller's call may pass")
	}
	if m.Take() != nil || m.Len() != 2 {
		t.Fatal("a2 must not pass a1")
	}
	m.ArgsReady(a1)
	if m.Take() != a1 || m.Take() != a2 || m.Flying() != 3 {
		t.Fatal("both go now, in order")
	}
	m.PutBack(a1)
	m.Done(b1)
	m.PutBack(a2)
	if m.Take() != a1 || m.Take() != a2 {
		t.Fatal("what is put back keeps its place")
	}
}

func TestRemoveLetsOthersPass(t *testing.T) {
	m := NewMailbox(1, true)
	a1, a2 := &Call{}, &Call{}
	m.Add(a1, 1, false)
	m.Add(a2, 1, true)
	if !m.Remove(a1) || m.Remove(a1) || m.Take() != a2 || len(m.lanes) != 0 {
		t.Fatal("a1 is gone, a2 goes")
	}
}

func TestSetBack(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		m := NewMailbox(10, ordered)
		a1, a2, b1 := &Call{}, &Call{}, &Call{}
		m.Add(a1, 1, true)
		m.Add(a2, 1, true)
		m.Add(b1, 2, true)
		if m.Take() != a1 {
			t.Fatal("the first goes first")
		}
		m.SetBack(a1) // an argument is gone
		if m.Flying() != 0 || m.Len() != 3 {
			t.Fatal(m.Flying(), m.Len())
		}
		if !ordered && m.Take() != a2 || m.Take() != b1 || m.Take() != nil {
			t.Fatal("its caller's later calls wait if they have an order, others pass")
		}
		m.ArgsReady(a1)
		if m.Take() != a1 || ordered && m.Take() != a2 || m.Take() != nil {
			t.Fatal("it goes when its argument is there again")
		}
	}
}

func TestUnordered(t *testing.T) {
	m := NewMailbox(10, false)
	a1, a2, a3 := &Call{}, &Call{}, &Call{}
	m.Add(a1, 1, false)
	m.Add(a2, 1, true)
	m.Add(a3, 1, false)
	m.ArgsReady(a3)
	if m.Take() != a2 || m.Take() != a3 || m.Take() != nil {
		t.Fatal("what is ready goes")
	}
}

func TestWindow(t *testing.T) {
	m := NewMailbox(1, true)
	calls := make([]Call, 1001)
	for i := range calls {
		m.Add(&calls[i], 1, true)
	}
	for range 1000 {
		m.Take()
	}
	if m.Take() != nil {
		t.Fatal("the window is full")
	}
	m.Done(&calls[0])
	if m.Take() != &calls[1000] {
		t.Fatal("one ended, one goes")
	}
}

// TestAgainstNaiveTwin runs random calls through a mailbox and through a plain list in which a call may go when its arguments are there and, in an ordered
// one, no earlier call of its caller waits.
func TestAgainstNaiveTwin(t *testing.T) {
	for seed := range uint64(400) {
		againstTwin(t, seed, seed%2 == 0)
	}
}

func againstTwin(t *testing.T, seed uint64, ordered bool) {
	type entry struct {
		c      *Call
		caller uint64
		ready  bool
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	m := NewMailbox(1, ordered)
	var twin, flying []entry
	for step := range 400 {
		switch rng.IntN(5) {
		case 0, 1:
			e := entry{&Call{Value: step}, rng.Uint64N(3), rng.IntN(2) == 0}
			m.Add(e.c, e.caller, e.ready)
			twin = append(twin, e)
		case 2:
			if len(twin) > 0 {
				i := rng.IntN(len(twin))
				twin[i].ready = true
				m.ArgsReady(twin[i].c)
			}
		case 3:
			if len(twin) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(twin))
				if !m.Remove(twin[i].c) {
					t.Fatal("it waits")
				}
				twin = slices.Delete(twin, i, i+1)
				break
			}
			want := -1
			blocked := map[uint64]bool{}
			for i, e := range twin {
				if e.ready && !(ordered && blocked[e.caller]) {
					want = i
					break
				}
				blocked[e.caller] = true
			}
			got := m.Take()
			if (got == nil) != (want < 0) || (got != nil && got != twin[want].c) {
				t.Fatalf("seed %d step %d: took %v, the twin index %d", seed, step, got, want)
			}
			if got != nil {
				flying = append(flying, twin[want])
				twin = slices.Delete(twin, want, want+1)
			}
		case 4: // one ends, or some are to run again
			if len(flying) > 0 && rng.IntN(4) > 0 {
				i := rng.IntN(len(flying))
				m.Done(flying[i].c)
				flying = slices.Delete(flying, i, i+1)
			} else {
				k := rng.IntN(len(flying) + 1)
				for _, e := range flying[:k] {
					m.PutBack(e.c)
				}
				twin = append(twin, flying[:k]...)
				flying = slices.Delete(flying, 0, k)
				slices.SortFunc(twin, func(a, b entry) int { return int(a.c.seq) - int(b.c.seq) })
			}
		}
		if m.Len() != len(twin) || m.Flying() != len(flying) {
			t.Fatalf("seed %d step %d: %d wait and %d fly, the twin has %d and %d", seed, step, m.Len(), m.Flying(), len(twin), len(flying))
		}
	}
}

// TestManyCallsTakeNoLongerEach: what was at the worker comes back before a long queue, a caller's lane opens beside another's calls, and arguments come
// in any order; none of it may walk through the queue for each call.
func TestManyCallsTakeNoLongerEach(t *testing.T) {
	const many = 200_000
	begin := time.Now()
	m := NewMailbox(1, true)
	calls := make([]Call, 2*many)
	for i := range many {
		m.Add(&calls[i], 1, true)
	}
	for range 20 {
		for m.Take() != nil {
		}
		for i := range m.Window {
			m.PutBack(&calls[i])
		}
	}
	m = NewMailbox(1, true)
	for i := range calls {
		calls[i] = Call{}
		m.Add(&calls[i], uint64(i%2), i != 0)
	}
	m.ArgsReady(&calls[0])
	if m.Take() != &calls[0] || m.Take() != &calls[1] {
		t.Error("the callers take turns")
	}
	m = NewMailbox(1, false)
	for i := range calls {
		calls[i] = Call{}
		m.Add(&calls[i], 1, false)
	}
	for i := range calls {
		m.ArgsReady(&calls[i])
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestRestarts(t *testing.T) {
	a := New(1, 1, nil, true)
	if !a.ProcessDied() || a.State != Restarting || a.ProcessDied() || a.State != Dead {
		t.Fatal(a.State)
	}
	a = New(Unlimited, 1, map[string]int{"io": 2}, true)
	for range 100 {
		if !a.ProcessDied() {
			t.Fatal("without end")
		}
	}
	if a.Box("io").Concurrency != 2 || a.Box("unknown") != a.Box("") {
		t.Fatal("boxes")
	}
}

func TestNames(t *testing.T) {
	var n Names
	x := Name{"ns", "x"}
	if _, ok := n.Take(x, 1); !ok {
		t.Fatal("free")
	}
	if owner, ok := n.Take(x, 2); ok || owner != 1 {
		t.Fatal("taken")
	}
	n.Free(x, 2)
	if n.Find(x) != 1 {
		t.Fatal("not 2's to give back")
	}
	n.Free(x, 1)
	if n.Find(x) != 0 {
		t.Fatal("free again")
	}
}

func BenchmarkMailbox(b *testing.B) {
	m := NewMailbox(1, true)
	var c Call
	b.ReportAllocs()
	for range b.N {
		m.Add(&c, 1, true)
		m.Done(m.Take())
	}
}
