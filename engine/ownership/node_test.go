package ownership

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestRefusesWhatCannotBe: other nodes may send anything. It is an error, and neither a crash nor a count below zero.
func TestRefusesWhatCannotBe(t *testing.T) {
	mine, other := ObjectID{Owner: 1, Task: 1}, ObjectID{Owner: 2, Task: 1}
	for _, e := range []Event{
		Drop{mine}, Take{other}, Drop{other}, Give{2, []ObjectID{mine}}, Submit{To: 2, Lease: 1, Objects: []ObjectID{other}},
		Submit{To: 2, Lease: 1, For: &Leased{2, 1}}, Finish{Leased{2, 1}},
		Receive{2, Message{Kind: Done, Lease: 1}}, Receive{2, Message{Kind: Added, Object: other}}, Receive{2, Message{Kind: Gone, Object: mine}},
		Receive{2, Message{Kind: Ack, Object: mine, Count: 1}}, Receive{2, Message{Kind: Remove, Object: mine, Count: 1}}, Receive{2, Message{Kind: 99}},
		Dead{2, 2}, Dead{1, 1},
	} {
		n := NewNode(1)
		if effects, err := n.Step(e); !errors.Is(err, ErrProtocol) || len(effects) > 0 || len(n.entries) > 0 {
			t.Errorf("%T%+v: %v, %v", e, e, effects, err)
		}
	}

	n := NewNode(1)
	do := func(e Event) []Effect {
		t.Helper()
		effects, err := n.Step(e)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(effects)
	}
	do(Take{mine})
	do(Give{2, []ObjectID{mine}})
	for _, e := range []Event{
		Receive{2, Message{Kind: Remove, Object: mine, Count: 2}}, Receive{2, Message{Kind: Remove, Object: mine, Count: -1}},
		Receive{3, Message{Kind: Remove, Object: mine, Count: 1}}, Receive{2, Message{Kind: Ack, Object: mine, Count: 1}},
	} {
		if _, err := n.Step(e); !errors.Is(err, ErrProtocol) {
			t.Errorf("%+v was taken", e)
		}
	}
	if c := n.entries[mine].counts.of(2); c != 1 {
		t.Errorf("the count is %d", c)
	}
	if got := do(Receive{2, Message{Kind: Add, Object: ObjectID{Owner: 1, Task: 9}}}); len(got) != 1 || got[0].Message.Kind != Gone {
		t.Errorf("an ADD of an object that is not there is answered by %+v", got)
	}
}

// TestGoneIsLost: an owner that has forgotten an object says so. Whoever waits for it learns it, and those who handed it on are not kept waiting.
func TestGoneIsLost(t *testing.T) {
	n := NewNode(1)
	x := ObjectID{Owner: 2, Task: 1}
	do := func(e Event) (out []string) {
		t.Helper()
		effects, err := n.Step(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range effects {
			out = append(out, fmt.Sprint(f.Kind, f.Node, f.Message.Kind))
		}
		return out
	}
	hand := Message{Kind: Hand, Objects: []ObjectID{x}}
	for _, s := range []struct {
		e    Event
		want []string
	}{
		{Receive{3, hand}, []string{fmt.Sprint(Send, 2, Add)}},
		{Give{4, []ObjectID{x}}, []string{fmt.Sprint(Send, 4, Hand)}},
		{Receive{2, Message{Kind: Gone, Object: x}}, []string{fmt.Sprint(Send, 3, Ack), fmt.Sprint(Lost, 0, Hand)}},
		{Receive{3, hand}, []string{fmt.Sprint(Send, 3, Ack)}},
		{Drop{x}, nil},
		{Drop{x}, nil},
		{Receive{4, Message{Kind: Ack, Object: x, Count: 1}}, []string{fmt.Sprint(Free, 0, Hand)}},
	} {
		if got := do(s.e); !slices.Equal(got, s.want) {
			t.Errorf("%+v leads to %v, not %v", s.e, got, s.want)
		}
	}
}

// TestDeadAreNotHeard: what still comes from a node that was declared dead has no effect, and nothing is sent to it.
func TestDeadAreNotHeard(t *testing.T) {
	n := NewNode(1)
	x, y := ObjectID{Owner: 1, Task: 1}, ObjectID{Owner: 2, Task: 1}
	for _, e := range []Event{Take{x}, Dead{2, 1}, Receive{2, Message{Kind: Hand, Objects: []ObjectID{y}}}, Give{2, []ObjectID{x}}} {
		effects, err := n.Step(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range effects {
			if f.Kind != Flushed {
				t.Errorf("%+v leads to %+v", e, f)
			}
		}
	}
	if len(n.entries) != 1 || len(n.entries[x].counts) != 0 {
		t.Errorf("%+v", n.entries)
	}
	effects, err := n.Step(Submit{To: 2, Lease: 7, Objects: []ObjectID{x}})
	if err != nil || len(effects) != 1 || effects[0].Kind != Orphaned || effects[0].Lease != 7 {
		t.Errorf("a task for a dead node: %+v, %v", effects, err)
	}
}

// TestArgumentTwice: the same object may be several of a task's arguments.
func TestArgumentTwice(t *testing.T) {
	c := &config{}
	_, w, err := c.play("nodes 3\nobject x of H\n" + atA + "\ndrop H x\n")
	if err != nil {
		t.Fatal(err)
	}
	x := c.id(0)
	b := nodeID(2)
	if err := w.step(1, Submit{To: b, Lease: 1, Objects: []ObjectID{x, x}}); err != nil {
		t.Fatal(err)
	}
	play := func(verb string) {
		t.Helper()
		a, err := c.parse(verb)
		if err != nil {
			t.Fatal(err)
		}
		if w, err = w.apply(a); err == nil {
			err = w.check()
		}
		if err != nil {
			t.Fatal(verb, ": ", err)
		}
	}
	for _, verb := range []string{"deliver A B", "keep B x", "finish B A t1", "drop A x", "deliver B A", "deliver B H", "deliver H B"} {
		play(verb)
	}
	if pins := w.site[1].n.entries[x].pins.of(b); pins != 2 {
		t.Fatalf("%d pins", pins)
	}
	for _, verb := range []string{"deliver B A", "drop B x", "deliver A H", "deliver B H"} {
		play(verb)
	}
	if w.freed != 1 {
		t.Error("x is still there")
	}
}

func TestHead(t *testing.T) {
	h := NewHead()
	for node := range NodeID(4) {
		h.Join(node + 1)
	}
	text := func(words []Word) (out []string) {
		for _, w := range words {
			out = append(out, fmt.Sprintf("%d %T%v", w.To, w.Event, w.Event))
		}
		return out
	}
	for _, s := range []struct {
		words []Word
		want  []string
	}{
		{h.Died(4), []string{"1 ownership.Dead{4 1}", "2 ownership.Dead{4 1}", "3 ownership.Dead{4 1}"}},
		{h.Died(4), nil},
		{h.Flushed(1, 1), nil},
		{h.Flushed(2, 1), nil},
		{h.Died(3), []string{"1 ownership.Dead{3 2}", "2 ownership.Dead{3 2}"}}, // all who still live have flushed for node 4
		{h.Flushed(3, 2), nil},
		{h.Flushed(1, 2), nil},
		{h.Join(5), []string{"5 ownership.Dead{4 1}", "5 ownership.Dead{3 2}"}},
		{h.Flushed(2, 2), nil},
		{h.Flushed(5, 2), []string{"1 ownership.Purge{2}", "2 ownership.Purge{2}", "5 ownership.Purge{2}"}},
		{h.Flushed(5, 2), nil},
	} {
		if got := text(s.words); !slices.Equal(got, s.want) {
			t.Errorf("said %v, should have said %v", got, s.want)
		}
	}
}
