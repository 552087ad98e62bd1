package objectstore

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"
)

// twin is the naive second opinion: a list of what is handed out.
type twin struct {
	capacity int64
	live     []span
}

func (w *twin) add(t testing.TB, s span, size int64) {
	t.Helper()
	if s.size < size || s.off < 0 || s.off+s.size > w.capacity || s.off%alignment != 0 {
		t.Fatalf("bad span [%d,+%d) for %d bytes in %d", s.off, s.size, size, w.capacity)
	}
	if size > maxSmall && s.off%pageSize != 0 {
		t.Fatalf("large span at %d is not on a page", s.off)
	}
	for _, o := range w.live {
		if s.off < o.off+o.size && o.off < s.off+s.size {
			t.Fatalf("span [%d,+%d) overlaps [%d,+%d)", s.off, s.size, o.off, o.size)
		}
	}
	w.live = append(w.live, s)
}

// longestFree is the longest run of whole pages that no live span, and no other reserved page, touches.
func (w *twin) longestFree(slabs []*extent) int64 {
	type iv struct{ a, b int64 }
	var used []iv
	for _, s := range w.live {
		if s.slab == nil {
			used = append(used, iv{s.off >> pageShift, (s.off + s.size) >> pageShift})
		}
	}
	for _, e := range slabs {
		used = append(used, iv{e.page, e.page + e.pages})
	}
	sort.Slice(used, func(i, j int) bool { return used[i].a < used[j].a })
	var best, at int64
	for _, u := range used {
		best = max(best, u.a-at)
		at = max(at, u.b)
	}
	return max(best, w.capacity>>pageShift-at) << pageShift
}

// check holds every invariant that extent and arena state.
func (a *arena) check(t testing.TB) {
	t.Helper()
	inBin := map[*extent]bool{}
	for i, b := range []*bins{&a.warm, &a.cold} {
		for j, e := range b.head {
			if (e != nil) != (b.have[j/64]>>(j%64)&1 == 1) {
				t.Fatalf("bitmap and bin %d/%d disagree", i, j)
			}
			for prev := (*extent)(nil); e != nil; prev, e = e, e.binNext {
				if e.binPrev != prev || binOf(e.pages) != j || e.state != []extentState{extentWarm, extentCold}[i] {
					t.Fatalf("extent %+v is in the wrong bin %d/%d", e, i, j)
				}
				inBin[e] = true
			}
		}
	}
	var page, warm, cold, busy int64
	for prev, e := (*extent)(nil), a.first; e != nil; prev, e = e, e.next {
		if e.prev != prev || e.page != page || e.pages <= 0 {
			t.Fatalf("broken address list at page %d: %+v", page, e)
		}
		if prev != nil && prev.free() && prev.state == e.state {
			t.Fatalf("neighbours at page %d should be one", page)
		}
		if inBin[e] != e.free() {
			t.Fatalf("extent at page %d: in bin %v, state %d", page, inBin[e], e.state)
		}
		switch e.state {
		case extentWarm:
			warm += e.pages
		case extentCold:
			cold += e.pages
		case extentBusy:
			busy += e.pages
		}
		page += e.pages
	}
	if page<<pageShift != a.capacity || warm != a.warmPages || cold != a.coldPages || busy != a.busyPages {
		t.Fatalf("pages %d (capacity %d), warm %d/%d, cold %d/%d, busy %d/%d", page, a.capacity>>pageShift,
			warm, a.warmPages, cold, a.coldPages, busy, a.busyPages)
	}
}

// drive runs a script of operations against arena and twin. Each operation is one byte of kind and two of argument.
func drive(t testing.TB, script []byte) {
	const capacity = 300 * pageSize
	a, w := newArena(capacity), &twin{capacity: capacity}
	var busy []*extent
	for now := int64(1); len(script) >= 3; now++ {
		kind, arg := script[0], int64(binary.LittleEndian.Uint16(script[1:]))
		script = script[3:]
		switch kind % 8 {
		case 0, 1, 2, 3:
			size := arg + 1
			if kind%8 >= 2 {
				size = arg*10 + 1
			}
			s, ok := a.alloc(size)
			if ok {
				w.add(t, s, size)
				break
			}
			slabs := append([]*extent(nil), busy...)
			for _, s := range w.live {
				if s.slab != nil {
					slabs = append(slabs, s.slab.ext)
				}
			}
			if free := w.longestFree(slabs); free >= pagesFor(size)<<pageShift {
				t.Fatalf("alloc(%d) failed with %d bytes free in one piece", size, free)
			}
		case 4:
			// A piece of a large span becomes a span of its own.
			if n := int64(len(w.live)); n > 0 {
				if s := w.live[arg%n]; s.slab == nil {
					w.live = append(w.live[:arg%n], w.live[arg%n+1:]...)
					page := s.ext.page + arg/7%s.ext.pages
					piece, before, behind := a.carve(s.ext, page, 1+arg/11%(s.ext.page+s.ext.pages-page))
					if piece.page != page {
						t.Fatalf("carved page %d instead of %d", piece.page, page)
					}
					for _, e := range []*extent{piece, before, behind} {
						if e != nil {
							w.add(t, span{off: e.page << pageShift, size: e.pages << pageShift, ext: e}, 1+e.pages<<pageShift-pageSize)
						}
					}
				}
			}
		case 5, 6:
			if n := int64(len(w.live)); n > 0 {
				i := arg % n
				a.free(w.live[i], now)
				w.live[i] = w.live[n-1]
				w.live = w.live[:n-1]
			}
		case 7:
			switch {
			case arg%3 == 0 && len(busy) > 0:
				state := extentWarm
				if arg%2 == 0 {
					state = extentCold
				}
				a.unreserve(busy[0], state, now)
				busy = busy[1:]
			case arg%3 == 1:
				if e := a.nextCold(); e != nil {
					busy = append(busy, a.reserve(e, arg%40+1))
				}
			default:
				if e := a.staleWarm(now - arg%16); e != nil {
					busy = append(busy, a.reserve(e, arg%40+1))
				}
			}
		}
		a.check(t)
		var used, inSlots int64
		slabs := map[*slab]bool{}
		for _, s := range w.live {
			used += s.size
			if s.slab != nil {
				inSlots += s.size
				slabs[s.slab] = true
			}
		}
		if used != a.used || inSlots != a.slabUsed {
			t.Fatalf("used %d, of it %d in slots; the twin says %d and %d", a.used, a.slabUsed, used, inSlots)
		}
		for _, s := range a.empty {
			if s != nil {
				slabs[s] = true
			}
		}
		var slabBytes int64
		for s := range slabs {
			slabBytes += s.ext.pages << pageShift
		}
		if slabBytes != a.slabBytes {
			t.Fatalf("slabs have %d bytes, the twin says %d", a.slabBytes, slabBytes)
		}
	}
	for _, s := range w.live {
		a.free(s, 1<<40)
	}
	for _, e := range busy {
		a.unreserve(e, extentCold, 1<<40)
	}
	a.dropEmptySlabs()
	a.check(t)
	if a.largestFree() != capacity || a.used != 0 || a.slabBytes != 0 || a.freeRuns() != 1 {
		t.Fatalf("after everything was freed, %d of %d bytes are free in one piece", a.largestFree(), capacity)
	}
}

func FuzzArena(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 255, 255, 4, 0, 0, 7, 1, 0, 7, 3, 0})
	f.Fuzz(func(t *testing.T, script []byte) { drive(t, script[:min(len(script), 3*500)]) })
}

// TestColdPagesBehindBusyOnesGoFromTheEnd makes large objects while pages are populated: these stay beside the free ones.
func TestColdPagesBehindBusyOnesGoFromTheEnd(t *testing.T) {
	a := newArena(100 << pageShift)
	busy := a.reserve(a.nextCold(), 10)
	first, _ := a.allocPages(40)
	if want := int64(60 << pageShift); first.off != want {
		t.Errorf("the object begins at %d, want %d", first.off, want)
	}
	a.unreserve(busy, extentWarm, 1)
	second, ok := a.allocPages(60)
	if !ok || second.off != 0 {
		t.Errorf("what is free is not one piece: %+v, %v", second, ok)
	}
	if got := a.largestFree(); got != 0 {
		t.Errorf("%d bytes are free, want none", got)
	}
}

func TestArenaAgainstTwin(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 3*400)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { drive(t, script) })
	}
}

func TestArenaReusesWarmPagesFirst(t *testing.T) {
	const mib = 1 << 20
	a := newArena(64 * mib)
	x, _ := a.alloc(4 * mib)
	y, _ := a.alloc(4 * mib)
	keep, _ := a.alloc(mib)
	a.free(x, 1)
	if z, _ := a.alloc(4 * mib); z.off != x.off {
		t.Fatalf("the freed 4 MiB at %d were not used again: %d", x.off, z.off)
	}
	a.free(y, 2)
	if z, _ := a.alloc(3 * mib); z.off != y.off {
		t.Fatalf("a smaller object did not go to warm pages at %d: %d", y.off, z.off)
	}
	a.free(keep, 3)
	// The warm run behind y's first 3 MiB is 2 MiB and touches cold pages; 3 MiB grow into those.
	if z, _ := a.alloc(3 * mib); z.off != y.off+3*mib {
		t.Fatalf("did not grow the warm run: got %d", z.off)
	}
}

func TestClasses(t *testing.T) {
	for size := int64(1); size <= maxSmall; size++ {
		c, ok := classOf(size)
		if !ok || classSizes[c] < size || (c > 0 && classSizes[c-1] >= size) {
			t.Fatalf("size %d: class %d of %d", size, c, classSizes[c])
		}
	}
	if _, ok := classOf(maxSmall + 1); ok {
		t.Fatal("too large for a class")
	}
}

func BenchmarkArenaLarge(b *testing.B) {
	a := newArena(8 << 30)
	b.ReportAllocs()
	for b.Loop() {
		s, _ := a.alloc(100 << 20)
		a.free(s, 1)
	}
}

func BenchmarkArenaMixed(b *testing.B) {
	a := newArena(8 << 30)
	rng := rand.New(rand.NewPCG(1, 2))
	var live []span
	b.ReportAllocs()
	for b.Loop() {
		if len(live) > 2000 {
			i := rng.IntN(len(live))
			a.free(live[i], 1)
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			continue
		}
		if s, ok := a.alloc(1 + rng.Int64N(1<<(8+rng.IntN(14)))); ok {
			live = append(live, s)
		}
	}
}
