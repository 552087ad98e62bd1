package ownership

import (
	"flag"
	"testing"
	"time"
)

var (
	big   = flag.Bool("big", false, "explore the big spaces too: tens of minutes and gigabytes")
	space = flag.String("space", "", "explore only the space of this name, and show how fast it goes")
)

var (
	plain  = []thing{{name: "x", owner: 0, holds: -1}}
	twins  = []thing{{name: "x", owner: 0, holds: -1}, {name: "y", owner: 1, holds: -1}}
	boxed  = []thing{{name: "x", owner: 0, holds: -1}, {name: "v", owner: 1, holds: 0}}
	nested = []thing{{name: "x", owner: 0, holds: -1}, {name: "v", owner: 1, holds: 0}, {name: "u", owner: 2, holds: 1}}
	result = []thing{{name: "x", owner: 0, holds: -1}, {name: "r", owner: 1, holds: 0, task: true}}
	made   = []thing{{name: "y", owner: 1, holds: -1}, {name: "r", owner: 0, holds: 0, task: true}, {name: "x", owner: 0, holds: -1}}
	items  = []thing{{name: "y", owner: 1, holds: -1}, {name: "i", owner: 0, holds: 0, item: true}, {name: "j", owner: 0, holds: 0, item: true}, {name: "x", owner: 0, holds: -1}}
)

// How a space begins: H owns x; in some, A has it from H.
const (
	atH = "create H x"
	atA = "create H x\ngive H A x\ndeliver H A"
	inV = atA + "\nput A v"
	gen = "create H x\nsubmit H A x\ncreate A y\ndeliver H A"
)

type size uint8

const (
	small  size = iota // under the race detector as well
	medium             // by default
	large              // with -big
)

// spaces are what is explored. states is how many worlds can come about: another number says that the protocol, or what is asked of it, has changed.
var spaces = []struct {
	config
	size   size
	states int
}{
	{config{name: "hand on", nodes: 3, things: plain, setup: atH, left: budgets{gives: 3}}, small, 1809},
	{config{name: "hand on, one crash", nodes: 3, things: plain, setup: atH, left: budgets{gives: 3, crashes: 1}, mortal: []int{1, 2}, alike: []int{1, 2}}, small, 3324},
	{config{name: "hand on, two crashes", nodes: 4, things: plain, setup: atA, left: budgets{gives: 2, crashes: 2}, mortal: []int{1, 2, 3}, alike: []int{2, 3}}, medium, 45789},
	{config{name: "hand on, the owner crashes", nodes: 3, things: plain, setup: atH, left: budgets{gives: 3, crashes: 1}, mortal: []int{0}, alike: []int{1, 2}}, small, 1598},
	{config{name: "hand on, any two crash", nodes: 3, things: plain, setup: atH, left: budgets{gives: 3, crashes: 2}, mortal: []int{0, 1, 2}, alike: []int{1, 2}}, small, 4577},
	{config{name: "two owners", nodes: 3, things: twins, setup: "create H x\ncreate A y", left: budgets{gives: 3}}, medium, 11232},
	{config{name: "two owners, one crash", nodes: 3, things: twins, setup: "create H x\ncreate A y", left: budgets{gives: 2, crashes: 1}, mortal: []int{0, 1, 2}}, medium, 5756},
	{config{name: "tasks", nodes: 3, things: plain, setup: atH, left: budgets{gives: 1, tasks: 2, keeps: 1}, alike: []int{1, 2}}, medium, 25197},
	{config{name: "tasks, one crash", nodes: 3, things: plain, setup: atA, left: budgets{tasks: 2, keeps: 1, crashes: 1}, mortal: []int{1, 2}}, medium, 26824},
	{config{name: "tasks, the owner crashes", nodes: 3, things: plain, setup: atA, left: budgets{tasks: 1, gives: 1, keeps: 1, crashes: 1}, mortal: []int{0}}, medium, 10765},
	{config{name: "tasks passed on", nodes: 3, things: plain, setup: atA, left: budgets{gives: 1, tasks: 1, keeps: 1, passes: 2}}, medium, 87413},
	{config{name: "tasks passed on, one crash", nodes: 4, things: plain, setup: atA, left: budgets{tasks: 1, keeps: 1, passes: 1, crashes: 1}, mortal: []int{1, 2, 3}, alike: []int{2, 3}}, medium, 40568},
	{config{name: "tasks passed on, two crashes", nodes: 4, things: plain, setup: atA, left: budgets{tasks: 1, keeps: 1, passes: 1, crashes: 2}, mortal: []int{1, 2, 3}, alike: []int{2, 3}}, medium, 82014},
	{config{name: "containers", nodes: 3, things: boxed, setup: inV, left: budgets{gives: 1, values: 1, keeps: 1}}, small, 3914},
	{config{name: "containers, one crash", nodes: 3, things: boxed, setup: inV, left: budgets{gives: 1, values: 1, keeps: 1, crashes: 1}, mortal: []int{0, 1, 2}}, medium, 19380},
	{config{name: "containers, any two crash", nodes: 3, things: boxed, setup: inV, left: budgets{gives: 1, values: 2, keeps: 1, crashes: 2}, mortal: []int{0, 1, 2}}, medium, 79098},
	{config{name: "nested containers", nodes: 3, things: nested, setup: inV + "\ngive A B v\ndeliver A B\nput B u", left: budgets{values: 2, keeps: 1}}, medium, 15386},
	{config{name: "results", nodes: 3, things: result, setup: atA, left: budgets{tasks: 1, values: 1, keeps: 1, passes: 1}}, small, 7140},
	{config{name: "results, one crash", nodes: 3, things: result, setup: atA, left: budgets{tasks: 1, values: 1, keeps: 1, crashes: 1}, mortal: []int{0, 1, 2}}, small, 9814},
	{config{name: "results of the executor's own", nodes: 3, things: made, setup: "create H x\ncreate A y", left: budgets{tasks: 1, values: 1, passes: 1, crashes: 1}, mortal: []int{0, 1, 2}}, medium, 12808},
	{config{name: "generators", nodes: 2, things: items, setup: gen, left: budgets{values: 3, keeps: 1}}, medium, 33132},
	{config{name: "generators, one crash", nodes: 2, things: items, setup: gen, left: budgets{values: 2, gives: 1, crashes: 1}, mortal: []int{0, 1}}, medium, 30312},

	{config{name: "hand on, four nodes", nodes: 4, things: plain, setup: atH, left: budgets{gives: 4}, alike: []int{1, 2, 3}}, medium, 21954},
	{config{name: "big: hand on, two crashes", nodes: 4, things: plain, setup: atA, left: budgets{gives: 3, crashes: 2}, mortal: []int{1, 2, 3}, alike: []int{2, 3}}, large, 425400},
	{config{name: "big: tasks, two crashes", nodes: 4, things: plain, setup: atA, left: budgets{gives: 1, tasks: 1, keeps: 1, passes: 1, crashes: 2}, mortal: []int{1, 2, 3}, alike: []int{2, 3}}, large, 1815068},
	{config{name: "big: tasks passed on twice", nodes: 4, things: plain, setup: atA, left: budgets{tasks: 1, keeps: 1, passes: 2, crashes: 1}, mortal: []int{1, 2, 3}, alike: []int{2, 3}}, large, 223110},
	{config{name: "big: containers, any two crash", nodes: 4, things: boxed, setup: inV, left: budgets{gives: 1, values: 2, keeps: 1, crashes: 2}, mortal: []int{0, 1, 2, 3}, alike: []int{2, 3}}, large, 988733},
	{config{name: "big: nested containers", nodes: 3, things: nested, setup: inV + "\ngive A B v\ndeliver A B\nput B u", left: budgets{gives: 1, values: 2, keeps: 1}}, large, 645153},
	{config{name: "big: generators", nodes: 3, things: items, setup: gen, left: budgets{values: 3, keeps: 1, gives: 1}}, large, 3500908},
	{config{name: "big: all at once", nodes: 3, things: result, setup: atA, left: budgets{gives: 1, tasks: 1, values: 1, keeps: 1, passes: 1, crashes: 1}, mortal: []int{0, 1, 2}}, large, 630409},
}

func TestExplore(t *testing.T) {
	for _, s := range spaces {
		t.Run(s.name, func(t *testing.T) {
			switch {
			case *space != "":
				if *space != s.name {
					t.Skip("not asked for")
				}
			case s.size == large && !*big, s.size == medium && (racing || testing.Short()):
				t.Skip("too big for this run")
			}
			x := newExplorer(&s.config)
			began := time.Now()
			err := x.explore()
			t.Logf("%d states, %d steps, %.1f s", len(x.seen), x.steps, time.Since(began).Seconds())
			if err != nil {
				way, err := newExplorer(&s.config).shortest()
				for _, a := range way {
					t.Log(a.text(&s.config))
				}
				t.Fatal(err)
			}
			if len(x.seen) != s.states {
				t.Errorf("%d states were expected", s.states)
			}
		})
	}
}
