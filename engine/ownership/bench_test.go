package ownership

import "testing"

// BenchmarkRefs is what an object costs that one process makes, and lets go of.
func BenchmarkRefs(b *testing.B) {
	var p process
	var table *Table[*process, *held]
	table = NewTable[*process](func(o *held) {
		o.gone = true
		table.Empty(o)
	})
	o := &held{}
	b.ReportAllocs()
	for b.Loop() {
		*o = held{}
		o.Hold(&p)
		o.Need()
		if o.Unneed(); !o.Wanted() {
			table.Settle(o)
		}
		if o.LetGo(&p); !o.Wanted() {
			table.Settle(o)
		}
	}
}

// BenchmarkShare is what it costs both ends that an object is handed to another node, and dropped there.
func BenchmarkShare(b *testing.B) {
	h, a := NewNode(1), NewNode(2)
	x := []ObjectID{{Owner: 1, Task: 1}}
	step := func(n *Node, e Event) []Effect {
		effects, err := n.Step(e)
		if err != nil {
			b.Fatal(err)
		}
		return effects
	}
	b.ReportAllocs()
	for b.Loop() {
		step(h, Take{x[0]})
		step(a, Receive{1, step(h, Give{2, x})[0].Message})
		step(h, Receive{2, step(a, Drop{x[0]})[0].Message})
		step(h, Drop{x[0]})
	}
}
