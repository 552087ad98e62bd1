package objectstore

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Causes. What is returned wraps one of them once, with sizes and names.
var (
	ErrFull = errors.New("the object store is full")
	ErrDisk = errors.New("the disk for spilled objects failed")
	// ErrLost: the object's copy on disk, the only one, is damaged or gone. The entry can only be deleted; whoever can make the value
	// again makes a new one.
	ErrLost    = errors.New("the object's copy on disk is lost")
	ErrDeleted = errors.New("the object was deleted")
	ErrClosed  = errors.New("the object store is closed")
)

// Env is what the store needs from its engine.
type Env interface {
	// Post has f run on the strand. It must not block on the strand.
	Post(f func())
}

// Options of a store. Zero values give the defaults named.
type Options struct {
	Capacity  int64    // bytes of shared memory; rounded up to a page
	SpillDirs []string // made when needed; none: nothing is spilled
	Env       Env

	SpillAt     float64       // share of the capacity from which on idle objects are copied to disk ahead of need (0.8); 1 or more: none are
	MapAfter    time.Duration // how long a request waits for pins to go before it is served in a file on disk, which is slower (1 s)
	FullTimeout time.Duration // how long a request waits when only pins going can help (60 s)
	DiskGrace   time.Duration // the same when the disk is the trouble (2 s)
	WarnAfter   time.Duration // when a waiting request is reported (10 s)
	Warn        func(Waiting) // told once per request that waits longer; nil: nobody is

	Tight func() // told when requests wait that only pins going can help
	// RegisterFD is told of every spill file's descriptor: a forked child has to close them, or their space stays taken until it ends. It is
	// called by the goroutines that open and close them.
	RegisterFD func(fd int, open bool)

	// Leased is told when a process that was granted a lease has the object pinned and the store has to know: it counts one pin more, which Unpin takes
	// back when the process says so, or has ended.
	Leased func(e *Entry, owner any)

	Recall func() // unused space of chunks is needed: have it returned; nil: nobody is asked

	PopulateAhead int64         // most bytes of fresh pages kept ready (256 MiB); negative: none
	TrimAfter     time.Duration // free pages unused for so long go back to the system (10 s); negative: never
	SmallPages    bool          // do not try for huge pages
}

// Store is the object store of one machine. See the package's comment for who may call it.
type Store struct {
	opts  Options
	env   Env
	mem   *memory
	arena *arena
	disk  *disk
	out   *runner // writes to disk, and gives space there back
	in    *runner // reads from disk
	pages *runner // populates and trims

	held  entryList // take up space and cannot be moved: being written, pinned, or just being copied
	idle  entryList // sealed, unpinned, in the arena and nowhere else: least recently used first
	clean entryList // the same with a copy on disk, so that their space can be had at once

	touches int64 // how often objects in the arena were let go of

	queue   []*request // for space, oldest first
	pumping bool
	again   bool
	timer   *time.Timer // next deadline of a request; nil when none waits
	timerAt time.Time

	spilling  int64 // bytes of the arena being written to disk, which will then be clean
	cleaned   int64 // bytes of the arena in the clean list
	ahead     int64 // bytes brought back ahead of need and not used yet
	spillAt   int64 // used bytes that are neither clean nor about to be, from which on objects are copied ahead
	diskErr   error // the latest failure to spill
	diskUntil time.Time

	paging      bool  // the pages goroutine has a job
	recent      int64 // most bytes handed out at once since memory was last trimmed: how far to populate ahead
	noPopulate  bool
	trimTimer   *time.Timer
	trimAll     int64 // pages that became free before go back at once
	objects     int
	pinned      int64
	spilled     int64
	files       map[*Entry]struct{} // entries with a file of their own
	inFiles     int64               // their bytes
	checks      map[*Entry]struct{} // entries whose copy is read before it is mapped
	compacting  map[*segment]bool
	asked       int64 // bytes of the objects in the arena, without what their slots and pages have beyond
	chunks      int
	chunkUnused int64 // bytes of chunks that no object has
	recalled    bool  // these were asked for
	leases      leases
	pace        pacer
	trims       uint32
	highWater   int64
	closed      bool
}

// Stats is a snapshot of the store.
type Stats struct {
	Capacity      int64         // bytes
	Used          int64         // bytes handed out
	Warm          int64         // free bytes whose pages hold memory
	Cold          int64         // free bytes whose pages hold none: never written, or given back to the system
	Slack         int64         // of Used: what slots and pages have over the objects in them
	SlabFree      int64         // bytes in free slots of slabs: free for small objects only
	HighWater     int64         // most bytes handed out at once
	LargestFree   int64         // longest free run
	FreeRuns      int           // runs of free pages; with LargestFree it tells how far the free space is in pieces
	Chunks        int           // pieces lent to processes that cut their objects from them
	ChunkUnused   int64         // bytes of these that no object has yet; neither in Used nor free
	Objects       int           // in the arena or on disk
	Pinned        int64         // bytes of pinned objects
	Spilled       int64         // bytes of objects that are only on disk
	Files         int64         // of these, bytes of objects that have a file of their own because they found no room in the arena
	Clean         int64         // bytes in the arena that have a copy on disk and can go at once
	SpilledTotal  int64         // bytes ever written to disk
	RestoredTotal int64         // bytes ever read back
	SpillTime     time.Duration // spent on writing those
	RestoreTime   time.Duration // spent on reading those
	DiskUsed      int64         // bytes the spill files take up
	DiskDead      int64         // of these, bytes that belong to no object any more and wait for compaction
	SpillDirs     []SpillDirStats
	Waiting       int // requests for space
	WaitingBytes  int64
	HugePages     bool
}

// SpillDirStats says how a directory for spilled objects is doing.
type SpillDirStats struct {
	Path   string
	Free   int64  // bytes, when last looked; -1: not known
	Total  int64  // bytes of its file system; -1: not known
	Used   int64  // bytes of this store's spill files there
	Failed string // why it was not written to when last tried; empty: it works
}

// Open makes a store. No page of it has memory until something is created.
func Open(opts Options) (*Store, error) {
	if opts.Env == nil || opts.Capacity <= 0 {
		return nil, fmt.Errorf("objectstore: Open needs an Env and a capacity over zero, not %d", opts.Capacity)
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if opts.SpillAt <= 0 {
		opts.SpillAt = 0.8
	}
	def(&opts.MapAfter, time.Second)
	def(&opts.FullTimeout, 60*time.Second)
	def(&opts.DiskGrace, 2*time.Second)
	def(&opts.WarnAfter, 10*time.Second)
	def(&opts.TrimAfter, 10*time.Second)
	if opts.PopulateAhead == 0 {
		opts.PopulateAhead = 256 << 20
	}
	opts.Capacity = pagesFor(opts.Capacity) << pageShift
	mem, err := openMemory(opts.Capacity, !opts.SmallPages)
	if err != nil {
		return nil, err
	}
	s := &Store{opts: opts, env: opts.Env, mem: mem, arena: newArena(opts.Capacity), out: newRunner(opts.Env), in: newRunner(opts.Env), pages: newRunner(opts.Env),
		files: map[*Entry]struct{}{}, checks: map[*Entry]struct{}{}, compacting: map[*segment]bool{}, spillAt: int64(opts.SpillAt * float64(opts.Capacity))}
	s.disk = newDisk(opts.SpillDirs, s.out.stopping, opts.RegisterFD)
	s.disk.pause = func(after time.Duration) { s.out.sleep(s.pace.pause(after)) }
	return s, nil
}

// File is the arena's memory file, for handing to other processes. It stays the store's.
func (s *Store) File() *os.File { return s.mem.file }

// Generation grows when free pages went back to the system, in all processes that had them mapped.
func (s *Store) Generation() uint32 { return s.trims }

// Capacity is the arena's size in bytes.
func (s *Store) Capacity() int64 { return s.opts.Capacity }

// PinnedBytes is how much of the arena cannot be moved because of pins.
func (s *Store) PinnedBytes() int64 {
	s.CallInUsed()
	return s.pinned
}

// Tight tells whether somebody who runs waits for room.
func (s *Store) Tight() bool { return len(s.queue) > 0 && s.queue[0].need == ForGet }

// AnySpilled tells whether there is anything to bring back.
func (s *Store) AnySpilled() bool { return s.spilled > 0 }

// Stats takes a snapshot.
func (s *Store) Stats() Stats {
	s.CallInUsed()
	st := Stats{
		Capacity: s.opts.Capacity, Used: s.used(), Warm: s.arena.warmPages << pageShift, Cold: s.arena.coldPages << pageShift,
		Slack: s.used() - s.asked, SlabFree: s.arena.slabBytes - s.arena.slabUsed, HighWater: s.highWater,
		LargestFree: s.arena.largestFree(), FreeRuns: s.arena.freeRuns(), Chunks: s.chunks, ChunkUnused: s.chunkUnused, Objects: s.objects, Pinned: s.pinned, Spilled: s.spilled + s.inFiles,
		Files: s.inFiles, Clean: s.cleaned, Waiting: len(s.queue), HugePages: s.mem.huge,
	}
	s.disk.stats(&st)
	for _, r := range s.queue {
		st.WaitingBytes += r.size
	}
	return st
}

// used is what objects have.
func (s *Store) used() int64 { return s.arena.used - s.chunkUnused }

// freeSpan takes an entry's space back.
func (s *Store) freeSpan(e *Entry) {
	s.asked -= e.size
	if e.span.ext != nil {
		e.span.ext.owner = nil
	}
	s.arena.free(e.span, s.now())
	e.span = span{}
}

// Create sets size bytes aside for an object that its producer will write. label names the object in errors. done runs before Create
// returns when there is room, later when room has to be made. It gets an entry that is to be sealed or deleted, or an error that
// wraps ErrFull, ErrDisk or ErrClosed. An object that is larger than the arena, or waited too long for room in it, gets a file (Entry.File).
func (s *Store) Create(size int64, label string, done func(*Entry, error)) {
	if s.closed {
		done(nil, ErrClosed)
		return
	}
	size = max(size, 1)
	if size > s.opts.Capacity {
		s.createFile(size, label, func(err error) error {
			return fmt.Errorf("%w: %s, %s, is larger than its %s of memory, and no disk takes it: %w. Make the object smaller, give the store more memory (object_store_memory), or name a spill directory with more space (object_spilling_directory)",
				ErrFull, label, exactly(size), exactly(s.opts.Capacity), err)
		}, done)
		return
	}
	if len(s.queue) == 0 {
		if sp, ok := s.arena.alloc(size); ok {
			done(s.newEntry(sp, size, label), nil)
			return
		}
	}
	s.enqueue(&request{size: size, label: label, done: done})
}

func (s *Store) newEntry(sp span, size int64, label string) *Entry {
	e := &Entry{s: s, span: sp, size: size, label: label, state: creating}
	s.objects++
	s.asked += size
	e.own()
	s.held.pushBack(e)
	s.pace.begin(size)
	s.highWater = max(s.highWater, s.used())
	return e
}

// Delete gives up an object: its space is free as soon as no pin and no copying is left. An entry that was not sealed goes at once; its
// producer must not write any more. Deleting twice is deleting once.
func (s *Store) Delete(e *Entry) {
	if e.deleted || s.closed {
		return
	}
	e.deleted = true
	s.objects--
	s.CallIn(e)
	switch {
	case e.file != nil:
		if e.pins == 0 {
			s.removeFile(e)
		}
	case e.state == creating:
		s.pace.end(e.size)
		s.release(e)
	case e.state == resident:
		if e.pins == 0 && !e.spilling {
			s.release(e)
		}
	case e.state == spilled:
		if e.pins == 0 {
			s.dropRecord(e)
		}
	case e.state == queued:
		s.dropRequest(e)
		s.dropRecord(e)
	default:
		// It is being read, and what comes after that cleans up.
	}
	if len(e.waiters) > 0 {
		s.failWaiters(e, fmt.Errorf("%w: %s", ErrDeleted, e.label))
	}
	s.pump()
}

// release frees the space of an entry that is in a list and has no further use for it.
func (s *Store) release(e *Entry) {
	s.unlist(e)
	s.needed(e)
	s.freeSpan(e)
	e.state = gone
	s.forgetRecord(e)
	s.trimLater()
}

// dropRecord forgets an entry that is only on disk.
func (s *Store) dropRecord(e *Entry) {
	s.spilled -= e.size
	e.state = gone
	s.forgetRecord(e)
}

func (s *Store) failWaiters(e *Entry, err error) {
	waiters := e.waiters
	e.waiters = nil
	for _, w := range waiters {
		w(0, err)
	}
}

// Bytes is the object in this process's mapping of the arena; the slice is good while the entry is unsealed or pinned, and has no File.
func (s *Store) Bytes(e *Entry) []byte {
	if !e.onArena() {
		panic("objectstore: " + e.label + " is not in the arena")
	}
	off := e.span.off
	return s.mem.data[off : off+e.size : off+e.size]
}

// Close ends both goroutines, fails whatever waits, and gives memory and disk space back. Further calls do nothing.
func (s *Store) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.trimTimer != nil {
		s.trimTimer.Stop()
	}
	queue := s.queue
	s.queue = nil
	for _, r := range queue {
		if r.entry != nil {
			s.failWaiters(r.entry, ErrClosed)
		} else {
			r.done(nil, ErrClosed)
		}
	}
	for e := s.held.first; e != nil; e = e.next {
		s.failWaiters(e, ErrClosed)
	}
	for e := range s.checks {
		s.failWaiters(e, ErrClosed)
	}
	s.out.stop()
	s.in.stop()
	s.pages.stop()
	for e := range s.files {
		s.disk.remove(e.file)
	}
	s.disk.close()
	s.closeLeases()
	return s.mem.close()
}

func (s *Store) now() int64 { return int64(time.Since(epoch)) }

var epoch = time.Now()

// mib writes a size for people.
func mib(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.3f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// exactly is mib with the bytes, for the object that an error is about.
func exactly(n int64) string { return fmt.Sprintf("%s (%d bytes)", mib(n), n) }
