package ownership

import (
	"errors"
	"fmt"
)

// ErrProtocol is wrapped by the errors of Step: a node sent what cannot be, and is no longer to be listened to, or the caller asked for what cannot be.
var ErrProtocol = errors.New("ownership protocol")

// entry is one object on one node.
//
// Owner: it goes when handles, pins and counts are nothing.
//
// Borrower: it is registered when received > 0, and then the owner's count of this node is at least received. Unregistered it is covered by others: by the
// pins of those in owed, or by the submitter's pin of a task that runs here. It goes when handles, pins and adding are nothing.
type entry struct {
	id       ObjectID
	handles  int
	pins     tally // handed on: with Give by a borrower until Ack, with Submit until Done or, what was kept, Ack
	counts   tally // owner: registrations by node
	received int   // registrations here that the owner has counted, and told of
	owed     tally // who gets Ack as soon as this node is registered
	adding   bool  // Add was sent
	awaited  bool  // Flushed waits for its Added
	lost     bool  // the owner is dead and only handles are left; or it says that the object is gone
}

type lent struct {
	to      NodeID
	objects []ObjectID
	of      *Leased
}

type taken struct {
	objects []ObjectID
	passed  bool
}

// Node is one node's part of the protocol. It does no I/O and reads no clock; its Step is called by one goroutine.
type Node struct {
	self    NodeID
	entries map[ObjectID]*entry
	lent    map[Lease]lent    // tasks at other nodes
	taken   map[Leased]*taken // tasks from other nodes
	dead    map[NodeID]uint32 // the epoch of its death
	epoch   uint32            // the last death heard of
	flushed uint32
	awaited int // entries that Flushed waits for
	out     []Effect
}

// NewNode makes the part of a node that has just begun.
func NewNode(self NodeID) *Node {
	return &Node{self: self, entries: map[ObjectID]*entry{}, lent: map[Lease]lent{}, taken: map[Leased]*taken{}, dead: map[NodeID]uint32{}}
}

// Step takes one event in and says what is to be done. The answer is good until the next Step.
func (n *Node) Step(e Event) ([]Effect, error) {
	n.out = n.out[:0]
	var err error
	switch e := e.(type) {
	case Take:
		err = n.take(e.Object)
	case Drop:
		err = n.drop(e.Object)
	case Give:
		err = n.give(e)
	case Submit:
		err = n.submit(e)
	case Finish:
		if t := n.taken[e.Task]; t == nil || t.passed {
			err = fmt.Errorf("%w: no task runs here under lease %v", ErrProtocol, e.Task)
		} else {
			n.finish(e.Task, t)
		}
	case Receive:
		if n.dead[e.From] == 0 { // its link is closed
			err = n.receive(e.From, e.Message)
		}
	case Dead:
		err = n.died(e)
	case Purge:
		n.purge(e.Epoch)
	}
	n.flush()
	return n.out, err
}

func (n *Node) send(to NodeID, m Message) {
	if n.dead[to] == 0 {
		n.out = append(n.out, Effect{Kind: Send, Node: to, Message: m})
	}
}

func (n *Node) owns(e *entry) bool { return e.id.Owner == n.self }

// registered says that the object cannot go as long as this node does not say so.
func (n *Node) registered(e *entry) bool { return n.owns(e) || e.received > 0 }

// hold returns the object's entry with a handle more; for what is new here, with none before.
func (n *Node) hold(o ObjectID) *entry {
	e := n.entries[o]
	if e == nil {
		e = &entry{id: o, handles: 1}
		n.entries[o] = e
		if n.dead[o.Owner] != 0 {
			n.lose(e)
		}
		return e
	}
	e.handles++
	return e
}

func (n *Node) take(o ObjectID) error {
	if o.Owner != n.self && n.entries[o] == nil {
		return fmt.Errorf("%w: node %d has no reference to object %v that a second could be made from", ErrProtocol, n.self, o)
	}
	n.hold(o)
	return nil
}

func (n *Node) drop(o ObjectID) error {
	e := n.entries[o]
	if e == nil || e.handles == 0 {
		return fmt.Errorf("%w: node %d drops object %v, of which it has no handle", ErrProtocol, n.self, o)
	}
	e.handles--
	n.settle(e)
	return nil
}

// all finds the entries of what is about to be handed on.
func (n *Node) all(objects []ObjectID) ([]*entry, error) {
	es := make([]*entry, len(objects))
	for i, o := range objects {
		if es[i] = n.entries[o]; es[i] == nil {
			return nil, fmt.Errorf("%w: node %d hands on object %v, to which it has no reference", ErrProtocol, n.self, o)
		}
	}
	return es, nil
}

// pin keeps what is handed on to a node, be it the owner: the order of one link says nothing of a sender that is itself only covered by another.
func (n *Node) pin(e *entry, to NodeID) {
	if n.dead[e.id.Owner] == 0 {
		e.pins.add(to, 1)
	}
}

func (n *Node) unpin(o ObjectID, from NodeID, count int) error {
	if n.dead[o.Owner] != 0 {
		return nil
	}
	e := n.entries[o]
	if e == nil || !e.pins.sub(from, count) {
		return fmt.Errorf("%w: node %d acknowledges object %v %d times, and is not owed so many", ErrProtocol, from, o, count)
	}
	n.settle(e)
	return nil
}

func (n *Node) give(g Give) error {
	es, err := n.all(g.Objects)
	if err != nil || n.dead[g.To] != 0 {
		return err
	}
	for _, e := range es {
		if n.owns(e) {
			e.counts.add(g.To, 1)
		} else {
			n.pin(e, g.To)
		}
	}
	n.send(g.To, Message{Kind: Hand, Objects: g.Objects})
	return nil
}

func (n *Node) submit(s Submit) error {
	if _, used := n.lent[s.Lease]; used {
		return fmt.Errorf("%w: node %d uses lease %d twice", ErrProtocol, n.self, s.Lease)
	}
	var t *taken
	if s.For != nil {
		if t = n.taken[*s.For]; t == nil || t.passed {
			return fmt.Errorf("%w: node %d passes on the task under lease %v, which it does not have", ErrProtocol, n.self, *s.For)
		}
		s.Objects = t.objects
	}
	es, err := n.all(s.Objects)
	if err != nil {
		return err
	}
	if n.dead[s.To] != 0 {
		n.out = append(n.out, Effect{Kind: Orphaned, Node: s.To, Lease: s.Lease})
		return nil
	}
	if t != nil {
		t.passed = true
	}
	for _, e := range es {
		n.pin(e, s.To)
	}
	n.lent[s.Lease] = lent{s.To, s.Objects, s.For}
	n.send(s.To, Message{Kind: Task, Lease: s.Lease, Objects: s.Objects})
	return nil
}

// finish ends a task that came from another node. Its submitter's pins covered its arguments; what is left of them here and not registered has to be, and until then
// the submitter keeps its pin. The Add goes first: a submitter that is the owner so counts this node before it forgets the pin.
func (n *Node) finish(id Leased, t *taken) {
	delete(n.taken, id)
	for _, o := range t.objects {
		n.entries[o].handles--
	}
	var kept []ObjectID
	for _, o := range t.objects {
		e := n.entries[o]
		if e == nil {
			continue // settled: it was an argument twice
		}
		if n.registered(e) || e.lost || (e.handles == 0 && len(e.pins) == 0 && !e.adding) || n.dead[id.From] != 0 {
			n.settle(e)
			continue
		}
		if id.From != o.Owner {
			kept = append(kept, o)
			e.owed.add(id.From, 1)
		}
		n.add(e)
	}
	n.send(id.From, Message{Kind: Done, Lease: id.Lease, Objects: kept})
}

// add registers this node.
func (n *Node) add(e *entry) {
	if !e.adding {
		e.adding = true
		n.send(e.id.Owner, Message{Kind: Add, Object: e.id})
	}
}

// settle is called when a use has gone: it lets go of what has none left.
func (n *Node) settle(e *entry) {
	if e.handles > 0 || len(e.pins) > 0 || len(e.counts) > 0 || e.adding || n.entries[e.id] != e {
		return
	}
	delete(n.entries, e.id)
	if e.received > 0 {
		n.send(e.id.Owner, Message{Kind: Remove, Object: e.id, Count: e.received})
	}
	n.out = append(n.out, Effect{Kind: Free, Object: e.id})
}
