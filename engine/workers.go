package engine

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/wire"
	workerproc "github.com/raygo/raygo/engine/worker"

	"golang.org/x/sys/unix"
)

// worker is a process that runs tasks. One that serves named functions has neither env nor lease.
//
//	forked → idle ⇄ leased → dismissed or dead
//	               → an actor's, for life
type worker struct {
	num      uint64
	env      *env
	template Template // it was forked from
	peer     *peer
	pid      int

	class *schedule.Class // of the lease
	lease *schedule.Lease
	actor *actorState

	first, last *taskState // sent and not ended, in order
	ntasks      int
	held        []*taskState // assigned, to be sent when their arguments are back from disk

	known    []uint64 // templates it has, a bit each
	calls    map[*template]int
	puts     map[*object]struct{} // an actor's: they die with it
	creates  bool                 // an actor's: so do actors that it created
	waits    map[uint64]*waitFor  // tasks that said RG_BLOCKED
	asides   map[uint64]int       // and for how many of their further threads they did
	nblocked int
	services map[string]*service

	inRefill   bool
	idle       bool
	recalled   bool // RG_RECALL is out
	retiring   bool // takes no more tasks
	asked      bool // told to end
	killed     bool // by us
	killOnFork bool // its pid is not known yet
	dead       bool
	forked     time.Duration
	since      time.Duration // idle
	progress   time.Duration // last answer

	exited   bool
	status   unix.WaitStatus
	shortage *shortage     // it was ended to save memory
	whenGone []func(death) // waits for the cause of death

	dropWritable func() // gives space back that it may still write to; nil: there is none
}

// giveTo puts a task to the end of those that a process was sent.
func (n *Node) giveTo(w *worker, t *taskState) {
	t.w, t.lastWorker = w, w
	t.wprev, t.wnext = w.last, nil
	if w.last != nil {
		w.last.wnext = t
	} else {
		w.first = t
	}
	w.last = t
	w.ntasks++
	if w.ntasks > 1 && w.actor == nil {
		n.ahead++
	}
}

func (n *Node) takeFrom(w *worker, t *taskState) {
	if t.wprev != nil {
		t.wprev.wnext = t.wnext
	} else {
		w.first = t.wnext
	}
	if t.wnext != nil {
		t.wnext.wprev = t.wprev
	} else {
		w.last = t.wprev
	}
	t.wprev, t.wnext, t.w = nil, nil, nil
	w.ntasks--
	if w.ntasks > 0 && w.actor == nil {
		n.ahead--
	}
	if t.fetched != nil {
		n.dropFetched(t)
	}
	for i, h := range w.held {
		if h == t {
			w.held = append(w.held[:i:i], w.held[i+1:]...)
			break
		}
	}
}

// takeIdle takes the process that was used last: its caches are warm.
func (e *env) takeIdle() *worker {
	w := e.idle[len(e.idle)-1]
	e.idle = e.idle[:len(e.idle)-1]
	w.idle = false
	return w
}

func (n *Node) becomeIdle(w *worker) {
	if w.env.retired {
		n.dismiss(w)
		return
	}
	w.idle = true
	w.since = n.now
	w.env.idle = append(w.env.idle, w)
	n.reschedule = true
	n.reapLater(n.opts.workerIdle())
}

func (n *Node) leaveIdle(w *worker) {
	if !w.idle {
		return
	}
	w.idle = false
	for i, x := range w.env.idle {
		if x == w {
			w.env.idle = append(w.env.idle[:i], w.env.idle[i+1:]...)
			return
		}
	}
}

// grow starts processes for the classes that could run but for want of one.
func (n *Node) grow() {
	for _, c := range n.wanting {
		e := c.Data.(*env)
		if e.err != nil {
			n.failEnv(e)
			continue
		}
		want := n.sched.Room(c)
		if c.Demand.Hold != nil {
			want = c.Len() // actors give back what they need to start at once, so many can start together
		}
		if len(c.Demand.Resources) == 0 && !c.Demand.Actor {
			// Nothing limits these but memory: as many as are useful, not one process for each of ten thousand.
			want = min(want, max(64, 8*int(n.total[schedule.CPU]/schedule.One))-c.Leases)
		}
		// A process that was forked counts as idle at once, so none of those that are starting is free: whoever waits needs another.
		e.toFork = max(e.toFork, min(want, maxStarting-e.starting))
		n.startEnv(e)
	}
	n.wanting = n.wanting[:0]
}

// maxStarting bounds how many processes of one environment are being started at a time.
const maxStarting = 64

// forkWorker makes a process out of the environment's template.
func (n *Node) forkWorker(e *env) {
	n.lastWorker++
	w := &worker{num: n.lastWorker, env: e, template: e.template, forked: n.now}
	conn, err := e.template.Fork(w.num)
	if err == nil {
		var file *os.File
		var fd int
		file, fd, err = pollable(conn)
		if cerr := workerproc.CloseFD(conn); err == nil {
			err = cerr
		}
		if err == nil {
			p := n.newPeer(roleWorker)
			p.job, p.worker, p.greeted = e.job, w, true
			w.peer = p
			err = p.connect(file, fd)
		}
	}
	if err != nil {
		n.logf("a worker cannot be started: %v", err)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			e.scarce(n, err)
			return
		}
		e.trouble(n, fmt.Errorf("a worker process cannot be started: %w", err))
		return
	}
	n.workers[w.num] = w
	e.workers++
	e.starting++
	n.welcome(w.peer, w.num)
	n.becomeIdle(w) // what it is sent waits in the socket until it is up
}

// dismiss asks an idle process to end.
func (n *Node) dismiss(w *worker) {
	if w.asked || w.dead {
		return
	}
	n.leaveIdle(w)
	n.unlease(w)
	n.askToEnd(w)
}

// askToEnd has a process end by itself: with an actor's __ray_shutdown__ and exit hooks, which get so long and no longer.
func (n *Node) askToEnd(w *worker) {
	w.asked = true
	w.peer.send(wire.Exit, 0, 0, nil)
	limit := n.opts.gracefulShutdown()
	n.after(limit, func() {
		if !w.dead {
			n.logf("worker %d (pid %d) is ended: it was asked to %v ago and has not", w.num, w.pid, limit)
			n.killWorker(w)
		}
	})
}

// killWorker ends a process at once.
func (n *Node) killWorker(w *worker) {
	if w.dead || w.killed {
		return
	}
	w.killed = true
	w.peer.send(wire.Exit, wire.FlagForce, 0, nil)
	w.peer.flush()
	if w.pid > 0 && !w.exited {
		unix.Kill(w.pid, unix.SIGKILL) // it may be gone: then its end is on the way to us
	} else if w.env != nil && !w.exited {
		w.killOnFork = true
	}
}

// workerForked is told by the template.
func (n *Node) workerForked(e *env, num uint64, pid int) {
	w := n.workers[num]
	if w == nil {
		return
	}
	e.failures = 0
	if e.starting--; e.starting == maxStarting-1 {
		n.reschedule = true
	}
	w.pid, w.peer.pid = pid, pid
	n.byPID[pid] = w
	if w.killOnFork || w.dead {
		unix.Kill(pid, unix.SIGKILL)
	}
}

// workerExited is told by the template. The end of the connection, which comes by itself, is what counts: all that the process still said is read first.
func (n *Node) workerExited(pid int, status unix.WaitStatus) {
	w := n.byPID[pid]
	if w == nil {
		return
	}
	delete(n.byPID, pid)
	w.exited, w.status = true, status
	if !w.dead {
		unix.Shutdown(w.peer.fd, unix.SHUT_RDWR) // in case a child of its own has the connection open
		return
	}
	n.deathKnown(w)
}

// workerGone is called when the connection to a worker has ended.
func (n *Node) workerGone(w *worker) {
	if w.dead {
		return
	}
	w.dead = true
	n.anyBlocked -= w.nblocked
	w.nblocked, w.waits, w.asides = 0, nil, nil
	if w.env == nil {
		n.serverGone(w)
		return
	}
	delete(n.workers, w.num)
	w.env.workers--
	if len(w.env.templates) > 0 {
		n.dropOldTemplates(w.env)
	}
	if w.pid == 0 {
		w.env.starting--
	}
	w.env.short = ""
	n.closeEnvWhenEmpty(w.env)
	n.leaveIdle(w)
	n.unlease(w)
	n.reschedule = true
	tasks := w.tasks()
	for _, t := range tasks {
		n.takeFrom(w, t)
	}
	if w.actor != nil {
		if !n.unbornActor(w, tasks) {
			n.actorProcessGone(w, tasks)
		}
	} else {
		for i, t := range tasks {
			n.lostTask(w, t, i == 0 && !w.unborn(t))
		}
	}
	n.awaitDeath(w)
	n.checkStopped()
}

// maxUnborn is how often a task may lose a process that never came into being before that counts as if it had run.
const maxUnborn = 3

// unborn tells whether a process ended before there was one, because its template had: that is nobody's fault, and t has not begun.
func (w *worker) unborn(t *taskState) bool {
	if w.pid != 0 || w.asked || w.killed || t.unborn >= maxUnborn {
		return false
	}
	t.unborn++
	return true
}

// unbornActor gives an actor whose process never came into being another one.
func (n *Node) unbornActor(w *worker, tasks []*taskState) bool {
	a := w.actor
	if a.worker != w || a.asked || a.noRestart || n.stopping || len(tasks) != 1 || tasks[0] != a.creation || a.creation.stop != nil || !w.unborn(a.creation) {
		return false
	}
	switch a.State {
	case actor.Starting:
		a.State = actor.Waiting
	case actor.Restarting:
	default:
		return false
	}
	a.worker = nil
	n.again(a.creation)
	return true
}

func (w *worker) tasks() []*taskState {
	out := make([]*taskState, 0, w.ntasks)
	for t := w.first; t != nil; t = t.wnext {
		out = append(out, t)
	}
	return out
}

// lostTask decides what becomes of a task whose process died. Those behind the first had not begun.
func (n *Node) lostTask(w *worker, t *taskState, running bool) {
	switch {
	case t.stop != nil:
		n.fail(t, t.stop)
	case !running:
		n.again(t)
	case w.shortage != nil && n.oomRetry(w, t):
	case w.shortage != nil:
		n.fail(t, &sysError{Code: errs.EOUTOFMEMORY, PID: w.pid, Message: fmt.Sprintf("%s failed: its worker process (pid %d) %s", n.describe(t), w.pid, w.shortage.text)})
	case t.retries != 0:
		n.retry(t, true)
	default:
		w.whenDead(func(d death) {
			if t.u.task != t {
				return
			}
			e := &sysError{Code: errs.EWORKERDIED, PID: w.pid, Message: fmt.Sprintf("%s failed: its worker process (pid %d) %s", n.describe(t), w.pid, d.text)}
			d.fill(e)
			n.fail(t, e)
		})
	}
}

// reapLater ends processes that have been idle for long; those a job was started with stay.
func (n *Node) reapLater(d time.Duration) {
	if n.reapArmed || n.stopping {
		return
	}
	n.reapArmed = true
	n.after(d, func() {
		n.reapArmed = false
		next := time.Duration(0)
		limit := n.opts.workerIdle()
		for _, e := range n.envs {
			keep := e.prestart
			for i := 0; i < len(e.idle) && len(e.idle) > keep; {
				w := e.idle[i] // the longest idle comes first
				if n.now-w.since < limit {
					left := limit - (n.now - w.since)
					if next == 0 || left < next {
						next = left
					}
					break
				}
				n.dismiss(w)
			}
		}
		if next > 0 {
			n.reapLater(next)
		}
	})
}
