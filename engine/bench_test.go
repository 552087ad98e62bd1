package engine_test

import (
	"os"
	"testing"
	"time"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/engine/worker"

	"golang.org/x/sys/unix"
)

// leanTemplate forks workers that answer every task at once, all that one read brought in one write: what is left is the engine's own cost.
type leanTemplate struct{ h worker.Handler }

func (t *leanTemplate) Fork(num uint64) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	go func() {
		t.h.Forked(nil, num, 5_000_000+int(num))
		var out []byte
		buf := make([]byte, 1<<20)
		value := wire.Value{Index: 1, Kind: wire.Inline, Data: wire.Blob(wire.FormatNone, nil)}
		filled := 0
		for {
			k, err := unix.Read(fds[1], buf[filled:])
			if err == unix.EINTR {
				continue
			}
			if err != nil || k == 0 {
				unix.Close(fds[1])
				t.h.Exited(nil, 5_000_000+int(num), 0)
				return
			}
			filled += k
			in, quit := buf[:filled], false
			out = out[:0]
			for {
				h, b, rest, err := wire.Next(in)
				if err != nil {
					break
				}
				in = rest
				switch h.Type {
				case wire.Exec:
					if h.Flags&wire.FlagActorCreate != 0 {
						out = wire.AppendResult(out, h.ID, wire.ResultFrame{})
						continue
					}
					out = wire.AppendResult(out, h.ID, wire.ResultFrame{ExecNS: 1000, Attempt: le.Uint32(b[28:])}, value)
				case wire.Recall:
					out = wire.AppendFrame(out, wire.Return, 0, 0, nil)
				case wire.Exit:
					quit = true
				}
			}
			filled = copy(buf, in)
			if len(out) > 0 {
				unix.Write(fds[1], out)
			}
			if quit {
				unix.Shutdown(fds[1], unix.SHUT_RDWR)
			}
		}
	}()
	return os.NewFile(uintptr(fds[0]), "lean"), nil
}

func (t *leanTemplate) StderrTail(uint64) string { return "" }
func (t *leanTemplate) DrainOutput(uint64)       {}
func (t *leanTemplate) Close()                   {}

// benchDriver is an embedded driver that only counts what comes back.
type benchDriver struct {
	n    *engine.Node
	conn *engine.Conn
	got  chan int // objects in each delivery
	num  uint64
	out  []byte
}

func newBenchDriver(b *testing.B, template map[string]any) *benchDriver {
	cpus, zero, prestart := 2.0, 0.0, 2
	n, err := engine.Start(engine.Options{
		Version: version.Version, NumCPUs: &cpus, NumGPUs: &zero, Prestart: &prestart, ObjectStoreMemory: 16 << 20, TempDir: b.TempDir(), Executable: "python",
		Launch: func(_ worker.Config, h worker.Handler) (engine.Template, error) {
			go h.Ready(nil, 1)
			return &leanTemplate{h}, nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	d := &benchDriver{n: n, got: make(chan int, 1<<16), num: 1 << 40}
	d.conn, err = n.Attach(pack(map[string]any{"version": version.Version, "role": "driver"}), func(frames []byte) {
		k := 0
		for {
			h, _, rest, err := wire.Next(frames)
			if err != nil {
				break
			}
			if h.Type == wire.Object {
				k++
			}
			frames = rest
		}
		if k > 0 {
			d.got <- k
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	d.input(b, wire.AppendFrame(nil, wire.Template, 0, 1, pack(template)))
	b.Cleanup(func() {
		d.conn.Detach()
		n.Stop(5 * time.Second)
	})
	return d
}

func (d *benchDriver) input(b *testing.B, frames []byte) {
	if err := d.conn.Input(frames); err != nil {
		b.Fatal(err)
	}
}

func (d *benchDriver) wait(n int) {
	for n > 0 {
		n -= <-d.got
	}
}

// run submits n tasks, one frame per call as a program does, waits for all values, and lets them go.
func (d *benchDriver) run(b *testing.B, n int, template uint32, flags uint16, actor uint64) {
	args := make([]byte, 48)
	first := d.num + 1
	for range n {
		d.num++
		d.out = wire.AppendSubmit(d.out[:0], d.num, flags, wire.SubmitFrame{Template: template, NReturns: 1, Actor: actor, Args: args})
		d.input(b, d.out)
	}
	d.wait(n)
	d.out = wire.Begin(d.out[:0], wire.Release, 0, 0)
	for k := first; k <= d.num; k++ {
		d.out = wire.AppendOID(d.out, wire.OID{Task: k, Index: 1})
	}
	d.out = wire.End(d.out, 0)
	d.input(b, d.out)
}

func benchTasks(b *testing.B, batch int) {
	d := newBenchDriver(b, map[string]any{"kind": "function", "name": "f", "resources": map[string]int{"CPU": 10000}})
	d.run(b, 100, 1, 0, 0)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	for left := b.N; left > 0; left -= batch {
		d.run(b, min(batch, left), 1, 0, 0)
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkTask(b *testing.B)      { benchTasks(b, 1) }
func BenchmarkTaskBatch(b *testing.B) { benchTasks(b, 1000) }

func BenchmarkActorCallBatch(b *testing.B) {
	d := newBenchDriver(b, map[string]any{"kind": "actor", "name": "A", "resources": map[string]int{}})
	d.input(b, wire.AppendFrame(nil, wire.Template, 0, 2, pack(map[string]any{"kind": "method", "name": "m"})))
	d.num++
	actor := d.num
	d.input(b, wire.AppendSubmit(nil, actor, wire.FlagActorCreate, wire.SubmitFrame{Template: 1}))
	d.run(b, 100, 2, wire.FlagActorCall, actor)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	for left := b.N; left > 0; left -= 1000 {
		d.run(b, min(1000, left), 2, wire.FlagActorCall, actor)
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}
