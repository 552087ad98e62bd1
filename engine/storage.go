package engine

import (
	"errors"
	"fmt"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"
)

// storeError gives an error of the store its code. Its text has both sizes already.
func storeError(err error) (errs.Code, string) {
	switch {
	case errors.Is(err, objectstore.ErrFull):
		return errs.ESTOREFULL, err.Error()
	case errors.Is(err, objectstore.ErrDisk):
		return errs.EOUTOFDISK, err.Error()
	case errors.Is(err, objectstore.ErrClosed):
		return errs.ESHUTDOWN, err.Error()
	}
	return errs.EOBJECTLOST, err.Error()
}

// storeIsTight is told of requests for room that wait long.
func (n *Node) storeIsTight(w objectstore.Waiting) {
	n.warn(nil, fmt.Sprintf("The object store is full: %s (%d bytes) waits for room since %.0f s. %s", w.Label, w.Size, w.For.Seconds(), w.Holdings))
}

// create answers RG_CREATE, perhaps only when room has been made.
func (n *Node) create(p *peer, num uint64, c wire.CreateFrame, lease bool) error {
	oid := wire.OID{Task: num, Index: c.Index}
	if p.created[oid] != nil {
		return errs.New(errs.EINVAL, "space for object %v was made before", oid)
	}
	p.asking++
	p.asked = c.Size
	answer := func(e *objectstore.Entry, err error) {
		p.asking--
		if p.gone || p.created[oid] != nil { // or it asked twice before there was room
			if e != nil {
				n.store.Delete(e)
			}
			return
		}
		r := wire.CreatedFrame{Index: c.Index}
		if err != nil {
			code, text := storeError(err)
			r.Status, r.Message = uint32(code), text
		} else {
			if p.created == nil {
				p.created = map[wire.OID]*objectstore.Entry{}
			}
			p.created[oid] = e
			r.Offset, r.File, r.Generation = uint64(e.Offset()), fileOf(e), n.store.Generation()
			if lease {
				n.grant(p, oid, e, &r)
			}
		}
		p.done(wire.AppendCreated(p.frame(), num, r))
	}
	if c.Size > 1<<62 {
		return errs.New(errs.EINVAL, "object %v cannot have %d bytes", oid, c.Size)
	}
	n.store.Create(int64(c.Size), n.labelOf(p, oid), answer)
	return nil
}

// leased is whose a lease is.
type leased struct {
	p   *peer
	oid wire.OID
}

// grant has the process that makes an object pin it without asking.
func (n *Node) grant(p *peer, oid wire.OID, e *objectstore.Entry, r *wire.CreatedFrame) {
	if l, ok := n.store.Grant(e, leased{p, oid}); ok {
		p.leases++
		r.Lease, r.LeaseGen, r.LeaseFile = l.Index+1, l.Generation, uint32(n.store.LeaseFile())+1
	}
}

// leaseCalledIn notes a pin that a process took without asking.
func (n *Node) leaseCalledIn(e *objectstore.Entry, owner any) {
	l := owner.(leased)
	n.notePin(l.p, l.oid, n.units[l.oid.Task], e)
}

// dropLeases is for a process whose connection has ended.
func (n *Node) dropLeases(p *peer) {
	if p.leases > 0 {
		n.store.DropLeases(func(owner any) bool { return owner.(leased).p == p })
	}
}

// fileOf is what frames say about where an entry lies: 0 in the arena, else 1 + the descriptor of the file.
func fileOf(e *objectstore.Entry) uint32 {
	if fd, ok := e.File(); ok {
		return uint32(fd) + 1
	}
	return 0
}

// labelOf says for the store's own messages what an object is.
func (n *Node) labelOf(p *peer, oid wire.OID) string {
	if u := n.units[oid.Task]; u != nil && u.task != nil {
		return fmt.Sprintf("value %d of task %s", oid.Index, u.task.t.Name)
	}
	return fmt.Sprintf("an object put by the %s with pid %d", p.role, p.pid)
}

// unwanted gives up the space of a value that arrived and that nobody takes.
func (n *Node) unwanted(p *peer, num uint64, v wire.Value) error {
	switch {
	case v.Kind != wire.Arena:
	case v.Offset != wire.NoOffset:
		return n.chunkBack(p, v.Offset, v.Len)
	default:
		n.abort(p, wire.OID{Task: num, Index: v.Index})
	}
	return nil
}

func (n *Node) abort(p *peer, oid wire.OID) {
	if e := p.created[oid]; e != nil {
		delete(p.created, oid)
		n.store.Delete(e)
	}
}

// put makes an object of a value that arrived: RG_PUT and RG_SEAL.
func (n *Node) put(p *peer, num uint64, v wire.Value) error {
	if u := n.units[num]; u != nil && u.task != nil {
		// SEAL ahead of the task's own RESULT or ITEM only says that the bytes are there; the value comes with those.
		return nil
	}
	if n.units[num] != nil && v.Index == 0 {
		return errs.New(errs.EINVAL, "number %x was used before", num)
	}
	if v.Index != 0 {
		return errs.New(errs.EINVAL, "object %x.%d belongs to a task that does not run", num, v.Index)
	}
	val, err := n.take(p, num, v)
	if err != nil {
		return err
	}
	if p.worker != nil && p.worker.actor != nil {
		val.maker = p.worker
	}
	u := n.unit(num, p.job, p)
	u.by = p.running()
	o := u.object(0)
	n.hold(o, p)
	n.set(o, val)
	return nil
}

// pinFor sends an object with its place, one pin more for the peer. What was spilled comes back first.
func (n *Node) pinFor(p *peer, o *object) {
	if p.gone {
		return
	}
	if o.state != inArena {
		n.sendObject(p, o, wire.NoOffset)
		return
	}
	n.need(o) // it must not be freed while it is restored
	entry := o.entry
	n.store.Pin(entry, func(off int64, err error) {
		switch {
		case isLoss(err):
			n.lost(o, entry, err)
			if !p.gone {
				n.subscribe(p, o.oid(), true)
			}
		case err != nil:
			code, text := storeError(err)
			e := &sysError{Code: code, Message: fmt.Sprintf("object %s cannot be brought back: %s", n.objectHex(o.oid()), text), Object: []uint64{o.u.num, uint64(o.index)}}
			if !p.gone {
				b := p.frame()
				start := len(b)
				b = wire.Begin(b, wire.Object, 0, o.u.num)
				b = wire.AppendValue(b, wire.Value{Index: o.index, Kind: wire.SysErr, IsError: true, Data: e.encode()})
				p.done(wire.End(b, start))
			}
		case p.gone:
			n.store.Unpin(entry)
		default:
			n.notePin(p, o.oid(), o.u, entry)
			n.sendObject(p, o, uint64(off))
		}
		n.unneed(o)
	})
}

func (n *Node) notePin(p *peer, oid wire.OID, u *unit, e *objectstore.Entry) {
	if p.pins == nil {
		p.pins = map[wire.OID]*pinned{}
	}
	k := p.pins[oid]
	if k == nil {
		k = &pinned{entry: e, u: u}
		p.pins[oid] = k
	}
	k.n++
}

func (n *Node) unpin(p *peer, oid wire.OID) {
	k := p.pins[oid]
	if k == nil {
		return
	}
	k.n--
	n.store.Unpin(k.entry)
	if k.n == 0 {
		n.refetch = len(n.fetches) > 0
		delete(p.pins, oid)
	}
}

func (n *Node) dropPins(p *peer) {
	for _, k := range p.pins {
		for range k.n {
			n.store.Unpin(k.entry)
		}
	}
	p.pins = nil
	n.refetch = len(n.fetches) > 0
}
