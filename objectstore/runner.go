package objectstore

import (
	"sync"
	"time"
)

// Urgencies of a runner's jobs. A job is begun when no more urgent one waits.
const (
	urgent = iota
	soon
	sometime
	urgencies
)

// runner is one goroutine that does slow work, the urgent first and otherwise in order, and posts the outcome to the strand. It starts with
// its first job.
type runner struct {
	env Env

	mu      sync.Mutex
	changed sync.Cond // jobs, working or closed
	jobs    [urgencies][]func() func()
	working bool // a job runs; never true while its outcome is posted
	started bool
	closed  bool
	quit    chan struct{} // closed with it
}

func newRunner(env Env) *runner {
	r := &runner{env: env, quit: make(chan struct{})}
	r.changed.L = &r.mu
	return r
}

// do queues a job. What the job returns runs on the strand.
func (r *runner) do(urgency int, job func() func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.jobs[urgency] = append(r.jobs[urgency], job)
	if !r.started {
		r.started = true
		go r.run()
	}
	r.changed.Broadcast()
}

func (r *runner) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		job := r.take()
		for job == nil && !r.closed {
			r.changed.Wait()
			job = r.take()
		}
		if r.closed {
			return
		}
		r.working = true
		r.mu.Unlock()
		done := job()
		r.mu.Lock()
		r.working = false
		r.changed.Broadcast()
		if r.closed || done == nil {
			continue
		}
		r.mu.Unlock()
		// The strand may run the outcome on this very goroutine, and that may call stop.
		r.env.Post(done)
		r.mu.Lock()
	}
}

// take returns the next job, or nil. mu is held.
func (r *runner) take() func() func() {
	for i := range r.jobs {
		line := &r.jobs[i]
		if len(*line) == 0 {
			continue
		}
		job := (*line)[0]
		(*line)[0] = nil
		if *line = (*line)[1:]; len(*line) == 0 {
			*line = nil
		}
		return job
	}
	return nil
}

// sleep is for a job that has a moment's time.
func (r *runner) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.quit:
	}
}

// stopping tells a long job to give up.
func (r *runner) stopping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// stop drops the jobs that wait and returns when none runs; after it, none ever will.
func (r *runner) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		close(r.quit)
	}
	r.closed = true
	clear(r.jobs[:])
	r.changed.Broadcast()
	for r.working {
		r.changed.Wait()
	}
}
