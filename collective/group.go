package collective

/*
#include "gostore.h"
*/
import "C"

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"
)

// Type says what the elements of an array are.
type Type uint32

// The types of elements.
const (
	Int8     Type = C.RGC_INT8
	Uint8    Type = C.RGC_UINT8
	Int16    Type = C.RGC_INT16
	Uint16   Type = C.RGC_UINT16
	Int32    Type = C.RGC_INT32
	Uint32   Type = C.RGC_UINT32
	Int64    Type = C.RGC_INT64
	Uint64   Type = C.RGC_UINT64
	Float16  Type = C.RGC_FLOAT16
	BFloat16 Type = C.RGC_BFLOAT16
	Float32  Type = C.RGC_FLOAT32
	Float64  Type = C.RGC_FLOAT64
	Bool     Type = C.RGC_BOOL
)

// Op is how elements are reduced.
type Op uint32

// The reductions.
const (
	Sum     Op = C.RGC_SUM
	Avg     Op = C.RGC_AVG
	Product Op = C.RGC_PRODUCT
	Min     Op = C.RGC_MIN
	Max     Op = C.RGC_MAX
	BitAnd  Op = C.RGC_BAND
	BitOr   Op = C.RGC_BOR
	BitXor  Op = C.RGC_BXOR
)

// AnySource, as the peer of Recv, takes the first message that has the tag.
const AnySource = -1

// Error is why a call failed. After one that broke the group, all calls fail with it.
type Error struct {
	Code    int // of raygo_status.h
	Rank    int // whom it is about, or -1
	Message string
}

func (e *Error) Error() string { return e.Message }

// ErrTimeout is what Get of a Store returns when the key has no value in time.
var ErrTimeout = errors.New("no value in time")

const (
	codeInvalid  = 1
	codeTimedOut = 2
	codeGroup    = 36
)

// Store is where ranks find each other: anything that all of them can reach.
type Store interface {
	Set(key string, value []byte) error
	// Get waits until the key has a value; ErrTimeout after the timeout.
	Get(key string, timeout time.Duration) ([]byte, error)
}

// Folder is a Store: a file for each key in a folder that all ranks can write to.
type Folder string

// Set writes the file of a key.
func (f Folder) Set(key string, value []byte) error {
	return f.use(key, func(folder, k *C.char, err *C.rgc_error) C.int {
		return C.rgc_go_folder_set(folder, k, unsafe.Pointer(unsafe.SliceData(value)), C.size_t(len(value)), err)
	})
}

// Get reads the file of a key, when it is there.
func (f Folder) Get(key string, timeout time.Duration) (value []byte, err error) {
	err = f.use(key, func(folder, k *C.char, e *C.rgc_error) C.int {
		var data unsafe.Pointer
		var n C.size_t
		code := C.rgc_go_folder_get(folder, k, C.int64_t(timeout), &data, &n, e)
		if code == 0 {
			value = C.GoBytes(data, C.int(n))
			C.free(data)
		}
		return code
	})
	return value, err
}

func (f Folder) use(key string, do func(folder, key *C.char, err *C.rgc_error) C.int) error {
	folder, k := C.CString(string(f)), C.CString(key)
	defer C.free(unsafe.Pointer(folder))
	defer C.free(unsafe.Pointer(k))
	var err C.rgc_error
	return failure(do(folder, k, &err), &err)
}

// Options of a group. Name, Rank and Size are needed, and a Store unless the size is 1.
type Options struct {
	Name       string
	Rank, Size int
	Store      Store
	Timeout    time.Duration // of each call, and of the meeting; 0: 30 minutes
	Node       string        // ranks share memory only where it is the same; default: the host's name
	ArenaBytes uint64        // what Alloc can hand out; default: 16 GiB of address space
}

// Group is one rank of a group.
type Group struct {
	c     *C.rgc_group
	store cgo.Handle
	once  sync.Once
	Rank  int
	Size  int
}

func failure(code C.int, err *C.rgc_error) error {
	if code == 0 {
		return nil
	}
	return &Error{int(code), int(err.rank), C.GoString(&err.message[0])}
}

// Open meets the other ranks and returns when all are there.
func Open(o Options) (*Group, error) {
	name, node := C.CString(o.Name), (*C.char)(nil)
	defer C.free(unsafe.Pointer(name))
	if o.Node != "" {
		node = C.CString(o.Node)
		defer C.free(unsafe.Pointer(node))
	}
	g := &Group{Rank: o.Rank, Size: o.Size}
	if o.Store != nil {
		g.store = cgo.NewHandle(o.Store)
	}
	var err C.rgc_error
	code := C.rgc_go_open(name, node, C.int(o.Rank), C.int(o.Size), C.int64_t(o.Timeout), C.size_t(o.ArenaBytes), C.uintptr_t(g.store), &g.c, &err)
	if code != 0 {
		if g.store != 0 {
			g.store.Delete()
		}
		return nil, failure(code, &err)
	}
	C.rgc_hold(g.c) // so that a call on a closed group is an error, not a crash
	runtime.SetFinalizer(g, func(g *Group) {
		// Closing waits for threads, and the finalizers of all else would wait with it.
		go func() {
			g.Close()
			C.rgc_drop(g.c)
		}()
	})
	return g, nil
}

// Close leaves the group. Calls that other ranks still make fail there.
func (g *Group) Close() {
	g.once.Do(func() {
		C.rgc_close(g.c)
		if g.store != 0 {
			g.store.Delete()
		}
	})
}

// Abort breaks the group on all ranks.
func (g *Group) Abort(why string) error {
	text := C.CString(why)
	defer C.free(unsafe.Pointer(text))
	var err C.rgc_error
	return failure(C.rgc_abort(g.c, text, &err), &err)
}

// Broken returns why calls fail from now on, or nil.
func (g *Group) Broken() error {
	var err C.rgc_error
	return failure(C.rgc_broken(g.c, &err), &err)
}

// Alloc returns memory that all ranks of the node see: arrays in it are reduced without copies. It is given back by Free, not by the collector.
func (g *Group) Alloc(n int) ([]byte, error) {
	var p unsafe.Pointer
	var err C.rgc_error
	if code := C.rgc_alloc(g.c, C.size_t(n), &p, &err); code != 0 {
		return nil, failure(code, &err)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Free gives back what Alloc returned, before or after Close.
func (g *Group) Free(b []byte) {
	C.rgc_free(g.c, unsafe.Pointer(unsafe.SliceData(b)))
	runtime.KeepAlive(g)
}

type call struct {
	kind, dtype, op, tag uint32
	root                 int
	count                int
	src, dst             []byte
}

// need checks what C cannot see: how long the slices are.
func (c *call) need(src, dst int) error {
	size := Size(int(c.dtype))
	if len(c.src) < src*c.count*size || len(c.dst) < dst*c.count*size {
		return &Error{codeInvalid, -1, "a slice is shorter than the call says"}
	}
	return nil
}

func (g *Group) run(ctx context.Context, c call) (int, error) {
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return -1, err
		}
		// A group that was closed meanwhile needs no abort, so its error does not matter.
		defer context.AfterFunc(ctx, func() { _ = g.Abort(ctx.Err().Error()) })()
	}
	var err C.rgc_error
	source := C.int(-1)
	code := C.rgc_go_run(g.c, C.uint32_t(c.kind), C.uint32_t(c.dtype), C.uint32_t(c.op), C.int32_t(c.root), C.uint32_t(c.tag), C.size_t(c.count),
		unsafe.Pointer(unsafe.SliceData(c.src)), unsafe.Pointer(unsafe.SliceData(c.dst)), &source, &err)
	runtime.KeepAlive(g)
	return int(source), failure(code, &err)
}

func (g *Group) checked(ctx context.Context, c call, src, dst int) error {
	if err := c.need(src, dst); err != nil {
		return err
	}
	_, err := g.run(ctx, c)
	return err
}

func only(here bool, n int) int {
	if here {
		return n
	}
	return 0
}

// Barrier waits until all ranks are here. When the context of this or of any other call ends first, the group breaks.
func (g *Group) Barrier(ctx context.Context) error {
	return g.checked(ctx, call{kind: C.RGC_BARRIER}, 0, 0)
}

// AllReduce reduces count elements; all ranks get the result in dst, which may be src.
func (g *Group) AllReduce(ctx context.Context, src, dst []byte, count int, t Type, op Op) error {
	return g.checked(ctx, call{kind: C.RGC_ALLREDUCE, dtype: uint32(t), op: uint32(op), count: count, src: src, dst: dst}, 1, 1)
}

// Reduce is AllReduce for one rank; the others need no dst.
func (g *Group) Reduce(ctx context.Context, src, dst []byte, count int, t Type, op Op, root int) error {
	return g.checked(ctx, call{kind: C.RGC_REDUCE, dtype: uint32(t), op: uint32(op), root: root, count: count, src: src, dst: dst}, 1, only(root == g.Rank, 1))
}

// Broadcast gives all ranks what buf holds at root.
func (g *Group) Broadcast(ctx context.Context, buf []byte, count int, t Type, root int) error {
	return g.checked(ctx, call{kind: C.RGC_BROADCAST, dtype: uint32(t), root: root, count: count, src: buf, dst: buf}, 1, 1)
}

// AllGather gives all ranks the arrays of all, one after the other.
func (g *Group) AllGather(ctx context.Context, src, dst []byte, count int, t Type) error {
	return g.checked(ctx, call{kind: C.RGC_ALLGATHER, dtype: uint32(t), count: count, src: src, dst: dst}, 1, g.Size)
}

// ReduceScatter reduces Size times count elements; each rank gets its part.
func (g *Group) ReduceScatter(ctx context.Context, src, dst []byte, count int, t Type, op Op) error {
	return g.checked(ctx, call{kind: C.RGC_REDUCESCATTER, dtype: uint32(t), op: uint32(op), count: count, src: src, dst: dst}, g.Size, 1)
}

// Gather is AllGather for one rank; the others need no dst.
func (g *Group) Gather(ctx context.Context, src, dst []byte, count int, t Type, root int) error {
	return g.checked(ctx, call{kind: C.RGC_GATHER, dtype: uint32(t), root: root, count: count, src: src, dst: dst}, 1, only(root == g.Rank, g.Size))
}

// Scatter gives each rank its part of what src holds at root; the others need no src.
func (g *Group) Scatter(ctx context.Context, src, dst []byte, count int, t Type, root int) error {
	return g.checked(ctx, call{kind: C.RGC_SCATTER, dtype: uint32(t), root: root, count: count, src: src, dst: dst}, only(root == g.Rank, g.Size), 1)
}

// AllToAll gives rank j part j of each rank's src.
func (g *Group) AllToAll(ctx context.Context, src, dst []byte, count int, t Type) error {
	return g.checked(ctx, call{kind: C.RGC_ALLTOALL, dtype: uint32(t), count: count, src: src, dst: dst}, g.Size, g.Size)
}

// Send sends to a rank that receives with the same tag.
func (g *Group) Send(ctx context.Context, src []byte, count int, t Type, to int, tag uint32) error {
	return g.checked(ctx, call{kind: C.RGC_SEND, dtype: uint32(t), root: to, tag: tag, count: count, src: src}, 1, 0)
}

// Recv receives from a rank, or from AnySource, and returns from whom.
func (g *Group) Recv(ctx context.Context, dst []byte, count int, t Type, from int, tag uint32) (int, error) {
	c := call{kind: C.RGC_RECV, dtype: uint32(t), root: from, tag: tag, count: count, dst: dst}
	if err := c.need(0, 1); err != nil {
		return -1, err
	}
	return g.run(ctx, c)
}

// Work is a call that was started.
type Work struct {
	c    *C.rgc_work
	g    *Group
	pins runtime.Pinner
	once sync.Once
	err  error
}

// StartAllReduce is AllReduce in the background, in the order of calls. The slices are the call's until Wait has returned, which must be called.
func (g *Group) StartAllReduce(src, dst []byte, count int, t Type, op Op) (*Work, error) {
	c := call{kind: C.RGC_ALLREDUCE, dtype: uint32(t), op: uint32(op), count: count, src: src, dst: dst}
	if err := c.need(1, 1); err != nil {
		return nil, err
	}
	w := &Work{g: g}
	for _, b := range [][]byte{src, dst} {
		if len(b) > 0 {
			w.pins.Pin(unsafe.SliceData(b))
		}
	}
	var err C.rgc_error
	code := C.rgc_go_start(g.c, C.uint32_t(c.kind), C.uint32_t(c.dtype), C.uint32_t(c.op), 0, 0, C.size_t(count),
		unsafe.Pointer(unsafe.SliceData(src)), unsafe.Pointer(unsafe.SliceData(dst)), &w.c, &err)
	if code != 0 {
		w.pins.Unpin()
		return nil, failure(code, &err)
	}
	return w, nil
}

// Wait returns when the call has ended.
func (w *Work) Wait() error {
	w.once.Do(func() {
		var err C.rgc_error
		w.err = failure(C.rgc_work_wait(w.c, nil, nil, &err), &err)
		C.rgc_work_free(w.c)
		w.pins.Unpin()
		runtime.KeepAlive(w.g)
	})
	return w.err
}

func storeFailed(err error, key, what string, e *C.rgc_error) C.int {
	code := C.int(codeGroup)
	if errors.Is(err, ErrTimeout) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		code = codeTimedOut
	}
	var known *Error
	if errors.As(err, &known) {
		code = C.int(known.Code)
	}
	text := C.CString("The store failed to " + what + " " + key + ": " + err.Error())
	C.rgc_go_say(e, code, text)
	C.free(unsafe.Pointer(text))
	return code
}

//export rgcGoStoreSet
func rgcGoStoreSet(store C.uintptr_t, key *C.char, data unsafe.Pointer, n C.size_t, e *C.rgc_error) C.int {
	k := C.GoString(key)
	if err := cgo.Handle(store).Value().(Store).Set(k, C.GoBytes(data, C.int(n))); err != nil {
		return storeFailed(err, k, "set", e)
	}
	return 0
}

//export rgcGoStoreGet
func rgcGoStoreGet(store C.uintptr_t, key *C.char, timeout C.int64_t, data *unsafe.Pointer, n *C.size_t, e *C.rgc_error) C.int {
	k := C.GoString(key)
	value, err := cgo.Handle(store).Value().(Store).Get(k, time.Duration(timeout))
	if err != nil {
		return storeFailed(err, k, "get", e)
	}
	*data = C.CBytes(value)
	*n = C.size_t(len(value))
	return 0
}
