package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"

	"golang.org/x/sys/unix"
)

// Roles of peers.
const (
	roleDriver = "driver"
	roleClient = "client"
	roleWorker = "worker"
)

// peer is a process at the other end of a connection. All fields but those of the reader belong to the strand.
type peer struct {
	n      *Node
	num    uint32
	role   string
	job    *job
	pid    int
	self   *watchedProcess // the process, where it is no child of the engine's; nil: it is, or cannot be watched
	worker *worker         // whose process this is; also for peers that serve named functions
	wants  bool            // logs

	deliver func([]byte) // embedded
	file    *os.File     // socket
	fd      int
	raw     syscall.RawConn

	out       []byte
	dirty     bool          // in n.dirty
	writing   bool          // a goroutine writes what the socket did not take; out waits for it
	passFD    int           // descriptor that rides on the next write; -1: none
	lastWrite time.Duration // by n.now
	flying    int           // frames sent that will be answered: as long as there are some, a flush is sure to come
	fresh     int           // of these, since the last write

	templates map[uint64]*template
	recent    [64]*template        // by number, for the small ones
	held      map[*object]struct{} // workers only: what dies with them; drivers' objects are found by walking through all
	pins      map[wire.OID]*pinned
	leases    int                             // ever given
	created   map[wire.OID]*objectstore.Entry // space given, not sealed
	asking    int                             // requests for space without an answer yet
	asked     uint64                          // bytes of the latest
	sites     sites                           // nil: it records none
	chunks    []*objectstore.Chunk            // space lent, see chunks.go
	gone      bool
	ended     atomic.Bool // gone, for threads that do not hold the strand
	greeted   bool        // HELLO was answered
	tokens    chan struct{}
}

// pinned counts one peer's pins of one object in the arena.
type pinned struct {
	entry *objectstore.Entry
	u     *unit // to say what made it when it has been freed
	site  string
	n     int
}

// Frames that wait for the strand are bounded per peer: a reader that has left this many buffers waits until one has been dealt with.
const readAhead = 16

// maxBacklog is what a process may leave unread before it counts as broken.
const maxBacklog = 1 << 30

func (n *Node) newPeer(role string) *peer {
	n.lastPeer++
	p := &peer{n: n, num: n.lastPeer, role: role, fd: -1, passFD: -1}
	n.peers[p.num] = p
	return p
}

// pollable makes a descriptor of ours out of a connection, non-blocking, so that the runtime's poller waits for it.
func pollable(c syscall.Conn) (*os.File, int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, -1, err
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(old uintptr) { fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3) }); err != nil {
		return nil, -1, err
	}
	if dupErr != nil {
		return nil, -1, os.NewSyscallError("fcntl", dupErr)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, -1, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "raygo-connection"), fd, nil
}

// connect gives a peer its socket, made by pollable, and starts its reader.
func (p *peer) connect(file *os.File, fd int) error {
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return err
	}
	p.file, p.fd, p.raw = file, fd, raw
	p.tokens = make(chan struct{}, readAhead)
	p.n.registerFD(fd, true)
	p.n.wg.Go(func() { p.read(file) })
	return nil
}

// read is the goroutine that reads a socket. Whole frames go to the strand in the buffer they were read into.
func (p *peer) read(file *os.File) {
	defer p.n.guard()
	buf := takeBuffer(0)
	filled := 0
	var failure error
	for {
		k, err := file.Read(buf.b[filled:])
		filled += k
		if err != nil {
			failure = err
			break
		}
		whole, next, err := wire.Whole(buf.b[:filled])
		if err != nil {
			failure = err
			break
		}
		if whole == 0 {
			if next > len(buf.b) {
				bigger := takeBuffer(next)
				copy(bigger.b, buf.b[:filled])
				buf.give()
				buf = bigger
			}
			continue
		}
		// The strand may keep the buffer, so what follows the last whole frame moves on.
		rest := takeBuffer(max(next, filled-whole))
		copy(rest.b, buf.b[whole:filled])
		filled -= whole
		st := step{p: p, in: buf.b[:whole], buf: buf}
		p.tokens <- struct{}{}
		if !p.n.strand.do(st, nil, false) {
			break
		}
		buf = rest
	}
	p.n.strand.post(func() { p.n.dropPeer(p, failure) })
}

// inBuffer is a buffer frames are read into.
type inBuffer struct{ b []byte }

const bufferSize = 64 << 10

var buffers sync.Pool

func takeBuffer(size int) *inBuffer {
	if size <= bufferSize {
		if b, ok := buffers.Get().(*inBuffer); ok {
			return b
		}
		size = bufferSize
	}
	return &inBuffer{make([]byte, size)}
}

func (b *inBuffer) give() {
	if len(b.b) == bufferSize {
		buffers.Put(b)
	}
}

// dropPeer ends a connection: what the process held, pinned and created goes.
func (n *Node) dropPeer(p *peer, why error) {
	if p.gone {
		return
	}
	if why != nil && !errors.Is(why, io.EOF) && p.role != roleWorker {
		n.logf("connection %d (%s, pid %d) is lost: %v", p.num, p.role, p.pid, why)
	}
	p.gone = true
	p.ended.Store(true)
	p.out = nil
	delete(n.peers, p.num)
	if p.file != nil {
		// The reader may be in Read, and a writer waiting: shutdown wakes both. The descriptor itself is closed when no writer is left.
		unix.Shutdown(p.fd, unix.SHUT_RDWR)
		p.closeFile()
	}
	n.dropLeases(p)
	n.dropPins(p)
	n.dropReserved(p)
	n.dropWritable(p)
	n.unwatch(p.self)
	if w := p.worker; w != nil {
		n.workerGone(w)
	}
	n.dropHeld(p)
	if p.role != roleWorker && p.job != nil {
		n.driverGone(p)
	}
}

// refuse ends a connection because of what came over it.
func (n *Node) refuse(p *peer, err error) {
	n.logf("connection %d (%s, pid %d) is ended because of what came over it: %v", p.num, p.role, p.pid, err)
	n.dropPeer(p, nil)
}

// pidOf asks the kernel who is at the other end.
func pidOf(fd int) (pid int, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	return int(cred.Pid), nil
}

// accept takes connections of other programs in until the listener is closed.
func (n *Node) accept(l net.Listener) {
	defer n.guard()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c, ok := conn.(syscall.Conn)
		if !ok {
			conn.Close()
			continue
		}
		file, fd, err := pollable(c)
		conn.Close()
		n.strand.post(func() {
			if err != nil {
				n.logf("a connection could not be set up: %v", err)
				return
			}
			p := n.newPeer("")
			if err := p.connect(file, fd); err != nil {
				n.refuse(p, err)
			} else if p.pid, err = pidOf(fd); err != nil {
				n.refuse(p, fmt.Errorf("who is it: %w", err))
			} else {
				p.self = n.watchProcess(p.pid)
			}
		})
	}
}
