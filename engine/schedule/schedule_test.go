package schedule

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func node(r Resources) *Scheduler { return New("n", r, map[string]string{"zone": "a"}) }

func always(*Class) bool { return true }

func push(s *Scheduler, c *Class, value any, now time.Duration) *Item {
	it := &Item{Value: value}
	s.Push(c, it, now)
	return it
}

func TestOldestFirstAndPassedBy(t *testing.T) {
	s := node(Resources{CPU: 2 * One})
	small, big := s.Class(Demand{Resources: Resources{CPU: One}, Bundle: -1}), s.Class(Demand{Resources: Resources{CPU: 2 * One}, Bundle: -1})
	push(s, small, 1, 0)
	push(s, big, 2, 0)
	push(s, small, 3, 0)
	c, l1 := s.Grant(0, always)
	if c != small || c.Pop().Value != 1 {
		t.Fatal("the oldest comes first")
	}
	c, l2 := s.Grant(time.Second, always)
	if c != small || c.Pop().Value != 3 {
		t.Fatal("what does not fit is passed by")
	}
	s.Release(small, l1)
	push(s, small, 4, 0)
	if c, l := s.Grant(Patience+1, always); l != nil {
		t.Fatal("what waited long is passed by no more, but", c.Demand, "was")
	}
	s.Release(small, l2)
	if c, _ = s.Grant(Patience+1, always); c != big {
		t.Fatal("the big one has its turn")
	}
}

func TestMayKeep(t *testing.T) {
	s := node(Resources{CPU: One})
	a, b := s.Class(Demand{Resources: Resources{CPU: One}, Env: 1}), s.Class(Demand{Resources: Resources{CPU: One}, Env: 2})
	push(s, a, 1, 0)
	_, l := s.Grant(0, always)
	a.Pop()
	push(s, a, 2, 0)
	if !s.MayKeep(a, l) {
		t.Error("nobody else waits")
	}
	a.Pop()
	push(s, b, 3, 0)
	push(s, a, 4, 0)
	if s.MayKeep(a, l) {
		t.Error("an older item waits for the same CPU")
	}
}

func TestBlockedLendsItsCPU(t *testing.T) {
	s := node(Resources{CPU: One, GPU: One})
	c := s.Class(Demand{Resources: Resources{CPU: One, GPU: One}})
	push(s, c, 1, 0)
	_, l := s.Grant(0, always)
	c.Pop()
	s.Block(l)
	if free := s.Node().Free(); free[CPU] != One || free[GPU] != 0 {
		t.Fatal(free)
	}
	other := s.Class(Demand{Resources: Resources{CPU: One}})
	push(s, other, 2, 0)
	_, l2 := s.Grant(0, always)
	other.Pop()
	s.Unblock(l)
	s.Release(other, l2)
	s.Release(c, l)
	s.Release(c, l)
	if free := s.Node().Free(); free[CPU] != One || free[GPU] != One {
		t.Fatal(free)
	}
}

func TestGPUs(t *testing.T) {
	s := node(Resources{GPU: 2 * One})
	half, whole := s.Class(Demand{Resources: Resources{GPU: One / 2}}), s.Class(Demand{Resources: Resources{GPU: One}})
	var leases []*Lease
	for range 3 {
		push(s, half, nil, 0)
		_, l := s.Grant(0, always)
		half.Pop()
		leases = append(leases, l)
	}
	if leases[0].GPUs()[0].Index != leases[1].GPUs()[0].Index || leases[2].GPUs()[0].Index == leases[0].GPUs()[0].Index {
		t.Error("halves fill one GPU before the next")
	}
	push(s, whole, nil, 0)
	if _, l := s.Grant(0, always); l != nil {
		t.Error("no whole GPU is left")
	}
	s.Release(half, leases[2])
	if _, l := s.Grant(0, always); l == nil || l.GPUs()[0].Index != leases[2].GPUs()[0].Index {
		t.Error("the whole one was free")
	}
	if c := s.Class(Demand{Resources: Resources{GPU: One * 3 / 2}}); c.Infeasible() == "" {
		t.Error("1.5 GPUs cannot be had")
	}
}

func TestSettle(t *testing.T) {
	s := node(Resources{CPU: One})
	c := s.Class(Demand{Resources: Resources{CPU: One}, Hold: Resources{}})
	push(s, c, nil, 0)
	_, l := s.Grant(0, always)
	c.Pop()
	s.Settle(c, l)
	if s.Node().Free()[CPU] != One || len(l.Resources()) != 0 {
		t.Error("an actor that needs nothing to live holds", l.Resources())
	}
	s.Release(c, l)
	if s.Node().Free()[CPU] != One {
		t.Error(s.Node().Free())
	}
}

func TestInfeasible(t *testing.T) {
	s := node(Resources{CPU: One, "widget": One})
	for want, d := range map[string]Demand{
		"GPU":     {Resources: Resources{GPU: One}},
		"widget":  {Resources: Resources{"widget": 2 * One}},
		"node":    {Node: "elsewhere"},
		"label":   {Labels: []Label{ParseSelector("zone", "!a")}},
		"removed": {Group: 99},
	} {
		if why := s.Class(d).Infeasible(); !strings.Contains(why, want) {
			t.Errorf("%s: %q", want, why)
		}
	}
	for _, d := range []Demand{{Node: "elsewhere", Soft: true}, {Node: "n"}, {Labels: []Label{ParseSelector("zone", "in(a, b)")}}} {
		if why := s.Class(d).Infeasible(); why != "" {
			t.Error(why)
		}
	}
}

func TestGroups(t *testing.T) {
	s := node(Resources{CPU: 3 * One})
	g := &Group{ID: 1, Strategy: "PACK", Bundles: []Resources{{CPU: One}, {CPU: 2 * One}}}
	s.AddGroup(g, 0)
	in := s.Class(Demand{Resources: Resources{CPU: 2 * One}, Group: 1, Bundle: -1})
	push(s, in, nil, 0)
	if _, l := s.Grant(0, always); l != nil {
		t.Fatal("the group is not placed")
	}
	if s.PlaceGroup(0) != g || s.Node().Free()[CPU] != 0 {
		t.Fatal("the group fits")
	}
	_, l := s.Grant(0, always)
	if l == nil || !l.InPool(g.Pool(1)) {
		t.Fatal("bundle 1 fits")
	}
	in.Pop()
	s.RemoveGroup(g)
	if s.Node().Free()[CPU] != One || in.Infeasible() == "" {
		t.Fatal(s.Node().Free())
	}
	s.Release(in, l)
	if s.Node().Free()[CPU] != 3*One {
		t.Fatal(s.Node().Free())
	}
	spread := &Group{ID: 2, Strategy: "STRICT_SPREAD", Bundles: []Resources{{CPU: One}, {CPU: One}}}
	s.AddGroup(spread, 0)
	if !strings.Contains(spread.Infeasible(), "2 nodes") {
		t.Error(spread.Infeasible())
	}
	wide := &Group{ID: 3, Strategy: "PACK", Bundles: []Resources{{CPU: 2 * One}, {CPU: 2 * One}}}
	s.AddGroup(wide, 0)
	if !strings.Contains(wide.Infeasible(), "CPU") || s.PlaceGroup(0) != nil {
		t.Error(wide.Infeasible())
	}
}

func TestAhead(t *testing.T) {
	for _, c := range []struct {
		mean            time.Duration
		queued, workers int
		want            int
	}{
		{0, 1000, 2, 1}, {time.Millisecond, 1000, 2, 4}, {time.Microsecond, 1000, 2, 256}, {time.Microsecond, 9, 2, 5}, {time.Second, 1000, 2, 1}, {time.Microsecond, 0, 2, 1},
	} {
		if got := Ahead(c.mean, c.queued, c.workers); got != c.want {
			t.Errorf("Ahead(%v, %d, %d) = %d, want %d", c.mean, c.queued, c.workers, got, c.want)
		}
	}
	var m Mean
	for range 100 {
		m.Add(1000)
	}
	if m.Add(1e9); m.Get() < 100*time.Millisecond {
		t.Error("one slow run shows at once:", m.Get())
	}
}

// naive does what Scheduler does with a plain list and sums.
type naive struct {
	total   Resources
	held    []Resources
	waiting []naiveItem
}

type naiveItem struct {
	id int
	r  Resources
	at time.Duration
}

func (n *naive) fits(r Resources) bool {
	for name, a := range r {
		for _, h := range n.held {
			a += h[name]
		}
		if a > n.total[name] {
			return false
		}
	}
	return true
}

func (n *naive) grant(now time.Duration) int {
	kept := Resources{}
	for i, it := range n.waiting {
		rival := false
		for name, a := range it.r {
			rival = rival || a > 0 && kept[name] > 0
		}
		// Only the head of a queue of equals may go, or keep something.
		head := !slices.ContainsFunc(n.waiting[:i], func(o naiveItem) bool { return o.r.String() == it.r.String() })
		if rival || !head {
			continue
		}
		if n.fits(it.r) {
			n.held = append(n.held, it.r)
			n.waiting = slices.Delete(n.waiting, i, i+1)
			return it.id
		}
		if now-it.at > Patience {
			for name, a := range it.r {
				kept[name] += a
			}
		}
	}
	return -1
}

func TestAgainstNaiveTwin(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		total := Resources{CPU: 4 * One, "widget": 2 * One}
		s, n := node(total), &naive{total: total}
		type held struct {
			c *Class
			l *Lease
			r Resources
		}
		var out []held
		now := time.Duration(0)
		for step := range 300 {
			now += time.Duration(rng.IntN(100)) * time.Millisecond
			if rng.IntN(2) == 0 {
				r := Resources{CPU: Amount(rng.IntN(4)) * One / 2, "widget": Amount(rng.IntN(3)) * One}
				push(s, s.Class(Demand{Resources: r, Bundle: -1}), step, now)
				n.waiting = append(n.waiting, naiveItem{step, r, now})
			} else if len(out) > 0 {
				i := rng.IntN(len(out))
				s.Release(out[i].c, out[i].l)
				at := slices.IndexFunc(n.held, func(r Resources) bool { return r.String() == out[i].r.String() })
				n.held = slices.Delete(n.held, at, at+1)
				out = slices.Delete(out, i, i+1)
			}
			for {
				c, l := s.Grant(now, always)
				want := n.grant(now)
				if l == nil {
					if want >= 0 {
						t.Fatalf("seed %d step %d: the twin runs %d", seed, step, want)
					}
					break
				}
				if got := c.Pop().Value.(int); got != want {
					t.Fatalf("seed %d step %d: runs %d, the twin %d", seed, step, got, want)
				}
				out = append(out, held{c, l, c.Demand.Resources})
			}
		}
		for _, h := range out {
			s.Release(h.c, h.l)
		}
		if free := s.Node().Free(); free.String() != total.String() {
			t.Fatalf("seed %d: %v is free at the end", seed, free)
		}
	}
}

func BenchmarkQueueing(b *testing.B) {
	s := node(Resources{CPU: 2 * One})
	c := s.Class(Demand{Resources: Resources{CPU: One}, Bundle: -1})
	items := make([]Item, 1000)
	b.ReportAllocs()
	for i := range b.N {
		s.Push(c, &items[i%1000], 0)
		_, l := s.Grant(0, always)
		c.Pop()
		s.Release(c, l)
	}
}

// What somebody waits for goes first, in the order in which it was asked for, and keeps its place when it is put back.
func TestHasten(t *testing.T) {
	s := New("n", Resources{CPU: One}, nil)
	c := s.Class(Demand{Resources: Resources{CPU: One}})
	items := make([]Item, 5)
	for i := range items {
		items[i].Value = i
		s.Push(c, &items[i], 0)
	}
	s.Hasten(&items[3])
	s.Hasten(&items[1])
	s.Hasten(&items[3])
	back := c.Pop()
	s.Hasten(back) // waits no more
	s.PushBack(c, back)
	s.Remove(&items[0])
	s.PushBack(c, &items[0])
	var order []int
	for it := c.Pop(); it != nil; it = c.Pop() {
		order = append(order, it.Value.(int))
	}
	if want := []int{1, 3, 0, 2, 4}; !slices.Equal(order, want) {
		t.Fatalf("taken in the order %v instead of %v", order, want)
	}
	if c.first != nil || c.last != nil || c.hasty != nil || c.n != 0 {
		t.Fatalf("an empty queue has %v, %v, %v, %d", c.first, c.last, c.hasty, c.n)
	}
}
