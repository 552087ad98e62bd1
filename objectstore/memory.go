package objectstore

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memory is the arena's shared memory: a file without a name, and this process's mapping of all of it.
type memory struct {
	file *os.File
	data []byte
	huge bool // on a tmpfs that uses huge pages
}

// openMemory makes the memory file. With huge pages a fresh page costs a tenth, and mapping it into a second process almost nothing;
// they need a tmpfs of our own, which only a privileged process may make. It is never mounted anywhere, so it leaves nothing behind.
func openMemory(capacity int64, huge bool) (*memory, error) {
	m := &memory{}
	if huge {
		if f, err := hugeFile(); err == nil {
			m.file, m.huge = f, true
		}
	}
	if m.file == nil {
		fd, err := unix.MemfdCreate("raygo-arena", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("objectstore: memfd_create: %w", err)
		}
		m.file = os.NewFile(uintptr(fd), "raygo-arena")
	}
	if err := m.file.Truncate(capacity); err != nil {
		m.file.Close()
		return nil, fmt.Errorf("the file of %s for the shared memory cannot be made: %w. Give the store less (object_store_memory), or raise the limit on files (ulimit -f)", mib(capacity), err)
	}
	data, err := unix.Mmap(m.fd(), 0, int(capacity), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.file.Close()
		return nil, fmt.Errorf("cannot map %s of shared memory: %w. Give the store less (object_store_memory), or raise the limit on this process's address space (ulimit -v)", mib(capacity), err)
	}
	m.data = data
	return m, nil
}

func hugeFile() (*os.File, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fs)
	for _, opt := range [][2]string{{"huge", "always"}, {"size", "0"}, {"mode", "0700"}} {
		if err := unix.FsconfigSetString(fs, opt[0], opt[1]); err != nil {
			return nil, err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(mount)
	fd, err := unix.Openat(mount, ".", unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "raygo-arena"), nil
}

func (m *memory) fd() int { return int(m.file.Fd()) }

// populate gives pages memory without changing what they hold.
func (m *memory) populate(off, n int64) error {
	return unix.Madvise(m.data[off:off+n], unix.MADV_POPULATE_WRITE)
}

// punch takes the memory of pages away, in every process that maps them.
func (m *memory) punch(off, n int64) error {
	return unix.Fallocate(m.fd(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (m *memory) close() error {
	err := unix.Munmap(m.data)
	m.data = nil
	if cerr := m.file.Close(); err == nil {
		err = cerr
	}
	return err
}
