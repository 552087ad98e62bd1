package tcp

import (
	"net"
	"sync"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// outbox is what this rank sends to another.
type outbox struct {
	s    *messages
	peer int
	conn net.Conn
	wake sync.Cond // on messages.mu
	// Guarded by messages.mu.
	sends     map[uint64]*Message // all that have not ended
	queue     []*Message          // to be offered
	ready     []*Message          // whose data is wanted
	withdrawn []uint64
	pending   int      // eager offers not answered
	writing   *Message // its buffer is in use
}

// run connects, then writes until the mesh ends.
func (o *outbox) run() {
	s := o.s
	conn, err := o.connect()
	s.mu.Lock()
	if err != nil || s.mu.over != nil {
		over := s.mu.over != nil
		s.mu.Unlock()
		if conn != nil {
			conn.Close()
		}
		if !over {
			s.m.breakWith(AsFault(err), nil, true)
		}
		return
	}
	o.conn = conn
	s.mu.Unlock()
	s.m.wg.Go(o.listen)
	for {
		head, x, last, ok := o.next()
		if !ok {
			conn.Close()
			return
		}
		var body []byte
		if x != nil {
			body = x.Buf
		}
		buffers := net.Buffers{head}
		if body != nil {
			buffers = append(buffers, body)
		}
		_, err := buffers.WriteTo(conn)
		s.mu.Lock()
		o.writing = nil
		f := s.mu.over
		s.mu.Unlock()
		if err != nil && f == nil {
			f = faultf(errs.EGROUP, o.peer, "sending to %s failed: %v", s.m.who(o.peer), err)
		}
		if x != nil && (last || f != nil) {
			x.end(f)
		}
		if err != nil {
			conn.Close()
			return // listen says so
		}
	}
}

func (o *outbox) connect() (net.Conn, error) {
	m := o.s.m
	// In slices, as a wait for the store cannot be interrupted.
	for {
		address, err := m.addressOf(o.peer, time.Now().Add(2*lookEvery))
		if err == nil {
			return m.dial(o.peer, address, hello{use: forMessages}, time.Time{})
		}
		select {
		case <-m.dead:
			return nil, m.Fault()
		case <-m.leaving:
			return nil, m.leftItself()
		default:
		}
		if errs.CodeOf(err) != errs.ETIMEDOUT {
			return nil, err
		}
	}
}

// next waits for something to write: a frame, and maybe a message, which ends with that if it is the last of it.
func (o *outbox) next() (head []byte, x *Message, last, ok bool) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.mu.over != nil:
			return nil, nil, false, false
		case len(o.withdrawn) > 0:
			id := o.withdrawn[0]
			o.withdrawn = o.withdrawn[1:]
			return frame{what: msgWithdraw, id: id}.encode(), nil, false, true
		case len(o.ready) > 0:
			x := o.ready[0]
			o.ready = o.ready[1:]
			delete(o.sends, x.id)
			o.writing, x.stage = x, ended
			return frame{what: msgData, id: x.id, bytes: uint64(len(x.Buf))}.encode(), x, true, true
		case len(o.queue) > 0:
			x := o.queue[0]
			o.queue = o.queue[1:]
			if x.stage == ended { // it was cancelled
				continue
			}
			f := frame{what: msgOffer, tag: x.Tag, id: x.id, bytes: uint64(len(x.Buf))}
			if x.stage = offered; len(x.Buf) <= maxEager && o.pending < maxPending {
				f.flags, x.stage = eager, begun
				o.pending++
				o.writing = x
				return f.encode(), x, false, true
			}
			return f.encode(), nil, false, true
		}
		o.wake.Wait()
	}
}

// listen reads what the receiver answers.
func (o *outbox) listen() {
	s := o.s
	for {
		f, err := readFrame(o.conn)
		if err != nil {
			o.conn.Close()
			s.lost(o.peer, err)
			return
		}
		s.mu.Lock()
		x := o.sends[f.id]
		if x == nil { // it was withdrawn
			s.mu.Unlock()
			continue
		}
		if f.what == msgReady {
			x.stage = begun
			o.ready = append(o.ready, x)
			o.wake.Signal()
			s.mu.Unlock()
			continue
		}
		delete(o.sends, f.id)
		if x.stage == begun {
			o.pending--
		}
		x.stage = ended
		s.mu.Unlock()
		if f.what == msgDone {
			x.end(nil)
			continue
		}
		x.end(faultf(errs.EINVAL, o.peer, "%s sent %d bytes with tag %d where %s receives %d: both sides must name the same count and type",
			s.m.who(s.m.cfg.Rank), len(x.Buf), x.Tag, s.m.who(o.peer), f.bytes))
	}
}
