package main

/*
#include "collective.h"
*/
import "C"

import (
	"strings"
	"time"
	"unsafe"

	"github.com/raygo/raygo/collective/nccl"
	"github.com/raygo/raygo/engine/errs"
)

var gpuGroups numbered[nccl.Group]

// onGPU finds a group and runs f with it.
func onGPU(number C.uint64_t, err *C.rgc_error, f func(g *nccl.Group) error) C.int {
	g := gpuGroups.get(uint64(number))
	if g == nil {
		return filled(errStale, err)
	}
	return filled(guarded(func() error { return f(g) }), err)
}

// addressOf is a GPU's address, which is not to be a pointer in Go.
func addressOf(p unsafe.Pointer) uintptr { return uintptr(p) }

//export raygoGoNcclOpen
func raygoGoNcclOpen(o *C.rgc_options, paths *C.char, out *C.uint64_t, err *C.rgc_error) C.int {
	return filled(guarded(func() error {
		var where []string
		for _, path := range append([]string{setting("RAYGO_NCCL_LIBRARY")}, append(strings.Split(C.GoString(paths), ":"), "libnccl.so.2")...) {
			if path != "" {
				where = append(where, path)
			}
		}
		if _, err := nccl.Load(where); err != nil {
			return err
		}
		if o.rank < 0 || o.rank >= o.size {
			return errs.New(errs.EINVAL, "a group of %d has no rank %d", int(o.size), int(o.rank))
		}
		timeout := time.Duration(o.timeout_ns)
		if timeout == 0 {
			timeout = 30 * time.Minute
		}
		g, err := nccl.Open(C.GoString(o.name), int(o.rank), int(o.size), timeout, groupStore{&o.store})
		if err != nil {
			return err
		}
		number := gpuGroups.next()
		gpuGroups.things.Store(number, g)
		*out = C.uint64_t(number)
		return nil
	}), err)
}

//export raygoGoNcclRun
func raygoGoNcclRun(number C.uint64_t, c *C.rgc_call, stream C.uintptr_t, err *C.rgc_error) C.int {
	return onGPU(number, err, func(g *nccl.Group) error {
		if c.srcs != nil || c.dsts != nil {
			return errs.New(errs.EINVAL, "a GPU's group takes no blocks of unequal size: use one array with equal parts")
		}
		return g.Run(nccl.Call{
			Kind: int(c.kind), Dtype: int(c.dtype), Op: int(c.op), Root: int(c.root), Count: int(c.count), Src: addressOf(c.src), Dst: addressOf(c.dst),
		}, uintptr(stream))
	})
}

//export raygoGoNcclStart
func raygoGoNcclStart(number C.uint64_t, err *C.rgc_error) C.int {
	return onGPU(number, err, func(g *nccl.Group) error { return g.GroupStart() })
}

//export raygoGoNcclEnd
func raygoGoNcclEnd(number C.uint64_t, stream C.uintptr_t, err *C.rgc_error) C.int {
	return onGPU(number, err, func(g *nccl.Group) error { return g.GroupEnd(uintptr(stream)) })
}

//export raygoGoNcclBroken
func raygoGoNcclBroken(number C.uint64_t, err *C.rgc_error) C.int {
	return onGPU(number, err, func(g *nccl.Group) error { return g.Fault() })
}

//export raygoGoNcclAbort
func raygoGoNcclAbort(number C.uint64_t, why *C.char, err *C.rgc_error) C.int {
	return onGPU(number, err, func(g *nccl.Group) error { g.Abort(C.GoString(why)); return nil })
}

//export raygoGoNcclClose
func raygoGoNcclClose(number C.uint64_t, err *C.rgc_error) C.int {
	g := gpuGroups.drop(uint64(number))
	if g == nil {
		return filled(errStale, err)
	}
	return filled(guarded(func() error { g.Close(); return nil }), err)
}
