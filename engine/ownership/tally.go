package ownership

import "slices"

// tally counts by node. Nearly always it is empty or has one entry, so it is a sorted slice.
type tally []tallied

type tallied struct {
	node NodeID
	n    int
}

func (t tally) find(node NodeID) (int, bool) {
	return slices.BinarySearchFunc(t, node, func(e tallied, node NodeID) int {
		switch {
		case e.node < node:
			return -1
		case e.node > node:
			return 1
		}
		return 0
	})
}

func (t tally) of(node NodeID) int {
	if i, ok := t.find(node); ok {
		return t[i].n
	}
	return 0
}

func (t *tally) add(node NodeID, n int) {
	i, ok := t.find(node)
	if !ok {
		*t = slices.Insert(*t, i, tallied{node, n})
		return
	}
	(*t)[i].n += n
}

// sub takes n away and says whether there were so many.
func (t *tally) sub(node NodeID, n int) bool {
	i, ok := t.find(node)
	if !ok || n <= 0 || (*t)[i].n < n {
		return false
	}
	if (*t)[i].n -= n; (*t)[i].n == 0 {
		*t = slices.Delete(*t, i, i+1)
	}
	return true
}

func (t *tally) forget(node NodeID) {
	if i, ok := t.find(node); ok {
		*t = slices.Delete(*t, i, i+1)
	}
}
