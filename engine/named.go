package engine

import (
	"fmt"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/task"
)

// service is a function that a program serves by name.
type service struct {
	name        string
	w           *worker
	concurrency int
	running     int
	queue       []*taskState
}

// register is `serve.register`.
func (n *Node) register(p *peer, name string, concurrency int) error {
	if name == "" {
		return errs.New(errs.EINVAL, "a function needs a name to be served")
	}
	if p.role == roleWorker {
		return errs.New(errs.EINVAL, "function %q cannot be served by a worker process; serve it from a driver or client", name)
	}
	if s := n.services[name]; s != nil {
		if s.w.peer != p {
			return errs.New(errs.EEXISTS, "function %q is served by process %d already", name, s.w.pid)
		}
		s.concurrency = max(concurrency, 1)
		n.pumpService(s)
		return nil
	}
	if p.worker == nil {
		n.lastWorker++
		p.worker = &worker{num: n.lastWorker, peer: p, pid: p.pid, services: map[string]*service{}}
	}
	s := &service{name: name, w: p.worker, concurrency: max(concurrency, 1)}
	n.services[name] = s
	p.worker.services[name] = s
	return nil
}

func (n *Node) unregister(p *peer, name string) {
	if s := n.services[name]; s != nil && s.w.peer == p {
		delete(n.services, name)
		delete(s.w.services, name)
		for _, t := range s.queue {
			n.failNamed(t, "its server has withdrawn it")
		}
	}
}

func (n *Node) failNamed(t *taskState, why string) {
	if t.u.task == t {
		n.fail(t, &sysError{Code: errs.ENOTFOUND, Message: fmt.Sprintf("%s cannot run: %s. Start the program that serves %q first.", n.describe(t), why, t.t.Qualname)})
	}
}

// serviceOf finds who serves a named function.
func (n *Node) serviceOf(t *template) *service {
	if s := n.services[t.Name]; s != nil {
		return s
	}
	return n.services[t.Qualname]
}

func (n *Node) queueNamed(t *taskState) {
	s := n.serviceOf(t.t)
	if s == nil {
		n.failNamed(t, "no process serves it")
		return
	}
	s.queue = append(s.queue, t)
	n.pumpService(s)
}

func (n *Node) pumpService(s *service) {
	for len(s.queue) > 0 && s.running < s.concurrency && !s.w.dead {
		t := s.queue[0]
		s.queue = s.queue[1:]
		if t.u.task != t || t.state != task.Queued {
			continue // cancelled
		}
		if !t.present() {
			n.waitAgain(t)
			continue
		}
		s.running++
		t.service = s
		n.deliver(s.w, t)
		n.begin(t)
	}
}

// namedEnded is called when a server has answered or given a task back.
func (n *Node) namedEnded(t *taskState) {
	if s := t.service; s != nil {
		t.service = nil
		s.running--
		n.pumpService(s)
	}
}

// serverGone is called when a program that served functions is gone.
func (n *Node) serverGone(w *worker) {
	tasks := w.tasks()
	for _, t := range tasks {
		n.takeFrom(w, t)
		t.service = nil
	}
	for name, s := range w.services {
		delete(n.services, name)
		for _, t := range s.queue {
			n.failNamed(t, "the process that served it is gone")
		}
	}
	for _, t := range tasks {
		n.fail(t, &sysError{Code: errs.EWORKERDIED, PID: w.pid, Message: fmt.Sprintf("%s failed: the process that serves it (pid %d) is gone", n.describe(t), w.pid)})
	}
}
