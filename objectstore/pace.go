package objectstore

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pacer keeps what is written to disk ahead of need from taking the processors of those who write objects: while somebody does, the writing goroutine
// pauses for as long as it has worked. What counts is processor time, so that a disk that is written past the page cache, which takes next to none, is
// written at its own speed. Nobody is waited for without end: a pause has a most, and when room is needed there is none.
//
// The strand sets it, the writing goroutine looks.
type pacer struct {
	writing atomic.Int32 // objects that are being written
	last    atomic.Int64 // when one was finished, since epoch
	hurry   atomic.Bool  // somebody waits for room, or soon will
}

const (
	pauseMost = 20 * time.Millisecond
	paceLarge = 1 << 20              // objects from here on count
	paceAfter = 2 * time.Millisecond // who has just written one is about to write the next
)

func (p *pacer) begin(size int64) {
	if size >= paceLarge {
		p.writing.Add(1)
	}
}

func (p *pacer) end(size int64) {
	if size >= paceLarge {
		p.last.Store(int64(time.Since(epoch)))
		p.writing.Add(-1)
	}
}

// pause is for how long to leave the processors alone after so much work.
func (p *pacer) pause(worked time.Duration) time.Duration {
	if p.hurry.Load() || p.writing.Load() == 0 && time.Since(epoch)-time.Duration(p.last.Load()) > paceAfter {
		return 0
	}
	return min(worked, pauseMost)
}

// setPace is called when what is free has changed, or who waits.
func (s *Store) setPace() {
	s.pace.hurry.Store(len(s.queue) > 0 || s.used()-s.cleaned > (s.spillAt+s.opts.Capacity)/2)
}

// worked runs f and says how much processor time that took; 0 if it went on in another thread. It is not locked to one: on a busy machine each hand-over to
// that would cost milliseconds.
func worked(f func() error) (time.Duration, error) {
	tid, before := unix.Gettid(), threadTime()
	err := f()
	took := threadTime() - before
	if unix.Gettid() != tid {
		took = 0
	}
	return took, err
}

func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
