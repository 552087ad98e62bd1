package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What tools and people are told of the store.

func (n *Node) storeStats(p *peer) (any, error) {
	s := n.store.Stats()
	inlineBytes, objects := uint64(0), 0
	for o := range n.objects {
		objects++
		inlineBytes += uint64(len(o.data))
	}
	dirs := []map[string]any{}
	for _, d := range s.SpillDirs {
		dirs = append(dirs, map[string]any{"path": d.Path, "free": d.Free, "total": d.Total, "used": d.Used, "failed": d.Failed})
	}
	return map[string]any{
		"capacity": s.Capacity, "used": s.Used, "slack": s.Slack, "slab_free": s.SlabFree, "warm": s.Warm, "cold": s.Cold, "free_runs": s.FreeRuns,
		"chunks": s.Chunks, "chunk_unused": s.ChunkUnused, "high_water": s.HighWater, "largest_free": s.LargestFree, "arena_objects": s.Objects, "pinned": s.Pinned,
		"spilled": s.Spilled, "spilled_total": s.SpilledTotal, "restored_total": s.RestoredTotal, "spill_s": s.SpillTime.Seconds(), "restore_s": s.RestoreTime.Seconds(),
		"clean": s.Clean, "files": s.Files,
		"disk_used": s.DiskUsed, "disk_dead": s.DiskDead, "spill_dirs": dirs, "waiting": s.Waiting, "waiting_bytes": s.WaitingBytes, "huge_pages": s.HugePages,
		"objects": objects, "inline_bytes": inlineBytes,
	}, nil
}

// fullness watches for a store that stays nearly full of what cannot be moved to disk.
type fullness struct {
	limit int64         // bytes from which on it counts
	over  bool          // that many are in use now
	since time.Duration // by n.now
	armed bool          // a timer will look at it
	told  bool
	last  time.Duration // when the user was told
}

const (
	fullShare = 0.8
	fullAgain = time.Minute // between two warnings
)

// watchStore is called in every round, so it only compares.
func (n *Node) watchStore() {
	f := &n.full
	over := n.store.Used() > f.limit
	if over == f.over {
		return
	}
	f.over = over
	if over {
		f.since = n.now
		n.watchAgain(n.opts.storeWarnAfter())
	}
}

func (n *Node) watchAgain(d time.Duration) {
	if d < 0 || n.full.armed {
		return
	}
	n.full.armed = true
	n.after(d, func() {
		n.full.armed = false
		n.storeStaysFull()
	})
}

func (n *Node) storeStaysFull() {
	f := &n.full
	after := n.opts.storeWarnAfter()
	if !f.over {
		return
	}
	if wait := f.since + after - n.now; wait > 0 { // it was less full in between
		n.watchAgain(wait)
		return
	}
	if f.told && n.now < f.last+fullAgain {
		n.watchAgain(f.last + fullAgain - n.now)
		return
	}
	// What can be moved to disk is no reason to worry: it goes when somebody needs the room.
	if stuck := n.store.Unmovable(); stuck > f.limit {
		f.told, f.last = true, n.now
		n.warn(nil, n.whatFills(n.now-f.since, stuck))
		after = fullAgain
	}
	n.watchAgain(max(after, time.Second))
}

// whatFills says who keeps the store full, and what to do.
func (n *Node) whatFills(since time.Duration, stuck int64) string {
	type part struct {
		text  string
		size  uint64
		count int
	}
	parts := map[string]*part{}
	why := n.store.WhyUnmovable()
	for _, h := range n.holdings() {
		if h.entry == nil || !h.entry.InArena() || (why == "" && h.entry.Sealed() && !h.entry.Pinned()) {
			continue
		}
		text := n.keeper(h)
		k := parts[text]
		if k == nil {
			k = &part{text: text}
			parts[text] = k
		}
		k.size += h.size
		k.count++
	}
	list := make([]*part, 0, len(parts))
	for _, k := range parts {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b *part) int { return cmp.Or(cmp.Compare(b.size, a.size), strings.Compare(a.text, b.text)) })
	s := n.store.Stats()
	var b strings.Builder
	fmt.Fprintf(&b, "The object store has been more than %.0f %% full for %.0f s: %s of %s are in use, and %s of it cannot be moved to disk, because %s:",
		100*fullShare, since.Seconds(), sizeText(s.Used), sizeText(s.Capacity), sizeText(stuck), cmp.Or(why, "they are being read or written"))
	const most = 5
	for i, k := range list {
		if i == most {
			fmt.Fprintf(&b, "\n  … and %d more", len(list)-most)
			break
		}
		plural := "s"
		if k.count == 1 {
			plural = ""
		}
		fmt.Fprintf(&b, "\n  %s in %d object%s: %s", sizeText(int64(k.size)), k.count, plural, k.text)
	}
	b.WriteString("\nA value that was got shares the store's memory for as long as it, or an array taken from it, exists: drop what is not needed, copy the small part that is, " +
		"or start raygo with more object_store_memory. `raygo memory` lists all objects.")
	return b.String()
}

// keeper says in words by whom, and as what, an object is kept.
func (n *Node) keeper(h holding) string {
	verb := map[string]string{heldPinned: "read by", heldByTask: "for a task of", heldHere: "referred to by"}[h.why]
	if h.u == nil {
		verb = "being written by"
	}
	if verb == "" {
		verb = "kept as " + h.why + " for"
	}
	who := "a process that has ended"
	if p := h.p; p != nil {
		who = fmt.Sprintf("the %s (pid %d)", p.role, p.pid)
		if t := p.running(); t != nil {
			who = fmt.Sprintf("%s (pid %d)", t.Name, p.pid)
		}
	}
	text := verb + " " + who
	text += ", made by " + n.creator(h)
	if site := h.p.site(h.oid); site != noSites && site != "" {
		text += ", " + site
	}
	return text
}

// sizeText writes a number of bytes for people.
func sizeText(n int64) string {
	f := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if f < 1024 {
			if unit == "B" {
				return fmt.Sprintf("%.0f B", f)
			}
			return fmt.Sprintf("%.1f %s", f, unit)
		}
		f /= 1024
	}
	return fmt.Sprintf("%.1f TiB", f)
}
