package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// Message is one send or receive.
type Message struct {
	Send bool
	Peer int // rank of another node
	Tag  uint32
	Buf  []byte
	Done func(f *Fault) // called once, from any goroutine, also before Post returns; nil: it went well

	m    *Mesh
	once sync.Once
	// Guarded by messages.mu.
	stage stage
	id    uint64 // of a send
	conn  *outbox
}

type stage uint8

const (
	unposted stage = iota
	waiting        // for a connection, or for the other side
	offered        // a send whose other side knows of it, but not yet where to put it
	begun          // data flows; it can no longer be withdrawn
	ended
)

func (x *Message) end(f *Fault) { x.once.Do(func() { x.Done(f) }) }

// Frames between two ranks: a type and flags, a tag, a number of the sender's, and a number of bytes.
const (
	msgOffer    = iota + 1 // sender → receiver: there is a message; flagged: and here it is
	msgData                // sender → receiver: what was offered
	msgWithdraw            // sender → receiver: what was offered will not come
	msgReady               // receiver → sender: send it
	msgDone                // receiver → sender: it came with its offer
	msgMisfit              // receiver → sender: I expected so many bytes
)

const (
	frameSize = 24
	eager     = 1
	// maxEager bytes travel with the offer, and up to maxPending such offers wait at a receiver that has not asked for them.
	maxEager   = 8 << 10
	maxPending = 64
)

type frame struct {
	what, flags byte
	tag         uint32
	id, bytes   uint64
}

func (f frame) encode() []byte {
	b := make([]byte, 4, frameSize)
	b[0], b[1] = f.what, f.flags
	b = binary.LittleEndian.AppendUint32(b, f.tag)
	b = binary.LittleEndian.AppendUint64(b, f.id)
	return binary.LittleEndian.AppendUint64(b, f.bytes)
}

func readFrame(r io.Reader) (frame, error) {
	var b [frameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return frame{}, err
	}
	u := binary.LittleEndian
	return frame{b[0], b[1], u.Uint32(b[4:]), u.Uint64(b[8:]), u.Uint64(b[16:])}, nil
}

// stream is what is between one sender and one receiver under a tag.
type stream struct {
	peer int
	tag  uint32
}

// offer is a message that came before it was asked for.
type offer struct {
	id    uint64
	bytes int
	data  []byte // of an eager one
	in    *inbox
}

// messages are the sends and receives of a rank.
type messages struct {
	m  *Mesh
	mu struct {
		sync.Mutex
		over    *Fault
		outs    map[int]*outbox
		ins     map[*inbox]struct{}
		asked   map[stream][]*Message // receives, in order
		offers  map[stream][]*offer   // in order
		nextNum uint64
	}
}

func (s *messages) init(m *Mesh) {
	s.m = m
	s.mu.outs, s.mu.ins = map[int]*outbox{}, map[*inbox]struct{}{}
	s.mu.asked, s.mu.offers = map[stream][]*Message{}, map[stream][]*offer{}
}

// Post begins a send or receive.
func (m *Mesh) Post(x *Message) {
	s := &m.messages
	x.m = m
	s.mu.Lock()
	if over := s.mu.over; over != nil {
		s.mu.Unlock()
		x.end(over)
		return
	}
	x.stage = waiting
	if !x.Send {
		key := stream{x.Peer, x.Tag}
		s.mu.asked[key] = append(s.mu.asked[key], x)
		after := s.match(key)
		s.mu.Unlock()
		run(after)
		return
	}
	out := s.mu.outs[x.Peer]
	if out == nil {
		out = &outbox{s: s, peer: x.Peer, sends: map[uint64]*Message{}}
		out.wake.L = &s.mu
		s.mu.outs[x.Peer] = out
		m.wg.Go(out.run)
	}
	s.mu.nextNum++
	x.id, x.conn = s.mu.nextNum, out
	out.sends[x.id] = x
	out.queue = append(out.queue, x)
	out.wake.Signal()
	s.mu.Unlock()
}

// Cancel takes back what has not begun: Done is not called then. false: it has begun, is over, or is about to be posted by another goroutine.
func (m *Mesh) Cancel(x *Message) bool {
	s := &m.messages
	s.mu.Lock()
	if x.stage == unposted || x.stage >= begun {
		s.mu.Unlock()
		return false
	}
	if x.Send {
		if x.stage == offered {
			x.conn.withdrawn = append(x.conn.withdrawn, x.id)
			x.conn.wake.Signal()
		}
		delete(x.conn.sends, x.id)
	} else {
		key := stream{x.Peer, x.Tag}
		s.mu.asked[key] = without(s.mu.asked[key], x)
	}
	x.stage = ended
	s.mu.Unlock()
	x.once.Do(func() {})
	return true
}

func without(list []*Message, x *Message) []*Message {
	for i, y := range list {
		if y == x {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// run calls what had to wait until the lock was free.
func run(after []func()) {
	for _, f := range after {
		f()
	}
}

// match brings offers and receives of a stream together, in order. Its result is to be run without the lock.
func (s *messages) match(key stream) (after []func()) {
	for len(s.mu.asked[key]) > 0 && len(s.mu.offers[key]) > 0 {
		x, o := s.mu.asked[key][0], s.mu.offers[key][0]
		s.mu.asked[key], s.mu.offers[key] = s.mu.asked[key][1:], s.mu.offers[key][1:]
		if len(s.mu.offers[key]) == 0 {
			delete(s.mu.offers, key)
		}
		if len(s.mu.asked[key]) == 0 {
			delete(s.mu.asked, key)
		}
		switch {
		case o.bytes != len(x.Buf):
			x.stage = ended
			fault := faultf(errs.EINVAL, key.peer, "%s sent %d bytes with tag %d where %s receives %d: both sides must name the same count and type",
				s.m.who(key.peer), o.bytes, key.tag, s.m.who(s.m.cfg.Rank), len(x.Buf))
			after = append(after, func() {
				o.in.reply(frame{what: msgMisfit, tag: key.tag, id: o.id, bytes: uint64(len(x.Buf))})
				x.end(fault)
			})
		case o.data != nil:
			x.stage = ended
			after = append(after, func() {
				copy(x.Buf, o.data)
				x.end(nil)
				o.in.reply(frame{what: msgDone, id: o.id})
			})
		case o.in.coming == nil:
			x.stage = ended
			fault := faultf(errs.EGROUP, key.peer, "%s left the group, or its process ended, before it had sent the %d bytes that it offered with tag %d", s.m.who(key.peer), o.bytes, key.tag)
			after = append(after, func() { x.end(fault) })
		default:
			x.stage = begun
			o.in.coming[o.id] = x
			after = append(after, func() { o.in.reply(frame{what: msgReady, id: o.id}) })
		}
	}
	return after
}

// fail ends all that is under way, and all that will be posted.
func (s *messages) fail(f *Fault) {
	s.mu.Lock()
	if s.mu.over != nil {
		s.mu.Unlock()
		return
	}
	s.mu.over = f
	var all []*Message
	for _, list := range s.mu.asked {
		all = append(all, list...)
	}
	for _, out := range s.mu.outs {
		for _, x := range out.sends {
			if x != out.writing {
				all = append(all, x) // the one being written ends when its connection does
			}
		}
		if out.conn != nil {
			out.conn.Close()
		}
		out.wake.Broadcast()
	}
	for in := range s.mu.ins {
		in.conn.Close()
	}
	for _, x := range all {
		x.stage = ended
	}
	s.mu.asked, s.mu.offers = map[stream][]*Message{}, map[stream][]*offer{}
	s.mu.Unlock()
	for _, x := range all {
		x.end(f)
	}
}

// lost is called when a connection between two ranks ended; that breaks the group unless it is over.
func (s *messages) lost(peer int, err error) {
	select {
	case <-s.m.dead:
		return
	case <-s.m.leaving:
		return
	case <-time.After(time.Second): // word of what happened may be on its way
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		err = errors.New("it left the group, or its process ended")
	}
	f := faultf(errs.EGROUP, peer, "the connection of %s to %s is gone: %v", s.m.who(s.m.cfg.Rank), s.m.who(peer), err)
	s.m.breakWith(f, nil, true)
}
