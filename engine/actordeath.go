package engine

import (
	"fmt"
	"slices"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// handlesGone is called when nobody has a handle any more.
func (n *Node) handlesGone(a *actorState) {
	n.maybeEndActor(a)
	n.actorOver(a)
}

// maybeEndActor ends an actor that nobody can call any more, once its calls are done.
func (n *Node) maybeEndActor(a *actorState) {
	if a.handle != nil || a.detached || a.asked || a.State == actor.Dead || !a.Idle() {
		return
	}
	switch a.State {
	case actor.Alive:
		a.asked = true
		a.cause = &sysError{Code: errs.EACTORDIED, Actor: a.id, Message: fmt.Sprintf("%s ended because the last handle of it was dropped", n.actorText(a))}
		n.askToEnd(a.worker)
		n.freeName(a) // it can be called by nobody
	case actor.Waiting:
		n.killActor(a, &sysError{Code: errs.EACTORDIED, Actor: a.id, Message: fmt.Sprintf("%s ended because the last handle of it was dropped", n.actorText(a))})
	}
	// One that is being started goes on: its constructor may be wanted for what it does.
}

func (n *Node) freeName(a *actorState) {
	if a.name.Name != "" {
		n.actorNames.Free(a.name, a.id)
	}
}

// actorExits is a RESULT by which an actor ends itself.
func (n *Node) actorExits(p *peer, t *taskState, r *wire.ResultFrame) error {
	a := t.actor
	if a == nil {
		return errs.New(errs.EINVAL, "task %x is no actor's and asks its actor to end", t.id)
	}
	if err := n.discardResult(p, t.id, r); err != nil {
		return err
	}
	a.asked = true
	a.cause = &sysError{Code: errs.EACTORDIED, Actor: a.id, Message: fmt.Sprintf("%s ended itself (by exit_actor, __ray_terminate__ or sys.exit)", n.actorText(a))}
	n.fail(t, a.deathOf(n, t))
	w := a.worker
	n.actorDead(a, a.cause)
	if w != nil && !w.dead {
		n.askToEnd(w)
	}
	return nil
}

// kill is RG_KILL.
func (n *Node) kill(num uint64, noRestart bool) {
	a := n.actors[num]
	if a == nil || a.State == actor.Dead {
		return
	}
	if !noRestart && a.worker != nil && a.MaxRestarts != 0 {
		n.killWorker(a.worker) // an unexpected death like any other
		return
	}
	n.killActor(a, &sysError{Code: errs.EACTORDIED, Actor: a.id, Message: fmt.Sprintf("%s was ended by raygo.kill", n.actorText(a))})
}

// killActor ends an actor for good, at once.
func (n *Node) killActor(a *actorState, cause *sysError) {
	if a.State == actor.Dead {
		return
	}
	w := a.worker
	n.actorDead(a, cause)
	if w != nil {
		n.killWorker(w)
	}
}

// actorProcessGone is called when an actor's process has died; tasks are those it had been sent.
func (n *Node) actorProcessGone(w *worker, tasks []*taskState) {
	a := w.actor
	for o := range w.puts {
		n.lose(o, &sysError{Code: errs.EOWNERDIED, Actor: a.id, Message: fmt.Sprintf("object %s is lost: %s put it, and its process (pid %d) is dead. What an actor returns outlives it; what it puts does not.", n.objectHex(o.oid()), n.actorText(a), w.pid)})
	}
	w.puts = nil
	if w.creates && !n.stopping {
		for _, c := range n.actorsBy(func(c *actorState) bool { return c.creator == w }) {
			n.killActor(c, &sysError{Code: errs.EACTORDIED, Actor: c.id, Message: fmt.Sprintf("%s died because its creator is dead, %s. With lifetime=\"detached\" it would go on", n.actorText(c), n.actorText(a))})
		}
	}
	if a.worker != w {
		return
	}
	a.worker = nil
	if a.State == actor.Dead {
		n.actorOver(a)
		for _, t := range tasks {
			n.fail(t, a.deathOf(n, t))
		}
		return
	}
	if a.asked || n.stopping || a.noRestart {
		cause := a.cause
		if cause == nil {
			cause = &sysError{Code: errs.EACTORDIED, Actor: a.id, Message: n.actorText(a) + " ended"}
		}
		n.actorDead(a, cause)
		for _, t := range tasks {
			n.fail(t, a.deathOf(n, t))
		}
		return
	}
	constructing := a.State == actor.Starting || a.creation.u.task == a.creation && a.creation.attempt > 0 && len(tasks) == 1 && tasks[0] == a.creation
	restart := a.ProcessDied()
	if restart {
		for _, t := range tasks {
			n.callLost(a, w, t)
		}
		n.restartActor(a, w)
		return
	}
	// Dead, and why is known in a moment. Until then it takes no calls.
	a.State = actor.Restarting
	a.noRestart = true
	w.whenDead(func(d death) {
		what := "died"
		if constructing {
			what = "died in its constructor"
		}
		e := &sysError{Code: errs.EACTORDIED, Actor: a.id, PID: w.pid, Message: fmt.Sprintf("%s %s: its process (pid %d) %s", n.actorText(a), what, w.pid, d.text)}
		d.fill(e)
		n.actorDead(a, e)
		for _, t := range tasks {
			if t.u.task == t {
				n.fail(t, a.deathOf(n, t))
			}
		}
	})
}

// callLost decides what becomes of a call whose actor's process died and is started again.
func (n *Node) callLost(a *actorState, w *worker, t *taskState) {
	switch {
	case t == a.creation:
	case t.stop != nil:
		n.fail(t, t.stop)
	case t.retries != 0:
		n.retry(t, true)
	default:
		w.whenDead(func(d death) {
			if t.u.task != t {
				return
			}
			e := &sysError{Code: errs.EACTORUNAVAILABLE, PID: w.pid, Retryable: true, Message: fmt.Sprintf("%s failed: the process of %s (pid %d) %s. The actor is being started again; give the call max_task_retries to have it tried again.", n.describe(t), n.actorText(a), w.pid, d.text)}
			d.fill(e)
			e.Code = errs.EACTORUNAVAILABLE
			n.fail(t, e)
		})
	}
}

// restartActor runs the constructor again, in a new process.
func (n *Node) restartActor(a *actorState, w *worker) {
	t := a.creation
	if t.u.task != t && t.parent != 0 {
		n.children++
	}
	t.u.task = t
	n.units[t.id] = t.u
	t.state = task.Queued
	t.attempt++
	n.logf("%s is started again (%d)", n.actorText(a), a.Restarts)
	if w.shortage != nil {
		delay := n.oomDelay(t)
		n.warn(a.job, fmt.Sprintf("%s is started again in %v: its process (pid %d) %s", n.actorText(a), delay, w.pid, w.shortage.text))
		n.queueLater(t, delay)
		return
	}
	n.queue(t)
}

// deathOf is what a call to a dead actor becomes.
func (a *actorState) deathOf(n *Node, t *taskState) *sysError {
	e := *a.cause
	if e.Code == errs.EEXISTS || e.Code == errs.ECANCELED {
		e.Code = errs.EACTORDIED
	}
	e.Message = fmt.Sprintf("%s failed. %s", n.describe(t), a.cause.Message)
	return &e
}

// actorDead makes an actor dead: its name is free, all its calls end, its arguments go.
func (n *Node) actorDead(a *actorState, cause *sysError) {
	if a.State == actor.Dead {
		return
	}
	cause.TaskName = a.t.Name
	a.State, a.cause = actor.Dead, cause
	a.created.dead = n.now
	n.freeName(a)
	n.logf("%s is dead: %s", n.actorText(a), cause.Message)
	c := a.creation
	if c.u.task == c && c.w == nil {
		n.fail(c, a.deathOf(n, c))
	} else if c.u.task == c {
		c.stop = cause
	}
	n.dropDeps(c)
	var calls []*taskState
	for box := range a.Boxes {
		for call := range box.Waiting {
			calls = append(calls, call.Value.(*taskState))
		}
	}
	slices.SortFunc(calls, func(x, y *taskState) int { return int(x.created - y.created) })
	for _, t := range calls {
		n.fail(t, a.deathOf(n, t))
	}
	n.actorOver(a)
	if a.detached && a.job.driver == nil && !n.jobLives(a.job) {
		n.retireJob(a.job)
	}
}
