package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"
)

// Stop ends the workers, passes on the last of their output, and takes down what the session made. It may be called more than once.
func (n *Node) Stop(timeout time.Duration) error {
	n.stop.Do(func() { n.stopErr = n.shutDown(timeout) })
	return n.stopErr
}

// graceToEnd is how long workers that were asked to end have before they are killed.
const graceToEnd = 500 * time.Millisecond

func (n *Node) shutDown(timeout time.Duration) error {
	if timeout < 0 {
		timeout = time.Minute
	}
	deadline := time.Now().Add(timeout)
	if n.listener != nil {
		n.listener.Close()
	}
	n.endCtx()
	n.call(n.beginStop)
	var templates []Template
	if !n.strand.broken.Load() && !wait(n.idle, min(graceToEnd, time.Until(deadline))) {
		n.call(func() {
			for _, w := range n.workers {
				n.killWorker(w)
			}
		})
		if !wait(n.idle, max(time.Until(deadline), time.Second)) {
			n.logf("workers are left after %v", timeout)
		}
	}
	// A template that is being started is known when its launch is over; none begins any more.
	launched := make(chan struct{})
	go func() { n.launches.Wait(); close(launched) }()
	wait(launched, max(time.Until(deadline), time.Second))
	take := func() {
		for _, e := range n.envs {
			templates = append(templates, e.takeTemplates()...)
		}
	}
	n.call(take)
	// A broken engine runs no steps; its templates are found here, where nobody else touches them any more.
	if n.strand.broken.Load() {
		take()
	}
	var closing sync.WaitGroup
	for _, t := range templates {
		closing.Go(t.Close)
	}
	closing.Wait() // the last output is with the drivers' connections now
	n.call(func() {
		for _, p := range n.peers {
			p.flush()
			n.dropPeer(p, nil)
		}
	})
	n.call(func() { // or each would keep the whole node until it is due
		for t := range n.timers {
			t.Stop()
		}
	})
	n.lazyTimer.Stop()
	n.strand.close()
	left := make(chan struct{})
	go func() { n.wg.Wait(); close(left) }()
	var err error
	if !wait(left, max(time.Until(deadline), time.Second)) {
		err = errs.New(errs.ETIMEDOUT, "the engine did not stop within %v: something of it is still busy; %s has more", timeout, n.logPath())
	}
	n.logf("stopped")
	n.closeFiles()
	return err
}

func wait(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// beginStop asks all workers to end.
func (n *Node) beginStop() {
	n.stopping = true
	for _, w := range n.workers {
		w.asked = true
		flags := uint16(0)
		if w.ntasks > 0 {
			flags = wire.FlagForce
		}
		w.peer.send(wire.Exit, flags, 0, nil)
	}
	n.checkStopped()
}

// checkStopped is called when a worker is gone.
func (n *Node) checkStopped() {
	if n.stopping && len(n.workers) == 0 {
		select {
		case <-n.idle:
		default:
			close(n.idle)
		}
	}
}

func (n *Node) closeFiles() {
	if n.listener != nil {
		n.listener.Close()
	}
	if n.store != nil {
		n.registerFD(n.arenaFD(), false)
		if err := n.store.Close(); err != nil {
			n.logf("the object store: %v", err)
		}
	}
	if n.session != nil {
		if err := n.session.Close(); err != nil {
			n.logf("%v", fmt.Errorf("the session's folder: %w", err))
		}
	}
	if n.logFile != nil {
		n.registerFD(int(n.logFile.Fd()), false)
		n.logFile.Close()
		n.logFile = nil
	}
}
