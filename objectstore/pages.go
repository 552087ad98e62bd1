package objectstore

import "time"

const (
	largeCreate   = 1 << 20  // objects from here on start populating
	populatePiece = 16 << 20 // about 10 ms of work
	trimPiece     = 64 << 20
)

// keepAhead is called with each sealed object: while one is being written its producer needs the processors and faults in what it lacks itself. Once
// large objects are made, fresh pages are populated before they are asked for: as much as is in use, so that a program that made one object
// does not pay for a hundred.
func (s *Store) keepAhead(size int64) {
	s.recent = max(s.recent, s.used())
	if size >= largeCreate {
		s.populateMore()
	}
}

func (s *Store) populateMore() {
	goal := min(s.opts.PopulateAhead, s.opts.Capacity/4, s.recent)
	short := goal - s.arena.warmPages<<pageShift
	if s.paging || s.noPopulate || short <= 0 {
		return
	}
	cold := s.arena.nextCold()
	if cold == nil {
		return
	}
	e := s.arena.reserve(cold, pagesFor(min(short, populatePiece)))
	s.paging = true
	off, n := e.page<<pageShift, e.pages<<pageShift
	s.pages.do(urgent, func() func() {
		err := s.mem.populate(off, n)
		return func() {
			if s.closed {
				return
			}
			s.paging = false
			if err != nil {
				// An old kernel, or memory is short: pages are then touched by whoever writes first.
				s.noPopulate = true
				s.arena.unreserve(e, extentCold, 0)
			} else {
				s.arena.unreserve(e, extentWarm, s.now())
			}
			s.pump()
			s.populateMore()
			if s.trimAll > 0 && !s.paging {
				s.trim()
			} else {
				s.trimLater()
			}
		}
	})
}

// trimLater arranges that free pages go back to the system when they have not been used for a while. It is called when pages become free;
// with none there is no timer.
func (s *Store) trimLater() {
	if s.trimTimer == nil && s.opts.TrimAfter > 0 && !s.closed {
		s.trimTimer = time.AfterFunc(s.opts.TrimAfter, func() { s.env.Post(s.trim) })
	}
}

func (s *Store) trim() {
	if s.closed {
		return
	}
	if s.trimTimer != nil {
		s.trimTimer.Stop()
		s.trimTimer = nil
	}
	stale := max(s.now()-int64(s.opts.TrimAfter), s.trimAll)
	s.arena.dropStaleSlabs(stale)
	warm := s.arena.staleWarm(stale)
	if warm == nil || s.paging {
		if s.arena.warmPages > 0 || s.paging || s.arena.hasEmptySlabs() {
			s.trimLater()
		}
		return
	}
	s.recent = 0
	s.noPopulate = false
	e := s.arena.reserve(warm, trimPiece>>pageShift)
	s.paging = true
	off, n := e.page<<pageShift, e.pages<<pageShift
	s.pages.do(urgent, func() func() {
		err := s.mem.punch(off, n)
		return func() {
			if s.closed {
				return
			}
			s.paging = false
			if err != nil {
				// They stay warm, as if just used, so that this is not tried again at once.
				s.arena.unreserve(e, extentWarm, s.now())
				s.trimLater()
			} else {
				s.trims++
				s.arena.unreserve(e, extentCold, 0)
				s.trim()
			}
			s.pump()
		}
	})
}

// GiveBack returns memory to the system because that is short: all free pages, and those of objects that have a copy on disk. It says how many bytes are
// about to go. If these are fewer than needed, others begin to be copied to disk, so that there is more another time; that is not waited for, because
// programs fill memory faster than disks take it.
func (s *Store) GiveBack(needed int64) int64 {
	if s.closed || s.opts.TrimAfter < 0 {
		return 0
	}
	for s.clean.first != nil {
		if e := s.clean.first; s.mayLeave(e) {
			s.leave(e)
		}
	}
	s.arena.dropEmptySlabs()
	s.recent = 0 // nothing is populated ahead
	n := s.arena.warmPages << pageShift
	if s.trimAll > 0 {
		n += s.arena.busyPages << pageShift // they are on their way
	}
	if n < needed && s.spilling == 0 && s.canSpill() {
		s.spill(needed - n)
	}
	if n > 0 {
		s.trimAll = s.now()
		if !s.paging { // else what pages it has is no longer wanted, and it goes on with the rest
			s.trim()
		}
	}
	return n
}
