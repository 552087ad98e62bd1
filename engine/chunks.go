package engine

import (
	"slices"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/objectstore"
)

// A process that makes many objects of up to about a megabyte is lent pieces of the arena and cuts the objects from them itself. It names the place when
// the object is whole, and only then does the engine learn of it. What it made no objects of goes back when it says so, is asked to, or ends.

const (
	mostChunk    = 16 << 20 // bytes of one chunk
	mostUnsealed = 32 << 20 // bytes in chunks of one process that no object has
)

// lend answers RG_CHUNK_ASK.
func (n *Node) lend(p *peer, size uint64) {
	unused := int64(0)
	for _, c := range p.chunks {
		unused += c.Unused()
	}
	size = min(size, mostChunk)
	grant := wire.ChunkFrame{Generation: n.store.Generation()}
	if unused+int64(size) <= mostUnsealed {
		if c := n.store.Lend(int64(size)); c != nil {
			p.chunks = append(p.chunks, c)
			grant.Range = wire.Range{Offset: uint64(c.Offset()), Size: uint64(c.Unused())}
		}
	}
	p.done(wire.AppendChunk(p.frame(), grant))
}

// chunkOf returns the chunk that has the offset. The newest is looked at first.
func (p *peer) chunkOf(off uint64) *objectstore.Chunk {
	for _, c := range slices.Backward(p.chunks) {
		if off <= 1<<62 && c.Has(int64(off)) {
			return c
		}
	}
	return nil
}

// carve makes the entry of an object that a process has written into a chunk.
func (n *Node) carve(p *peer, oid wire.OID, v wire.Value) (*objectstore.Entry, error) {
	c := p.chunkOf(v.Offset)
	if c == nil || v.Len > 1<<62 {
		return nil, errs.New(errs.EINVAL, "object %v is said to be at %d in the arena, which is in none of the process's chunks", oid, v.Offset)
	}
	e, err := c.Carve(int64(v.Offset), int64(v.Len), n.labelOf(p, oid))
	p.forgetEmpty(c)
	return e, err
}

// chunkBack is RG_CHUNK_BACK, and what becomes of an object in a chunk that nobody wants.
func (n *Node) chunkBack(p *peer, off, size uint64) error {
	c := p.chunkOf(off)
	if c == nil || size > 1<<62 {
		return errs.New(errs.EINVAL, "%d bytes at %d in the arena are given back, which are in none of the process's chunks", size, off)
	}
	err := c.Return(int64(off), int64(size))
	p.forgetEmpty(c)
	return err
}

func (p *peer) forgetEmpty(c *objectstore.Chunk) {
	if c.Empty() {
		p.chunks = slices.DeleteFunc(p.chunks, func(x *objectstore.Chunk) bool { return x == c })
	}
}

// recallChunks asks all processes for what they have not used.
func (n *Node) recallChunks() {
	for _, p := range n.peers {
		if len(p.chunks) > 0 {
			p.send(wire.ChunkRecall, 0, 0, nil)
		}
	}
}

// dropWritable gives the space back that a process was writing to. A connection may end before its process does, whose threads would then write into
// what others are given, so the space is kept until that is dead.
func (n *Node) dropWritable(p *peer) {
	if len(p.created)+len(p.chunks) == 0 {
		return
	}
	created, chunks := p.created, p.chunks
	p.created, p.chunks = nil, nil
	drop := func() {
		for _, e := range created {
			n.store.Delete(e)
		}
		for _, c := range chunks {
			c.Drop()
		}
	}
	switch w := p.worker; {
	case w != nil && w.env != nil && !w.exited:
		w.dropWritable = drop
	case p.self != nil:
		self := p.self
		p.self = nil
		n.whenEnded(self, drop)
	default: // the engine's own process, which ends with it
		drop()
	}
}
