package engine

import (
	"sync"
	"testing"
)

func TestStrandRunsEverythingInOrderOneAtATime(t *testing.T) {
	var inside, settled int
	last := map[int]int{}
	s := newStrand(func(st step) {
		inside++
		if inside != 1 {
			t.Error("two steps at once")
		}
		st.fn()
		inside--
	}, func(bool) { settled++ })
	go s.serve()
	const threads, each = 8, 5000
	var wg sync.WaitGroup
	for k := range threads {
		wg.Go(func() {
			for i := 1; i <= each; i++ {
				s.do(step{fn: func() {
					if last[k] != i-1 {
						t.Errorf("thread %d: %d after %d", k, i, last[k])
					}
					last[k] = i
				}}, nil, k%2 == 0)
			}
		})
	}
	wg.Wait()
	done := make(chan struct{})
	s.post(func() { close(done) })
	<-done
	s.post(func() {
		for k := range threads {
			if last[k] != each {
				t.Errorf("thread %d: %d of %d ran", k, last[k], each)
			}
		}
	})
	s.close()
	if s.post(func() {}) {
		t.Error("a closed strand takes no step")
	}
}

func TestStrandStepFromWithin(t *testing.T) {
	var order []int
	s := newStrand(func(st step) { st.fn() }, func(bool) {})
	s.post(func() {
		s.post(func() { order = append(order, 2) })
		order = append(order, 1)
	})
	if len(order) != 2 || order[0] != 1 {
		t.Error(order)
	}
}

func BenchmarkStrand(b *testing.B) {
	s := newStrand(func(st step) {}, func(bool) {})
	b.ReportAllocs()
	for range b.N {
		s.do(step{}, nil, true)
	}
}

// TestStrandClosedUnderACapturedThread: a thread of the user's that has run its share hands over, unless nobody is there any more to take over.
func TestStrandClosedUnderACapturedThread(t *testing.T) {
	for range 200 {
		ran := 0
		s := newStrand(func(st step) { st.fn() }, func(bool) {})
		served := make(chan struct{})
		go func() { s.serve(); close(served) }()
		s.do(step{fn: func() {
			for i := range 2 * captureLimit {
				s.post(func() {
					ran++
					if i == captureLimit {
						s.post(func() { ran++ }) // so that a round is left when the share is used up
						go s.close()
					}
				})
			}
		}}, nil, true)
		<-served
		s.mu.Lock()
		held, left := s.mu.held, len(s.mu.queue)
		s.mu.Unlock()
		if held || left > 0 || ran != 2*captureLimit+1 {
			t.Fatalf("held %v, %d steps are left, %d ran", held, left, ran)
		}
	}
}
