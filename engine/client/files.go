package client

import (
	"fmt"
	"os"

	"github.com/raygo/raygo/engine/errs"

	"golang.org/x/sys/unix"
)

// place is where an object's bytes are for this process, in the arena or in a file, which stays mapped until release is called.
func (c *Client) place(file uint32, offset, size uint64, write bool) (data []byte, release func(), err error) {
	if file == 0 {
		arena, err := c.use()
		if err != nil {
			return nil, nil, err
		}
		return arena[offset : offset+size : offset+size], c.unuse, nil
	}
	flags, prot := unix.O_RDONLY, unix.PROT_READ
	if write {
		flags, prot = unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", c.enginePID, file-1)
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errs.New(errs.EINTERNAL, "the file that holds an object of %d bytes cannot be opened: %w", size, &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	skip := offset % uint64(os.Getpagesize())
	m, err := unix.Mmap(fd, int64(offset-skip), int(size+skip), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, errs.New(errs.ENOMEM, "the file that holds an object of %d bytes cannot be mapped: %w", size, err)
	}
	return m[skip:], func() { unix.Munmap(m) }, nil
}
