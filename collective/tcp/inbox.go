package tcp

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// inbox is what another rank sends to this one.
type inbox struct {
	s      *messages
	peer   int
	conn   net.Conn
	out    sync.Mutex          // one frame at a time
	coming map[uint64]*Message // receives whose data is on its way; nil after the connection's end; guarded by messages.mu
}

func (in *inbox) reply(f frame) {
	in.out.Lock()
	defer in.out.Unlock()
	in.conn.Write(f.encode()) // what fails here is found by read; the sender always reads
}

// serve takes over a connection that a sender opened.
func (s *messages) serve(peer int, conn net.Conn) {
	in := &inbox{s: s, peer: peer, conn: conn, coming: map[uint64]*Message{}}
	s.mu.Lock()
	if s.mu.over != nil {
		s.mu.Unlock()
		conn.Close()
		return
	}
	s.mu.ins[in] = struct{}{}
	s.mu.Unlock()
	s.m.wg.Go(in.read)
}

func (in *inbox) read() {
	err := in.frames()
	in.conn.Close()
	s := in.s
	s.mu.Lock()
	delete(s.mu.ins, in)
	waiting := len(in.coming) > 0
	for key, list := range s.mu.asked {
		waiting = waiting || key.peer == in.peer && len(list) > 0
	}
	left := in.coming
	in.coming = nil
	s.mu.Unlock()
	if waiting { // a sender that has nothing more to send may go
		s.lost(in.peer, err)
	}
	for _, x := range left {
		f := s.m.Fault()
		if f == nil {
			f = s.m.leftItself()
		}
		x.end(f)
	}
}

func (in *inbox) frames() error {
	s := in.s
	for {
		f, err := readFrame(in.conn)
		if err != nil {
			return err
		}
		switch f.what {
		case msgOffer:
			if err := in.offer(f); err != nil {
				return err
			}
		case msgData:
			s.mu.Lock()
			x := in.coming[f.id]
			s.mu.Unlock()
			if x == nil || uint64(len(x.Buf)) != f.bytes {
				return fmt.Errorf("it sent %d bytes that nobody asked for", f.bytes)
			}
			if _, err := io.ReadFull(in.conn, x.Buf); err != nil {
				return err // x stays in coming, and ends with the connection
			}
			s.mu.Lock()
			delete(in.coming, f.id)
			x.stage = ended
			s.mu.Unlock()
			x.end(nil)
		case msgWithdraw:
			in.withdraw(f.id)
		default:
			return fmt.Errorf("it sent a frame of the unknown type %d", f.what)
		}
	}
}

func (in *inbox) offer(f frame) error {
	s := in.s
	o := &offer{id: f.id, bytes: int(f.bytes), in: in}
	if f.flags&eager != 0 {
		if f.bytes > maxEager {
			return fmt.Errorf("it sent %d bytes unasked", f.bytes)
		}
		o.data = make([]byte, f.bytes)
		if _, err := io.ReadFull(in.conn, o.data); err != nil {
			return err
		}
	}
	key := stream{in.peer, f.tag}
	s.mu.Lock()
	if s.mu.over != nil {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.mu.offers[key] = append(s.mu.offers[key], o)
	after := s.match(key)
	s.mu.Unlock()
	run(after)
	return nil
}

// withdraw forgets an offer. A receive that had taken it is as if it had not.
func (in *inbox) withdraw(id uint64) {
	s := in.s
	s.mu.Lock()
	var after []func()
	if x := in.coming[id]; x != nil {
		delete(in.coming, id)
		x.stage = waiting
		key := stream{x.Peer, x.Tag}
		s.mu.asked[key] = append([]*Message{x}, s.mu.asked[key]...)
		after = s.match(key)
	} else {
		for key, list := range s.mu.offers {
			for i, o := range list {
				if key.peer == in.peer && o.id == id {
					s.mu.offers[key] = append(list[:i:i], list[i+1:]...)
				}
			}
		}
	}
	s.mu.Unlock()
	run(after)
}
