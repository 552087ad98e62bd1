// Package tcp carries the collectives of a group between nodes. In a node the ranks meet in shared memory; one of them, the leader, meets
// the leaders of the other nodes here. Sends and receives go directly from rank to rank.
//
// # Connections
//
// Nodes are numbered 0 to N-1. Leader r dials r+1, r+2, r+4, … (mod N). What it dials carries data only away from it, so that its end
// never takes with it what the other side has yet to read: a few parallel data connections to r+1, one to each of the others. Beside them
// runs a control connection to each, both ways, that is always being read: it tells why a group breaks, says goodbye, and is watched by
// the kernel, which notices within seconds that the other machine is gone, and at once that the process is.
//
// # Algorithms
//
// Small arrays are gathered in log2 N rounds (Bruck) and reduced by every node for itself, in the order of nodes. Large ones are cut into
// a stripe per connection, and each stripe goes around a ring in pieces: what has come in and been reduced is what is sent on, so
// receiving, reducing and sending overlap without further agreement. A stripe is driven by one thread that polls its two sockets; under
// TLS by two, as crypto/tls cannot be polled.
//
// Every operation begins with a head, sent to r+1 and compared with what comes from r-1, so that calls that do not fit are found out
// before anybody waits for data that nobody sends.
//
// # Failure
//
// The first fault breaks the mesh: its message goes out on the control connections, is passed on once by each node, and everything under
// way ends with it. A call that runs out of time first asks the others how far they are, and names who is behind or silent.
package tcp
