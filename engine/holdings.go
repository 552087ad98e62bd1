package engine

import (
	"cmp"
	"slices"

	"github.com/raygo/raygo/engine/ids"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"
)

// Why an object stays, in Ray's words where Ray has one.
const (
	heldHere       = "LOCAL_REFERENCE"      // the process has a reference
	heldPinned     = "PINNED_IN_MEMORY"     // the process reads its bytes where they are
	heldByTask     = "USED_BY_PENDING_TASK" // a task that the process submitted needs it
	heldByValue    = "CAPTURED_IN_OBJECT"   // another object contains a reference
	heldByActor    = "ACTOR_HANDLE"         // it is what keeps an actor
	heldByLineage  = "LINEAGE"              // something may have to be run again with it
	heldByFunction = "USED_BY_FUNCTION"     // it is the code of a remote function
	heldOtherwise  = "UNKNOWN_STATUS"
)

// holding is one reason for which an object stays: mostly a process that has a reference to it.
type holding struct {
	o     *object // nil: it was freed, and only its bytes are still read; or it is being written
	u     *unit   // what it belongs or belonged to; nil while it is being written
	oid   wire.OID
	p     *peer // nil: of no living process
	why   string
	entry *objectstore.Entry
	size  uint64
}

// holdings lists why each object stays, the largest objects first.
func (n *Node) holdings() []holding {
	n.store.CallInUsed()
	var all []holding
	add := func(o *object, p *peer, why string) {
		all = append(all, holding{o: o, u: o.u, oid: o.oid(), p: p, why: why, entry: o.entry, size: o.size})
	}
	users, otherwise := n.users()
	for o := range n.objects {
		user := users[o]
		for p := range o.Holders() {
			why := heldHere
			switch {
			case p.pins[o.oid()] != nil:
				why = heldPinned
			case n.isHandle(o):
				why = heldByActor
			case p == user:
				why = heldByTask
			}
			add(o, p, why)
		}
		switch {
		case user != nil && !o.HeldBy(user):
			add(o, user, heldByTask)
		case o.Holder() == nil && user == nil:
			why := otherwise[o]
			if why == "" {
				why = heldOtherwise
			}
			var owner *peer
			if s := o.u.submitter; s != nil && !s.gone {
				owner = s
			}
			add(o, owner, why)
		}
	}
	for _, p := range n.peers {
		for oid, k := range p.pins {
			o := n.existing(oid)
			if o == nil || !o.HeldBy(p) {
				all = append(all, holding{o: o, u: k.u, oid: oid, p: p, why: heldPinned, entry: k.entry, size: uint64(k.entry.Size())})
			}
		}
		for oid, e := range p.created {
			all = append(all, holding{oid: oid, p: p, why: heldHere, entry: e, size: uint64(e.Size())})
		}
	}
	slices.SortStableFunc(all, func(a, b holding) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.oid.Task, b.oid.Task), cmp.Compare(a.oid.Index, b.oid.Index))
	})
	return all
}

// objects goes through all that there are.
func (n *Node) objects(yield func(*object) bool) {
	for _, u := range n.units {
		if u.first.u != nil && u.first.state > dormant && !yield(&u.first) {
			return
		}
		for _, o := range u.more {
			if o.state > dormant && !yield(o) {
				return
			}
		}
	}
}

// existing is find without making anything.
func (n *Node) existing(oid wire.OID) *object {
	if u := n.units[oid.Task]; u != nil {
		return u.find(oid.Index)
	}
	return nil
}

func (n *Node) isHandle(o *object) bool {
	if o.index != 0 {
		return false
	}
	a := n.actors[o.u.num]
	return a != nil && a.handle == o
}

// users says whose unfinished task needs an object, and why those stay that no process holds.
func (n *Node) users() (users map[*object]*peer, otherwise map[*object]string) {
	users, otherwise = map[*object]*peer{}, map[*object]string{}
	for _, u := range n.units {
		if u.task != nil && u.submitter != nil {
			for _, o := range u.task.deps {
				users[o] = u.submitter
			}
		}
	}
	for o := range n.objects {
		for _, r := range o.Contents() {
			if r.Holder() == nil {
				otherwise[r] = heldByValue
			}
		}
		if o.wanted > 0 {
			otherwise[o] = heldByLineage // what was put, for the tasks that took it
		}
	}
	for _, a := range n.actors { // an actor that may restart keeps what its constructor was given
		if a.creation != nil {
			for _, o := range a.creation.deps {
				otherwise[o] = heldByLineage
			}
		}
	}
	for _, t := range n.templates {
		if t != nil && t.blobObject != nil {
			otherwise[t.blobObject] = heldByFunction
		}
	}
	return users, otherwise
}

func (n *Node) objectRows(q *query, yield func(map[string]any) bool) {
	for _, h := range n.holdings() {
		if !yield(n.objectRow(h)) {
			return
		}
	}
}

// objectTotals sums up all holdings, which may be too many to be listed: each object once, each reference by its kind.
func (n *Node) objectTotals(*peer) (any, error) {
	type kind struct {
		Count int    `msgpack:"count"`
		Bytes uint64 `msgpack:"bytes"`
	}
	kinds := map[string]*kind{}
	seen := map[wire.OID]struct{}{}
	bytes := uint64(0)
	for _, h := range n.holdings() {
		k := kinds[h.why]
		if k == nil {
			k = &kind{}
			kinds[h.why] = k
		}
		size := h.size
		if h.o != nil && h.o.state == pending {
			size = 0
		}
		k.Count++
		k.Bytes += size
		if _, twice := seen[h.oid]; !twice {
			seen[h.oid] = struct{}{}
			bytes += size
		}
	}
	return map[string]any{"objects": len(seen), "bytes": bytes, "references": kinds}, nil
}

// objectRow has Ray's columns (task_status to ip) and ours.
func (n *Node) objectRow(h holding) map[string]any {
	row := map[string]any{
		"object_size": int64(h.size), "task_status": "NIL", "attempt_number": 0, "reference_type": h.why, "call_site": h.p.site(h.oid), "type": "", "pid": 0, "ip": n.opts.NodeIP,
		"node_id": n.nodeID(), "where": h.where(), "pinned": h.entry != nil && h.entry.Pinned(), "creator_pid": 0, "age_s": nil,
	}
	j := (*job)(nil)
	if p := h.p; p != nil {
		j = p.job
		row["pid"], row["type"] = p.pid, "DRIVER"
		if p.role == roleWorker {
			row["type"] = "WORKER"
		}
	}
	row["creator"], row["needed_by"] = n.creator(h), 0
	if u := h.u; u != nil {
		j = u.job
		if u.submitter != nil {
			row["creator_pid"] = u.submitter.pid
		}
		row["age_s"] = (n.now - u.made).Seconds()
		if t := u.task; t != nil {
			row["task_status"], row["attempt_number"] = t.state.String(), t.attempt
		} else if h.oid.Index != 0 {
			row["task_status"] = task.Finished.String()
		}
	} else {
		row["creator_pid"] = row["pid"]
	}
	if o := h.o; o != nil {
		row["needed_by"] = o.Needs()
		if o.state == pending {
			row["object_size"] = int64(-1)
		}
	}
	id := ids.Object(h.oid.Task, h.oid.Index, n.incarnation, j.number())
	row["object_id"] = ids.Hex(id[:])
	return row
}

// where says where the bytes are.
func (h *holding) where() string {
	switch {
	case h.entry != nil && !h.entry.Sealed():
		return "writing"
	case h.entry != nil && h.entry.InFile():
		return "file"
	case h.entry != nil && h.entry.InArena():
		return "arena"
	case h.entry != nil:
		return "spilled"
	case h.o == nil:
		return "freed"
	}
	return [...]string{"freed", "freed", "pending", "inline", "arena", "error"}[h.o.state]
}

// creator says what made an object.
func (n *Node) creator(h holding) string {
	u := h.u
	if u == nil { // not whole yet
		if u := n.units[h.oid.Task]; u != nil && u.task != nil {
			return u.task.t.Name
		}
		if t := h.p.running(); t != nil {
			return "put in " + t.Name
		}
		return h.p.role
	}
	switch {
	case u.by == nil && h.oid.Index == 1:
		return "placement group"
	case u.by == nil:
		return u.submitter.role
	case h.oid.Index == 0 && (h.o == nil || !n.isHandle(h.o)):
		return "put in " + u.by.Name
	}
	return u.by.Name
}

// running is what a process works at: an actor, or the task that it was sent first.
func (p *peer) running() *template {
	switch w := p.worker; {
	case w == nil:
		return nil
	case w.actor != nil:
		return w.actor.t
	case w.first != nil:
		return w.first.t
	}
	return nil
}
