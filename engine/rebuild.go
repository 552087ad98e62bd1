package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"

	"github.com/vmihailenco/msgpack/v5"
)

// loss is how a value that had been there came to be missing.
type loss struct {
	cause   string
	attempt uint32 // of its task: the run that made it
}

// miss makes an object one that is waited for again.
func (n *Node) miss(o *object, cause string) {
	o.state, o.isError, o.lost = pending, false, true
	if n.losses == nil {
		n.losses = map[*object]loss{}
	}
	x := loss{cause: cause}
	switch u := o.u; {
	case u.task != nil:
		x.attempt = u.task.attempt
	case u.lineage != nil:
		x.attempt = u.lineage.t.attempt
	}
	n.losses[o] = x
}

// foundAgain is called when a missing object gets a value, or is wanted by nobody any more.
func (n *Node) foundAgain(o *object) {
	o.lost = false
	delete(n.losses, o)
}

// dropEntry gives up an object's place in the store.
func (n *Node) dropEntry(o *object) {
	if o.entry != nil {
		n.store.Delete(o.entry)
		o.entry = nil
		o.u.stored--
	}
}

// isLoss says whether an error of the store means that the value is gone, and not only that it cannot be had now.
func isLoss(err error) bool { return errors.Is(err, objectstore.ErrLost) }

// lost is called when the store could not bring a value back: it is made again by running its task, or becomes an error that says why it cannot. All that
// wait for the same entry are told one after the other; the first sees to it.
func (n *Node) lost(o *object, e *objectstore.Entry, err error) {
	if o.entry != e {
		return
	}
	n.logf("object %s (%d bytes) is lost: %v", n.objectHex(o.oid()), o.size, err)
	n.counts.lost++
	n.dropEntry(o)
	contents := o.Contents()
	n.refs.Fill(o, nil)
	cause := err
	if inner := errors.Unwrap(err); inner != nil {
		cause = inner // without the store's name for the object
	}
	n.miss(o, cause.Error())
	n.rebuild(o.u)
	for _, r := range contents {
		n.unneed(r)
	}
}

// rebuild has the task of a unit run again in which objects are missing. One run makes all of them. Its arguments may be missing too.
func (n *Node) rebuild(u *unit) {
	n.toRebuild.add(func(u *unit) {
		// A task that runs already gives its values when it ends; finish looks at what is still missing then.
		if u.task == nil && len(u.missing()) > 0 && !n.runAgain(u) {
			for _, o := range u.missing() {
				n.set(o, n.lossError(o, "").value())
			}
			n.maybeDropLineage(u)
		}
	}, u)
}

// missing are the objects of a unit that had a value and wait for it again, in their order.
func (u *unit) missing() []*object {
	var all []*object
	if u.first.lost {
		all = append(all, &u.first)
	}
	for _, o := range u.more {
		if o.lost {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *object) int { return int(a.index) - int(b.index) })
	return all
}

// runAgain starts a task again that had ended. False: it cannot be, and its lineage says why.
func (n *Node) runAgain(u *unit) bool {
	l := u.lineage
	if l == nil || l.why != noReason {
		return false
	}
	old := l.t
	switch {
	case n.stopping || old.job.driver == nil && !n.jobLives(old.job):
		n.giveUp(l, jobEnded)
		return false
	case old.actor != nil && old.actor.State == actor.Dead:
		n.giveUp(l, actorIsDead)
		return false
	}
	n.kept.remove(l)
	// A task of its own: what still points at the one that ended must not take this one for it.
	t := &taskState{
		id: old.id, t: old.t, u: u, job: old.job, actor: old.actor, parent: old.parent, flags: old.flags, detached: old.detached, nreturns: old.nreturns,
		attempt: old.attempt + 1, retries: old.retries, args: old.args, deps: old.deps, ntop: old.ntop, created: n.now, hasty: true, rebuild: true,
	}
	if t.retries > 0 {
		t.retries--
	}
	t.item.Value, t.call.Value = t, t
	l.t = t
	u.task = t
	n.units[u.num] = u
	if t.parent != 0 {
		n.children++
	}
	n.counts.rebuilt++
	n.logf("%s runs again, attempt %d, for a value of it is lost", n.describe(t), t.attempt)
	for _, o := range t.deps {
		n.revive(o)
		n.need(o)
		o.wanted--
		o.u.wanted--
	}
	failed := n.awaitArgs(t)
	switch {
	case t.waiting > 0 && t.flags&wire.FlagActorCall != 0:
		t.actor.Box(t.t.Group).Add(&t.call, uint64(u.submitter.num), false)
	case t.waiting > 0:
	case failed || t.flags&wire.FlagActorCall == 0:
		n.argsReady(t)
	default:
		t.state = task.Queued
		box := t.actor.Box(t.t.Group)
		box.Add(&t.call, uint64(u.submitter.num), true)
		n.pumpBox(t.actor, box)
	}
	return true
}

// awaitArgs has a task wait for those of its arguments that are not there, and says whether one is an error.
func (n *Node) awaitArgs(t *taskState) (failed bool) {
	t.state, t.waiting = task.WaitingForArgs, 0
	for _, o := range t.top() {
		if o.state == pending {
			o.waiters = append(o.waiters, waiter{t: t})
			t.waiting++
		}
		failed = failed || o.isError
	}
	return failed
}

// present says whether a task's arguments are all there still: one may have been lost while the task was queued.
func (t *taskState) present() bool {
	for _, o := range t.top() {
		if o.state == pending || o.isError {
			return false
		}
	}
	return true
}

// waitAgain takes back a task whose turn had come when an argument of it was lost: it waits until that has been made again. It is in no queue and no
// process has it.
func (n *Node) waitAgain(t *taskState) {
	if t.flags&wire.FlagActorCall != 0 {
		t.actor.Box(t.t.Group).SetBack(&t.call)
	}
	if n.awaitArgs(t); t.waiting == 0 {
		n.argsReady(t)
	}
}

// takeBack is waitAgain for a task that a process was given, and was not sent.
func (n *Node) takeBack(w *worker, t *taskState) {
	switch {
	case t.flags&wire.FlagActorCreate != 0:
		a := t.actor
		n.takeFrom(w, t)
		a.worker, w.actor, w.puts = nil, nil, nil
		if a.State == actor.Starting {
			a.State = actor.Waiting
		}
		n.unlease(w)
		n.becomeIdle(w)
	case t.flags&wire.FlagActorCall != 0:
		// Those behind it are taken back too: calls of one caller keep their order.
		box := func(t *taskState) *actor.Mailbox { return t.actor.Box(t.t.Group) }
		behind := slices.Clone(w.held)
		n.takeFrom(w, t)
		for _, x := range behind {
			if x == t {
				continue
			}
			n.takeFrom(w, x)
			x.state = task.Queued
			box(x).PutBack(&x.call)
		}
		w.held = nil
		n.waitAgain(t)
		n.pump(t.actor)
		return
	default:
		n.unassign(t)
	}
	n.waitAgain(t)
}

// itemsMissing looks after the items of a generator that were lost and did not come when it ran again.
func (n *Node) itemsMissing(t *taskState, give func(*object) value) {
	again := false
	for _, o := range t.u.missing() {
		switch x := n.losses[o]; {
		case give != nil:
			n.set(o, give(o))
		case x.attempt < t.attempt:
			n.set(o, (&sysError{Code: errs.EREPLAY, TaskName: t.t.Name, Object: []uint64{o.u.num, uint64(o.index)}, Message: fmt.Sprintf(
				"%s is lost: %s. %s ran again to make it, and this time yielded no item %d: a generator whose values may be lost has to yield as many when it runs again",
				n.objectText(o), x.cause, n.describe(t), o.index-firstItem)}).value())
		default: // lost when this run had already passed it
			again = true
		}
	}
	if again {
		n.rebuild(t.u)
	}
}

// objectText names an object in messages, with what made it.
func (n *Node) objectText(o *object) string {
	s := "object " + n.objectHex(o.oid())
	if o.size > 0 {
		s += fmt.Sprintf(" (%d bytes)", o.size)
	}
	u := o.u
	switch {
	case u.task != nil:
		return s + ", " + n.valueOf(u.task, o)
	case u.lineage != nil:
		return s + ", " + n.valueOf(u.lineage.t, o)
	case o.index == 0 && u.submitter != nil:
		return s + fmt.Sprintf(", put by the %s with pid %d,", u.submitter.role, u.submitter.pid)
	}
	return s
}

func (n *Node) valueOf(t *taskState, o *object) string {
	if t.u.gen != nil && o.index >= firstItem {
		return fmt.Sprintf("item %d of %s,", o.index-firstItem, n.describe(t))
	}
	return fmt.Sprintf("value %d of %s,", o.index, n.describe(t))
}

// needsLost comes before what is wrong with an argument, in the error of a value that cannot be made again for want of it.
const needsLost = "It cannot be made again, because an argument of its task is lost as well: "

// lossError is what a missing object becomes that cannot be made again. argument says what is wrong with the argument that this is for want of.
func (n *Node) lossError(o *object, argument string) *sysError {
	u := o.u
	e := &sysError{Code: errs.EREBUILD, Object: []uint64{u.num, uint64(o.index)}, NodeID: n.nodeID()}
	why := fromElsewhere
	if l := u.lineage; l != nil {
		why = l.why
		e.TaskName = l.t.t.Name
	} else if o.index == 0 {
		why = wasPut
	}
	var text string
	switch why {
	case noReason:
	case wasPut:
		text = "Values that were put have no task that could make them again; return large values from tasks, or keep their source, where that matters."
	case retriesDisabled:
		text = "Its task may not run again: its max_retries (an actor's call: max_task_retries) is 0. Allow retries to have lost values made again."
	case retriesUsed:
		text = "Its task has used up its retries: max_retries (an actor's call: max_task_retries) bounds how often it runs again after crashes and for lost values together."
	case lineageEvicted:
		text = fmt.Sprintf("What it takes to run its task again was dropped to keep lineage within %d bytes: raise RAY_max_lineage_bytes.", n.opts.maxLineage())
	case lineageDisabled:
		text = "Values are not made again, because RAY_max_lineage_bytes is 0."
	case taskCancelled:
		text = "Its task was cancelled, so it is not run again."
	case jobEnded:
		text = "Its task cannot run again, because its job has ended."
	case actorIsDead:
		text = "Its task cannot run again, because its actor is dead."
	default:
		e.Code, text = errs.EOBJECTLOST, "There is no task that could make it again."
	}
	if argument != "" {
		text = needsLost + argument
	}
	if e.Code == errs.EREBUILD && why < jobEnded {
		e.Reason = int(why)
	}
	e.Message = fmt.Sprintf("%s is lost: %s. %s", n.objectText(o), n.losses[o].cause, text)
	return e
}

// forWantOf gives the values of a task that was to run again, and cannot because its argument is an error: they say both what they are and what is wrong
// with the first argument of the chain.
func (n *Node) forWantOf(arg *object, otherwise value) func(*object) value {
	var e sysError
	if arg.state != sysErr || msgpack.Unmarshal(arg.data, &e) != nil {
		return func(*object) value { return otherwise }
	}
	root := e.Message
	if i := strings.LastIndex(root, needsLost); i >= 0 {
		root = root[i+len(needsLost):]
	}
	return func(o *object) value {
		if !o.lost {
			return otherwise
		}
		x := n.lossError(o, root)
		x.Code, x.Reason = e.Code, e.Reason
		return x.value()
	}
}

// awaitPin lets a process wait for a value that is being made again. It has asked for a pin, so it has not said that it is blocked; the engine takes it for
// blocked all the same, or the value's task might wait for the CPU of the one that waits for it.
func (n *Node) awaitPin(p *peer, o *object) {
	x := waiter{p: p, pin: true}
	if w := p.worker; w != nil && o.lost {
		x.wait = n.pinWait(w, o)
	}
	o.waiters = append(o.waiters, x)
	if x.wait == 0 || o.u.task == nil {
		return
	}
	s := &cycleSearch{n: n, budget: 10_000, moves: map[*taskState]bool{}}
	if t := o.u.task; s.stuck(t) && len(s.cycle) > 0 {
		n.fail(t, &sysError{Code: errs.EDEADLOCK, Message: fmt.Sprintf(
			"%s was lost, and the wait for it would never end, because its task would have to run again behind the one that waits: %s", n.objectText(o), strings.Join(s.cycle, "; "))})
	}
}

// pinWait notes the wait among those of a process, and says as what; 0 when it stands there already.
func (n *Node) pinWait(w *worker, o *object) uint64 {
	key := ^o.u.num // no task's number
	single := w.actor == nil || w.actor.t.MaxConcurrency == 1
	if single && w.first != nil {
		key = w.first.id
	}
	if w.waits[key] != nil {
		return 0
	}
	w.mayWait()
	w.waits[key] = &waitFor{task: key, oids: []wire.OID{o.oid()}}
	w.nblocked++
	n.anyBlocked++
	n.refetch = len(n.fetches) > 0
	if w.lease != nil && single {
		n.sched.Block(w.lease)
		n.reschedule = true
	}
	if w.actor == nil && w.ntasks > 1 && !w.recalled {
		w.recalled = true
		w.peer.send(wire.Recall, 0, 0, nil)
	}
	return key
}

// waitEnded ends what awaitPin began.
func (n *Node) waitEnded(x waiter) {
	if x.wait != 0 {
		n.unblocked(x.p, x.wait, 0)
	}
}
