package engine

import (
	"fmt"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/ids"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// groupData is the engine's part of a placement group.
type groupData struct {
	u        *unit // object (pg, 1) is there when the group is placed
	job      *job
	name     string
	detached bool
	since    time.Duration
}

func groupOf(g *schedule.Group) *groupData { return g.Data.(*groupData) }

func (n *Node) groupText(g *schedule.Group) string {
	id := ids.PG(g.ID, n.incarnation, groupOf(g).job.number())
	s := ids.Hex(id[:])
	if name := groupOf(g).name; name != "" {
		s = fmt.Sprintf("%q (%s)", name, s)
	}
	return s
}

// createGroup is `pg.create`.
func (n *Node) createGroup(p *peer, num uint64, bundles []schedule.Resources, strategy, name string, detached bool) error {
	if num == 0 || n.units[num] != nil || n.sched.Group(num) != nil {
		return errs.New(errs.EINVAL, "number %x was used before", num)
	}
	switch strategy {
	case "":
		strategy = "PACK"
	case "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD":
	default:
		return errs.New(errs.EINVAL, "strategy %q is none of PACK, SPREAD, STRICT_PACK, STRICT_SPREAD", strategy)
	}
	if len(bundles) == 0 {
		return errs.New(errs.EINVAL, "a placement group needs at least one bundle")
	}
	for i, b := range bundles {
		any := false
		for res, a := range b {
			if a < 0 {
				return errs.New(errs.EINVAL, "bundle %d asks for %v %s; an amount cannot be negative", i, a, res)
			}
			any = any || a > 0
		}
		if !any {
			return errs.New(errs.EINVAL, "bundle %d asks for nothing", i)
		}
	}
	if name != "" {
		if n.pgNames[name] != 0 {
			return errs.New(errs.EEXISTS, "a placement group is called %q already", name)
		}
		n.pgNames[name] = num
	}
	u := n.unit(num, p.job, p)
	o := u.object(1)
	n.hold(o, p)
	n.need(o) // until it is removed: others may ask for it
	g := &schedule.Group{ID: num, Strategy: strategy, Bundles: bundles}
	g.Data = &groupData{u: u, job: p.job, name: name, detached: detached, since: n.now}
	n.sched.AddGroup(g, n.now)
	if why := g.Infeasible(); why != "" {
		n.warn(p.job, fmt.Sprintf("Placement group %s can never be placed: %s.", n.groupText(g), why))
		if limit := n.opts.infeasibleTimeout(); limit >= 0 && !n.infeasible {
			n.infeasible = true
			n.after(limit, n.failInfeasible)
		}
	}
	n.reschedule = true
	return nil
}

func (n *Node) groupPlaced(g *schedule.Group) {
	n.set(groupOf(g).u.find(1), value{state: inline, data: noneBlob, size: uint64(len(noneBlob))})
}

// removeGroup gives a group's resources back and ends what runs in it.
func (n *Node) removeGroup(g *schedule.Group) {
	if g.State == schedule.Removed {
		return
	}
	d := groupOf(g)
	text := n.groupText(g)
	n.sched.RemoveGroup(g)
	if d.name != "" && n.pgNames[d.name] == g.ID {
		delete(n.pgNames, d.name)
	}
	for _, a := range n.actorsBy(func(a *actorState) bool { return a.t.group == g.ID && a.State != actor.Dead }) {
		code := errs.EACTORPGREMOVED
		if a.worker != nil { // as in Ray, the codes of their own are for what never ran
			code = errs.EACTORDIED
		}
		n.killActor(a, &sysError{Code: code, Actor: a.id, Message: fmt.Sprintf("The actor died because its placement group %s was removed: %s", text, n.actorText(a))})
	}
	for _, t := range n.tasksBy(func(t *taskState) bool { return t.t.group == g.ID && t.flags&wire.FlagActorCreate == 0 }) {
		if t.u.task == t {
			code := errs.EPGREMOVED
			if t.state == task.Running {
				code = errs.EWORKERDIED
			}
			n.endTask(t, &sysError{Code: code, Message: fmt.Sprintf("%s was ended because its placement group %s was removed", n.describe(t), text)}, true)
		}
	}
	if o := d.u.find(1); o != nil {
		if o.state == pending {
			n.set(o, (&sysError{Code: errs.EPGREMOVED, Message: fmt.Sprintf("placement group %s was removed before it was placed", text)}).value())
		}
		n.unneed(o)
	}
	n.groupOver(g)
	n.reschedule = true
}
