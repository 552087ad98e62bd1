package memmon

import (
	"cmp"
	"slices"
	"time"
)

// Candidate is a process that may be ended.
type Candidate struct {
	ID        uint64
	Bytes     int64         // what comes back
	Idle      bool          // it works at nothing
	Retriable bool          // what it works at is tried again
	Since     time.Duration // when it began with that
}

const (
	growth    = 8 << 20         // less than this is not called growing
	recently  = 2 * time.Second // how long a process counts as growing after it grew
	worth     = 16 << 20        // no process is ended for less: others have the memory, and it may be the only one that still gets something done
	idleWorth = 32 << 20        // and no idle one for less than this
)

// SecondSight is how soon a process that was seen for the first time should be looked at again.
const SecondSight = 50 * time.Millisecond

// Watch remembers how processes grew.
type Watch struct{ seen map[uint64]*track }

type track struct {
	mark  int64 // the size at which it last counted as grown
	first time.Duration
	grew  time.Duration
	grown bool // since it was first seen
}

// Note takes in what processes hold now. Those that are not named are forgotten.
func (w *Watch) Note(now time.Duration, all []Candidate) {
	if w.seen == nil {
		w.seen = map[uint64]*track{}
	}
	named := make(map[uint64]bool, len(all))
	for _, c := range all {
		named[c.ID] = true
		t := w.seen[c.ID]
		switch {
		case t == nil:
			w.seen[c.ID] = &track{mark: c.Bytes, first: now}
		case c.Bytes >= t.mark+growth:
			t.mark, t.grew, t.grown = c.Bytes, now, true
		case c.Bytes < t.mark:
			t.mark = c.Bytes
		}
	}
	for id := range w.seen {
		if !named[id] {
			delete(w.seen, id)
		}
	}
}

// Forget drops all that is known: memory is plentiful.
func (w *Watch) Forget() { w.seen = nil }

// Why says what spoke for a victim.
type Why uint8

// What may speak for a victim.
const (
	Nobody  Why = iota // there is no victim
	Later              // it is not known yet who grows; look again after SecondSight
	WasIdle            // it did nothing
	Grew               // its memory grew last
	Largest            // nobody grows, and it holds much
)

// Choose picks the process to be ended. Note must have been told of the same candidates. urgent: there is no time to look a second time.
//
// First an idle process that holds much: with it no work is lost. Then one whose memory grew last, for it is what makes memory short; ending others would
// only buy it time. Without one that grows, one that holds much. Of several, those come first whose work is tried again, and of these the one that began
// last, whose work is the least to lose. Processes that hold little are left alone, as their end would help nobody.
func (w *Watch) Choose(now time.Duration, all []Candidate, urgent bool) (Candidate, Why) {
	var largest int64
	var idle Candidate
	for _, c := range all {
		largest = max(largest, c.Bytes)
		if c.Idle && c.Bytes > idle.Bytes {
			idle = c
		}
	}
	if idle.Bytes >= idleWorth && idle.Bytes >= largest/8 {
		return idle, WasIdle
	}
	var heavy, growing []Candidate
	latest, unsure := time.Duration(-1), false
	for _, c := range all {
		if c.Idle || c.Bytes < max(largest/8, worth) {
			continue
		}
		heavy = append(heavy, c)
		t := w.seen[c.ID]
		if t == nil || !t.grown && now-t.first < SecondSight {
			unsure = true
			continue
		}
		if t.grown {
			latest = max(latest, t.grew)
		}
	}
	if unsure && !urgent && len(heavy) > 1 {
		return Candidate{}, Later
	}
	for _, c := range heavy {
		if t := w.seen[c.ID]; t != nil && t.grown && t.grew >= latest-recently && now-t.grew <= 2*recently {
			growing = append(growing, c)
		}
	}
	switch {
	case len(growing) > 0:
		return slices.MinFunc(growing, before), Grew
	case len(heavy) > 0:
		// Of those that stand still only such whose end helps.
		heavy = slices.DeleteFunc(heavy, func(c Candidate) bool { return c.Bytes < largest/4 })
		return slices.MinFunc(heavy, before), Largest
	}
	return Candidate{}, Nobody
}

func before(a, b Candidate) int {
	if a.Retriable != b.Retriable {
		if a.Retriable {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.ID, b.ID))
}
