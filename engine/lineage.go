package engine

import (
	"unsafe"

	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
)

// lineage is what stays of a task that has ended while one of its values is in the store, where it may be lost, or while another kept task would need
// one of them to run again: which task it was and, as long as it may be retried, all that it takes to run it again.
//
// Its references keep no values that can be made again. An argument of a task that nobody else needs is freed, and stays behind as a dormant object: one that
// was small keeps its bytes (it might have no lineage of its own, for what is not in the store is never lost), any other is made again by its own lineage when
// it is wanted. What was put stays, as in Ray: large arguments that are given by value are put, too.
type lineage struct {
	t          *taskState // with its arguments and references only while it can run again
	why        reason     // why it cannot
	bytes      int64
	prev, next *lineage // in the order in which they were kept; only of those that can run again
}

// reason is why a value cannot be made again. The numbers are those of Ray's ErrorType where Ray has the case.
type reason uint8

const (
	noReason        reason = 0
	retriesUsed     reason = 12
	lineageEvicted  reason = 13
	wasPut          reason = 27
	retriesDisabled reason = 28
	taskCancelled   reason = 31
	lineageDisabled reason = 32
	jobEnded        reason = 200
	actorIsDead     reason = 201
	fromElsewhere   reason = 202 // neither a task's nor put
)

// lineages are those that can run again.
type lineages struct {
	first, last *lineage
	bytes       int64
	tasks       int
	asleep      map[*object][]*object // what dormant objects contained that kept their bytes
	unwanted    worklist[*object]     // that a lineage gave up; to be let go
}

func (k *lineages) add(l *lineage) {
	l.prev, l.next = k.last, nil
	if k.last != nil {
		k.last.next = l
	} else {
		k.first = l
	}
	k.last = l
	k.bytes += l.bytes
	k.tasks++
}

func (k *lineages) remove(l *lineage) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		k.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		k.last = l.prev
	}
	l.prev, l.next = nil, nil
	k.bytes -= l.bytes
	k.tasks--
	l.bytes = 0
}

// keepLineage is called by finish, in place of dropDeps, for a task with values that can be lost.
func (n *Node) keepLineage(t *taskState) {
	l := &lineage{t: t}
	t.u.lineage = l
	t.lastWorker = nil // it may be long dead
	switch {
	case t.stop != nil:
		l.why = taskCancelled
	case n.opts.maxLineage() == 0:
		l.why = lineageDisabled
	case t.retries != 0:
	case n.allowed(t) == 0:
		l.why = retriesDisabled
	default:
		l.why = retriesUsed
	}
	if l.why != noReason {
		n.dropDeps(t)
		return
	}
	l.bytes = int64(unsafe.Sizeof(lineage{})) + int64(unsafe.Sizeof(taskState{})) + int64(len(t.args)) + int64(8*len(t.deps))
	for _, o := range t.deps {
		o.wanted++
		o.u.wanted++
		l.bytes += int64(len(o.data))
	}
	for _, o := range t.deps {
		n.unneed(o)
	}
	n.kept.add(l)
	for n.kept.bytes > n.opts.maxLineage() {
		if n.counts.evicted++; n.counts.evicted == 1 {
			n.logf("lineage of more than %d bytes is kept, so that of the oldest tasks is dropped: values of theirs that are lost cannot be made again", n.opts.maxLineage())
		}
		n.giveUp(n.kept.first, lineageEvicted)
	}
}

// allowed is how often a task might have been retried when it was submitted.
func (n *Node) allowed(t *taskState) int {
	if t.flags&wire.FlagActorCall == 0 {
		return t.t.MaxRetries
	}
	if t.t.MaxTaskRetries == task.Inherit && t.actor != nil {
		return t.actor.maxTaskRetries
	}
	return t.t.MaxTaskRetries
}

// giveUp drops what it takes to run a task again.
func (n *Node) giveUp(l *lineage, why reason) {
	n.kept.remove(l)
	l.why = why
	deps := l.t.deps
	l.t.deps, l.t.ntop, l.t.args = nil, 0, nil
	n.unwant(deps)
}

// maybeDropLineage forgets a task of which nothing is left that could be lost, or be wanted to make something else again.
func (n *Node) maybeDropLineage(u *unit) {
	l := u.lineage
	if l == nil || u.stored > 0 || u.wanted > 0 || u.task != nil {
		return
	}
	u.lineage = nil
	if l.why == noReason {
		n.giveUp(l, lineageEvicted)
	}
}

// unwant lets go of objects that a lineage wanted.
func (n *Node) unwant(objects []*object) { n.kept.unwanted.add(n.unwantOne, objects...) }

func (n *Node) unwantOne(o *object) {
	k, u := &n.kept, o.u
	o.wanted--
	u.wanted--
	if o.wanted == 0 && o.state == dormant {
		contents := k.asleep[o]
		delete(k.asleep, o)
		o.state, o.data = absent, nil
		if o != &u.first {
			delete(u.more, o.index)
		}
		n.unwant(contents)
	}
	n.maybeDropLineage(u)
	n.maybeFree(o)
}

// lull is called by free for an object that a kept lineage wants.
func (n *Node) lull(o *object) {
	o.was, o.state = o.state, dormant
	if o.was != inline && o.was != sysErr {
		o.data = nil
	} else if contents := o.Contents(); len(contents) > 0 {
		if n.kept.asleep == nil {
			n.kept.asleep = map[*object][]*object{}
		}
		n.kept.asleep[o] = contents
		for _, r := range contents {
			r.wanted++
			r.u.wanted++
		}
	}
	n.refs.Empty(o)
}

// revive brings a dormant object back: at once, or by having its task run again. Those it contains come with it.
func (n *Node) revive(o *object) {
	todo := []*object{o}
	for len(todo) > 0 {
		o := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if o.state != dormant {
			continue
		}
		u := o.u
		n.units[u.num] = u
		u.live++
		if o.was != inline && o.was != sysErr {
			n.miss(o, "it was freed when its last reference went, and is needed again")
			n.rebuild(u)
			continue
		}
		o.state = o.was
		contents := n.kept.asleep[o]
		delete(n.kept.asleep, o)
		for _, r := range contents {
			n.need(r)
			r.wanted--
			r.u.wanted--
		}
		n.refs.Fill(o, contents)
		todo = append(todo, contents...)
	}
}
