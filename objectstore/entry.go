package objectstore

// Entry is one object. Its fields belong to the strand.
type Entry struct {
	s     *Store
	label string
	size  int64
	span  span    // while it has space
	rec   *record // its copy on disk, if there is one; an entry in the arena that has one leaves without being written again

	state    entryState
	deleted  bool
	spilling bool // being written to disk, still in the arena
	pins     int
	waiters  []func(int64, error) // pins that wait until it is back

	list       *entryList
	prev, next *Entry
}

type entryState uint8

const (
	creating  entryState = iota // its producer writes
	resident                    // sealed, in the arena
	spilled                     // only on disk
	queued                      // only on disk, waiting for space to come back to
	restoring                   // being read back
	gone
)

// Seal says that the object is whole. It may now be pinned, and moved while it is not.
func (e *Entry) Seal() {
	if e.state != creating || e.deleted {
		return
	}
	e.state = resident
	e.s.held.remove(e)
	e.s.idle.pushBack(e)
	e.s.pump()
}

// Offset is where the object begins in the arena; good while the entry is unsealed or pinned.
func (e *Entry) Offset() int64 { return e.span.off }

// Size is the object's size in bytes.
func (e *Entry) Size() int64 { return e.size }

// Sealed tells whether Seal was called.
func (e *Entry) Sealed() bool { return e.state != creating }

// InArena tells whether the object is in memory now.
func (e *Entry) InArena() bool { return e.state == creating || e.state == resident }

// Pinned tells whether anybody keeps the object in place.
func (e *Entry) Pinned() bool { return e.pins > 0 }

// Label is the name given to Create.
func (e *Entry) Label() string { return e.label }

// entryList is a list of entries; an entry is in at most one.
type entryList struct {
	first, last *Entry
}

func (l *entryList) pushBack(e *Entry) {
	e.list, e.prev, e.next = l, l.last, nil
	if l.last != nil {
		l.last.next = e
	} else {
		l.first = e
	}
	l.last = e
}

func (l *entryList) remove(e *Entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.last = e.prev
	}
	e.list, e.prev, e.next = nil, nil, nil
}
