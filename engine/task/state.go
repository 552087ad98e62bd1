package task

import (
	"strings"
	"time"
)

// State is where a task stands. The names are those of Ray's state API.
type State uint8

// The states of a task, in order.
const (
	WaitingForArgs State = iota
	Queued               // for resources or, in an actor's mailbox, for its turn
	Sent                 // to a worker, where it waits for those before it
	Running
	Finished
	Failed
)

func (s State) String() string {
	return [...]string{"PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT", "SUBMITTED_TO_WORKER", "RUNNING", "FINISHED", "FAILED"}[s]
}

// Function names what runs as Ray's state API does: without what the function or class is defined in.
func (t *Template) Function() string {
	parts := strings.Split(t.Qualname, ".")
	switch n := len(parts); {
	case t.Kind == Named || t.Qualname == "":
		return t.Name
	case t.Kind == Actor:
		return parts[n-1] + ".__init__"
	case t.Kind == Method && n > 1:
		return parts[n-2] + "." + parts[n-1]
	default:
		return parts[n-1]
	}
}

// Type names what kind of task a template makes, as Ray's state API does.
func Type(kind string) string {
	switch kind {
	case Actor:
		return "ACTOR_CREATION_TASK"
	case Method:
		return "ACTOR_TASK"
	}
	return "NORMAL_TASK"
}

// Event is what is remembered of a task that ended.
type Event struct {
	ID       uint64
	Actor    uint64
	Parent   uint64
	Worker   uint64
	Template *Template
	Name     string
	Job      uint32
	Attempt  uint32
	PID      int
	State    State
	Error    int // a code of errs; 0: none
	Message  string
	Created  time.Duration // all since the engine started
	Started  time.Duration
	Ended    time.Duration
}

// Ring remembers the last events put into it.
type Ring struct {
	events []Event
	next   int
	size   int
}

// NewRing makes a ring of the size given.
func NewRing(size int) *Ring { return &Ring{size: size} }

// Add puts an event in and returns the place, which stays valid until the ring has gone round.
func (r *Ring) Add() *Event {
	if len(r.events) < r.size {
		r.events = append(r.events, Event{})
		return &r.events[len(r.events)-1]
	}
	e := &r.events[r.next]
	r.next = (r.next + 1) % r.size
	return e
}

// All yields the events, oldest first.
func (r *Ring) All(yield func(*Event) bool) {
	for i := range r.events {
		if !yield(&r.events[(r.next+i)%len(r.events)]) {
			return
		}
	}
}
