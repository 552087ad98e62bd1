package ownership

import (
	"maps"
	"slices"
)

// Head is the part of the head node: it announces deaths and says when the dead may be forgotten.
//
// One word for all nodes now dead, not one for each: a node that dies takes with it the answers it owed for those that died before.
type Head struct {
	flushed map[NodeID]uint32 // by live node
	dead    []NodeID          // the n-th death is epoch n
	purged  uint32
}

// Word is what the head has to tell a node: Dead or Purge.
type Word struct {
	To    NodeID
	Event Event
}

// NewHead makes the head of a cluster that has no nodes yet.
func NewHead() *Head { return &Head{flushed: map[NodeID]uint32{}} }

// Join takes a node in. It is told of the deaths before its time: it may be handed references to what those nodes owned.
func (h *Head) Join(node NodeID) []Word {
	h.flushed[node] = 0
	words := make([]Word, 0, len(h.dead))
	for i, d := range h.dead {
		words = append(words, Word{node, Dead{d, uint32(i + 1)}})
	}
	return words
}

// Died declares a live node dead, and does nothing for others.
func (h *Head) Died(node NodeID) []Word {
	if _, live := h.flushed[node]; !live {
		return nil
	}
	delete(h.flushed, node)
	h.dead = append(h.dead, node)
	return h.tell(Dead{node, uint32(len(h.dead))})
}

// Flushed takes a node's report.
func (h *Head) Flushed(node NodeID, epoch uint32) []Word {
	if _, live := h.flushed[node]; !live {
		return nil
	}
	h.flushed[node] = epoch
	now := uint32(len(h.dead))
	for _, f := range h.flushed {
		if f < now {
			return nil
		}
	}
	if h.purged == now {
		return nil
	}
	h.purged = now
	return h.tell(Purge{now})
}

func (h *Head) tell(e Event) []Word {
	words := make([]Word, 0, len(h.flushed))
	for _, node := range slices.Sorted(maps.Keys(h.flushed)) {
		words = append(words, Word{node, e})
	}
	return words
}
