package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"

	"github.com/vmihailenco/msgpack/v5"
)

// Options of a template; the zero value is a task on one CPU with one value.
type Options struct {
	NumReturns int
	Resources  map[string]float64 // nil: one CPU
	Extra      map[string]any     // further keys of PROTOCOL.md
}

// Function is something that can be submitted.
type Function struct {
	c        *Client
	number   uint64
	nreturns int
	flags    uint16
}

// Define sends a template made of the keys in PROTOCOL.md.
func (c *Client) Define(m map[string]any) (*Function, error) {
	raw, err := msgpack.Marshal(m)
	if err != nil {
		return nil, errs.New(errs.EINVAL, "a template: %w", err)
	}
	f := &Function{c: c, number: c.nextDef.Add(1), nreturns: 1}
	if k, ok := m["num_returns"].(int); ok {
		f.nreturns = k
	}
	switch {
	case m["streaming"] == true:
		f.flags = wire.FlagStreaming
	case m["kind"] == "actor":
		f.flags = wire.FlagActorCreate
	case m["kind"] == "method":
		f.flags = wire.FlagActorCall
	}
	return f, c.send(wire.AppendFrame(nil, wire.Template, 0, f.number, raw))
}

func template(kind, name string, o Options) map[string]any {
	m := map[string]any{"kind": kind, "name": name, "qualname": name, "num_returns": 1}
	if o.NumReturns > 0 {
		m["num_returns"] = o.NumReturns
	}
	if o.Resources == nil && kind == "function" {
		o.Resources = map[string]float64{"CPU": 1}
	}
	r := map[string]int64{}
	for k, v := range o.Resources {
		r[k] = int64(v*10000 + 0.5)
	}
	m["resources"] = r
	for k, v := range o.Extra {
		m[k] = v
	}
	return m
}

// Function prepares a Python function, "module:qualname", for submitting with plain values.
func (c *Client) Function(path string, o Options) (*Function, error) {
	m := template("function", path, o)
	m["codec"], m["blob"] = "import", []byte(path)
	return c.Define(m)
}

// Named prepares a function that some program serves.
func (c *Client) Named(name string, o Options) (*Function, error) {
	m := template("named", name, o)
	m["codec"] = "msgpack"
	return c.Define(m)
}

// packArgs makes the argument block of codec msgpack: an array, in which extension 1 stands for the reference with that number.
func packArgs(args []any) (block []byte, top []wire.OID, err error) {
	plain := make([]any, len(args))
	for i, a := range args {
		if r, ok := a.(Ref); ok {
			plain[i] = &topRef{uint32(len(top))}
			top = append(top, r.oid)
		} else {
			plain[i] = a
		}
	}
	block, err = msgpack.Marshal(plain)
	return block, top, err
}

type topRef struct{ n uint32 }

// MarshalMsgpack is for the encoder.
func (t *topRef) MarshalMsgpack() ([]byte, error) {
	return binary.LittleEndian.AppendUint32(nil, t.n), nil
}

// UnmarshalMsgpack is for the decoder.
func (t *topRef) UnmarshalMsgpack(b []byte) error {
	if len(b) != 4 {
		return fmt.Errorf("a reference of %d bytes", len(b))
	}
	t.n = binary.LittleEndian.Uint32(b)
	return nil
}

func init() { msgpack.RegisterExt(1, (*topRef)(nil)) }

// Submit starts a task with plain values and references as arguments, and returns the reference of its first value.
func (f *Function) Submit(args ...any) (Ref, error) {
	refs, err := f.SubmitMany(args...)
	if err != nil {
		return Ref{}, err
	}
	return refs[0], nil
}

// SubmitMany is Submit for functions with several values.
func (f *Function) SubmitMany(args ...any) ([]Ref, error) {
	block, top, err := packArgs(args)
	if err != nil {
		return nil, errs.New(errs.EINVAL, "arguments: %w", err)
	}
	return f.SubmitRaw(0, block, top, nil)
}

// SubmitRaw starts a task, creates an actor, or calls one (actor not 0), with an argument block as it is.
func (f *Function) SubmitRaw(actor uint64, args []byte, top, nested []wire.OID) ([]Ref, error) {
	num := f.c.nextNumber()
	refs := f.refs(num)
	b := f.AppendSubmit(nil, num, actor, args, top, nested)
	return refs, f.c.send(b)
}

// AppendSubmit appends the frame that SubmitRaw sends; for sending many at once.
func (f *Function) AppendSubmit(b []byte, num, actor uint64, args []byte, top, nested []wire.OID) []byte {
	nreturns := f.nreturns
	if f.flags&(wire.FlagStreaming|wire.FlagActorCreate) != 0 {
		nreturns = 0
	}
	return wire.AppendSubmit(b, num, f.flags, wire.SubmitFrame{
		Template: uint32(f.number), NReturns: uint32(nreturns), Actor: actor, Top: wire.MakeOIDs(top...), Nested: wire.MakeOIDs(nested...), Args: args,
	})
}

func (f *Function) refs(num uint64) []Ref {
	switch {
	case f.flags&wire.FlagActorCreate != 0:
		return []Ref{f.c.own(wire.OID{Task: num})}
	case f.flags&wire.FlagStreaming != 0:
		return []Ref{f.c.own(wire.OID{Task: num, Index: 1})}
	}
	refs := make([]Ref, f.nreturns)
	for i := range refs {
		refs[i] = f.c.own(wire.OID{Task: num, Index: uint32(i + 1)})
	}
	return refs
}

// SubmitBatch starts n tasks with the same argument block in one go.
func (f *Function) SubmitBatch(n int, actor uint64, args []byte) ([]Ref, error) {
	var b []byte
	out := make([]Ref, 0, n)
	for range n {
		num := f.c.nextNumber()
		out = append(out, f.refs(num)...)
		b = f.AppendSubmit(b, num, actor, args, nil, nil)
	}
	return out, f.c.send(b)
}

// Cancel ends the task that makes a value.
func (c *Client) Cancel(r Ref, force, recursive bool) error {
	var flags uint16
	if force {
		flags |= wire.FlagForce
	}
	if recursive {
		flags |= wire.FlagRecursive
	}
	return c.send(wire.AppendFrame(nil, wire.Cancel, flags, r.oid.Task, nil))
}

// Kill ends an actor.
func (c *Client) Kill(actor uint64, noRestart bool) error {
	var flags uint16
	if noRestart {
		flags = wire.FlagNoRestart
	}
	return c.send(wire.AppendFrame(nil, wire.Kill, flags, actor, nil))
}

// Consumed tells a generator how many of its items were taken; wire.Dropped: no more are wanted.
func (c *Client) Consumed(task, count uint64) error {
	return c.send(wire.AppendFrame(nil, wire.Consumed, 0, task, wire.AppendUint64(nil, count)))
}

// Handler answers a call to a served function. Its arguments are plain values, and a *[View] for each that is an array or a table; these end when it
// has returned, unless they were retained by [View.Retain].
type Handler func(args []any) (any, error)

// Serve answers calls to a named function. Each call runs on a goroutine of its own, at most concurrency at a time.
func (c *Client) Serve(ctx context.Context, name string, concurrency int, h Handler) error {
	c.mu.Lock()
	c.mu.served[name] = h
	c.mu.Unlock()
	return c.Call(ctx, "serve.register", map[string]any{"name": name, "concurrency": concurrency}, nil)
}

// Withdraw ends the serving of a name, and waits until the calls that were taken have been answered.
func (c *Client) Withdraw(ctx context.Context, name string) error {
	if err := c.Call(ctx, "serve.unregister", map[string]any{"name": name}, nil); err != nil {
		return err
	}
	answered := make(chan struct{})
	go func() {
		c.serving.Wait()
		close(answered)
	}()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) onTemplate(number uint64, b []byte) error {
	var m struct {
		Name     string `msgpack:"name"`
		Qualname string `msgpack:"qualname"`
	}
	if err := msgpack.Unmarshal(b, &m); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.defs[number] = m.Name
	if c.mu.served[m.Name] == nil {
		c.mu.defs[number] = m.Qualname
	}
	return nil
}

func (c *Client) onExec(h wire.Header, b []byte) error {
	x, err := wire.ParseExec(b)
	if err != nil {
		return err
	}
	args, views, err := c.execArgs(&x)
	c.mu.Lock()
	name := c.mu.defs[uint64(x.Template)]
	handler := c.mu.served[name]
	c.mu.Unlock()
	c.serving.Add(1)
	go func() {
		defer c.serving.Done()
		start := time.Now()
		var out any
		failed := err
		switch {
		case err != nil:
		case handler == nil:
			failed = errs.New(errs.ENOTFOUND, "this process does not serve %q", name)
		default:
			out, failed = handler(args)
		}
		var v wire.Value
		status := wire.StatusOK
		if failed == nil {
			v, failed = c.answer(h.ID, out)
		}
		for _, view := range views {
			view.Release()
		}
		if failed != nil {
			status = wire.StatusError
			v = wire.Value{Index: 1, Kind: wire.SysErr, IsError: true}
			v.Data, _ = msgpack.Marshal(map[string]any{"code": int(errs.ETASK), "message": fmt.Sprintf("%s: %v", name, failed), "task_name": name})
		}
		// When the connection is gone there is nobody to answer.
		_ = c.send(wire.AppendResult(nil, h.ID, wire.ResultFrame{Status: status, ExecNS: uint64(time.Since(start)), Attempt: x.Attempt}, v))
	}()
	return nil
}

func (c *Client) answer(task uint64, out any) (wire.Value, error) {
	e, err := Encode(out)
	if err != nil {
		return wire.Value{}, err
	}
	return c.keep(context.Background(), wire.OID{Task: task, Index: 1}, e)
}

// execArgs decodes the arguments of a call, references resolved. Values that are not plain are views.
func (c *Client) execArgs(x *wire.ExecFrame) (args []any, views []*View, err error) {
	top := make([]any, 0, x.NTop)
	rest := x.Top
	left := x.NTop
	defer func() {
		if err != nil {
			c.unpinRest(rest, left)
		}
	}()
	for left > 0 {
		id, v, r, err := wire.TakeArg(rest)
		if err != nil {
			left = 0 // what follows cannot be read either
			return nil, views, err
		}
		rest, left = r, left-1
		view, err := c.view(id, v)
		if err != nil {
			return nil, views, err
		}
		views = append(views, view)
		var out any
		switch format := view.format(); format {
		case wire.FormatArrow, wire.FormatTensor:
			if v.Kind != wire.Arena { // the frame's memory is used again
				view.Blob = append([]byte(nil), view.Blob...)
			}
			out = view
		default:
			if err := Decode(view.Blob, &out); err != nil {
				return nil, views, err
			}
		}
		top = append(top, out)
	}
	if len(x.Args) > 0 {
		if err := msgpack.Unmarshal(x.Args, &args); err != nil {
			return nil, views, errs.New(errs.EINVAL, "the arguments are no msgpack array: %w", err)
		}
	}
	for i, a := range args {
		if t, ok := a.(*topRef); ok && int(t.n) < len(top) {
			args[i] = top[t.n]
		}
	}
	return args, views, nil
}

// unpinRest gives back what came pinned of the arguments that are not looked at any more.
func (c *Client) unpinRest(rest []byte, n uint32) {
	for range n {
		id, v, r, err := wire.TakeArg(rest)
		if err != nil {
			return
		}
		rest = r
		if v.Kind == wire.Arena {
			_ = c.send(wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, id)) // a lost connection unpins too
		}
	}
}
