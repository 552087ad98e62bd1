package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// explainedObjects is how many objects a wait is explained for; more would not be read.
const explainedObjects = 5

// explain says in words what a wait for these objects is waiting for.
func (n *Node) explain(oids []wire.OID) string {
	var lines []string
	more := 0
	for _, oid := range oids {
		o := n.find(oid)
		if o != nil && o.state != pending && (o.state != inArena || o.entry.InArena()) {
			continue
		}
		if len(lines) == explainedObjects {
			more++
			continue
		}
		lines = append(lines, n.explainObject(oid, o, 0))
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

func (n *Node) explainObject(oid wire.OID, o *object, depth int) string {
	u := n.units[oid.Task]
	switch {
	case u == nil || o == nil && u.task == nil:
		return fmt.Sprintf("object %s was freed", n.objectHex(oid))
	case o != nil && o.state == inArena:
		return fmt.Sprintf("object %s is on disk and waits for room in the object store: it has %d bytes, and %d of %d are pinned by running tasks and by values that are held",
			n.objectHex(oid), o.entry.Size(), n.store.PinnedBytes(), n.store.Capacity())
	case u.task != nil:
		return n.explainTask(u.task, depth)
	}
	if g := n.sched.Group(oid.Task); g != nil {
		text := fmt.Sprintf("placement group %s waits for its place: ", n.groupText(g))
		if why := g.Infeasible(); why != "" {
			return text + "it is infeasible: " + why
		}
		return text + fmt.Sprintf("%s of %v is free", n.sched.Node().Free(), n.total)
	}
	return fmt.Sprintf("object %s is an item that its generator has not made", n.objectHex(oid))
}

func (n *Node) explainTask(t *taskState, depth int) string {
	who := n.describe(t)
	switch {
	case t.state == task.WaitingForArgs && t.waiting > 0:
		for i, o := range t.top() {
			if o.state == pending {
				text := fmt.Sprintf("%s waits for its argument %d (%s)", who, i+1, n.objectHex(o.oid()))
				if depth < 5 {
					text += "; " + n.explainObject(o.oid(), o, depth+1)
				}
				return text
			}
		}
		return who + " waits for its arguments"
	case t.w != nil && t.fetching > 0:
		all, _ := argumentSizes(t)
		return fmt.Sprintf("%s waits for room in the object store to bring its arguments back from disk (%d bytes; running tasks and held values pin %d of %d)",
			who, all, n.store.PinnedBytes(), n.store.Capacity())
	case t.w != nil && t == t.w.first || t.w != nil && t.state == task.Running && t.actor == nil:
		text := fmt.Sprintf("%s has been running for %.1f s in process %d", who, (n.now - t.started).Seconds(), t.w.pid)
		if k := t.w.waits[t.id]; k != nil && len(k.oids) > 0 {
			text += ", where it waits itself"
			if depth < 5 {
				text += ": " + n.explainObject(k.oids[0], n.find(k.oids[0]), depth+1)
			}
		} else if t.w.peer.asking > 0 {
			text += n.explainAsking(t.w.peer)
		} else if t.w.pid == 0 {
			text = fmt.Sprintf("%s was given to a worker process that is still starting", who)
		}
		return text
	case t.notBefore > 0:
		return fmt.Sprintf("%s is tried again in %.1f s, or when memory is there; its process was ended %d times to save memory", who, max(t.notBefore-n.now, 0).Seconds(), t.oomKills)
	case t.flags&wire.FlagActorCall != 0:
		return n.explainCall(t, who, depth)
	case t.w != nil:
		return fmt.Sprintf("%s stands behind %d others in process %d", who, n.placeOf(t), t.w.pid)
	case t.t.class != nil:
		return n.explainQueued(t, who)
	}
	return who + " waits for a process that serves it"
}

func (n *Node) placeOf(t *taskState) (before int) {
	for x := t.wprev; x != nil; x = x.wprev {
		before++
	}
	return before
}

func (n *Node) explainAsking(p *peer) string {
	return fmt.Sprintf(", where it waits for room in the object store for %d bytes (running tasks and held values pin %d of %d)", p.asked, n.store.PinnedBytes(), n.store.Capacity())
}

func (n *Node) explainCall(t *taskState, who string, depth int) string {
	a := t.actor
	switch {
	case a.State == actor.Alive && t.w != nil:
		if before := n.placeOf(t); before >= a.Box(t.t.Group).Concurrency {
			return fmt.Sprintf("%s waits behind %d other calls in %s (pid %d), of which the first is %s", who, before, n.actorText(a), t.w.pid, n.describe(t.w.first))
		}
		text := fmt.Sprintf("%s has been running for %.1f s in %s (pid %d)", who, (n.now - t.started).Seconds(), n.actorText(a), t.w.pid)
		if t.w.peer.asking > 0 {
			text += n.explainAsking(t.w.peer)
		}
		return text
	case a.State == actor.Alive:
		return fmt.Sprintf("%s waits for its turn in %s; %d calls are before it or run", who, n.actorText(a), a.Unfinished()-1)
	case a.creation.u.task == a.creation && depth < 5:
		return fmt.Sprintf("%s waits for its actor, which is %s: %s", who, a.State, n.explainTask(a.creation, depth+1))
	}
	return fmt.Sprintf("%s waits for its actor, which is %s", who, a.State)
}

func (n *Node) explainQueued(t *taskState, who string) string {
	c := t.t.class
	if why := c.Infeasible(); why != "" {
		return fmt.Sprintf("%s can never run: %s", who, why)
	}
	short := c.Short()
	if len(short) == 0 {
		e := t.t.env
		switch e.state {
		case envNew, envBuilding:
			return fmt.Sprintf("%s waits for its runtime environment to be built", who)
		}
		if e.short != "" {
			return fmt.Sprintf("%s is queued: %s", who, e.short)
		}
		if others := c.Len() - 1; others > 0 {
			return fmt.Sprintf("%s is queued with %d others of its kind; worker processes are being started", who, others)
		}
		return who + " is queued; a worker process is being started"
	}
	text := fmt.Sprintf("%s is queued for %v: of %s too little is free", who, c.Demand.Resources, strings.Join(short, " and "))
	if holders := n.holdersOfResources(short); len(holders) > 0 {
		text += "; held by " + strings.Join(holders, ", ")
	}
	return text
}

// holdersOfResources names who holds the most of the resources, a few of them.
func (n *Node) holdersOfResources(names []string) []string {
	count := map[string]int{}
	for _, w := range n.workers {
		if w.lease == nil || w.lease.Blocked() {
			continue
		}
		for _, name := range names {
			if w.lease.Resources()[name] > 0 {
				switch {
				case w.actor != nil:
					count["actor "+w.actor.t.Name]++
				case w.first != nil:
					count["task "+w.first.t.Name]++
				}
				break
			}
		}
	}
	for _, g := range n.sched.Groups() {
		if g.State == schedule.Placed {
			for _, b := range g.Bundles {
				if slices.ContainsFunc(names, func(name string) bool { return b[name] > 0 }) {
					count["placement group "+n.groupText(g)]++
					break
				}
			}
		}
	}
	var out []string
	for name, k := range count {
		out = append(out, fmt.Sprintf("%s (×%d)", name, k))
	}
	slices.Sort(out)
	if len(out) > explainedObjects {
		out = append(out[:explainedObjects], fmt.Sprintf("%d others", len(out)-explainedObjects))
	}
	return out
}
