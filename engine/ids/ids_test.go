package ids

import (
	"strings"
	"testing"
)

func TestFormsAreThoseOfTheProtocol(t *testing.T) {
	const task, inc, job = 0x0102030405060708, 0x1112131415161718, 0x21222324
	for name, c := range map[string]struct{ got, want string }{
		"object": {hexOf(Object(task, 5, inc, job)), "0807060504030201" + "1817161514131211" + "00000000" + "24232221" + "05000000"},
		"task":   {hexOfTask(Task(task, inc, job)), "0807060504030201" + "1817161514131211" + "00000000" + "24232221"},
		"actor":  {hexOfActor(Actor(task, inc, job)), "0807060504030201" + "18171615" + "24232221"},
		"pg":     {hexOfPG(PG(task, inc, job)), "0807060504030201" + "181716151413" + "24232221"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
	node, incarnation := NewNode()
	if incarnation == 0 || !strings.HasPrefix(Hex(node[:]), hexOf(Object(incarnation, 0, 0, 0))[:16]) {
		t.Error("the incarnation is not the name's beginning")
	}
}

func hexOf(b [ObjectSize]byte) string     { return Hex(b[:]) }
func hexOfTask(b [TaskSize]byte) string   { return Hex(b[:]) }
func hexOfActor(b [ActorSize]byte) string { return Hex(b[:]) }
func hexOfPG(b [PGSize]byte) string       { return Hex(b[:]) }
