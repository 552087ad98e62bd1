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

// onDisk asks the kernel how much disk a file takes up.
func onDisk(t testing.TB, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func (d *disk) blocks(t testing.TB) (n int64) {
	for seg := range d.segs {
		n += onDisk(t, seg.fd)
	}
	return n
}

func never() bool { return false }

// TestRecordsOfAllSizes writes records from memory that is and is not aligned, and reads them into the same.
func TestRecordsOfAllSizes(t *testing.T) {
	for _, paged := range []bool{false, true} {
		d := newDisk([]string{t.TempDir()}, never, nil)
		mem, err := unix.Mmap(-1, 0, 64*mb, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		copy(mem, pattern(3, len(mem)))
		into := make([]byte, 40*mb)
		sizes := []int{1, 63, 64, 65, 4095, 4096, 4097, packUnder - 1, packUnder, packUnder + 1, mb, mb + 1, 5*mb - 7, ioChunk + 3, aloneFrom + 1}
		for _, shift := range []int{0, 64} {
			var items [][]byte
			for i, n := range sizes {
				at := shift + i*8192
				items = append(items, mem[at:at+n])
			}
			recs, err := d.write(items)
			if err != nil {
				t.Fatal(err)
			}
			for seg := range d.segs {
				seg.paged.Store(paged)
			}
			for i, rec := range recs {
				for _, to := range []int{0, 64} {
					dst := into[to : to+sizes[i]]
					clear(dst)
					if err := d.readBack(rec, dst); err != nil {
						t.Fatalf("%d bytes: %v", sizes[i], err)
					}
					if !bytes.Equal(dst, items[i]) {
						t.Fatalf("%d bytes, shift %d: others came back", sizes[i], shift)
					}
				}
				seg, _, err := d.check(rec)
				if err != nil {
					t.Fatal(err)
				}
				d.unuse(seg)
			}
			for _, rec := range recs {
				d.drop(rec)
			}
		}
		if len(d.segs) != 0 {
			t.Fatalf("%d segments are left", len(d.segs))
		}
		d.close()
		if err := unix.Munmap(mem); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompactionBoundsTheDisk drops records at random and asks the kernel how much disk the rest takes.
func TestCompactionBoundsTheDisk(t *testing.T) {
	for _, punch := range []bool{true, false} {
		for _, size := range []int{1500, 65 << 10, mb} {
			rng := rand.New(rand.NewPCG(uint64(size), 1))
			d := newDisk([]string{t.TempDir()}, never, nil)
			d.limit = 2 * mb
			type obj struct {
				rec  *record
				data []byte
			}
			var all []obj
			live := int64(0)
			for round := range 3 {
				for live < 5*mb {
					var items [][]byte
					for range max(1, mb/2/size) {
						items = append(items, pattern(byte(rng.Uint32()), size/2+rng.IntN(size)))
					}
					recs, err := d.write(items)
					if err != nil {
						t.Fatal(err)
					}
					for i, rec := range recs {
						all = append(all, obj{rec, items[i]})
						live += rec.size
					}
				}
				for seg := range d.segs {
					seg.noPunch = !punch
				}
				rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				for live > mb {
					o := all[len(all)-1]
					all = all[:len(all)-1]
					live -= o.rec.size
					for seg := d.drop(o.rec); seg != nil && d.compact(seg); {
					}
				}
				var st Stats
				d.stats(&st)
				most := 2*live + int64(len(d.segs))*(wasteKept+block)
				if got := d.blocks(t); got > most || st.DiskUsed > most || st.DiskUsed-st.DiskDead != live {
					t.Fatalf("punch %v, records of %d, round %d: %s on disk for %s of objects (counted %s, dead %s, %d segments)",
						punch, size, round, mib(got), mib(live), mib(st.DiskUsed), mib(st.DiskDead), len(d.segs))
				}
				for i, o := range all {
					if i%7 != round && size < packUnder {
						continue
					}
					dst := make([]byte, len(o.data))
					if err := d.readBack(o.rec, dst); err != nil || !bytes.Equal(dst, o.data) {
						t.Fatalf("a record that was moved has other bytes: %v", err)
					}
				}
			}
			d.close()
		}
	}
}

// TestSpillAtThreshold holds copying ahead against what it promises: nothing below the threshold, and room at once above it.
func TestSpillAtThreshold(t *testing.T) {
	f := open(t, Options{Capacity: 20 * mb, SpillDirs: []string{t.TempDir()}, SpillAt: 0.5})
	var all []*Entry
	var seeds []byte
	put := func() {
		e, seed := f.put(mb, fmt.Sprint(len(all)))
		all, seeds = append(all, e), append(seeds, seed)
	}
	for range 10 {
		put()
	}
	f.settled()
	if st := f.Stats(); st.SpilledTotal != 0 || st.DiskUsed != 0 || f.spilling != 0 {
		t.Fatalf("something was written below the threshold: %+v", st)
	}
	for range 8 {
		put()
	}
	f.until(t, "copying ahead", func() bool { return f.Stats().Clean == 8*mb })
	if st := f.Stats(); st.Spilled != 0 || st.SpilledTotal != 8*mb {
		t.Fatalf("copied objects should stay in memory: %+v", st)
	}
	for i, e := range all[:8] {
		if e.rec == nil {
			t.Fatalf("object %d was not copied, though it was used longer ago than others", i)
		}
	}
	for i, e := range all {
		f.verify(e, seeds[i])
	}
	// Room for ten more is there without waiting, where two are free.
	more := 0
	for range 10 {
		f.Create(mb, "more", func(e *Entry, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			more++
		})
	}
	if more != 10 {
		t.Fatalf("%d of 10 had room without waiting for the disk", more)
	}
}

// TestDamagedRecords damages a record through the kernel's name of the file, in every way a disk may.
func TestDamagedRecords(t *testing.T) {
	damages := map[string]func(*os.File, *record) error{
		"flipped": func(file *os.File, r *record) error {
			_, err := file.WriteAt([]byte("oops"), r.off+r.size/2)
			return err
		},
		"truncated": func(file *os.File, r *record) error { return file.Truncate(r.off + r.size/2) },
		"emptied":   func(file *os.File, r *record) error { return file.Truncate(0) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := open(t, Options{Capacity: 4 * mb, SpillDirs: []string{dir}})
			a, _ := f.put(3*mb, "value 1 of task f")
			b, bs := f.put(3*mb, "b")
			f.settled()
			file, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), a.rec.seg.fd), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if err := damage(file, a.rec); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				err = f.pin(a)
				if !errors.Is(err, ErrLost) || errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "3145728 bytes") || !strings.Contains(err.Error(), "task f") {
					t.Fatalf("%v", err)
				}
			}
			if a.state != spilled || f.Prefetch(a) {
				t.Error("what cannot be read is read again ahead of need")
			}
			f.Delete(a)
			again, as := f.put(3*mb, "value 1 of task f")
			f.verify(again, as)
			f.verify(b, bs)
		})
	}
}

// TestDirectoryGoes takes the spill directory away while objects are in it, and gives it back.
func TestDirectoryGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spill")
	f := open(t, Options{Capacity: 4 * mb, SpillDirs: []string{dir}})
	a, as := f.put(3*mb, "a")
	b, bs := f.put(3*mb, "b")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	f.verify(a, as) // files without a name outlive their directory
	f.verify(b, bs)
	f.disk.dirs[0].current = nil
	c, cs := f.put(3*mb, "c")
	f.verify(c, cs)
	f.verify(a, as)
}

func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs to mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestAnotherDirectoryIsTaken fills one of two directories, and makes another read-only.
func TestAnotherDirectoryIsTaken(t *testing.T) {
	small, readOnly, large := tmpfs(t, "3m"), tmpfs(t, "64m"), tmpfs(t, "64m")
	if err := unix.Mount("", readOnly, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	f := open(t, Options{Capacity: 8 * mb, SpillDirs: []string{small, readOnly, large}})
	var all []*Entry
	var seeds []byte
	for i := range 30 {
		e, seed := f.put(mb-100, fmt.Sprint(i))
		all, seeds = append(all, e), append(seeds, seed)
	}
	st := f.Stats()
	if st.SpillDirs[0].Used < 2*mb || st.SpillDirs[2].Used < 15*mb || !strings.Contains(st.SpillDirs[1].Failed, "read-only") {
		t.Fatalf("%+v", st.SpillDirs)
	}
	if st.SpillDirs[2].Total != 64*mb || st.SpillDirs[2].Free > 64*mb-st.SpillDirs[2].Used {
		t.Fatalf("%+v", st.SpillDirs[2])
	}
	for i, e := range all {
		f.verify(e, seeds[i])
		f.Delete(e)
	}
	f.until(t, "the files to go", func() bool { f.settled(); return f.Stats().DiskUsed == 0 })
}

// TestLargerThanTheStore puts an object into a file and reads it there.
func TestLargerThanTheStore(t *testing.T) {
	f := open(t, Options{Capacity: 4 * mb, SpillDirs: []string{t.TempDir()}})
	var e *Entry
	f.Create(9*mb, "big", func(got *Entry, err error) {
		if err != nil {
			t.Error(err)
		}
		e = got
	})
	f.until(t, "the file", func() bool { return e != nil })
	fd, ok := e.File()
	if !ok || e.InArena() || !e.Ready() {
		t.Fatal("it is not in a file")
	}
	if got := onDisk(t, fd); got < 9*mb {
		t.Fatalf("only %s are set aside", mib(got))
	}
	e.Seal()
	if err := f.pin(e); err != nil {
		t.Fatal(err)
	}
	f.Delete(e)
	if st := f.Stats(); st.Files != 9*mb || st.Used != 0 || st.DiskUsed != 9*mb {
		t.Fatalf("%+v", st)
	}
	f.Unpin(e)
	f.settled()
	if st := f.Stats(); st.Files != 0 || st.DiskUsed != 0 || st.Objects != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestLargerThanStoreAndDisk(t *testing.T) {
	dir := tmpfs(t, "6m")
	f := open(t, Options{Capacity: 4 * mb, SpillDirs: []string{dir}})
	var got error
	f.Create(9*mb, "value 1 of task f", func(_ *Entry, err error) { got = err })
	f.until(t, "an answer", func() bool { return got != nil })
	for _, part := range []string{"9437184 bytes", "4194304 bytes", "6.0 MiB free", dir, "task f"} {
		if !strings.Contains(got.Error(), part) {
			t.Fatalf("the error lacks %q: %v", part, got)
		}
	}
	if !errors.Is(got, ErrFull) {
		t.Fatalf("%v", got)
	}
	// Smaller ones still go to that directory.
	for i := range 3 {
		f.put(2*mb, fmt.Sprint(i))
	}
}

// TestPinnedStoreServesFromDisk has everything pinned: what is spilled is mapped where it lies, what is made gets a file.
func TestPinnedStoreServesFromDisk(t *testing.T) {
	f := open(t, Options{Capacity: 4 * mb, SpillDirs: []string{t.TempDir()}, MapAfter: 20 * time.Millisecond})
	a, as := f.put(3*mb, "a")
	b, bs := f.put(3*mb, "b")
	if err := f.pin(b); err != nil {
		t.Fatal(err)
	}
	if err := f.pin(a); err != nil {
		t.Fatal(err)
	}
	fd, ok := a.File()
	if !ok {
		t.Fatal("a cannot be in the arena")
	}
	got, err := unix.Mmap(fd, a.Offset(), 3*mb, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(got) }()
	if !bytes.Equal(got, pattern(as, 3*mb)) {
		t.Fatal("other bytes")
	}
	if err := f.pin(a); err != nil { // joins at once
		t.Fatal(err)
	}
	var e *Entry
	f.Create(2*mb, "c", func(c *Entry, err error) {
		if err != nil {
			t.Error(err)
		}
		e = c
	})
	f.until(t, "a file for c", func() bool { return e != nil })
	if _, ok := e.File(); !ok {
		t.Fatal("c cannot be in the arena")
	}
	f.Delete(e)
	f.Unpin(a)
	f.Delete(a)
	if f.Stats().DiskUsed == 0 {
		t.Fatal("a mapped record's space was given back")
	}
	f.Unpin(a)
	f.Unpin(b)
	f.verify(b, bs)
	f.Delete(b)
	f.settled()
	if st := f.Stats(); st.DiskUsed != 0 || st.Objects != 0 || st.Used != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestPrefetch(t *testing.T) {
	f := open(t, Options{Capacity: 16 * mb, SpillDirs: []string{t.TempDir()}, SpillAt: 0.5})
	var all []*Entry
	var seeds []byte
	for i := range 24 {
		e, seed := f.put(mb, fmt.Sprint(i))
		all, seeds = append(all, e), append(seeds, seed)
	}
	f.until(t, "copies", func() bool { return f.spilling == 0 })
	n := 0
	for _, e := range all {
		if f.Prefetch(e) {
			n++
		}
	}
	if n != 4 {
		t.Fatalf("%d objects of 1 MB were brought back ahead into a store of 16 MB", n)
	}
	f.until(t, "prefetching", func() bool { return all[0].InArena() && all[3].InArena() })
	for i := range 4 {
		f.verify(all[i], seeds[i])
	}
	if f.ahead != 0 {
		t.Fatalf("%d bytes count as not used", f.ahead)
	}
}
