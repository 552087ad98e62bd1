package engine

import (
	"fmt"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"
)

// taskState is a task from its SUBMIT until it has ended for good.
//
//	submit → (arguments) → queued → sent → running → finished
//	                         ↑_______________|  worker died or exception, with retries left
type taskState struct {
	item  schedule.Item // its place in a class's queue
	hasty bool          // a running task waits for it
	call  actor.Call    // its place in a mailbox

	id       uint64
	t        *template
	u        *unit
	job      *job
	actor    *actorState // whose call or creation this is
	parent   uint64
	flags    uint16
	state    task.State
	detached bool // started, at whatever remove, by a detached actor: the end of its job does not end it
	nreturns uint32
	attempt  uint32
	retries  int // left; actor.Unlimited: without end
	args     []byte
	deps     []*object // the first ntop are arguments, the others stand inside arguments
	ntop     int
	waiting  int      // arguments that are not there yet
	gone     wire.OID // an argument that was freed before the task came
	hasGone  bool

	w            *worker  // where it was sent
	service      *service // of a named function
	lastWorker   *worker
	wprev, wnext *taskState
	unborn       int                  // processes it was given that never came into being
	rebuild      bool                 // it had ended, and runs again because values of it were lost
	fetching     int                  // arguments that are being brought back from disk
	fetches      uint32               // how often they were
	fetched      []*objectstore.Entry // and are back, pinned until the task is sent
	oomKills     int                  // how often its process was ended to save memory
	notBefore    time.Duration        // when it is tried again; 0: it does not wait for that
	stop         *sysError            // it was cancelled or its job ended: what its values become

	created time.Duration
	sent    time.Duration
	started time.Duration
}

// submit takes a task in.
func (n *Node) submit(p *peer, h wire.Header, s *wire.SubmitFrame) error {
	if h.ID == 0 || n.units[h.ID] != nil {
		return errs.New(errs.EINVAL, "task number %x was used before", h.ID)
	}
	tmpl := p.template(s.Template)
	if tmpl == nil {
		return errs.New(errs.EINVAL, "task %x names template %d, which was not sent", h.ID, s.Template)
	}
	if s.NReturns > maxReturns {
		return errs.New(errs.EINVAL, "task %x asks for %d values; the most are %d", h.ID, s.NReturns, maxReturns)
	}
	if h.Flags&wire.FlagActorCreate != 0 && h.Flags&(wire.FlagActorCall|wire.FlagStreaming) != 0 {
		return errs.New(errs.EINVAL, "task %x is to create an actor and to be something else", h.ID)
	}
	if h.Flags&wire.FlagActorCreate != 0 && tmpl.Kind != task.Actor {
		return errs.New(errs.EINVAL, "actor %x is made of template %q, which is of kind %q", h.ID, tmpl.Name, tmpl.Kind)
	}
	u := n.unit(h.ID, p.job, p)
	u.by = tmpl
	t := &taskState{
		id: h.ID, t: tmpl, u: u, job: p.job, parent: s.Parent, flags: h.Flags, nreturns: s.NReturns, retries: tmpl.MaxRetries,
		ntop: s.Top.Len(), created: n.now, detached: p.detached(),
	}
	u.task = t
	t.item.Value, t.call.Value = t, t
	if len(s.Args) > 0 {
		t.args = append([]byte(nil), s.Args...)
	}
	switch {
	case h.Flags&wire.FlagActorCreate != 0:
		t.nreturns = 0
	case h.Flags&wire.FlagStreaming != 0:
		t.nreturns = 1
		u.gen = &generator{}
		fallthrough
	default:
		for i := range t.nreturns {
			n.hold(u.object(i+1), p)
		}
	}
	n.takeDeps(t, s)
	n.counts.submitted++
	if t.parent != 0 {
		n.children++
	}
	switch {
	case h.Flags&wire.FlagActorCreate != 0:
		n.submitActor(p, t)
	case h.Flags&wire.FlagActorCall != 0:
		n.submitCall(t, s.Actor)
	case t.waiting == 0:
		n.argsReady(t)
	}
	return nil
}

const maxReturns = 1 << 17

// detached says whether what the process starts outlives its job.
func (p *peer) detached() bool {
	w := p.worker
	if w == nil {
		return false
	}
	if w.actor != nil {
		return w.actor.detached
	}
	return w.first != nil && w.first.detached
}

// takeDeps makes the task need its references and wait for those that are arguments.
func (n *Node) takeDeps(t *taskState, s *wire.SubmitFrame) {
	top, nested := s.Top.Len(), s.Nested.Len()
	if top+nested == 0 {
		return
	}
	t.deps = make([]*object, 0, top+nested)
	t.ntop = 0
	for i := range top {
		oid := s.Top.At(i)
		o := n.find(oid)
		if o == nil {
			t.gone, t.hasGone = oid, true
			continue
		}
		n.need(o)
		t.deps = append(t.deps, o)
		t.ntop++
		if o.state == pending {
			o.waiters = append(o.waiters, waiter{t: t})
			t.waiting++
		}
	}
	for i := range nested {
		if o := n.find(s.Nested.At(i)); o != nil {
			n.need(o)
			t.deps = append(t.deps, o)
		}
	}
}

func (t *taskState) top() []*object { return t.deps[:t.ntop] }

// argReady is called for every argument that a task waited for.
func (n *Node) argReady(t *taskState) {
	t.waiting--
	if t.waiting > 0 || t.u.task != t || t.state != task.WaitingForArgs {
		return
	}
	n.ready.add(func(t *taskState) {
		if t.u.task == t && t.state == task.WaitingForArgs {
			n.argsReady(t)
		}
	}, t)
}

// argsReady puts a task whose arguments are all there into its queue, or ends it when one of them is an error.
func (n *Node) argsReady(t *taskState) {
	if t.hasGone {
		n.fail(t, &sysError{Code: errs.EREFFREED, Message: fmt.Sprintf("%s cannot run: its argument %s was already freed", n.describe(t), n.objectHex(t.gone))})
		return
	}
	for _, o := range t.top() {
		if o.isError {
			n.inherit(t, o)
			return
		}
	}
	t.state = task.Queued
	n.queue(t)
}

// queue puts a task where it waits for its turn.
func (n *Node) queue(t *taskState) {
	switch {
	case t.flags&wire.FlagActorCall != 0:
		n.callReady(t)
	case t.t.Kind == task.Named:
		n.queueNamed(t)
	case t.t.class == nil:
		n.fail(t, &sysError{Code: errs.EINVAL, Message: fmt.Sprintf("%s: a template of kind %q cannot be run as a task", n.describe(t), t.t.Kind)})
	default:
		if e := t.t.env; e.err != nil {
			n.fail(t, e.failure(n, t))
			return
		}
		n.sched.Push(t.t.class, &t.item, n.now)
		if t.hasty {
			n.sched.Hasten(&t.item)
		}
		n.reschedule = true
		if t.t.class.Infeasible() != "" {
			n.noteInfeasible(t.t.class)
		}
	}
}

// inherit ends a task whose argument is an error: that becomes the value of the task.
func (n *Node) inherit(t *taskState, o *object) {
	v := value{state: o.state, isError: true, data: o.data, size: o.size}
	if o.state == inArena {
		// An error too large for a message; the task's own says where it came from.
		v = (&sysError{Code: errs.ETASK, Message: fmt.Sprintf("%s cannot run: its argument %s is an error", n.describe(t), n.objectHex(o.oid()))}).value()
	}
	give := func(*object) value { return v }
	if t.rebuild {
		give = n.forWantOf(o, v)
	}
	n.finish(t, task.Failed, errs.ETASK, "an argument is an error", give)
}

// fail ends a task with an error of the engine's.
func (n *Node) fail(t *taskState, e *sysError) {
	e.TaskName = t.t.Name
	if t.actor != nil {
		e.Actor = t.actor.id
	}
	e.NodeID = n.nodeID()
	v := e.value()
	n.finish(t, task.Failed, e.Code, e.Message, func(*object) value { return v })
}

// finish ends a task for good. Values that are not there yet become what give says; nil: an error of raygo's.
func (n *Node) finish(t *taskState, s task.State, code errs.Code, message string, give func(*object) value) {
	u := t.u
	t.state = s
	if t.flags&wire.FlagActorCall != 0 {
		n.callEnded(t)
	}
	if t.item.Waiting() {
		n.sched.Remove(&t.item)
	}
	if t.nreturns > 0 {
		for i := range t.nreturns {
			o := u.find(i + 1)
			if o == nil || o.state != pending {
				continue
			}
			if give == nil {
				give = func(*object) value {
					return (&sysError{Code: errs.EINTERNAL, Message: n.describe(t) + " ended without all of its values"}).value()
				}
			}
			n.set(o, give(o))
		}
	}
	u.task = nil
	if t.parent != 0 {
		n.children--
	}
	n.record(t, s, code, message)
	missing := u.gen != nil && len(n.losses) > 0 && len(u.missing()) > 0
	switch {
	case t.flags&wire.FlagActorCreate != 0 && t.actor != nil:
		n.creationEnded(t, s, code, message)
	case u.stored > 0 || u.wanted > 0 || missing:
		n.keepLineage(t)
	default:
		u.lineage = nil
		n.dropDeps(t)
	}
	if missing {
		if s == task.Finished {
			give = nil
		}
		n.itemsMissing(t, give)
		n.maybeDropLineage(u)
	}
	n.maybeForget(u)
}

func (n *Node) dropDeps(t *taskState) {
	deps := t.deps
	t.deps, t.ntop, t.args = nil, 0, nil
	for _, o := range deps {
		n.unneed(o)
	}
}

// retry queues a task again that ran and did not end well.
func (n *Node) retry(t *taskState, counts bool) {
	if counts && t.retries > 0 {
		t.retries--
	}
	n.again(t)
}

// again queues a task that was sent, in its old place.
func (n *Node) again(t *taskState) {
	t.attempt++
	n.putBack(t)
}

func (n *Node) putBack(t *taskState) {
	t.state = task.Queued
	t.w = nil
	if e := t.t.env; e != nil && e.err != nil {
		n.fail(t, e.failure(n, t))
		return
	}
	switch {
	case t.flags&wire.FlagActorCall != 0:
		n.callAgain(t)
	case t.t.Kind == task.Named:
		n.queueNamed(t)
	default:
		n.sched.PushBack(t.t.class, &t.item)
		n.reschedule = true
		if t.t.class.Infeasible() != "" {
			n.noteInfeasible(t.t.class)
		}
	}
}

// endTask ends a task wherever it is. One that has begun is asked to stop, or with force loses its process.
func (n *Node) endTask(t *taskState, e *sysError, force bool) {
	if t.w == nil {
		n.fail(t, e)
		return
	}
	first := t.stop == nil
	if first {
		t.stop = e
		t.retries = 0
	}
	w := t.w
	if force && t.flags&wire.FlagActorCall == 0 {
		if t == w.first || w.actor != nil {
			n.killWorker(w)
			return
		}
	}
	if first {
		w.peer.send(wire.CancelExec, forceFlag(force), t.id, nil)
	}
}

func forceFlag(force bool) uint16 {
	if force {
		return wire.FlagForce
	}
	return 0
}

// cancel is RG_CANCEL. Who started whom is looked up once, whatever the depth, and processes may have told of a circle.
func (n *Node) cancel(num uint64, force, recursive bool) {
	if !recursive || n.children == 0 {
		n.cancelOne(num, force)
		return
	}
	children := map[uint64][]uint64{}
	for _, u := range n.units {
		if t := u.task; t != nil && t.parent != 0 {
			children[t.parent] = append(children[t.parent], t.id)
		}
	}
	todo := []uint64{num}
	for len(todo) > 0 {
		num = todo[len(todo)-1]
		todo = append(todo[:len(todo)-1], children[num]...)
		delete(children, num)
		n.cancelOne(num, force)
	}
}

func (n *Node) cancelOne(num uint64, force bool) {
	if u := n.units[num]; u != nil && u.task != nil && u.task.flags&wire.FlagActorCreate == 0 {
		n.endTask(u.task, &sysError{Code: errs.ECANCELED, Message: n.describe(u.task) + " was cancelled"}, force)
	}
}
