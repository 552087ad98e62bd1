package tcp

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// span is a part of a buffer.
type span struct{ at, n int }

// piece is a span that comes in, and what is done with it.
type piece struct {
	span
	reduce  bool // into what is there; else it replaces that
	forward bool // and is sent on then
}

// flow is one stripe's way through an operation: what is sent at once, and what comes in, piece by piece, some of it sent on.
type flow struct {
	stream  int
	out, in *link // nil: nothing goes that way
	head    []byte
	check   func(head []byte) error // of what came in before the first piece; nil: nothing does
	buf     []byte
	first   span
	pieces  []piece
	reduce  func(dst, src []byte)

	queue   [][]byte // to be sent, in order
	sent    int      // of the queue
	at      int      // of its next
	got     int      // pieces
	filled  int      // of the next piece, or of the head
	heard   []byte   // the head that came, while it comes
	scratch []byte
}

// maxPiece bounds what is received before it is reduced and sent on; it stays in a core's cache.
const maxPiece = 256 << 10

// coalesced is up to which size the first span is sent in one write with the head.
const coalesced = 16 << 10

// pieces cuts a span into pieces of at most maxPiece bytes.
func pieces(to []piece, s span, align int, reduce, forward bool) []piece {
	step := maxPiece / align * align
	for s.n > 0 {
		n := min(s.n, step)
		to = append(to, piece{span{s.at, n}, reduce, forward})
		s.at, s.n = s.at+n, s.n-n
	}
	return to
}

// run drives the flow to its end on this thread.
func (f *flow) run() error {
	if f.queue == nil {
		f.queue = queueOf(f.head, f.buf[f.first.at:f.first.at+f.first.n])
	}
	if f.check != nil {
		f.heard = make([]byte, headSize)
	}
	largest := 0
	for _, p := range f.pieces {
		if p.reduce {
			largest = max(largest, p.n)
		}
	}
	f.scratch = make([]byte, largest)
	if f.out != nil && f.out.conn != nil || f.in != nil && f.in.conn != nil {
		return f.runSecure()
	}
	for {
		sending, receiving := f.sent < len(f.queue), f.heard != nil || f.got < len(f.pieces)
		if !sending && !receiving {
			return nil
		}
		stuck := true
		if sending {
			n, err := f.out.write(f.queue[f.sent][f.at:])
			if err != nil && err != errAgain {
				return linkError{f.out, err}
			}
			if stuck = stuck && err == errAgain; err == nil {
				f.wrote(n)
			}
		}
		if receiving {
			n, err := f.in.r.Read(f.room())
			if err != nil && err != errAgain {
				return linkError{f.in, err}
			}
			if n > 0 {
				stuck = false
				if _, err := f.filledBy(n); err != nil {
					return err
				}
			}
		}
		if stuck {
			f.poll(f.sent < len(f.queue), receiving)
		}
	}
}

func (f *flow) wrote(n int) {
	if f.at += n; f.at == len(f.queue[f.sent]) {
		f.queue[f.sent] = nil
		f.sent, f.at = f.sent+1, 0
	}
}

// room is where the next bytes belong.
func (f *flow) room() []byte {
	if f.heard != nil {
		return f.heard[f.filled:]
	}
	p := f.pieces[f.got]
	if p.reduce {
		return f.scratch[f.filled:p.n]
	}
	return f.buf[p.at+f.filled : p.at+p.n]
}

// filledBy notes that n bytes came, and returns what is to be sent on now.
func (f *flow) filledBy(n int) (forward []byte, err error) {
	f.filled += n
	if f.heard != nil {
		if f.filled < len(f.heard) {
			return nil, nil
		}
		heard := f.heard
		f.heard, f.filled = nil, 0
		return nil, f.check(heard)
	}
	p := f.pieces[f.got]
	if f.filled < p.n {
		return nil, nil
	}
	f.got, f.filled = f.got+1, 0
	whole := f.buf[p.at : p.at+p.n]
	if p.reduce {
		f.reduce(whole, f.scratch[:p.n])
	}
	if !p.forward {
		return nil, nil
	}
	f.queue = append(f.queue, whole)
	return whole, nil
}

// poll sleeps until the sockets can go on. An abort shuts them down, which wakes it too.
func (f *flow) poll(sending, receiving bool) {
	var fds [2]unix.PollFd
	n := 0
	if sending {
		fds[n], n = unix.PollFd{Fd: int32(f.out.fd), Events: unix.POLLOUT}, n+1
	}
	if receiving {
		fds[n], n = unix.PollFd{Fd: int32(f.in.fd), Events: unix.POLLIN}, n+1
	}
	unix.Poll(fds[:n], -1) // whatever it says, reading and writing find out
}

// runSecure is run with a second goroutine that sends.
func (f *flow) runSecure() error {
	ready := make(chan []byte, len(f.queue)+len(f.pieces))
	sent := make(chan error, 1)
	go func() {
		var failed error
		for p := range ready {
			if failed == nil {
				if _, err := f.out.conn.Write(p); err != nil {
					failed = linkError{f.out, err}
				}
			}
		}
		sent <- failed
	}()
	for _, p := range f.queue {
		ready <- p
	}
	var failed error
	for failed == nil && (f.heard != nil || f.got < len(f.pieces)) {
		room := f.room()
		if _, err := io.ReadFull(f.in.r, room); err != nil {
			failed = linkError{f.in, err}
			break
		}
		forward, err := f.filledBy(len(room))
		if failed = err; forward != nil {
			ready <- forward
		}
	}
	close(ready)
	if failed != nil && f.out != nil {
		f.out.shut() // or the sender might wait for ever
	}
	return errors.Join(failed, <-sent)
}

// linkError is a fault of a connection, not yet put into words.
type linkError struct {
	*link
	err error
}

func (e linkError) Error() string { return e.err.Error() }
