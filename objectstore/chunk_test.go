package objectstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// cut writes a pattern into a chunk and carves it, as a process and its engine would.
func (f *fixture) cut(c *Chunk, off int64, size int) (*Entry, byte) {
	f.t.Helper()
	f.next++
	copy(f.mem.data[off:], pattern(f.next, size))
	e, err := c.Carve(off, int64(size), fmt.Sprint("cut ", f.next))
	if err != nil {
		f.t.Fatal(err)
	}
	return e, f.next
}

func TestCarvedObjectsAreOrdinaryOnes(t *testing.T) {
	f := open(t, Options{Capacity: 32 * mb, SpillDirs: []string{t.TempDir()}})
	c := f.Lend(4 * mb)
	at := c.Offset()
	if st := f.Stats(); st.Used != 0 || st.Chunks != 1 || st.ChunkUnused != 4*mb {
		t.Fatalf("a chunk that was lent counts as %+v", st)
	}
	// Sealed in another order than cut.
	b, bSeed := f.cut(c, at+mb, mb)
	a, aSeed := f.cut(c, at, 100_000)
	if st := f.Stats(); st.Objects != 2 || st.Used != mb+102_400 || st.Slack != 2400 || st.ChunkUnused != 3*mb-102_400 {
		t.Fatalf("two objects of a chunk count as %+v", st)
	}
	f.verify(a, aSeed)
	f.verify(b, bSeed)
	if err := c.Return(at+2*mb, 2*mb); err != nil {
		t.Fatal(err)
	}
	f.Delete(a)
	if st := f.Stats(); st.Objects != 1 || st.Used != mb || st.Warm != 2*mb+102_400 {
		t.Fatalf("after one object was freed: %+v", st)
	}
	c.Drop()
	if !c.Empty() || f.Stats().Chunks != 0 || f.Stats().ChunkUnused != 0 {
		t.Fatalf("a dropped chunk leaves %+v", f.Stats())
	}
	// One is spilled and comes back, to another place perhaps.
	big, bigSeed := f.put(32*mb, "all of the arena")
	if b.InArena() {
		t.Fatal("an object from a chunk was not moved to make room")
	}
	f.verify(big, bigSeed)
	f.Delete(big)
	f.verify(b, bSeed)
	f.Delete(b)
	if st := f.Stats(); st.Used != 0 || st.Objects != 0 || st.Slack != 0 {
		t.Fatalf("something is left: %+v", st)
	}
}

func TestChunksRefuseWhatIsNotTheirs(t *testing.T) {
	f := open(t, Options{Capacity: 64 * mb})
	c := f.Lend(mb)
	at := c.Offset()
	e, _ := f.cut(c, at, 200_000)
	for _, bad := range [][2]int64{{at, 100}, {at + 64, 100}, {at - pageSize, 100}, {at + 512*1024, mb}, {at + mb, 100}, {-pageSize, 100}, {1 << 62, 1 << 62}, {at + 256*1024, 0}, {at + 256*1024, -5}} {
		if _, err := c.Carve(bad[0], bad[1], "bad"); err == nil {
			t.Errorf("%d bytes at %d were carved out of the chunk at %d", bad[1], bad[0], at)
		}
		if err := c.Return(bad[0], bad[1]); err == nil {
			t.Errorf("%d bytes at %d were taken back from the chunk at %d", bad[1], bad[0], at)
		}
	}
	f.Delete(e)
	c.Drop()
	if st := f.Stats(); st.Used != 0 || st.ChunkUnused != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestChunksAreNotLentWhenSpaceIsScarce(t *testing.T) {
	recalls := 0
	f := open(t, Options{Capacity: 64 * mb, Recall: func() { recalls++ }})
	var lent []*Chunk
	for {
		c := f.Lend(2 * mb)
		if c == nil {
			break
		}
		lent = append(lent, c)
	}
	if len(lent) != 4 {
		t.Fatalf("%d chunks of 2 MiB were lent from 64 MiB; an eighth is the limit", len(lent))
	}
	big, _ := f.put(55*mb, "big")
	done := false
	f.Create(4*mb, "more", func(e *Entry, err error) {
		if err != nil {
			t.Error(err)
			return
		}
		done = true
		f.Delete(e)
	})
	if done || recalls != 1 {
		t.Fatalf("granted %v, %d recalls", done, recalls)
	}
	if f.Lend(pageSize) != nil {
		t.Fatal("a chunk was lent while somebody waits for room")
	}
	lent[0].Drop()
	lent[1].Drop()
	if !done || recalls != 1 {
		t.Fatalf("after two chunks came back: granted %v, %d recalls", done, recalls)
	}
	if f.Lend(pageSize) != nil {
		t.Fatal("a chunk was lent with less than a quarter free")
	}
	f.Delete(big)
	if c := f.Lend(pageSize); c == nil {
		t.Fatal("no chunk was lent with plenty of room")
	} else {
		c.Drop()
	}
	lent[2].Drop()
	lent[3].Drop()
}

// traceChunks lends, carves, returns and drops at random, with a list of free pages as the second opinion.
func traceChunks(t testing.TB, seed uint64) {
	const capacity = 64 * mb
	rng := rand.New(rand.NewPCG(seed, 2))
	f := open(t, Options{Capacity: capacity, PopulateAhead: -1, TrimAfter: -1, SmallPages: true})
	type piece struct{ off, size int64 }
	type lent struct {
		c    *Chunk
		free []piece
	}
	var chunks []*lent
	var entries []*Entry
	owner := make([]byte, capacity/pageSize) // 0 free, 1 lent, 2 an object's
	mark := func(off, size int64, from, to byte) {
		for p := off / pageSize; p < (off+size+pageSize-1)/pageSize; p++ {
			if owner[p] != from {
				t.Fatalf("seed %d: page %d is %d, not %d", seed, p, owner[p], from)
			}
			owner[p] = to
		}
	}
	for range 600 {
		switch k := rng.IntN(10); {
		case k < 2:
			if c := f.Lend(1 + rng.Int64N(3*mb)); c != nil {
				mark(c.Offset(), c.Unused(), 0, 1)
				chunks = append(chunks, &lent{c, []piece{{c.Offset(), c.Unused()}}})
			}
		case k < 7 && len(chunks) > 0:
			l := chunks[rng.IntN(len(chunks))]
			if len(l.free) == 0 {
				break
			}
			i := rng.IntN(len(l.free))
			p := l.free[i]
			from := rng.Int64N(p.size/pageSize) * pageSize
			size := 1 + rng.Int64N(min(p.size-from, 300_000))
			if k == 6 {
				if err := l.c.Return(p.off+from, size); err != nil {
					t.Fatal(err)
				}
				mark(p.off+from, size, 1, 0)
			} else {
				e, err := l.c.Carve(p.off+from, size, "x")
				if err != nil {
					t.Fatal(err)
				}
				mark(p.off+from, size, 1, 2)
				entries = append(entries, e)
			}
			l.free = append(l.free[:i], l.free[i+1:]...)
			if from > 0 {
				l.free = append(l.free, piece{p.off, from})
			}
			if rest := from + pagesFor(size)*pageSize; rest < p.size {
				l.free = append(l.free, piece{p.off + rest, p.size - rest})
			}
		case k < 9 && len(entries) > 0:
			i := rng.IntN(len(entries))
			mark(entries[i].Offset(), entries[i].Size(), 2, 0)
			f.Delete(entries[i])
			entries = append(entries[:i], entries[i+1:]...)
		case k == 9 && len(chunks) > 0:
			i := rng.IntN(len(chunks))
			for _, p := range chunks[i].free {
				mark(p.off, p.size, 1, 0)
			}
			chunks[i].c.Drop()
			chunks = append(chunks[:i], chunks[i+1:]...)
		}
		var count [3]int64
		for _, o := range owner {
			count[o] += pageSize
		}
		alive := 0
		for _, l := range chunks {
			if !l.c.Empty() {
				alive++
			}
		}
		st := f.Stats()
		if st.Used != count[2] || st.ChunkUnused != count[1] || st.Warm+st.Cold != count[0] || st.Objects != len(entries) || st.Chunks != alive {
			t.Fatalf("seed %d: %v bytes are free, lent and used, %d objects, %d chunks; the store says %+v", seed, count, len(entries), alive, st)
		}
		f.arena.check(t)
	}
	for _, l := range chunks {
		l.c.Drop()
	}
	for _, e := range entries {
		f.Delete(e)
	}
	if st := f.Stats(); st.Used != 0 || st.ChunkUnused != 0 || st.FreeRuns != 1 || st.LargestFree != capacity {
		t.Fatalf("seed %d: something is left: %+v", seed, st)
	}
}

func TestChunksAgainstTwin(t *testing.T) {
	for seed := range uint64(10) {
		traceChunks(t, seed)
	}
}

func FuzzChunks(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { traceChunks(t, seed) })
}

func TestChunksOfAClosedStore(t *testing.T) {
	f := open(t, Options{Capacity: 16 * mb})
	c := f.Lend(mb)
	at := c.Offset()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Carve(at, 100, "late"); !errors.Is(err, ErrClosed) {
		t.Fatalf("carving after the end: %v", err)
	}
	c.Drop()
	if f.Lend(mb) != nil {
		t.Fatal("a closed store lends")
	}
}

func BenchmarkCarve(b *testing.B) {
	f := open(b, Options{Capacity: 1 << 30, SmallPages: true})
	b.ReportAllocs()
	var c *Chunk
	var at int64
	for b.Loop() {
		if c == nil || c.Unused() < mb {
			if c != nil {
				c.Drop()
			}
			c = f.Lend(8 * mb)
			at = c.Offset()
		}
		e, err := c.Carve(at, mb, "x")
		if err != nil {
			b.Fatal(err)
		}
		at += mb
		f.Delete(e)
	}
}
