package objectstore

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A lease lets the process that makes an object pin it without asking: a word in shared memory counts its pins, and the store looks there before it
// moves or frees the object. Then the lease is called in. If the process has no pin the lease is over; if it has, the store counts one for all
// of them from now on, and the process says when the last one goes.
//
// A word is 0 when it is nobody's. Else its upper half is the lease's generation, never 0, and the lower half counts pins; its top bit says that the lease
// was called in. Both sides only ever change a word by compare-and-swap from a value they have seen:
//
//	store    gen|0 → 0            called in, not pinned
//	         gen|n → gen|called|n called in, pinned
//	process  gen|n → gen|n±1      pins and unpins, unless called
//	         gen|called|n → …|n-1 unpins; the last one makes it 0 and says UNPIN
//
// What a process that has ended left behind the store sets to 0; a process that is still there, and does not know, finds another generation.
type leases struct {
	file  *os.File // nil: none was given yet
	words []byte
	slots []lease // as many as were ever in use at once
	gen   uint32
	err   error // why there can be none
}

// lease is one word's use.
type lease struct {
	index int
	e     *Entry // nil: it was called in, or is nobody's
	owner any    // nil: it is nobody's
}

const (
	mostLeases  = 4096
	leaseCalled = 1 << 31
	leaseCount  = leaseCalled - 1
)

// Lease is what a process is told of one.
type Lease struct {
	Index      uint32
	Generation uint32
}

func (l *leases) word(i int) *uint64 { return (*uint64)(unsafe.Pointer(&l.words[8*i])) }

func (s *Store) openLeases() error {
	l := &s.leases
	fd, err := unix.MemfdCreate("raygo-leases", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "raygo-leases")
	if err := f.Truncate(8 * mostLeases); err != nil {
		f.Close()
		return err
	}
	if l.words, err = unix.Mmap(fd, 0, 8*mostLeases, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		f.Close()
		return fmt.Errorf("mmap: %w", err)
	}
	l.file = f
	if s.opts.RegisterFD != nil {
		s.opts.RegisterFD(fd, true)
	}
	return nil
}

// Grant leases an entry in the arena to its maker. owner is what Options.Leased is told when the lease is called in while the object is pinned. There
// may be none to be had: then the process asks for each pin.
func (s *Store) Grant(e *Entry, owner any) (Lease, bool) {
	l := &s.leases
	if l.file == nil && l.err == nil {
		l.err = s.openLeases()
	}
	if l.err != nil || e.lease != 0 || !e.onArena() {
		return Lease{}, false
	}
	i := slices.IndexFunc(l.slots, func(x lease) bool { return x.owner == nil })
	if i < 0 {
		i = slices.IndexFunc(l.slots, func(x lease) bool { return x.e == nil && atomic.LoadUint64(l.word(x.index)) == 0 })
	}
	if i < 0 {
		if i = len(l.slots); i == mostLeases {
			return Lease{}, false
		}
		l.slots = append(l.slots, lease{index: i})
	}
	if l.gen++; l.gen == 0 {
		l.gen = 1
	}
	l.slots[i].e, l.slots[i].owner = e, owner
	e.lease = int32(i) + 1
	atomic.StoreUint64(l.word(i), uint64(l.gen)<<32)
	return Lease{uint32(i), l.gen}, true
}

// LeaseFile is the descriptor of the words' file, for a process that was granted a lease to map.
func (s *Store) LeaseFile() int { return int(s.leases.file.Fd()) }

// used tells whether the maker of an entry has it pinned by its lease.
func (e *Entry) used() bool {
	return e.lease != 0 && atomic.LoadUint64(e.s.leases.word(int(e.lease-1)))&leaseCount != 0
}

// CallIn ends an entry's lease. If its maker has it pinned, that is a pin like any other from then on.
func (s *Store) CallIn(e *Entry) {
	if e.lease == 0 {
		return
	}
	l := &s.leases
	i := int(e.lease - 1)
	x, word := &l.slots[i], l.word(i)
	e.lease, x.e = 0, nil
	for {
		was := atomic.LoadUint64(word)
		now := was | leaseCalled
		if was&leaseCount == 0 {
			now = 0
		}
		if !atomic.CompareAndSwapUint64(word, was, now) {
			continue
		}
		owner := x.owner
		if now == 0 {
			x.owner = nil
			return
		}
		s.addPin(e)
		s.opts.Leased(e, owner)
		return
	}
}

// CallInUsed makes all pins known that processes have by leases: for those who are about to look at pins.
func (s *Store) CallInUsed() {
	for i := range s.leases.slots {
		if e := s.leases.slots[i].e; e != nil && e.used() {
			s.CallIn(e)
		}
	}
}

// DropLeases ends those of a process that has ended. Pins that were made known are the caller's to take back.
func (s *Store) DropLeases(mine func(owner any) bool) {
	l := &s.leases
	for i := range l.slots {
		x := &l.slots[i]
		if x.owner == nil || !mine(x.owner) {
			continue
		}
		if x.e != nil {
			x.e.lease = 0
		}
		*x = lease{index: i}
		atomic.StoreUint64(l.word(i), 0)
	}
}

func (s *Store) closeLeases() {
	l := &s.leases
	if l.file == nil {
		return
	}
	if s.opts.RegisterFD != nil {
		s.opts.RegisterFD(int(l.file.Fd()), false)
	}
	_ = unix.Munmap(l.words) // it is a whole mapping of ours: that cannot fail
	l.file.Close()
	*l = leases{err: ErrClosed}
}
