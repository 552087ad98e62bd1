package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// What goes over a control connection: a byte, the length of what follows, and that.
const (
	ctlFault = iota + 1 // why the group broke
	ctlBye              // this node leaves; what ends now ended well
	ctlAsk              // how far are you?
	ctlTell             // so far
)

const (
	maxControl   = 4096
	controlWrite = 200 * time.Millisecond // a breaking group waits no longer for one who does not read
	askFor       = 700 * time.Millisecond // how long the others have to say how far they are
)

// control is a control connection.
type control struct {
	m    *Mesh
	node int
	conn net.Conn
	out  sync.Mutex // one frame at a time
	left atomic.Bool
	told chan progress // answers to ctlAsk
}

// progress is how far a node is: the number of collectives begun, and whether one is under way.
type progress struct {
	seq  uint64
	busy bool
}

// watch takes a control connection over and reads it until the end of the mesh.
func (m *Mesh) watch(node int, conn net.Conn) {
	m.hasten(conn)
	c := &control{m: m, node: node, conn: conn, told: make(chan progress, 1)}
	m.mu.Lock()
	m.controls = append(m.controls[:len(m.controls):len(m.controls)], c)
	over := m.mu.fault != nil || m.mu.closing
	m.mu.Unlock()
	if over {
		conn.Close()
		return
	}
	m.wg.Go(c.read)
}

func (c *control) read() {
	err := c.frames()
	c.conn.Close()
	if c.left.Load() {
		return
	}
	who := c.m.whoLeads(c.node)
	switch {
	case errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		c.m.breakWith(faultf(errs.EGROUP, c.m.cfg.LeaderOf[c.node], "%s cannot be reached any more: for %d s its machine has not answered, so it is down or the network is (%v)", who, c.m.deadSeconds(), err), c, true)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		c.m.breakWith(faultf(errs.EGROUP, c.m.cfg.LeaderOf[c.node], "%s is gone: its process ended without leaving the group; its own log says why", who), c, true)
	default:
		c.m.breakWith(faultf(errs.EGROUP, c.m.cfg.LeaderOf[c.node], "the connection to %s failed: %v", who, err), c, true)
	}
}

func (c *control) frames() error {
	var head [5]byte
	body := make([]byte, maxControl)
	for {
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			return err
		}
		n := int(binary.LittleEndian.Uint32(head[1:]))
		if n > maxControl {
			return errors.New("it sent something else than raygo would")
		}
		if _, err := io.ReadFull(c.conn, body[:n]); err != nil {
			return err
		}
		switch b := body[:n]; {
		case head[0] == ctlFault && n >= 8:
			code, rank := binary.LittleEndian.Uint32(b), int32(binary.LittleEndian.Uint32(b[4:]))
			c.m.breakWith(&Fault{errs.Code(code), int(rank), string(b[8:])}, c, true)
		case head[0] == ctlBye:
			c.left.Store(true)
		case head[0] == ctlAsk:
			c.send(ctlTell, c.m.progress().encode())
		case head[0] == ctlTell && n == 9:
			select {
			case c.told <- progress{binary.LittleEndian.Uint64(b), b[8] != 0}:
			default: // nobody asked
			}
		}
	}
}

// send writes a frame, or gives up soon.
func (c *control) send(what byte, body []byte) {
	c.out.Lock()
	defer c.out.Unlock()
	frame := binary.LittleEndian.AppendUint32([]byte{what}, uint32(len(body)))
	c.conn.SetWriteDeadline(time.Now().Add(controlWrite))
	c.conn.Write(append(frame, body...)) // what fails here is found by read
}

func (c *control) tellFault(f *Fault) {
	body := binary.LittleEndian.AppendUint32(nil, uint32(f.Code))
	body = binary.LittleEndian.AppendUint32(body, uint32(int32(f.Rank)))
	c.send(ctlFault, append(body, f.Text[:min(len(f.Text), maxControl-8)]...))
}

func (p progress) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, p.seq)
	if p.busy {
		return append(b, 1)
	}
	return append(b, 0)
}

func (m *Mesh) progress() progress { return progress{m.seq.Load(), m.busy.Load()} }

// behind asks the nodes that this one has control connections to how far they are, and says who is not where this one is.
func (m *Mesh) behind(seq uint64) (rank int, what string) {
	type answer struct {
		c *control
		p progress
	}
	answers := make(chan answer, len(m.controls))
	limit := time.NewTimer(askFor)
	defer limit.Stop()
	silent := map[int]bool{}
	stop := make(chan struct{})
	defer close(stop)
	for _, c := range m.controls {
		silent[c.node] = true
		select {
		case <-c.told: // an old one
		default:
		}
		c.send(ctlAsk, nil)
		go func() {
			select {
			case p := <-c.told:
				answers <- answer{c, p}
			case <-stop:
			}
		}()
	}
	late := -1
	for range m.controls {
		select {
		case a := <-answers:
			delete(silent, a.c.node)
			if a.p.seq < seq && late < 0 {
				late = a.c.node
			}
			continue
		case <-limit.C:
		case <-m.dead:
		}
		break
	}
	for node := range m.cfg.Nodes {
		if silent[node] {
			return m.cfg.LeaderOf[node], m.whoLeads(node) + " does not answer: its process is stopped, or its machine hangs"
		}
	}
	if late >= 0 {
		return m.cfg.LeaderOf[late], m.whoLeads(late) + " has not called it"
	}
	return -1, ""
}
