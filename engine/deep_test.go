package engine_test

import (
	"strconv"
	"testing"

	"github.com/raygo/raygo/engine/wire"
)

// TestDeepRecursion counts what a task that calls itself costs the engine: a process for each level and no more. What is beside that is the processes' own.
func TestDeepRecursion(t *testing.T) {
	r := newRig(t, 2)
	const depth = 300
	r.on("down", func(x *exec) {
		k, err := strconv.Atoi(string(x.Args))
		if err != nil {
			t.Error(err)
		}
		if k == 0 {
			x.answer(inlineValue(1, []byte("0")))
			return
		}
		x.w.out(wire.AppendFrame(nil, wire.Template, 0, 1, pack(map[string]any{"kind": "function", "name": "down", "resources": map[string]int{"CPU": 10000}})))
		num := x.w.number.Add(1)
		x.w.out(wire.AppendSubmit(nil, num, 0, wire.SubmitFrame{Template: 1, NReturns: 1, Parent: x.id, Args: []byte(strconv.Itoa(k - 1))}))
		v, ok := x.w.wait(x, wire.OID{Task: num, Index: 1})
		if !ok {
			t.Errorf("level %d waits in vain", k)
		}
		_, body, _, _ := wire.ParseBlob(v.Data)
		below, err := strconv.Atoi(string(body))
		if err != nil {
			t.Error(err)
		}
		x.answer(inlineValue(1, []byte(strconv.Itoa(below+1))))
	})
	r.want(r.submit(r.function("down"), strconv.Itoa(depth)), strconv.Itoa(depth))
	if k := int(r.forks.Load()); k > depth+8 {
		t.Errorf("%d processes for %d levels", k, depth+1)
	}
}
