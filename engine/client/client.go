package client

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"

	"github.com/vmihailenco/msgpack/v5"
	"golang.org/x/sys/unix"
)

// Hello says who connects.
type Hello struct {
	Role        string // "driver" (default) or "client"
	Namespace   string
	SysPath     []string // where workers import from
	Cwd         string
	Executable  string
	Env         map[string]string
	RuntimeEnv  string // JSON text
	LogToDriver bool
	JobName     string
	OnLog       func(map[string]any) // called by the reading goroutine
}

// Client is one connection to a node engine.
type Client struct {
	send      func([]byte) error // whole frames
	hangUp    func()
	arena     []byte // mapped, read-write; nil: not yet
	arenaFD   int
	size      int64
	enginePID int // whose descriptors name the files of objects outside the arena
	Welcome   map[string]any
	hello     Hello

	number  atomic.Uint64
	request atomic.Uint64
	nextDef atomic.Uint64

	mu struct {
		sync.Mutex
		objects map[wire.OID]*object
		replies map[uint64]chan reply
		spaces  map[wire.OID]chan wire.CreatedFrame
		places  map[wire.OID][]chan wire.Value
		served  map[string]Handler
		defs    map[uint64]string // the engine's templates → names, of what it wants served
		closed  error
		views   int // uses of the arena, which stays mapped for them
	}
	welcomed chan struct{}
	refused  chan error
	once     sync.Once
	serving  sync.WaitGroup // calls that were taken and not yet answered
}

type reply struct {
	code errs.Code
	raw  []byte
}

// object is what this process knows of a value.
type object struct {
	ready chan struct{} // closed when value is set
	value wire.Value    // Data owned
	asked bool
	refs  int
}

func (h *Hello) encode() []byte {
	role := h.Role
	if role == "" {
		role = "driver"
	}
	b, err := msgpack.Marshal(map[string]any{
		"version": version.Version, "role": role, "pid": os.Getpid(), "namespace": h.Namespace, "sys_path": h.SysPath, "cwd": h.Cwd, "executable": h.Executable,
		"runtime_env": h.RuntimeEnv, "log_to_driver": h.LogToDriver, "env": h.Env, "job_name": h.JobName,
	})
	if err != nil {
		panic(err) // strings and maps of strings only
	}
	return b
}

func newClient(h Hello) *Client {
	c := &Client{hello: h, arenaFD: -1, welcomed: make(chan struct{}), refused: make(chan error, 1)}
	c.mu.objects = map[wire.OID]*object{}
	c.mu.replies = map[uint64]chan reply{}
	c.mu.spaces = map[wire.OID]chan wire.CreatedFrame{}
	c.mu.places = map[wire.OID][]chan wire.Value{}
	c.mu.served = map[string]Handler{}
	c.mu.defs = map[uint64]string{}
	return c
}

// Attach is what an engine in this process offers: it takes the HELLO and a function for frames, and returns functions for input and the end.
type Attach func(hello []byte, deliver func([]byte)) (input func([]byte) error, detach func(), err error)

// Embed connects to an engine in this process. deliver must not call back into the engine, so frames are dealt with by a goroutine.
func Embed(attach Attach, h Hello) (*Client, error) {
	c := newClient(h)
	var q struct {
		sync.Mutex
		sync.Cond
		buf  []byte
		done bool
	}
	q.L = &q.Mutex
	input, detach, err := attach(h.encode(), func(frames []byte) {
		q.Lock()
		q.buf = append(q.buf, frames...)
		q.Unlock()
		q.Signal()
	})
	if err != nil {
		return nil, err
	}
	c.send, c.enginePID = input, os.Getpid()
	c.hangUp = func() {
		detach()
		q.Lock()
		q.done = true
		q.Unlock()
		q.Signal()
	}
	go func() {
		var spare []byte
		for {
			q.Lock()
			for len(q.buf) == 0 && !q.done {
				q.Wait()
			}
			in := q.buf
			q.buf = spare[:0]
			done := q.done
			q.Unlock()
			if _, err := c.frames(in); err != nil || done {
				c.lost(errs.New(errs.ESHUTDOWN, "the connection to the engine was closed"))
				return
			}
			spare = in
		}
	}()
	return c, c.await(context.Background())
}

// Dial connects to an engine's socket.
func Dial(path string, h Hello) (*Client, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return nil, errs.New(errs.ECONNECTION, "no engine answers at %s: %w", path, err)
	}
	c := newClient(h)
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("getsockopt", err)
	}
	c.enginePID = int(who.Pid)
	var wmu sync.Mutex
	c.send = func(b []byte) error {
		wmu.Lock()
		defer wmu.Unlock()
		for len(b) > 0 {
			k, err := unix.SendmsgN(fd, b, nil, nil, unix.MSG_NOSIGNAL)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return errs.New(errs.ECONNECTION, "the connection to the engine is gone: %w", err)
			}
			b = b[k:]
		}
		return nil
	}
	c.hangUp = func() { unix.Shutdown(fd, unix.SHUT_RDWR) }
	if err := c.send(wire.AppendFrame(nil, wire.Hello, 0, 0, h.encode())); err != nil {
		unix.Close(fd)
		return nil, err
	}
	go c.read(fd)
	return c, c.await(context.Background())
}

func (c *Client) read(fd int) {
	defer unix.Close(fd)
	buf := make([]byte, 64<<10)
	control := make([]byte, unix.CmsgSpace(4))
	filled := 0
	for {
		k, oobn, _, _, err := unix.Recvmsg(fd, buf[filled:], control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || k == 0 {
			c.lost(errs.New(errs.ECONNECTION, "the engine closed the connection"))
			return
		}
		if oobn > 0 {
			c.takeFD(control[:oobn])
		}
		filled += k
		used, err := c.frames(buf[:filled])
		if err != nil {
			c.lost(err)
			return
		}
		filled = copy(buf, buf[used:filled])
		if _, next, _ := wire.Whole(buf[:filled]); next > len(buf) {
			buf = append(buf, make([]byte, next-len(buf))...)
		}
	}
}

func (c *Client) takeFD(control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) > 0 {
			c.arenaFD = fds[0]
		}
	}
}

func (c *Client) await(ctx context.Context) error {
	select {
	case <-c.welcomed:
		return nil
	case err := <-c.refused:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lost ends the client: everything that waits gets the error.
func (c *Client) lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed != nil {
		return
	}
	c.mu.closed = err
	select {
	case c.refused <- err:
	default:
	}
	for id, ch := range c.mu.replies {
		delete(c.mu.replies, id)
		close(ch)
	}
	for oid, ch := range c.mu.spaces {
		delete(c.mu.spaces, oid)
		close(ch)
	}
	for oid, chs := range c.mu.places {
		delete(c.mu.places, oid)
		for _, ch := range chs {
			close(ch)
		}
	}
	for _, o := range c.mu.objects {
		select {
		case <-o.ready:
		default:
			b, _ := msgpack.Marshal(map[string]any{"code": int(errs.CodeOf(err)), "message": err.Error()})
			o.value = wire.Value{Kind: wire.SysErr, IsError: true, Data: b}
			close(o.ready)
		}
	}
}

// Close ends the connection. What this process held is released by the engine.
func (c *Client) Close() {
	c.once.Do(func() {
		c.hangUp()
		c.lost(errs.New(errs.ESHUTDOWN, "the client was closed"))
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unmap()
		if c.arenaFD >= 0 && c.ownsFD() {
			unix.Close(c.arenaFD)
		}
		c.arenaFD = -1
	})
}

// unmap lets the arena go after Close and the last view. mu is held.
func (c *Client) unmap() {
	if c.mu.closed != nil && c.mu.views == 0 && c.arena != nil {
		unix.Munmap(c.arena)
		c.arena = nil
	}
}

// ownsFD: an embedded engine's descriptor is the engine's.
func (c *Client) ownsFD() bool { fd, _ := c.Welcome["arena_fd"].(int64); return fd < 0 }

// frames dispatches the whole frames of in and says how many bytes these were.
func (c *Client) frames(in []byte) (used int, err error) {
	total := len(in)
	for {
		h, payload, rest, err := wire.Next(in)
		if err == wire.ErrShort {
			return total - len(in), nil
		}
		if err == nil {
			err = c.frame(h, payload)
		}
		if err != nil {
			return total - len(in), err
		}
		in = rest
	}
}

func (c *Client) frame(h wire.Header, b []byte) error {
	switch h.Type {
	case wire.Welcome:
		return c.onWelcome(b)
	case wire.Object:
		v, err := wire.ParseValue(b)
		if err == nil {
			c.onObject(wire.OID{Task: h.ID, Index: v.Index}, v)
		}
		return err
	case wire.Reply:
		c.onReply(h, b)
	case wire.Created:
		k, err := wire.ParseCreated(b)
		if err != nil {
			return err
		}
		oid := wire.OID{Task: h.ID, Index: k.Index}
		c.mu.Lock()
		ch := c.mu.spaces[oid]
		delete(c.mu.spaces, oid)
		c.mu.Unlock()
		if ch != nil {
			ch <- k
		}
	case wire.TemplateDef:
		return c.onTemplate(h.ID, b)
	case wire.Exec:
		return c.onExec(h, b)
	case wire.Log:
		if c.hello.OnLog != nil {
			var m map[string]any
			if err := msgpack.Unmarshal(b, &m); err != nil {
				return err
			}
			c.hello.OnLog(m)
		}
	}
	return nil
}

func (c *Client) onWelcome(b []byte) error {
	dec := msgpack.NewDecoder(nil)
	dec.ResetReader(newReader(b))
	dec.UseLooseInterfaceDecoding(true)
	m, err := dec.DecodeMap()
	if err != nil {
		return fmt.Errorf("WELCOME: %w", err)
	}
	c.Welcome = m
	c.size = asInt(m["arena_size"])
	if fd := asInt(m["arena_fd"]); fd >= 0 {
		c.arenaFD = int(fd)
	}
	c.number.Store(uint64(asInt(m["prefix"])) << 32)
	close(c.welcomed)
	return nil
}

func (c *Client) onReply(h wire.Header, b []byte) {
	r := reply{errs.Code(h.Flags), append([]byte(nil), b...)}
	if h.ID == 0 {
		var text string
		if err := msgpack.Unmarshal(b, &text); err != nil {
			text = "the engine refused the connection"
		}
		select {
		case c.refused <- errs.New(r.code, "%s", text):
		default:
		}
		return
	}
	c.mu.Lock()
	ch := c.mu.replies[h.ID]
	delete(c.mu.replies, h.ID)
	c.mu.Unlock()
	if ch != nil {
		ch <- r
	}
}

func (c *Client) onObject(oid wire.OID, v wire.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v.Data = append([]byte(nil), v.Data...)
	v.Refs = nil
	if waiting := c.mu.places[oid]; len(waiting) > 0 && (v.Kind != wire.Arena || v.Offset != wire.NoOffset) {
		waiting[0] <- v
		if c.mu.places[oid] = waiting[1:]; len(waiting) == 1 {
			delete(c.mu.places, oid)
		}
	}
	o := c.mu.objects[oid]
	if o == nil {
		return
	}
	select {
	case <-o.ready:
		if v.Kind == wire.SysErr {
			o.value = v
		}
	default:
		o.value = v
		close(o.ready)
	}
}

// Call asks the engine: one of the methods in PROTOCOL.md. out may be nil.
func (c *Client) Call(ctx context.Context, method string, arg, out any) error {
	payload, err := msgpack.Marshal([]any{method, arg})
	if err != nil {
		return errs.New(errs.EINVAL, "%s: %w", method, err)
	}
	id := c.request.Add(1)
	ch := make(chan reply, 1)
	c.mu.Lock()
	if err := c.mu.closed; err != nil {
		c.mu.Unlock()
		return err
	}
	c.mu.replies[id] = ch
	c.mu.Unlock()
	if err := c.send(wire.AppendFrame(nil, wire.Call, 0, id, payload)); err != nil {
		return err
	}
	select {
	case r, ok := <-ch:
		if !ok {
			return c.closedError()
		}
		if r.code != errs.OK {
			var text string
			if err := msgpack.Unmarshal(r.raw, &text); err != nil {
				text = r.code.Error()
			}
			return errs.New(r.code, "%s", text)
		}
		if out == nil {
			return nil
		}
		return msgpack.Unmarshal(r.raw, out)
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.mu.replies, id)
		c.mu.Unlock()
		return errs.New(errs.CodeOf(ctx.Err()), "%s: no answer yet: %w", method, ctx.Err())
	}
}

func (c *Client) closedError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.closed
}
