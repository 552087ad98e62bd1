package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/raygo/raygo/engine/errs"

	"golang.org/x/sys/unix"
)

// death is what is known about the end of a process.
type death struct {
	text   string // "was killed by signal 9 (SIGKILL)…", for the end of a sentence
	signal int
	code   int
	stderr string
	memory bool // the machine was short of memory
}

func (d *death) fill(e *sysError) {
	e.Signal, e.ExitCode, e.Stderr = d.signal, d.code, d.stderr
	if d.memory {
		e.Code = errs.EOUTOFMEMORY
	}
}

// statusWait is how long the cause of a death may take to arrive after the connection has ended.
const statusWait = 2 * time.Second

// whenDead has fn run when it is known how the process died.
func (w *worker) whenDead(fn func(death)) { w.whenGone = append(w.whenGone, fn) }

// awaitDeath is called when a process is dead; deathKnown follows when its status has come, or has not for too long.
func (n *Node) awaitDeath(w *worker) {
	if w.exited {
		n.deathKnown(w)
		return
	}
	n.after(statusWait, func() {
		if !w.exited {
			if w.pid > 0 {
				// It runs on without its connection, or its template, which ends what workers leave running, died with it.
				unix.Kill(-w.pid, unix.SIGKILL)
			}
			n.deathKnown(w)
		}
	})
}

// deathKnown lets the last of the process's output arrive, then tells those who wait for the cause.
func (n *Node) deathKnown(w *worker) {
	if w.dropWritable != nil {
		w.dropWritable()
		w.dropWritable = nil
	}
	waiting := w.whenGone
	w.whenGone = nil
	template := w.template
	if len(waiting) == 0 || template == nil {
		n.reportDeath(w, waiting, "")
		return
	}
	n.wg.Go(func() {
		defer n.guard()
		template.DrainOutput(w.num)
		tail := template.StderrTail(w.num)
		n.strand.post(func() { n.reportDeath(w, waiting, tail) })
	})
}

func (n *Node) reportDeath(w *worker, waiting []func(death), tail string) {
	d := n.causeOfDeath(w, strings.TrimRight(tail, "\n"))
	if !w.asked && !w.killed && !n.stopping {
		n.logf("worker %d (pid %d) %s", w.num, w.pid, d.text)
	}
	for _, fn := range waiting {
		fn(d)
	}
}

func (n *Node) causeOfDeath(w *worker, stderr string) death {
	d := death{stderr: stderr}
	switch {
	case w.shortage != nil:
		d.signal, d.memory, d.text = int(unix.SIGKILL), true, w.shortage.text
		return d
	case !w.exited && w.pid == 0:
		d.text = "could not be started"
	case !w.exited:
		d.text = "closed its connection"
	case w.status.Signaled():
		d.signal = int(w.status.Signal())
		d.text = fmt.Sprintf("was killed by signal %d (%s)", d.signal, unix.SignalName(w.status.Signal()))
		switch {
		case w.killed:
			d.text += ", sent by raygo"
		case d.signal == int(unix.SIGKILL) && n.memory.killedByKernel():
			d.memory = true
			d.text += "; the kernel has ended a process for want of memory, so it was this one: let it hold less at a time, or let fewer run at once (memory=<bytes>, or more CPUs for each)" + n.memory.now()
		case d.signal == int(unix.SIGKILL):
			d.text += "; the kernel counts no process that it ended for want of memory, so somebody sent it, or the process ended itself because code that it ran had closed its connection (os.closerange?)" + n.memory.now()
		case d.signal == int(unix.SIGSEGV):
			d.text += ": a segmentation fault in native code"
		}
	default:
		d.code = w.status.ExitStatus()
		d.text = fmt.Sprintf("exited with code %d", d.code)
	}
	if stderr != "" {
		d.text += ". The last it wrote to stderr:\n" + indent(stderr)
	}
	return d
}

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }
