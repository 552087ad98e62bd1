package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Fork asks for a worker and returns this process's end of its connection, not blocking and on Go's poller. It does not wait: until the
// template is ready requests queue. The caller closes the connection, with CloseFD.
func (t *Template) Fork(worker uint64) (*os.File, error) {
	conn, theirs, err := socketPair(fmt.Sprintf("raygo worker %d", worker))
	if err != nil {
		return nil, err
	}
	p := &proc{}
	r := request{worker: worker, fds: [3]int{theirs, -1, -1}}
	fail := func(err error) (*os.File, error) {
		r.close()
		_ = CloseFD(conn)
		for _, s := range []*stream{p.out, p.err} {
			if s != nil {
				_ = CloseFD(s.file)
			}
		}
		return nil, err
	}
	for i, kind := range []string{"out", "err"} {
		f, fd, err := outputPipe(fmt.Sprintf("raygo worker %d %s", worker, kind))
		if err != nil {
			return fail(err)
		}
		r.fds[i+1] = fd
		s, err := newStream(t.merger, f, worker, kind)
		if err != nil {
			_ = CloseFD(f)
			return fail(err)
		}
		if i == 0 {
			p.out = s
		} else {
			p.err = s
		}
	}
	if err := leavesSpare(r.fds[2]); err != nil {
		return fail(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.gone || t.mu.closed {
		return fail(ErrGone)
	}
	if t.mu.procs[worker] != nil {
		return fail(fmt.Errorf("worker: number %d is in use", worker))
	}
	t.mu.procs[worker] = p
	t.mu.queue = append(t.mu.queue, r)
	t.mu.changed.Broadcast()
	return conn, nil
}

// spareDescriptors stay free for what the process does beside raygo, such as a driver that imports a module to report an error.
const spareDescriptors = 8

// leavesSpare returns EMFILE if fd, the newest descriptor, is among the last that the process may have.
func leavesSpare(fd int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || uint64(fd)+spareDescriptors < limit.Cur {
		return err
	}
	return unix.EMFILE
}

func (r *request) close() {
	for _, fd := range r.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// send is the goroutine that talks to the template: first what the job is, then forks as soon as it is ready.
func (t *Template) send(first []byte) {
	defer close(t.sendEnd)
	if _, err := t.control.Write(first); err != nil {
		return // the reading goroutine sees the end too, and reports it
	}
	for {
		t.mu.Lock()
		for !t.mu.gone && (!t.mu.ready || len(t.mu.queue) == 0) {
			t.mu.changed.Wait()
		}
		if t.mu.gone {
			t.mu.Unlock()
			return
		}
		r := t.mu.queue[0]
		t.mu.queue = t.mu.queue[1:]
		t.mu.Unlock()
		err := t.sendFork(r)
		r.close()
		if err != nil {
			t.failed(r.worker, "the worker could not be asked for: "+err.Error())
		}
	}
}

func (t *Template) sendFork(r request) error {
	raw, err := t.control.SyscallConn()
	if err != nil {
		return err
	}
	line := fmt.Appendf(nil, "fork %d\n", r.worker)
	rights := unix.UnixRights(r.fds[:]...)
	werr := raw.Write(func(fd uintptr) bool {
		for {
			err = unix.Sendmsg(int(fd), line, rights, nil, unix.MSG_NOSIGNAL)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	return errors.Join(werr, err)
}

// forked begins to read a new worker's output.
func (t *Template) forked(worker uint64, pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.procs[worker]
	if p == nil || p.started {
		return
	}
	p.pid, p.started = pid, true
	t.mu.pids[pid] = worker
	go p.out.run(pid, t.logFile(worker, pid, "out"))
	go p.err.run(pid, t.logFile(worker, pid, "err"))
}

func (t *Template) logFile(worker uint64, pid int, kind string) logFile {
	if t.cfg.SessionDir == "" {
		return logFile{}
	}
	return logFile{path: filepath.Join(t.cfg.SessionDir, "logs", fmt.Sprintf("worker-%d-%d.%s", worker, pid, kind)), max: t.cfg.LogMaxBytes}
}

// failed gives up on a worker that was not forked; the end of its connection tells the caller.
func (t *Template) failed(worker uint64, note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.procs[worker]
	if p == nil || p.started {
		return
	}
	p.note, p.started = note, true
	go p.out.run(0, logFile{})
	go p.err.run(0, logFile{})
	t.forget(worker)
}

func (t *Template) ended(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if worker, ok := t.mu.pids[pid]; ok {
		delete(t.mu.pids, pid)
		t.forget(worker)
	}
}

// forget lets the oldest ended workers go, whose streams have ended. t.mu is held.
func (t *Template) forget(worker uint64) {
	t.mu.ended = append(t.mu.ended, worker)
	for len(t.mu.ended) > keepEnded {
		old := t.mu.ended[0]
		p := t.mu.procs[old]
		if p != nil && (!isDone(p.out) || !isDone(p.err)) {
			return // a process it left behind still holds its pipes
		}
		delete(t.mu.procs, old)
		t.mu.ended = t.mu.ended[1:]
	}
}

func isDone(s *stream) bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// StderrTail is the last lines of a worker's stderr, or why it could not be forked. It is kept for a while after the worker has ended.
func (t *Template) StderrTail(worker uint64) string {
	t.mu.Lock()
	p, note := t.mu.procs[worker], ""
	if p != nil {
		note = p.note
	}
	t.mu.Unlock()
	if p == nil {
		return ""
	}
	t.drainProc(p, false)
	lines := p.err.lastLines()
	if note != "" {
		lines = append(lines, note)
	}
	return strings.Join(lines, "\n")
}

// DrainOutput passes on all that a worker has written so far and returns when Output has returned for it. Worker 0 means all workers, and lines
// without an end too: a shutdown follows. It waits, so it is not for the strand: call it on a goroutine of its own and post what should come after.
func (t *Template) DrainOutput(worker uint64) {
	t.mu.Lock()
	var procs []*proc
	for w, p := range t.mu.procs {
		if worker == 0 || w == worker {
			procs = append(procs, p)
		}
	}
	t.mu.Unlock()
	for _, p := range procs {
		t.drainProc(p, worker == 0)
	}
	t.merger.flushAll()
	t.merger.out.delivered()
}

func (t *Template) drainProc(p *proc, unended bool) {
	t.mu.Lock()
	started := p.started
	t.mu.Unlock()
	if started {
		p.out.drain(unended)
		p.err.drain(unended)
	}
}

// Close ends the template and waits until it and what reads its workers' output have ended. The workers themselves end when the caller
// closes their connections, which should come first: output of those that still run after grace is read as far as it has come.
func (t *Template) Close() {
	t.closing.Do(func() {
		const grace = time.Second
		t.mu.Lock()
		t.mu.closed = true
		t.mu.Unlock()
		if raw, err := t.control.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		}
		<-t.readEnd
		<-t.sendEnd
		_ = CloseFD(t.control)

		t.mu.Lock()
		procs := make([]*proc, 0, len(t.mu.procs))
		for _, p := range t.mu.procs {
			procs = append(procs, p)
		}
		t.mu.Unlock()
		late := time.NewTimer(grace)
		defer late.Stop()
		expired := false
		for _, p := range procs {
			for _, s := range []*stream{p.out, p.err} {
				if !expired {
					select {
					case <-s.done:
					case <-late.C:
						expired = true
					}
				}
				if expired && !isDone(s) {
					s.abandon()
					<-s.done
				}
			}
		}
		t.merger.close()
		t.merger.out.close()
	})
}
