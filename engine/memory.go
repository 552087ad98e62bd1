package engine

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/memmon"
	"github.com/raygo/raygo/engine/task"

	"golang.org/x/sys/unix"
)

// The memory monitor ends processes before the machine, or the control group, is out of memory and the kernel chooses for itself.
//
// It looks while tasks run or actors live (their own threads may fill memory between calls), as often as memory could run out, and not at all otherwise. Files are read on a goroutine, one at a time; what
// follows is decided on the strand. One process is ended at a time, and the next one only when that is gone and memory is short still.
type memoryMonitor struct {
	source  *memmon.Source // nil: the machine does not say
	watch   memmon.Watch
	every   time.Duration // while memory is nearly short; 0: off
	looking bool          // a look is due or under way; always, when off
	near    bool          // the last look found memory nearly short
	usage   memmon.Usage
	victims []int         // processes that were ended last
	ended   time.Duration // when
	told    time.Duration // when the user was told that there is nobody to end
	shrunk  time.Duration // when the store last gave memory back
	kills   uint64
	failed  int   // looks in a row that could not be had
	oomSeen int64 // kills by the kernel that are accounted for
}

const (
	memoryLookMost  = time.Second      // between looks while there is plenty
	memoryGrowth    = 2 << 30          // bytes a second that one CPU can fill, at most
	memoryNear      = 1 << 30          // with less than this left, growth is watched
	memoryPatience  = 10 * time.Second // for the memory of a process that was killed
	memoryTellAgain = time.Minute

	// Listing one takes 10 µs, and all of it should take no more than a twentieth of a CPU.
	memoryPerProcess = 200 * time.Microsecond
)

// openMemory finds out what the node's memory is. What the machine does not say it cannot be asked for, so that is no error.
func (n *Node) openMemory() {
	m := &n.memory
	m.source = n.opts.memory
	m.every = n.opts.memoryRefresh()
	if m.source == nil {
		n.logf("the memory monitor is off: this machine has no /proc/meminfo")
		m.every = 0
	}
	m.looking = m.every == 0
	if m.source != nil {
		m.oomSeen = max(m.source.OOMKills(), 0)
	}
}

// watchMemory is called when a task is sent and no look is due.
func (n *Node) watchMemory() {
	n.memory.looking = true
	n.after(n.memory.every, n.lookAtMemory)
}

func (n *Node) lookAtMemory() {
	m := &n.memory
	if n.stopping || !n.anyBusy() && !n.anyActor() {
		m.looking, m.near = false, false
		m.watch.Forget()
		return
	}
	closely := m.near
	n.wg.Go(func() {
		defer n.guard()
		u, err := m.source.Read()
		var all map[int]*memmon.Process
		if err == nil && (closely || isNear(u)) {
			all, err = m.source.Processes()
		}
		n.strand.post(func() {
			if err != nil { // perhaps for want of descriptors, which come back
				if m.failed++; m.failed == 1 {
					n.logf("the memory monitor sees nothing, and looks again every %v: %v", memoryLookMost, err)
				}
				n.after(memoryLookMost, n.lookAtMemory)
				return
			}
			m.failed = 0
			n.after(max(n.memoryLooked(u, all), time.Duration(len(all))*memoryPerProcess), n.lookAtMemory)
		})
	})
}

func (n *Node) anyBusy() bool {
	for _, w := range n.workers {
		if w.ntasks > 0 {
			return true
		}
	}
	return false
}

func (n *Node) anyActor() bool {
	for _, w := range n.workers {
		if w.actor != nil {
			return true
		}
	}
	return false
}

func isNear(u memmon.Usage) bool { return u.Left() < min(max(u.Line/10, memoryNear), u.Line/4) }

// memoryLooked takes a look in and says when the next one is due.
func (n *Node) memoryLooked(u memmon.Usage, all map[int]*memmon.Process) time.Duration {
	m := &n.memory
	m.usage, m.near = u, isNear(u)
	if !m.near || all == nil {
		m.watch.Forget()
		left := time.Duration(float64(u.Left()) / memoryGrowth / float64(min(runtime.NumCPU(), 8)) * float64(time.Second))
		return max(m.every, min(left, memoryLookMost))
	}
	found := n.memoryCandidates(all)
	m.watch.Note(n.now, found.list)
	if !u.Over() {
		return m.every
	}
	if n.shrinkStore(u) {
		return min(m.every, memmon.SecondSight)
	}
	if len(m.victims) > 0 && m.ending(n.now, all) {
		return m.every
	}
	c, why := m.watch.Choose(n.now, found.list, u.Used > u.Line+(u.Limit-u.Line)/2)
	switch why {
	case memmon.Later:
		return min(m.every, memmon.SecondSight)
	case memmon.Nobody:
		if m.told == 0 || n.now-m.told > memoryTellAgain {
			m.told = n.now
			n.warn(nil, fmt.Sprintf("Memory is short, and no task or actor holds much of it: %s\n%s", n.usageText(u), n.topProcesses(all, found)))
		}
		return max(m.every, memmon.SecondSight)
	}
	n.endForMemory(n.workers[c.ID], c, why, u, all, found)
	return m.every
}

// shrinkStore has the store give back what it can do without, and tells whether to wait for that before a process is ended. That is so for a moment, and
// not again at once: a program that makes objects all the time always leaves something to give back.
func (n *Node) shrinkStore(u memmon.Usage) bool {
	const wait, again = 200 * time.Millisecond, 2 * time.Second
	m := &n.memory
	back := n.store.GiveBack(u.Used - u.Line)
	if back == 0 || u.Used > u.Line+(u.Limit-u.Line)/2 {
		return false
	}
	if m.shrunk == 0 || n.now-m.shrunk >= again {
		m.shrunk = n.now
		n.logf("memory is short: the object store gives %s back", sizeText(back))
	}
	return n.now-m.shrunk < wait
}

// ending says whether the processes that were ended last may still have held memory when it was measured, which was before all were listed. What the
// kernel cannot end is not waited for without end.
func (m *memoryMonitor) ending(now time.Duration, all map[int]*memmon.Process) bool {
	if now-m.ended > memoryPatience {
		m.victims = nil
		return false
	}
	m.victims = slices.DeleteFunc(m.victims, func(pid int) bool { return all[pid] == nil })
	return true
}

func (n *Node) memoryShort() bool { return n.memory.near && n.memory.usage.Over() }

// candidates are the processes that may be ended and what each holds.
type candidates struct {
	list  []memmon.Candidate
	trees map[int]*memmon.Tree // by the worker's pid
	total int64
}

func (n *Node) memoryCandidates(all map[int]*memmon.Process) candidates {
	parents := map[int]int{}
	for _, w := range n.workers {
		if p := all[w.pid]; p != nil && w.env != nil {
			parents[w.pid] = p.Parent
		}
	}
	found := candidates{trees: memmon.Trees(all, parents)}
	for _, w := range n.workers {
		t := found.trees[w.pid]
		if t == nil || w.dead || w.killed || w.asked {
			continue
		}
		c := memmon.Candidate{ID: w.num, Bytes: t.Own, Idle: w.actor == nil && w.ntasks == 0}
		switch {
		case w.actor != nil:
			a := w.actor
			c.Retriable = a.MaxRestarts == actor.Unlimited || a.Restarts < a.MaxRestarts
			c.Since = a.created.ready
			if w.first != nil {
				c.Since = w.first.started
			}
		case w.first != nil:
			c.Retriable = w.first.t.MaxRetries != 0 && w.first.stop == nil
			c.Since = w.first.started
		}
		found.list = append(found.list, c)
		found.total += t.Own
	}
	return found
}

// shortage says why a process was ended.
type shortage struct {
	text  string // "was killed by raygo …", for the end of a sentence
	alone bool   // no other process of raygo's held much
}

// endForMemory ends a process and all that it started.
func (n *Node) endForMemory(w *worker, c memmon.Candidate, why memmon.Why, u memmon.Usage, all map[int]*memmon.Process, found candidates) {
	m, tree := &n.memory, found.trees[w.pid]
	m.kills++
	m.victims, m.ended = append(tree.PIDs, w.pid), n.now
	w.shortage = &shortage{text: n.shortageText(w, c, why, u, all, found), alone: c.Bytes >= found.total/4*3}
	n.logf("%s, worker %d (pid %d), %s", n.worksAt(w), w.num, w.pid, w.shortage.text)
	n.leaveIdle(w)
	n.killWorker(w)
	unix.Kill(-w.pid, unix.SIGKILL)
	for _, pid := range tree.PIDs {
		unix.Kill(pid, unix.SIGKILL)
	}
}

// oomRetry queues a task again whose process was ended to save memory, after a while, and says whether it does.
//
// As in Ray this has nothing to do with max_retries, but that with 0 there is none: others may have been to blame. If nobody else held much, it counts,
// or a task that needs more than there is would run for ever.
func (n *Node) oomRetry(w *worker, t *taskState) bool {
	if t.t.MaxRetries == 0 {
		return false
	}
	counts := false
	switch limit := n.opts.OOMRetries; {
	case limit != nil && *limit >= 0:
		if t.oomKills >= *limit {
			return false
		}
	case limit == nil && w.shortage.alone:
		if t.retries == 0 {
			return false
		}
		counts = true
	}
	if counts && t.retries > 0 {
		t.retries--
	}
	delay := n.oomDelay(t)
	n.warn(t.job, fmt.Sprintf("%s is tried again in %v: its worker process (pid %d) %s", n.describe(t), delay, w.pid, w.shortage.text))
	t.attempt++
	n.queueLater(t, delay)
	return true
}

const oomDelayMost = time.Minute

// oomDelay counts a kill of the task and says how long the next attempt should wait.
func (n *Node) oomDelay(t *taskState) time.Duration {
	d := n.opts.oomRetryDelay() << min(t.oomKills, 16)
	t.oomKills++
	return min(d, oomDelayMost)
}

// queueLater puts a task back, as again does, when some time has passed and memory is not short. It waits no longer than anything else runs that
// might give memory back.
func (n *Node) queueLater(t *taskState, delay time.Duration) {
	t.state, t.w = task.Queued, nil
	attempt := t.attempt
	t.notBefore = n.now + delay
	n.after(delay, func() {
		if t.u.task != t || t.attempt != attempt || t.w != nil || t.notBefore == 0 {
			return // it was cancelled meanwhile
		}
		if n.memoryShort() && n.anyBusy() {
			n.queueLater(t, delay)
			return
		}
		t.notBefore = 0
		n.putBack(t)
	})
}

// killedByKernel says whether the kernel has ended a process for want of memory that no death was put down to yet.
func (m *memoryMonitor) killedByKernel() bool {
	if m.source == nil || m.source.OOMKills() <= m.oomSeen {
		return false
	}
	m.oomSeen++
	return true
}

// read is for the strand, where one of the kernel's files may be read: it costs tens of microseconds.
func (m *memoryMonitor) read() memmon.Usage {
	if m.source == nil {
		return memmon.Usage{}
	}
	u, err := m.source.Read()
	if err != nil {
		return memmon.Usage{}
	}
	return u
}

func (n *Node) processOf(w *worker) *memmon.Process {
	if n.memory.source == nil || w.pid == 0 {
		return nil
	}
	return n.memory.source.Process(w.pid)
}

// now says how much is in use, for the end of a sentence.
func (m *memoryMonitor) now() string {
	u := m.read()
	if u.Limit == 0 {
		return ""
	}
	return fmt.Sprintf(". %s of the %s of %s are in use now", gib(u.Used), gib(u.Limit), u.Where)
}

func callNodeMemory(n *Node, p *peer, id uint64, _ struct{}) (any, error) {
	source := n.memory.source
	if source == nil {
		return nil, errs.New(errs.ENOTFOUND, "this machine has no /proc/meminfo to read")
	}
	pids := map[int]map[string]any{os.Getpid(): {"pid": os.Getpid(), "what": "driver and engine"}}
	for _, w := range n.workers {
		if w.pid > 0 {
			pids[w.pid] = map[string]any{"pid": w.pid, "number": w.num, "what": n.worksAt(w)}
		}
	}
	kills := n.memory.kills
	n.wg.Go(func() {
		defer n.guard()
		u, readErr := source.Read()
		rows := []map[string]any{}
		for pid, row := range pids {
			if proc := source.Process(pid); proc != nil {
				uss, err := source.Unique(pid)
				if err != nil {
					uss = proc.Anon // it may be another user's
				}
				row["rss"], row["uss"] = proc.RSS, uss
				rows = append(rows, row)
			}
		}
		n.strand.post(func() {
			if p.gone {
				return
			}
			if readErr != nil {
				n.reply(p, id, nil, readErr)
				return
			}
			n.reply(p, id, map[string]any{
				"used": u.Used, "limit": u.Limit, "threshold": u.Line, "where": u.Where, "kills": kills, "processes": rows, "monitor_ms": n.memory.every.Milliseconds(),
				"looking": n.memory.every > 0 && n.memory.looking,
			}, nil)
		})
	})
	return nil, errLater
}
