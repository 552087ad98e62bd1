package objectstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Spilled objects lie in segments, files that only grow. Large records start on a block, so that a dead one can be punched out exactly;
// small ones share blocks, and are moved together when most around them is dead (compact.go). What identifies a record and its checksum
// are kept in memory: the files die with the process, and what the disk returns need not be believed.
//
// Files are read and written past the page cache where the file system allows it: the copy costs no memory and little of its bandwidth.
const (
	block     = 4096
	packUnder = 32 << 10 // smaller records share blocks
	packAlign = 64
	ioChunk   = 8 << 20 // bytes per system call; between two, a goroutine notices that it is to stop
	bounceLen = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type segment struct {
	fd      int
	direct  int         // the same file past the page cache; -1 where that cannot be
	paged   atomic.Bool // direct turned out to be of no use
	dir     *spillDir
	end     int64 // where the next record goes, a multiple of block
	taken   int64 // bytes that take up disk space
	live    int64 // of these, bytes of living records
	records map[*record]struct{}
	users   int  // who reads or maps it now: then its descriptors stay open
	noPunch bool // its file system cannot take blocks back
	stuck   bool // a record that cannot be read keeps it from being compacted
}

// record is where an object lies on disk. Moving it changes seg and off.
type record struct {
	seg  *segment
	off  int64
	size int64
	sum  uint32
}

func roundUp(n, to int64) int64 { return (n + to - 1) &^ (to - 1) }

func (d *disk) newSegment(dir *spillDir) (*segment, error) {
	fd, err := dir.openFile()
	if err != nil {
		return nil, err
	}
	d.note(fd, true)
	seg := &segment{fd: fd, direct: -1, dir: dir, records: map[*record]struct{}{}}
	if direct, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0); err == nil {
		d.note(direct, true)
		seg.direct = direct
	}
	d.mu.Lock()
	d.segs[seg] = struct{}{}
	d.mu.Unlock()
	return seg, nil
}

// best is the descriptor that reads and writes past the page cache, if there is one.
func (seg *segment) best() int {
	if seg.direct >= 0 && !seg.paged.Load() {
		return seg.direct
	}
	return seg.fd
}

func (d *disk) closeFile(fd int) {
	if fd >= 0 {
		d.note(fd, false)
		unix.Close(fd)
	}
}

func (d *disk) closeSegment(seg *segment) {
	d.closeFile(seg.fd)
	d.closeFile(seg.direct)
}

// closeDead gives a segment back when nothing lives in it, nobody uses it and nothing will be appended. mu is held.
func (d *disk) closeDead(seg *segment) {
	if len(seg.records) > 0 || seg.users > 0 || seg.dir.current == seg {
		return
	}
	if _, open := d.segs[seg]; !open {
		return
	}
	delete(d.segs, seg)
	seg.dir.used -= seg.taken
	seg.taken = 0
	d.closeSegment(seg)
	seg.dir.look()
}

func (d *disk) unuse(seg *segment) {
	d.mu.Lock()
	seg.users--
	d.closeDead(seg)
	d.mu.Unlock()
}

// write appends objects, and gives each its record. Where not all of them find room, some records are nil and the error says why.
func (d *disk) write(items [][]byte) ([]*record, error) {
	start, paused := time.Now(), d.paused
	recs, err := d.writeBatch(items)
	if err != nil && len(items) > 1 && !errors.Is(err, errStopped) {
		half := len(items) / 2
		d.forgive() // the halves may fit where all did not
		a, aerr := d.write(items[:half])
		b, berr := d.write(items[half:])
		if aerr != nil {
			berr = aerr
		}
		return append(a, b...), berr
	}
	if err != nil {
		return make([]*record, len(items)), err
	}
	d.mu.Lock()
	for _, data := range items {
		d.written += int64(len(data))
	}
	d.writeTime += time.Since(start) - (d.paused - paused)
	d.mu.Unlock()
	return recs, nil
}

func (d *disk) forgive() {
	d.mu.Lock()
	for _, dir := range d.dirs {
		dir.until = time.Time{}
	}
	d.mu.Unlock()
}

func (d *disk) writeBatch(items [][]byte) ([]*record, error) {
	offs := make([]int64, len(items))
	at, bytes := int64(0), int64(0)
	for i, data := range items {
		if len(data) >= packUnder {
			offs[i] = roundUp(at, block)
			at = roundUp(offs[i]+int64(len(data)), block) // its blocks are its own
		} else {
			offs[i] = roundUp(at, packAlign)
			at = offs[i] + int64(len(data))
		}
		bytes += int64(len(data))
	}
	total := roundUp(at, block)
	var recs []*record
	err := d.inTurn(spillWord, bytes, func(dir *spillDir) (err error) {
		recs, err = d.appendTo(dir, items, offs, total, bytes)
		return err
	})
	return recs, err
}

func (d *disk) appendTo(dir *spillDir, items [][]byte, offs []int64, total, bytes int64) ([]*record, error) {
	seg := dir.current
	alone := total >= aloneFrom
	if seg == nil || alone {
		var err error
		if seg, err = d.newSegment(dir); err != nil {
			return nil, err
		}
		if !alone {
			d.mu.Lock()
			dir.current = seg
			d.mu.Unlock()
		}
	}
	base := seg.end
	sums, err := seg.append(base, items, offs, total, d)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		// What was written of it gives its blocks back, and the next attempt begins a new file.
		err = errors.Join(err, unix.Ftruncate(seg.fd, base))
		if dir.current == seg {
			dir.current = nil
		}
		d.closeDead(seg)
		return nil, err
	}
	seg.end += total
	seg.taken += total
	seg.live += bytes
	dir.used += total
	if seg.end >= d.limit && dir.current == seg {
		dir.current = nil // its records live on
	}
	recs := make([]*record, len(items))
	for i, data := range items {
		recs[i] = &record{seg: seg, off: base + offs[i], size: int64(len(data)), sum: sums[i]}
		seg.records[recs[i]] = struct{}{}
	}
	return recs, nil
}

func (seg *segment) append(base int64, items [][]byte, offs []int64, total int64, d *disk) ([]uint32, error) {
	for at := int64(0); at < total; at += ioChunk { // in steps, because on a file system in memory this is half of the work
		if err := d.paced(func() error { return reserve(seg.fd, base+at, min(ioChunk, total-at)) }); err != nil {
			if canNot(err) {
				break
			}
			return nil, err
		}
	}
	w := sink{seg: seg, start: base, at: base, d: d}
	defer w.close()
	sums := make([]uint32, len(items))
	for i, data := range items {
		if err := w.pad(base + offs[i]); err != nil {
			return nil, err
		}
		for len(data) > 0 {
			k := min(len(data), ioChunk)
			if err := d.paced(func() error {
				sums[i] = crc32.Update(sums[i], castagnoli, data[:k])
				return w.add(data[:k])
			}); err != nil {
				return nil, err
			}
			data = data[k:]
		}
	}
	if err := w.pad(base + total); err != nil {
		return nil, err
	}
	return sums, w.flush()
}

// paced does a piece of work and then lets others work.
func (d *disk) paced(f func() error) error {
	if d.pause == nil {
		return f()
	}
	took, err := worked(f)
	if err == nil && took > time.Millisecond {
		start := time.Now()
		d.pause(took)
		d.paused += time.Since(start)
	}
	return err
}

// sink writes what it is given one after the other. Whole blocks of memory are written from where they are, everything else by way of a
// buffer, because a file that is written past the page cache takes only blocks.
type sink struct {
	seg    *segment
	start  int64 // where the batch began
	at     int64 // where vec goes
	vec    [][]byte
	n      int64 // bytes in vec
	bounce []byte
	from   int // the last of vec is bounce[from:used], when tail is set
	used   int
	tail   bool
	d      *disk
}

func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%block == 0 }

func (w *sink) add(data []byte) error {
	for len(data) > 0 {
		var k int
		if w.n%block == 0 && len(data) >= block && aligned(data) {
			k = len(data) &^ (block - 1)
			w.vec = append(w.vec, data[:k])
			w.tail = false
		} else {
			if w.bounce == nil {
				var err error
				if w.bounce, err = newBounce(); err != nil {
					return err
				}
			}
			k = copy(w.bounce[w.used:], data)
			w.bounced(k)
		}
		w.n += int64(k)
		data = data[k:]
		if w.n%block == 0 && (w.n >= ioChunk || w.used == len(w.bounce) || len(w.vec) > 500) {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// bounced appends k bytes of the buffer to vec.
func (w *sink) bounced(k int) {
	if !w.tail {
		w.from, w.tail = w.used, true
		w.vec = append(w.vec, nil)
	}
	w.used += k
	w.vec[len(w.vec)-1] = w.bounce[w.from:w.used]
}

var zeros [block]byte

func (w *sink) pad(to int64) error {
	gap := to - w.at - w.n
	if gap == 0 {
		return nil
	}
	return w.add(zeros[:gap])
}

// flush writes what has been gathered, whole blocks.
func (w *sink) flush() error {
	from := w.at
	for w.n > 0 {
		if w.d.stopping() {
			return errStopped
		}
		k, err := unix.Pwritev(w.seg.best(), w.vec, w.at)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EINVAL) && w.seg.best() != w.seg.fd:
			w.seg.paged.Store(true) // it opens, and then wants larger blocks than ours
			continue
		case err != nil:
			return err
		case k == 0:
			return io.ErrShortWrite
		}
		w.at += int64(k)
		w.n -= int64(k)
		for k > 0 {
			if k < len(w.vec[0]) {
				w.vec[0] = w.vec[0][k:]
				break
			}
			k -= len(w.vec[0])
			w.vec = w.vec[1:]
		}
	}
	w.vec, w.used, w.tail = nil, 0, false
	if w.seg.best() == w.seg.fd {
		w.unpage(from)
	}
	return nil
}

// unpage keeps what goes through the page cache from filling it: writing to the disk starts now, and what is on it leaves.
func (w *sink) unpage(from int64) {
	_ = unix.SyncFileRange(w.seg.fd, from, w.at-from, unix.SYNC_FILE_RANGE_WRITE)
	if from > w.start {
		const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		_ = unix.SyncFileRange(w.seg.fd, w.start, from-w.start, wait)
		_ = unix.Fadvise(w.seg.fd, w.start, from-w.start, unix.FADV_DONTNEED)
		w.start = from
	}
}

func (w *sink) close() { freeBounce(w.bounce) }

func newBounce() ([]byte, error) {
	return unix.Mmap(-1, 0, bounceLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

func freeBounce(b []byte) {
	if b != nil {
		_ = unix.Munmap(b) // it is a whole mapping of ours: that cannot fail
	}
}

// readBack brings a record back into dst, which has its size.
func (d *disk) readBack(rec *record, dst []byte) error {
	start := time.Now()
	d.mu.Lock()
	seg, off := rec.seg, rec.off
	seg.users++
	d.mu.Unlock()
	sum, err := seg.readAt(off, rec.size, dst, false, d.stopping)
	d.unuse(seg)
	if err = rec.judge(seg, sum, err); err != nil {
		return err
	}
	d.mu.Lock()
	d.read += rec.size
	d.readTime += time.Since(start)
	d.mu.Unlock()
	return nil
}

// readAt reads a record and returns its checksum. dst nil: nothing is kept of it. paged: through the page cache.
func (seg *segment) readAt(off, size int64, dst []byte, paged bool, stopping func() bool) (sum uint32, err error) {
	fd := seg.fd
	if !paged {
		fd = seg.best()
	}
	var bounce []byte
	defer func() { freeBounce(bounce) }()
	for at, end := off, off+size; at < end; {
		if stopping() {
			return 0, errStopped
		}
		var got []byte
		if rest := end - at; dst != nil && at%block == 0 && rest >= block && aligned(dst[at-off:]) {
			got = dst[at-off:][:min(rest&^(block-1), ioChunk)]
			if err := readFull(fd, got, at, len(got)); err != nil {
				return 0, err
			}
		} else {
			if bounce == nil {
				if bounce, err = newBounce(); err != nil {
					return 0, err
				}
			}
			base := at &^ (block - 1)
			span := min(roundUp(end, block)-base, bounceLen)
			stop := min(end, base+span)
			if err := readFull(fd, bounce[:span], base, int(stop-base)); err != nil {
				return 0, err
			}
			got = bounce[at-base : stop-base]
			if dst != nil {
				copy(dst[at-off:], got)
			}
		}
		sum = crc32.Update(sum, castagnoli, got)
		at += int64(len(got))
	}
	return sum, nil
}

// readFull reads at least the first need bytes of b.
func readFull(fd int, b []byte, off int64, need int) error {
	for n := 0; n < need; {
		k, err := unix.Pread(fd, b[n:], off+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case k == 0:
			return fmt.Errorf("the file ends %d bytes early: %w", need-n, io.ErrUnexpectedEOF)
		default:
			n += k
		}
	}
	return nil
}

// check reads a record where it lies, through the page cache, for those who will map it, and keeps its segment in use for them.
func (d *disk) check(rec *record) (*segment, int64, error) {
	d.mu.Lock()
	seg, off := rec.seg, rec.off
	seg.users++
	d.mu.Unlock()
	sum, err := seg.readAt(off, rec.size, nil, true, d.stopping)
	if err = rec.judge(seg, sum, err); err != nil {
		d.unuse(seg)
		return nil, 0, err
	}
	return seg, off, nil
}

// judge makes an error fit for a user of how reading a record went.
func (rec *record) judge(seg *segment, sum uint32, err error) error {
	if err == nil && sum != rec.sum {
		err = errors.New("the checksum differs: the disk returned other bytes than were written")
	}
	if err == nil || errors.Is(err, errStopped) {
		return err
	}
	return fmt.Errorf("%w: cannot read %s back from %s: %w", ErrLost, exactly(rec.size), seg.dir.path, err)
}
