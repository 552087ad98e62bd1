package nccl

/*
#cgo CFLAGS: -std=gnu11 -O2 -D_GNU_SOURCE
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "nccl.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/raygo/raygo/engine/errs"
)

// Store is where rank 0 leaves what the others need to find it.
type Store interface {
	Set(key string, value []byte) error
	Get(key string, timeout time.Duration) ([]byte, error)
}

// askEvery is how often NCCL is asked whether something has failed; it has no way to tell by itself.
const askEvery = 100 * time.Millisecond

var library struct {
	sync.Mutex
	path string
}

// Load opens NCCL: the first of the paths that can be. It returns the version, as in 22704 for 2.27.4.
func Load(paths []string) (version int, err error) {
	library.Lock()
	defer library.Unlock()
	var tried []string
	for _, path := range paths {
		if library.path != "" {
			break
		}
		c := C.CString(path)
		var why *C.char
		if C.nccl_load(c, &why) != 0 {
			library.path = path
		} else {
			tried = append(tried, C.GoString(why))
			C.free(unsafe.Pointer(why))
		}
		C.free(unsafe.Pointer(c))
	}
	if library.path == "" {
		return 0, errs.New(errs.ENOTFOUND, "NCCL was not found: %s. Install it (pip install nvidia-nccl-cu12, or torch with CUDA), or name libnccl.so.2 in RAYGO_NCCL_LIBRARY", strings.Join(tried, "; "))
	}
	var v C.int
	if code := C.nccl_version(&v); code != 0 {
		return 0, failed(0, "ncclGetVersion", code)
	}
	return int(v), nil
}

// failed puts a code of NCCL's into words.
func failed(comm C.uintptr_t, what string, code C.int) error {
	text := C.GoString(C.nccl_words(code))
	if last := C.GoString(C.nccl_last_error(comm)); last != "" {
		text += " (" + last + ")"
	}
	return errs.New(errs.EGROUP, "%s failed: %s. NCCL_DEBUG=INFO makes NCCL say more", what, text)
}

// Group is a rank's communicator.
type Group struct {
	name       string
	rank, size int
	timeout    time.Duration
	stop, done chan struct{}
	once       sync.Once
	wanted     atomic.Pointer[error] // an Abort that may have to wait for mu
	mu         struct {
		sync.Mutex
		comm    C.uintptr_t // 0: aborted or destroyed
		fault   error
		context C.uintptr_t
		pending []queued // in order
		grouped int      // depth of GroupStart
	}
}

// queued is a call that the GPU may not have done yet.
type queued struct {
	what  string
	since time.Time
	event C.uintptr_t
}

// Open makes a group; all ranks call it, each with its GPU current. timeout < 0: none.
func Open(name string, rank, size int, timeout time.Duration, store Store) (*Group, error) {
	key := name + "/nccl"
	var id C.nccl_id
	room := unsafe.Slice((*byte)(unsafe.Pointer(&id)), C.sizeof_nccl_id)
	if rank == 0 {
		if code := C.nccl_unique_id(&id); code != 0 {
			return nil, failed(0, "ncclGetUniqueId", code)
		}
		if err := store.Set(key, append([]byte(nil), room...)); err != nil {
			return nil, fmt.Errorf("group %q: rank 0 cannot write to the store: %w", name, err)
		}
	} else {
		said, err := store.Get(key, timeout)
		if err != nil {
			return nil, fmt.Errorf("group %q: rank %d waits for rank 0: %w", name, rank, err)
		}
		if copy(room, said) != len(room) || len(said) != len(room) {
			return nil, errs.New(errs.EGROUP, "group %q: rank 0 wrote %d bytes where NCCL's id has %d", name, len(said), len(room))
		}
	}
	g := &Group{name: name, rank: rank, size: size, timeout: timeout, stop: make(chan struct{}), done: make(chan struct{})}
	code := C.nccl_init(&g.mu.comm, C.int(size), &id, C.int(rank))
	if code != C.NCCL_SUCCESS && code != C.NCCL_IN_PROGRESS {
		err := failed(0, fmt.Sprintf("making the communicator of rank %d of %d", rank, size), code)
		if g.mu.comm != 0 {
			C.nccl_abort(g.mu.comm)
		}
		return nil, err
	}
	if err := g.settle(fmt.Sprintf("making the communicator of rank %d of %d of group %q", rank, size, name)); err != nil {
		return nil, err
	}
	if C.nccl_has_driver() != 0 {
		C.nccl_context(&g.mu.context)
	}
	go g.watch()
	return g, nil
}

// settle waits until NCCL has done what a call began; mu is held, or nobody else knows g. What takes too long is aborted.
func (g *Group) settle(what string) error {
	began, pause := time.Now(), 50*time.Microsecond
	for {
		var state C.int
		if code := C.nccl_async_error(g.mu.comm, &state); code != C.NCCL_SUCCESS {
			state = code
		}
		switch {
		case g.wanted.Load() != nil:
			g.abort(*g.wanted.Load())
			return g.mu.fault
		case state == C.NCCL_SUCCESS:
			return nil
		case state != C.NCCL_IN_PROGRESS:
			err := failed(g.mu.comm, what, state)
			g.abort(err)
			return err
		case g.timeout >= 0 && time.Since(began) > g.timeout:
			err := errs.New(errs.ETIMEDOUT, "%s did not end within %v: not all %d ranks came, or they cannot reach each other", what, g.timeout, g.size)
			g.abort(err)
			return err
		}
		time.Sleep(pause) // there is nothing to wait for
		pause = min(2*pause, 5*time.Millisecond)
	}
}

// abort ends the communicator; mu is held, or nobody else knows g.
func (g *Group) abort(why error) {
	if g.mu.fault == nil {
		g.mu.fault = why
	}
	if g.mu.comm != 0 {
		C.nccl_abort(g.mu.comm)
		g.mu.comm = 0
	}
}

// Abort ends what is queued on the GPU and waits for other ranks. Later calls fail with the same words.
func (g *Group) Abort(why string) {
	err := error(errs.New(errs.EGROUP, "%s", why))
	g.wanted.CompareAndSwap(nil, &err)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.abort(err)
}

// Fault is why the group is broken; nil: it is not.
func (g *Group) Fault() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.fault
}

// Close gives the communicator back. What was queued is finished first, unless the group is broken.
func (g *Group) Close() {
	g.once.Do(func() {
		close(g.stop)
		<-g.done
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.mu.comm != 0 {
			code := C.nccl_finalize(g.mu.comm)
			if (code == C.NCCL_SUCCESS || code == C.NCCL_IN_PROGRESS) && g.settle("ending the communicator") == nil {
				C.nccl_destroy(g.mu.comm)
			} else if g.mu.comm != 0 {
				C.nccl_abort(g.mu.comm)
			}
			g.mu.comm = 0
		}
		if g.mu.fault == nil {
			g.mu.fault = errs.New(errs.ESTALE, "group %q was closed", g.name)
		}
		for _, q := range g.mu.pending {
			C.nccl_event_free(q.event)
		}
		g.mu.pending = nil
	})
}

// watch asks NCCL for faults and the driver for what has been done, until Close.
func (g *Group) watch() {
	defer close(g.done)
	runtime.LockOSThread() // the driver's context is a thread's; the thread ends with the goroutine
	if g.mu.context != 0 {
		C.nccl_enter(g.mu.context)
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-tick.C:
			g.look()
		}
	}
}

func (g *Group) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.comm == 0 {
		return
	}
	var state C.int
	if code := C.nccl_async_error(g.mu.comm, &state); code != C.NCCL_SUCCESS {
		state = code
	}
	if state != C.NCCL_SUCCESS && state != C.NCCL_IN_PROGRESS {
		g.abort(failed(g.mu.comm, fmt.Sprintf("group %q of rank %d", g.name, g.rank), state))
		return
	}
	for len(g.mu.pending) > 0 {
		q := g.mu.pending[0]
		if C.nccl_event_query(q.event) == C.CUDA_NOT_READY {
			if g.timeout >= 0 && time.Since(q.since) > g.timeout {
				g.abort(errs.New(errs.ETIMEDOUT, "%s of group %q was not done on the GPU of rank %d within %v: another rank is late or gone", q.what, g.name, g.rank, g.timeout))
			}
			return
		}
		C.nccl_event_free(q.event)
		g.mu.pending = g.mu.pending[1:]
	}
}

// Call is one collective or message. Sizes are in elements, addresses are the GPU's.
type Call struct {
	Kind, Dtype, Op, Root int
	Count                 int
	Src, Dst              uintptr
}

// Run queues a call on a stream.
func (g *Group) Run(c Call, stream uintptr) error {
	if c.Kind < 0 || c.Kind >= len(kindNames) {
		return errs.New(errs.EINVAL, "there is no call %d", c.Kind)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.fault != nil {
		return g.mu.fault
	}
	what := fmt.Sprintf("%s of %d elements", kindNames[c.Kind], c.Count)
	code, err := g.queue(c, stream)
	if err != nil {
		return err
	}
	return g.begun(what, code, stream)
}

// begun sees to a call that NCCL has taken, or not.
func (g *Group) begun(what string, code C.int, stream uintptr) error {
	if code != C.NCCL_SUCCESS && code != C.NCCL_IN_PROGRESS {
		err := failed(g.mu.comm, what, code)
		g.abort(err)
		return err
	}
	if g.mu.grouped > 0 {
		return nil // it begins with GroupEnd
	}
	if code == C.NCCL_IN_PROGRESS {
		if err := g.settle(what); err != nil {
			return err
		}
	}
	if g.mu.context == 0 {
		return nil
	}
	q := queued{what: what, since: time.Now()}
	if code := C.nccl_event_record(&q.event, C.uintptr_t(stream)); code != 0 {
		err := errs.New(errs.EGROUP, "%s: the CUDA driver could not record an event (error %d)", what, code)
		g.abort(err)
		return err
	}
	g.mu.pending = append(g.mu.pending, q)
	return nil
}

func (g *Group) queue(c Call, stream uintptr) (C.int, error) {
	comm, n, on := g.mu.comm, C.size_t(c.Count), C.uintptr_t(stream)
	src, dst := C.uintptr_t(c.Src), C.uintptr_t(c.Dst)
	switch c.Kind {
	case kindAllreduce, kindReduce, kindReducescatter:
		t, op, err := reduction(c.Dtype, c.Op)
		if err != nil {
			return 0, err
		}
		switch c.Kind {
		case kindAllreduce:
			return C.nccl_all_reduce(src, dst, n, C.int(t), C.int(op), comm, on), nil
		case kindReduce:
			return C.nccl_reduce(src, dst, n, C.int(t), C.int(op), C.int(c.Root), comm, on), nil
		}
		return C.nccl_reduce_scatter(src, dst, n, C.int(t), C.int(op), comm, on), nil
	}
	t, count, err := movement(c.Dtype, c.Count)
	if err != nil {
		return 0, err
	}
	kind, m := C.int(t), C.size_t(count)
	switch c.Kind {
	case kindBroadcast:
		return C.nccl_broadcast(src, dst, m, kind, C.int(c.Root), comm, on), nil
	case kindAllgather:
		return C.nccl_all_gather(src, dst, m, kind, comm, on), nil
	case kindSend:
		return C.nccl_send(src, m, kind, C.int(c.Root), comm, on), nil
	case kindRecv:
		return C.nccl_recv(dst, m, kind, C.int(c.Root), comm, on), nil
	case kindGather, kindScatter, kindAlltoall:
		return g.pairs(c, count, kind, stream), nil
	}
	return 0, errs.New(errs.EINVAL, "%s is no call on a GPU: reduce one element, or wait on the CPU", kindNames[c.Kind])
}

// pairs makes gather, scatter and alltoall of sends and receives, which NCCL runs together.
func (g *Group) pairs(c Call, count int, kind C.int, stream uintptr) C.int {
	bytes := count
	for i := range types {
		if types[i].nccl == int(kind) {
			bytes = count * types[i].size
			break
		}
	}
	m, comm, on := C.size_t(count), g.mu.comm, C.uintptr_t(stream)
	part := func(p uintptr, rank int) C.uintptr_t { return C.uintptr_t(p + uintptr(rank*bytes)) }
	code := C.nccl_group_start()
	do := func(f func() C.int) {
		if code == C.NCCL_SUCCESS {
			code = f()
		}
	}
	atRoot := g.rank == c.Root
	for peer := range g.size {
		if c.Kind == kindAlltoall || c.Kind == kindScatter && atRoot {
			do(func() C.int { return C.nccl_send(part(c.Src, peer), m, kind, C.int(peer), comm, on) })
		}
		if c.Kind == kindAlltoall || c.Kind == kindGather && atRoot {
			do(func() C.int { return C.nccl_recv(part(c.Dst, peer), m, kind, C.int(peer), comm, on) })
		}
	}
	if c.Kind == kindGather {
		do(func() C.int { return C.nccl_send(part(c.Src, 0), m, kind, C.int(c.Root), comm, on) })
	}
	if c.Kind == kindScatter {
		do(func() C.int { return C.nccl_recv(part(c.Dst, 0), m, kind, C.int(c.Root), comm, on) })
	}
	if end := C.nccl_group_end(); code == C.NCCL_SUCCESS {
		code = end
	}
	return code
}

// GroupStart begins calls that NCCL is to run together. It holds for this thread, so the goroutine must stay on one.
func (g *Group) GroupStart() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.fault != nil {
		return g.mu.fault
	}
	if code := C.nccl_group_start(); code != C.NCCL_SUCCESS {
		return failed(g.mu.comm, "ncclGroupStart", code)
	}
	g.mu.grouped++
	return nil
}

// GroupEnd runs the calls since GroupStart.
func (g *Group) GroupEnd(stream uintptr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.grouped == 0 {
		return errs.New(errs.EINVAL, "GroupEnd without GroupStart")
	}
	g.mu.grouped--
	code := C.nccl_group_end()
	if g.mu.fault != nil {
		return g.mu.fault
	}
	return g.begun("a group of calls", code, stream)
}
