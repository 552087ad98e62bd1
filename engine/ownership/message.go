package ownership

import "fmt"

// NodeID names one incarnation of a node: a machine that comes back after it was declared dead is another node.
type NodeID uint64

// ObjectID says with its owner whom to ask.
type ObjectID struct {
	Owner NodeID
	Task  uint64
	Index uint32
}

// Lease is one handing-over of a task to another node, numbered by the node that hands it over. No node uses a number twice.
type Lease uint64

// MessageKind is what a message says.
type MessageKind uint8

const (
	// Hand is any message with references in it: a value, a result, an item of a generator, the answer to a question.
	Hand MessageKind = iota
	// Task hands a task over with its arguments.
	Task
	// Done ends a lease. Objects are the arguments that the executor kept and has not registered yet.
	Done
	// Add asks the owner to count the sender.
	Add
	// Added answers Add.
	Added
	// Gone answers Add for an object that is not there. Between nodes that keep to the protocol it is never sent.
	Gone
	// Ack tells who handed an object on that the receiver is registered by itself: Count pins may go.
	Ack
	// Remove gives Count of the sender's registrations back.
	Remove
)

var messageNames = [...]string{"HAND", "TASK", "DONE", "ADD", "ADDED", "GONE", "ACK", "REMOVE"}

func (k MessageKind) String() string {
	if int(k) < len(messageNames) {
		return messageNames[k]
	}
	return fmt.Sprintf("MESSAGE(%d)", uint8(k))
}

// Message goes from node to node. Links between live nodes lose nothing and keep the order.
type Message struct {
	Kind    MessageKind
	Objects []ObjectID // Hand, Task, Done
	Object  ObjectID   // Add, Added, Gone, Ack, Remove
	Count   int        // Ack, Remove
	Lease   Lease      // Task, Done
}

// Event is what Step takes in.
type Event interface{ event() }

// Take adds a handle: something on this node holds or needs the object. The owner's first Take brings the object into the table.
type Take struct{ Object ObjectID }

// Drop takes a handle away.
type Drop struct{ Object ObjectID }

// Give puts references into a message to another node. It comes before the message leaves: its Hand goes with or before it on the same link.
type Give struct {
	To      NodeID
	Objects []ObjectID
}

// Submit hands a task over with its arguments. For is the lease under which the task came here when it is passed on (stolen, or spilled for want of resources) with
// the arguments that it came with; nil when it was made here. Whoever passes a task on stands between as its submitter, and Done comes back the same way. The values
// of the task may go straight to whoever wants them.
type Submit struct {
	To      NodeID
	Lease   Lease
	Objects []ObjectID
	For     *Leased
}

// Leased names a task that came from another node.
type Leased struct {
	From  NodeID
	Lease Lease
}

// Finish ends a task that came here and was not passed on.
type Finish struct{ Task Leased }

// Receive is a message from another node. The Hand and Task among them give this node a handle of each object, which is Step's caller's to drop (Finish drops a
// task's).
type Receive struct {
	From    NodeID
	Message Message
}

// Dead is the head's word that a node is dead. Epoch counts the deaths in this cluster: the words come in order, to every node.
type Dead struct {
	Node  NodeID
	Epoch uint32
}

// Purge is the head's word that all live nodes have flushed for the deaths up to Epoch.
type Purge struct{ Epoch uint32 }

func (Take) event()    {}
func (Drop) event()    {}
func (Give) event()    {}
func (Submit) event()  {}
func (Finish) event()  {}
func (Receive) event() {}
func (Dead) event()    {}
func (Purge) event()   {}

// EffectKind is what is to be done.
type EffectKind uint8

const (
	// Send sends Message to Node.
	Send EffectKind = iota
	// Free lets the object go: at its owner for good, elsewhere the copy. The handles that its value had of others are the caller's to drop.
	Free
	// Lost says that the owner has died: whoever wants the object here gets OwnerDiedError. Handles stay until they are dropped.
	Lost
	// Orphaned says that the node died that had the task under Lease. It may be handed over again, under another lease.
	Orphaned
	// Flushed tells the head that this node has flushed for all deaths up to Epoch.
	Flushed
)

// Effect is what Step wants done, in order.
type Effect struct {
	Kind    EffectKind
	Node    NodeID
	Message Message
	Object  ObjectID
	Lease   Lease
	Epoch   uint32
}
