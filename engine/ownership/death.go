package ownership

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// died closes the link to a dead node. What was counted for it or pinned towards it stays until Purge, for it may have handed the object on, and whoever has it
// from there is still registering. This node has flushed when it has registered all that the dead node covered here.
func (n *Node) died(d Dead) error {
	if d.Epoch != n.epoch+1 || d.Node == n.self || n.dead[d.Node] != 0 {
		return fmt.Errorf("%w: death %d, of node %d, follows death %d", ErrProtocol, d.Epoch, d.Node, n.epoch)
	}
	n.epoch = d.Epoch
	n.dead[d.Node] = d.Epoch
	for _, lease := range slices.Sorted(maps.Keys(n.lent)) {
		l := n.lent[lease]
		if l.to != d.Node {
			continue
		}
		delete(n.lent, lease)
		if l.of != nil {
			if t := n.taken[*l.of]; t != nil {
				t.passed = false
			}
		}
		n.out = append(n.out, Effect{Kind: Orphaned, Node: l.to, Lease: lease})
	}
	for _, e := range n.sorted() {
		if e.id.Owner == d.Node {
			n.lose(e)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(n.taken), compareLeased) {
		if id.From != d.Node {
			continue
		}
		for _, o := range n.taken[id].objects {
			if e := n.entries[o]; !e.lost && !n.registered(e) {
				n.add(e)
			}
		}
	}
	for _, e := range n.entries {
		if e.adding && !e.awaited {
			e.awaited = true
			n.awaited++
		}
	}
	return nil
}

// lose is for an object whose owner is dead, so that nobody counts any more, or has lost it.
func (n *Node) lose(e *entry) {
	e.lost, e.adding, e.received, e.owed = true, false, 0, nil
	if n.dead[e.id.Owner] != 0 {
		e.pins = nil
	}
	n.unawait(e)
	if e.handles > 0 {
		n.out = append(n.out, Effect{Kind: Lost, Object: e.id})
	}
	n.settle(e)
}

func (n *Node) unawait(e *entry) {
	if e.awaited {
		e.awaited = false
		n.awaited--
	}
}

// flush reports once nothing is outstanding that was when the last death was heard of. Adds begun since do not matter: those who handed them on are alive and pin.
func (n *Node) flush() {
	if n.flushed < n.epoch && n.awaited == 0 {
		n.flushed = n.epoch
		n.out = append(n.out, Effect{Kind: Flushed, Epoch: n.epoch})
	}
}

func (n *Node) purge(epoch uint32) {
	for _, e := range n.sorted() {
		for node, died := range n.dead {
			if died <= epoch {
				e.counts.forget(node)
				e.pins.forget(node)
			}
		}
		n.settle(e)
	}
}

// sorted is for the rare walks over all, whose messages should not come in another order each time.
func (n *Node) sorted() []*entry {
	return slices.SortedFunc(maps.Values(n.entries), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.id.Owner, b.id.Owner), cmp.Compare(a.id.Task, b.id.Task), cmp.Compare(a.id.Index, b.id.Index))
	})
}

func compareLeased(a, b Leased) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Lease, b.Lease))
}
