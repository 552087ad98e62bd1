package engine_test

import (
	"context"
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"
	"github.com/raygo/raygo/engine/worker"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"
)

// The workers of these tests are goroutines that speak the protocol over a socket pair, as a worker process does. What they run is a Go function,
// found by the template's name.

type exec struct {
	wire.ExecFrame
	id    uint64
	flags uint16
	w     *fakeWorker
	tmpl  string
}

// arg returns the i-th resolved argument, an inline blob.
func (x *exec) arg(i int) []byte {
	rest := x.Top
	for {
		_, v, r, _ := wire.TakeArg(rest)
		if i == 0 {
			_, body, _, _ := wire.ParseBlob(v.Data)
			return body
		}
		rest = r
		i--
	}
}

type fakeFunc func(x *exec)

func (x *exec) answer(values ...wire.Value) { x.status(wire.StatusOK, values...) }

func (x *exec) status(s wire.Status, values ...wire.Value) {
	x.w.out(wire.AppendResult(nil, x.id, wire.ResultFrame{Status: s, ExecNS: 1000, Attempt: x.Attempt}, values...))
}

func inlineValue(index uint32, data []byte) wire.Value {
	return wire.Value{Index: index, Kind: wire.Inline, Data: wire.Blob(wire.FormatBytes, data)}
}

func errorValue(text string) wire.Value {
	return wire.Value{Index: 1, Kind: wire.Inline, IsError: true, Data: wire.Blob(wire.FormatError, []byte(text))}
}

type fakeWorker struct {
	f       *fakes
	num     uint64
	pid     int
	fd      int
	handler worker.Handler
	wmu     sync.Mutex
	names   map[uint64]string
	queue   []*exec // received and not begun
	qmu     sync.Mutex
	wake    chan struct{}
	actor   map[string]any // state of the actor here
	welcome map[string]any
	number  atomic.Uint64
	objects chan wire.Value
	errors  chan wire.Value // WAIT_ERROR
	spaces  chan wire.CreatedFrame
	once    sync.Once
	ended   atomic.Bool
}

// fakes is the launcher of fake workers.
type fakes struct {
	t       testing.TB
	mu      sync.Mutex
	funcs   map[string]fakeFunc
	workers []*fakeWorker
	lastPID int
	forks   atomic.Int32
	tail    string
	fail    error
}

func newFakes(t testing.TB) *fakes {
	// Beyond the largest process number, so that a signal reaches nobody.
	return &fakes{t: t, funcs: map[string]fakeFunc{}, lastPID: 5_000_000}
}

func (f *fakes) on(name string, fn fakeFunc) { f.mu.Lock(); f.funcs[name] = fn; f.mu.Unlock() }

func (f *fakes) launch(c worker.Config, h worker.Handler) (engine.Template, error) {
	if f.fail != nil {
		return nil, f.fail
	}
	go h.Ready(nil, 1)
	return &fakeTemplate{f, h}, nil
}

type fakeTemplate struct {
	f *fakes
	h worker.Handler
}

func (t *fakeTemplate) Fork(num uint64) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	t.f.forks.Add(1)
	t.f.mu.Lock()
	t.f.lastPID++
	w := &fakeWorker{f: t.f, num: num, pid: t.f.lastPID, fd: fds[1], handler: t.h, names: map[uint64]string{}, wake: make(chan struct{}, 1), actor: map[string]any{}, objects: make(chan wire.Value, 100), errors: make(chan wire.Value, 1), spaces: make(chan wire.CreatedFrame, 1)}
	t.f.workers = append(t.f.workers, w)
	t.f.mu.Unlock()
	go func() {
		t.h.Forked(nil, num, w.pid)
		go w.runTasks()
		w.read()
	}()
	return os.NewFile(uintptr(fds[0]), "fake"), nil
}

func (t *fakeTemplate) StderrTail(uint64) string { return t.f.tail }
func (t *fakeTemplate) DrainOutput(uint64)       {}
func (t *fakeTemplate) Close()                   {}

func (w *fakeWorker) out(b []byte) {
	w.wmu.Lock()
	defer w.wmu.Unlock()
	for len(b) > 0 {
		k, err := unix.SendmsgN(w.fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err != nil {
			return
		}
		b = b[k:]
	}
}

func (w *fakeWorker) die(status unix.WaitStatus) {
	w.once.Do(func() {
		w.ended.Store(true)
		unix.Shutdown(w.fd, unix.SHUT_RDWR)
		w.handler.Exited(nil, w.pid, status)
	})
}

func (w *fakeWorker) read() {
	buf := make([]byte, 1<<20)
	filled := 0
	for {
		k, err := unix.Read(w.fd, buf[filled:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || k == 0 {
			w.die(0)
			close(w.wake)
			unix.Close(w.fd)
			return
		}
		filled += k
		in := buf[:filled]
		for {
			h, b, rest, err := wire.Next(in)
			if err != nil {
				break
			}
			in = rest
			w.frame(h, append([]byte(nil), b...))
		}
		filled = copy(buf, in)
	}
}

func (w *fakeWorker) frame(h wire.Header, b []byte) {
	switch h.Type {
	case wire.Welcome:
		w.welcome = map[string]any{}
		if err := msgpack.Unmarshal(b, &w.welcome); err != nil {
			w.f.t.Error(err)
		}
		w.number.Store(toUint(w.welcome["prefix"]) << 32)
	case wire.TemplateDef:
		var m struct {
			Name string `msgpack:"name"`
		}
		if err := msgpack.Unmarshal(b, &m); err != nil {
			w.f.t.Error(err)
		}
		w.qmu.Lock()
		w.names[h.ID] = m.Name
		w.qmu.Unlock()
	case wire.Exec:
		x, err := wire.ParseExec(b)
		if err != nil {
			w.f.t.Error(err)
			return
		}
		w.qmu.Lock()
		w.queue = append(w.queue, &exec{ExecFrame: x, id: h.ID, flags: h.Flags, w: w, tmpl: w.names[uint64(x.Template)]})
		w.qmu.Unlock()
		select {
		case w.wake <- struct{}{}:
		default:
		}
	case wire.Recall:
		w.giveBack()
	case wire.CancelExec:
		w.qmu.Lock()
		for i, x := range w.queue {
			if x.id == h.ID {
				w.queue = append(w.queue[:i], w.queue[i+1:]...)
				w.qmu.Unlock()
				x.status(wire.StatusCanceled)
				return
			}
		}
		w.qmu.Unlock()
		w.f.mu.Lock()
		fn := w.f.funcs["on_cancel"]
		w.f.mu.Unlock()
		if fn != nil {
			fn(&exec{id: h.ID, w: w})
		}
	case wire.Exit:
		if h.Flags&wire.FlagForce != 0 {
			w.die(unix.WaitStatus(unix.SIGKILL))
		} else {
			w.die(0)
		}
	case wire.Object:
		v, err := wire.ParseValue(b)
		if err != nil {
			w.f.t.Error(err)
		}
		w.objects <- v
	case wire.Created:
		k, err := wire.ParseCreated(b)
		if err != nil {
			w.f.t.Error(err)
		}
		w.spaces <- k
	case wire.WaitError:
		v, err := wire.ParseValue(b)
		if err != nil {
			w.f.t.Error(err)
		}
		w.errors <- v
	case wire.Resume:
		w.f.mu.Lock()
		fn := w.f.funcs["on_resume"]
		w.f.mu.Unlock()
		if fn != nil {
			fn(&exec{id: h.ID, w: w, ExecFrame: wire.ExecFrame{Args: b}})
		}
	}
}

func (w *fakeWorker) giveBack() {
	w.qmu.Lock()
	start := wire.Begin(nil, wire.Return, 0, 0)
	for _, x := range w.queue {
		start = wire.AppendUint64(start, x.id)
	}
	w.queue = nil
	w.qmu.Unlock()
	w.out(wire.End(start, 0))
}

func (w *fakeWorker) runTasks() {
	for range w.wake {
		for {
			w.qmu.Lock()
			if len(w.queue) == 0 {
				w.qmu.Unlock()
				break
			}
			x := w.queue[0]
			w.queue = w.queue[1:]
			w.qmu.Unlock()
			w.f.mu.Lock()
			fn := w.f.funcs[x.tmpl]
			w.f.mu.Unlock()
			switch {
			case fn != nil:
				fn(x)
			case x.flags&wire.FlagActorCreate != 0:
				x.answer()
			default:
				w.f.t.Errorf("nothing runs %q", x.tmpl)
				x.answer()
			}
		}
	}
}

// submit is a nested task of a worker's own. It returns the object.
func (w *fakeWorker) submitNested(x *exec, template uint32, flags uint16, actor uint64, top ...wire.OID) wire.OID {
	num := w.number.Add(1)
	w.out(wire.AppendSubmit(nil, num, flags, wire.SubmitFrame{Template: template, NReturns: 1, Actor: actor, Parent: x.id, Top: wire.MakeOIDs(top...)}))
	return wire.OID{Task: num, Index: 1}
}

// wait is what a worker does in get: it gives back what it has not begun, says that it is blocked, waits for the push.
func (w *fakeWorker) wait(x *exec, oid wire.OID) (wire.Value, bool) {
	w.giveBack()
	w.out(wire.AppendOIDFrame(nil, wire.Blocked, 0, x.id, oid))
	defer w.out(wire.AppendFrame(nil, wire.Unblocked, 0, x.id, nil))
	select {
	case v := <-w.objects:
		return v, true
	case v := <-w.errors:
		return v, false
	case <-time.After(10 * time.Second):
		w.f.t.Error("a worker waits in vain")
		return wire.Value{}, false
	}
}

func toUint(v any) uint64 { return uint64(asInt(v)) }

func asInt(v any) int64 {
	switch x := v.(type) {
	case int8:
		return int64(x)
	case int16:
		return int64(x)
	case int32:
		return int64(x)
	case int64:
		return x
	case uint8:
		return int64(x)
	case uint16:
		return int64(x)
	case uint32:
		return int64(x)
	case uint64:
		return int64(x)
	}
	return 0
}

// rig is a node with fake workers and a driver.
type rig struct {
	*fakes
	n *engine.Node
	c *client.Client
}

func newRig(t testing.TB, cpus float64, change ...func(*engine.Options)) *rig {
	t.Helper()
	r := &rig{fakes: newFakes(t)}
	zero := 0.0
	opts := engine.Options{
		Version: version.Version, NumCPUs: &cpus, NumGPUs: &zero, ObjectStoreMemory: 64 << 20, TempDir: t.TempDir(), Launch: r.launch, Executable: "python",
	}
	for _, c := range change {
		c(&opts)
	}
	n, err := engine.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	r.n = n
	r.c = r.driver(client.Hello{})
	t.Cleanup(func() {
		r.c.Close()
		if err := n.Stop(5 * time.Second); err != nil {
			t.Error(err)
		}
		if broken, log := n.Broken(); broken {
			text, _ := os.ReadFile(log)
			t.Errorf("the engine broke:\n%s", text)
		}
	})
	return r
}

// listen connects a driver that speaks the protocol itself.
func listen(t *testing.T, n *engine.Node, hello map[string]any, frame func(typ wire.Type, payload []byte)) *engine.Conn {
	t.Helper()
	hello["version"], hello["role"] = version.Version, "driver"
	c, err := n.Attach(pack(hello), func(b []byte) {
		for len(b) > 0 {
			h, payload, rest, err := wire.Next(b)
			if err != nil {
				t.Error(err)
				return
			}
			b = rest
			frame(h.Type, payload)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Detach)
	return c
}

func (r *rig) driver(h client.Hello) *client.Client {
	r.t.Helper()
	c, err := client.Embed(attach(r.n), h)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func attach(n *engine.Node) client.Attach {
	return func(hello []byte, deliver func([]byte)) (func([]byte) error, func(), error) {
		c, err := n.Attach(hello, deliver)
		if err != nil {
			return nil, nil, err
		}
		return c.Input, c.Detach, nil
	}
}

func (r *rig) define(m map[string]any) *client.Function {
	r.t.Helper()
	if m["resources"] == nil && m["kind"] == "function" {
		m["resources"] = map[string]int{"CPU": 10000}
	}
	f, err := r.c.Define(m)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) function(name string, more ...any) *client.Function {
	m := map[string]any{"kind": "function", "name": name}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return r.define(m)
}

func (r *rig) submit(f *client.Function, args string, top ...client.Ref) client.Ref {
	r.t.Helper()
	var oids []wire.OID
	for _, x := range top {
		oids = append(oids, x.OID())
	}
	refs, err := f.SubmitRaw(0, []byte(args), oids, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return refs[0]
}

func (r *rig) actor(name string, more ...any) client.Ref {
	r.t.Helper()
	m := map[string]any{"kind": "actor", "name": name, "resources": map[string]int{}, "placement": map[string]int{"CPU": 10000}}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return r.submit(r.define(m), "")
}

func (r *rig) method(name string, more ...any) *client.Function {
	m := map[string]any{"kind": "method", "name": name, "method": name}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return r.define(m)
}

func (r *rig) call(a client.Ref, f *client.Function, args string) client.Ref {
	r.t.Helper()
	refs, err := f.SubmitRaw(a.OID().Task, []byte(args), nil, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return refs[0]
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return c
}

func (r *rig) get(ref client.Ref) (string, error) {
	r.t.Helper()
	var b []byte
	err := r.c.Get(ctx(r.t), ref, &b)
	return string(b), err
}

func (r *rig) want(ref client.Ref, want string) {
	r.t.Helper()
	if got, err := r.get(ref); err != nil || got != want {
		r.t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func (r *rig) ask(method string, arg any) map[string]any {
	r.t.Helper()
	var out map[string]any
	if err := r.c.Call(ctx(r.t), method, arg, &out); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// eventually waits for something that no event announces to a test.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatal("in vain: ", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

var le = binary.LittleEndian

func pack(v any) []byte {
	b, err := msgpack.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
