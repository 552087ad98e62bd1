package raygo

import (
	"context"
	"errors"

	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/vmihailenco/msgpack/v5"
)

// Ref is a reference to a value of type T, there or to come. It keeps the value alive until Release. Among the arguments of a call it stands for the value.
type Ref[T any] struct {
	c   *client.Client
	ref client.Ref
}

// Put keeps a value: a plain one, an [arrow.Table], an [arrow.RecordBatch] or a [*Tensor]. Arrow data and arrays are written once, into shared memory.
func Put[T any](ctx context.Context, rt *Runtime, v T) (Ref[T], error) {
	stored, err := storable(v)
	if err != nil {
		return Ref[T]{}, err
	}
	ref, err := rt.c.Put(ctx, stored)
	return Ref[T]{rt.c, ref}, err
}

// storable turns Arrow data and arrays into what the client stores; other values are plain.
func storable(v any) (any, error) {
	switch x := v.(type) {
	case *Tensor:
		if x == nil {
			return nil, nil
		}
		return x, x.check()
	case arrow.Table, arrow.RecordBatch:
		stream, err := gather(x)
		return arrowBlob{stream}, err
	}
	return v, nil
}

func zeroRef() error {
	return errs.New(errs.ESTALE, "the reference is the zero Ref: it comes from no Put and no call")
}

// Get waits for a value. An [arrow.Table] or a [*Tensor] is not copied: it stands in shared memory until it is released.
func Get[T any](ctx context.Context, r Ref[T]) (T, error) {
	var out T
	if r.c == nil {
		return out, zeroRef()
	}
	var err error
	switch p := any(&out).(type) {
	case *arrow.Table:
		*p, err = table(ctx, r.c, r.ref)
	case **Tensor:
		*p, err = tensor(ctx, r.c, r.ref)
	default:
		err = explain(r.c.Get(ctx, r.ref, &out))
	}
	return out, err
}

// explain says what an exception of Python's is, which only Python can read.
func explain(err error) error {
	var e *client.TaskError
	if errors.As(err, &e) {
		return errs.New(errs.ETASK, "the task raised a Python exception that was stored for Python only; call the function by its name from Go to have its text")
	}
	return err
}

// Get waits for the value.
func (r Ref[T]) Get(ctx context.Context) (T, error) { return Get(ctx, r) }

// Cancel ends the task that makes the value, and the tasks that it submitted.
func (r Ref[T]) Cancel(force bool) error { return r.c.Cancel(r.ref, force, true) }

// Release lets the value go.
func (r Ref[T]) Release() error {
	if r.c == nil {
		return nil
	}
	return r.ref.Release()
}

func (r Ref[T]) untyped() client.Ref { return r.ref }

// Wait returns when n of the references have a value or an error, and says which.
func Wait[T any](ctx context.Context, refs []Ref[T], n int) (ready, rest []Ref[T], err error) {
	if len(refs) == 0 || n > len(refs) {
		return nil, refs, errs.New(errs.EINVAL, "%d of %d references cannot be waited for", n, len(refs))
	}
	plain := make([]client.Ref, len(refs))
	for i, r := range refs {
		plain[i] = r.ref
	}
	there, _, err := refs[0].c.Wait(ctx, plain, n)
	is := make(map[client.Ref]bool, len(there))
	for _, r := range there {
		is[r] = true
	}
	for _, r := range refs {
		if is[r.ref] {
			ready = append(ready, r)
		} else {
			rest = append(rest, r)
		}
	}
	return ready, rest, err
}

// arguments makes plain references of typed ones.
func arguments(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if r, ok := a.(interface{ untyped() client.Ref }); ok {
			out[i] = r.untyped()
		} else {
			out[i] = a
		}
	}
	return out
}

// foreign: neither is made of the other.
func foreign(v any) bool {
	switch v.(type) {
	case arrow.Table, *Tensor:
		return true
	}
	return false
}

// opened makes tables and arrays of views among a call's arguments, and says how to let them go.
func opened(args []any) (func(), error) {
	var release []interface{ Release() }
	done := func() {
		for _, r := range release {
			r.Release()
		}
	}
	for i, a := range args {
		view, ok := a.(*client.View)
		if !ok {
			continue
		}
		var v interface{ Release() }
		format, _, _, err := wire.ParseBlob(view.Blob)
		if err == nil && format == wire.FormatTensor {
			v, err = openTensor(view)
		} else if err == nil {
			var r array.RecordReader
			if r, err = openRecords(view); err == nil {
				v, err = collect(r)
			}
		}
		if err != nil {
			done()
			return nil, errs.New(errs.EINVAL, "argument %d: %w", i+1, err)
		}
		args[i] = v
		release = append(release, v)
	}
	return done, nil
}

// as gives a decoded argument the type that the function declares.
func as[T any](name string, i int, v any) (T, error) {
	if t, ok := v.(T); ok {
		return t, nil
	}
	var out T
	if foreign(v) || foreign(out) {
		return out, errs.New(errs.EINVAL, "argument %d of %s is a %T, not a %T", i+1, name, v, out)
	}
	raw, err := msgpack.Marshal(v)
	if err == nil {
		err = msgpack.Unmarshal(raw, &out)
	}
	if err != nil {
		return out, errs.New(errs.EINVAL, "argument %d of %s is a %T, not a %T: %w", i+1, name, v, out, err)
	}
	return out, nil
}
