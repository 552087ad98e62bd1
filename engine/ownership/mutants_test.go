package ownership

import (
	"strings"
	"testing"
)

// mutants are protocols that look as good and are not. Each is led by the shortest way to what it does wrong, mostly the loss of an object; testdata/mutants has the ways.
var mutants = []struct {
	about string
	config
}{
	{"The owner keeps a set of borrowers, as if one REMOVE took back all that it had sent.", config{
		name: "sets", nodes: 2, things: plain, setup: "create H x", left: budgets{gives: 2}, rules: rules{sets: true}}},
	{"A borrower hands a reference on and does not keep it until the receiver is registered.", config{
		name: "no_pins", nodes: 3, things: plain, setup: "create H x", left: budgets{gives: 2}, rules: rules{noPins: true}}},
	{"References inside a value travel without a pin, for the value holds them: but the value may go first.", config{
		name: "bare_values", nodes: 3, things: boxed, setup: "create H x\ngive H A x\ndeliver H A\nput A v", left: budgets{gives: 1, values: 1}, rules: rules{bareValues: true}}},
	{"The owner forgets a node as soon as it is known to be dead.", config{
		name: "hasty", nodes: 3, things: plain, setup: "create H x", left: budgets{gives: 2, crashes: 1}, mortal: []int{1, 2}, rules: rules{hasty: true}}},
	{"The head purges each dead node when all who live have flushed for that one.", config{
		name: "one_by_one", nodes: 4, things: plain, setup: "create H x\ngive H A x\ndeliver H A", left: budgets{gives: 2, crashes: 2}, mortal: []int{1, 2}, rules: rules{oneByOne: true}}},
	{"Pins towards a dead node go at once: it cannot acknowledge any more.", config{
		name: "unpin_dead", nodes: 4, things: plain, setup: "create H x\ngive H A x\ndeliver H A", left: budgets{gives: 2, crashes: 1}, mortal: []int{2}, rules: rules{unpinDead: true}}},
	{"The submitter forgets a task's arguments at its end, although the task kept some.", config{
		name: "forget_kept", nodes: 3, things: plain, setup: "create H x\ngive H A x\ndeliver H A", left: budgets{tasks: 1, keeps: 1}, rules: rules{forgetKept: true}}},
	{"The executor of a task whose submitter died does not register its arguments before it has flushed.", config{
		name: "deaf_to_dead", nodes: 3, things: plain, setup: "create H x\ngive H A x\ndeliver H A", left: budgets{tasks: 1, crashes: 1}, mortal: []int{1}, rules: rules{deafToDead: true}}},
	{"Whoever passes a task on ends its lease: the thief is thought to be covered by the first submitter.", config{
		name: "pass_forget", nodes: 3, things: plain, setup: "create H x\nsubmit H A x\ndeliver H A", left: budgets{passes: 1}, rules: rules{passForget: true}}},
	{"REMOVE takes back one registration, although the borrower had several: what is left keeps the object for ever.", config{
		name: "remove_one", nodes: 2, things: plain, setup: "create H x", left: budgets{gives: 2}, rules: rules{removeOne: true}}},
	{"A borrower is not told that the owner died.", config{
		name: "deaf_to_loss", nodes: 2, things: plain, setup: "create H x", left: budgets{gives: 1, crashes: 1}, mortal: []int{0}, rules: rules{deafToLoss: true}}},
}

func TestMutantsAreFound(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			if m.left.crashes > 0 && (racing || testing.Short()) {
				t.Skip("too big for this run")
			}
			x := newExplorer(&m.config)
			way, found := x.shortest()
			if found == nil {
				t.Fatalf("nothing is wrong in %d states", len(x.seen))
			}
			script := "# " + m.about + "\n" + m.describe() + "\n" + m.setup + "\n"
			for _, a := range way {
				script += a.text(&m.config) + "\n"
			}
			got, _, err := (&config{rules: m.rules}).play(script)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(got, "\twrong: "+found.Error()+"\n") {
				t.Errorf("the way does not lead to %v:\n%s", found, got)
			}
			t.Logf("%d steps, %d states: %v", len(way), len(x.seen), found)
			golden(t, "testdata/mutants/"+m.name+".txt", got)

			right := m.config
			right.rules = rules{}
			if way, err := newExplorer(&right).shortest(); err != nil {
				t.Errorf("the right protocol does wrong here as well, after %d steps: %v", len(way), err)
			}
		})
	}
}
