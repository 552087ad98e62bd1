package ownership

import (
	"iter"
	"slices"
)

// Refs is what keeps one object alive on its own node. It is embedded in the object: P is a process, O a pointer to the object.
//
// The object is wanted while a process holds it or something needs it: a task of which it is an argument or stands in one, a value that contains it, a template
// whose code it is, a call that is about to use it, another node. Whether a process holds it is yes or no; needs are counted, each Need with an Unneed of its own.
type Refs[P comparable, O any] struct {
	holder   P   // the usual one: most objects have no other
	holders  []P // the others; none when there is no holder
	contents []O // its value contains these, and has a need of each
	needs    int32
}

// Object is what has Refs in it.
type Object[P comparable, O any] interface{ Ownership() *Refs[P, O] }

// Ownership is there for Table.
func (r *Refs[P, O]) Ownership() *Refs[P, O] { return r }

// HeldBy says whether the process holds the object.
func (r *Refs[P, O]) HeldBy(p P) bool { return r.holder == p || slices.Contains(r.holders, p) }

// Hold notes that the process holds the object, and says whether that is new.
func (r *Refs[P, O]) Hold(p P) bool {
	var none P
	switch {
	case r.holder == none:
		r.holder = p
	case r.HeldBy(p):
		return false
	default:
		r.holders = append(r.holders, p)
	}
	return true
}

// LetGo is the opposite of Hold, and says whether the process held it. Settle follows.
func (r *Refs[P, O]) LetGo(p P) bool {
	if r.holder == p {
		var none P
		r.holder = none
		if k := len(r.holders); k > 0 {
			r.holder, r.holders = r.holders[k-1], r.holders[:k-1]
		}
		return true
	}
	i := slices.Index(r.holders, p)
	if i >= 0 {
		r.holders = slices.Delete(r.holders, i, i+1)
	}
	return i >= 0
}

// Holder is one of the processes that hold the object, if there is one.
func (r *Refs[P, O]) Holder() P { return r.holder }

// Holders are all the processes that hold the object.
func (r *Refs[P, O]) Holders() iter.Seq[P] {
	return func(yield func(P) bool) {
		var none P
		if r.holder == none || !yield(r.holder) {
			return
		}
		for _, p := range r.holders {
			if !yield(p) {
				return
			}
		}
	}
}

// Need counts one more that needs the object.
func (r *Refs[P, O]) Need() { r.needs++ }

// Unneed takes a need away. Settle follows.
func (r *Refs[P, O]) Unneed() { r.needs-- }

// Needs is how many there are.
func (r *Refs[P, O]) Needs() int { return int(r.needs) }

// Wanted says whether the object has to stay.
func (r *Refs[P, O]) Wanted() bool {
	var none P
	return r.holder != none || r.needs > 0
}

// Contents are the objects that the value contains.
func (r *Refs[P, O]) Contents() []O { return r.contents }

// Table frees what is not wanted any more.
type Table[P comparable, O Object[P, O]] struct {
	free    func(O)
	queue   []O
	freeing bool
}

// NewTable makes a table. free is called for what is wanted no more: it lets the object's value go and calls Empty, and does nothing if the value has gone before.
func NewTable[P comparable, O Object[P, O]](free func(O)) *Table[P, O] {
	return &Table[P, O]{free: free}
}

// Settle frees an object if it is not wanted, and what that sets free in turn: in a loop, for chains of values may be long.
func (t *Table[P, O]) Settle(o O) {
	if o.Ownership().Wanted() {
		return
	}
	t.queue = append(t.queue, o)
	if t.freeing {
		return
	}
	t.freeing = true
	for len(t.queue) > 0 {
		o := t.queue[len(t.queue)-1]
		t.queue = t.queue[:len(t.queue)-1]
		if !o.Ownership().Wanted() { // it may have been taken up again
			t.free(o)
		}
	}
	t.freeing = false
}

// Fill notes what an object's value contains. The needs were counted when the value came, before it was known whose it would be.
func (t *Table[P, O]) Fill(o O, contents []O) { o.Ownership().contents = contents }

// Empty is for a value that is there no more.
func (t *Table[P, O]) Empty(o O) {
	r := o.Ownership()
	contents := r.contents
	r.contents = nil
	for _, c := range contents {
		c.Ownership().Unneed()
		t.Settle(c)
	}
}
