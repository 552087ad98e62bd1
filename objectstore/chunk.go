package objectstore

import (
	"fmt"
	"slices"
)

// Chunk is a piece of the arena lent to one process, which cuts objects from it without asking. What it has not made objects of goes back by
// Return or Drop. An object carved out of a chunk is an entry like any other.
type Chunk struct {
	s     *Store
	parts []*extent // what no object has, by address
}

const (
	chunkShare   = 8 // chunks have together at most this part of the arena that no object has
	chunkReserve = 4 // and none is lent when less than this part is free
)

// Lend sets a chunk of size bytes aside, rounded up to pages. It returns nil when space is scarce: whoever needs some then asks for each object,
// which waits for its turn.
func (s *Store) Lend(size int64) *Chunk {
	size = pagesFor(size) << pageShift
	free := (s.arena.warmPages + s.arena.coldPages) << pageShift
	if s.closed || size <= 0 || len(s.queue) > 0 || s.chunkUnused+size > s.opts.Capacity/chunkShare || free-size < s.opts.Capacity/chunkReserve {
		return nil
	}
	sp, ok := s.arena.allocPages(pagesFor(size))
	if !ok {
		return nil
	}
	s.recalled = false
	s.chunks++
	s.chunkUnused += size
	return &Chunk{s: s, parts: []*extent{sp.ext}}
}

// Offset is where the rest of the chunk begins.
func (c *Chunk) Offset() int64 { return c.parts[0].page << pageShift }

// Empty tells whether nothing is left; the chunk is of no more use then.
func (c *Chunk) Empty() bool { return len(c.parts) == 0 }

// Unused is how many bytes no object has.
func (c *Chunk) Unused() int64 {
	pages := int64(0)
	for _, e := range c.parts {
		pages += e.pages
	}
	return pages << pageShift
}

// Has tells whether the offset is in what is left of the chunk.
func (c *Chunk) Has(off int64) bool { return c.part(off, 1) >= 0 }

// part returns which part has all of these bytes, or -1.
func (c *Chunk) part(off, size int64) int {
	return slices.IndexFunc(c.parts, func(e *extent) bool {
		return off >= e.page<<pageShift && size <= (e.page+e.pages)<<pageShift-off
	})
}

// take carves the pages of these bytes out.
func (c *Chunk) take(off, size int64) (*extent, error) {
	i := -1
	if size > 0 && off >= 0 && off&(pageSize-1) == 0 {
		i = c.part(off, size)
	}
	if i < 0 {
		return nil, fmt.Errorf("objectstore: %d bytes at %d are not in the chunk that they are said to be cut from", size, off)
	}
	piece, before, behind := c.s.arena.carve(c.parts[i], off>>pageShift, pagesFor(size))
	rest := make([]*extent, 0, 2)
	for _, e := range []*extent{before, behind} {
		if e != nil {
			rest = append(rest, e)
		}
	}
	c.parts = slices.Replace(c.parts, i, i+1, rest...)
	c.s.chunkUnused -= piece.pages << pageShift
	if c.Empty() {
		c.s.chunks--
	}
	return piece, nil
}

// Carve makes a sealed entry of an object that was written into the chunk.
func (c *Chunk) Carve(off, size int64, label string) (*Entry, error) {
	s := c.s
	if s.closed {
		return nil, ErrClosed
	}
	piece, err := c.take(off, size)
	if err != nil {
		return nil, err
	}
	e := s.newEntry(span{off: off, size: piece.pages << pageShift, ext: piece}, size, label)
	e.Seal()
	return e, nil
}

// Return gives bytes back that no object was made of. Their producer must not write there any more.
func (c *Chunk) Return(off, size int64) error {
	if c.s.closed {
		return nil
	}
	piece, err := c.take(off, size)
	if err == nil {
		c.s.freePiece(piece)
		c.s.pump()
	}
	return err
}

// Drop gives all back that is left.
func (c *Chunk) Drop() {
	s := c.s
	if s.closed || c.Empty() {
		return
	}
	s.chunks--
	s.chunkUnused -= c.Unused()
	for _, e := range c.parts {
		s.freePiece(e)
	}
	c.parts = nil
	s.pump()
}

func (s *Store) freePiece(e *extent) {
	s.arena.free(span{off: e.page << pageShift, size: e.pages << pageShift, ext: e}, s.now())
	s.trimLater()
}

// recallChunks asks for unused space back, once until it is lent again.
func (s *Store) recallChunks() {
	if s.chunkUnused > 0 && !s.recalled && s.opts.Recall != nil {
		s.recalled = true
		s.opts.Recall()
	}
}
