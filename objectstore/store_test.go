package objectstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const mb = 1 << 20

// strand is the test's single writer: what is posted runs when the test waits.
type strand struct{ work chan func() }

func (s *strand) Post(f func()) { s.work <- f }

func (s *strand) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case f := <-s.work:
			f()
		case <-deadline:
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

type fixture struct {
	*Store
	*strand
	t    testing.TB
	next byte
}

func open(t testing.TB, opts Options) *fixture {
	t.Helper()
	st := &strand{work: make(chan func(), 1<<16)}
	opts.Env = st
	if opts.MapAfter == 0 {
		opts.MapAfter = time.Hour // tests that look at an object's bytes want them in the arena, however slow the machine
	}
	s, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{Store: s, strand: st, t: t}
}

func pattern(seed byte, n int) []byte {
	b := make([]byte, n)
	var row [256]byte
	for at := 0; at < n; at += len(row) {
		if at%4096 == 0 {
			for i := range row {
				row[i] = byte(i) ^ byte(at>>12) ^ seed
			}
		}
		copy(b[at:], row[:])
	}
	return b
}

// put creates, writes and seals an object of a pattern.
func (f *fixture) put(size int, label string) (*Entry, byte) {
	f.t.Helper()
	var e *Entry
	var err error
	ok := false
	f.Create(int64(size), label, func(got *Entry, gerr error) { e, err, ok = got, gerr, true })
	f.until(f.t, "room for "+label, func() bool { return ok })
	if err != nil {
		f.t.Fatal(err)
	}
	f.next++
	copy(f.Bytes(e), pattern(f.next, size))
	e.Seal()
	return e, f.next
}

func (f *fixture) pin(e *Entry) error {
	f.t.Helper()
	var err error
	ok := false
	f.Pin(e, func(_ int64, gerr error) { err, ok = gerr, true })
	f.until(f.t, "pin of "+e.label, func() bool { return ok })
	return err
}

func (f *fixture) verify(e *Entry, seed byte) {
	f.t.Helper()
	if err := f.pin(e); err != nil {
		f.t.Fatal(err)
	}
	if !bytes.Equal(f.Bytes(e), pattern(seed, int(e.size))) {
		f.t.Fatalf("%s has other bytes than were written", e.label)
	}
	f.Unpin(e)
}

func TestCreateSealPinDelete(t *testing.T) {
	f := open(t, Options{Capacity: 8 * mb})
	e, seed := f.put(100_000, "a")
	f.verify(e, seed)
	if err := f.pin(e); err != nil {
		t.Fatal(err)
	}
	f.Delete(e)
	if f.Stats().Used == 0 {
		t.Fatal("a pinned object's space was freed")
	}
	if err := f.pin(e); !errors.Is(err, ErrDeleted) {
		t.Fatalf("pin of a deleted object: %v", err)
	}
	f.Unpin(e)
	if st := f.Stats(); st.Used != 0 || st.Objects != 0 || st.Pinned != 0 {
		t.Fatalf("something is left: %+v", st)
	}
	f.Delete(e)
}

func TestHundredThousandObjectsComeAndGo(t *testing.T) {
	f := open(t, Options{Capacity: 256 * mb})
	var all []*Entry
	for range 100_000 {
		f.Create(2000, "x", func(e *Entry, err error) {
			if err != nil {
				t.Fatal(err)
			}
			e.Seal()
			all = append(all, e)
		})
	}
	for _, e := range all {
		f.Delete(e)
	}
	if st := f.Stats(); st.Used != 0 || st.Objects != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestTooLargeFailsAtOnce(t *testing.T) {
	f := open(t, Options{Capacity: 4 * mb})
	var err error
	f.Create(5*mb, "task f's result", func(_ *Entry, e error) { err = e })
	f.until(t, "the answer", func() bool { return err != nil })
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "5.0 MiB") || !strings.Contains(err.Error(), "4.0 MiB") || !strings.Contains(err.Error(), "task f's result") {
		t.Fatalf("%v", err)
	}
}

func TestSpillAndRestore(t *testing.T) {
	for _, small := range []bool{false, true} {
		f := open(t, Options{Capacity: 10 * mb, SpillDirs: []string{t.TempDir()}, SmallPages: small})
		var all []*Entry
		var seeds []byte
		for i := range 30 {
			e, seed := f.put(mb-100, fmt.Sprintf("o%d", i))
			all, seeds = append(all, e), append(seeds, seed)
		}
		st := f.Stats()
		if st.Spilled < 19*mb || st.SpilledTotal < 19*mb {
			t.Fatalf("%+v", st)
		}
		for round := range 2 {
			for i, e := range all {
				f.verify(e, seeds[i])
			}
			if got := f.Stats().SpilledTotal; round == 1 && got > 31*mb {
				t.Fatalf("objects with a copy on disk were written again: %s", mib(got))
			}
		}
		for _, e := range all {
			f.Delete(e)
		}
		f.until(t, "the segments to go", func() bool { return f.settled() })
		if st := f.Stats(); st.Used != 0 || st.Spilled != 0 || st.Objects != 0 || len(f.disk.segs) != 0 {
			t.Fatalf("left: %+v, %d segments", st, len(f.disk.segs))
		}
	}
}

// settled waits for the I/O goroutine to have nothing left, so that the test may look at the disk.
func (f *fixture) settled() bool {
	done := make(chan struct{})
	f.out.do(sometime, func() func() { close(done); return func() {} })
	<-done
	return true
}

func TestDeleteWhileSpillingAndRestoring(t *testing.T) {
	f := open(t, Options{Capacity: 8 * mb, SpillDirs: []string{t.TempDir()}})
	a, _ := f.put(4*mb, "a")
	b, bs := f.put(4*mb, "b")
	// c needs room: a goes to disk. It is deleted, and b pinned, before that is known here.
	var c *Entry
	f.Create(4*mb, "c", func(e *Entry, err error) {
		if err != nil {
			t.Error(err)
		}
		c = e
	})
	if !a.spilling {
		t.Fatal("a is not on its way to disk")
	}
	f.Delete(a)
	f.until(t, "c", func() bool { return c != nil })
	c.Seal()
	f.verify(b, bs)
	d, _ := f.put(4*mb, "d") // b or c goes
	gone := b
	if c.state == spilled {
		gone = c
	}
	if gone.state != spilled {
		t.Fatal("nothing was spilled")
	}
	var perr error
	f.Pin(gone, func(_ int64, err error) { perr = err })
	f.Delete(gone)
	if !errors.Is(perr, ErrDeleted) {
		t.Fatalf("%v", perr)
	}
	for _, e := range []*Entry{b, c, d} {
		f.Delete(e)
	}
	f.until(t, "the store to empty", func() bool { return f.Stats().Used == 0 })
	if st := f.Stats(); st.Spilled != 0 || st.Objects != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestFullWaitsForPinsThenFails(t *testing.T) {
	var warned []Waiting
	f := open(t, Options{Capacity: 8 * mb, SpillDirs: []string{t.TempDir()}, FullTimeout: 150 * time.Millisecond, WarnAfter: 20 * time.Millisecond,
		Warn: func(w Waiting) { warned = append(warned, w) }})
	a, _ := f.put(6*mb, "argument of g")
	if err := f.pin(a); err != nil {
		t.Fatal(err)
	}
	var got error
	done := false
	f.Create(4*mb, "result of f", func(_ *Entry, err error) { got, done = err, true })
	if done {
		t.Fatal("did not wait")
	}
	// A smaller one passes: its owner may hold the pins.
	small, _ := f.put(mb, "small")
	f.until(t, "the request to fail", func() bool { return done })
	if !errors.Is(got, ErrFull) || !strings.Contains(got.Error(), "argument of g 6.0 MiB") || !strings.Contains(got.Error(), "4.0 MiB") {
		t.Fatalf("%v", got)
	}
	if len(warned) != 1 || warned[0].Label != "result of f" {
		t.Fatalf("%+v", warned)
	}
	var e *Entry
	f.Create(4*mb, "again", func(got *Entry, _ error) { e = got })
	f.Unpin(a)
	f.until(t, "room after the pin went", func() bool { return e != nil })
	f.Delete(small)
	f.Delete(e)
	f.Delete(a)
}

func TestRequestsAreServedInOrder(t *testing.T) {
	f := open(t, Options{Capacity: 8 * mb, SpillDirs: []string{t.TempDir()}})
	for i := range 8 {
		f.put(mb, fmt.Sprint(i))
	}
	var order []int
	for i := range 6 {
		f.Create(mb+int64(i), fmt.Sprint(i), func(e *Entry, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, i)
			e.Seal()
		})
	}
	f.until(t, "all", func() bool { return len(order) == 6 })
	for i, o := range order {
		if i != o {
			t.Fatalf("served in order %v", order)
		}
	}
}

func TestCorruptRecordIsAnError(t *testing.T) {
	f := open(t, Options{Capacity: 4 * mb, SpillDirs: []string{t.TempDir()}})
	a, _ := f.put(3*mb, "a")
	b, bs := f.put(3*mb, "b")
	if a.state != spilled {
		t.Fatal("a should be on disk")
	}
	f.settled()
	if _, err := unix.Pwrite(a.rec.seg.fd, []byte("oops"), a.rec.off+mb); err != nil {
		t.Fatal(err)
	}
	err := f.pin(a)
	if !errors.Is(err, ErrLost) || errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), "checksum") {
		t.Fatalf("%v", err)
	}
	f.verify(b, bs)
	f.Delete(a)
	f.Delete(b)
}

func TestBadSpillDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, Options{Capacity: 4 * mb, SpillDirs: []string{filepath.Join(file, "x")}, DiskGrace: 30 * time.Millisecond})
	a, as := f.put(3*mb, "a")
	var got error
	f.Create(3*mb, "b", func(_ *Entry, err error) { got = err })
	f.until(t, "the request to fail", func() bool { return got != nil })
	if !errors.Is(got, ErrDisk) || !strings.Contains(got.Error(), file) {
		t.Fatalf("%v", got)
	}
	f.verify(a, as)
}

func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("needs to mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	f := open(t, Options{Capacity: 8 * mb, SpillDirs: []string{dir}, DiskGrace: 50 * time.Millisecond})
	var all []*Entry
	var seeds []byte
	var full error
	for i := 0; full == nil && i < 20; i++ {
		done := false
		f.Create(2*mb-100, fmt.Sprintf("o%d", i), func(e *Entry, err error) {
			done, full = true, err
			if err == nil {
				f.next++
				copy(f.Bytes(e), pattern(f.next, int(e.size)))
				e.Seal()
				all, seeds = append(all, e), append(seeds, f.next)
			}
		})
		f.until(t, "an answer", func() bool { return done })
	}
	if !errors.Is(full, ErrDisk) || !errors.Is(full, unix.ENOSPC) || !strings.Contains(full.Error(), dir) {
		t.Fatalf("%v", full)
	}
	if len(all) < 6 {
		t.Fatalf("only %d objects fitted", len(all))
	}
	// Everything that was taken is still whole; restoring needs no more disk because what leaves may need it.
	f.verify(all[len(all)-1], seeds[len(all)-1])
	f.Delete(all[len(all)-1])
	for i, e := range all[:len(all)-1] {
		f.verify(e, seeds[i])
		f.Delete(e)
	}
	f.put(2*mb, "after")
}

func TestPopulateAheadAndTrim(t *testing.T) {
	f := open(t, Options{Capacity: 512 * mb, TrimAfter: 50 * time.Millisecond, SmallPages: true})
	blocks := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(f.mem.fd(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if blocks() != 0 {
		t.Fatal("a new store has memory")
	}
	e, _ := f.put(20*mb, "a")
	f.until(t, "populating", func() bool { return f.Stats().Warm >= 20*mb })
	if blocks() < 40*mb {
		t.Fatalf("only %s are populated", mib(blocks()))
	}
	f.Delete(e)
	f.until(t, "trimming", func() bool { return f.Stats().Warm == 0 && !f.paging })
	if blocks() != 0 {
		t.Fatalf("%s are left after trimming", mib(blocks()))
	}
}

func TestGiveBack(t *testing.T) {
	f := open(t, Options{Capacity: 64 * mb, SpillDirs: []string{t.TempDir()}, SpillAt: 0.5, TrimAfter: time.Hour, SmallPages: true})
	var all []*Entry
	var seeds []byte
	for range 10 {
		e, seed := f.put(4*mb, "x")
		all, seeds = append(all, e), append(seeds, seed)
	}
	f.until(t, "copies on disk", func() bool { return f.spilling == 0 && f.cleaned > 0 && !f.paging })
	f.Delete(all[9])
	used, warm := f.Used(), f.Stats().Warm
	back := f.GiveBack(1)
	if back <= warm || f.Used() >= used {
		t.Errorf("%s go back, %s of them from objects that are on disk too", mib(back), mib(back-warm))
	}
	f.until(t, "trimming", func() bool { return f.Stats().Warm == 0 && !f.paging })
	if f.GiveBack(0) != 0 || f.spilling != 0 {
		t.Error("there is more to give back")
	}
	if f.GiveBack(4*mb) != 0 || f.spilling == 0 {
		t.Error("nothing is copied to disk though memory is short")
	}
	f.until(t, "more copies", func() bool { return f.spilling == 0 })
	if f.GiveBack(4*mb) < 4*mb {
		t.Error("what was copied does not go")
	}
	for i, e := range all[:9] {
		f.verify(e, seeds[i])
	}
}

func TestCloseWithWorkUnderWay(t *testing.T) {
	for i := range 8 {
		f := open(t, Options{Capacity: 64 * mb, SpillDirs: []string{t.TempDir()}})
		for j := range 15 {
			f.put(4*mb, fmt.Sprint(j))
		}
		failed := 0
		for range 3 {
			f.Create(30*mb, "late", func(_ *Entry, err error) {
				if errors.Is(err, ErrClosed) {
					failed++
				}
			})
		}
		time.Sleep(time.Duration(2*i) * time.Millisecond)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if failed != 3 {
			t.Fatalf("%d of 3 were told", failed)
		}
		for len(f.work) > 0 {
			(<-f.work)()
		}
	}
}

// TestRandom runs everything at once against the plain truth: what was written is what comes back, and nothing is left.
func TestRandom(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 7))
		f := open(t, Options{Capacity: 6 * mb, SpillDirs: []string{t.TempDir(), t.TempDir()}, TrimAfter: time.Millisecond})
		f.disk.limit = 2 * mb
		type obj struct {
			e    *Entry
			seed byte
			pins int
		}
		var all []*obj
		pinned := int64(0)
		pending := 0
		for range 1500 {
			switch op := rng.IntN(10); {
			case op < 4 && len(all) < 60:
				size := int(rng.Int64N(1 << (6 + rng.IntN(15))))
				pending++
				f.Create(int64(size+1), "r", func(e *Entry, err error) {
					pending--
					if err != nil {
						t.Errorf("create: %v", err)
						return
					}
					f.next++
					copy(f.Bytes(e), pattern(f.next, size+1))
					all = append(all, &obj{e: e, seed: f.next})
					e.Seal()
				})
			case op < 7 && len(all) > 0 && pinned < mb:
				o := all[rng.IntN(len(all))]
				pending++
				pinned += o.e.size
				f.Pin(o.e, func(_ int64, err error) {
					pending--
					if errors.Is(err, ErrDeleted) {
						pinned -= o.e.size
						return
					}
					if err != nil {
						t.Errorf("pin: %v", err)
						return
					}
					o.pins++
					if !bytes.Equal(f.Bytes(o.e), pattern(o.seed, int(o.e.size))) {
						t.Error("bytes changed")
					}
				})
			case op < 9 && len(all) > 0:
				if o := all[rng.IntN(len(all))]; o.pins > 0 {
					o.pins--
					pinned -= o.e.size
					f.Unpin(o.e)
				}
			case len(all) > 0:
				i := rng.IntN(len(all))
				o := all[i]
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
				f.Delete(o.e)
				for ; o.pins > 0; o.pins-- {
					pinned -= o.e.size
					f.Unpin(o.e)
				}
			}
			for len(f.work) > 0 && rng.IntN(4) > 0 {
				(<-f.work)()
			}
			f.arena.check(t)
		}
		for _, o := range all {
			for ; o.pins > 0; o.pins-- {
				f.Unpin(o.e)
			}
		}
		f.until(t, "the last requests", func() bool { return pending == 0 })
		for _, o := range all {
			for ; o.pins > 0; o.pins-- {
				f.Unpin(o.e)
			}
			f.Delete(o.e)
		}
		f.until(t, "the store to empty", func() bool { return f.Stats().Used == 0 })
		f.settled()
		if st := f.Stats(); st.Objects != 0 || st.Spilled != 0 || st.Pinned != 0 || len(f.disk.segs) != 0 {
			t.Fatalf("seed %d: %+v, %d segments", seed, st, len(f.disk.segs))
		}
		t.Logf("seed %d: %+v", seed, f.Stats())
	}
}

func BenchmarkCreateSealDelete(b *testing.B) {
	for _, size := range []int64{1 << 10, 100 << 10, 100 << 20} {
		b.Run(mib(size), func(b *testing.B) {
			f := open(b, Options{Capacity: 1 << 30, PopulateAhead: -1, TrimAfter: -1})
			b.ReportAllocs()
			for b.Loop() {
				f.Create(size, "b", func(e *Entry, _ error) {
					e.Seal()
					f.Delete(e)
				})
			}
		})
	}
}

func BenchmarkPinUnpin(b *testing.B) {
	f := open(b, Options{Capacity: 1 << 30})
	e, _ := f.put(100_000, "b")
	b.ReportAllocs()
	for b.Loop() {
		f.Pin(e, func(int64, error) {})
		f.Unpin(e)
	}
}

func BenchmarkSpillRestore(b *testing.B) {
	const size = 32 * mb
	f := open(b, Options{Capacity: 48 * mb, SpillDirs: []string{b.TempDir()}, PopulateAhead: -1, TrimAfter: -1})
	x, _ := f.put(size, "x")
	y, _ := f.put(size, "y")
	b.SetBytes(size)
	for b.Loop() {
		if err := f.pin(x); err != nil {
			b.Fatal(err)
		}
		f.Unpin(x)
		x, y = y, x
	}
}
