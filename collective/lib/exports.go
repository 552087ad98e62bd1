// libraygo_collective.so: what collectives need beyond one node's memory. It is a library of its own, as crypto/tls would add 3 MB to what
// every session loads; only ranks of groups on several nodes load it.
package main

/*
#cgo CFLAGS: -std=gnu11 -O2 -D_GNU_SOURCE -I${SRCDIR}/.. -I${SRCDIR}/../../capi/include
#cgo LDFLAGS: -pthread
#include <stdlib.h>
#include <string.h>
#include "net.h"

static int rga_store_set(const rgc_store *s, const char *key, const void *data, size_t n, rgc_error *err) { return s->set(s->arg, key, data, n, err); }
static int rga_store_get(const rgc_store *s, const char *key, int64_t timeout, void **data, size_t *n, rgc_error *err) { return s->get(s->arg, key, timeout, data, n, err); }
static void rga_net_fail(void (*fail)(rgc_group *, int, int, const char *), rgc_group *g, int code, int rank, const char *text) { fail(g, code, rank, text); }
static void rga_p2p_number(rgc_p2p *op, uint64_t id) { op->net = (void *)(uintptr_t)id; }
static void rga_p2p_done(rgc_p2p *op, int code, const char *text) { op->done(op, code, text); }
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/raygo/raygo/collective"
	"github.com/raygo/raygo/collective/tcp"
	"github.com/raygo/raygo/engine/errs"
)

func main() {} // -buildmode=c-shared wants it

// Both are kept by numbers, which C has in place of pointers.
var meshes numbered[tcp.Mesh]

// posted are the messages under way; their numbers are in rgc_p2p.net.
var posted numbered[tcp.Message]

// numbered gives things numbers that are never used twice.
type numbered[T any] struct {
	things sync.Map
	last   atomic.Uint64
}

func (n *numbered[T]) next() uint64 { return n.last.Add(1) }

func (n *numbered[T]) get(number uint64) *T {
	thing, ok := n.things.Load(number)
	if !ok {
		return nil
	}
	return thing.(*T)
}

// drop forgets a number and returns what it stood for.
func (n *numbered[T]) drop(number uint64) *T {
	thing, ok := n.things.LoadAndDelete(number)
	if !ok {
		return nil
	}
	return thing.(*T)
}

// borrow makes a slice of C's memory, for as long as C leaves it.
func borrow(p unsafe.Pointer, n C.size_t) []byte { return unsafe.Slice((*byte)(p), int(n)) }

// guarded runs f; a panic becomes an error.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errs.New(errs.EINTERNAL, "a fault of raygo itself: %v", r)
		}
	}()
	return f()
}

var errStale = errs.New(errs.ESTALE, "the group was closed")

// filled puts an error into C's form and returns its code.
func filled(err error, out *C.rgc_error) C.int {
	if err == nil {
		return 0
	}
	f := tcp.AsFault(err)
	if out != nil {
		out.code, out.rank = C.int(f.Code), C.int(f.Rank)
		text := f.Text
		if len(text) >= len(out.message) {
			text = text[:len(out.message)-1]
		}
		room := unsafe.Slice((*byte)(unsafe.Pointer(&out.message[0])), len(out.message))
		room[copy(room, text)] = 0
	}
	return C.int(f.Code)
}

// groupStore is a group's store, whose callbacks are C's.
type groupStore struct{ s *C.rgc_store }

func storeError(code C.int, err *C.rgc_error, what, key string) error {
	if code == 0 {
		return nil
	}
	text := C.GoString(&err.message[0])
	if text == "" {
		text = fmt.Sprintf("the store could not %s %q", what, key)
	}
	return errs.New(errs.Code(code), "%s", text)
}

func (g groupStore) Set(key string, value []byte) error {
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	err := (*C.rgc_error)(C.calloc(1, C.sizeof_rgc_error))
	defer C.free(unsafe.Pointer(err))
	return storeError(C.rga_store_set(g.s, name, unsafe.Pointer(unsafe.SliceData(value)), C.size_t(len(value)), err), err, "write", key)
}

func (g groupStore) Get(key string, timeout time.Duration) ([]byte, error) {
	name := C.CString(key)
	defer C.free(unsafe.Pointer(name))
	err := (*C.rgc_error)(C.calloc(1, C.sizeof_rgc_error))
	defer C.free(unsafe.Pointer(err))
	var data unsafe.Pointer
	var n C.size_t
	code := C.rga_store_get(g.s, name, C.int64_t(timeout), &data, &n, err)
	defer C.free(data)
	if code != 0 {
		return nil, storeError(code, err, "read", key)
	}
	return C.GoBytes(data, C.int(n)), nil
}

// setting reads the environment as it is now: Go's copy dates from when the library was loaded.
func setting(names ...string) string {
	for _, name := range names {
		c := C.CString(name)
		value := C.GoString(C.getenv(c))
		C.free(unsafe.Pointer(c))
		if value != "" {
			return value
		}
	}
	return ""
}

// netSettings fills in what users choose by variables.
func netSettings(cfg *tcp.Config) error {
	cfg.Where = tcp.Where{Address: setting("RAYGO_COLLECTIVE_ADDRESS"), Interface: setting("RAYGO_COLLECTIVE_INTERFACE", "GLOO_SOCKET_IFNAME")}
	if n := setting("RAYGO_COLLECTIVE_STREAMS"); n != "" {
		streams, err := strconv.Atoi(n)
		if err != nil || streams < 1 || streams > tcp.MaxStreams {
			return errs.New(errs.EINVAL, "RAYGO_COLLECTIVE_STREAMS is %q; it is a number of connections from 1 to %d", n, tcp.MaxStreams)
		}
		cfg.Streams = streams
	}
	cfg.Token = []byte(setting("RAY_AUTH_TOKEN"))
	if path := setting("RAY_AUTH_TOKEN_PATH"); len(cfg.Token) == 0 && path != "" {
		token, err := os.ReadFile(path)
		if err != nil {
			return errs.New(errs.EINVAL, "the token that RAY_AUTH_TOKEN_PATH names cannot be read: %w", err)
		}
		cfg.Token = []byte(strings.TrimSpace(string(token)))
	}
	if on := setting("RAY_USE_TLS"); on != "" && on != "0" && !strings.EqualFold(on, "false") {
		cfg.TLS = &tcp.TLS{Certificate: setting("RAY_TLS_SERVER_CERT"), Key: setting("RAY_TLS_SERVER_KEY"), CA: setting("RAY_TLS_CA_CERT")}
	}
	return nil
}

func ints(p *C.int, n int) []int {
	out := make([]int, n)
	for i, v := range unsafe.Slice(p, n) {
		out[i] = int(v)
	}
	return out
}

//export raygoGoNetOpen
func raygoGoNetOpen(spec *C.rgc_net_spec, out *C.uint64_t, err *C.rgc_error) C.int {
	return filled(guarded(func() error {
		cfg := tcp.Config{
			Name: C.GoString(spec.name), Rank: int(spec.rank), Size: int(spec.size), Node: int(spec.node), Nodes: int(spec.nodes),
			NodeOf: ints(spec.node_of, int(spec.size)), LeaderOf: ints(spec.leader_of, int(spec.nodes)),
			Store: groupStore{spec.store}, Timeout: time.Duration(spec.timeout_ns), Fork: func(fd int, on bool) { C.rga_net_fork(C.int(fd), toC(on)) },
			Kernel: tcp.Kernel{Size: collective.Size, Reduce: collective.Reduce, Fold: collective.Fold, Name: collective.CallName},
		}
		for _, name := range unsafe.Slice(spec.node_names, spec.nodes) {
			cfg.NodeNames = append(cfg.NodeNames, C.GoString(name))
		}
		fail, group := spec.fail, spec.group
		cfg.Fail = func(f *tcp.Fault) {
			text := C.CString(f.Text)
			defer C.free(unsafe.Pointer(text))
			C.rga_net_fail(fail, group, C.int(f.Code), C.int(f.Rank), text)
		}
		if err := netSettings(&cfg); err != nil {
			return err
		}
		mesh, err := tcp.Open(cfg)
		if err != nil {
			return err
		}
		number := meshes.next()
		meshes.things.Store(number, mesh)
		*out = C.uint64_t(number)
		return nil
	}), err)
}

func toC(on bool) C.int {
	if on {
		return 1
	}
	return 0
}

// collectively runs one collective of a mesh.
func collectively(handle C.uint64_t, err *C.rgc_error, f func(m *tcp.Mesh) error) C.int {
	m := meshes.get(uint64(handle))
	if m == nil {
		return filled(errStale, err)
	}
	return filled(guarded(func() error { return f(m) }), err)
}

func netOffsets(p *C.size_t, m *tcp.Mesh) []int {
	out := make([]int, m.Nodes()+1)
	for i, v := range unsafe.Slice(p, len(out)) {
		out[i] = int(v)
	}
	return out
}

//export raygoGoNetAllreduce
func raygoGoNetAllreduce(handle C.uint64_t, buf unsafe.Pointer, count C.size_t, dtype, op C.int, timeout C.int64_t, err *C.rgc_error) C.int {
	return collectively(handle, err, func(m *tcp.Mesh) error {
		return m.Allreduce(borrow(buf, count*C.size_t(collective.Size(int(dtype)))), int(count), int(dtype), int(op), time.Duration(timeout))
	})
}

//export raygoGoNetAllgather
func raygoGoNetAllgather(handle C.uint64_t, buf unsafe.Pointer, offsets *C.size_t, timeout C.int64_t, err *C.rgc_error) C.int {
	return collectively(handle, err, func(m *tcp.Mesh) error {
		at := netOffsets(offsets, m)
		return m.Allgather(borrow(buf, C.size_t(at[len(at)-1])), at, time.Duration(timeout))
	})
}

//export raygoGoNetReducescatter
func raygoGoNetReducescatter(handle C.uint64_t, buf unsafe.Pointer, offsets *C.size_t, dtype, op C.int, timeout C.int64_t, err *C.rgc_error) C.int {
	return collectively(handle, err, func(m *tcp.Mesh) error {
		at := netOffsets(offsets, m)
		return m.Reducescatter(borrow(buf, C.size_t(at[len(at)-1]*collective.Size(int(dtype)))), at, int(dtype), int(op), time.Duration(timeout))
	})
}

//export raygoGoNetBroadcast
func raygoGoNetBroadcast(handle C.uint64_t, buf unsafe.Pointer, bytes C.size_t, root C.int, timeout C.int64_t, err *C.rgc_error) C.int {
	return collectively(handle, err, func(m *tcp.Mesh) error { return m.Broadcast(borrow(buf, bytes), int(root), time.Duration(timeout)) })
}

//export raygoGoNetPost
func raygoGoNetPost(handle C.uint64_t, op *C.rgc_p2p) {
	id := posted.next()
	done := func(f *tcp.Fault) {
		posted.drop(id)
		if f == nil {
			C.rga_p2p_done(op, 0, nil)
			return
		}
		text := C.CString(f.Text)
		defer C.free(unsafe.Pointer(text))
		C.rga_p2p_done(op, C.int(f.Code), text)
	}
	m := meshes.get(uint64(handle))
	if m == nil {
		done(tcp.AsFault(errStale))
		return
	}
	x := &tcp.Message{Send: op.kind == C.RGC_SEND, Peer: int(op.peer), Tag: uint32(op.tag), Buf: borrow(op.buf, op.bytes), Done: done}
	// Before it is posted: then it may end at any time, and its memory with it.
	posted.things.Store(id, x)
	C.rga_p2p_number(op, C.uint64_t(id))
	m.Post(x)
}

//export raygoGoNetCancel
func raygoGoNetCancel(handle C.uint64_t, op *C.rgc_p2p) C.int {
	id := uint64(uintptr(op.net))
	x, m := posted.get(id), meshes.get(uint64(handle))
	if x == nil || m == nil || !m.Cancel(x) {
		return 0
	}
	posted.drop(id)
	return 1
}

//export raygoGoNetAbort
func raygoGoNetAbort(handle C.uint64_t, code, rank C.int, why *C.char) {
	if m := meshes.get(uint64(handle)); m != nil {
		m.Abort(&tcp.Fault{Code: errs.Code(code), Rank: int(rank), Text: C.GoString(why)})
	}
}

//export raygoGoNetClose
func raygoGoNetClose(handle C.uint64_t) {
	if m := meshes.drop(uint64(handle)); m != nil {
		m.Close()
	}
}
