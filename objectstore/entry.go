package objectstore

// Entry is one object. Its fields belong to the strand.
type Entry struct {
	s     *Store
	label string
	size  int64
	span  span    // while it has space
	rec   *record // its copy on disk, if there is one; an entry in the arena that has one leaves without being written again

	file   *spillFile // it lies in this file instead of the arena
	mapped *segment   // its record is pinned where it lies: in this segment,
	at     int64      // from here on
	early  bool       // it was brought back ahead of need
	broken bool       // its copy could not be read when last tried: not worth trying again until somebody needs it

	state    entryState
	deleted  bool
	spilling bool // being written to disk, still in the arena
	pins     int
	touched  int64                // when it was last let go of, in the store's count of that
	lease    int32                // 1 + the index of its lease; 0: it has none
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
	checking                    // being read where it lies, so that it may be mapped
	gone
)

// Seal says that the object is whole. It may now be pinned, and moved while it is not.
func (e *Entry) Seal() {
	if e.state != creating || e.deleted {
		return
	}
	e.state = resident
	if e.file != nil {
		return
	}
	e.s.pace.end(e.size)
	e.s.touch(e)
	e.s.rest(e)
	e.s.keepAhead(e.span.size)
	e.s.pump()
	e.s.spillAhead()
}

// Offset is where the object begins in the arena, or in its File; good while the entry is unsealed or pinned.
func (e *Entry) Offset() int64 {
	switch {
	case e.mapped != nil:
		return e.at
	case e.file != nil:
		return 0
	}
	return e.span.off
}

// File is the descriptor of the file that the object lies in when that is not the arena. It is the store's, and good while the entry is
// unsealed or pinned. An unsealed object may be written there; else the file is to be read only.
func (e *Entry) File() (fd int, ok bool) {
	switch {
	case e.mapped != nil:
		return e.mapped.fd, true
	case e.file != nil:
		return e.file.fd, true
	}
	return -1, false
}

// own notes whose the pages of its span are.
func (e *Entry) own() {
	if e.span.ext != nil {
		e.span.ext.owner = e
	}
}

// onArena tells whether the entry takes up space in the arena.
func (e *Entry) onArena() bool { return e.span.size > 0 }

// Size is the object's size in bytes.
func (e *Entry) Size() int64 { return e.size }

// Sealed tells whether Seal was called.
func (e *Entry) Sealed() bool { return e.state != creating }

// InArena tells whether the object is in memory now.
func (e *Entry) InArena() bool { return e.file == nil && (e.state == creating || e.state == resident) }

// InFile tells whether the object has a file of its own and so never takes space in the arena.
func (e *Entry) InFile() bool { return e.file != nil }

// Ready tells whether the object can be pinned at once: it is in memory, or in a file to be mapped.
func (e *Entry) Ready() bool { return e.state == creating || e.state == resident || e.mapped != nil }

// Pinned tells whether anybody keeps the object in place.
func (e *Entry) Pinned() bool { return e.pins > 0 || e.used() }

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
