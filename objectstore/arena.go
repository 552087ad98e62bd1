package objectstore

import "math/bits"

const (
	pageShift = 12
	pageSize  = 1 << pageShift

	// alignment of every object: a cache line, and what vector kernels like.
	alignment = 64
)

// span is space handed out by the arena.
type span struct {
	off  int64
	size int64 // bytes set aside, at least what was asked for
	ext  *extent
	slab *slab // nil for page-aligned space
}

// extent is a run of pages. All extents, free or not, form one list in the order of their addresses, and no two neighbours in it
// are free and equally warm.
type extent struct {
	page, pages int64
	state       extentState
	stamp       int64  // when the latest of its pages was freed, in the caller's clock
	owner       *Entry // whose alone it is; nil: nobody's, a slab's or a chunk's

	prev, next       *extent // neighbours by address
	binPrev, binNext *extent // free extents of similar size, most recently freed first
}

type extentState uint8

const (
	extentUsed extentState = iota // handed out
	extentWarm                    // free, its pages hold memory: writing to them is fast
	extentCold                    // free, its pages hold no memory
	extentBusy                    // free, but being populated or trimmed
)

// arena divides [0, capacity) among objects. It decides and does nothing else: no memory is touched, no clock is read.
//
// Large objects get runs of pages, small ones a slot in a slab of equal slots, itself a run of pages. Freed pages that hold memory are
// used first, the most recently freed before others, because the first write to a fresh page costs ten times one to a warm page.
// Warm and cold free extents are therefore kept apart and joined only when nothing else can satisfy a request.
type arena struct {
	first *extent
	warm  bins
	cold  bins
	spare *extent // recycled structs, linked by next

	partial [len(classSizes)]*slab // slabs with free slots, per class
	empty   [len(classSizes)]*slab // one slab without objects kept per class, so that a lone object does not make and drop it each time

	capacity  int64 // bytes
	used      int64 // bytes handed out
	slabBytes int64 // bytes of slots in slabs, taken or not
	slabUsed  int64 // bytes of taken slots
	warmPages int64
	coldPages int64
	busyPages int64
}

func newArena(capacity int64) *arena {
	a := &arena{capacity: capacity &^ (pageSize - 1)}
	a.first = &extent{pages: a.capacity >> pageShift, state: extentCold}
	a.addFree(a.first)
	return a
}

// alloc sets aside at least size bytes (size > 0). It fails only when no run of free pages is long enough.
func (a *arena) alloc(size int64) (span, bool) {
	if class, ok := classOf(size); ok {
		if s, ok := a.allocSlot(class); ok {
			return s, true
		}
	}
	return a.allocPages(pagesFor(size))
}

// allocPages sets a run of pages aside.
func (a *arena) allocPages(pages int64) (span, bool) {
	e := a.takePages(pages)
	if e == nil && a.dropEmptySlabs() {
		e = a.takePages(pages)
	}
	if e == nil {
		return span{}, false
	}
	s := span{off: e.page << pageShift, size: e.pages << pageShift, ext: e}
	a.used += s.size
	return s, true
}

// free gives space back. now is the stamp that trimming goes by.
func (a *arena) free(s span, now int64) {
	a.used -= s.size
	if s.slab != nil {
		a.freeSlot(s, now)
		return
	}
	a.release(s.ext, extentWarm, now)
}

// takePages finds a free run and marks it used. The order of attempts is the policy:
// warm pages of about the right size, warm pages of any size, a warm run that grows into the cold one behind it, cold pages,
// and at last any neighbouring free runs together.
func (a *arena) takePages(n int64) *extent {
	e := a.warm.find(n)
	if e == nil {
		if e = a.growWarm(n); e == nil {
			if e = a.cold.find(n); e != nil && e.prev != nil && e.prev.state != extentUsed {
				return a.takeLast(e, n)
			}
		}
	}
	if e == nil {
		e = a.joinMixed(n)
	}
	if e == nil {
		return nil
	}
	a.dropFree(e)
	a.splitFree(e, n)
	e.state = extentUsed
	return e
}

// takeLast takes the last n pages of a free extent that continues other free or busy pages. Taken from its front they would leave these between two
// objects, too short for a third.
func (a *arena) takeLast(e *extent, n int64) *extent {
	a.dropFree(e)
	if keep := e.pages - n; keep > 0 {
		last := a.cut(e, keep)
		a.addFree(e)
		e = last
	}
	e.state = extentUsed
	return e
}

// growWarm looks for a recently freed warm extent that reaches n pages together with the cold one behind it. Objects of slowly growing
// size would otherwise never reuse warm pages.
func (a *arena) growWarm(n int64) *extent {
	const looks = 8
	seen := 0
	for b := a.warm.highest(); b >= 0 && seen < looks; b = a.warm.below(b) {
		for e := a.warm.head[b]; e != nil && seen < looks; e = e.binNext {
			seen++
			next := e.next
			if next == nil || next.state != extentCold || e.pages+next.pages < n || e.pages*2 < n {
				continue
			}
			// Only the piece that is needed changes sides, so that the warm count stays honest.
			a.dropFree(next)
			a.splitFree(next, n-e.pages)
			a.dropFree(e)
			a.absorbNext(e)
			e.state = extentWarm
			a.addFree(e)
			return e
		}
	}
	return nil
}

// joinMixed finds neighbouring free extents, warm and cold mixed, that together have n pages, and makes one warm extent of as much of
// them as is needed.
func (a *arena) joinMixed(n int64) *extent {
	for e := a.first; e != nil; e = e.next {
		if !e.free() {
			continue
		}
		total, last := int64(0), e
		for run := e; run != nil && run.free(); run = run.next {
			total, last = total+run.pages, run
			if total >= n {
				break
			}
		}
		if total < n {
			e = last
			continue
		}
		a.dropFree(e)
		for e.pages < n {
			next := e.next
			a.dropFree(next)
			if need := n - e.pages; next.pages > need {
				a.splitFree(next, need)
			}
			e.stamp = max(e.stamp, next.stamp)
			a.absorbNext(e)
		}
		e.state = extentWarm
		a.addFree(e)
		return e
	}
	return nil
}

// release makes e free in the given state, joined with neighbours of that state.
func (a *arena) release(e *extent, state extentState, now int64) {
	e.state = state
	e.stamp = now
	if p := e.prev; p != nil && p.state == state {
		a.dropFree(p)
		p.stamp = max(p.stamp, now)
		a.absorbNext(p)
		e = p
	}
	if n := e.next; n != nil && n.state == state {
		a.dropFree(n)
		e.stamp = max(e.stamp, n.stamp)
		a.absorbNext(e)
	}
	a.addFree(e)
}

// reserve takes a free extent, or its first max pages, out of the free lists while its pages are populated or trimmed.
func (a *arena) reserve(e *extent, limit int64) *extent {
	a.dropFree(e)
	a.splitFree(e, min(limit, e.pages))
	e.state = extentBusy
	a.busyPages += e.pages
	return e
}

// unreserve brings a reserved extent back.
func (a *arena) unreserve(e *extent, state extentState, now int64) {
	a.busyPages -= e.pages
	a.release(e, state, now)
}

// nextCold returns the cold extent with the lowest address, where populating goes on.
func (a *arena) nextCold() *extent {
	var best *extent
	for b := a.cold.highest(); b >= 0; b = a.cold.below(b) {
		for e := a.cold.head[b]; e != nil; e = e.binNext {
			if best == nil || e.page < best.page {
				best = e
			}
		}
	}
	return best
}

// staleWarm returns a warm extent none of whose pages was freed after the stamp, or nil.
func (a *arena) staleWarm(stamp int64) *extent {
	for b := a.warm.highest(); b >= 0; b = a.warm.below(b) {
		for e := a.warm.head[b]; e != nil; e = e.binNext {
			if e.stamp <= stamp {
				return e
			}
		}
	}
	return nil
}

// largestFree returns the longest run of free pages, in bytes.
func (a *arena) largestFree() int64 {
	var best, run int64
	for e := a.first; e != nil; e = e.next {
		if e.free() {
			run += e.pages
			best = max(best, run)
		} else {
			run = 0
		}
	}
	return best << pageShift
}

// window finds the cheapest run of extents with that many pages, given what it costs to have one free: nothing for those that are. first is nil when
// extents that cannot be had leave no such run. What is in a run besides the pages asked for is less than its first or its last extent.
func (a *arena) window(pages int64, cost func(*extent) (pages int64, ok bool)) (first, last *extent) {
	var from *extent
	var have, sum, best int64
	for e := a.first; e != nil; e = e.next {
		c, ok := cost(e)
		if !ok {
			from, have, sum = nil, 0, 0
			continue
		}
		if from == nil {
			from = e
		}
		have, sum = have+e.pages, sum+c
		for have-from.pages >= pages {
			c, _ := cost(from)
			have, sum = have-from.pages, sum-c
			from = from.next
		}
		if have >= pages && (first == nil || sum < best) {
			first, last, best = from, e, sum
		}
	}
	return first, last
}

func (e *extent) free() bool { return e.state == extentWarm || e.state == extentCold }

// freeRuns counts the runs of free pages.
func (a *arena) freeRuns() int {
	runs, inRun := 0, false
	for e := a.first; e != nil; e = e.next {
		if e.free() && !inRun {
			runs++
		}
		inRun = e.free()
	}
	return runs
}

// carve makes an extent of its own of n pages, from page on, of a used extent that has them. What is before them stays e; what is behind them
// is the second extent returned. Either is nil where nothing is left.
func (a *arena) carve(e *extent, page, n int64) (piece, before, behind *extent) {
	piece = e
	if lead := page - e.page; lead > 0 {
		before, piece = e, a.cut(e, lead)
	}
	if piece.pages > n {
		behind = a.cut(piece, n)
	}
	return piece, before, behind
}

// splitFree cuts e, which is in no bin, down to n pages; the rest stays free in e's state. Its neighbour behind differs, as e's did.
func (a *arena) splitFree(e *extent, n int64) {
	if e.pages > n {
		a.addFree(a.cut(e, n))
	}
}

// cut leaves e, which is in no bin, n pages and returns the rest in the same state, in no bin either.
func (a *arena) cut(e *extent, n int64) *extent {
	rest := a.spare
	if rest == nil {
		rest = &extent{}
	} else {
		a.spare = rest.next
	}
	*rest = extent{page: e.page + n, pages: e.pages - n, state: e.state, stamp: e.stamp, prev: e, next: e.next}
	if e.next != nil {
		e.next.prev = rest
	}
	e.next = rest
	e.pages = n
	return rest
}

// absorbNext joins e with the extent behind it. Neither is in a bin.
func (a *arena) absorbNext(e *extent) {
	n := e.next
	e.pages += n.pages
	e.next = n.next
	if n.next != nil {
		n.next.prev = e
	}
	*n = extent{next: a.spare}
	a.spare = n
}

func (a *arena) addFree(e *extent) {
	if e.state == extentWarm {
		a.warm.push(e)
		a.warmPages += e.pages
	} else {
		a.cold.push(e)
		a.coldPages += e.pages
	}
}

func (a *arena) dropFree(e *extent) {
	if e.state == extentWarm {
		a.warm.remove(e)
		a.warmPages -= e.pages
	} else {
		a.cold.remove(e)
		a.coldPages -= e.pages
	}
}

func pagesFor(size int64) int64 { return (size + pageSize - 1) >> pageShift }

// bins hold free extents by size: exact up to 15 pages, then eight bins per doubling. Within a bin the most recently freed is first.
type bins struct {
	head [numBins]*extent
	have [(numBins + 63) / 64]uint64
}

const (
	exactBins = 16
	subBits   = 3
	numBins   = exactBins + (40-4)<<subBits // enough for 2^40 pages
)

func binOf(pages int64) int {
	if pages < exactBins {
		return int(pages)
	}
	e := bits.Len64(uint64(pages)) - 1
	return exactBins + (e-4)<<subBits + int(pages>>(e-subBits))&(1<<subBits-1)
}

func (b *bins) push(e *extent) {
	i := binOf(e.pages)
	e.binPrev, e.binNext = nil, b.head[i]
	if e.binNext != nil {
		e.binNext.binPrev = e
	}
	b.head[i] = e
	b.have[i/64] |= 1 << (i % 64)
}

func (b *bins) remove(e *extent) {
	i := binOf(e.pages)
	if e.binPrev != nil {
		e.binPrev.binNext = e.binNext
	} else {
		b.head[i] = e.binNext
		if e.binNext == nil {
			b.have[i/64] &^= 1 << (i % 64)
		}
	}
	if e.binNext != nil {
		e.binNext.binPrev = e.binPrev
	}
	e.binPrev, e.binNext = nil, nil
}

// find returns a free extent of at least n pages, or nil. It looks at its own bin in order and takes the first of a higher bin, all of
// which are large enough.
func (b *bins) find(n int64) *extent {
	i := binOf(n)
	for e := b.head[i]; e != nil; e = e.binNext {
		if e.pages >= n {
			return e
		}
	}
	if j := b.above(i); j >= 0 {
		return b.head[j]
	}
	return nil
}

// above returns the lowest bin over i that is not empty, or -1.
func (b *bins) above(i int) int {
	i++
	for w := i / 64; w < len(b.have); w++ {
		word := b.have[w]
		if w == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

func (b *bins) highest() int { return b.below(numBins) }

// below returns the highest bin under i that is not empty, or -1.
func (b *bins) below(i int) int {
	i--
	if i < 0 {
		return -1
	}
	for w := i / 64; w >= 0; w-- {
		word := b.have[w]
		if w == i/64 {
			word &= ^uint64(0) >> (63 - i%64)
		}
		if word != 0 {
			return w*64 + 63 - bits.LeadingZeros64(word)
		}
	}
	return -1
}
