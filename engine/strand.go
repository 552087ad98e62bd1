package engine

import (
	"sync"
	"sync/atomic"
)

// strand runs the engine's steps one after the other without a thread of its own (flat combining).
//
// Invariant: everything in Node is touched by whoever holds the strand, and by nobody else. Who comes while nobody holds it becomes the holder and runs its
// own step at once, on its own thread: a lone call costs no thread switch. Who comes while somebody holds it leaves the step in the queue and goes.
// The holder lets go only after it found the queue empty, under the lock that guards the queue, so no step is left behind.
//
// Steps run in rounds: all that was queued, then settle (decide who runs, write to processes). A thread of the user's program that holds the strand is
// captured for captureLimit steps at most; then the strand's own goroutine takes over, still in order.
type strand struct {
	run    func(step)
	settle func(captured bool)

	mu struct {
		sync.Mutex
		held   bool
		closed bool
		queue  []step
	}
	spare    []step // the other half of a double buffer; the holder's
	takeOver chan struct{}
	stopped  chan struct{}
	broken   atomic.Bool // a step panicked; the state cannot be trusted and no further step runs
	broke    chan struct{}
}

// step is one thing to do: frames of a peer, or a function.
type step struct {
	p   *peer
	in  []byte
	buf *inBuffer // whose bytes in are, to be given back; nil: borrowed from the caller, or the garbage collector's
	fn  func()
}

const captureLimit = 256

func newStrand(run func(step), settle func(captured bool)) *strand {
	return &strand{run: run, settle: settle, takeOver: make(chan struct{}, 1), stopped: make(chan struct{}), broke: make(chan struct{})}
}

// serve is the strand's own goroutine. It ends with close.
func (s *strand) serve() {
	for {
		select {
		case <-s.takeOver:
			s.drain(0, false)
		case <-s.stopped:
			select {
			case <-s.takeOver:
				s.drain(0, false)
			default:
			}
			return
		}
	}
}

// enter takes the strand if nobody holds it; otherwise it queues what keep makes of the step (which owns its bytes) and reports false.
func (s *strand) enter(st step, keep func(step) step) (holding, ok bool) {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return false, false
	}
	if !s.mu.held {
		s.mu.held = true
		s.mu.Unlock()
		return true, true
	}
	if keep != nil {
		st = keep(st)
	}
	s.mu.queue = append(s.mu.queue, st)
	s.mu.Unlock()
	return false, true
}

// do runs a step now or leaves it to whoever holds the strand. captured marks threads that must get back to their user.
// It reports false once the strand is closed.
func (s *strand) do(st step, keep func(step) step, captured bool) bool {
	holding, ok := s.enter(st, keep)
	if holding {
		s.run(st)
		s.drain(1, captured)
	}
	return ok
}

// drain runs rounds until nothing is left. done steps of the present round ran already.
func (s *strand) drain(done int, captured bool) {
	for {
		s.mu.Lock()
		batch := s.mu.queue
		s.mu.queue, s.spare = s.spare[:0], nil
		s.mu.Unlock()
		for i := range batch {
			s.run(batch[i])
			batch[i] = step{}
		}
		done += len(batch)
		s.settle(captured)
		if cap(batch) > 4096 {
			batch = nil
		}
		s.spare = batch[:0]

		s.mu.Lock()
		if len(s.mu.queue) == 0 {
			s.mu.held = false
			s.mu.Unlock()
			return
		}
		// Under the lock, so that serve, which looks a last time after close, finds it. Never full: only the holder sends, and it holds no longer.
		handOver := captured && done >= captureLimit && !s.mu.closed
		if handOver {
			s.takeOver <- struct{}{}
		}
		s.mu.Unlock()
		if handOver {
			return
		}
	}
}

// post has fn run on the strand, now or soon.
func (s *strand) post(fn func()) bool { return s.do(step{fn: fn}, nil, false) }

// close lets nothing in any more. What is queued still runs.
func (s *strand) close() {
	s.mu.Lock()
	was := s.mu.closed
	s.mu.closed = true
	s.mu.Unlock()
	if !was {
		close(s.stopped)
	}
}
