package ownership

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// enabled lists what may happen next.
func (w *world) enabled() []action {
	var out []action
	add := func(a action) { out = append(out, a) }
	for i, s := range w.site[:w.c.nodes] {
		if s == nil {
			continue
		}
		at := int8(i)
		if len(w.words[i]) > 0 {
			add(action{verb: vHear, a: at})
		}
		for j := range w.c.nodes {
			if len(w.link[j][i]) > 0 {
				add(action{verb: vDeliver, a: int8(j), b: at})
			}
		}
		if w.left.crashes > 0 && slices.Contains(w.c.mortal, i) {
			add(action{verb: vCrash, a: at})
		}
		running, makes := s.running(w)
		for _, id := range slices.SortedFunc(maps.Keys(s.n.taken), compareLeased) {
			if s.n.taken[id].passed {
				continue
			}
			task := action{a: at, b: int8(index(id.From)), lease: int8(id.Lease)}
			task.verb = vFinish
			add(task)
			for j := range w.c.nodes {
				if w.left.passes > 0 && w.reachable(i, j) && s.n.dead[id.From] == 0 {
					task.verb, task.c = vPass, int8(j)
					add(task)
				}
			}
		}
		for o, t := range w.c.things {
			bit := uint8(1) << o
			if s.held[o] > 0 {
				add(action{verb: vDrop, a: at, objects: bit})
			}
			if !t.task && !t.item && t.owner == i && w.made&bit == 0 {
				switch {
				case t.holds < 0:
					add(action{verb: vCreate, a: at, objects: bit})
				case s.held[t.holds] > 0:
					add(action{verb: vPut, a: at, objects: bit})
				}
			}
			if s.held[o] == 0 && w.left.keeps > 0 && (running&bit != 0 || s.inCopy(w, o)) {
				add(action{verb: vKeep, a: at, objects: bit})
			}
			for j := range w.c.nodes {
				if !w.reachable(i, j) {
					continue
				}
				if s.held[o] > 0 || running&bit != 0 {
					if w.left.gives > 0 {
						add(action{verb: vGive, a: at, b: int8(j), objects: bit})
					}
					if w.left.tasks > 0 {
						add(action{verb: vSubmit, a: at, b: int8(j), objects: bit})
					}
				}
				if w.left.values > 0 && s.copy[o] {
					add(action{verb: vValue, a: at, b: int8(j), objects: bit})
				}
				if w.left.values > 0 && makes&bit != 0 && j == t.owner && (s.held[t.holds] > 0 || running&(1<<t.holds) != 0) {
					add(action{verb: vResult, a: at, b: int8(j), objects: bit})
				}
			}
		}
		if s.open && slices.ContainsFunc(w.c.things, func(t thing) bool { return t.item && t.owner == i }) {
			add(action{verb: vClose, a: at})
		}
	}
	return out
}

func (w *world) reachable(i, j int) bool { return i != j && w.site[i].n.dead[nodeID(j)] == 0 }

// running lists the arguments of the tasks that run here, and the objects whose values they make.
func (s *site) running(w *world) (args, makes uint8) {
	for _, t := range s.n.taken {
		if t.passed {
			continue
		}
		args |= mask(t.objects)
		for o, x := range w.c.things {
			if x.task || x.item {
				makes |= 1 << o
			}
		}
	}
	return args, makes
}

// inCopy says whether a value that is here holds the object.
func (s *site) inCopy(w *world, o int) bool {
	for v, t := range w.c.things {
		if s.copy[v] && t.holds == o {
			return true
		}
	}
	return false
}

// check says what is wrong with this world.
func (w *world) check() error {
	quiet, idle := true, true
	for i, s := range w.site[:w.c.nodes] {
		if s == nil {
			continue
		}
		quiet = quiet && len(w.words[i]) == 0
		idle = idle && s.held == [maxObjects]uint8{} && len(s.n.taken) == 0
		for o := range w.c.things {
			e := s.n.entries[w.c.id(o)]
			if e != nil && e.handles > 0 && !e.lost && w.freed&(1<<o) != 0 {
				return fmt.Errorf("object %s was freed while %s has it", w.c.things[o].name, nodeName(i))
			}
		}
		for j := range w.c.nodes {
			for _, p := range w.link[j][i] {
				quiet = false
				if x := mask(p.m.Objects) & w.freed; x != 0 && (p.m.Kind == Hand || p.m.Kind == Task) {
					return fmt.Errorf("object %s was freed while a message from %s to %s carries it", w.c.things[bits.TrailingZeros8(x)].name, nodeName(j), nodeName(i))
				}
			}
		}
	}
	if !quiet {
		return nil
	}
	for i, s := range w.site[:w.c.nodes] {
		if s == nil {
			continue
		}
		for _, e := range s.n.entries {
			if w.site[index(e.id.Owner)] == nil && !e.lost {
				return fmt.Errorf("%s was not told that the owner of %s died", nodeName(i), w.c.things[e.id.Index].name)
			}
			if e.adding || len(e.owed) > 0 {
				return fmt.Errorf("%s waits for the owner of %s for ever", nodeName(i), w.c.things[e.id.Index].name)
			}
			if idle {
				return fmt.Errorf("%s keeps %s, which nobody wants", nodeName(i), w.c.things[e.id.Index].name)
			}
		}
		if idle && len(s.n.lent) > 0 {
			return fmt.Errorf("%s waits for a task that nobody has", nodeName(i))
		}
		if s.n.flushed != s.n.epoch || int(s.n.epoch) != len(w.head.dead) || int(w.head.purged) != len(w.head.dead) {
			return fmt.Errorf("deaths are not purged at %s", nodeName(i))
		}
	}
	return nil
}

// encode writes all that matters of a world, with the nodes in the given order. Equal worlds have equal encodings.
func (w *world) encode(b []byte, order []int) []byte {
	var place [maxNodes]byte
	for at, i := range order {
		place[i] = byte(at)
	}
	of := func(n NodeID) byte { return place[index(n)] }
	tallyTo := func(t tally) {
		for _, i := range order {
			b = append(b, byte(t.of(nodeID(i))))
		}
	}
	flags := func(fs ...bool) {
		var x byte
		for k, f := range fs {
			if f {
				x |= 1 << k
			}
		}
		b = append(b, x)
	}
	for _, i := range order {
		s := w.site[i]
		if s == nil {
			b = append(b, 0xff)
			continue
		}
		for o := range w.c.things {
			e := s.n.entries[w.c.id(o)]
			if e == nil {
				b = append(b, 0xfe)
				continue
			}
			flags(e.adding, e.awaited, e.lost, s.copy[o])
			b = append(b, byte(e.handles), byte(e.received), s.held[o])
			tallyTo(e.pins)
			tallyTo(e.counts)
			tallyTo(e.owed)
		}
		flags(s.open)
		b = append(b, byte(s.n.epoch), byte(s.n.flushed), byte(len(s.n.lent)), byte(len(s.n.taken)))
		for l := Lease(1); l < 10; l++ {
			if t, ok := s.n.lent[l]; ok {
				b = append(b, byte(l), of(t.to), mask(t.objects))
				if t.of != nil {
					b = append(b, of(t.of.From), byte(t.of.Lease))
				}
			}
			for _, j := range order {
				if t := s.n.taken[Leased{nodeID(j), l}]; t != nil {
					b = append(b, byte(l), place[j], mask(t.objects))
					flags(t.passed)
				}
			}
		}
		for _, j := range order {
			b = append(b, byte(len(w.link[i][j])))
			for _, p := range w.link[i][j] {
				objects := mask(p.m.Objects)
				if p.m.Object != (ObjectID{}) {
					objects = 1 << p.m.Object.Index
				}
				b = append(b, byte(p.m.Kind), objects, byte(p.m.Count), byte(p.m.Lease), byte(p.value))
			}
		}
		b = append(b, byte(len(w.words[i])))
		for _, e := range w.words[i] {
			switch e := e.(type) {
			case Dead:
				b = append(b, 0x80|of(e.Node))
			case Purge:
				b = append(b, byte(e.Epoch))
			}
		}
	}
	for _, d := range w.head.dead {
		b = append(b, of(d))
	}
	return append(b, byte(w.head.purged), byte(w.left.gives), byte(w.left.tasks), byte(w.left.keeps), byte(w.left.passes), byte(w.left.values), byte(w.left.crashes), w.made, w.freed)
}

type key [2]uint64

type explorer struct {
	c      *config
	orders [][]int
	seeds  [2]maphash.Seed
	buf    [2][]byte
	seen   map[key]int32 // to the place in from, when paths are kept
	steps  int
}

func newExplorer(c *config) *explorer {
	x := &explorer{c: c, seen: map[key]int32{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	plain := make([]int, c.nodes)
	for i := range plain {
		plain[i] = i
	}
	permute(slices.Clone(c.alike), 0, func(p []int) {
		order := slices.Clone(plain)
		for k, i := range c.alike {
			order[i] = p[k]
		}
		x.orders = append(x.orders, order)
	})
	return x
}

func permute(p []int, k int, visit func([]int)) {
	if k >= len(p)-1 {
		visit(p)
		return
	}
	for i := k; i < len(p); i++ {
		p[k], p[i] = p[i], p[k]
		permute(p, k+1, visit)
		p[k], p[i] = p[i], p[k]
	}
}

// key is the same for worlds that differ only by an exchange of nodes that are alike.
func (x *explorer) key(w *world) key {
	x.buf[0] = w.encode(x.buf[0][:0], x.orders[0])
	for _, order := range x.orders[1:] {
		x.buf[1] = w.encode(x.buf[1][:0], order)
		if slices.Compare(x.buf[1], x.buf[0]) < 0 {
			x.buf[0], x.buf[1] = x.buf[1], x.buf[0]
		}
	}
	return key{maphash.Bytes(x.seeds[0], x.buf[0]), maphash.Bytes(x.seeds[1], x.buf[0])}
}

// begin makes the first world of a configuration.
func (c *config) begin() (*world, error) {
	w := newWorld(c)
	for line := range strings.Lines(c.setup) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		a, err := c.parse(line)
		if err != nil {
			return nil, err
		}
		if w, err = w.apply(a); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	w.left = c.left
	return w, w.check()
}

// explore visits every world that can come about, depth first, and returns the first error.
func (x *explorer) explore() error {
	first, err := x.c.begin()
	if err != nil {
		return err
	}
	x.seen[x.key(first)] = 0
	stack := []*world{first}
	for len(stack) > 0 {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, a := range w.enabled() {
			next, err := w.apply(a)
			x.steps++
			if err != nil {
				return err
			}
			k := x.key(next)
			if _, known := x.seen[k]; known {
				continue
			}
			x.seen[k] = 0
			if err := next.check(); err != nil {
				return err
			}
			stack = append(stack, next)
		}

	}
	return nil
}

// shortest looks breadth first for a way to an error, and returns it as a script.
func (x *explorer) shortest() ([]action, error) {
	type step struct {
		from int32
		a    action
	}
	first, err := x.c.begin()
	if err != nil {
		return nil, err
	}
	x.seen[x.key(first)] = 0
	steps := []step{{-1, action{}}}
	way := func(at int32, last action) []action {
		way := []action{last}
		for ; at > 0; at = steps[at].from {
			way = append(way, steps[at].a)
		}
		slices.Reverse(way)
		return way
	}
	layer, places := []*world{first}, []int32{0}
	for len(layer) > 0 {
		var after []*world
		var at []int32
		for i, w := range layer {
			for _, a := range w.enabled() {
				next, err := w.apply(a)
				if err == nil {
					k := x.key(next)
					if _, known := x.seen[k]; known {
						continue
					}
					x.seen[k] = int32(len(steps))
					err = next.check()
				}
				if err != nil {
					return way(places[i], a), err
				}
				at = append(at, int32(len(steps)))
				steps = append(steps, step{places[i], a})
				after = append(after, next)
			}
		}
		layer, places = after, at
	}
	return nil, nil
}
