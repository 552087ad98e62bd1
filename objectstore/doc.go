// Package objectstore keeps one machine's large objects in an arena of shared memory and, when that is full, on disk.
//
// The arena is one anonymous memory file. Processes map it; the store only decides which bytes belong to whom. An object is created
// (space is reserved and its producer writes), sealed (from then on it never changes), pinned while somebody reads it, and
// deleted. An unpinned sealed object may be moved to disk to make room, and comes back when it is pinned. Once most of the arena is taken,
// the least recently used ones are copied to disk ahead of need, so that room is had by letting go of them.
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
// The store is not safe for concurrent use. Every call and every callback runs on the engine's single-writer strand; three goroutines
// of its own do what takes time (one writes to disk, one reads from it, one populates and trims pages) and bring results back through
// Env.Post.
//
// Layout of the code: arena.go decides on space and knows no memory; chunk.go lends pieces of it to processes that cut their objects from
// them; memory.go owns the memory file; disk.go owns the spill directories, segment.go the files in them and compact.go their dead bytes;
// pace.go keeps writing to disk from taking the processors of those who write objects; lease.go lets an object's maker pin it by itself;
// runner.go is a goroutine. store.go, pins.go, room.go (who gets space), spill.go (what leaves and comes back) and files.go (what is
// mapped from disk) tie them together.
package objectstore
