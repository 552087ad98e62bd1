package schedule

import (
	"cmp"
	"slices"
	"time"
)

// Patience is how long an item lets younger ones pass by before what it needs is kept for it.
const Patience = 2 * time.Second

// Scheduler is one node's resources, queues and placement groups. It is not safe for concurrent use.
type Scheduler struct {
	NodeID  string
	Labels  map[string]string
	node    *Pool
	classes map[string]*Class
	waiting []*Class // those with items, in no order: there are few
	groups  map[uint64]*Group
	pending []*Group // not yet placed, in the order they came
	seq     uint64
}

// New makes a scheduler for a node with these resources. Each whole GPU gets an index.
func New(nodeID string, total Resources, labels map[string]string) *Scheduler {
	var gpus []Amount
	for left := total[GPU]; left > 0; left -= One {
		gpus = append(gpus, min(left, One))
	}
	return &Scheduler{
		NodeID: nodeID, Labels: labels, node: newPool(total, gpus, nil),
		classes: map[string]*Class{}, groups: map[uint64]*Group{},
	}
}

// Node is the node's own pool.
func (s *Scheduler) Node() *Pool { return s.node }

// Waiting returns the classes in which something waits.
func (s *Scheduler) Waiting() []*Class { return s.waiting }

// Class finds or makes the queue for a demand.
func (s *Scheduler) Class(d Demand) *Class {
	key := d.key()
	if c := s.classes[key]; c != nil {
		return c
	}
	c := &Class{Demand: d, s: s, needs: d.Resources.compile()}
	c.hold = c.needs
	if d.Hold != nil {
		c.hold = d.Hold.compile()
	}
	c.judge()
	s.classes[key] = c
	return c
}

// Forget drops the classes of processes that will not come again. Items in them are no longer found.
func (s *Scheduler) Forget(env uint64) {
	for key, c := range s.classes {
		if c.Demand.Env == env && c.n == 0 {
			delete(s.classes, key)
		}
	}
}

// Push puts an item to the end of a class's queue.
func (s *Scheduler) Push(c *Class, it *Item, now time.Duration) {
	s.seq++
	it.seq, it.since = s.seq, now
	c.append(it)
	s.note(c)
}

// PushBack returns an item that was taken and did not run. It keeps its place in the order.
func (s *Scheduler) PushBack(c *Class, it *Item) {
	c.insert(it)
	s.note(c)
}

// Hasten lets an item go before all that were not hastened: a process is held up by waiting for it, and whatever younger starts instead may only come
// to hold up another.
func (s *Scheduler) Hasten(it *Item) {
	if c := it.class; c != nil && it.seq != 0 {
		c.unlink(it)
		c.hasten(it)
	}
}

// Remove takes an item out of whatever queue it is in.
func (s *Scheduler) Remove(it *Item) {
	if it.class != nil {
		it.class.unlink(it)
	}
}

func (s *Scheduler) note(c *Class) {
	if !c.inWaiting {
		c.inWaiting = true
		s.waiting = append(s.waiting, c)
	}
}

// tidy drops empty classes from waiting and puts the others into the order of their heads.
func (s *Scheduler) tidy() {
	s.waiting = slices.DeleteFunc(s.waiting, func(c *Class) bool {
		c.inWaiting = c.n > 0
		return c.n == 0
	})
	if len(s.waiting) > 1 {
		slices.SortFunc(s.waiting, func(a, b *Class) int {
			return cmp.Compare(a.first.seq, b.first.seq)
		})
	}
}

// Grant picks the class that is to run next and cuts its lease; nil when nothing can start. ready says whether a process is there for
// the class; it is asked only for classes whose resources are free.
func (s *Scheduler) Grant(now time.Duration, ready func(*Class) bool) (*Class, *Lease) {
	if len(s.waiting) == 0 {
		return nil, nil
	}
	s.tidy()
	var kept []*Class // waited too long: younger ones must not take what these need
	for _, c := range s.waiting {
		if slices.ContainsFunc(kept, func(k *Class) bool { return rivals(k, c) }) {
			continue
		}
		p := c.fits()
		if p == nil {
			if c.infeasible == "" && now-c.first.since > Patience {
				kept = append(kept, c)
			}
			continue
		}
		if !ready(c) {
			continue
		}
		c.Leases++
		return c, &Lease{pool: p, needs: c.needs, shares: p.take(c.needs)}
	}
	return nil, nil
}

// rivals says whether two classes want the same resource of the same pool.
func rivals(a, b *Class) bool {
	if a.Demand.Group != b.Demand.Group || (a.Demand.Bundle >= 0 && b.Demand.Bundle >= 0 && a.Demand.Bundle != b.Demand.Bundle) {
		return false
	}
	for _, n := range a.needs {
		if b.Demand.Resources[n.name] > 0 {
			return true
		}
	}
	return false
}

// Room says how many more leases of the class would fit now, at most as many as items wait.
func (s *Scheduler) Room(c *Class) int {
	if p := c.fits(); p != nil {
		return p.times(c.needs, c.n)
	}
	return 0
}

// MayKeep says whether the holder of a lease may go on with its class's next item: something waits there, and nothing that came before
// it waits elsewhere for the same resources.
func (s *Scheduler) MayKeep(c *Class, l *Lease) bool {
	if c.n == 0 || l.blocked || l.pool.gone {
		return false
	}
	if len(s.waiting) == 1 {
		return true
	}
	for _, o := range s.waiting {
		if o != c && o.n > 0 && o.first.seq < c.first.seq && o.infeasible == "" && rivals(o, c) {
			return false
		}
	}
	return true
}

// Settle gives back what is only needed to start: the difference between the class's Resources and Hold.
func (s *Scheduler) Settle(c *Class, l *Lease) {
	if c.Demand.Hold == nil || l.done {
		return
	}
	for _, n := range l.needs {
		if n.name == GPU && c.Demand.Hold[GPU] != n.amount {
			return // an actor keeps the GPUs it was placed with
		}
	}
	l.pool.give(l.needs, nil)
	l.needs = c.hold
	for _, n := range l.needs {
		to := l.pool
		if to.gone {
			to = to.parent
		}
		*to.free[n.name] -= n.amount
	}
}

// Block lends the lease's CPU to others while its holder waits.
func (s *Scheduler) Block(l *Lease) {
	if !l.blocked && !l.done {
		l.blocked = true
		l.pool.give(cpuOf(l.needs), nil)
	}
}

// Unblock takes the CPU again, even when others have it now.
func (s *Scheduler) Unblock(l *Lease) {
	if l.blocked && !l.done {
		l.blocked = false
		to := l.pool
		if to.gone {
			to = to.parent
		}
		for _, n := range cpuOf(l.needs) {
			*to.free[n.name] -= n.amount
		}
	}
}

func cpuOf(needs []need) []need {
	for i := range needs {
		if needs[i].name == CPU {
			return needs[i : i+1]
		}
	}
	return nil
}

// Release ends a lease. It may be called twice.
func (s *Scheduler) Release(c *Class, l *Lease) {
	if l.done {
		return
	}
	s.Unblock(l)
	l.done = true
	c.Leases--
	l.pool.give(l.needs, l.shares)
}

// Fits says whether one more lease of the class could be cut now.
func (s *Scheduler) Fits(c *Class) bool { return c.fits() != nil }
