// Package objectstore keeps one machine's large objects in an arena of shared memory and, when that is full, on disk.
//
// The arena is one anonymous memory file. Processes map it; the store only decides which bytes belong to whom. An object is created
// (space is reserved and its producer writes), sealed (from then on it never changes), pinned while somebody reads it, and
// deleted. An unpinned sealed object may be moved to disk to make room, and comes back when it is pinned.
//
// What the package guarantees:
//
//   - An offset handed out by Create or Pin stays valid, and its bytes stay in place, until the entry is deleted (unsealed) or its
//     last pin goes (sealed).
//   - Requests for space are served in order. One that can only be helped by pins going lets later ones pass that fit, because these
//     may be what the pins wait for.
//   - A disk that is full or broken fails the request that needed it, never the store. A record that comes back from disk altered
//     is an error, never wrong data.
//   - Nothing is left behind by kill -9: memory file and spill files have no name.
//
// The store is not safe for concurrent use. Every call and every callback runs on the engine's single-writer strand; two goroutines
// of its own do what takes time (one moves objects to and from disk, one populates and trims pages) and bring results back through
// Env.Post.
//
// Layout of the code: arena.go decides on space and knows no memory; memory.go owns the memory file; segment.go and disk.go own the
// spill files; runner.go is the goroutine; store.go and room.go tie them together.
package objectstore
