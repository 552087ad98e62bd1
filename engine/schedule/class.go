package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Demand is what a task needs to run, and where.
type Demand struct {
	Resources Resources
	Hold      Resources // kept after it was placed; nil: Resources. For actors, which need a CPU to start and none to live
	Actor     bool      // keeps its process for good: there must be as many processes as items
	Group     uint64    // placement group; 0: none
	Bundle    int       // of the group; -1: any
	Node      string    // only on this node, unless Soft
	Soft      bool
	Labels    []Label // what the node's labels must meet
	Env       uint64  // which worker processes can run it; opaque here
}

// key is equal for demands that may share a queue.
func (d *Demand) key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d|%v|", d.Env, d.Resources)
	if d.Hold != nil {
		fmt.Fprintf(&b, "%v", d.Hold)
	}
	fmt.Fprintf(&b, "|%v|%d.%d|%s.%v|%v", d.Actor, d.Group, d.Bundle, d.Node, d.Soft, d.Labels)
	return b.String()
}

// Item is one thing that waits. It belongs into what waits (a task), so that queueing allocates nothing.
type Item struct {
	Value      any
	prev, next *Item
	class      *Class
	seq        uint64
	since      time.Duration
}

// Waiting says whether the item is in a queue.
func (it *Item) Waiting() bool { return it.class != nil }

// Class is the queue of all items with one demand.
type Class struct {
	Demand     Demand
	Leases     int // out now
	needs      []need
	hold       []need
	first      *Item
	last       *Item
	hasty      *Item // the last of those that were hastened; they stand in front
	n          int
	inWaiting  bool
	infeasible string
	hopeless   bool // infeasible, and nothing that comes later changes it
	s          *Scheduler
	Data       any // the caller's
}

// Len is the number of items that wait.
func (c *Class) Len() int { return c.n }

// Head is the item that waits longest; nil when none does.
func (c *Class) Head() *Item { return c.first }

// Next is the item behind it; for walking through the queue.
func (it *Item) Next() *Item { return it.next }

// Since is when the item began to wait.
func (it *Item) Since() time.Duration { return it.since }

// Pop takes the item that waits longest.
func (c *Class) Pop() *Item {
	it := c.first
	if it != nil {
		c.unlink(it)
	}
	return it
}

func (c *Class) unlink(it *Item) {
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		c.first = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		c.last = it.prev
	}
	if c.hasty == it {
		c.hasty = it.prev
	}
	it.prev, it.next, it.class = nil, nil, nil
	c.n--
}

func (c *Class) append(it *Item) {
	it.class, it.prev, it.next = c, c.last, nil
	if c.last != nil {
		c.last.next = it
	} else {
		c.first = it
	}
	c.last = it
	c.n++
}

// hasten puts an item in front of all that were not hastened.
func (c *Class) hasten(it *Item) {
	it.seq = 0
	it.class, it.prev, it.next = c, c.hasty, c.first
	if c.hasty != nil {
		it.next = c.hasty.next
		c.hasty.next = it
	} else {
		c.first = it
	}
	if it.next != nil {
		it.next.prev = it
	} else {
		c.last = it
	}
	c.hasty = it
	c.n++
}

// insert puts an item that had waited before to the place its number gives it.
func (c *Class) insert(it *Item) {
	if it.seq == 0 {
		c.hasten(it)
		return
	}
	at := c.first
	for at != nil && at.seq < it.seq {
		at = at.next
	}
	if at == nil {
		c.append(it)
		return
	}
	it.class, it.prev, it.next = c, at.prev, at
	if at.prev != nil {
		at.prev.next = it
	} else {
		c.first = it
	}
	at.prev = it
	c.n++
}

// pool is where the class would run now; nil when that does not exist (yet).
func (c *Class) pool() *Pool {
	d := &c.Demand
	if d.Group == 0 {
		return c.s.node
	}
	g := c.s.groups[d.Group]
	if g == nil || g.State != Placed {
		return nil
	}
	if d.Bundle >= 0 {
		return g.pools[d.Bundle]
	}
	for _, p := range g.pools {
		if p.fits(c.needs) {
			return p
		}
	}
	return nil
}

func (c *Class) fits() *Pool {
	if c.infeasible != "" {
		return nil
	}
	p := c.pool()
	if p == nil || !p.fits(c.needs) {
		return nil
	}
	return p
}

// Infeasible says why the class can never run; "" when it can.
func (c *Class) Infeasible() string { return c.infeasible }

// Hopeless tells whether an infeasible class will stay so: nodes and placement groups that are gone do not come back, while resources may be added.
func (c *Class) Hopeless() bool { return c.hopeless }

func (c *Class) judge() {
	c.infeasible, c.hopeless = "", false
	d := &c.Demand
	if d.Node != "" && d.Node != c.s.NodeID && !d.Soft {
		c.infeasible, c.hopeless = fmt.Sprintf("it must run on node %s, which is not there", d.Node), true
		return
	}
	for _, l := range d.Labels {
		if !l.Meets(c.s.Labels) {
			c.infeasible = fmt.Sprintf("no node has the label %v", l)
			return
		}
	}
	if d.Group == 0 {
		if name, want, has := c.s.node.lacks(c.needs); name != "" {
			c.infeasible = fmt.Sprintf("it needs %v %s and no node has more than %v", want, name, has)
		} else if a := d.Resources[GPU]; a > One && a%One != 0 {
			c.infeasible = fmt.Sprintf("it needs %v GPU; above 1 only whole GPUs can be had", a)
		}
		return
	}
	g := c.s.groups[d.Group]
	if g == nil || g.State == Removed {
		c.infeasible, c.hopeless = "its placement group was removed", true
		return
	}
	if g.infeasible != "" {
		c.infeasible = "its placement group cannot be placed: " + g.infeasible
		return
	}
	if d.Bundle >= len(g.Bundles) {
		c.infeasible, c.hopeless = fmt.Sprintf("its placement group has %d bundles, so there is no bundle %d", len(g.Bundles), d.Bundle), true
		return
	}
	bundles := g.Bundles
	if d.Bundle >= 0 {
		bundles = bundles[d.Bundle : d.Bundle+1]
	}
	fits := func(b Resources) bool { return lacksOf(b, c.needs) == "" }
	if !slices.ContainsFunc(bundles, fits) {
		name := lacksOf(bundles[0], c.needs)
		c.infeasible = fmt.Sprintf("it needs %v %s and no bundle of its placement group has that much", d.Resources[name], name)
	}
}

func lacksOf(b Resources, needs []need) string {
	for _, n := range needs {
		if b[n.name] < n.amount {
			return n.name
		}
	}
	return ""
}

// Short names the resources of which the class waits for more; nil when it does not wait for resources.
func (c *Class) Short() []string {
	d := &c.Demand
	if d.Group == 0 {
		return c.s.node.short(c.needs)
	}
	g := c.s.groups[d.Group]
	if g == nil || g.State != Placed {
		return []string{"placement group"}
	}
	if d.Bundle >= 0 {
		return g.pools[d.Bundle].short(c.needs)
	}
	for _, p := range g.pools {
		if short := p.short(c.needs); len(short) == 0 {
			return nil
		}
	}
	return g.pools[0].short(c.needs)
}
