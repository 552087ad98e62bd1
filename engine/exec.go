package engine

import (
	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// deliver sends a task to a process; after those whose arguments still come from disk, or are not let in yet.
func (n *Node) deliver(w *worker, t *taskState) {
	t.w = w
	t.sent = n.now
	t.state = task.Sent
	n.giveTo(w, t)
	if !n.memory.looking {
		n.watchMemory()
	}
	if t == w.first || w.actor != nil {
		n.begin(t)
	}
	if len(w.held) == 0 && n.admitted(t) {
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
			n.notePin(p, o.oid(), o.u, o.entry)
		}
		b = o.appendValue(b, offset)
	}
	b = append(b, x.Args...)
	b = wire.Pad(b, start)
	b = append(b, x.Context...)
	p.done(wire.End(b, start))
	if g := t.u.gen; g != nil && t.rebuild {
		p.send(wire.Resume, 0, t.id, wire.AppendUint64(nil, allTaken)) // nobody takes what it yields but what is missing
	} else if g != nil && (g.taken > 0 || g.dropped) {
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
			gpus[i] = n.opts.gpuIDs[s.Index]
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
