package ownership

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// A world is a small cluster: nodes with the processes on them, the links between them, the head. Worlds are values: apply makes another one.
//
// What the processes do is as free as it can be: whoever has an object may hand it on, give it to a task, drop it; code that runs a task may keep its arguments;
// values may travel to wherever their object is. Budgets bound how often.

const (
	maxNodes   = 4
	maxObjects = 4
	names      = "HABC"
)

// thing is an object of a configuration.
type thing struct {
	name  string
	owner int
	holds int  // the object inside its value; -1: none
	task  bool // a task of its owner makes the value
	item  bool // a generator of its owner makes object and value
}

type budgets struct{ gives, tasks, keeps, passes, values, crashes int8 }

type config struct {
	name   string
	nodes  int
	things []thing
	setup  string // a script
	left   budgets
	mortal []int // nodes that may crash
	alike  []int // nodes that may be exchanged for each other
	rules  rules
}

type site struct {
	n    *Node
	held [maxObjects]uint8 // by processes
	copy [maxObjects]bool  // the value is here, and has a handle of what it holds
	open bool              // its generator is still read
}

type packet struct {
	m     Message
	value int8 // whose value comes with the references; -1: none
}

type world struct {
	c     *config
	site  [maxNodes]*site // nil: dead
	link  [maxNodes][maxNodes][]packet
	words [maxNodes][]Event
	head  *Head
	left  budgets
	made  uint8
	freed uint8
	log   *[]string
}

type verb uint8

const (
	vCreate verb = iota
	vPut
	vDrop
	vGive
	vSubmit
	vKeep
	vFinish
	vPass
	vValue
	vResult
	vClose
	vCrash
	vDeliver
	vHear
)

var verbs = [...]string{"create", "put", "drop", "give", "submit", "keep", "finish", "pass", "value", "result", "close", "crash", "deliver", "hear"}

// action is something that may happen next.
type action struct {
	verb    verb
	a, b, c int8
	objects uint8
	lease   int8
}

func newWorld(c *config) *world {
	w := &world{c: c, head: NewHead(), left: budgets{100, 100, 100, 100, 100, 100}}
	for i := range c.nodes {
		w.site[i] = &site{n: NewNode(nodeID(i)), open: true}
		w.head.Join(nodeID(i))
	}
	return w
}

func nodeID(i int) NodeID               { return NodeID(i + 1) }
func index(n NodeID) int                { return int(n) - 1 }
func nodeName[I int | int8](i I) string { return names[i : i+1] }
func (c *config) id(o int) ObjectID {
	return ObjectID{Owner: nodeID(c.things[o].owner), Index: uint32(o)}
}
func (c *config) ids(mask uint8) (o []ObjectID) {
	for m := mask; m != 0; m &= m - 1 {
		o = append(o, c.id(bits.TrailingZeros8(m)))
	}
	return o
}

func mask(objects []ObjectID) (m uint8) {
	for _, o := range objects {
		m |= 1 << o.Index
	}
	return m
}

func (s *site) clone() *site {
	t := *s
	n := *s.n
	n.out = nil
	n.entries = make(map[ObjectID]*entry, len(s.n.entries))
	for o, e := range s.n.entries {
		f := *e
		f.pins, f.counts, f.owed = slices.Clone(e.pins), slices.Clone(e.counts), slices.Clone(e.owed)
		n.entries[o] = &f
	}
	n.lent = maps.Clone(s.n.lent)
	n.dead = maps.Clone(s.n.dead)
	n.taken = make(map[Leased]*taken, len(s.n.taken))
	for id, t := range s.n.taken {
		u := *t
		n.taken[id] = &u
	}
	t.n = &n
	return &t
}

func (h *Head) clone() *Head {
	return &Head{flushed: maps.Clone(h.flushed), dead: slices.Clone(h.dead), purged: h.purged}
}

func (w *world) logf(format string, args ...any) {
	if w.log != nil {
		*w.log = append(*w.log, fmt.Sprintf(format, args...))
	}
}

// step gives a node of this world (already its own copy) an event and does what it says.
func (w *world) step(i int, e Event) error { return w.stepValue(i, e, -1) }

func (w *world) stepValue(i int, e Event, value int8) error {
	s := w.site[i]
	if _, err := s.n.Step(e); err != nil {
		return fmt.Errorf("%s: %w", nodeName(i), err)
	}
	w.c.rules.after(s.n, e, value >= 0)
	for _, f := range slices.Clone(s.n.out) {
		if err := w.do(i, f, value); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) do(i int, f Effect, value int8) error {
	s := w.site[i]
	o := int(f.Object.Index)
	switch f.Kind {
	case Send:
		to := index(f.Node)
		w.logf("%s > %s %s", nodeName(i), nodeName(to), w.c.text(f.Message, value))
		if w.site[to] != nil {
			w.link[i][to] = append(slices.Clip(w.link[i][to]), packet{f.Message, value})
		}
		if f.Message.Kind == Gone {
			return fmt.Errorf("%s registers object %s, which is gone", nodeName(to), w.c.things[o].name)
		}
	case Free:
		w.logf("%s frees %s", nodeName(i), w.c.things[o].name)
		if w.c.things[o].owner == i {
			w.freed |= 1 << o
		}
		return w.dropValue(i, o)
	case Lost:
		w.logf("%s loses %s", nodeName(i), w.c.things[o].name)
		return w.dropValue(i, o)
	case Orphaned:
		w.logf("%s: task %d at %s is orphaned", nodeName(i), f.Lease, nodeName(index(f.Node)))
	case Flushed:
		w.logf("%s has flushed %d", nodeName(i), f.Epoch)
		w.head = w.head.clone()
		if w.c.rules.oneByOne {
			w.tell(w.head.oneByOne(s.n.self, f.Epoch))
		} else {
			w.tell(w.head.Flushed(s.n.self, f.Epoch))
		}
	}
	return nil
}

func (w *world) dropValue(i, o int) error {
	s := w.site[i]
	if !s.copy[o] {
		return nil
	}
	s.copy[o] = false
	return w.step(i, Drop{w.c.id(w.c.things[o].holds)})
}

func (w *world) tell(words []Word) {
	for _, x := range words {
		i := index(x.To)
		w.words[i] = append(slices.Clip(w.words[i]), x.Event)
		if p, ok := x.Event.(Purge); ok {
			w.logf("head > %s PURGE %d", nodeName(i), p.Epoch)
		}
	}
}

var errNotNow = errors.New("that cannot happen now")

// apply makes the world in which the action has happened.
func (w *world) apply(a action) (*world, error) {
	next := *w
	w = &next
	i := int(a.a)
	if w.site[i] == nil && a.verb != vDeliver {
		return nil, errNotNow
	}
	if w.site[i] != nil && a.verb != vDeliver {
		w.site[i] = w.site[i].clone()
	}
	return w, w.perform(a, i)
}

func (w *world) perform(a action, i int) error {
	s := w.site[i]
	o := bits.TrailingZeros8(a.objects)
	switch a.verb {
	case vCreate, vPut:
		if w.made&a.objects != 0 || w.c.things[o].owner != i {
			return errNotNow
		}
		return w.create(i, o, a.verb == vPut)
	case vDrop:
		if s.held[o] == 0 {
			return errNotNow
		}
		s.held[o]--
		return w.step(i, Drop{w.c.id(o)})
	case vGive:
		w.left.gives--
		return w.step(i, Give{nodeID(int(a.b)), w.c.ids(a.objects)})
	case vSubmit:
		w.left.tasks--
		for o, t := range w.c.things {
			if t.task && t.owner == i && w.made&(1<<o) == 0 {
				if err := w.create(i, o, false); err != nil {
					return err
				}
			}
		}
		return w.step(i, Submit{To: nodeID(int(a.b)), Lease: s.n.freeLease(), Objects: w.c.ids(a.objects)})
	case vPass:
		w.left.passes--
		return w.step(i, Submit{To: nodeID(int(a.c)), Lease: s.n.freeLease(), For: a.task()})
	case vKeep:
		w.left.keeps--
		s.held[o]++
		return w.step(i, Take{w.c.id(o)})
	case vFinish:
		return w.step(i, Finish{*a.task()})
	case vValue, vResult:
		w.left.values--
		hands := w.c.ids(1 << w.c.things[o].holds)
		return w.stepValue(i, Give{nodeID(int(a.b)), hands}, int8(o))
	case vClose:
		s.open = false
		return nil
	case vCrash:
		w.left.crashes--
		w.crash(i)
		return nil
	case vDeliver:
		return w.deliver(i, int(a.b))
	case vHear:
		e := w.words[i][0]
		w.words[i] = w.words[i][1:]
		return w.hear(i, e)
	}
	panic("unknown verb")
}

func (a action) task() *Leased { return &Leased{nodeID(int(a.b)), Lease(a.lease)} }

func (n *Node) freeLease() Lease {
	l := Lease(1)
	for {
		if _, used := n.lent[l]; !used {
			return l
		}
		l++
	}
}

func (w *world) create(i, o int, filled bool) error {
	w.made |= 1 << o
	w.site[i].held[o]++
	if err := w.step(i, Take{w.c.id(o)}); err != nil || !filled {
		return err
	}
	w.site[i].copy[o] = true
	return w.step(i, Take{w.c.id(w.c.things[o].holds)})
}

func (w *world) crash(i int) {
	w.site[i] = nil
	w.words[i] = nil
	for j := range w.link {
		w.link[j][i] = nil
	}
	w.head = w.head.clone()
	dead := w.head.Died(nodeID(i))
	w.tell(dead)
	if w.c.rules.hasty {
		w.tell(w.head.tell(Purge{uint32(len(w.head.dead))}))
	}
}

func (w *world) hear(i int, e Event) error {
	switch e := e.(type) {
	case Dead:
		w.link[index(e.Node)][i] = nil
		w.logf("%s hears that %s is dead", nodeName(i), nodeName(index(e.Node)))
		return w.c.rules.hear(e, w.site[i].n, func() error { return w.step(i, e) })
	case Purge:
		w.logf("%s purges %d", nodeName(i), e.Epoch)
	}
	return w.step(i, e)
}

// deliver takes the oldest packet off a link.
func (w *world) deliver(from, to int) error {
	if len(w.link[from][to]) == 0 {
		return errNotNow
	}
	p := w.link[from][to][0]
	w.link[from][to] = w.link[from][to][1:]
	w.site[to] = w.site[to].clone()
	s := w.site[to]
	var heeded bool
	if p.m, heeded = w.c.rules.before(s.n, nodeID(from), p.m); !heeded {
		return nil
	}
	if err := w.step(to, Receive{nodeID(from), p.m}); err != nil {
		return err
	}
	if p.m.Kind != Hand {
		return nil
	}
	if p.value >= 0 {
		return w.arrive(to, int(p.value), p)
	}
	for _, o := range p.m.Objects {
		s.held[o.Index]++
	}
	return nil
}

// arrive is for a value: it stays where its object is wanted, and lets go of what it holds where not.
func (w *world) arrive(i, v int, p packet) error {
	s := w.site[i]
	t := w.c.things[v]
	if t.item && w.made&(1<<v) == 0 && s.open {
		if err := w.create(i, v, false); err != nil {
			return err
		}
	}
	if e := s.n.entries[w.c.id(v)]; e != nil && !e.lost && !s.copy[v] {
		s.copy[v] = true
		return nil
	}
	if len(p.m.Objects) == 0 {
		return nil
	}
	return w.step(i, Drop{p.m.Objects[0]})
}

func (c *config) text(m Message, value int8) string {
	t := m.Kind.String()
	switch m.Kind {
	case Task, Done:
		t += fmt.Sprintf(" t%d", m.Lease)
	}
	if value >= 0 {
		t += " value of " + c.things[value].name + ":"
	}
	if m.Kind == Done && len(m.Objects) > 0 {
		t += " kept"
	}
	for _, o := range m.Objects {
		t += " " + c.things[o.Index].name
	}
	switch m.Kind {
	case Add, Added, Gone:
		t += " " + c.things[m.Object.Index].name
	case Ack, Remove:
		t += fmt.Sprintf(" %s %d", c.things[m.Object.Index].name, m.Count)
	}
	return t
}

func (a action) text(c *config) string {
	t := verbs[a.verb] + " " + nodeName(a.a)
	switch a.verb {
	case vDeliver, vGive, vSubmit, vValue, vResult:
		t += " " + nodeName(a.b)
	case vFinish, vPass:
		t += fmt.Sprintf(" %s t%d", nodeName(a.b), a.lease)
	}
	if a.verb == vPass {
		return t + " " + nodeName(a.c)
	}
	for _, o := range c.ids(a.objects) {
		t += " " + c.things[o.Index].name
	}
	return t
}
