// Package raygo is raygo for Go: typed values, Python functions by name, and Go functions that Python calls.
//
//	rt, err := raygo.Connect("", raygo.Options{}) // this user's running engine; raygo.Start makes one in this process
//	defer rt.Close()
//	median := raygo.Func1[[]float64, float64](rt, "statistics:median")
//	m, err := median(ctx, []float64{1, 4, 9})
//
//	ref, err := raygo.Put(ctx, rt, Point{1, 2})
//	defer ref.Release()
//	p, err := ref.Get(ctx)
//
//	err = raygo.Serve2(ctx, rt, "go.dot", 4, func(ctx context.Context, a, b []float64) (float64, error) { … })
//
// Values are plain ones, as msgpack has them: nil, bool, numbers, string, []byte, slices, maps and structs (which travel as maps; field tags `msgpack:"name"`).
//
// Besides plain values there are [arrow.Table] and [*Tensor], NumPy's arrays: they stand in shared memory, and are valid until they are released.
//
// A context ends a wait; the error then wraps context.Canceled or context.DeadlineExceeded. Errors of the engine are told apart with errors.Is and the codes
// of this package, such as [ErrTask]. All functions may be called from any goroutine.
package raygo
