package engine

import (
	"fmt"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// dispatch lets start what may: placement groups, then tasks and actors for which resources and a process are free.
func (n *Node) dispatch() {
	n.reschedule = false
	if n.stopping {
		return
	}
	for n.sched.PendingGroups() {
		g := n.sched.PlaceGroup(n.now)
		if g == nil {
			break
		}
		n.groupPlaced(g)
	}
	n.wanting = n.wanting[:0]
	for {
		c, lease := n.sched.Grant(n.now, n.hasWorker)
		if lease == nil {
			break
		}
		t := c.Pop().Value.(*taskState)
		if !t.present() {
			n.sched.Release(c, lease)
			n.waitAgain(t)
			continue
		}
		w := t.t.env.takeIdle()
		n.lease(w, c, lease)
		n.assign(w, t)
	}
	n.grow()
	n.watchPrefetched()
}

// hasWorker says whether an idle process is there for a class; if not, notes that one is wanted.
func (n *Node) hasWorker(c *schedule.Class) bool {
	e := c.Data.(*env)
	if len(e.idle) > 0 {
		return true
	}
	n.wanting = append(n.wanting, c)
	return false
}

func (n *Node) lease(w *worker, c *schedule.Class, l *schedule.Lease) {
	w.class, w.lease = c, l
}

func (n *Node) unlease(w *worker) {
	if w.lease != nil {
		n.sched.Release(w.class, w.lease)
		w.class, w.lease = nil, nil
		n.reschedule = true
	}
}

// assign gives a task, and with it the lease, to a process.
func (n *Node) assign(w *worker, t *taskState) {
	if t.flags&wire.FlagActorCreate != 0 {
		n.actorPlaced(t.actor, w)
		n.sched.Settle(w.class, w.lease)
	}
	n.deliver(w, t)
}

// refillWorkers looks at the processes whose tasks have ended: each goes on with its class's queue, or gives its lease back.
func (n *Node) refillWorkers() {
	todo := n.refill
	n.refill = n.refill[:0]
	for _, w := range todo {
		w.inRefill = false
		if w.dead || w.actor != nil || w.lease == nil {
			continue
		}
		if w.retiring {
			if w.ntasks == 0 {
				n.dismiss(w)
			}
			continue
		}
		if n.sched.MayKeep(w.class, w.lease) {
			n.more(w)
		}
		if w.ntasks == 0 {
			n.unlease(w)
			n.becomeIdle(w)
		}
	}
}

// more sends a process further tasks of its class: one, or several ahead when they are known to be short and to bear running twice.
func (n *Node) more(w *worker) {
	head := w.class.Head().Value.(*taskState)
	want := 1
	if head.t.MaxRetries != 0 && head.t.MaxCalls == 0 && !head.t.Streaming && w.nblocked == 0 {
		want = schedule.Ahead(head.t.mean.Get(), w.class.Len()+w.ntasks, w.class.Leases)
	}
	if w.ntasks > want/2 {
		return
	}
	left := n.store.Capacity() / 16
	for w.ntasks < want {
		it := w.class.Head()
		if it == nil {
			return
		}
		t := it.Value.(*taskState)
		if t.t != head.t {
			if w.ntasks > 0 {
				return
			}
		}
		if w.ntasks > 0 && !n.mayGoAhead(t, &left) {
			return
		}
		w.class.Pop()
		if !t.present() {
			n.waitAgain(t)
			continue
		}
		n.deliver(w, t)
	}
}

// unassign takes a task away from a process that has not been sent it, or has answered.
func (n *Node) unassign(t *taskState) {
	w := t.w
	n.takeFrom(w, t)
	if t.service != nil {
		n.namedEnded(t)
		return
	}
	if w.actor == nil {
		if w.first != nil && w.first.state == task.Sent {
			n.begin(w.first)
		}
		n.wantsMore(w)
	}
}

func (n *Node) wantsMore(w *worker) {
	if !w.inRefill {
		w.inRefill = true
		n.refill = append(n.refill, w)
	}
}

// result is RG_RESULT.
func (n *Node) result(p *peer, num uint64, r *wire.ResultFrame) error {
	var t *taskState
	if u := n.units[num]; u != nil {
		t = u.task
	}
	w := p.worker
	if t == nil || w == nil || t.w != w || t.attempt != r.Attempt {
		return n.discardResult(p, num, r)
	}
	p.flying--
	n.refetch = len(n.fetches) > 0
	w.progress = n.now
	if t.actor == nil || t.flags&wire.FlagActorCreate == 0 {
		t.t.mean.Add(r.ExecNS)
	}
	if ran := time.Duration(r.ExecNS); ran >= 0 && ran < n.now-t.sent {
		t.started = n.now - ran
	}
	n.unassign(t)
	if w.nblocked > 0 { // a task that ended waits for nothing
		n.unblocked(p, num, 0)
		if w.asides[num] > 0 {
			w.asides[num] = 1
			n.unblocked(p, num, wire.FlagAside)
		}
	}
	err := n.answered(p, t, r)
	if err != nil && t.u.task == t && t.w == nil {
		// The connection ends because of this. The task is none of its process's any more, so the end of that would not end it.
		n.fail(t, &sysError{Code: errs.EWORKERDIED, PID: w.pid, Message: fmt.Sprintf("%s failed: its worker process (pid %d) gave an answer that makes no sense, and is ended: %v", n.describe(t), w.pid, err)})
	}
	return err
}

// answered decides what becomes of a task by what its process answered.
func (n *Node) answered(p *peer, t *taskState, r *wire.ResultFrame) error {
	num := t.id
	status := r.Status
	if status == wire.StatusOK && t.stop != nil && t.flags&wire.FlagActorCall != 0 && !t.actor.t.IsAsync {
		status = wire.StatusCanceled // it is not interrupted; a task or coroutine that is and goes on all the same means to
	}
	switch status {
	case wire.StatusRetry:
		if t.retries != 0 && t.stop == nil && (t.actor == nil || t.actor.State == actor.Alive) {
			if err := n.discardResult(p, num, r); err != nil {
				return err
			}
			n.retry(t, true)
			return nil
		}
	case wire.StatusCanceled:
		if err := n.discardResult(p, num, r); err != nil {
			return err
		}
		e := t.stop
		if e == nil {
			e = &sysError{Code: errs.ECANCELED, Message: n.describe(t) + " was cancelled"}
		}
		n.fail(t, e)
		return nil
	case wire.StatusExitActor:
		return n.actorExits(p, t, r)
	}
	state, code := task.Finished, errs.OK
	if r.Status != wire.StatusOK {
		state, code = task.Failed, errs.ETASK
	}
	if t.flags&wire.FlagActorCreate != 0 {
		return n.actorCreated(p, t, r)
	}
	var last value
	at := uint32(0) // the value that has the error: those before it are good
	in := r.Values
	for range r.NValues {
		var v wire.Value
		var err error
		if v, in, err = wire.TakeValue(in); err != nil {
			return err
		}
		val, err := n.take(p, num, v)
		if err != nil {
			return err
		}
		if state == task.Failed {
			last, at = value{state: val.state, isError: true, data: val.data, size: val.size}, v.Index
		}
		n.set(t.u.find(v.Index), val)
	}
	var rest func(*object) value
	if state == task.Failed && r.NValues > 0 { // one error stands for all values
		if last.state == inArena {
			last = (&sysError{Code: errs.ETASK, Message: fmt.Sprintf("%s raised an exception, which is too large to be had twice: get the value at index %d of what the call returned, which has it", n.describe(t), at-1)}).value()
		}
		rest = func(*object) value { return last }
	}
	n.finish(t, state, code, "", rest)
	return nil
}

// discardResult drops the values of a result that nobody takes.
func (n *Node) discardResult(p *peer, num uint64, r *wire.ResultFrame) error {
	in := r.Values
	for range r.NValues {
		v, rest, err := wire.TakeValue(in)
		if err != nil {
			return err
		}
		in = rest
		if err := n.unwanted(p, num, v); err != nil {
			return err
		}
	}
	return nil
}

// returned is RG_RETURN: tasks that a process had been sent and has not begun.
func (n *Node) returned(p *peer, nums []uint64) {
	w := p.worker
	if w == nil {
		return
	}
	w.recalled = false
	for _, num := range nums {
		u := n.units[num]
		if u == nil || u.task == nil || u.task.w != w {
			continue
		}
		t := u.task
		p.flying--
		n.unassign(t)
		if t.stop != nil {
			n.fail(t, t.stop)
			continue
		}
		if k := t.t.MaxCalls; k > 0 && w.calls[t.t] > 0 {
			w.calls[t.t]--
		}
		n.again(t)
	}
	n.reschedule = true
}

// Tasks sent ahead may be stuck behind one that turned out long. As soon as something could run them elsewhere, they are called back.
const recallAfter = 2 * time.Millisecond

func (n *Node) watchPrefetched() {
	if n.ahead == 0 {
		return
	}
	waits := false
	for _, w := range n.workers {
		if w.ntasks < 2 || w.actor != nil || w.recalled || w.class == nil || w.dead {
			continue
		}
		if w.class.Len() > 0 || !n.sched.Fits(w.class) {
			continue
		}
		if n.now-max(w.progress, w.first.started) < recallAfter {
			waits = true
			continue
		}
		w.recalled = true
		w.peer.send(wire.Recall, 0, 0, nil)
	}
	if waits && !n.recallArmed {
		n.recallArmed = true
		n.after(recallAfter, func() {
			n.recallArmed = false
			n.watchPrefetched()
		})
	}
}
