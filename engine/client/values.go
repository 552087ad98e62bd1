package client

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"
)

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

func asInt(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case uint64:
		return int64(x)
	}
	return -1
}

// Ref is a reference to a value. It keeps the value until Release.
type Ref struct {
	c   *Client
	oid wire.OID
}

// OID is the object's name within the session.
func (r Ref) OID() wire.OID { return r.oid }

// nextNumber draws a task number. A client uses far fewer than the 2^32 of its prefix.
func (c *Client) nextNumber() uint64 { return c.number.Add(1) }

// own notes an object that this process has just made.
func (c *Client) own(oid wire.OID) Ref {
	c.mu.Lock()
	c.mu.objects[oid] = &object{ready: make(chan struct{}), asked: true, refs: 1}
	c.mu.Unlock()
	return Ref{c, oid}
}

// Ref takes a reference that arrived from elsewhere.
func (c *Client) Ref(oid wire.OID) (Ref, error) {
	c.mu.Lock()
	o := c.mu.objects[oid]
	if o != nil {
		o.refs++
		c.mu.Unlock()
		return Ref{c, oid}, nil
	}
	c.mu.objects[oid] = &object{ready: make(chan struct{}), refs: 1}
	c.mu.Unlock()
	return Ref{c, oid}, c.send(wire.AppendOIDFrame(nil, wire.AddRef, 0, 0, oid))
}

// Release lets the value go.
func (r Ref) Release() error {
	c := r.c
	c.mu.Lock()
	o := c.mu.objects[r.oid]
	if o == nil {
		c.mu.Unlock()
		return nil
	}
	o.refs--
	if o.refs > 0 {
		c.mu.Unlock()
		return nil
	}
	delete(c.mu.objects, r.oid)
	c.mu.Unlock()
	return c.send(wire.AppendOIDFrame(nil, wire.Release, 0, 0, r.oid))
}

// Encode makes a blob of a plain value.
func Encode(v any) ([]byte, error) {
	switch x := v.(type) {
	case nil:
		return wire.Blob(wire.FormatNone, nil), nil
	case []byte:
		return wire.Blob(wire.FormatBytes, x), nil
	}
	body, err := msgpack.Marshal(v)
	if err != nil {
		return nil, errs.New(errs.EINVAL, "a value of type %T is none that other languages know: %w", v, err)
	}
	return wire.Blob(wire.FormatMsgpack, body), nil
}

// Decode reads a blob into out, a pointer; nil: the value is not wanted.
func Decode(blob []byte, out any) error {
	format, body, err := wire.ParseBlob(blob)
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	switch format {
	case wire.FormatNone:
		return nil
	case wire.FormatBytes:
		switch p := out.(type) {
		case *[]byte:
			*p = append([]byte(nil), body...)
			return nil
		case *any:
			*p = append([]byte(nil), body...)
			return nil
		}
		return errs.New(errs.EINVAL, "the value is bytes and does not go into a %T", out)
	case wire.FormatMsgpack:
		return msgpack.Unmarshal(body, out)
	}
	return errs.New(errs.EINVAL, "the value is of format %d, which only its own language reads", format)
}

// TaskError is an exception that a task raised, as it was stored.
type TaskError struct{ Blob []byte }

func (e *TaskError) Error() string { return "the task raised an exception" }

// SysError is an error of raygo's own in place of a value.
type SysError struct {
	Code     errs.Code `msgpack:"code"`
	Message  string    `msgpack:"message"`
	TaskName string    `msgpack:"task_name"`
	Actor    uint64    `msgpack:"actor"`
	PID      int       `msgpack:"pid"`
	Signal   int       `msgpack:"signal"`
	ExitCode int       `msgpack:"exit_code"`
	Stderr   string    `msgpack:"stderr"`
	Cause    []byte    `msgpack:"cause_blob"`
}

func (e *SysError) Error() string { return e.Message }

// Unwrap makes the code visible to errors.Is.
func (e *SysError) Unwrap() error { return e.Code }

// Put keeps a plain value and returns its reference.
func (c *Client) Put(ctx context.Context, v any) (Ref, error) {
	blob, err := Encode(v)
	if err != nil {
		return Ref{}, err
	}
	num := c.nextNumber()
	oid := wire.OID{Task: num}
	if len(blob) <= wire.InlineMax {
		r := c.own(oid)
		c.onObject(oid, wire.Value{Kind: wire.Inline, Data: blob})
		start := wire.Begin(nil, wire.Put, 0, num)
		b := wire.AppendValue(start, wire.Value{Kind: wire.Inline, Data: blob})
		return r, c.send(wire.End(b, 0))
	}
	to, written, err := c.create(ctx, oid, len(blob))
	if err != nil {
		return Ref{}, err
	}
	copy(to, blob)
	written()
	r := c.own(oid)
	c.onObject(oid, wire.Value{Kind: wire.Arena, Len: uint64(len(blob)), Offset: wire.NoOffset})
	b := wire.AppendValue(wire.Begin(nil, wire.Seal, 0, num), wire.Value{Kind: wire.Arena, Len: uint64(len(blob)), Offset: wire.NoOffset})
	return r, c.send(wire.End(b, 0))
}

func (c *Client) mapping() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arena == nil {
		if c.arenaFD < 0 {
			return nil, errs.New(errs.EINTERNAL, "the engine passed no arena")
		}
		m, err := unix.Mmap(c.arenaFD, 0, int(c.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		if err != nil {
			return nil, errs.New(errs.ENOMEM, "the arena cannot be mapped: %w", err)
		}
		c.arena = m
	}
	return c.arena, nil
}

// create asks for space, and returns it with what is to be called when it has been written to.
func (c *Client) create(ctx context.Context, oid wire.OID, size int) ([]byte, func(), error) {
	ch := make(chan wire.CreatedFrame, 1)
	c.mu.Lock()
	c.mu.spaces[oid] = ch
	c.mu.Unlock()
	if err := c.send(wire.AppendCreate(nil, oid.Task, wire.CreateFrame{Index: oid.Index, Size: uint64(size)})); err != nil {
		return nil, nil, err
	}
	select {
	case k, ok := <-ch:
		if !ok {
			return nil, nil, c.closedError()
		}
		if k.Status != 0 {
			return nil, nil, errs.New(errs.Code(k.Status), "%s", k.Message)
		}
		return c.place(k.File, k.Offset, uint64(size), true)
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// await waits for a value, without its bytes when these are in the arena.
func (c *Client) awaitObject(ctx context.Context, r Ref) (wire.Value, error) {
	c.mu.Lock()
	o := c.mu.objects[r.oid]
	if o == nil {
		c.mu.Unlock()
		return wire.Value{}, errs.New(errs.EREFFREED, "object %v was released", r.oid)
	}
	ask := !o.asked
	o.asked = true
	c.mu.Unlock()
	if ask {
		if err := c.send(wire.AppendOIDFrame(nil, wire.Subscribe, 0, 0, r.oid)); err != nil {
			return wire.Value{}, err
		}
	}
	select {
	case <-o.ready:
	default:
		select {
		case <-o.ready:
		case <-ctx.Done():
			return wire.Value{}, errs.New(errs.CodeOf(ctx.Err()), "object %v is not there yet: %w", r.oid, ctx.Err())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return o.value, nil
}

// GetBlob waits for a value and calls use with its blob, which is valid during the call only.
func (c *Client) GetBlob(ctx context.Context, r Ref, use func(blob []byte) error) error {
	v, err := c.awaitObject(ctx, r)
	if err != nil {
		return err
	}
	if v.Kind == wire.Arena {
		if v, err = c.pin(ctx, r); err != nil {
			return err
		}
	}
	switch v.Kind {
	case wire.SysErr:
		e := &SysError{}
		if err := msgpack.Unmarshal(v.Data, e); err != nil {
			return errors.Join(errs.EINTERNAL, err)
		}
		return e
	case wire.Arena:
		defer c.send(wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, r.oid)) // a lost connection unpins too
		data, release, err := c.place(v.File, v.Offset, v.Len, false)
		if err != nil {
			return err
		}
		defer release()
		v.Data = data
	}
	if v.IsError {
		return &TaskError{append([]byte(nil), v.Data...)}
	}
	return use(v.Data)
}

func (c *Client) pin(ctx context.Context, r Ref) (wire.Value, error) {
	ch := make(chan wire.Value, 1)
	c.mu.Lock()
	c.mu.places[r.oid] = append(c.mu.places[r.oid], ch)
	c.mu.Unlock()
	if err := c.send(wire.AppendOIDFrame(nil, wire.Pin, 0, 0, r.oid)); err != nil {
		return wire.Value{}, err
	}
	select {
	case v, ok := <-ch:
		if !ok {
			return v, c.closedError()
		}
		return v, nil
	case <-ctx.Done():
		return wire.Value{}, ctx.Err()
	}
}

// Get waits for a plain value and decodes it into out.
func (c *Client) Get(ctx context.Context, r Ref, out any) error {
	return c.GetBlob(ctx, r, func(blob []byte) error { return Decode(blob, out) })
}

// Wait returns when n of the references are ready, and says which are.
func (c *Client) Wait(ctx context.Context, refs []Ref, n int) (ready, rest []Ref, err error) {
	done := make(chan int, len(refs))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, r := range refs {
		go func() {
			if _, err := c.awaitObject(ctx, r); err == nil {
				done <- i
			}
		}()
	}
	is := make([]bool, len(refs))
	for k := 0; k < n && err == nil; k++ {
		select {
		case i := <-done:
			is[i] = true
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for i, r := range refs {
		if is[i] {
			ready = append(ready, r)
		} else {
			rest = append(rest, r)
		}
	}
	return ready, rest, err
}
