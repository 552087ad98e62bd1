// Package client is a process's side of the node in Go: it submits tasks, keeps values, waits, and serves functions by name.
//
// It is small on purpose: the Go tests of the engine and bindings/go stand on it. Python and C use capi/client.c instead. Values are plain ones
// (msgpack): nil, bool, int, float, string, []byte, slices and maps.
//
//	c, err := client.Dial(socket, client.Hello{})
//	f := c.Function("statistics:mean", client.Options{NumReturns: 1})
//	ref, err := f.Submit([]float64{1, 2, 3})
//	var mean float64
//	err = c.Get(ctx, ref, &mean)
//	ref.Release()
//
// One goroutine reads the connection. Every method may be called from any goroutine. A [Ref] is held until Release: Go has no destructor that would
// do it in time.
package client
