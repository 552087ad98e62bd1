package actor

// Call is one call's place in a mailbox. It belongs into the task it stands for.
type Call struct {
	Value      any
	caller     uint64
	seq        uint64
	argsReady  bool
	place      place
	prev, next *Call
}

type place uint8

const (
	nowhere place = iota
	inLane
	inReady
	inFlight
)

// Waiting says whether the call is in a mailbox and was not taken out of it to run.
func (c *Call) Waiting() bool { return c.place == inLane || c.place == inReady }

type list struct {
	first, last *Call
	n           int
}

// insert puts a call behind those with a lower seq. The search goes backwards from the end, where nearly all belong, or forwards from near, behind
// which it belongs: many in a row are put in in one pass.
func (l *list) insert(c, near *Call) {
	at := near
	if at != nil {
		for at.next != nil && at.next.seq < c.seq {
			at = at.next
		}
	} else if l.first != nil && l.first.seq < c.seq {
		at = l.last
		for at.seq > c.seq {
			at = at.prev
		}
	}
	c.prev = at
	if at == nil {
		c.next, l.first = l.first, c
	} else {
		c.next, at.next = at.next, c
	}
	if c.next == nil {
		l.last = c
	} else {
		c.next.prev = c
	}
	l.n++
}

func (l *list) remove(c *Call) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	l.n--
}

// Mailbox holds the calls to one concurrency group of one actor.
type Mailbox struct {
	Concurrency int // calls that run at a time
	Window      int // calls that may be at the worker
	Ordered     bool
	flying      int
	seq         uint64
	ready       list
	back        *Call // the last that was put back, while it is in ready
	lanes       map[uint64]*list
}

// NewMailbox makes a mailbox. Enough calls are at the worker to keep it busy, and few enough to be taken back at its death.
func NewMailbox(concurrency int, ordered bool) *Mailbox {
	return &Mailbox{Concurrency: concurrency, Window: max(1000, 2*concurrency), Ordered: ordered}
}

// Add puts a new call in.
func (m *Mailbox) Add(c *Call, caller uint64, argsReady bool) {
	m.seq++
	c.seq, c.caller, c.argsReady = m.seq, caller, argsReady
	if lane := m.lanes[caller]; (lane != nil && m.Ordered) || !argsReady {
		if lane == nil {
			lane = &list{}
			if m.lanes == nil {
				m.lanes = map[uint64]*list{}
			}
			m.lanes[caller] = lane
		}
		c.place = inLane
		lane.insert(c, nil)
		return
	}
	c.place = inReady
	m.ready.insert(c, nil)
}

// ArgsReady says that the call's arguments are there.
func (m *Mailbox) ArgsReady(c *Call) {
	c.argsReady = true
	switch {
	case c.place != inLane:
	case m.Ordered:
		m.advance(c.caller)
	default: // the others of the lane still wait for theirs
		m.leaveLane(c)
		c.place = inReady
		m.ready.insert(c, nil)
	}
}

func (m *Mailbox) leaveReady(c *Call) {
	m.ready.remove(c)
	if m.back == c {
		m.back = nil
	}
}

func (m *Mailbox) leaveLane(c *Call) {
	lane := m.lanes[c.caller]
	lane.remove(c)
	if lane.n == 0 {
		delete(m.lanes, c.caller)
	}
}

// advance moves what may go now from a caller's lane, which is ordered, to ready.
func (m *Mailbox) advance(caller uint64) {
	lane := m.lanes[caller]
	if lane == nil {
		return
	}
	var last *Call
	for c := lane.first; c != nil && c.argsReady; c = lane.first {
		lane.remove(c)
		c.place = inReady
		m.ready.insert(c, last)
		last = c
	}
	if lane.n == 0 {
		delete(m.lanes, caller)
	}
}

// Take takes the next call that may go to the worker; nil when there is none or the worker has enough.
func (m *Mailbox) Take() *Call {
	c := m.ready.first
	if c == nil || m.flying >= m.Window {
		return nil
	}
	m.leaveReady(c)
	c.place = inFlight
	m.flying++
	return c
}

// Done says that a call which was taken has ended.
func (m *Mailbox) Done(c *Call) {
	if c.place == inFlight {
		c.place = nowhere
		m.flying--
	}
}

// PutBack returns a call that was taken: it is to run again, in its old place.
func (m *Mailbox) PutBack(c *Call) {
	if c.place == inFlight {
		// Its place is before nearly all that waits. After a death all that were at the worker come back, each close behind the one before.
		near := m.back
		if near == nil || near.seq > c.seq {
			if near = m.ready.first; near != nil && near.seq > c.seq {
				near = nil
			}
		}
		c.place = inReady
		m.flying--
		m.ready.insert(c, near)
		m.back = c
	}
}

// SetBack returns a call that was taken: it waits for its arguments again, and in an ordered mailbox its caller's later calls wait for it.
func (m *Mailbox) SetBack(c *Call) {
	if c.place != inFlight {
		return
	}
	m.flying--
	c.argsReady = false
	lane := m.lanes[c.caller]
	if lane == nil {
		lane = &list{}
		if m.lanes == nil {
			m.lanes = map[uint64]*list{}
		}
		m.lanes[c.caller] = lane
	}
	for x := m.ready.first; x != nil && m.Ordered; {
		next := x.next
		if x.caller == c.caller && x.seq > c.seq {
			m.leaveReady(x)
			x.place = inLane
			lane.insert(x, nil)
		}
		x = next
	}
	c.place = inLane
	lane.insert(c, nil)
}

// Remove takes out a call that waits; false when it does not wait here.
func (m *Mailbox) Remove(c *Call) bool {
	switch c.place {
	case inReady:
		m.leaveReady(c)
	case inLane:
		m.leaveLane(c)
		if m.Ordered {
			m.advance(c.caller)
		}
	default:
		return false
	}
	c.place = nowhere
	return true
}

// Waiting yields the calls that were not taken.
func (m *Mailbox) Waiting(yield func(*Call) bool) {
	for c := m.ready.first; c != nil; {
		next := c.next
		if !yield(c) {
			return
		}
		c = next
	}
	for _, lane := range m.lanes {
		for c := lane.first; c != nil; {
			next := c.next
			if !yield(c) {
				return
			}
			c = next
		}
	}
}

// Len is the number of calls that were not taken, Flying of those that were and have not ended.
func (m *Mailbox) Len() int {
	n := m.ready.n
	for _, lane := range m.lanes {
		n += lane.n
	}
	return n
}

// Flying is the number of calls at the worker.
func (m *Mailbox) Flying() int { return m.flying }
