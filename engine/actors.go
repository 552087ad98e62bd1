package engine

import (
	"fmt"
	"slices"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// actorState is an actor with its process and its creation.
//
// It lives as long as somebody holds (actor, 0) or calls are unfinished; detached ones until they are killed.
type actorState struct {
	*actor.Actor
	id             uint64
	t              *template
	job            *job
	name           actor.Name
	detached       bool
	creator        *worker    // an actor's process that created it, and that it dies with; nil: nobody's
	creation       *taskState // kept for restarts, with its arguments
	handle         *object    // (id, 0); nil once nobody has it
	worker         *worker
	asked          bool      // told to end: out of scope, or it asked itself
	cause          *sysError // why it is dead, or about to be
	maxTaskRetries int
	created        taskTimes
	noRestart      bool
	over           bool // counted among those that are dead and held by nobody
}

// reservation is a name taken by a process before its actor came.
type reservation struct {
	actor uint64
	p     *peer
}

// dropReserved frees the names a process took for actors that it will not create any more.
func (n *Node) dropReserved(p *peer) {
	for name, r := range n.reserved {
		if r.p == p {
			n.actorNames.Free(name, r.actor)
			delete(n.reserved, name)
		}
	}
}

func (n *Node) actorText(a *actorState) string {
	s := "actor " + a.t.Name
	if a.name.Name != "" {
		s += fmt.Sprintf(" %q", a.name.Name)
	}
	return s + " (" + n.actorHex(a.id, a.job) + ")"
}

// submitActor is a SUBMIT that creates an actor. The number of the task is the actor's.
func (n *Node) submitActor(p *peer, t *taskState) {
	a := &actorState{
		Actor: actor.New(t.t.MaxRestarts, t.t.MaxConcurrency, t.t.Groups, !t.t.OutOfOrder),
		id:    t.id, t: t.t, job: p.job, detached: t.t.Detached, creation: t, maxTaskRetries: t.t.MaxTaskRetries,
	}
	if w := p.worker; w != nil && w.actor != nil && !a.detached {
		a.creator, w.creates = w, true
	}
	t.actor = a
	t.retries = 0
	n.actors[a.id] = a
	o := t.u.object(0)
	a.handle = o
	n.hold(o, p)
	o.state, o.data = inline, noneBlob // a handle is a value that is always there
	o.size = uint64(len(o.data))
	if t.t.ActorName != "" {
		a.name = actor.Name{Namespace: t.t.Namespace, Name: t.t.ActorName}
		if a.name.Namespace == "" {
			a.name.Namespace = p.job.namespace
		}
		if n.reserved[a.name].actor == a.id {
			delete(n.reserved, a.name)
		}
		if owner, ok := n.actorNames.Take(a.name, a.id); !ok {
			name := a.name
			a.name = actor.Name{}
			n.actorDead(a, &sysError{Code: errs.EEXISTS, Message: fmt.Sprintf("The name %q in namespace %q belongs to another actor (%s) already; choose another name, or use get_if_exists=True", name.Name, name.Namespace, n.actorHex(owner, p.job))})
			return
		}
	}
	if t.waiting == 0 {
		a.State = actor.Starting
		n.argsReady(t)
	}
}

var noneBlob = wire.Blob(wire.FormatNone, nil)

// actorPlaced is called when a process and resources were found.
func (n *Node) actorPlaced(a *actorState, w *worker) {
	a.worker, w.actor = w, a
	if a.State != actor.Restarting {
		a.State = actor.Starting
	}
	w.puts = map[*object]struct{}{}
}

// actorCreated is the RESULT of a constructor.
func (n *Node) actorCreated(p *peer, t *taskState, r *wire.ResultFrame) error {
	a := t.actor
	if r.Status == wire.StatusOK {
		if err := n.discardResult(p, t.id, r); err != nil {
			return err
		}
		a.State = actor.Alive
		a.created.ready = n.now
		n.finish(t, task.Finished, errs.OK, "", nil)
		n.pump(a)
		n.maybeEndActor(a)
		return nil
	}
	var blob []byte
	if r.NValues > 0 {
		v, _, err := wire.TakeValue(r.Values)
		if err != nil {
			return err
		}
		if v.Kind == wire.Inline {
			blob = append(blob, v.Data...)
		}
	}
	if err := n.discardResult(p, t.id, r); err != nil {
		return err
	}
	w := a.worker
	cause := t.stop
	if cause == nil {
		cause = &sysError{Code: errs.EACTORDIED, Actor: a.id, CauseBlob: blob, Message: fmt.Sprintf("%s died because its constructor raised an exception", n.actorText(a))}
	}
	n.actorDead(a, cause)
	if w != nil && !w.dead {
		n.askToEnd(w)
	}
	return nil
}

// creationEnded is called by finish. While the actor may restart, its arguments stay.
func (n *Node) creationEnded(t *taskState, s task.State, code errs.Code, message string) {
	a := t.actor
	if s == task.Finished && a.State != actor.Dead && a.MaxRestarts != 0 {
		return
	}
	var blob []byte // of the argument that was an error
	for _, o := range t.top() {
		if o.isError && o.state == inline {
			blob = o.data
			break
		}
	}
	n.dropDeps(t)
	if s != task.Failed || a.State == actor.Dead {
		return
	}
	// Its arguments were errors, its demand cannot be met, or it was cancelled: it never was.
	if code == errs.EUNSCHEDULABLE {
		code = errs.EACTORUNSCHEDULABLE
	}
	e := &sysError{Code: code, Message: message, Actor: a.id}
	if code == errs.ETASK {
		e.Code, e.CauseBlob = errs.EACTORDIED, blob
		e.Message = fmt.Sprintf("%s could not be created: an argument of its constructor is an error", n.actorText(a))
	}
	n.actorDead(a, e)
}

// submitCall is a SUBMIT of a call.
func (n *Node) submitCall(t *taskState, num uint64) {
	a := n.actors[num]
	if a == nil {
		n.fail(t, &sysError{Code: errs.EACTORDIED, Message: fmt.Sprintf("%s cannot run: its actor (%s) is not there any more", n.describe(t), n.actorHex(num, t.job))})
		return
	}
	t.actor = a
	t.retries = t.t.MaxTaskRetries
	if t.retries == task.Inherit {
		t.retries = a.maxTaskRetries
	}
	if a.State == actor.Dead {
		n.fail(t, a.deathOf(n, t))
		return
	}
	box := a.Box(t.t.Group)
	if t.waiting == 0 && (t.hasGone || slices.ContainsFunc(t.top(), func(o *object) bool { return o.isError })) {
		n.argsReady(t) // ends it
		return
	}
	if t.waiting == 0 {
		t.state = task.Queued
	}
	box.Add(&t.call, uint64(t.u.submitter.num), t.waiting == 0)
	n.pumpBox(a, box)
	if n.anyBlocked > 0 {
		n.recheckActor(a)
	}
}

// callReady is called when the arguments of a call that had to wait are there.
func (n *Node) callReady(t *taskState) {
	box := t.actor.Box(t.t.Group)
	box.ArgsReady(&t.call)
	n.pumpBox(t.actor, box)
	if n.anyBlocked > 0 {
		n.recheckActor(t.actor)
	}
}

func (n *Node) pump(a *actorState) {
	for box := range a.Boxes {
		n.pumpBox(a, box)
	}
}

// pumpBox sends what may be sent.
func (n *Node) pumpBox(a *actorState, box *actor.Mailbox) {
	if a.State != actor.Alive || a.worker == nil || a.worker.dead || a.asked {
		return
	}
	for c := box.Take(); c != nil; c = box.Take() {
		if t := c.Value.(*taskState); t.present() {
			n.deliver(a.worker, t)
		} else {
			n.waitAgain(t)
		}
	}
}

// callEnded is called by finish.
func (n *Node) callEnded(t *taskState) {
	a := t.actor
	if a == nil {
		return
	}
	box := a.Box(t.t.Group)
	if !box.Remove(&t.call) {
		box.Done(&t.call)
	}
	if a.State != actor.Dead {
		n.pumpBox(a, box)
		if a.handle == nil {
			n.maybeEndActor(a)
		}
	}
}

// callAgain puts a call back that is to run once more.
func (n *Node) callAgain(t *taskState) {
	a := t.actor
	if a.State == actor.Dead {
		n.fail(t, a.deathOf(n, t))
		return
	}
	box := a.Box(t.t.Group)
	box.PutBack(&t.call)
	n.pumpBox(a, box)
}
