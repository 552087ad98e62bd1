package objectstore

import (
	"fmt"
	"time"
)

// spillAhead copies idle objects to disk before their space is asked for, once what could not be had at once passes a share of the arena.
func (s *Store) spillAhead() {
	const atOnce = 64 << 20
	s.setPace()
	for {
		over := s.used() - s.cleaned - s.spilling - s.spillAt
		if over <= 0 || s.idle.first == nil || s.spilling >= atOnce || s.closed || !s.canSpill() {
			return
		}
		s.spill(over)
	}
}

// mayLeave tells whether nobody has pinned an entry of the clean list. One that its maker has leaves the list.
func (s *Store) mayLeave(e *Entry) bool {
	s.CallIn(e)
	return e.pins == 0
}

// leave lets an entry with a copy on disk go from the arena.
func (s *Store) leave(e *Entry) {
	s.unlist(e)
	s.needed(e)
	s.freeSpan(e)
	e.state = spilled
	s.spilled += e.size
}

// spill starts writing the least recently used idle entries to disk, at least one and about goal bytes. They stay readable where they are.
func (s *Store) spill(goal int64) {
	var batch []*Entry
	for bytes, e := int64(0), s.idle.first; e != nil && bytes < goal; {
		next := e.next
		if e.used() {
			s.CallIn(e) // a copy would not free its space
		} else {
			if bytes += e.span.size; len(batch) > 0 && bytes > ioChunk {
				break
			}
			batch = append(batch, e)
		}
		e = next
	}
	s.spillBatch(batch)
}

// spillThese starts writing idle entries to disk.
func (s *Store) spillThese(entries []*Entry) {
	for len(entries) > 0 {
		n, bytes := 1, entries[0].span.size
		for n < len(entries) && bytes+entries[n].span.size <= ioChunk {
			bytes += entries[n].span.size
			n++
		}
		s.spillBatch(entries[:n:n])
		entries = entries[n:]
	}
}

func (s *Store) spillBatch(batch []*Entry) {
	if len(batch) == 0 {
		return
	}
	items := make([][]byte, len(batch))
	for i, e := range batch {
		s.unlist(e)
		s.held.pushBack(e)
		e.spilling = true
		s.spilling += e.span.size
		items[i] = s.Bytes(e)
	}
	s.out.do(soon, func() func() {
		recs, err := s.disk.write(items)
		return func() { s.wrote(batch, recs, err) }
	})
}

func (s *Store) wrote(batch []*Entry, recs []*record, err error) {
	if s.closed {
		return
	}
	if s.diskErr = err; err != nil {
		s.diskUntil = time.Now().Add(diskBackoff)
	}
	for i, e := range batch {
		e.spilling = false
		s.spilling -= e.span.size
		e.rec = recs[i]
		switch {
		case e.pins > 0:
		case e.deleted:
			s.release(e)
		default:
			s.rest(e)
		}
	}
	s.setTimer()
	s.pump()
	s.spillAhead()
}

// restore starts reading an entry back into the space it was given.
func (s *Store) restore(e *Entry, sp span, urgency int) {
	e.span = sp
	e.own()
	e.state = restoring
	s.asked += e.size
	s.held.pushBack(e)
	s.highWater = max(s.highWater, s.used())
	data, rec := s.Bytes(e), e.rec
	s.in.do(urgency, func() func() {
		err := s.disk.readBack(rec, data)
		return func() { s.cameBack(e, err) }
	})
}

func (s *Store) cameBack(e *Entry, err error) {
	if s.closed {
		return
	}
	s.spilled -= e.size
	e.state = resident
	e.broken = err != nil
	switch {
	case e.deleted:
		s.release(e)
	case err != nil:
		s.leave(e)
		s.failWaiters(e, fmt.Errorf("%s: %w", e.label, err))
	default:
		s.touch(e)
		s.rest(e)
		s.answerWaiters(e)
	}
	s.pump()
	s.spillAhead()
}

// Prefetch brings a spilled object back ahead of need, as far as that takes no more than a share of the arena and costs no other object
// its place that has not got a copy on disk. It tells whether it did.
func (s *Store) Prefetch(e *Entry) bool {
	if e.state != spilled || e.broken || e.mapped != nil || e.deleted || s.closed || len(s.queue) > 0 || s.ahead+e.size > s.opts.Capacity/4 {
		return false
	}
	sp, ok := s.arena.alloc(e.size)
	for !ok {
		first := s.clean.first
		if first == nil || first.early {
			return false
		}
		if s.mayLeave(first) {
			s.leave(first)
			sp, ok = s.arena.alloc(e.size)
		}
	}
	e.early = true
	s.ahead += sp.size
	s.restore(e, sp, sometime)
	return true
}
