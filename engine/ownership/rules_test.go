package ownership

// rules are how a wrong protocol differs from the right one. They change messages and nodes from outside, so that the right one need not know of them.
type rules struct {
	sets       bool // the owner keeps a set of borrowers in place of counts
	noPins     bool // a borrower hands on without a pin
	bareValues bool // a borrower hands on without a pin what stands in a value: the value holds it
	hasty      bool // the head purges as soon as it announces a death
	oneByOne   bool // the head purges a node when all have flushed for that one, whoever else has died
	unpinDead  bool // pins toward a dead node go at once
	forgetKept bool // what a task kept is not pinned beyond its end
	deafToDead bool // arguments from a submitter that died are not registered
	passForget bool // whoever passes a task on is done with it
	removeOne  bool // REMOVE takes one registration back, however many there were
	deafToLoss bool // a borrower does not learn that the owner died
}

// after changes a node as a wrong protocol would have left it.
func (r *rules) after(n *Node, e Event, value bool) {
	if r.sets {
		for _, x := range n.entries {
			for i := range x.counts {
				x.counts[i].n = 1
			}
		}
	}
	if g, ok := e.(Give); ok && (r.noPins || r.bareValues && value) {
		for _, o := range g.Objects {
			n.entries[o].pins.forget(g.To)
		}
	}
	if d, ok := e.(Dead); ok && r.unpinDead {
		for _, x := range n.sorted() {
			x.pins.forget(d.Node)
			n.settle(x)
		}
	}
	if s, ok := e.(Submit); ok && s.For != nil && r.passForget {
		t := n.taken[*s.For]
		delete(n.taken, *s.For)
		for _, o := range t.objects {
			x := n.entries[o]
			x.handles--
			x.pins.forget(s.To)
			n.settle(x)
		}
		n.lent[s.Lease] = lent{s.To, nil, nil}
		n.send(s.For.From, Message{Kind: Done, Lease: s.For.Lease})
	}
}

// before changes a message, or swallows it, as a wrong protocol would.
func (r *rules) before(n *Node, from NodeID, m Message) (Message, bool) {
	e := n.entries[m.Object]
	switch {
	case m.Kind == Ack && (r.noPins || r.bareValues || r.unpinDead || r.forgetKept):
		if e == nil || e.pins.of(from) == 0 {
			return m, false
		}
		m.Count = min(m.Count, e.pins.of(from))
	case m.Kind == Remove && r.sets:
		if e == nil || e.counts.of(from) == 0 {
			return m, false
		}
		m.Count = 1
	case m.Kind == Remove && r.removeOne:
		m.Count = 1
	case m.Kind == Done && r.forgetKept:
		m.Objects = nil
	}
	return m, true
}

// hear steps a node that learns of a death.
func (r *rules) hear(d Dead, n *Node, step func() error) error {
	var covered []*entry
	for id, t := range n.taken {
		for _, o := range t.objects {
			if e := n.entries[o]; r.deafToDead && id.From == d.Node && !e.adding && !n.registered(e) && o.Owner != d.Node {
				e.adding, e.awaited = true, true
				covered = append(covered, e)
			}
		}
	}
	err := step()
	for _, e := range covered {
		e.adding, e.awaited = false, false
	}
	for _, e := range n.entries {
		e.lost = e.lost && !r.deafToLoss
	}
	return err
}

// oneByOne is the head's part of that rule.
func (h *Head) oneByOne(node NodeID, epoch uint32) []Word {
	h.flushed[node] = epoch
	least := epoch
	for _, f := range h.flushed {
		least = min(least, f)
	}
	if least <= h.purged {
		return nil
	}
	h.purged = least
	return h.tell(Purge{least})
}
