package objectstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestFragmentationIsBounded plays traces that leave the free space in pieces, with some objects pinned, and asks for large ones. Each must be had at the
// price of moving no more than its own size and a part of one more object, wherever pinned ones leave a gap; and must not be had by moving those.
func TestFragmentationIsBounded(t *testing.T) {
	const capacity, most = 32 * mb, mb
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			f := open(t, Options{Capacity: capacity, SpillDirs: []string{t.TempDir()}, SpillAt: 1, PopulateAhead: -1, TrimAfter: -1, SmallPages: true})
			var live, pinned []*Entry
			seeds := map[*Entry]byte{}
			put := func(size int64) {
				e, seed := f.put(int(size), "x")
				live, seeds[e] = append(live, e), seed
			}
			for f.arena.largestFree() >= most {
				put(64<<10 + rnd.Int64N(most-64<<10)) // smaller ones travel in frames
			}
			rnd.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
			for _, e := range live[:len(live)/4] { // a quarter of it is free, in small pieces
				f.Delete(e)
			}
			live = live[len(live)/4:]
			for _, e := range live[:len(live)/8] {
				if err := f.pin(e); err != nil {
					t.Fatal(err)
				}
				pinned = append(pinned, e)
			}
			for size := int64(2 * mb); size <= 6*mb; size += mb {
				first, _ := f.arena.window(pagesFor(size), func(x *extent) (int64, bool) { return 0, x.state != extentUsed || x.owner.pins == 0 })
				free := (f.arena.warmPages + f.arena.coldPages) << pageShift
				if first == nil || free < size {
					continue
				}
				before := f.Stats().SpilledTotal
				e, seed := f.put(int(size), "large")
				if moved := f.Stats().SpilledTotal - before; moved > size+most {
					t.Errorf("%s were moved for an object of %s", mib(moved), mib(size))
				}
				f.verify(e, seed)
				f.Delete(e)
			}
			for _, e := range pinned {
				if !e.InArena() {
					t.Error("a pinned object was moved")
				}
				f.Unpin(e)
			}
			for _, e := range live {
				f.verify(e, seeds[e])
			}
		})
	}
}

// TestOldObjectsGoFirstInPieces leaves enough free for one more object, but in two pieces: what makes room has to be old each time, not what was made last.
func TestOldObjectsGoFirstInPieces(t *testing.T) {
	const size = mb
	f := open(t, Options{Capacity: 8 * size, SpillDirs: []string{t.TempDir()}, SpillAt: 1, PopulateAhead: -1, TrimAfter: -1, SmallPages: true})
	var all []*Entry
	seeds := map[*Entry]byte{}
	put := func(size int) *Entry {
		e, seed := f.put(size, fmt.Sprint(len(all)))
		all, seeds[e] = append(all, e), seed
		return e
	}
	front := put(size / 2)
	for range 7 {
		put(size)
	}
	f.Delete(front)
	all = all[1:]
	for range 50 {
		put(size)
	}
	for i, e := range all { // 6 or 7 fit
		if i < len(all)-10 && e.InArena() {
			t.Errorf("object %d of %d is still in the arena", i, len(all))
		}
		if i == len(all)-1 && !e.InArena() {
			t.Error("the newest object is not")
		}
	}
	for _, e := range all {
		f.verify(e, seeds[e])
	}
}

func TestWindow(t *testing.T) {
	a := newArena(100 << pageShift)
	var spans []span
	for range 10 {
		s, _ := a.allocPages(10)
		spans = append(spans, s)
	}
	cost := map[*extent]int64{}
	for i, s := range spans {
		cost[s.ext] = int64(10 * (i%3 + 1)) // 10 20 30 10 20 30 …
	}
	of := func(x *extent) (int64, bool) { c, ok := cost[x]; return c, ok || x.free() }
	at := func(e *extent) int64 {
		if e == nil {
			return -1
		}
		return e.page
	}
	for _, c := range []struct {
		what        string
		change      func()
		pages       int64
		first, last int64
	}{
		{"the cheapest one", func() {}, 10, 0, 0},
		{"the cheapest two", func() {}, 11, 0, 10},
		{"what is free costs nothing", func() { a.free(spans[6], 0); delete(cost, spans[6].ext) }, 20, 60, 70},
		{"a wall", func() { delete(cost, spans[7].ext); delete(cost, spans[1].ext) }, 30, 40, 60},
		{"more than fits between walls", func() { delete(cost, spans[4].ext) }, 40, -1, -1},
	} {
		c.change()
		if first, last := a.window(c.pages, of); at(first) != c.first || at(last) != c.last {
			t.Errorf("%s: %d to %d, want %d to %d", c.what, at(first), at(last), c.first, c.last)
		}
	}
}
