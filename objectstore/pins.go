package objectstore

import "fmt"

// Need says what a pin is for: the more urgent, the sooner a spilled object comes back.
type Need uint8

// The needs, most urgent first.
const (
	ForGet  Need = iota // somebody waits for the value
	ForTask             // it is an argument of a task that is about to run
)

// Pin is PinFor a get.
func (s *Store) Pin(e *Entry, done func(off int64, err error)) { s.PinFor(ForGet, e, done) }

// PinFor keeps a sealed object in place until Unpin, and brings it back from disk when it is there. done runs before PinFor returns when
// the entry is Ready. The object is then at off, in the arena or in Entry.File.
func (s *Store) PinFor(need Need, e *Entry, done func(off int64, err error)) {
	switch {
	case s.closed:
		done(0, ErrClosed)
	case e.deleted:
		done(0, fmt.Errorf("%w: %s", ErrDeleted, e.label))
	case e.state == creating:
		done(0, fmt.Errorf("objectstore: %s is pinned before it is sealed", e.label))
	case e.Ready():
		s.addPin(e)
		done(e.Offset(), nil)
	default:
		e.waiters = append(e.waiters, done)
		switch {
		case e.state == spilled:
			e.state = queued
			s.enqueue(&request{size: e.size, label: e.label, entry: e, need: need})
		case e.state == queued:
			s.hurry(e, need)
		}
	}
}

// addPin takes one pin of an entry that is Ready.
func (s *Store) addPin(e *Entry) {
	if e.pins == 0 && e.onArena() {
		s.pinned += e.size
		if !e.spilling {
			s.unlist(e)
			s.held.pushBack(e)
		}
		s.needed(e)
	}
	e.pins++
}

// Unpin takes one pin back.
func (s *Store) Unpin(e *Entry) {
	if e.pins == 0 {
		panic("objectstore: " + e.label + " is unpinned more often than pinned")
	}
	if s.closed {
		return
	}
	if e.pins--; e.pins > 0 {
		return
	}
	if !e.onArena() {
		s.unmap(e)
		return
	}
	s.pinned -= e.size
	switch {
	case e.spilling:
	case e.deleted:
		s.release(e)
	default:
		s.rest(e)
	}
	s.touch(e)
	s.pump()
	s.spillAhead()
}

// touch notes that an entry has just been used.
func (s *Store) touch(e *Entry) {
	s.touches++
	e.touched = s.touches
}

// rest puts an entry that nobody pins, and that is not being copied, where its space can be had.
func (s *Store) rest(e *Entry) {
	s.unlist(e)
	if e.rec != nil {
		s.clean.pushBack(e)
		s.cleaned += e.span.size
	} else {
		s.idle.pushBack(e)
	}
}

// unlist takes an entry out of its list.
func (s *Store) unlist(e *Entry) {
	if e.list == &s.clean {
		s.cleaned -= e.span.size
	}
	e.list.remove(e)
}

// needed notes that an entry that was brought back ahead of need has been used, or is going.
func (s *Store) needed(e *Entry) {
	if e.early {
		e.early = false
		s.ahead -= e.span.size
	}
}
