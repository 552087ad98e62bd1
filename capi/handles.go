package main

import (
	"sync"
	"sync/atomic"
)

// table gives numbers to things that C refers to. A number is generation<<32 | place+1, so one that was dropped is never taken for a later one.
//
// Looking up takes no lock: the places are copied when they change, which happens a few times per session.
type table[T any] struct {
	mu     sync.Mutex // one change at a time
	places atomic.Pointer[[]place[T]]
}

type place[T any] struct {
	generation uint32
	thing      *T // nil: free
}

func (t *table[T]) get(handle uint64) *T {
	places := t.places.Load()
	i := uint32(handle) - 1
	if places == nil || uint64(i) >= uint64(len(*places)) {
		return nil
	}
	p := &(*places)[i]
	if p.generation != uint32(handle>>32) {
		return nil
	}
	return p.thing
}

func (t *table[T]) add(thing *T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	places := t.copied()
	i := 0
	for i < len(places) && places[i].thing != nil {
		i++
	}
	if i == len(places) {
		places = append(places, place[T]{})
	}
	places[i].generation++
	places[i].thing = thing
	t.places.Store(&places)
	return uint64(places[i].generation)<<32 | uint64(i+1)
}

// drop forgets a handle and returns what it stood for; nil when it was stale.
func (t *table[T]) drop(handle uint64) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	thing := t.get(handle)
	if thing == nil {
		return nil
	}
	places := t.copied()
	places[uint32(handle)-1].thing = nil
	t.places.Store(&places)
	return thing
}

// dropWhere forgets all handles whose thing is named by which.
func (t *table[T]) dropWhere(which func(*T) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	places := t.copied()
	for i := range places {
		if places[i].thing != nil && which(places[i].thing) {
			places[i].thing = nil
		}
	}
	t.places.Store(&places)
}

func (t *table[T]) copied() []place[T] {
	if old := t.places.Load(); old != nil {
		return append([]place[T](nil), *old...)
	}
	return nil
}
