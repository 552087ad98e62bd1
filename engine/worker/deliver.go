package worker

import (
	"sync"
	"time"
)

const (
	deliverMost = 8 << 20     // bytes that may wait before streams are no longer read
	deliverWait = time.Second // how long delivered waits for an Output that does not return
)

// delivery hands records to Output in order, on one goroutine and with no lock held: Output may run the engine, which may come back here.
type delivery struct {
	output func(uint64, int, Record)

	mu struct {
		sync.Mutex
		changed  sync.Cond
		items    []delivered
		size     int
		put, got uint64 // how many were put in and passed on
		waiters  []deliveryWaiter
		running  bool
		closed   bool
	}
	done chan struct{}
}

type delivered struct {
	worker uint64
	pid    int
	r      Record
}

type deliveryWaiter struct {
	seq uint64
	ch  chan struct{}
}

func newDelivery(output func(uint64, int, Record)) *delivery {
	d := &delivery{output: output, done: make(chan struct{})}
	d.mu.changed.L = &d.mu
	return d
}

func (d *delivery) add(worker uint64, pid int, r Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed {
		return
	}
	d.mu.items = append(d.mu.items, delivered{worker, pid, r})
	d.mu.size += len(r.Text)
	d.mu.put++
	if !d.mu.running {
		d.mu.running = true
		go d.run()
	}
	d.mu.changed.Broadcast()
}

func (d *delivery) run() {
	defer close(d.done)
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.mu.items) == 0 && !d.mu.closed {
			d.mu.changed.Wait()
		}
		if len(d.mu.items) == 0 {
			return
		}
		items := d.mu.items
		d.mu.items, d.mu.size = nil, 0
		d.mu.changed.Broadcast()
		d.mu.Unlock()
		for _, it := range items {
			d.output(it.worker, it.pid, it.r)
		}
		d.mu.Lock()
		d.mu.got += uint64(len(items))
		rest := d.mu.waiters[:0]
		for _, w := range d.mu.waiters {
			if w.seq <= d.mu.got {
				close(w.ch)
			} else {
				rest = append(rest, w)
			}
		}
		d.mu.waiters = rest
	}
}

// room waits while too much waits to be passed on, so that a worker that floods is slowed down by its pipe.
func (d *delivery) room() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.mu.size > deliverMost && !d.mu.closed {
		d.mu.changed.Wait()
	}
}

// delivered waits until Output has returned for all that was added.
func (d *delivery) delivered() {
	d.mu.Lock()
	if d.mu.got == d.mu.put {
		d.mu.Unlock()
		return
	}
	w := deliveryWaiter{d.mu.put, make(chan struct{})}
	d.mu.waiters = append(d.mu.waiters, w)
	d.mu.Unlock()
	late := time.NewTimer(deliverWait)
	defer late.Stop()
	select {
	case <-w.ch:
	case <-late.C:
	}
}

// close passes on what waits and ends the goroutine. Further records are dropped.
func (d *delivery) close() {
	d.delivered()
	d.mu.Lock()
	d.mu.closed = true
	running := d.mu.running
	d.mu.changed.Broadcast()
	d.mu.Unlock()
	if running {
		late := time.NewTimer(deliverWait)
		defer late.Stop()
		select {
		case <-d.done:
		case <-late.C:
		}
	}
}
