package objectstore

import "fmt"

// Objects that cannot be in the arena are mapped from disk by their readers: one that is larger than the arena, or found no room in it,
// lies in a file of its own from the start; one that was spilled and finds no room to come back to is mapped where its record lies.

// createFile makes an entry whose place is a file. fail says in the user's words what went wrong.
func (s *Store) createFile(size int64, label string, fail func(error) error, done func(*Entry, error)) {
	s.out.do(urgent, func() func() {
		f, err := s.disk.create(size)
		return func() {
			switch {
			case s.closed:
				if f != nil {
					s.disk.remove(f)
				}
				done(nil, ErrClosed)
			case err != nil:
				done(nil, fail(err))
			default:
				e := &Entry{s: s, size: size, label: label, state: creating, file: f}
				s.objects++
				s.inFiles += size
				s.files[e] = struct{}{}
				done(e, nil)
			}
		}
	})
}

func (s *Store) removeFile(e *Entry) {
	f := e.file
	delete(s.files, e)
	s.inFiles -= e.size
	e.state = gone
	s.out.do(urgent, func() func() { s.disk.remove(f); return nil })
}

// mapRecord has a spilled entry pinned where it lies. It is read once before, so that nobody maps what has been damaged.
func (s *Store) mapRecord(e *Entry) {
	e.state = checking
	s.checks[e] = struct{}{}
	rec := e.rec
	s.in.do(urgent, func() func() {
		seg, off, err := s.disk.check(rec)
		return func() {
			delete(s.checks, e)
			if s.closed {
				return
			}
			e.state = spilled
			switch {
			case e.deleted:
				if err == nil {
					s.disk.unuse(seg)
				}
				s.dropRecord(e)
			case err != nil:
				s.failWaiters(e, fmt.Errorf("%s: %w", e.label, err))
			case len(e.waiters) == 0:
				s.disk.unuse(seg)
			default:
				e.mapped, e.at = seg, off
				s.answerWaiters(e)
			}
			s.pump()
		}
	})
}

// answerWaiters gives a pin to everyone who waits for an entry that is now Ready.
func (s *Store) answerWaiters(e *Entry) {
	waiters := e.waiters
	e.waiters = nil
	for range waiters {
		s.addPin(e)
	}
	off := e.Offset()
	for _, w := range waiters {
		w(off, nil)
	}
}

// unmap is for an entry outside the arena that has lost its last pin.
func (s *Store) unmap(e *Entry) {
	if e.file != nil {
		if e.deleted {
			s.removeFile(e)
		}
		return
	}
	seg := e.mapped
	e.mapped = nil
	s.disk.unuse(seg)
	if e.deleted {
		s.dropRecord(e)
	}
}

// forgetRecord gives the disk space of an entry's copy back.
func (s *Store) forgetRecord(e *Entry) {
	rec := e.rec
	if rec == nil {
		return
	}
	e.rec = nil
	s.out.do(urgent, func() func() {
		if seg := s.disk.drop(rec); seg != nil {
			return func() { s.compact(seg) }
		}
		return nil
	})
}

// compact moves what lives in a segment elsewhere, a piece at a time so that more urgent work need not wait.
func (s *Store) compact(seg *segment) {
	if s.closed || s.compacting[seg] {
		return
	}
	s.compacting[seg] = true
	s.out.do(sometime, func() func() {
		more := s.disk.compact(seg)
		return func() {
			delete(s.compacting, seg)
			if more {
				s.compact(seg)
			}
		}
	})
}
