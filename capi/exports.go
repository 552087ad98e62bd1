package main

/*
#cgo CFLAGS: -std=gnu11 -O2 -D_GNU_SOURCE -I${SRCDIR}/include -I${SRCDIR}/../collective
#cgo LDFLAGS: -pthread
#include <stdlib.h>
#include "engine.h"

static inline void raygo_call_deliver(raygo_deliver_fn f, void *ctx, void *frames, size_t n) { f(ctx, frames, n); }
static inline void raygo_call_fd(raygo_fd_fn f, int fd, int on) { f(fd, on); }
*/
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/raygo/raygo/collective"
	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/version"
)

func main() {} // -buildmode=c-shared wants it

var (
	engines table[engine.Node]
	conns   table[engine.Conn]
)

func init() {
	// With a single thread for Go code, a reply waits for the thread that submitted: twice the latency.
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
}

// borrow makes a slice of C's memory, for the call.
func borrow(p unsafe.Pointer, n C.size_t) []byte { return unsafe.Slice((*byte)(p), int(n)) }

// said turns an error into a code and a message that C frees.
func said(err error, message **C.char) C.int32_t {
	if err == nil {
		return 0
	}
	if message != nil {
		*message = C.CString(err.Error())
	}
	return C.int32_t(errs.CodeOf(err))
}

// guarded runs f; a panic becomes an error.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errs.New(errs.EINTERNAL, "a fault of raygo itself: %v", r)
		}
	}()
	return f()
}

func stale(what string) error {
	return errs.New(errs.ESTALE, "the %s that was named is not there any more", what)
}

//export raygoGoVersion
func raygoGoVersion() *C.char { return C.CString(version.Version) }

//export raygoGoCollectives
func raygoGoCollectives() unsafe.Pointer { return collective.API() }

//export raygoGoStart
func raygoGoStart(options unsafe.Pointer, n C.size_t, fds C.raygo_fd_fn, out *C.uint64_t, message **C.char) C.int32_t {
	return said(guarded(func() error {
		opts, err := engine.ParseOptions(borrow(options, n))
		if err != nil {
			return err
		}
		if fds != nil {
			opts.RegisterFD = func(fd int, on bool) {
				mark := C.int(0)
				if on {
					mark = 1
				}
				C.raygo_call_fd(fds, C.int(fd), mark)
			}
		}
		node, err := engine.Start(opts)
		if err != nil {
			return err
		}
		*out = C.uint64_t(engines.add(node))
		return nil
	}), message)
}

//export raygoGoAttach
func raygoGoAttach(handle C.uint64_t, deliver C.raygo_deliver_fn, ctx unsafe.Pointer, hello unsafe.Pointer, n C.size_t, out *C.uint64_t, message **C.char) C.int32_t {
	return said(guarded(func() error {
		node := engines.get(uint64(handle))
		if node == nil {
			return stale("engine")
		}
		conn, err := node.Attach(borrow(hello, n), func(frames []byte) {
			C.raygo_call_deliver(deliver, ctx, unsafe.Pointer(&frames[0]), C.size_t(len(frames)))
		})
		if err != nil {
			return err
		}
		*out = C.uint64_t(conns.add(conn))
		return nil
	}), message)
}

//export raygoGoInput
func raygoGoInput(handle C.uint64_t, frames unsafe.Pointer, n C.size_t) (code C.int32_t) {
	conn := conns.get(uint64(handle))
	if conn == nil {
		return C.int32_t(errs.ESTALE)
	}
	if err := conn.Input(borrow(frames, n)); err != nil {
		return C.int32_t(errs.CodeOf(err))
	}
	return 0
}

//export raygoGoDetach
func raygoGoDetach(handle C.uint64_t) C.int32_t {
	conn := conns.drop(uint64(handle))
	if conn == nil {
		return C.int32_t(errs.ESTALE)
	}
	return said(guarded(func() error { conn.Detach(); return nil }), nil)
}

//export raygoGoStop
func raygoGoStop(handle C.uint64_t, timeout C.int64_t, message **C.char) C.int32_t {
	node := engines.drop(uint64(handle))
	if node == nil {
		return said(stale("engine"), message)
	}
	// A connection holds its node, and all that was in it: it ends with the engine whether or not it was detached.
	defer conns.dropWhere(func(c *engine.Conn) bool { return c.Of(node) })
	return said(guarded(func() error {
		if err := node.Stop(time.Duration(timeout)); err != nil {
			return fmt.Errorf("stopping the engine: %w", err)
		}
		return nil
	}), message)
}
