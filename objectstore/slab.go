package objectstore

import "math/bits"

// classSizes are the slot sizes for small objects: multiples of 64, then four per doubling, so that at most a fifth is wasted.
var classSizes = [...]int64{
	64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096,
	5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
}

const maxSmall = 16384

// classTable maps (size-1)/64 to the smallest class that holds size.
var classTable = func() (t [maxSmall / alignment]uint8) {
	class := 0
	for i := range t {
		if int64(i+1)*alignment > classSizes[class] {
			class++
		}
		t[i] = uint8(class)
	}
	return t
}()

func classOf(size int64) (int, bool) {
	if size > maxSmall {
		return 0, false
	}
	return int(classTable[(size-1)/alignment]), true
}

// slab is a run of pages cut into equal slots.
type slab struct {
	ext   *extent
	class int
	slots int
	inUse int
	taken []uint64 // a bit per slot

	prev, next *slab // among the partial ones of the class
}

func slabPages(class int) int64 {
	if classSizes[class] <= 2048 {
		return 16
	}
	return 64
}

// allocSlot takes the lowest free slot of a slab of the class. It fails when there is neither a slab with a free slot nor a run of pages
// for a new one.
func (a *arena) allocSlot(class int) (span, bool) {
	s := a.partial[class]
	if s == nil {
		if s = a.empty[class]; s != nil {
			a.empty[class] = nil
		} else {
			e := a.takePages(slabPages(class))
			if e == nil {
				return span{}, false
			}
			slots := int(e.pages << pageShift / classSizes[class])
			s = &slab{ext: e, class: class, slots: slots, taken: make([]uint64, (slots+63)/64)}
			a.slabBytes += e.pages << pageShift
		}
		a.linkPartial(s)
	}
	slot := s.takeSlot()
	if s.inUse == s.slots {
		a.unlinkPartial(s)
	}
	size := classSizes[class]
	a.used += size
	a.slabUsed += size
	return span{off: s.ext.page<<pageShift + int64(slot)*size, size: size, slab: s}, true
}

func (a *arena) freeSlot(sp span, now int64) {
	s := sp.slab
	slot := int((sp.off - s.ext.page<<pageShift) / classSizes[s.class])
	if s.inUse == s.slots {
		a.linkPartial(s)
	}
	s.taken[slot/64] &^= 1 << (slot % 64)
	s.inUse--
	a.slabUsed -= sp.size
	if s.inUse > 0 {
		return
	}
	a.unlinkPartial(s)
	if a.empty[s.class] == nil {
		a.empty[s.class] = s
		s.ext.stamp = now
		return
	}
	a.dropSlab(s, now)
}

func (a *arena) dropSlab(s *slab, stamp int64) {
	a.slabBytes -= s.ext.pages << pageShift
	a.release(s.ext, extentWarm, stamp)
}

func (a *arena) hasEmptySlabs() bool {
	for _, s := range a.empty {
		if s != nil {
			return true
		}
	}
	return false
}

// dropStaleSlabs gives the pages of kept empty slabs back that had no object since the stamp.
func (a *arena) dropStaleSlabs(stamp int64) {
	for c, s := range a.empty {
		if s != nil && s.ext.stamp <= stamp {
			a.empty[c] = nil
			a.dropSlab(s, s.ext.stamp)
		}
	}
}

// dropEmptySlabs gives the pages of all kept empty slabs back and tells whether there were any.
func (a *arena) dropEmptySlabs() bool {
	any := false
	for c, s := range a.empty {
		if s != nil {
			a.empty[c] = nil
			a.dropSlab(s, s.ext.stamp)
			any = true
		}
	}
	return any
}

func (s *slab) takeSlot() int {
	for w, word := range s.taken {
		if word != ^uint64(0) {
			slot := w*64 + bits.TrailingZeros64(^word)
			s.taken[w] |= 1 << (slot % 64)
			s.inUse++
			return slot
		}
	}
	panic("objectstore: a slab in the partial list has no free slot")
}

func (a *arena) linkPartial(s *slab) {
	s.prev, s.next = nil, a.partial[s.class]
	if s.next != nil {
		s.next.prev = s
	}
	a.partial[s.class] = s
}

func (a *arena) unlinkPartial(s *slab) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		a.partial[s.class] = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}
