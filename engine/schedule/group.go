package schedule

import (
	"fmt"
	"slices"
	"time"
)

// GroupState is where a placement group stands.
type GroupState int

// The states of a placement group.
const (
	Pending GroupState = iota
	Placed
	Removed
)

func (g GroupState) String() string { return [...]string{"PENDING", "CREATED", "REMOVED"}[g] }

// Group is a placement group: bundles of resources that are cut from the node together or not at all.
type Group struct {
	ID         uint64
	Strategy   string
	Bundles    []Resources
	State      GroupState
	Data       any // the caller's
	pools      []*Pool
	needs      [][]need
	since      time.Duration
	infeasible string
}

// Infeasible says why the group can never be placed; "" when it can.
func (g *Group) Infeasible() string { return g.infeasible }

// Pool is the pool of one bundle of a placed group.
func (g *Group) Pool(bundle int) *Pool { return g.pools[bundle] }

// AddGroup queues a placement group.
func (s *Scheduler) AddGroup(g *Group, now time.Duration) {
	g.since = now
	sum := Resources{}
	for _, b := range g.Bundles {
		g.needs = append(g.needs, b.compile())
		for name, a := range b {
			sum[name] += a
		}
	}
	if g.Strategy == "STRICT_SPREAD" && len(g.Bundles) > 1 {
		g.infeasible = fmt.Sprintf("STRICT_SPREAD of %d bundles needs %d nodes and there is 1", len(g.Bundles), len(g.Bundles))
	} else if name, want, has := s.node.lacks(sum.compile()); name != "" {
		g.infeasible = fmt.Sprintf("its bundles need %v %s together and the node has %v", want, name, has)
	}
	s.groups[g.ID] = g
	s.pending = append(s.pending, g)
	s.rejudge(g.ID)
}

// Group finds a placement group; nil when there is none.
func (s *Scheduler) Group(id uint64) *Group { return s.groups[id] }

// Groups returns all placement groups.
func (s *Scheduler) Groups() []*Group {
	out := make([]*Group, 0, len(s.groups))
	for _, g := range s.groups {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b *Group) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

// PendingGroups says whether a group waits for its place.
func (s *Scheduler) PendingGroups() bool { return len(s.pending) > 0 }

// PlaceGroup places the first group that fits; nil when none does. One that has waited long is not passed by.
func (s *Scheduler) PlaceGroup(now time.Duration) *Group {
	for i, g := range s.pending {
		if g.infeasible != "" {
			continue
		}
		if s.place(g) {
			s.pending = slices.Delete(s.pending, i, i+1)
			return g
		}
		if now-g.since > Patience {
			return nil
		}
	}
	return nil
}

func (s *Scheduler) place(g *Group) bool {
	shares := make([][]Share, 0, len(g.needs))
	for i, needs := range g.needs {
		if !s.node.fits(needs) {
			for k := range i {
				s.node.give(g.needs[k], shares[k])
			}
			return false
		}
		shares = append(shares, s.node.take(needs))
	}
	for i, b := range g.Bundles {
		var gpus []Amount
		if len(s.node.gpus) > 0 {
			gpus = make([]Amount, len(s.node.gpus))
			for _, sh := range shares[i] {
				gpus[sh.Index] += sh.Amount
			}
		}
		g.pools = append(g.pools, newPool(b, gpus, s.node))
	}
	g.State = Placed
	return true
}

// RemoveGroup gives a group's resources back. Leases cut from it end into the node's pool.
func (s *Scheduler) RemoveGroup(g *Group) {
	s.pending = slices.DeleteFunc(s.pending, func(p *Group) bool { return p == g })
	for _, p := range g.pools {
		p.gone = true
		for name, a := range p.free {
			*s.node.free[name] += *a
		}
		for i, a := range p.gpus {
			s.node.gpus[i] += a
		}
	}
	g.State = Removed
	s.rejudge(g.ID)
}

// ForgetGroup drops a removed group and the classes that asked for it. What still waits in them is found, and cannot run.
func (s *Scheduler) ForgetGroup(g *Group) {
	delete(s.groups, g.ID)
	for key, c := range s.classes {
		if c.Demand.Group == g.ID {
			delete(s.classes, key)
		}
	}
}

func (s *Scheduler) rejudge(group uint64) {
	for _, c := range s.classes {
		if c.Demand.Group == group {
			c.judge()
		}
	}
}
