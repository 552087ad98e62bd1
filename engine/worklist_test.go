package engine

import (
	"slices"
	"testing"
)

func TestWorklist(t *testing.T) {
	var l worklist[int]
	var done []int
	depth := 0
	var do func(int)
	do = func(k int) {
		if depth++; depth > 1 {
			t.Fatal("it recurses")
		}
		done = append(done, k)
		if k > 0 && k < 10 {
			l.add(do, k*10, 0)
		}
		depth--
	}
	l.add(do, 1, 2)
	if want := []int{2, 0, 20, 1, 0, 10}; !slices.Equal(done, want) {
		t.Errorf("%v, want %v", done, want)
	}
	if allocs := testing.AllocsPerRun(100, func() { l.add(func(int) {}, 5) }); allocs != 0 {
		t.Errorf("%v allocations for one thing to do", allocs)
	}
}
