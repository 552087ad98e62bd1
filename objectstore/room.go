package objectstore

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// request waits for space: for a new object, or for one that comes back from disk (entry is set).
type request struct {
	size   int64
	label  string
	entry  *Entry
	need   Need
	noFile error // why no file could be had instead; it is not tried again
	done   func(*Entry, error)
	since  time.Time
	warned bool
}

// Waiting describes a request that waits for space.
type Waiting struct {
	Label    string
	Size     int64
	For      time.Duration
	Restore  bool   // it is on disk and somebody wants it back
	Holdings string // what keeps the space, in words
}

// Waiting lists the requests that wait, oldest first.
func (s *Store) Waiting() []Waiting {
	var all []Waiting
	for _, r := range s.queue {
		all = append(all, s.describe(r))
	}
	return all
}

func (s *Store) describe(r *request) Waiting {
	return Waiting{Label: r.label, Size: r.size, For: time.Since(r.since), Restore: r.entry != nil, Holdings: s.holdings()}
}

// enqueue puts a request behind those that are as urgent.
func (s *Store) enqueue(r *request) {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	i := len(s.queue)
	for i > 0 && s.queue[i-1].need > r.need {
		i--
	}
	s.queue = slices.Insert(s.queue, i, r)
	s.setPace()
	s.pump()
	s.setTimer()
}

func (s *Store) dropRequest(e *Entry) {
	if i := slices.IndexFunc(s.queue, func(r *request) bool { return r.entry == e }); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// hurry moves the request of an entry that somebody now needs more urgently.
func (s *Store) hurry(e *Entry, need Need) {
	i := slices.IndexFunc(s.queue, func(r *request) bool { return r.entry == e })
	if i < 0 || s.queue[i].need <= need {
		return
	}
	r := s.queue[i]
	s.queue = slices.Delete(s.queue, i, i+1)
	r.need = need
	s.enqueue(r)
}

// pump serves the queue as far as it can be served, and starts what makes room for the rest. Callbacks may come back into the store;
// then the outermost pump does another round.
func (s *Store) pump() {
	if len(s.queue) == 0 || s.closed {
		return
	}
	s.again = true
	if s.pumping {
		return
	}
	s.pumping = true
	for s.again && !s.closed {
		s.again = false
		for s.serveHead() {
		}
		if len(s.queue) == 0 || s.closed || s.makeRoom() {
			continue
		}
		// Only pins going, or a disk recovering, can help the head. Others may pass: their owners may hold those pins.
		s.servePassing()
		if len(s.queue) > 0 && s.opts.Tight != nil {
			s.opts.Tight()
		}
	}
	s.pumping = false
}

// serveHead grants the oldest request if there is room.
func (s *Store) serveHead() bool {
	return len(s.queue) > 0 && !s.closed && s.serve(0)
}

func (s *Store) servePassing() {
	for i := 1; i < len(s.queue) && !s.closed; {
		if s.serve(i) {
			i = 1 // the callback may have changed the queue
		} else {
			i++
		}
	}
}

func (s *Store) serve(i int) bool {
	r := s.queue[i]
	sp, ok := s.arena.alloc(r.size)
	if !ok {
		return false
	}
	s.queue = append(s.queue[:i], s.queue[i+1:]...)
	if r.entry != nil {
		urgency := urgent
		if r.need > ForGet {
			urgency = soon
		}
		s.restore(r.entry, sp, urgency)
	} else {
		r.done(s.newEntry(sp, r.size, r.label), nil)
	}
	return true
}

// makeRoom sees to it that something is under way that may help the head of the queue, and tells whether it is so.
func (s *Store) makeRoom() bool {
	s.recallChunks()
	const ahead = 256 << 20 // room made for those behind the head, so that the disk does not pause between them
	want := s.queue[0].size
	for _, r := range s.queue[1:] {
		if want += r.size; want > s.queue[0].size+ahead {
			break
		}
	}
	free := (s.arena.warmPages + s.arena.coldPages + s.arena.busyPages) << pageShift
	if s.arena.busyPages > 0 && free >= s.queue[0].size {
		return true // populating and trimming end in milliseconds
	}
	if want <= free && s.joinFree(s.queue[0].size) {
		return true
	}
	// Where slabs are in the way, whose objects are small and many, it is not known what has to go: in steps.
	goal := max(want-free, s.queue[0].size/8, 1)
	for s.clean.first != nil && goal > 0 {
		if e := s.clean.first; s.mayLeave(e) {
			goal -= e.span.size
			s.leave(e)
			s.again = true
		}
	}
	if s.again {
		return true
	}
	for s.spilling < goal && s.idle.first != nil && s.canSpill() {
		s.spill(goal - s.spilling)
	}
	return s.spilling > 0 || s.arena.busyPages > 0
}

// joinFree is for a request that enough is free for, but not in one piece. What stands between the pieces has to go where that costs least: at most as
// much as was asked for and a part of one object more. Only objects that are pinned, or being written, can be in the way everywhere.
//
// The longer an object has not been used the less it counts, down to half: else the newest object, beside the space it was itself made room for, would
// have to go for the next one, again and again, and old ones never.
func (s *Store) joinFree(size int64) bool {
	can := s.canSpill()
	const disk = 4 // writing an object costs more than letting go of one that is on disk
	oldest := s.touches
	for _, l := range []*entryList{&s.idle, &s.clean} {
		if l.first != nil {
			oldest = min(oldest, l.first.touched)
		}
	}
	const whole = 16
	weight := func(e *Entry) int64 {
		return whole - whole/2*(s.touches-max(e.touched, oldest))/max(s.touches-oldest, 1)
	}
	first, last := s.arena.window(pagesFor(size), func(x *extent) (int64, bool) {
		if x.state != extentUsed {
			return 0, true
		}
		switch e := x.owner; {
		case e == nil || e.state != resident || e.pins > 0 || e.used():
			return 0, false
		case e.list == &s.clean || e.spilling:
			return x.pages * weight(e), true
		default:
			return disk * x.pages * weight(e), can
		}
	})
	if first == nil {
		return false
	}
	var leave, write []*Entry
	for x := first; ; x = x.next {
		if x.state == extentUsed && !x.owner.spilling {
			if x.owner.list == &s.clean {
				leave = append(leave, x.owner)
			} else {
				write = append(write, x.owner)
			}
		}
		if x == last {
			break
		}
	}
	for _, e := range leave {
		if s.mayLeave(e) {
			s.leave(e)
			s.again = true
		}
	}
	if s.again && len(write) == 0 {
		return true
	}
	s.spillThese(write)
	return s.again || s.spilling > 0
}

func (s *Store) canSpill() bool {
	return len(s.opts.SpillDirs) > 0 && (s.diskErr == nil || !time.Now().Before(s.diskUntil))
}

// mapInstead serves a request that only pins going could help from a file on disk, which takes none of the arena.
func (s *Store) mapInstead(r *request) {
	s.queue = slices.DeleteFunc(s.queue, func(q *request) bool { return q == r })
	if r.entry != nil {
		s.mapRecord(r.entry)
		return
	}
	s.createFile(r.size, r.label, func(err error) error { return err }, func(e *Entry, err error) {
		if err == nil || errors.Is(err, ErrClosed) {
			r.done(e, err)
			return
		}
		r.noFile = err
		s.enqueue(r)
	})
}

// mapAt is when a request is served from a file, if it still only waits for pins; false when it will not be.
func (s *Store) mapAt(r *request) (time.Time, bool) {
	if len(s.opts.SpillDirs) == 0 || r.noFile != nil || r.entry == nil && s.diskErr != nil {
		return time.Time{}, false
	}
	return r.since.Add(s.opts.MapAfter), true
}

// deadline is when a request has waited long enough, given what it waits for.
func (s *Store) deadline(r *request) time.Time {
	if s.diskErr != nil && s.idle.first != nil {
		return r.since.Add(min(s.opts.DiskGrace, s.opts.FullTimeout))
	}
	return r.since.Add(s.opts.FullTimeout)
}

// setTimer arranges for tick at the next moment that a waiting request has to be looked at.
func (s *Store) setTimer() {
	if len(s.queue) == 0 || s.closed {
		if s.timer != nil {
			s.timer.Stop()
			s.timer = nil
		}
		return
	}
	var next time.Time
	now := time.Now()
	earlier := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, r := range s.queue {
		// Past its deadline a request only stays because the disk is at work, and the end of that sets the timer again.
		if d := s.deadline(r); d.After(now) || s.spilling == 0 {
			earlier(d)
		}
		if at, ok := s.mapAt(r); ok && (at.After(now) || s.spilling == 0) {
			earlier(at)
		}
		if !r.warned {
			earlier(r.since.Add(s.opts.WarnAfter))
		}
	}
	if s.diskErr != nil && s.diskUntil.After(now) {
		earlier(s.diskUntil)
	}
	if next.IsZero() {
		return
	}
	if s.timer != nil {
		if !next.Before(s.timerAt) {
			return // tick sets it anew
		}
		s.timer.Stop()
	}
	s.timerAt = next
	s.timer = time.AfterFunc(max(time.Until(next), time.Millisecond), func() { s.env.Post(s.tick) })
}

func (s *Store) tick() {
	if s.closed {
		return
	}
	s.timer = nil
	s.pump()
	now := time.Now()
	for _, r := range append([]*request(nil), s.queue...) {
		if !r.warned && now.Sub(r.since) >= s.opts.WarnAfter {
			r.warned = true
			if s.opts.Warn != nil {
				s.opts.Warn(s.describe(r))
			}
		}
		// While the disk makes progress nobody gives up.
		if s.spilling > 0 || !slices.Contains(s.queue, r) {
			continue
		}
		if !now.Before(s.deadline(r)) {
			s.giveUp(r)
		} else if at, ok := s.mapAt(r); ok && !now.Before(at) {
			s.mapInstead(r)
		}
	}
	s.pump()
	s.setTimer()
}

// giveUp fails a request that waits, with the cause.
func (s *Store) giveUp(r *request) {
	s.queue = slices.DeleteFunc(s.queue, func(q *request) bool { return q == r })
	var err error
	if s.diskErr != nil && s.idle.first != nil {
		err = fmt.Errorf("no room for %s, %s, in the object store of %s: %w. Free space on that disk, name another one (object_spilling_directory), or let go of references that are no longer needed", r.label, exactly(r.size), mib(s.opts.Capacity), s.diskErr)
	} else {
		err = fmt.Errorf("%w: no room for %s, %s, in %s after %.3g s: %s. Let go of references that are no longer needed, or give the store more memory (object_store_memory)",
			ErrFull, r.label, exactly(r.size), mib(s.opts.Capacity), time.Since(r.since).Seconds(), s.holdings())
	}
	if r.noFile != nil {
		err = fmt.Errorf("%w. It could not be written into a file on disk either: %w", err, r.noFile)
	}
	if r.entry != nil {
		r.entry.state = spilled
		s.failWaiters(r.entry, err)
		return
	}
	r.done(nil, err)
}

// holdings says what takes up the space.
func (s *Store) holdings() string {
	s.CallInUsed()
	var pinned, written, idle int64
	by := map[string]int64{}
	for e := s.held.first; e != nil; e = e.next {
		if e.pins > 0 {
			pinned += e.size
			by[e.label] += e.size
		} else if e.state == creating {
			written += e.size
		}
	}
	for _, l := range []*entryList{&s.idle, &s.clean} {
		for e := l.first; e != nil; e = e.next {
			idle += e.size
		}
	}
	labels := make([]string, 0, len(by))
	for l := range by {
		labels = append(labels, l)
	}
	sort.Slice(labels, func(i, j int) bool {
		a, b := labels[i], labels[j]
		return by[a] > by[b] || by[a] == by[b] && a < b
	})
	const most = 3
	var top []string
	for i, l := range labels {
		if i == most {
			top = append(top, fmt.Sprintf("%d more", len(labels)-most))
			break
		}
		top = append(top, fmt.Sprintf("%s %s", l, mib(by[l])))
	}
	text := fmt.Sprintf("%s are pinned", mib(pinned))
	if len(top) > 0 {
		text += " (" + strings.Join(top, ", ") + ")"
	}
	if written > 0 {
		text += fmt.Sprintf(", %s are being written", mib(written))
	}
	if idle > 0 {
		text += fmt.Sprintf(", %s could be spilled", mib(idle))
		if len(s.opts.SpillDirs) == 0 {
			text += " but there is no spill directory"
		}
	}
	return text + fmt.Sprintf(", the longest free piece has %s", mib(s.arena.largestFree()))
}
