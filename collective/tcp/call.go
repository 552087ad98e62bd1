package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// Kind is which collective a call is.
type Kind uint8

// The collectives between nodes.
const (
	Allreduce Kind = iota + 1
	Allgather
	Reducescatter
	Broadcast
)

func (k Kind) String() string {
	return [...]string{"nothing", "allreduce", "allgather", "reducescatter", "broadcast"}[min(k, Broadcast)]
}

// headSize is how much every operation sends to the next node first: what it is.
const headSize = 32

// head is that.
type head struct {
	kind      Kind
	dtype, op int
	root      int
	seq       uint64
	count     int
}

func (h head) encode() []byte {
	b := make([]byte, 0, headSize)
	b = append(b, "rgc1"...)
	b = append(b, byte(h.kind), byte(h.dtype), byte(h.op), 0)
	b = binary.LittleEndian.AppendUint64(b, h.seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.count))
	return binary.LittleEndian.AppendUint64(b, uint64(h.root))
}

func decodeHead(b []byte) (h head, ok bool) {
	u := binary.LittleEndian.Uint64
	h = head{kind: Kind(b[4]), dtype: int(b[5]), op: int(b[6]), seq: u(b[8:]), count: int(u(b[16:])), root: int(u(b[24:]))}
	return h, string(b[:4]) == "rgc1"
}

func (m *Mesh) describe(h head) string {
	switch h.kind {
	case Broadcast:
		return fmt.Sprintf("broadcast of %d bytes from %s", h.count, m.whoLeads(min(h.root, m.cfg.Nodes-1)))
	case Allgather:
		return fmt.Sprintf("allgather of %d bytes in all", h.count)
	}
	return fmt.Sprintf("%v of %d × %s", h.kind, h.count, m.cfg.Kernel.Name(h.dtype, h.op))
}

// do runs one collective: body gets the head and the check of the one that comes.
func (m *Mesh) do(h head, timeout time.Duration, body func(head []byte, check func([]byte) error) error) error {
	m.op.Lock()
	defer m.op.Unlock()
	if f := m.Fault(); f != nil {
		return f
	}
	select {
	case <-m.leaving:
		return m.leftItself()
	default:
	}
	for _, c := range m.controls {
		if c.left.Load() {
			f := faultf(errs.EGROUP, m.cfg.LeaderOf[c.node], "%s has left group %q", m.whoLeads(c.node), m.cfg.Name)
			m.breakWith(f, c, true)
			return f
		}
	}
	h.seq = m.seq.Add(1)
	m.busy.Store(true)
	defer m.busy.Store(false)
	if timeout >= 0 {
		timer := time.AfterFunc(timeout, func() { m.timedOut(h, timeout) })
		defer timer.Stop()
	}
	err := body(h.encode(), func(b []byte) error { return m.compare(h, b) })
	if err == nil {
		return nil
	}
	return m.explain(err)
}

func (m *Mesh) leftItself() *Fault {
	return faultf(errs.EGROUP, m.cfg.Rank, "rank %d has left group %q", m.cfg.Rank, m.cfg.Name)
}

// compare says whether the node before this one makes the same call.
func (m *Mesh) compare(mine head, b []byte) error {
	theirs, ok := decodeHead(b)
	if theirs == mine && ok {
		return nil
	}
	before := m.whoLeads(m.node(-1))
	if !ok || theirs.seq != mine.seq {
		return faultf(errs.EINTERNAL, -1, "a fault of raygo itself: the %d. collective of group %q met the %d. of %s", mine.seq, m.cfg.Name, theirs.seq, before)
	}
	return faultf(errs.EGROUP, -1, "calls do not fit: %s called %s, %s called %s. All ranks must make the same calls in the same order",
		m.who(m.cfg.Rank), m.describe(mine), before, m.describe(theirs))
}

// explain puts what ended an operation into words, and breaks the mesh.
func (m *Mesh) explain(err error) error {
	var fault *Fault
	var broken linkError
	if !errors.As(err, &fault) {
		// A connection ends when the process at its end does, and when the mesh breaks for another reason, of which word is on its way.
		select {
		case <-m.dead:
			return m.Fault()
		case <-m.leaving:
			return m.leftItself()
		case <-time.After(time.Second):
		}
		fault = AsFault(err)
		if errors.As(err, &broken) {
			fault = faultf(errs.EGROUP, m.cfg.LeaderOf[broken.peer], "the connection to %s failed: %v", m.whoLeads(broken.peer), broken.err)
			for _, c := range m.controls {
				if c.node == broken.peer && c.left.Load() {
					fault.Text = fmt.Sprintf("%s has left group %q", m.whoLeads(broken.peer), m.cfg.Name)
				}
			}
		}
	}
	m.breakWith(fault, nil, true)
	if f := m.Fault(); f != nil {
		return f // the first fault, which all ranks report
	}
	return fault
}

// timedOut ends an operation that is still under way after its time.
func (m *Mesh) timedOut(h head, after time.Duration) {
	rank, who := m.behind(h.seq)
	if !m.busy.Load() || m.seq.Load() != h.seq {
		return // it came through
	}
	if who == "" {
		// All that can be asked have come: it is somebody farther away, whose neighbours find out by the same means.
		select {
		case <-m.dead:
			return
		case <-m.leaving:
			return
		case <-time.After(askFor):
		}
		who = "all nodes that could be asked have called it, and the data has not come: the network is slow, or a node farther away is late"
	}
	m.breakWith(faultf(errs.ETIMEDOUT, rank, "%s of group %q did not end within %v: %s", m.describe(h), m.cfg.Name, after.Round(time.Millisecond), who), nil, true)
}
