package engine_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/version"
)

func TestWhatEndedLongAgoIsForgotten(t *testing.T) {
	r := newRig(t, 1)
	rows := func(method string) int {
		var out []map[string]any
		if err := r.c.Call(ctx(t), method, map[string]any{"limit": 1 << 20}, &out); err != nil {
			t.Fatal(err)
		}
		return len(out)
	}
	for i := range 1100 {
		var x any
		group := map[string]any{"pg": 1<<40 + i, "bundles": []map[string]int{{"CPU": 10000}}}
		if err := r.c.Call(ctx(t), "pg.create", group, &x); err != nil {
			t.Fatal(err)
		}
		if err := r.c.Call(ctx(t), "pg.remove", group, &x); err != nil {
			t.Fatal(err)
		}
		r.driver(client.Hello{Role: "client"}).Close()
	}
	if groups, jobs := rows("state.placement_groups"), rows("state.jobs"); groups != 1000 || jobs != 1001 {
		t.Errorf("%d groups and %d jobs are remembered", groups, jobs)
	}
	units := func() int64 { return asInt(r.ask("node.stats", nil)["units"]) }
	before := units()
	a := r.define(map[string]any{"kind": "actor", "name": "A", "resources": map[string]int{"none": 10000}})
	for range 10_100 {
		refs, err := a.SubmitRaw(0, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.c.Kill(refs[0].OID().Task, true); err != nil { // dead first, and only then without a handle
			t.Fatal(err)
		}
		refs[0].Release()
	}
	eventually(t, "all handles are gone", func() bool { return units() == before })
	if k := rows("state.actors"); k != 10_000 {
		t.Errorf("%d actors are remembered", k)
	}
}

// TestStoppedNodeIsGarbage: no timer may keep a node that has been stopped.
func TestStoppedNodeIsGarbage(t *testing.T) {
	f := newFakes(t)
	one := 1.0
	n, err := engine.Start(engine.Options{Version: version.Version, NumCPUs: &one, ObjectStoreMemory: 1 << 20, TempDir: t.TempDir(), Launch: f.launch})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Embed(attach(n), client.Hello{}) // its workers come up and are idle: that is timed
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a worker is idle", func() bool {
		var out []map[string]any
		return c.Call(ctx(t), "state.workers", map[string]any{}, &out) == nil && len(out) > 0
	})
	c.Close()
	if err := n.Stop(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	left := weak.Make(n)
	n, c = nil, nil
	eventually(t, "the node is collected", func() bool { runtime.GC(); return left.Value() == nil })
}
