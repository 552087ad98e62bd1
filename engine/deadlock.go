package engine

import (
	"slices"
	"strings"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// waitFor is what a running task said it waits for.
type waitFor struct {
	task  uint64
	oids  []wire.OID
	any   bool
	timed bool // it ends by itself
	told  bool // that it cannot end
}

// blocked is RG_BLOCKED: the lease's CPU goes to others meanwhile, and the wait is looked at for a cycle.
func (n *Node) blocked(p *peer, num uint64, oids wire.OIDs, flags uint16) {
	w := p.worker
	if w == nil {
		return // nobody waits for a driver, so it is part of no cycle
	}
	k := &waitFor{task: num, any: flags&wire.FlagAny != 0, timed: flags&wire.FlagTimed != 0, oids: make([]wire.OID, oids.Len())}
	for i := range k.oids {
		k.oids[i] = oids.At(i)
	}
	aside := flags&wire.FlagAside != 0
	w.mayWait()
	if aside && w.asides[num] == 0 || !aside && w.waits[num] == nil {
		w.nblocked++
		n.refetch = len(n.fetches) > 0
		n.anyBlocked++
	}
	if aside {
		w.asides[num]++
	} else {
		w.waits[num] = k
	}
	if w.lease != nil && (w.actor == nil || w.actor.t.MaxConcurrency == 1) {
		n.sched.Block(w.lease)
		n.reschedule = true
	}
	budget := maxHastened
	for _, o := range k.oids {
		n.hasten(o.Task, &budget)
	}
	if !aside {
		n.checkWait(w, k)
	}
}

// mayWait has the worker remember waits from now on; most never wait.
func (w *worker) mayWait() {
	if w.waits == nil {
		w.waits, w.asides = map[uint64]*waitFor{}, map[uint64]int{}
	}
}

// maxHastened is how many tasks one wait hastens: to look at all that it waits for may take long.
const maxHastened = 1000

// hasten lets a task that a running one waits for, and what that itself waits for, go before tasks for which nobody holds a process.
func (n *Node) hasten(num uint64, budget *int) {
	u := n.units[num]
	if u == nil || u.task == nil || u.task.hasty || *budget == 0 {
		return
	}
	*budget--
	t := u.task
	t.hasty = true
	switch {
	case t.state == task.WaitingForArgs:
		for _, o := range t.top() {
			if o.state == pending {
				n.hasten(o.u.num, budget)
			}
		}
	case t.item.Waiting():
		n.sched.Hasten(&t.item)
	case t.actor != nil && t.actor.creation != nil && t.actor.creation != t:
		n.hasten(t.actor.id, budget)
	}
}

// unblocked is RG_UNBLOCKED.
func (n *Node) unblocked(p *peer, num uint64, flags uint16) {
	w := p.worker
	switch {
	case w == nil:
		return
	case flags&wire.FlagAside == 0:
		if w.waits[num] == nil {
			return
		}
		delete(w.waits, num)
	case w.asides[num] > 1:
		w.asides[num]--
		return
	case w.asides[num] == 1:
		delete(w.asides, num)
	default:
		return
	}
	w.nblocked--
	n.anyBlocked--
	if w.nblocked == 0 && w.lease != nil {
		n.sched.Unblock(w.lease)
	}
	n.wantsMore(w)
}

// A wait can never end when all it waits for can only come from tasks that wait themselves, or stand behind such. The search looks for the
// opposite: a way to something that can move. What is on the present path counts as stuck, which is what a cycle is.
type cycleSearch struct {
	n      *Node
	path   []*taskState
	budget int
	moves  map[*taskState]bool // found able to move
	cycle  []string
}

// checkWait answers a wait that cannot end with RG_WAIT_ERROR.
func (n *Node) checkWait(w *worker, k *waitFor) {
	if k.told || k.timed {
		return
	}
	u := n.units[k.task]
	if u == nil || u.task == nil {
		return
	}
	s := &cycleSearch{n: n, budget: 10_000, moves: map[*taskState]bool{}}
	if !s.stuck(u.task) || len(s.cycle) == 0 {
		return
	}
	k.told = true
	e := &sysError{
		Code: errs.EDEADLOCK, TaskName: u.task.t.Name,
		Message: "this wait would never end, because it is part of a cycle: " + strings.Join(s.cycle, "; ") + ". Do not wait inside an actor for a call that stands behind the present one (give the actor max_concurrency, make the method async, or return the reference)",
	}
	b := w.peer.frame()
	start := len(b)
	b = wire.Begin(b, wire.WaitError, 0, k.task)
	b = wire.AppendValue(b, wire.Value{Index: 1, Kind: wire.SysErr, IsError: true, Data: e.encode()})
	w.peer.done(wire.End(b, start))
}

// stuck says whether a task can never end.
func (s *cycleSearch) stuck(t *taskState) bool {
	if s.moves[t] {
		return false
	}
	if i := slices.Index(s.path, t); i >= 0 {
		if len(s.cycle) == 0 {
			for _, x := range append(slices.Clone(s.path[i:]), t) {
				s.cycle = append(s.cycle, s.n.shortly(x))
			}
			for i := range len(s.cycle) - 1 {
				s.cycle[i] += " waits for " + s.cycle[i+1]
			}
			s.cycle = s.cycle[:len(s.cycle)-1]
		}
		return true
	}
	if s.budget--; s.budget < 0 {
		return false
	}
	s.path = append(s.path, t)
	stuck := s.look(t)
	s.path = s.path[:len(s.path)-1]
	if !stuck {
		s.moves[t] = true
	}
	return stuck
}

func (n *Node) shortly(t *taskState) string {
	if t.actor != nil && t.t.Kind == task.Method && (t.t.Method == "" || t.t.Method == t.t.Name) {
		return t.actor.t.Name + "." + t.t.Name // a caller that did not know the class
	}
	return t.t.Name
}

func (s *cycleSearch) look(t *taskState) bool {
	if t.w == nil {
		switch {
		case t.state == task.WaitingForArgs:
			return slices.ContainsFunc(t.top(), func(o *object) bool { return o.state == pending && s.stuckObject(o.oid()) })
		case t.flags&wire.FlagActorCall != 0:
			return s.behind(t)
		}
		return s.starved(t)
	}
	k := t.w.waits[t.id]
	if k == nil {
		if t.flags&wire.FlagActorCall != 0 {
			return s.behind(t)
		}
		return false
	}
	if k.timed {
		return false
	}
	if k.any {
		return !slices.ContainsFunc(k.oids, func(o wire.OID) bool { return !s.stuckObject(o) })
	}
	return slices.ContainsFunc(k.oids, s.stuckObject)
}

// starved looks at a task that waits for resources. CPUs come free, for who waits gives its own back; others do not, so when all who hold one wait
// for ever, so does it.
func (s *cycleSearch) starved(t *taskState) bool {
	c := t.t.class
	if c == nil || c.Infeasible() != "" {
		return false // it will fail by itself
	}
	for _, name := range c.Short() {
		if name == schedule.CPU {
			continue
		}
		holders := 0
		moves := false
		for _, w := range s.n.workers {
			if w.lease == nil || w.lease.Resources()[name] == 0 {
				continue
			}
			holders++
			moves = moves || w.actor != nil || w.first == nil || w.waits[w.first.id] == nil || !s.stuck(w.first)
		}
		if holders > 0 && !moves {
			return true
		}
	}
	return false
}

// behind looks at a call that has not begun: it is stuck when all calls that occupy its group are.
func (s *cycleSearch) behind(t *taskState) bool {
	a := t.actor
	if a.State != actor.Alive || a.worker == nil {
		return a.State != actor.Dead && a.creation != nil && s.stuck(a.creation) // its constructor may wait
	}
	box := a.Box(t.t.Group)
	busy := 0
	for x := a.worker.first; x != nil && busy < box.Concurrency; x = x.wnext {
		if x.actor != a || a.Box(x.t.Group) != box {
			continue
		}
		busy++
		if x == t || a.worker.waits[x.id] == nil || !s.stuck(x) {
			return false
		}
	}
	return busy == box.Concurrency
}

func (s *cycleSearch) stuckObject(oid wire.OID) bool {
	u := s.n.units[oid.Task]
	if u == nil || u.task == nil {
		return false
	}
	if o := u.find(oid.Index); o != nil && o.state != pending {
		return false
	}
	return s.stuck(u.task)
}

// recheckActor looks again at the waits of an actor whose mailbox has grown: the new call may have closed a cycle.
func (n *Node) recheckActor(a *actorState) {
	if a.worker == nil || a.worker.nblocked == 0 {
		return
	}
	for _, k := range a.worker.waits {
		n.checkWait(a.worker, k)
	}
}
