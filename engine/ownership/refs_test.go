package ownership

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type process struct{ _ byte }

type held struct {
	Refs[*process, *held]
	num  int
	gone bool
}

// twin is the same in the plainest way: after each step it finds out anew what is wanted.
type twin struct {
	holds    []map[int]bool // by object, of processes
	needs    []int          // by object, from outside
	contents [][]int
	freed    []bool
}

func (w *twin) settle() {
	wanted := make([]bool, len(w.freed))
	var want func(int)
	want = func(o int) {
		if wanted[o] || w.freed[o] {
			return
		}
		wanted[o] = true
		for _, c := range w.contents[o] {
			want(c)
		}
	}
	for o := range w.freed {
		if len(w.holds[o]) > 0 || w.needs[o] > 0 {
			want(o)
		}
	}
	for o := range w.freed {
		w.freed[o] = w.freed[o] || !wanted[o]
	}
}

// refsAgainstTwin reads the bytes as steps. Values contain older objects only: what goes round in a circle is never freed, as nowhere where references are counted.
func refsAgainstTwin(t *testing.T, program []byte) {
	processes := []*process{{}, {}, {}}
	var w twin
	var objects []*held
	var table *Table[*process, *held]
	table = NewTable[*process](func(o *held) {
		w.freed[o.num] = true
		table.Empty(o)
	})
	expect := func(step int) {
		t.Helper()
		got := slices.Clone(w.freed)
		w.freed = make([]bool, len(got))
		for o, was := range got {
			w.freed[o] = was && len(w.holds[o]) == 0 && w.needs[o] == 0
		}
		w.settle()
		if !slices.Equal(got, w.freed) {
			t.Fatalf("after step %d: freed %v, and should have freed %v", step, got, w.freed)
		}
		for i, o := range objects {
			if w.freed[i] {
				continue
			}
			if n := len(slices.Collect(o.Holders())); n != len(w.holds[i]) || (o.Holder() != nil) != (n > 0) || o.Wanted() != (n > 0 || o.Needs() > 0) {
				t.Fatalf("after step %d: object %d has %d holders, should have %d", step, i, n, len(w.holds[i]))
			}
		}
	}
	for step := 0; step+2 < len(program); step += 3 {
		what, which, arg := program[step]%8, int(program[step+1]), int(program[step+2])
		if what == 0 || len(objects) == 0 {
			o := &held{num: len(objects)}
			o.Hold(processes[arg%3])
			objects = append(objects, o)
			w.holds, w.needs, w.contents, w.freed = append(w.holds, map[int]bool{arg % 3: true}), append(w.needs, 0), append(w.contents, nil), append(w.freed, false)
			continue
		}
		o := objects[which%len(objects)]
		if w.freed[o.num] {
			continue
		}
		p := arg % 3
		switch what {
		case 1, 2:
			if o.Hold(processes[p]) == w.holds[o.num][p] {
				t.Fatal("Hold is wrong about what was")
			}
			w.holds[o.num][p] = true
		case 3, 4:
			had := o.LetGo(processes[p])
			if had != w.holds[o.num][p] || o.HeldBy(processes[p]) {
				t.Fatal("LetGo is wrong about what was")
			}
			delete(w.holds[o.num], p)
			table.Settle(o)
		case 5:
			o.Need()
			w.needs[o.num]++
		case 6:
			if w.needs[o.num] > 0 {
				w.needs[o.num]--
				o.Unneed()
				table.Settle(o)
			}
		case 7:
			if len(o.Contents()) > 0 {
				w.contents[o.num] = nil
				table.Empty(o)
				break
			}
			var contents []*held
			for i := arg % 7; i < o.num; i += 1 + arg%5 {
				if !w.freed[i] {
					objects[i].Need()
					contents = append(contents, objects[i])
					w.contents[o.num] = append(w.contents[o.num], i)
				}
			}
			table.Fill(o, contents)
		}
		expect(step)
	}
}

func FuzzRefs(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x01\x07\x01\x00\x03\x00\x00\x03\x01\x01"))
	f.Fuzz(refsAgainstTwin)
}

func TestRefsAgainstTwin(t *testing.T) {
	seeds := uint64(300)
	if racing {
		seeds = 30
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 4))
		program := make([]byte, 900)
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		refsAgainstTwin(t, program)
	}
}

func TestLongChainOfValues(t *testing.T) {
	var p process
	freed := 0
	var table *Table[*process, *held]
	table = NewTable[*process](func(o *held) {
		freed++
		table.Empty(o)
	})
	var last *held
	for range 1_000_000 {
		o := &held{}
		if last != nil {
			last.Need()
			table.Fill(o, []*held{last})
			last.LetGo(&p)
			table.Settle(last)
		}
		o.Hold(&p)
		last = o
	}
	if freed != 0 {
		t.Fatalf("%d were freed too early", freed)
	}
	last.LetGo(&p)
	table.Settle(last)
	if freed != 1_000_000 {
		t.Errorf("%d were freed", freed)
	}
}

func TestRefsDoNotAllocate(t *testing.T) {
	var p process
	var table *Table[*process, *held]
	table = NewTable[*process](func(o *held) {
		o.gone = true
		table.Empty(o)
	})
	o := &held{}
	inner := &held{}
	contents := []*held{inner}
	if k := testing.AllocsPerRun(100, func() {
		*o, *inner = held{}, held{}
		o.Hold(&p)
		inner.Need()
		table.Fill(o, contents)
		o.LetGo(&p)
		table.Settle(o)
		if !inner.gone {
			t.Fatal("the contents stay")
		}
	}); k != 0 {
		t.Errorf("%v allocations", k)
	}
}
