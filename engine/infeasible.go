package engine

import (
	"fmt"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/wire"
)

// noteInfeasible warns of a demand that this node can never meet, and has its tasks fail after a while: an engine without an autoscaler cannot grow.
func (n *Node) noteInfeasible(c *schedule.Class) {
	t := c.Head().Value.(*taskState)
	why := c.Infeasible()
	key := why + t.t.Name
	limit := n.opts.infeasibleTimeout()
	if limit == 0 || c.Hopeless() {
		n.strand.post(n.failInfeasible)
		return
	}
	if n.warned.first(key) {
		then := "It waits for ever, as infeasible_timeout_s is negative."
		if limit >= 0 {
			then = fmt.Sprintf("It fails in %v unless that changes.", limit)
		}
		n.warn(t.job, fmt.Sprintf("%s can never run: %s. %s", n.describe(t), why, then))
	}
	if limit >= 0 && !n.infeasible {
		n.infeasible = true
		n.after(limit, n.failInfeasible)
	}
}

// failInfeasible fails what has waited too long for what will not come.
func (n *Node) failInfeasible() {
	n.infeasible = false
	limit := n.opts.infeasibleTimeout()
	next := time.Duration(-1)
	classes := append([]*schedule.Class(nil), n.sched.Waiting()...)
	for _, c := range classes {
		why := c.Infeasible()
		if why == "" {
			continue
		}
		if limit < 0 && !c.Hopeless() {
			continue
		}
		removed := false
		if g := c.Demand.Group; g != 0 {
			pg := n.sched.Group(g)
			removed = pg == nil || pg.State == schedule.Removed
		}
		for it := c.Head(); it != nil; it = c.Head() {
			if left := limit - (n.now - it.Since()); left > 0 && !c.Hopeless() {
				if next < 0 || left < next {
					next = left
				}
				break
			}
			c.Pop()
			t := it.Value.(*taskState)
			e := &sysError{Code: errs.EUNSCHEDULABLE, Message: fmt.Sprintf("%s was given up after %v: %s. Ask for less, or start raygo with more.", n.describe(t), limit, why)}
			if c.Hopeless() {
				e.Message = fmt.Sprintf("%s cannot run: %s", n.describe(t), why)
			}
			if removed {
				e.Code = errs.EPGREMOVED
				if t.flags&wire.FlagActorCreate != 0 {
					e.Code = errs.EACTORPGREMOVED
				}
			}
			if t.flags&wire.FlagActorCreate != 0 && e.Code == errs.EUNSCHEDULABLE {
				e.Code = errs.EACTORUNSCHEDULABLE
			}
			n.fail(t, e)
		}
	}
	for _, g := range n.sched.Groups() {
		if limit < 0 {
			break
		}
		if d := groupOf(g); g.State == schedule.Pending && g.Infeasible() != "" {
			if left := limit - (n.now - d.since); left > 0 {
				if next < 0 || left < next {
					next = left
				}
				continue
			}
			n.set(d.u.find(1), (&sysError{Code: errs.EUNSCHEDULABLE, Message: fmt.Sprintf("placement group %s cannot be placed: %s", n.groupText(g), g.Infeasible())}).value())
		}
	}
	if next >= 0 {
		n.infeasible = true
		n.after(next+time.Millisecond, n.failInfeasible)
	}
}
