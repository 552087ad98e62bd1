package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/ownership"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"
)

// unit is all that goes by one number: a task and its values, a put, an actor and its handle, a placement group and its readiness.
// It is in n.units as long as its task runs or one of its objects lives.
type unit struct {
	num       uint64
	job       *job
	submitter *peer     // who made it, and is told of its values without asking
	by        *template // what made its objects: the task, the actor, or what ran where it was put; nil: a driver's own code
	made      time.Duration
	task      *taskState // until it has ended for good
	gen       *generator
	first     object // most units have one
	more      map[uint32]*object
	live      int32    // objects
	stored    int32    // of these, in the store: they can be lost
	wanted    int32    // how often kept lineages want one of its objects
	lineage   *lineage // of a task that has ended and whose values may be lost, or be wanted to make others again
}

type objectState uint8

const (
	absent  objectState = iota // or freed
	dormant                    // freed, and wanted by a kept lineage: it can come back
	pending
	inline
	inArena
	sysErr
)

// object is one value. It goes when no process holds it and nothing needs it: no task, no value that contains it, no template.
type object struct {
	ownership.Refs[*peer, *object]
	u       *unit
	index   uint32
	state   objectState
	isError bool
	lost    bool               // pending, and it had a value before
	was     objectState        // dormant: what it was
	wanted  int32              // by kept lineages, which need the way to it and not its value
	data    []byte             // inline, sysErr
	entry   *objectstore.Entry // inArena
	size    uint64
	waiters []waiter
	maker   *worker // an actor's process that put it: the value dies with that
}

// waiter is who is told when the value is there.
type waiter struct {
	t    *taskState
	p    *peer
	pin  bool
	wait uint64 // as what the wait stands in p.worker.waits; 0: it does not
}

func (o *object) oid() wire.OID { return wire.OID{Task: o.u.num, Index: o.index} }

func (n *Node) unit(num uint64, j *job, submitter *peer) *unit {
	u := &unit{num: num, job: j, submitter: submitter, made: n.now}
	n.units[num] = u
	return u
}

// object makes the object with the index.
func (u *unit) object(index uint32) *object {
	o := &u.first
	if u.first.u != nil {
		o = &object{}
		if u.more == nil {
			u.more = map[uint32]*object{}
		}
		u.more[index] = o
	}
	o.u, o.index, o.state = u, index, pending
	u.live++
	return o
}

func (u *unit) find(index uint32) *object {
	if o := u.at(index); o != nil && o.state > dormant {
		return o
	}
	return nil
}

// at is find that also finds what is dormant.
func (u *unit) at(index uint32) *object {
	if u.first.index == index && u.first.u != nil {
		if u.first.state == absent {
			return nil
		}
		return &u.first
	}
	return u.more[index]
}

// find returns a living object; nil when it is not there any more, or never was.
func (n *Node) find(o wire.OID) *object {
	u := n.units[o.Task]
	if u == nil {
		return nil
	}
	if found := u.find(o.Index); found != nil {
		return found
	}
	if u.gen != nil && o.Index >= firstItem && u.at(o.Index) == nil {
		return u.object(o.Index) // an item that is not made yet; whoever asks is about to hold it or to wait for it
	}
	return nil
}

func (n *Node) hold(o *object, p *peer) {
	if o.Hold(p) && p.role == roleWorker {
		if p.held == nil {
			p.held = map[*object]struct{}{}
		}
		p.held[o] = struct{}{}
	}
}

func (n *Node) letGo(o *object, p *peer) {
	if !o.LetGo(p) {
		return
	}
	if p.held != nil {
		delete(p.held, o)
	}
	if p.sites != nil {
		if o.entry != nil {
			n.store.CallIn(o.entry) // what is still read keeps its site
		}
		p.dropSite(o.oid())
	}
	n.maybeFree(o)
}

func (n *Node) need(o *object) { o.Need() }

func (n *Node) unneed(o *object) {
	o.Unneed()
	n.maybeFree(o)
}

// dropHeld lets go of all that a process held. Tasks that a worker started, and whose values nobody else wants, end with it: when their parent
// runs again it starts its own, and a few deaths would otherwise leave a crowd of them.
func (n *Node) dropHeld(p *peer) {
	if p.role == roleWorker {
		var started []*taskState
		for o := range p.held {
			if t := o.u.task; t != nil && o.u.submitter == p && t.flags&(wire.FlagActorCall|wire.FlagActorCreate) == 0 {
				started = append(started, t)
			}
			n.letGo(o, p)
		}
		n.endOrphans(p, started)
		return
	}
	var held []*object // letting go changes the table
	for _, u := range n.units {
		if u.first.u != nil && u.first.HeldBy(p) {
			held = append(held, &u.first)
		}
		for _, o := range u.more {
			if o.HeldBy(p) {
				held = append(held, o)
			}
		}
	}
	for _, o := range held {
		n.letGo(o, p)
	}
}

// endOrphans ends those of a dead process's tasks that have lost their last reference.
func (n *Node) endOrphans(p *peer, started []*taskState) {
	if n.stopping {
		return
	}
	slices.SortFunc(started, func(a, b *taskState) int { return cmp.Compare(b.id, a.id) }) // who takes a value goes before who makes it
	for _, t := range started {
		if t.u.task == t && t.u.live == 0 {
			n.endTask(t, &sysError{Code: errs.ECANCELED, Message: fmt.Sprintf("%s was cancelled because the process that started it (pid %d) is dead and nobody else has a reference to its value", n.describe(t), p.pid)}, true)
		}
	}
}

// maybeFree frees an object that nobody wants any more, and what that sets free in turn.
func (n *Node) maybeFree(o *object) {
	if !o.Wanted() && o.state > dormant {
		n.refs.Settle(o)
	}
}

// free lets go of an object that nobody wants any more. A kept lineage wants the value only of what was put, which no task makes again.
func (n *Node) free(o *object) {
	if o.state <= dormant || o.wanted > 0 && o.index == 0 && o.entry != nil {
		return
	}
	u, waiters := o.u, o.waiters
	wasPending := o.state == pending
	if o.maker != nil {
		delete(o.maker.puts, o)
	}
	if o.lost {
		n.foundAgain(o)
	}
	n.dropEntry(o)
	o.waiters, o.maker = nil, nil
	u.live--
	if o.wanted > 0 {
		n.lull(o)
	} else {
		n.refs.Empty(o)
		o.state, o.data = absent, nil
		if o != &u.first {
			delete(u.more, o.index)
		}
		if u.lineage != nil {
			n.maybeDropLineage(u)
		}
	}
	for _, w := range waiters {
		if w.p != nil {
			n.waitEnded(w)
			n.sendFreed(w.p, wire.OID{Task: u.num, Index: o.index})
		}
	}
	if o.index == 0 && !wasPending {
		if a := n.actors[u.num]; a != nil && a.handle == o {
			a.handle = nil
			n.handlesGone(a)
		}
	}
	n.maybeForget(u)
}

func (n *Node) maybeForget(u *unit) {
	if u.live == 0 && u.task == nil && n.units[u.num] == u {
		delete(n.units, u.num)
	}
}

// value is what an object gets.
type value struct {
	state   objectState
	isError bool
	data    []byte // owned
	entry   *objectstore.Entry
	size    uint64
	refs    []*object
	maker   *worker
}

// take makes a value out of one that arrived in a frame. Space in the arena that the sender had created becomes the value's.
func (n *Node) take(p *peer, task uint64, v wire.Value) (value, error) {
	out := value{isError: v.IsError, size: v.Len}
	switch v.Kind {
	case wire.Arena:
		oid := wire.OID{Task: task, Index: v.Index}
		if v.Offset != wire.NoOffset {
			e, err := n.carve(p, oid, v)
			if err != nil {
				return out, err
			}
			out.state, out.entry = inArena, e
			break
		}
		e := p.created[oid]
		if e == nil {
			return out, errs.New(errs.EINVAL, "object %v is said to be in the arena, where no space was made for it", oid)
		}
		if v.Len > uint64(e.Size()) {
			return out, errs.New(errs.EINVAL, "object %v has %d bytes in a space of %d", oid, v.Len, e.Size())
		}
		delete(p.created, oid)
		e.Seal()
		out.state, out.entry = inArena, e
	case wire.Inline:
		out.state, out.data = inline, append([]byte(nil), v.Data...)
	default:
		out.state, out.data = sysErr, append([]byte(nil), v.Data...)
	}
	if k := v.Refs.Len(); k > 0 {
		out.refs = make([]*object, 0, k)
		for i := range k {
			if o := n.find(v.Refs.At(i)); o != nil { // one that is gone shows itself to whoever asks for it
				out.refs = append(out.refs, o)
				n.need(o)
			}
		}
	}
	return out, nil
}

// discard drops a value that no object takes.
func (n *Node) discard(v value) {
	if v.entry != nil {
		n.store.Delete(v.entry)
	}
	for _, r := range v.refs {
		n.unneed(r)
	}
}

// set gives an object its value and tells all who wait. o may be nil: then nobody wants it.
func (n *Node) set(o *object, v value) {
	if o == nil || o.state != pending {
		n.discard(v)
		return
	}
	if o.lost {
		n.foundAgain(o)
	}
	o.state, o.isError, o.data, o.entry, o.size = v.state, v.isError, v.data, v.entry, v.size
	if v.state == inArena {
		o.u.stored++
	}
	n.refs.Fill(o, v.refs)
	if v.maker != nil {
		o.maker = v.maker
		v.maker.puts[o] = struct{}{}
	}
	told := o.u.submitter
	if told != nil && !told.gone && o.index != 0 && o.index < o.u.pushed() && o.HeldBy(told) {
		n.sendObject(told, o, wire.NoOffset)
	} else {
		told = nil
	}
	waiters := o.waiters
	o.waiters = nil
	for _, w := range waiters {
		switch {
		case w.t != nil:
			n.argReady(w.t)
		case w.pin:
			n.waitEnded(w)
			n.pinFor(w.p, o)
		case w.p != told && !w.p.gone:
			n.sendObject(w.p, o, wire.NoOffset)
		}
	}
	n.maybeFree(o)
}

// pushed is the first index that is not sent to the submitter unasked: a generator's consumer asks for its items.
func (u *unit) pushed() uint32 {
	if u.gen != nil {
		return firstItem
	}
	return ^uint32(0)
}

// lose replaces a value that cannot be had any more.
func (n *Node) lose(o *object, e *sysError) {
	if o.state <= pending {
		return
	}
	n.dropEntry(o)
	n.refs.Empty(o)
	if o.maker != nil {
		delete(o.maker.puts, o)
	}
	o.state, o.isError, o.maker = sysErr, true, nil
	e.Object = []uint64{o.u.num, uint64(o.index)}
	o.data = e.encode()
	o.size = uint64(len(o.data))
	for p := range o.Holders() {
		n.sendObject(p, o, wire.NoOffset)
	}
	n.maybeDropLineage(o.u)
}

// appendValue appends the object's value as it stands in OBJECT and EXEC.
func (o *object) appendValue(b []byte, offset uint64) []byte {
	switch o.state {
	case inArena:
		file := uint32(0)
		if offset != wire.NoOffset {
			file = fileOf(o.entry)
		}
		return wire.AppendPlace(b, o.index, o.isError, o.size, offset, file)
	case sysErr:
		return wire.AppendValue(b, wire.Value{Index: o.index, Kind: wire.SysErr, IsError: true, Data: o.data})
	}
	return wire.AppendValue(b, wire.Value{Index: o.index, Kind: wire.Inline, IsError: o.isError, Data: o.data})
}

func (n *Node) sendObject(p *peer, o *object, offset uint64) {
	if p.gone {
		return
	}
	b := p.frame()
	start := len(b)
	b = wire.Begin(b, wire.Object, 0, o.u.num)
	b = o.appendValue(b, offset)
	p.done(wire.End(b, start))
}

func (n *Node) sendFreed(p *peer, oid wire.OID) {
	if p.gone {
		return
	}
	e := &sysError{
		Code:    errs.EREFFREED,
		Message: "object " + n.objectHex(oid) + " was already freed: every reference to it had been dropped; keep a reference for as long as the value is wanted",
		Object:  []uint64{oid.Task, uint64(oid.Index)},
	}
	b := p.frame()
	start := len(b)
	b = wire.Begin(b, wire.Object, 0, oid.Task)
	b = wire.AppendValue(b, wire.Value{Index: oid.Index, Kind: wire.SysErr, IsError: true, Data: e.encode()})
	p.done(wire.End(b, start))
}

// subscribe sends an object's value as soon as it is there.
func (n *Node) subscribe(p *peer, oid wire.OID, pin bool) {
	o := n.find(oid)
	switch {
	case o == nil:
		n.sendFreed(p, oid)
	case o.state == pending && pin:
		n.awaitPin(p, o)
	case o.state == pending:
		o.waiters = append(o.waiters, waiter{p: p})
	case pin:
		n.pinFor(p, o)
	default:
		n.sendObject(p, o, wire.NoOffset)
	}
}
