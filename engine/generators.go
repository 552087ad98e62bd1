package engine

import (
	"github.com/raygo/raygo/engine/wire"
)

// firstItem is the index of a generator's first item; index 1 is its end.
const firstItem = 2

// allTaken, in RESUME, lets a generator run on without waiting for a consumer.
const allTaken = 1 << 48

// generator is a task that makes its values one by one.
//
// Its items are held for whoever submitted it until that says it dropped the generator. The producer stops on its own when it is too far ahead
// of what was consumed, so all the engine does is pass the consumer's count on.
type generator struct {
	taken   uint64 // items consumed
	dropped bool
}

// count is what RESUME says.
func (g *generator) count() uint64 {
	if g.dropped {
		return wire.Dropped
	}
	return g.taken
}

// item is RG_ITEM.
func (n *Node) item(p *peer, num uint64, v wire.Value) error {
	u := n.units[num]
	if u == nil || u.task == nil || u.gen == nil || p.worker == nil || u.task.w != p.worker || v.Index < firstItem {
		return n.unwanted(p, num, v)
	}
	val, err := n.take(p, num, v)
	if err != nil {
		return err
	}
	g := u.gen
	p.worker.progress = n.now
	o := u.find(v.Index)
	if o == nil {
		if u.task.rebuild || u.at(v.Index) != nil || g.dropped || u.submitter.gone || uint64(v.Index-firstItem) < g.taken {
			n.discard(val) // nobody will ask for it; or made again by a retry after it was consumed
			return nil
		}
		o = u.object(v.Index)
	}
	if !g.dropped && !u.submitter.gone && !u.task.rebuild {
		n.hold(o, u.submitter)
	}
	n.set(o, val)
	return nil
}

// consumed is RG_CONSUMED.
func (n *Node) consumed(p *peer, num uint64, count uint64) {
	u := n.units[num]
	if u == nil || u.gen == nil || u.submitter != p {
		return
	}
	g := u.gen
	if count == wire.Dropped {
		g.dropped = true
		var items []*object
		for i, o := range u.more {
			if i >= firstItem && uint64(i-firstItem) >= g.taken {
				items = append(items, o)
			}
		}
		for _, o := range items {
			n.letGo(o, p)
		}
	} else {
		g.taken = max(g.taken, count)
	}
	if t := u.task; t != nil && t.rebuild {
		return // it runs for others
	} else if t != nil && t.w != nil {
		t.w.peer.send(wire.Resume, 0, num, wire.AppendUint64(nil, count))
	} else if t != nil && g.dropped {
		n.cancelOne(num, false)
	}
}
