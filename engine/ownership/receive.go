package ownership

import (
	"fmt"
	"slices"
)

func (n *Node) receive(from NodeID, m Message) error {
	switch m.Kind {
	case Hand:
		for _, o := range m.Objects {
			n.handed(from, n.hold(o))
		}
		return nil
	case Task:
		id := Leased{from, m.Lease}
		if n.taken[id] != nil {
			return fmt.Errorf("%w: node %d uses lease %d twice", ErrProtocol, from, m.Lease)
		}
		for _, o := range m.Objects {
			n.hold(o)
		}
		n.taken[id] = &taken{objects: m.Objects}
		return nil
	case Done:
		return n.done(from, m)
	case Ack:
		return n.unpin(m.Object, from, m.Count)
	case Add:
		e := n.entries[m.Object]
		if m.Object.Owner != n.self || e == nil {
			n.send(from, Message{Kind: Gone, Object: m.Object})
			return nil
		}
		e.counts.add(from, 1)
		n.send(from, Message{Kind: Added, Object: m.Object})
		return nil
	case Added, Gone:
		e := n.entries[m.Object]
		if e == nil || !e.adding || from != m.Object.Owner {
			return fmt.Errorf("%w: node %d answers an ADD of object %v that was not sent", ErrProtocol, from, m.Object)
		}
		n.acknowledge(e)
		if m.Kind == Gone {
			n.lose(e)
			return nil
		}
		n.unawait(e)
		e.adding = false
		e.received++
		n.settle(e)
		return nil
	case Remove:
		e := n.entries[m.Object]
		if e == nil || !e.counts.sub(from, m.Count) {
			return fmt.Errorf("%w: node %d gives back %d registrations of object %v, which it does not have", ErrProtocol, from, m.Count, m.Object)
		}
		n.settle(e)
		return nil
	}
	return fmt.Errorf("%w: node %d sends a message of kind %d", ErrProtocol, from, m.Kind)
}

// handed is for an object that came in a message. Its sender keeps it until this node is registered; if that is the owner, it has counted this node already.
func (n *Node) handed(from NodeID, e *entry) {
	switch {
	case n.dead[e.id.Owner] != 0:
	case from == e.id.Owner:
		e.received++
	case n.registered(e), e.lost:
		n.send(from, Message{Kind: Ack, Object: e.id, Count: 1})
	default:
		e.owed.add(from, 1)
		n.add(e)
	}
}

func (n *Node) acknowledge(e *entry) {
	for _, owed := range e.owed {
		n.send(owed.node, Message{Kind: Ack, Object: e.id, Count: owed.n})
	}
	e.owed = nil
}

// done ends a lease at the node that gave it: pins go, except those of what was kept. If the task had come from elsewhere it ends there as well.
func (n *Node) done(from NodeID, m Message) error {
	l, ok := n.lent[m.Lease]
	if !ok || l.to != from {
		return fmt.Errorf("%w: node %d ends lease %d, which it does not have", ErrProtocol, from, m.Lease)
	}
	delete(n.lent, m.Lease)
	kept := slices.Clone(m.Objects)
	for _, o := range l.objects {
		if i := slices.Index(kept, o); i >= 0 {
			kept = slices.Delete(kept, i, i+1)
			continue
		}
		if err := n.unpin(o, from, 1); err != nil {
			return err
		}
	}
	if l.of != nil {
		if t := n.taken[*l.of]; t != nil {
			n.finish(*l.of, t)
		}
	}
	return nil
}
