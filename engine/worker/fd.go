package worker

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var fdHook atomic.Pointer[func(fd int, on bool)]

// SetFDHook names who is told of each descriptor that this process opens and closes for workers, so that a forked child of it can close them: a
// child that kept a worker's pipe would keep its end from being seen. Call it before the first template; nil: nobody is told. The descriptors are the
// process's, so there is one hook, whichever node set it last.
func SetFDHook(hook func(fd int, on bool)) {
	if hook == nil {
		fdHook.Store(nil)
	} else {
		fdHook.Store(&hook)
	}
}

// CloseFD closes a file that this package opened, such as the connection that Fork returned, and tells the hook.
func CloseFD(f *os.File) error {
	report(f, false)
	return f.Close()
}

func report(f *os.File, on bool) {
	hook := fdHook.Load()
	if hook == nil {
		return
	}
	// Not f.Fd(), which could make the file blocking.
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { (*hook)(int(fd), on) })
	}
}

// adopt makes a file of this process's end: not blocking, on Go's poller, reported.
func adopt(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("worker: set %s non-blocking: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	report(f, true)
	return f, nil
}

const socketBuffer = 2 << 20

// socketPair returns this process's end and the other's descriptor. Both close on exec; the other end blocks.
func socketPair(name string) (*os.File, int, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("worker: socketpair for %s: %w", name, err)
	}
	for _, fd := range fds {
		// Thousands of small frames may be under way; a larger buffer spares both sides waiting. Being refused costs only speed.
		for _, opt := range [][2]int{{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}, {unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}} {
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[0], socketBuffer) != nil {
				_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[1], socketBuffer)
			}
		}
	}
	f, err := adopt(fds[0], name)
	if err != nil {
		unix.Close(fds[1])
		return nil, -1, err
	}
	return f, fds[1], nil
}

// outputPipe returns this process's reading end and the worker's writing end.
func outputPipe(name string) (*os.File, int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, fmt.Errorf("worker: pipe for %s: %w", name, err)
	}
	f, err := adopt(fds[0], name)
	if err != nil {
		unix.Close(fds[1])
		return nil, -1, err
	}
	return f, fds[1], nil
}
