package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"

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

// Encoder is a value that writes its own blob, straight to where it is kept.
type Encoder interface {
	BlobSize() int
	WriteBlob(to []byte)
	Done() // it was written, or never will be
}

type encoded []byte

func (e encoded) BlobSize() int       { return len(e) }
func (e encoded) WriteBlob(to []byte) { copy(to, e) }
func (e encoded) Done()               {}

// Encode prepares a plain value for being stored; an [Encoder] is taken as it is.
func Encode(v any) (Encoder, error) {
	switch x := v.(type) {
	case Encoder:
		return x, nil
	case nil:
		return encoded(wire.Blob(wire.FormatNone, nil)), nil
	case []byte:
		return encodedBytes(x), nil
	}
	body, err := msgpack.Marshal(v)
	if err != nil {
		return nil, errs.New(errs.EINVAL, "a value of type %T is none that other languages know: %w", v, err)
	}
	return encoded(wire.Blob(wire.FormatMsgpack, body)), nil
}

type encodedBytes []byte

func (e encodedBytes) BlobSize() int { return wire.BlobSize(len(e)) }
func (e encodedBytes) Done()         {}
func (e encodedBytes) WriteBlob(to []byte) {
	body, _ := wire.LayOutBlob(to, wire.FormatBytes, len(e))
	copy(body, e)
}

// Decode reads a blob into out, a pointer; nil: the value is not wanted.
func Decode(blob []byte, out any) error {
	format, body, _, err := wire.ParseBlob(blob)
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

// Put keeps a value and returns its reference.
func (c *Client) Put(ctx context.Context, v any) (Ref, error) {
	e, err := Encode(v)
	if err != nil {
		return Ref{}, err
	}
	num := c.nextNumber()
	kept, err := c.keep(ctx, wire.OID{Task: num}, e)
	if err != nil {
		return Ref{}, err
	}
	frame := wire.Put
	if kept.Kind == wire.Arena {
		frame = wire.Seal
	}
	r := c.own(wire.OID{Task: num})
	c.onObject(r.oid, kept)
	return r, c.send(wire.End(wire.AppendValue(wire.Begin(nil, frame, 0, num), kept), 0))
}

// keep writes a blob to where it belongs: into memory for a frame, or into the arena.
func (c *Client) keep(ctx context.Context, oid wire.OID, e Encoder) (wire.Value, error) {
	defer e.Done()
	size := e.BlobSize()
	if size <= wire.InlineMax {
		data := make([]byte, size)
		e.WriteBlob(data)
		return wire.Value{Index: oid.Index, Kind: wire.Inline, Data: data}, nil
	}
	to, written, err := c.create(ctx, oid, size)
	if err != nil {
		return wire.Value{}, err
	}
	e.WriteBlob(to)
	written()
	return wire.Value{Index: oid.Index, Kind: wire.Arena, Len: uint64(size), Offset: wire.NoOffset}, nil
}

// use maps the arena, for as long as unuse has not been called.
func (c *Client) use() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed != nil {
		return nil, c.mu.closed
	}
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
	c.mu.views++
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
		data, written, err := c.place(k.File, k.Offset, uint64(size), true)
		if err != nil {
			_ = c.send(wire.AppendOIDFrame(nil, wire.Abort, 0, oid.Task, oid)) // a lost connection has nothing
		}
		return data, written, err
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.mu.spaces, oid)
		c.mu.Unlock()
		// Given meanwhile or not, it is given back. A connection that is lost has nothing.
		_ = c.send(wire.AppendOIDFrame(nil, wire.Abort, 0, oid.Task, oid))
		return nil, nil, errs.New(errs.CodeOf(ctx.Err()), "there was no room yet for a value of %d bytes: %w", size, ctx.Err())
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

// View is a value's blob in place. It begins with one reference and stays until the last has been released, also beyond Close.
type View struct {
	Blob  []byte
	c     *Client
	oid   wire.OID
	unmap func() // nil: the memory is Go's
	refs  atomic.Int32
}

// Retain takes one more reference.
func (v *View) Retain() { v.refs.Add(1) }

// Release gives a reference back, from any goroutine.
func (v *View) Release() {
	if v.refs.Add(-1) == 0 && v.unmap != nil {
		v.unmap()
		// A lost connection unpins too.
		_ = v.c.send(wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, v.oid))
	}
}

func (v *View) format() byte {
	if len(v.Blob) == 0 {
		return wire.FormatNone
	}
	return v.Blob[0]
}

// view makes a View of what was pinned, or of data that came in a frame.
func (c *Client) view(oid wire.OID, v wire.Value) (*View, error) {
	view := &View{Blob: v.Data, c: c, oid: oid}
	view.refs.Store(1)
	if v.Kind == wire.Arena {
		var err error
		if view.Blob, view.unmap, err = c.place(v.File, v.Offset, v.Len, false); err != nil {
			_ = c.send(wire.AppendOIDFrame(nil, wire.Unpin, 0, 0, oid)) // a lost connection unpins too
			return nil, err
		}
	}
	return view, nil
}

func (c *Client) unuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.views--
	c.unmap()
}

// GetView waits for a value and gives its blob in place.
func (c *Client) GetView(ctx context.Context, r Ref) (*View, error) {
	v, err := c.awaitObject(ctx, r)
	if err != nil {
		return nil, err
	}
	if v.Kind == wire.Arena {
		if v, err = c.pin(ctx, r); err != nil {
			return nil, err
		}
	}
	if v.Kind == wire.SysErr {
		e := &SysError{}
		if err := msgpack.Unmarshal(v.Data, e); err != nil {
			return nil, errors.Join(errs.EINTERNAL, err)
		}
		return nil, e
	}
	view, err := c.view(r.oid, v)
	if err == nil && v.IsError {
		defer view.Release()
		return nil, &TaskError{append([]byte(nil), view.Blob...)}
	}
	return view, err
}

// GetBlob waits for a value and calls use with its blob, which is valid during the call only.
func (c *Client) GetBlob(ctx context.Context, r Ref, use func(blob []byte) error) error {
	v, err := c.GetView(ctx, r)
	if err != nil {
		return err
	}
	defer v.Release()
	return use(v.Blob)
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
