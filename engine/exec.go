package engine

import (
	"fmt"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"
)

// deliver sends a task to a process; after those whose arguments still come from disk.
func (n *Node) deliver(w *worker, t *taskState) {
	t.w = w
	t.sent = n.now
	t.state = task.Sent
	n.giveTo(w, t)
	if t == w.first || w.actor != nil {
		n.begin(t)
	}
	if len(w.held) == 0 && resident(t) {
		n.exec(w, t)
		return
	}
	w.held = append(w.held, t)
	n.fetch(w, t)
}

// begin notes that a task is the one that its process works at.
func (n *Node) begin(t *taskState) {
	t.state = task.Running
	t.started = n.now
}

func resident(t *taskState) bool {
	for _, o := range t.top() {
		if o.state == inArena && !o.entry.Ready() {
			return false
		}
	}
	return true
}

// fetch brings a task's arguments back from disk, when its turn comes: two tasks that each hold a part of their arguments, and wait for room for the
// rest, would wait for each other.
func (n *Node) fetch(w *worker, t *taskState) {
	t.fetching = 1
	n.fetches = append(n.fetches, fetch{w, t, t.attempt})
	n.nextFetch()
}

// fetch is a task whose arguments are to be brought back.
type fetch struct {
	w       *worker
	t       *taskState
	attempt uint32
}

func (f fetch) current() bool { return f.t.w == f.w && f.t.attempt == f.attempt }

// nextFetch lets the next task have its arguments brought back unless one is at it. A task whose arguments do not fit beside what running tasks hold is
// passed: it has its turn when they end.
func (n *Node) nextFetch() {
	for i := 0; i < len(n.fetches) && !n.fetchBusy; {
		f := n.fetches[i]
		if f.current() && !n.roomFor(f.t) {
			i++
			continue
		}
		n.fetches = append(n.fetches[:i], n.fetches[i+1:]...)
		if f.current() {
			n.fetchNow(f)
			i = 0 // what it called may have changed the line
		}
	}
}

// roomFor tells whether it is time to bring a task's arguments back: they fit into the store beside what is pinned, or nobody is at work who will take
// pins back by himself, so that waiting here would have no end. Then the store waits, warns and gives up.
func (n *Node) roomFor(t *taskState) bool {
	all, more := argumentSizes(t)
	if all > n.store.Capacity() {
		t.stop = &sysError{Code: errs.ESTOREFULL, Message: fmt.Sprintf(
			"%s cannot run: its arguments have %d bytes together, more than the object store with its %d. Pass fewer or smaller ones, or references inside a list; or give the store more memory (object_store_memory)",
			n.describe(t), all, n.store.Capacity())}
		return true
	}
	if more <= n.store.Capacity()-n.store.PinnedBytes() {
		return true
	}
	for _, w := range n.workers {
		if w.peer != nil && w.peer.flying > 0 && w.nblocked == 0 && len(w.peer.pins) > 0 {
			return false
		}
	}
	return true
}

// argumentSizes are the bytes of a task's arguments in the store, and of those among them that nobody pins.
func argumentSizes(t *taskState) (all, unpinned int64) {
	seen := make(map[*objectstore.Entry]struct{}, t.ntop)
	for _, o := range t.top() {
		if o.state != inArena {
			continue
		}
		if _, twice := seen[o.entry]; twice {
			continue
		}
		seen[o.entry] = struct{}{}
		all += o.entry.Size()
		if !o.entry.Pinned() {
			unpinned += o.entry.Size()
		}
	}
	return all, unpinned
}

// fetchNow asks for the arguments. The pins it takes last until exec has taken those of the process.
func (n *Node) fetchNow(f fetch) {
	t := f.t
	if t.stop != nil {
		n.fetchedOne(f.w, t)
		return
	}
	n.fetchBusy = true
	left := 1
	one := func() {
		if left--; left == 0 {
			n.fetchBusy = false
		}
		if f.current() {
			n.fetchedOne(f.w, t)
		}
		if left == 0 {
			n.nextFetch()
		}
	}
	for _, o := range t.top() {
		if o.state != inArena {
			continue
		}
		left++
		t.fetching++
		e := o.entry
		n.store.PinFor(objectstore.ForTask, e, func(_ int64, err error) {
			switch {
			case err != nil:
				code, text := storeError(err)
				t.stop = &sysError{Code: code, Message: fmt.Sprintf("%s cannot run: its argument %s cannot be brought back: %s", n.describe(t), n.objectHex(o.oid()), text)}
			case f.current():
				t.fetched = append(t.fetched, e)
			default:
				n.store.Unpin(e)
			}
			one()
		})
	}
	one()
}

// fetchedOne sends the tasks at the head of the line whose arguments are all there.
func (n *Node) fetchedOne(w *worker, t *taskState) {
	t.fetching--
	for len(w.held) > 0 && w.held[0].fetching == 0 {
		t := w.held[0]
		w.held = w.held[1:]
		if e := t.stop; e != nil {
			n.unassign(t)
			n.fail(t, e)
			continue
		}
		n.exec(w, t)
		n.dropFetched(t)
	}
}

func (n *Node) dropFetched(t *taskState) {
	for _, e := range t.fetched {
		n.store.Unpin(e)
	}
	t.fetched = nil
}

// exec writes RG_EXEC.
func (n *Node) exec(w *worker, t *taskState) {
	p := w.peer
	if !w.learn(t.t) {
		p.send(wire.TemplateDef, 0, uint64(t.t.num), t.t.raw)
	}
	x := wire.ExecFrame{
		Template: t.t.num, NReturns: t.nreturns, Parent: t.parent, NTop: uint32(t.ntop), Attempt: t.attempt, Args: t.args, RetriesLeft: uint32(t.retries),
	}
	if t.retries == actor.Unlimited {
		x.RetriesLeft = ^uint32(0)
	}
	if t.actor != nil {
		x.Actor = t.actor.id
	}
	flags := t.flags & (wire.FlagActorCall | wire.FlagActorCreate | wire.FlagStreaming)
	if w.lease != nil {
		if x.Context = n.execContext(w, t); x.Context != nil {
			flags |= wire.FlagHasContext
		}
	}
	b := p.frame()
	start := len(b)
	b = wire.Begin(b, wire.Exec, flags, t.id)
	b = wire.AppendExecHead(b, &x)
	for _, o := range t.top() {
		b = wire.AppendOID(b, o.oid())
		offset := uint64(wire.NoOffset)
		if o.state == inArena {
			n.store.Pin(o.entry, func(off int64, _ error) { offset = uint64(off) }) // at once: it is resident
			n.notePin(p, o.oid(), o.entry)
		}
		b = o.appendValue(b, offset)
	}
	b = append(b, x.Args...)
	b = wire.Pad(b, start)
	b = append(b, x.Context...)
	p.done(wire.End(b, start))
	if g := t.u.gen; g != nil && (g.taken > 0 || g.dropped) {
		p.send(wire.Resume, 0, t.id, wire.AppendUint64(nil, g.count())) // the run before this one was told, or nobody yet
	}
	p.flying++
	p.fresh++
	if k := t.t.MaxCalls; k > 0 {
		if w.calls == nil {
			w.calls = map[*template]int{}
		}
		if w.calls[t.t]++; w.calls[t.t] >= k {
			w.retiring = true
		}
	}
}

// execContext says what the template does not: which GPUs, and which bundle.
func (n *Node) execContext(w *worker, t *taskState) []byte {
	shares := w.lease.GPUs()
	if len(shares) == 0 && t.t.group == 0 {
		return nil
	}
	m := map[string]any{"name": t.t.Name, "resources": w.lease.Resources().Floats()}
	if len(shares) > 0 {
		gpus := make([]string, len(shares))
		for i, s := range shares {
			gpus[i] = n.opts.GPUIDs[s.Index]
		}
		m["gpus"] = gpus
	}
	if g := n.sched.Group(t.t.group); g != nil {
		m["pg"], m["capture"] = g.ID, t.t.Strategy.Capture
		for i := range g.Bundles {
			if g.State == schedule.Placed && w.lease.InPool(g.Pool(i)) {
				m["bundle"] = i
			}
		}
	}
	return pack(m)
}
