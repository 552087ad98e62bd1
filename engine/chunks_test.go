package engine_test

import (
	"testing"
	"time"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/wire"

	"golang.org/x/sys/unix"
)

// cutter is a connection that cuts objects from chunks.
type cutter struct {
	t      *testing.T
	conn   *engine.Conn
	chunks chan wire.ChunkFrame
	recall chan struct{}
	places chan wire.Value
}

func newCutter(t *testing.T, n *engine.Node) *cutter {
	c := &cutter{t: t, chunks: make(chan wire.ChunkFrame, 16), recall: make(chan struct{}, 16), places: make(chan wire.Value, 16)}
	c.conn = listen(t, n, map[string]any{}, func(typ wire.Type, payload []byte) {
		switch typ {
		case wire.Chunk:
			k, err := wire.ParseChunk(payload)
			if err != nil {
				t.Error(err)
			}
			c.chunks <- k
		case wire.ChunkRecall:
			c.recall <- struct{}{}
		case wire.Object:
			v, err := wire.ParseValue(append([]byte(nil), payload...))
			if err != nil {
				t.Error(err)
			}
			c.places <- v
		}
	})
	return c
}

func (c *cutter) send(b []byte) {
	c.t.Helper()
	if err := c.conn.Input(b); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cutter) ask(size uint64) wire.ChunkFrame {
	c.t.Helper()
	c.send(wire.AppendFrame(nil, wire.ChunkAsk, 0, 0, wire.AppendUint64(nil, size)))
	return await(c.t, c.chunks)
}

func await[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(15 * time.Second):
		t.Fatal("nothing came in 15 s")
		panic("unreachable")
	}
}

func sealAt(num, offset, size uint64) []byte {
	v := wire.Value{Kind: wire.Arena, Len: size, Offset: offset}
	return wire.End(wire.AppendValue(wire.Begin(nil, wire.Seal, 0, num), v), 0)
}

func TestObjectsCutFromChunks(t *testing.T) {
	r := newRig(t, 1)
	stat := func(key string) int64 { return asInt(r.ask("store.stats", nil)[key]) }
	c := newCutter(t, r.n)
	k := c.ask(4 << 20)
	if k.Size != 4<<20 || k.Offset%4096 != 0 || stat("chunk_unused") != 4<<20 || stat("used") != 0 {
		t.Fatalf("lent %+v, %d bytes are unused and %d used", k, stat("chunk_unused"), stat("used"))
	}
	a, b := uint64(1<<40|1), uint64(1<<40|2)
	c.send(sealAt(b, k.Offset+1<<20, 1<<20))
	c.send(sealAt(a, k.Offset, 100_000))
	if stat("arena_objects") != 2 || stat("used") != 1<<20+102_400 {
		t.Fatalf("%d objects have %d bytes", stat("arena_objects"), stat("used"))
	}
	c.send(wire.AppendOIDFrame(nil, wire.Pin, 0, 0, wire.OID{Task: b}))
	if v := await(t, c.places); v.Offset != k.Offset+1<<20 || v.Len != 1<<20 {
		t.Fatalf("pinned at %+v", v)
	}
	c.send(wire.AppendChunkBack(nil, wire.Range{Offset: k.Offset + 2<<20, Size: 2 << 20}))
	c.send(wire.AppendOIDFrame(nil, wire.Release, 0, 0, wire.OID{Task: a}, wire.OID{Task: b}))
	if stat("used") != 1<<20 { // one is pinned
		t.Fatalf("%d bytes are used", stat("used"))
	}
	c.send(wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, wire.OID{Task: b}))
	// A process that ends leaves nothing, used or not.
	if k := c.ask(1 << 20); k.Size != 1<<20 {
		t.Fatalf("lent %+v", k)
	}
	c.conn.Detach()
	eventually(t, "all is given back", func() bool {
		return stat("used") == 0 && stat("chunk_unused") == 0 && stat("chunks") == 0 && stat("arena_objects") == 0
	})
}

func TestChunksHaveLimitsAndAreRecalled(t *testing.T) {
	r := newRig(t, 1, func(o *engine.Options) { o.ObjectStoreMemory = 1 << 30 })
	stat := func(key string) int64 { return asInt(r.ask("store.stats", nil)[key]) }
	c := newCutter(t, r.n)
	first, second := c.ask(1<<60), c.ask(1<<60)
	if first.Size != 16<<20 || second.Size != 16<<20 {
		t.Fatalf("lent %d and %d bytes", first.Size, second.Size)
	}
	if k := c.ask(4096); k.Size != 0 {
		t.Fatalf("lent %d bytes beyond the limit of a process", k.Size)
	}
	d := newCutter(t, r.n)
	d.send(wire.AppendCreate(nil, 1<<40|1, wire.CreateFrame{Size: 1 << 30}))
	await(t, c.recall)
	if stat("waiting") != 1 {
		t.Fatal("nobody waits")
	}
	c.send(wire.AppendChunkBack(nil, first.Range, second.Range))
	eventually(t, "there is room", func() bool { return stat("waiting") == 0 && stat("used") == 1<<30 })
	if k := c.ask(1 << 20); k.Size != 0 {
		t.Fatal("lent from a full store")
	}
}

func TestPlacesInNoChunkEndTheConnection(t *testing.T) {
	for name, frame := range map[string]func(k wire.ChunkFrame) []byte{
		"sealed":   func(k wire.ChunkFrame) []byte { return sealAt(1<<40|1, k.Offset+k.Size, 100_000) },
		"too long": func(k wire.ChunkFrame) []byte { return sealAt(1<<40|1, k.Offset, k.Size+1) },
		"odd":      func(k wire.ChunkFrame) []byte { return sealAt(1<<40|1, k.Offset+64, 100_000) },
		"huge":     func(k wire.ChunkFrame) []byte { return sealAt(1<<40|1, 1<<63, 1<<63) },
		"given back": func(k wire.ChunkFrame) []byte {
			return wire.AppendChunkBack(nil, wire.Range{Offset: k.Offset + k.Size, Size: 4096})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			c := newCutter(t, r.n)
			k := c.ask(1 << 20)
			c.send(frame(k))
			// Whoever holds the strand at the moment looks at the frame, so the end may come a little later.
			eventually(t, "the connection ends", func() bool {
				return c.conn.Input(wire.AppendFrame(nil, wire.ChunkAsk, 0, 0, wire.AppendUint64(nil, 4096))) != nil
			})
			eventually(t, "its chunk is back", func() bool { return asInt(r.ask("store.stats", nil)["chunk_unused"]) == 0 })
		})
	}
}

func TestSpaceOfALostConnectionStaysUntilItsProcessIsDead(t *testing.T) {
	r := newRig(t, 1)
	stat := func(key string) int64 { return asInt(r.ask("store.stats", nil)[key]) }
	writing := make(chan *fakeWorker)
	r.on("writer", func(x *exec) {
		x.w.out(wire.AppendFrame(nil, wire.ChunkAsk, 0, 0, wire.AppendUint64(nil, 1<<20)))
		x.w.out(wire.AppendCreate(nil, x.id, wire.CreateFrame{Index: 1, Size: 2 << 20}))
		<-x.w.spaces
		writing <- x.w
	})
	ref := r.submit(r.function("writer", "max_retries", 0), "")
	w := await(t, writing)
	if stat("used") != 2<<20 || stat("chunk_unused") != 1<<20 {
		t.Fatalf("%d bytes are used, and %d of chunks unused", stat("used"), stat("chunk_unused"))
	}
	w.once.Do(func() {}) // it lives on without its connection
	lost := time.Now()
	if err := unix.Shutdown(w.fd, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection is lost", func() bool { return asInt(r.ask("node.stats", nil)["workers"]) == 0 })
	// After 2 s the engine kills it, and takes it for dead.
	if used, unused := stat("used"), stat("chunk_unused"); (used == 0 || unused == 0) && time.Since(lost) < 2*time.Second {
		t.Errorf("%d bytes are kept, and %d of chunks, while the process may write there", used, unused)
	}
	w.handler.Exited(nil, w.pid, unix.WaitStatus(unix.SIGKILL))
	r.get(ref)
	if stat("used") != 0 || stat("chunk_unused") != 0 || stat("chunks") != 0 {
		t.Errorf("%d bytes are used, and %d of chunks unused", stat("used"), stat("chunk_unused"))
	}
}
