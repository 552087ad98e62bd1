package engine_test

import (
	"testing"

	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"
)

// FuzzInput sends bytes of its own to a node in which things are going on. Nothing may break it, and it goes on serving others.
func FuzzInput(f *testing.F) {
	v := wire.Value{Kind: wire.Inline, Data: wire.Blob(wire.FormatNone, nil)}
	seeds := [][]byte{
		wire.AppendSubmit(nil, 1<<33, 0, wire.SubmitFrame{Template: 1, NReturns: 1}),
		wire.AppendSubmit(nil, 2<<33, wire.FlagActorCreate, wire.SubmitFrame{Template: 2}),
		wire.AppendSubmit(nil, 3<<33, wire.FlagActorCall, wire.SubmitFrame{Template: 3, NReturns: 1, Actor: 2 << 33, Top: wire.MakeOIDs(wire.OID{Task: 1 << 33, Index: 1})}),
		wire.AppendSubmit(nil, 5<<33, wire.FlagStreaming, wire.SubmitFrame{Template: 1}),
		wire.End(wire.AppendValue(wire.Begin(nil, wire.Put, 0, 4<<33), v), 0),
		wire.AppendSite(nil, 1<<33, wire.SiteFrame{Index: 1, Count: 1, Text: []byte("here")}),
		wire.AppendOIDFrame(nil, wire.Release, 0, 0, wire.OID{Task: 1 << 33, Index: 1}),
		wire.AppendOIDFrame(nil, wire.Pin, 0, 0, wire.OID{Task: 4 << 33}),
		wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, wire.OID{Task: 4 << 33}),
		wire.AppendOIDFrame(nil, wire.Blocked, 0, 1<<33, wire.OID{Task: 1 << 33, Index: 1}),
		wire.AppendCreate(nil, 6<<33, wire.CreateFrame{Size: 4096}),
		wire.AppendOIDFrame(nil, wire.Abort, 0, 6<<33, wire.OID{Task: 6 << 33}),
		wire.AppendFrame(nil, wire.ChunkAsk, 0, 0, wire.AppendUint64(nil, 1<<20)),
		wire.AppendChunkBack(nil, wire.Range{Offset: 4096, Size: 8192}),
		wire.End(wire.AppendValue(wire.Begin(nil, wire.Seal, 0, 8<<33), wire.Value{Kind: wire.Arena, Len: 70_000}), 0),
		wire.AppendResult(nil, 1<<33, wire.ResultFrame{}, v),
		wire.AppendFrame(nil, wire.Call, 0, 1, pack([]any{"kv.put", map[string]any{"ns": "x", "key": []byte("k"), "value": []byte("v")}})),
		wire.AppendFrame(nil, wire.Call, 0, 2, pack([]any{"state.tasks", map[string]any{"limit": 1, "filters": [][]any{{"state", "=", "FINISHED"}}}})),
		wire.AppendFrame(nil, wire.Call, 0, 3, pack([]any{"pg.create", map[string]any{"pg": 7 << 33, "bundles": []map[string]int{{"CPU": 1}}}})),
		wire.AppendFrame(nil, wire.Call, 0, 4, pack([]any{"pg.remove", map[string]any{"pg": 7 << 33}})),
		wire.AppendFrame(nil, wire.Call, 0, 5, pack([]any{"explain", map[string]any{"objects": [][]uint64{{1 << 33, 1}}}})),
		wire.AppendFrame(nil, wire.Call, 0, 6, pack([]any{"actor.lookup", map[string]any{"actor": 2 << 33}})),
		wire.AppendFrame(nil, wire.Cancel, wire.FlagRecursive, 1<<33, nil), wire.AppendFrame(nil, wire.Kill, 0, 2<<33, nil),
		wire.AppendFrame(nil, wire.Consumed, 0, 5<<33, wire.AppendUint64(nil, wire.Dropped)),
		wire.AppendFrame(nil, wire.Return, 0, 0, wire.AppendUint64(nil, 1<<33)), wire.AppendFrame(nil, wire.Goodbye, 0, 0, nil),
		wire.AppendFrame(nil, wire.Template, 0, 4, pack(map[string]any{"kind": "named", "name": "x"})),
	}
	var all []byte
	for _, s := range seeds {
		f.Add(s)
		all = append(all, s...)
	}
	f.Add(all)
	r := newRig(f, 2)
	r.on("f", echo)
	r.on("m", echo)
	setUp := wire.AppendFrame(nil, wire.Template, 0, 1, pack(map[string]any{"kind": "function", "name": "f", "resources": map[string]int{"CPU": 10000}}))
	setUp = wire.AppendFrame(setUp, wire.Template, 0, 2, pack(map[string]any{"kind": "actor", "name": "A"}))
	setUp = wire.AppendFrame(setUp, wire.Template, 0, 3, pack(map[string]any{"kind": "method", "name": "m"}))
	hello := pack(map[string]any{"version": version.Version, "role": "client"})
	var c *client.Client = r.c
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, err := r.n.Attach(hello, func([]byte) {})
		if err != nil {
			t.Fatal(err)
		}
		conn.Input(setUp)
		conn.Input(b)
		conn.Detach()
		if broken, _ := r.n.Broken(); broken {
			t.Fatal("the engine broke")
		}
		if err := c.Call(ctx(t), "prefix.next", nil, nil); err != nil {
			t.Fatal(err)
		}
	})
}
