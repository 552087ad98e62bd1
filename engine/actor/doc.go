// Package actor has the rules of actors without their processes: the order in which calls leave a mailbox, when an actor restarts, who owns a name.
//
// A caller's calls to one concurrency group leave in the order they came, although the arguments of some become ready later than those of others.
// A [Mailbox] therefore keeps one list of calls that may go now, and a lane for each caller whose next call still waits for its arguments.
package actor
