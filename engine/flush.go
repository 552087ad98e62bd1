package engine

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/raygo/raygo/engine/wire"

	"golang.org/x/sys/unix"
)

// Writing. Frames are appended to p.out; at the end of a round every dirty peer is flushed.

// frame returns the buffer to append a frame to; done must follow.
func (p *peer) frame() []byte { return p.out }

func (p *peer) done(b []byte) {
	p.out = b
	if !p.dirty {
		p.dirty = true
		p.n.dirty = append(p.n.dirty, p)
	}
}

func (p *peer) send(t wire.Type, flags uint16, id uint64, payload []byte) {
	if !p.gone {
		p.done(wire.AppendFrame(p.frame(), t, flags, id, payload))
	}
}

// A burst of calls to a busy process would be a system call each. While answers are due from a process, and it was written to a moment ago, its
// frames wait for more of them: its next answer starts a round that sends them, and a timer is there for the case that it takes long.
const (
	lazyTime  = 100 * time.Microsecond
	lazyBytes = 16 << 10
)

func (p *peer) mayWait() bool {
	return p.flying > p.fresh && len(p.out) < lazyBytes && p.n.now-p.lastWrite < lazyTime
}

// flushAll ends a round.
func (n *Node) flushAll(captured bool) {
	if len(n.dirty) == 0 {
		return
	}
	keep := n.dirty[:0]
	for _, p := range n.dirty {
		if captured && p.fd >= 0 && p.mayWait() {
			keep = append(keep, p)
			continue
		}
		p.dirty = false
		p.flush()
	}
	clear(n.dirty[len(keep):])
	n.dirty = keep
	if len(keep) > 0 && !n.lazyArmed {
		n.lazyArmed = true
		n.lazyTimer.Reset(lazyTime)
	}
}

func (p *peer) flush() {
	if p.gone || len(p.out) == 0 {
		return
	}
	if p.writing {
		if len(p.out) > maxBacklog {
			n := p.n
			n.strand.post(func() { n.refuse(p, fmt.Errorf("it has left %d bytes unread", len(p.out))) })
		}
		return
	}
	if p.deliver != nil {
		p.deliver(p.out)
		p.reuse()
		return
	}
	p.lastWrite, p.fresh = p.n.now, 0
	k, err := p.write(p.out)
	switch {
	case err != nil:
		p.n.strand.post(func() { p.n.dropPeer(p, err) })
	case k < len(p.out):
		rest := p.out[k:]
		p.out = nil
		p.writing = true
		p.n.wg.Go(func() { p.writeRest(rest) })
	default:
		p.reuse()
	}
}

func (p *peer) reuse() {
	if cap(p.out) > 1<<20 {
		p.out = nil
	} else {
		p.out = p.out[:0]
	}
}

// write takes what the socket takes at once.
func (p *peer) write(b []byte) (done int, err error) {
	for done < len(b) {
		var k int
		if p.passFD >= 0 {
			k, err = unix.SendmsgN(p.fd, b[done:], unix.UnixRights(p.passFD), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		} else {
			k, err = sendNow(p.fd, b[done:])
		}
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return done, nil
		}
		if err != nil {
			return done, os.NewSyscallError("send", err)
		}
		p.passFD = -1
		done += k
	}
	return done, nil
}

// sendNow is a send that never blocks, so the scheduler need not know of it.
func sendNow(fd int, b []byte) (int, error) {
	k, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(k), nil
}

// writeRest writes what did not fit into the socket, as room comes. Until it has, the strand leaves the socket alone.
func (p *peer) writeRest(b []byte) {
	defer p.n.guard()
	var failure error
	err := p.raw.Write(func(uintptr) bool {
		k, err := p.write(b)
		b, failure = b[k:], err
		return err != nil || len(b) == 0
	})
	if failure == nil {
		failure = err
	}
	posted := p.n.strand.post(func() {
		p.writing = false
		if p.gone { // the usual cause of a failure; the file was left to us
			p.closeFile()
			return
		}
		if failure != nil {
			p.n.dropPeer(p, failure)
			return
		}
		p.done(p.out)
	})
	if !posted { // the engine has stopped: nobody else has the peer any more
		p.writing = false
		p.closeFile()
	}
}

func (p *peer) closeFile() {
	if p.file == nil || p.writing {
		return
	}
	p.n.registerFD(p.fd, false)
	p.file.Close()
	p.file, p.fd = nil, -1
}
