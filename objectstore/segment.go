package objectstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Spilled objects lie in segments, files that only grow. Each record is a header and the object's bytes, and starts on a block so that
// a dead one can be punched out of the middle. Segments have no name (they are unlinked as soon as they exist): however the process
// ends, the disk space comes back.
const (
	segmentLimit  = 512 << 20 // a segment that reached it is not appended to
	recordMagic   = 0x50534752
	recordHeader  = 32
	recordAlign   = 4096
	ioChunk       = 8 << 20
	diskBackoff   = time.Second // how long a directory that failed is left alone
	headerVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errStopped = errors.New("stopped")

// disk writes and reads records. Everything in it belongs to the I/O goroutine.
type disk struct {
	dirs     []spillDir
	next     int // the directory whose turn it is
	open     map[*segment]struct{}
	limit    int64
	stopping func() bool
}

type spillDir struct {
	path    string
	made    bool
	current *segment
	failed  error
	until   time.Time
}

type segment struct {
	file *os.File
	dir  *spillDir
	end  int64
	live int
}

// record is where an object lies on disk.
type record struct {
	seg  *segment
	off  int64
	size int64
}

func newDisk(paths []string, stopping func() bool) *disk {
	d := &disk{limit: segmentLimit, stopping: stopping, open: map[*segment]struct{}{}}
	for _, p := range paths {
		d.dirs = append(d.dirs, spillDir{path: p})
	}
	return d
}

// write appends an object, trying each directory once. The error names every directory that failed.
func (d *disk) write(data []byte) (*record, error) {
	var all []error
	for range d.dirs {
		dir := &d.dirs[d.next]
		if dir.failed != nil && time.Now().Before(dir.until) {
			all = append(all, dir.failed)
			d.next = (d.next + 1) % len(d.dirs)
			continue
		}
		rec, err := d.append(dir, data)
		if err == nil {
			dir.failed = nil
			return rec, nil
		}
		if errors.Is(err, errStopped) {
			return nil, err
		}
		dir.failed, dir.until = dir.describe(int64(len(data)), err), time.Now().Add(diskBackoff)
		all = append(all, dir.failed)
		d.next = (d.next + 1) % len(d.dirs)
	}
	return nil, errors.Join(all...)
}

// describe says what the directory lacks in a form fit for a user.
func (dir *spillDir) describe(size int64, err error) error {
	var st unix.Statfs_t
	if serr := unix.Statfs(dir.path, &st); serr != nil {
		return fmt.Errorf("%w: cannot spill %s to %s: %w", ErrDisk, mib(size), dir.path, err)
	}
	return fmt.Errorf("%w: cannot spill %s to %s (%s free of %s): %w", ErrDisk, mib(size), dir.path,
		mib(int64(st.Bavail)*st.Bsize), mib(int64(st.Blocks)*st.Bsize), err)
}

func (d *disk) append(dir *spillDir, data []byte) (*record, error) {
	seg := dir.current
	if seg == nil {
		var err error
		if seg, err = dir.open(); err != nil {
			return nil, err
		}
		d.open[seg] = struct{}{}
		dir.current = seg
	}
	off := seg.end
	end := (off + recordHeader + int64(len(data)) + recordAlign - 1) &^ (recordAlign - 1)
	err := seg.reserve(off, end)
	if err == nil {
		err = d.copyOut(seg, off, data)
	}
	if err != nil {
		// What was written of it gives its blocks back.
		if terr := seg.file.Truncate(off); terr != nil {
			err = errors.Join(err, terr)
		}
		dir.current = nil
		d.closeDead(seg)
		return nil, err
	}
	seg.end = end
	seg.live++
	if seg.end >= d.limit {
		dir.current = nil // its records live on
		d.next = (d.next + 1) % len(d.dirs)
	}
	return &record{seg: seg, off: off, size: int64(len(data))}, nil
}

// reserve asks for the blocks in advance: a full disk is noticed before anything is written. Not every file system can.
func (s *segment) reserve(off, end int64) error {
	fd, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	cerr := fd.Control(func(fd uintptr) {
		for {
			err = unix.Fallocate(int(fd), 0, off, end-off)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = nil
	}
	return errors.Join(cerr, err)
}

func (d *disk) copyOut(seg *segment, off int64, data []byte) error {
	sum, at := uint32(0), off+recordHeader
	for rest := data; len(rest) > 0; {
		if d.stopping() {
			return errStopped
		}
		chunk := rest[:min(len(rest), ioChunk)]
		sum = crc32.Update(sum, castagnoli, chunk)
		if _, err := seg.file.WriteAt(chunk, at); err != nil {
			return err
		}
		at += int64(len(chunk))
		rest = rest[len(chunk):]
	}
	h := encodeHeader(int64(len(data)), sum)
	_, err := seg.file.WriteAt(h[:], off)
	return err
}

// read brings a record back into dst, which has its size.
func (d *disk) read(rec *record, dst []byte) error {
	fail := func(err error) error {
		return fmt.Errorf("%w: cannot read %s back from %s: %w", ErrLost, exactly(rec.size), rec.seg.dir.path, err)
	}
	var h [recordHeader]byte
	if _, err := rec.seg.file.ReadAt(h[:], rec.off); err != nil {
		return fail(err)
	}
	size, want, err := decodeHeader(h[:])
	if err != nil {
		return fail(err)
	}
	if size != rec.size || size != int64(len(dst)) {
		return fail(fmt.Errorf("the record has %d bytes, not %d", size, rec.size))
	}
	sum, at := uint32(0), rec.off+recordHeader
	for len(dst) > 0 {
		if d.stopping() {
			return errStopped
		}
		chunk := dst[:min(len(dst), ioChunk)]
		if _, err := rec.seg.file.ReadAt(chunk, at); err != nil {
			return fail(err)
		}
		sum = crc32.Update(sum, castagnoli, chunk)
		at += int64(len(chunk))
		dst = dst[len(chunk):]
	}
	if sum != want {
		return fail(errors.New("the checksum differs: the disk returned other bytes than were written"))
	}
	return nil
}

// drop gives a record's space back: its blocks at once where the file system can, the whole file with its last record.
func (d *disk) drop(rec *record) {
	seg := rec.seg
	seg.live--
	if seg.live == 0 {
		if seg.dir.current == seg {
			seg.dir.current = nil
		}
		d.closeDead(seg)
		return
	}
	end := (rec.off + recordHeader + rec.size + recordAlign - 1) &^ (recordAlign - 1)
	if fd, err := seg.file.SyscallConn(); err == nil {
		// Where holes cannot be punched the space comes back with the segment.
		_ = fd.Control(func(fd uintptr) {
			_ = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, rec.off, end-rec.off)
		})
	}
}

// closeDead gives a segment back when nothing in it lives and nothing will be appended.
func (d *disk) closeDead(seg *segment) {
	if seg.live == 0 {
		delete(d.open, seg)
		seg.file.Close()
	}
}

func (d *disk) close() {
	for seg := range d.open {
		seg.file.Close()
	}
	clear(d.open)
}

func (dir *spillDir) open() (*segment, error) {
	if !dir.made {
		if err := os.MkdirAll(dir.path, 0o700); err != nil {
			return nil, err
		}
		dir.made = true
	}
	f, err := os.CreateTemp(dir.path, "spill-*.seg")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return &segment{file: f, dir: dir}, nil
}

// Header: magic u32, version u32, size u64, checksum of the data u32, zero u64, checksum of the header u32.
func encodeHeader(size int64, sum uint32) (h [recordHeader]byte) {
	le := binary.LittleEndian
	le.PutUint32(h[0:], recordMagic)
	le.PutUint32(h[4:], headerVersion)
	le.PutUint64(h[8:], uint64(size))
	le.PutUint32(h[16:], sum)
	le.PutUint32(h[28:], crc32.Checksum(h[:28], castagnoli))
	return h
}

func decodeHeader(h []byte) (size int64, sum uint32, err error) {
	le := binary.LittleEndian
	switch {
	case len(h) < recordHeader:
		return 0, 0, errors.New("the record's header is cut short")
	case le.Uint32(h[28:]) != crc32.Checksum(h[:28], castagnoli):
		return 0, 0, errors.New("the checksum of the record's header differs")
	case le.Uint32(h[0:]) != recordMagic || le.Uint32(h[4:]) != headerVersion:
		return 0, 0, errors.New("there is no record here")
	}
	return int64(le.Uint64(h[8:])), le.Uint32(h[16:]), nil
}
