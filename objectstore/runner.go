package objectstore

import "sync"

// runner is one goroutine that does slow work in order and posts the outcome to the strand. It starts with its first job.
type runner struct {
	env Env

	mu      sync.Mutex
	changed sync.Cond // jobs, working or closed
	jobs    []func() func()
	working bool // a job runs; never true while its outcome is posted
	started bool
	closed  bool
}

func newRunner(env Env) *runner {
	r := &runner{env: env}
	r.changed.L = &r.mu
	return r
}

// do queues a job. What the job returns runs on the strand.
func (r *runner) do(job func() func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.jobs = append(r.jobs, job)
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
		for len(r.jobs) == 0 && !r.closed {
			r.changed.Wait()
		}
		if r.closed {
			return
		}
		job := r.jobs[0]
		r.jobs[0] = nil
		if r.jobs = r.jobs[1:]; len(r.jobs) == 0 {
			r.jobs = nil
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
	r.closed = true
	r.jobs = nil
	r.changed.Broadcast()
	for r.working {
		r.changed.Wait()
	}
}
