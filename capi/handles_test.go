package main

import "testing"

func TestHandles(t *testing.T) {
	var tab table[int]
	x, y := 1, 2
	a, b := tab.add(&x), tab.add(&y)
	if a == b || a == 0 || tab.get(a) != &x || tab.get(b) != &y {
		t.Fatal(a, b)
	}
	if tab.drop(a) != &x || tab.drop(a) != nil || tab.get(a) != nil {
		t.Fatal("a dropped handle is stale")
	}
	if c := tab.add(&x); c == a || tab.get(a) != nil || tab.get(c) != &x {
		t.Fatal("a place that is used again has another handle")
	}
	for _, h := range []uint64{0, 1 << 63, ^uint64(0), 77} {
		if tab.get(h) != nil {
			t.Fatal("nonsense found something")
		}
	}
}

func TestDropWhere(t *testing.T) {
	var tab table[int]
	x, y, z := 1, 2, 3
	a, b, c := tab.add(&x), tab.add(&y), tab.add(&z)
	tab.dropWhere(func(n *int) bool { return *n != 2 })
	if tab.get(a) != nil || tab.get(b) != &y || tab.get(c) != nil {
		t.Fatal("what is named goes, the rest stays")
	}
}
