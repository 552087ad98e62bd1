package objectstore

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// maker is the other side of leases: what capi/client_lease.c does in the process that made the objects.
type maker struct {
	s      *Store
	called map[*Entry]bool // the store has told that it counts a pin
}

func openWithMaker(t *testing.T, opts Options) (*fixture, *maker) {
	m := &maker{called: map[*Entry]bool{}}
	opts.Leased = func(e *Entry, owner any) {
		if owner != m || m.called[e] {
			t.Errorf("%s was called in for %v, before: %v", e.label, owner, m.called[e])
		}
		m.called[e] = true
	}
	f := open(t, opts)
	m.s = f.Store
	return f, m
}

func (m *maker) grant(t *testing.T, e *Entry) Lease {
	t.Helper()
	l, ok := m.s.Grant(e, m)
	if !ok {
		t.Fatalf("there is no lease for %s: %v", e.label, m.s.leases.err)
	}
	return l
}

func (m *maker) pin(l Lease) bool {
	word := m.s.leases.word(int(l.Index))
	for {
		was := atomic.LoadUint64(word)
		if uint32(was>>32) != l.Generation || was&leaseCalled != 0 {
			return false
		}
		if atomic.CompareAndSwapUint64(word, was, was+1) {
			return true
		}
	}
}

// unpin says whether the store has to be told.
func (m *maker) unpin(l Lease) bool {
	word := m.s.leases.word(int(l.Index))
	for {
		was := atomic.LoadUint64(word)
		if uint32(was>>32) != l.Generation || was&leaseCount == 0 {
			return false
		}
		now := was - 1
		last := was&leaseCalled != 0 && was&leaseCount == 1
		if last {
			now = 0
		}
		if atomic.CompareAndSwapUint64(word, was, now) {
			return last
		}
	}
}

func TestLeasedPinHoldsTheSpace(t *testing.T) {
	f, m := openWithMaker(t, Options{Capacity: 8 * mb})
	e, _ := f.put(mb, "a")
	l := m.grant(t, e)
	for range 2 {
		if !m.pin(l) {
			t.Fatal("a new lease gives no pin")
		}
	}
	f.Delete(e)
	if f.Used() == 0 || !m.called[e] || !e.Pinned() {
		t.Fatal("the space of an object that its maker has pinned was freed")
	}
	if m.pin(l) {
		t.Error("a lease that was called in gives a pin")
	}
	for _, last := range []bool{false, true} {
		if m.unpin(l) != last {
			t.Error("the last of two pins, and only that, has to be told")
		}
	}
	f.Unpin(e)
	if f.Used() != 0 {
		t.Errorf("%d bytes are left", f.Used())
	}
	if m.pin(l) {
		t.Error("a lease that is over gives a pin")
	}
}

func TestLeaseWithoutPinsIsCalledInSilently(t *testing.T) {
	f, m := openWithMaker(t, Options{Capacity: 8 * mb})
	e, _ := f.put(mb, "a")
	l := m.grant(t, e)
	if !m.pin(l) || m.unpin(l) {
		t.Fatal("a pin that comes and goes is nothing to tell")
	}
	f.Delete(e)
	if f.Used() != 0 || m.called[e] || m.pin(l) {
		t.Error("an object that nobody pins was not freed")
	}
	b, _ := f.put(mb, "b")
	again := m.grant(t, b)
	if again.Index != l.Index {
		t.Errorf("the word at %d was free, and %d is taken", l.Index, again.Index)
	}
	if m.pin(l) || !m.pin(again) {
		t.Error("the old lease is taken for the new one")
	}
	m.unpin(again)
}

func TestPressureLeavesLeasedPinsAlone(t *testing.T) {
	f, m := openWithMaker(t, Options{Capacity: 8 * mb, SpillDirs: []string{t.TempDir()}, SmallPages: true})
	kept, seed := f.put(2*mb, "kept")
	l := m.grant(t, kept)
	free, freeSeed := f.put(2*mb, "free")
	lf := m.grant(t, free)
	if !m.pin(l) {
		t.Fatal("no pin")
	}
	at := kept.span.off
	for i := range 4 {
		f.put(2*mb, "more")
		if kept.state != resident || kept.span.off != at || !bytes.Equal(f.Bytes(kept), pattern(seed, 2*mb)) {
			t.Fatalf("after %d more objects, the one that is pinned has moved", i+1)
		}
	}
	if m.pin(lf) || free.InArena() {
		t.Error("the object that nobody pins kept its place")
	}
	if got := f.Unmovable(); got < 2*mb {
		t.Errorf("%d bytes are unmovable, but 2 MiB are pinned", got)
	}
	if !m.called[kept] || !m.unpin(l) {
		t.Fatal("the pin was not called in")
	}
	f.Unpin(kept)
	f.verify(free, freeSeed)
	f.verify(kept, seed)
}

func TestPinsByLeasesAreCounted(t *testing.T) {
	f, m := openWithMaker(t, Options{Capacity: 8 * mb})
	e, _ := f.put(mb, "a")
	l := m.grant(t, e)
	if e.Pinned() || f.Stats().Pinned != 0 {
		t.Error("a lease alone is no pin")
	}
	m.pin(l)
	if !e.Pinned() || f.Stats().Pinned != mb {
		t.Error("a pin by a lease does not count")
	}
	m.unpin(l)
	f.Unpin(e)
	if f.Stats().Pinned != 0 {
		t.Error("the pin was given back and counts still")
	}
}

func TestLeasesOfTheDeadAreDropped(t *testing.T) {
	f, m := openWithMaker(t, Options{Capacity: 64 * mb})
	e, _ := f.put(mb, "pinned")
	idle, _ := f.put(mb, "idle")
	called, _ := f.put(mb, "called in")
	l, li, lc := m.grant(t, e), m.grant(t, idle), m.grant(t, called)
	m.pin(l)
	m.pin(lc)
	f.Delete(called)
	other := &maker{s: f.Store}
	theirs, _ := f.put(mb, "another's")
	lo := other.grant(t, theirs)
	f.DropLeases(func(owner any) bool { return owner == m })
	f.Unpin(called) // what was made known, its keeper takes back
	for _, x := range []Lease{l, li, lc} {
		if m.pin(x) || m.unpin(x) {
			t.Errorf("lease %d outlives its process", x.Index)
		}
	}
	if !other.pin(lo) || other.unpin(lo) {
		t.Error("the lease of another process is over")
	}
	f.Delete(e)
	f.Delete(idle)
	f.Delete(theirs)
	if f.Used() != 0 {
		t.Errorf("%d bytes are left", f.Used())
	}
}

func TestLeasesRunOut(t *testing.T) {
	f, m := openWithMaker(t, Options{Capacity: 64 * mb})
	var all []*Entry
	for range mostLeases {
		e, _ := f.put(64, "x")
		all = append(all, e)
		m.grant(t, e)
	}
	e, _ := f.put(64, "one more")
	if _, ok := f.Grant(e, m); ok {
		t.Error("there are more leases than words")
	}
	f.Delete(all[7])
	if m.grant(t, e).Index != 7 {
		t.Error("the word that became free was not taken")
	}
}

// TestLeaseAgainstStore has a maker pin and unpin as fast as it can while the store makes room: what is pinned must never be moved.
func TestLeaseAgainstStore(t *testing.T) {
	var told sync.Map
	opts := Options{Capacity: 8 * mb, SpillDirs: []string{t.TempDir()}, SmallPages: true}
	opts.Leased = func(e *Entry, owner any) { told.Store(e, true) }
	f := open(t, opts)
	m := &maker{s: f.Store}
	end := time.Now().Add(300 * time.Millisecond)
	for round := 0; time.Now().Before(end); round++ {
		e, seed := f.put(mb, "hammered")
		l := m.grant(t, e)
		data := f.Bytes(e)
		stop, done := make(chan struct{}), make(chan bool, 1)
		want := pattern(seed, 4096)
		go func() {
			tell := false
			for !tell {
				if !m.pin(l) {
					break
				}
				if !bytes.Equal(data[:4096], want) {
					t.Error("a pinned object's bytes have changed")
				}
				tell = m.unpin(l)
				select {
				case <-stop:
					done <- tell
					return
				default:
				}
			}
			done <- tell
		}()
		var fill []*Entry
		for range 8 {
			x, _ := f.put(mb, "fill")
			fill = append(fill, x)
		}
		f.Delete(e)
		close(stop)
		if tell := <-done; tell {
			if _, ok := told.LoadAndDelete(e); !ok {
				t.Fatal("the maker tells of a pin that the store does not count")
			}
			f.Unpin(e)
		} else if _, ok := told.LoadAndDelete(e); ok {
			t.Fatal("the store counts a pin that nobody gives back")
		}
		for _, x := range fill {
			f.Delete(x)
		}
	}
	f.until(t, "all to be free", func() bool { return f.Used() == 0 })
}
