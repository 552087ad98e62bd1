package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"
)

// Who gets the store's memory when it is short: first those who wait for a value or for space to write one, for they run and will end; then the arguments
// of tasks that are about to run, as far as they fit together with what runs; last, and only into room that nobody asks for, those of tasks in the queue.

// admitted tells whether a task may be sent at once: its arguments are there, and pinning them takes nothing from those who wait for room.
func (n *Node) admitted(t *taskState) bool {
	tight := n.store.Tight()
	for _, o := range t.top() {
		if o.state == inArena && (!o.entry.Ready() || tight && !o.entry.Pinned()) {
			return false
		}
	}
	return true
}

// storeIsShort is told when requests wait in the store that only pins going can help. Tasks that were sent ahead pin arguments and have not begun: they are
// called back, for what runs may stand behind them.
func (n *Node) storeIsShort() {
	for _, w := range n.workers {
		if w.ntasks < 2 || w.actor != nil || w.recalled || w.dead || w.peer == nil || len(w.peer.pins) == 0 {
			continue
		}
		w.recalled = true
		w.peer.send(wire.Recall, 0, 0, nil)
	}
}

// mayGoAhead tells whether a task may be sent to a process that has others to run first. What tasks sent ahead pin together is bounded: left is what
// remains of it.
func (n *Node) mayGoAhead(t *taskState, left *int64) bool {
	if !slices.ContainsFunc(t.top(), func(o *object) bool { return o.state == inArena }) {
		return true
	}
	all, _ := argumentSizes(t)
	*left -= all
	return *left >= 0 && !n.store.Tight()
}

// fetchAhead has arguments of the tasks next in the queues brought back from disk before a process is free for them.
func (n *Node) fetchAhead() {
	const perClass, most = 4, 16
	if !n.store.AnySpilled() {
		return
	}
	looked := 0
	for _, c := range n.sched.Waiting() {
		for it, k := c.Head(), 0; it != nil && k < perClass; it, k = it.Next(), k+1 {
			if looked++; looked > most {
				return
			}
			for _, o := range it.Value.(*taskState).top() {
				if o.state == inArena && !o.entry.Ready() && !n.store.Prefetch(o.entry) {
					return
				}
			}
		}
	}
}

// fetch brings a task's arguments back from disk, when its turn comes: two tasks that each hold a part of their arguments, and wait for room for the
// rest, would wait for each other.
func (n *Node) fetch(w *worker, t *taskState) {
	t.fetching = 1
	t.fetches++
	n.fetches = append(n.fetches, fetch{w, t, t.fetches, n.now})
	n.nextFetch()
}

// fetch is a task whose arguments are to be brought back.
type fetch struct {
	w     *worker
	t     *taskState
	num   uint32 // of the task's fetches
	since time.Duration
}

// fetchAfter is how long a task waits for others to give their pins back. Those may belong to something that runs for hours; what then does not fit
// is mapped from disk.
const fetchAfter = time.Second

func (f fetch) current() bool { return f.t.w == f.w && f.t.fetches == f.num }

// nextFetch lets the next task have its arguments brought back unless one is at it. A task whose arguments do not fit beside what running tasks hold is
// passed: it has its turn when they end.
func (n *Node) nextFetch() {
	for i := 0; i < len(n.fetches) && !n.fetchBusy; {
		f := n.fetches[i]
		if f.current() && !n.roomFor(f.t) {
			if wait := f.since + fetchAfter - n.now; wait > 0 {
				n.lookAgain(wait)
				i++
				continue
			}
		}
		n.fetches = append(n.fetches[:i], n.fetches[i+1:]...)
		if f.current() {
			n.fetchNow(f)
			i = 0 // what it called may have changed the line
		}
	}
}

// lookAgain has the line looked at when its oldest has waited long enough.
func (n *Node) lookAgain(wait time.Duration) {
	if n.fetchArmed {
		return
	}
	n.fetchArmed = true
	n.after(wait, func() {
		n.fetchArmed = false
		n.refetch = len(n.fetches) > 0
	})
}

// roomFor tells whether it is time to pin a task's arguments: they fit into the store beside what is pinned and nobody waits there for room, or nobody
// is at work who will take pins back by himself, so that waiting here would have no end. Then the store makes room, or maps from disk what it cannot hold.
func (n *Node) roomFor(t *taskState) bool {
	all, more := argumentSizes(t)
	if all > n.store.Capacity() && len(n.opts.SpillDirs) == 0 {
		t.stop = &sysError{Code: errs.ESTOREFULL, Message: fmt.Sprintf(
			"%s cannot run: its arguments have %d bytes together, more than the object store with its %d. Pass fewer or smaller ones, or references inside a list; or give the store more memory (object_store_memory)",
			n.describe(t), all, n.store.Capacity())}
		return true
	}
	if more == 0 || more <= n.store.Capacity()-n.store.PinnedBytes() && !n.store.Tight() {
		return true
	}
	for _, w := range n.workers {
		if w.peer != nil && w.peer.flying > 0 && w.nblocked == 0 && len(w.peer.pins) > 0 {
			return false
		}
	}
	return true
}

// argumentSizes are the bytes of a task's arguments in the store, and of those among them that nobody pins.
func argumentSizes(t *taskState) (all, unpinned int64) {
	seen := make(map[*objectstore.Entry]struct{}, t.ntop)
	for _, o := range t.top() {
		if o.state != inArena || o.entry.InFile() {
			continue
		}
		if _, twice := seen[o.entry]; twice {
			continue
		}
		seen[o.entry] = struct{}{}
		all += o.entry.Size()
		if !o.entry.Pinned() {
			unpinned += o.entry.Size()
		}
	}
	return all, unpinned
}

// fetchNow asks for the arguments. The pins it takes last until exec has taken those of the process.
func (n *Node) fetchNow(f fetch) {
	t := f.t
	if t.stop != nil {
		n.fetchedOne(f.w, t)
		return
	}
	n.fetchBusy = true
	left := 1
	one := func() {
		if left--; left == 0 {
			n.fetchBusy = false
		}
		if f.current() {
			n.fetchedOne(f.w, t)
		}
		if left == 0 {
			n.nextFetch()
		}
	}
	for _, o := range t.top() {
		if o.state != inArena {
			continue
		}
		left++
		t.fetching++
		e := o.entry
		n.store.PinFor(objectstore.ForTask, e, func(_ int64, err error) {
			switch {
			case isLoss(err):
				n.lost(o, e, err) // fetchedOne sees that it is not there
			case err != nil && !f.current(): // another attempt finds out for itself
			case err != nil:
				code, text := storeError(err)
				t.stop = &sysError{Code: code, Message: fmt.Sprintf("%s cannot run: its argument %s cannot be brought back: %s", n.describe(t), n.objectHex(o.oid()), text)}
			case f.current():
				t.fetched = append(t.fetched, e)
			default:
				n.store.Unpin(e)
			}
			one()
		})
	}
	one()
}

// fetchedOne sends the tasks at the head of the line whose arguments are all there.
func (n *Node) fetchedOne(w *worker, t *taskState) {
	t.fetching--
	for len(w.held) > 0 && w.held[0].fetching == 0 {
		t := w.held[0]
		w.held = w.held[1:]
		if e := t.stop; e != nil {
			n.unassign(t)
			n.fail(t, e)
			continue
		}
		if !t.present() {
			n.takeBack(w, t)
			continue
		}
		n.exec(w, t)
		n.dropFetched(t)
	}
}

func (n *Node) dropFetched(t *taskState) {
	for _, e := range t.fetched {
		n.store.Unpin(e)
	}
	t.fetched = nil
}
