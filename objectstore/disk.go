package objectstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	segmentLimit = 512 << 20   // a segment that reached it is not appended to
	aloneFrom    = 32 << 20    // a record of this size has a segment of its own, so that it never has to be moved
	diskBackoff  = time.Second // how long a directory that failed is left alone
	wasteKept    = 1 << 20     // dead bytes in a segment that are not worth moving anything
)

var errStopped = errors.New("stopped")

// disk owns the spill directories and the files in them. mu guards which bytes belong to what, and is never held while a file is read or
// written: the strand, the writing and the reading goroutine all come here. Records are made, moved and dropped by the writing one only.
type disk struct {
	limit    int64
	stopping func() bool
	pause    func(after time.Duration) // lets others work after so much work; nil: it never does
	note     func(fd int, open bool)   // told of every descriptor

	mu        sync.Mutex
	dirs      []*spillDir
	next      int // the directory whose turn it is
	segs      map[*segment]struct{}
	written   int64 // bytes
	writeTime time.Duration
	paused    time.Duration // the writing goroutine's; not in writeTime
	read      int64
	readTime  time.Duration
}

type spillDir struct {
	path    string
	current *segment // appended to; nil: a new one is begun
	used    int64
	free    int64
	total   int64
	failed  error
	until   time.Time
}

// spillFile is a file of its own for an object that readers and its producer map.
type spillFile struct {
	fd   int
	size int64
	dir  *spillDir
}

func newDisk(paths []string, stopping func() bool, note func(int, bool)) *disk {
	if note == nil {
		note = func(int, bool) {}
	}
	d := &disk{limit: segmentLimit, stopping: stopping, note: note, segs: map[*segment]struct{}{}}
	for _, p := range paths {
		dir := &spillDir{path: p}
		dir.look()
		d.dirs = append(d.dirs, dir)
	}
	return d
}

// look asks the file system how much room is left. A directory that is not made yet will be where its nearest parent is.
func (dir *spillDir) look() {
	dir.free, dir.total = -1, -1
	for p := dir.path; ; p = filepath.Dir(p) {
		var st unix.Statfs_t
		err := unix.Statfs(p, &st)
		if err == nil {
			dir.free, dir.total = int64(st.Bavail)*st.Bsize, int64(st.Blocks)*st.Bsize
			return
		}
		if !errors.Is(err, unix.ENOENT) || p == filepath.Dir(p) {
			return
		}
	}
}

// inTurn tries the directories one after the other, beginning with the one whose turn it is. The error names every one that failed.
func (d *disk) inTurn(what string, size int64, try func(*spillDir) error) error {
	if len(d.dirs) == 0 {
		return fmt.Errorf("%w: there is no spill directory", ErrDisk)
	}
	var all []error
	d.mu.Lock()
	first := d.next
	d.next = (d.next + 1) % len(d.dirs)
	d.mu.Unlock()
	for i := range d.dirs {
		dir := d.dirs[(first+i)%len(d.dirs)]
		d.mu.Lock()
		failed := dir.failed
		if failed != nil && time.Now().After(dir.until) {
			failed = nil
		}
		d.mu.Unlock()
		if failed != nil {
			all = append(all, failed)
			continue
		}
		err := try(dir)
		if errors.Is(err, errStopped) {
			return err
		}
		d.mu.Lock()
		dir.look()
		dir.failed = nil
		if err != nil {
			room := "it cannot be looked at"
			if dir.total >= 0 {
				room = fmt.Sprintf("%s free of %s", mib(dir.free), mib(dir.total))
			}
			err = fmt.Errorf("%w: cannot %s %s to %s (%s): %w", ErrDisk, what, exactly(size), dir.path, room, err)
			// A file that no directory can take says nothing about smaller ones.
			if what == spillWord {
				dir.failed, dir.until = err, time.Now().Add(diskBackoff)
			}
			all = append(all, err)
		}
		d.mu.Unlock()
		if err == nil {
			return nil
		}
	}
	return errors.Join(all...)
}

const (
	spillWord = "spill"
	fileWord  = "write an object of"
)

// openFile makes a file without a name: however the process ends, its space comes back.
func (dir *spillDir) openFile() (int, error) {
	fd, err := dir.tryOpen()
	if errors.Is(err, unix.ENOENT) {
		if err = os.MkdirAll(dir.path, 0o700); err != nil {
			return -1, err
		}
		fd, err = dir.tryOpen()
	}
	return fd, err
}

func (dir *spillDir) tryOpen() (int, error) {
	for {
		fd, err := unix.Open(dir.path, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil || errors.Is(err, unix.ENOENT):
			return fd, err
		default:
			return dir.openNamed() // not every file system has files without a name
		}
	}
}

func (dir *spillDir) openNamed() (int, error) {
	f, err := os.CreateTemp(dir.path, "spill-*.seg")
	if err != nil {
		return -1, err
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if rerr := os.Remove(f.Name()); err == nil && rerr != nil {
		unix.Close(fd)
		return -1, rerr
	}
	return fd, err
}

// reserve asks for the blocks in advance: a full disk is noticed before anything is written.
func reserve(fd int, off, size int64) error {
	for {
		if err := unix.Fallocate(fd, 0, off, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func canNot(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// create makes a file with room for size bytes, which processes may map and write without meeting a full disk.
func (d *disk) create(size int64) (*spillFile, error) {
	var f *spillFile
	err := d.inTurn(fileWord, size, func(dir *spillDir) error {
		fd, err := dir.openFile()
		if err != nil {
			return err
		}
		if err := reserve(fd, 0, size); err != nil {
			unix.Close(fd)
			if canNot(err) {
				return fmt.Errorf("its file system cannot set space aside: %w", err)
			}
			return err
		}
		d.note(fd, true)
		f = &spillFile{fd: fd, size: size, dir: dir}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	f.dir.used += size
	d.mu.Unlock()
	return f, nil
}

func (d *disk) remove(f *spillFile) {
	d.closeFile(f.fd)
	d.mu.Lock()
	f.dir.used -= f.size
	f.dir.look()
	d.mu.Unlock()
}

// stats fills in what Stats says about the disk.
func (d *disk) stats(st *Stats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st.SpilledTotal, st.SpillTime, st.RestoredTotal, st.RestoreTime = d.written, d.writeTime, d.read, d.readTime
	for seg := range d.segs {
		st.DiskDead += seg.taken - seg.live
	}
	for _, dir := range d.dirs {
		x := SpillDirStats{Path: dir.path, Free: dir.free, Total: dir.total, Used: dir.used}
		if dir.failed != nil {
			x.Failed = dir.failed.Error()
		}
		st.SpillDirs = append(st.SpillDirs, x)
		st.DiskUsed += dir.used
	}
}

// close is for when no goroutine is at work any more.
func (d *disk) close() {
	for seg := range d.segs {
		d.closeSegment(seg)
	}
	clear(d.segs)
}
