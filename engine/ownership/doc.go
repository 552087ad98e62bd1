// Package ownership decides when an object may go. It does no I/O, reads no clock, starts no goroutine, and has no locks: whoever uses it brings events one after
// the other (in the engine, on the strand).
//
// # On one node
//
// Refs says who holds an object and how much needs it, Table frees what is wanted no more, and what that sets free in turn. That is all there is while an object
// does not leave its node.
//
// # Between nodes
//
// The node on which an object is made owns it: its name says so, and so everyone knows whom to ask. Node is one node's part of the protocol: Step takes an
// Event and answers with Effects, which are messages to send and what to do here. Links between live nodes lose nothing and keep the order.
//
//	message        from, to              says
//	HAND objects   anyone, anyone        here are references: in a value, a result, an item, an answer
//	TASK l objects submitter, executor   here is a task with its arguments, under lease l
//	DONE l kept    executor, submitter   lease l is over; the executor keeps these arguments and is not registered for them yet
//	ADD o          borrower, owner       count me
//	ADDED o        owner, borrower       you are counted
//	GONE o         owner, borrower       there is no such object (never sent while all keep to the protocol)
//	ACK o n        receiver, sender      I am registered: n of your pins may go
//	REMOVE o n     borrower, owner       I want it no more, and had been told of n registrations
//
// The owner has, for each object that it shares, handles (what wants it on this node), count[node], and pins[node]. A borrower has handles, received (registrations it
// knows of), adding (an ADD is under way), owed[node] (who gets an ACK once it is registered), and pins[node].
//
//   - The owner counts a receiver before it sends HAND, so that one is registered by the message itself: received goes up.
//   - A borrower pins what it hands on, also to the owner. The receiver ACKs once it is registered, at once if it is, otherwise after ADD and ADDED.
//   - A task's arguments are pinned by the submitter, owner or not, and the executor does not register: for most tasks TASK and DONE are all there is. When
//     the task ends and something there still wants an argument for which the node is not registered, the executor sends ADD, DONE names the argument as kept, and
//     the pin stays until ACK.
//   - A task that is passed on (stolen, or spilled) gets a second lease: whoever passes it on is the new executor's submitter, and DONE comes back through it. Its pin covers
//     the new executor, and the old submitter's pin covers it. Results may go straight to whoever wants them: they are HANDs of their own.
//   - A value's contents are handles: wherever a copy of the value is, it holds them, and they are handed on with it (HAND). It is not enough that the
//     value holds them where it comes from, for it may go before the receiver has registered.
//   - The items of a generator are values; what an item holds comes by HAND, and one that nobody takes drops it.
//   - A borrower without handles, pins and ADD under way says REMOVE with all it has received and forgets the object. At the owner the object goes when
//     handles, counts and pins are nothing.
//
// # Deaths
//
// The head announces deaths in order, to all: Dead with an epoch, the number of deaths so far. A node that hears of one closes the link. If the dead node owned objects,
// whoever has them here gets OwnerDiedError (Lost), and what waited for the owner waits no more. A task that was there is Orphaned, and may be handed over again under
// another lease. A task that came from there stays covered for now, but not for ever, so its arguments are registered.
//
// The counts for a dead node and the pins towards it stay. For it may have handed the object on, and what keeps the object until the receiver is registered is
// the dead node's own registration, or the pin of whoever handed it to that. Each node reports Flushed when all ADDs that were under way when it heard of the death
// are answered. When every live node has flushed, nothing that came from the dead is unregistered, and the head says Purge: counts and pins go.
//
// Flushed is for all deaths so far, and Purge waits until everyone who lives has flushed for the last. Were each death purged by itself, then in the chain H, A, B, C, with A
// dead, B could die before it had flushed: then all who live have flushed for A, the head purges A, and H frees what C has from B and has just begun to
// register (testdata/mutants/one_by_one.txt).
//
// # What joins it to the engine
//
// An object gets into Node's table when it is first shared. From then on the local form is one handle of it: Take when it is shared, Drop where the engine would free
// it, and Free is when it does. At a borrower the object's stand-in has Refs as any object, and Drop is sent when it is wanted no more. Receive of HAND and TASK gives a
// handle for each object, which belongs to whatever came (a value, a task).
//
// # What is known about it
//
// Invariants: an object that a live node has a handle of, or that a message to a live node carries, is not freed; once no handle is left, all tables become empty; no
// count goes below zero and no message is refused; a live node that waits gets its answer or learns that the owner died.
//
// The tests explore every order of events in small clusters, and check these in each state (explore_test.go, configs_test.go). Exchanging nodes that are alike does not make
// another state. `go test` explores 579,804 states in 23 spaces: handing on between 2 to 4 nodes with no, one and two crashes, of the owner too; two owners; tasks, with kept
// arguments, passed on; containers, also nested, with crashes; results and generators. `go test -run TestExplore -big -timeout 2h` explores the big ones:
//
//	space                            nodes  crashes  states
//	hand on, two crashes             4      2        425,400
//	tasks, two crashes               4      2        1,815,068
//	tasks passed on twice            4      1        223,110
//	containers, any two crash        4      2        988,733
//	nested containers                3      0        645,153
//	generators                       3      0        3,500,908
//	all at once                      3      1        630,409
//
// That the explorer finds errors is shown by wrong protocols (rules_test.go), each of which it leads by the shortest way to what it does wrong (testdata/mutants): sets
// in place of counts, REMOVE of one at a time, no pins, values that hold what they contain only where they come from, purging at once or one node at a time, dropping
// pins towards the dead, forgetting what a task kept, not registering what a dead submitter covered, not telling that the owner died, ending a lease when the task
// is passed on.
//
// testdata has the usual ways as scripts, which are tests and can be read.
package ownership
