package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Amount is an amount of a resource in 1/10000.
type Amount int64

// One is a whole unit.
const One Amount = 10000

// FromFloat rounds to the nearest amount.
func FromFloat(f float64) Amount {
	if f < 0 {
		return Amount(f*float64(One) - 0.5)
	}
	return Amount(f*float64(One) + 0.5)
}

// Float is the amount in units.
func (a Amount) Float() float64 { return float64(a) / float64(One) }

func (a Amount) String() string { return strconv.FormatFloat(a.Float(), 'f', -1, 64) }

// Names of the resources the scheduler itself knows.
const (
	CPU = "CPU"
	GPU = "GPU"
)

// Resources is a set of amounts by name. Amounts of 0 count as absent.
type Resources map[string]Amount

// String lists the amounts in the order of their names.
func (r Resources) String() string {
	parts := make([]string, 0, len(r))
	for _, name := range r.names() {
		parts = append(parts, fmt.Sprintf("%s: %v", name, r[name]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (r Resources) names() []string {
	out := make([]string, 0, len(r))
	for name, a := range r {
		if a != 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Floats is the set in units.
func (r Resources) Floats() map[string]float64 {
	out := make(map[string]float64, len(r))
	for name, a := range r {
		out[name] = a.Float()
	}
	return out
}

// need is one amount of a compiled demand.
type need struct {
	name   string
	amount Amount
}

func (r Resources) compile() []need {
	var out []need
	for _, name := range r.names() {
		out = append(out, need{name, r[name]})
	}
	return out
}

// Share is a part of one GPU.
type Share struct {
	Index  int // of the node's GPUs
	Amount Amount
}

// Pool is what leases are cut from: a node, or a bundle of a placement group.
type Pool struct {
	total  map[string]Amount
	free   map[string]*Amount // pointers, so that a compiled demand could keep them; may be below 0 after Unblock
	gpus   []Amount           // free part of each GPU of the node
	parent *Pool              // the node's pool, when this is a bundle
	gone   bool               // the bundle was given back: its leases release into parent
}

func newPool(total Resources, gpus []Amount, parent *Pool) *Pool {
	p := &Pool{total: map[string]Amount{}, free: map[string]*Amount{}, gpus: gpus, parent: parent}
	for name, a := range total {
		if a == 0 && parent != nil {
			continue // absent: the node need not even know the name
		}
		free := a
		p.total[name], p.free[name] = a, &free
	}
	return p
}

// Total returns what the pool has.
func (p *Pool) Total() Resources { return Resources(p.total) }

// Free returns what is not leased, at least 0.
func (p *Pool) Free() Resources {
	out := Resources{}
	for name, a := range p.free {
		out[name] = max(*a, 0)
	}
	return out
}

func (p *Pool) fits(needs []need) bool {
	for i := range needs {
		free := p.free[needs[i].name]
		if free == nil || *free < needs[i].amount {
			return false
		}
		if needs[i].name == GPU && !p.gpuFits(needs[i].amount) {
			return false
		}
	}
	return true
}

// times says how many more leases of this kind fit, at most limit.
func (p *Pool) times(needs []need, limit int) int {
	for i := range needs {
		free := p.free[needs[i].name]
		if free == nil {
			return 0
		}
		limit = min(limit, int(max(*free, 0)/needs[i].amount))
	}
	return limit
}

// lacks names the first resource of which the pool never has enough; "" when it could meet the demand when empty.
func (p *Pool) lacks(needs []need) (name string, want, has Amount) {
	for _, n := range needs {
		if p.total[n.name] < n.amount {
			return n.name, n.amount, p.total[n.name]
		}
	}
	return "", 0, 0
}

// short names the resources of which too little is free now.
func (p *Pool) short(needs []need) []string {
	var out []string
	for _, n := range needs {
		if free := p.free[n.name]; free == nil || *free < n.amount {
			out = append(out, n.name)
		}
	}
	return out
}

// gpuFits: a part of a GPU comes from one GPU, whole ones are whole.
func (p *Pool) gpuFits(a Amount) bool {
	if len(p.gpus) == 0 {
		return true
	}
	if a < One {
		return slices.ContainsFunc(p.gpus, func(free Amount) bool { return free >= a })
	}
	whole := Amount(0)
	for _, free := range p.gpus {
		if free >= One {
			whole++
		}
	}
	return a%One == 0 && whole >= a/One
}

func (p *Pool) take(needs []need) []Share {
	var shares []Share
	for i := range needs {
		*p.free[needs[i].name] -= needs[i].amount
		if needs[i].name == GPU {
			shares = p.takeGPUs(needs[i].amount)
		}
	}
	return shares
}

func (p *Pool) takeGPUs(a Amount) []Share {
	if len(p.gpus) == 0 {
		return nil
	}
	if a < One { // the fullest that still fits keeps whole ones whole
		best := -1
		for i, free := range p.gpus {
			if free >= a && (best < 0 || free < p.gpus[best]) {
				best = i
			}
		}
		p.gpus[best] -= a
		return []Share{{best, a}}
	}
	var shares []Share
	for i := range p.gpus {
		if a >= One && p.gpus[i] >= One {
			p.gpus[i] -= One
			a -= One
			shares = append(shares, Share{i, One})
		}
	}
	return shares
}

func (p *Pool) give(needs []need, shares []Share) {
	to := p
	if p.gone {
		to = p.parent
	}
	for i := range needs {
		*to.free[needs[i].name] += needs[i].amount
	}
	for _, s := range shares {
		to.gpus[s.Index] += s.Amount
	}
}

// Lease is the right to use resources of one pool. Its GPUs are fixed for its life.
type Lease struct {
	pool    *Pool
	needs   []need
	shares  []Share
	blocked bool // its CPU is lent back
	done    bool
}

// GPUs returns the parts of GPUs that the lease holds.
func (l *Lease) GPUs() []Share { return l.shares }

// Resources returns what the lease holds, the CPU lent back included.
func (l *Lease) Resources() Resources {
	out := Resources{}
	for _, n := range l.needs {
		out[n.name] = n.amount
	}
	return out
}

// Blocked says whether the lease's CPU is lent back.
func (l *Lease) Blocked() bool { return l.blocked }

// InPool says whether the lease was cut from the pool given.
func (l *Lease) InPool(p *Pool) bool { return l.pool == p }
