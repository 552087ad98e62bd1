package tcp

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// errAgain: nothing can be read or written now.
var errAgain = errors.New("again")

// link is a connection that carries data of collectives in one direction: only one of read and write is used.
type link struct {
	peer int // node
	fd   int // non-blocking; -1: conn carries it
	conn *tls.Conn
	r    *bufio.Reader // small reads come many at a time
}

// readAhead is what a link reads at once when less is asked for.
const readAhead = 16 << 10

// newLink takes the connection over.
func newLink(peer int, conn net.Conn) (*link, error) {
	if secure, ok := conn.(*tls.Conn); ok {
		return &link{peer: peer, fd: -1, conn: secure, r: bufio.NewReaderSize(secure, readAhead)}, nil
	}
	raw, err := conn.(*socket).SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &link{peer: peer, fd: -1}
	var dup error
	if err := raw.Control(func(fd uintptr) { l.fd, dup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if dup != nil {
		return nil, dup
	}
	conn.Close() // the copy stays; Go's poller must not wake for it
	l.r = bufio.NewReaderSize(fdReader(l.fd), readAhead)
	return l, nil
}

type fdReader int

func (fd fdReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), p)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, errAgain
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// write sends what it can.
func (l *link) write(p []byte) (int, error) {
	for {
		n, err := unix.SendmsgN(l.fd, p, nil, nil, unix.MSG_NOSIGNAL)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, errAgain
		default:
			return max(n, 0), err
		}
	}
}

// shut ends what goes on with the link; who waits for it wakes up.
func (l *link) shut() {
	if l.conn != nil {
		l.conn.NetConn().Close()
	} else {
		unix.Shutdown(l.fd, unix.SHUT_RDWR)
	}
}

// free closes the link. Nobody may use it any more.
func (l *link) free() {
	if l.conn != nil {
		l.conn.NetConn().Close()
	} else {
		unix.Close(l.fd)
	}
}
