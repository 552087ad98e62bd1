package actor

// State is where an actor stands.
type State uint8

// The states of an actor.
const (
	Waiting    State = iota // for its constructor's arguments
	Starting                // for resources, a process, its constructor
	Alive                   // takes calls
	Restarting              // its process died; calls wait
	Dead
)

func (s State) String() string {
	return [...]string{"DEPENDENCIES_UNREADY", "PENDING_CREATION", "ALIVE", "RESTARTING", "DEAD"}[s]
}

// Unlimited as a number of restarts or retries means without end.
const Unlimited = -1

// Actor is an actor's life and its mailboxes.
type Actor struct {
	State       State
	MaxRestarts int // Unlimited, or how many
	Restarts    int // so far
	groups      map[string]*Mailbox
	def         *Mailbox
}

// New makes an actor. groups are its named concurrency groups with their concurrency.
func New(maxRestarts, concurrency int, groups map[string]int, ordered bool) *Actor {
	a := &Actor{MaxRestarts: maxRestarts, def: NewMailbox(concurrency, ordered)}
	for name, n := range groups {
		if a.groups == nil {
			a.groups = map[string]*Mailbox{}
		}
		a.groups[name] = NewMailbox(max(n, 1), ordered)
	}
	return a
}

// Box finds the mailbox of a group; an unknown group is the default one.
func (a *Actor) Box(group string) *Mailbox {
	if group != "" {
		if m := a.groups[group]; m != nil {
			return m
		}
	}
	return a.def
}

// Boxes yields all mailboxes.
func (a *Actor) Boxes(yield func(*Mailbox) bool) {
	if !yield(a.def) {
		return
	}
	for _, m := range a.groups {
		if !yield(m) {
			return
		}
	}
}

// Unfinished is the number of calls that have not ended.
func (a *Actor) Unfinished() int {
	n := 0
	for m := range a.Boxes {
		n += m.Len() + m.Flying()
	}
	return n
}

// Idle says whether no call waits or runs.
func (a *Actor) Idle() bool { return a.Unfinished() == 0 }

// ProcessDied decides what becomes of an actor whose process ended without being asked to. It says whether to start it again.
func (a *Actor) ProcessDied() (restart bool) {
	if a.State == Dead {
		return false
	}
	if a.MaxRestarts != Unlimited && a.Restarts >= a.MaxRestarts {
		a.State = Dead
		return false
	}
	a.Restarts++
	a.State = Restarting
	return true
}

// Name is what an actor is called within a namespace.
type Name struct{ Namespace, Name string }

// Names is the table of names. A name is free again as soon as its actor is dead.
type Names struct{ m map[Name]uint64 }

// Take gives the name to an actor, or says who has it.
func (n *Names) Take(name Name, actor uint64) (owner uint64, ok bool) {
	if owner, taken := n.m[name]; taken && owner != actor {
		return owner, false
	}
	if n.m == nil {
		n.m = map[Name]uint64{}
	}
	n.m[name] = actor
	return actor, true
}

// Find returns who has the name; 0: nobody.
func (n *Names) Find(name Name) uint64 { return n.m[name] }

// Free gives a name back, if the actor has it.
func (n *Names) Free(name Name, actor uint64) {
	if n.m[name] == actor {
		delete(n.m, name)
	}
}

// All yields all names.
func (n *Names) All(yield func(Name, uint64) bool) {
	for name, actor := range n.m {
		if !yield(name, actor) {
			return
		}
	}
}
