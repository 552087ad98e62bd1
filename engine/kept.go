package engine

import (
	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/schedule"
)

// What has ended stays for a while, for those who ask: so many of the last of each kind.
const (
	endedKept  = 10_000 // tasks, for the state API and the timeline
	actorsKept = 10_000
	groupsKept = 1000
	jobsKept   = 1000

	warningsKept = 1000
)

// kept remembers in what order things of one kind ended.
type kept[T any] []T

// add takes in one more, and says which is to be forgotten for it.
func (k *kept[T]) add(x T, most int) (oldest T, full bool) {
	*k = append(*k, x)
	if len(*k) <= most {
		return oldest, false
	}
	oldest = (*k)[0]
	*k = (*k)[1:]
	return oldest, true
}

// actorOver is called when one of the last reasons to remember an actor may be gone: its life, its process, its handle.
func (n *Node) actorOver(a *actorState) {
	if a.State != actor.Dead || a.worker != nil || a.handle != nil || a.over {
		return
	}
	a.over = true
	a.creation.lastWorker = nil // a process that is gone, with all that was known of it
	if id, full := n.deadActors.add(a.id, actorsKept); full {
		delete(n.actors, id)
	}
}

func (n *Node) groupOver(g *schedule.Group) {
	if old, full := n.removedGroups.add(g, groupsKept); full {
		n.sched.ForgetGroup(old)
	}
}

func (n *Node) jobOver(j *job) {
	if j.over {
		return
	}
	j.over = true
	if num, full := n.endedJobs.add(j.num, jobsKept); full {
		delete(n.jobs, num)
	}
}

// warnings remembers what the user was told lately. What comes up again after so many others is worth saying again.
type warnings struct {
	said  map[string]struct{}
	order kept[string]
}

// first says whether a warning is new.
func (w *warnings) first(key string) bool {
	if _, said := w.said[key]; said {
		return false
	}
	if w.said == nil {
		w.said = map[string]struct{}{}
	}
	w.said[key] = struct{}{}
	if old, full := w.order.add(key, warningsKept); full {
		delete(w.said, old)
	}
	return true
}
