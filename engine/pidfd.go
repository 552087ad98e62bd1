package engine

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watchedProcess is a process that is not the engine's child: a second driver, or another program. Its descriptor is taken when it connects, so that
// it stays this process, whatever becomes of the number.
type watchedProcess struct {
	file *os.File
	fd   int
	over sync.Once
}

// watchProcess returns nil for the engine's own process, which it does not outlive, and where the kernel has no such descriptors (before 5.3): then the
// end of the connection has to do.
func (n *Node) watchProcess(pid int) *watchedProcess {
	if pid == os.Getpid() {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil
	}
	n.registerFD(fd, true)
	return &watchedProcess{file: os.NewFile(uintptr(fd), "raygo-process"), fd: fd}
}

func (n *Node) unwatch(w *watchedProcess) {
	if w == nil {
		return
	}
	w.over.Do(func() {
		n.registerFD(w.fd, false)
		w.file.Close()
	})
}

// whenEnded has fn run on the strand when the process has ended; not at all if the engine stops first.
func (n *Node) whenEnded(w *watchedProcess, fn func()) {
	n.wg.Go(func() {
		defer n.guard()
		stop := context.AfterFunc(n.ctx, func() { n.unwatch(w) })
		defer stop()
		raw, err := w.file.SyscallConn()
		if err == nil {
			err = raw.Read(func(fd uintptr) bool {
				p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				k, err := unix.Poll(p, 0)
				return err == nil && k > 0
			})
		}
		if n.ctx.Err() == nil {
			if err != nil {
				n.strand.post(func() { n.logf("a process cannot be watched: %v", err) })
			}
			n.strand.post(fn)
			n.unwatch(w)
		}
	})
}
