package raygo

import (
	"context"
	"strings"

	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
)

// Function calls one function, with a result of type R. The zero value is of no use; see [Func].
type Function[R any] struct {
	c   *client.Client
	f   *client.Function
	err error
}

// FuncOptions say what a task of the function needs.
type FuncOptions struct {
	Resources map[string]float64 // nil: one CPU for a Python function, nothing for a served one
	Retries   int                // when the worker dies; 0: three; -1: none
}

// Func prepares a function: "module:qualname" of a Python function, or the name of a served one. What is wrong with it shows at the first call.
func Func[R any](rt *Runtime, name string, options ...FuncOptions) *Function[R] {
	o := client.Options{Extra: map[string]any{"max_retries": 3}}
	for _, more := range options {
		o.Resources = more.Resources
		if more.Retries != 0 {
			o.Extra["max_retries"] = max(more.Retries, 0)
		}
	}
	fn := &Function[R]{c: rt.c}
	if strings.Contains(name, ":") {
		fn.f, fn.err = rt.c.Function(name, o)
	} else {
		fn.f, fn.err = rt.c.Named(name, o)
	}
	return fn
}

// Submit starts a task and returns at once.
func (fn *Function[R]) Submit(args ...any) (Ref[R], error) {
	if fn.err != nil {
		return Ref[R]{}, fn.err
	}
	ref, err := fn.f.Submit(arguments(args)...)
	return Ref[R]{fn.c, ref}, err
}

// Call runs a task and waits for its value. When the context ends first, the task is cancelled.
func (fn *Function[R]) Call(ctx context.Context, args ...any) (R, error) {
	ref, err := fn.Submit(args...)
	if err != nil {
		var none R
		return none, err
	}
	out, err := Get(ctx, ref)
	if err != nil && ctx.Err() != nil {
		_ = ref.Cancel(false) // if this fails the engine is gone, and the task with it
	}
	if release := ref.Release(); err == nil {
		err = release
	}
	return out, err
}

// Func0 makes a Go function of a remote one.
func Func0[R any](rt *Runtime, name string, options ...FuncOptions) func(context.Context) (R, error) {
	fn := Func[R](rt, name, options...)
	return func(ctx context.Context) (R, error) { return fn.Call(ctx) }
}

// Func1 is Func0 with an argument.
func Func1[A, R any](rt *Runtime, name string, options ...FuncOptions) func(context.Context, A) (R, error) {
	fn := Func[R](rt, name, options...)
	return func(ctx context.Context, a A) (R, error) { return fn.Call(ctx, a) }
}

// Func2 is Func0 with two arguments.
func Func2[A, B, R any](rt *Runtime, name string, options ...FuncOptions) func(context.Context, A, B) (R, error) {
	fn := Func[R](rt, name, options...)
	return func(ctx context.Context, a A, b B) (R, error) { return fn.Call(ctx, a, b) }
}

func count(name string, args []any, want int) error {
	if len(args) != want {
		return errs.New(errs.EINVAL, "%s takes %d arguments, not %d", name, want, len(args))
	}
	return nil
}

// Serve answers calls to a name without ':' with a function of any number of arguments; at most concurrency at a time. They get ctx, which also
// bounds the registration. Arrow data and arrays, which are passed by reference, arrive as [arrow.Table] and [*Tensor]; these are released when f has returned.
func Serve(ctx context.Context, rt *Runtime, name string, concurrency int, f func(ctx context.Context, args []any) (any, error)) error {
	if name == "" || strings.Contains(name, ":") {
		return errs.New(errs.EINVAL, "%q cannot be served: a name must not be empty and a name with a colon is a Python function's", name)
	}
	return rt.c.Serve(ctx, name, concurrency, func(args []any) (any, error) {
		release, err := opened(args)
		if err != nil {
			return nil, err
		}
		out, err := f(ctx, args)
		if err == nil {
			out, err = storable(out)
		}
		if e, ok := out.(client.Encoder); ok && err == nil {
			return answer{e, release}, nil // it may stand in the arguments' memory
		}
		release()
		return out, err
	})
}

// answer lets a call's arguments go when its value has been written.
type answer struct {
	client.Encoder
	release func()
}

func (a answer) Done() {
	a.Encoder.Done()
	a.release()
}

// Serve0 serves a function without arguments.
func Serve0[R any](ctx context.Context, rt *Runtime, name string, concurrency int, f func(context.Context) (R, error)) error {
	return Serve(ctx, rt, name, concurrency, func(ctx context.Context, args []any) (any, error) {
		if err := count(name, args, 0); err != nil {
			return nil, err
		}
		return f(ctx)
	})
}

// Serve1 serves a function with one argument.
func Serve1[A, R any](ctx context.Context, rt *Runtime, name string, concurrency int, f func(context.Context, A) (R, error)) error {
	return Serve(ctx, rt, name, concurrency, func(ctx context.Context, args []any) (any, error) {
		if err := count(name, args, 1); err != nil {
			return nil, err
		}
		a, err := as[A](name, 0, args[0])
		if err != nil {
			return nil, err
		}
		return f(ctx, a)
	})
}

// Serve2 serves a function with two arguments.
func Serve2[A, B, R any](ctx context.Context, rt *Runtime, name string, concurrency int, f func(context.Context, A, B) (R, error)) error {
	return Serve(ctx, rt, name, concurrency, func(ctx context.Context, args []any) (any, error) {
		if err := count(name, args, 2); err != nil {
			return nil, err
		}
		a, err := as[A](name, 0, args[0])
		if err != nil {
			return nil, err
		}
		b, err := as[B](name, 1, args[1])
		if err != nil {
			return nil, err
		}
		return f(ctx, a, b)
	})
}

// Unserve ends the serving of a name and waits for the calls that were taken; those that still wait for it fail.
func Unserve(ctx context.Context, rt *Runtime, name string) error { return rt.c.Withdraw(ctx, name) }
