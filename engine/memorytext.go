package engine

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/raygo/raygo/engine/memmon"
)

func gib(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }

// usageText says how short memory is.
func (n *Node) usageText(u memmon.Usage) string {
	return fmt.Sprintf("%s of the %s of %s are in use, and at more than %s processes are ended (RAY_memory_usage_threshold, %.4g)",
		gib(u.Used), gib(u.Limit), u.Where, gib(u.Line), n.opts.memorySettings().Threshold)
}

// shortageText says what happened to a process that was ended, who held the memory, and what can be done.
func (n *Node) shortageText(w *worker, c memmon.Candidate, why memmon.Why, u memmon.Usage, all map[int]*memmon.Process, found candidates) string {
	var b strings.Builder
	fmt.Fprintf(&b, "was killed by raygo to save memory: %s. It held %s", n.usageText(u), gib(c.Bytes))
	tree := found.trees[w.pid]
	if k := len(tree.PIDs); k > 0 {
		fmt.Fprintf(&b, ", with %d processes that it had started", k)
	}
	switch why {
	case memmon.Grew:
		b.WriteString(", and its memory grew last")
	case memmon.WasIdle:
		b.WriteString(" and did nothing")
	}
	if store := n.store.Stats().Used; store > 0 {
		fmt.Fprintf(&b, ". The object store has %s in use", gib(int64(store)))
	}
	fmt.Fprintf(&b, ". The processes with the most memory:\n%s\n", n.topProcesses(all, found))
	b.WriteString("Let it hold less at a time, or let fewer run at once: say what each needs (memory=<bytes>), or ask for more CPUs for each. " +
		"RAY_memory_usage_threshold moves the threshold; RAY_memory_monitor_refresh_ms=0 turns this off and leaves it to the kernel.")
	return b.String()
}

const topShown = 10

// topProcesses is a table of who holds the most.
func (n *Node) topProcesses(all map[int]*memmon.Process, found candidates) string {
	procs := make([]*memmon.Process, 0, len(all))
	for _, p := range all {
		if p.RSS > 0 {
			procs = append(procs, p)
		}
	}
	slices.SortFunc(procs, func(a, b *memmon.Process) int { return cmp.Or(cmp.Compare(b.Anon, a.Anon), cmp.Compare(a.PID, b.PID)) })
	var b strings.Builder
	fmt.Fprintf(&b, "    %8s %11s %11s  %s", "pid", "RSS", "own (USS)", "what")
	for _, p := range procs[:min(len(procs), topShown)] {
		own := p.Anon
		if parent := all[p.Parent]; found.trees[p.PID] != nil && parent != nil {
			own = max(own-parent.Anon, 0) // a worker still shares its template's
		}
		fmt.Fprintf(&b, "\n    %8d %11s %11s  %s", p.PID, gib(p.RSS), gib(own), n.nameOf(p))
	}
	return b.String()
}

// nameOf says what a process is to the user.
func (n *Node) nameOf(p *memmon.Process) string {
	if w := n.byPID[p.PID]; w != nil {
		return n.worksAt(w)
	}
	if p.PID == os.Getpid() {
		return "driver and engine (" + p.Name + ")"
	}
	for _, other := range n.peers {
		if other.pid == p.PID && other.worker == nil {
			return "driver (" + p.Name + ")"
		}
	}
	if w := n.byPID[p.Group]; w != nil {
		return p.Name + ", started by " + n.worksAt(w)
	}
	return p.Name
}

// worksAt says what a worker is busy with.
func (n *Node) worksAt(w *worker) string {
	switch {
	case w.actor != nil && w.first != nil && w.first != w.actor.creation:
		return "actor " + w.actor.t.Name + " in " + n.shortly(w.first)
	case w.actor != nil:
		return "actor " + w.actor.t.Name
	case w.first != nil:
		return "task " + w.first.t.Name
	}
	return "idle worker"
}
