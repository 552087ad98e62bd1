package tcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/raygo/raygo/engine/errs"
)

const secretSize = 32

// MaxStreams is the most connections that go to a node; more only help where the network limits each of them.
const MaxStreams = 8

// agree has rank 0 choose what all must have in common.
func (m *Mesh) agree(deadline time.Time) ([]byte, error) {
	key := m.cfg.Name + "/net"
	if m.cfg.Rank == 0 {
		streams := m.cfg.Streams
		if streams <= 0 {
			streams = 2
		}
		said := append([]byte{byte(min(streams, MaxStreams))}, make([]byte, secretSize)...)
		if _, err := rand.Read(said[1:]); err != nil {
			return nil, err
		}
		if err := m.cfg.Store.Set(key, said); err != nil {
			return nil, fmt.Errorf("group %q: rank 0 cannot write to the store: %w", m.cfg.Name, err)
		}
		m.cfg.Streams = int(said[0])
		return said[1:], nil
	}
	said, err := m.ask(key, deadline)
	if err != nil {
		return nil, fmt.Errorf("group %q: rank %d waits for rank 0: %w", m.cfg.Name, m.cfg.Rank, err)
	}
	if len(said) != 1+secretSize {
		return nil, faultf(errs.EGROUP, 0, "group %q: rank 0 wrote %d bytes to %q where %d belong: it is of another version of raygo", m.cfg.Name, len(said), key, 1+secretSize)
	}
	m.cfg.Streams = int(said[0])
	return said[1:], nil
}

// until is the time left; -1: for ever.
func until(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return -1
	}
	return max(time.Until(deadline), 0)
}

// lookEvery is how often a rank that waits for others looks whether one of them has failed: a store can wait for one key only, and not be interrupted.
const lookEvery = 250 * time.Millisecond

// ask waits for a key, and returns another rank's words if that fails meanwhile.
func (m *Mesh) ask(key string, deadline time.Time) ([]byte, error) {
	for {
		slice := lookEvery
		if left := until(deadline); left >= 0 {
			slice = min(slice, left)
		}
		said, err := m.cfg.Store.Get(key, slice)
		if err == nil || errs.CodeOf(err) != errs.ETIMEDOUT {
			return said, err
		}
		if f := m.failed(); f != nil {
			return nil, f
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			return nil, err
		}
	}
}

// failed is what a rank left in the store that could not open its end; nil: none did.
func (m *Mesh) failed() *Fault {
	said, err := m.cfg.Store.Get(m.cfg.Name+failedKey, time.Millisecond)
	if err != nil || len(said) < 9 {
		return nil
	}
	text, _, _ := bytes.Cut(said[8:], []byte{0})
	return &Fault{errs.Code(binary.NativeEndian.Uint32(said)), int(int32(binary.NativeEndian.Uint32(said[4:]))), string(text)}
}

// failedKey is RGC_NET_FAILED of collective.h.
const failedKey = "/net/failed"

func (m *Mesh) addressKey(rank int) string { return fmt.Sprintf("%s/net/%d", m.cfg.Name, rank) }

func (m *Mesh) publish() error {
	said := fmt.Sprintf("%d %s", os.Getpid(), m.listener.Addr())
	if err := m.cfg.Store.Set(m.addressKey(m.cfg.Rank), []byte(said)); err != nil {
		return fmt.Errorf("group %q: rank %d cannot write to the store: %w", m.cfg.Name, m.cfg.Rank, err)
	}
	return nil
}

// addressOf reads where another rank listens.
func (m *Mesh) addressOf(rank int, deadline time.Time) (string, error) {
	said, err := m.ask(m.addressKey(rank), deadline)
	if err != nil {
		return "", fmt.Errorf("group %q: rank %d waits for the address of %s: %w", m.cfg.Name, m.cfg.Rank, m.who(rank), err)
	}
	pid, address, _ := strings.Cut(string(said), " ")
	if n, err := strconv.ParseUint(pid, 10, 32); err == nil {
		m.mu.Lock()
		m.mu.pids[rank] = uint32(n)
		m.mu.Unlock()
	}
	return address, nil
}

// steps are the distances to the nodes that a leader dials: 1, 2, 4, …
func (m *Mesh) steps() []int {
	var out []int
	for d := 1; d < m.cfg.Nodes; d *= 2 {
		out = append(out, d)
	}
	return out
}

func (m *Mesh) node(offset int) int {
	return ((m.cfg.Node+offset)%m.cfg.Nodes + m.cfg.Nodes) % m.cfg.Nodes
}

func (m *Mesh) streamsTo(distance int) int {
	if distance == 1 {
		return m.cfg.Streams
	}
	return 1
}

// expect notes which connections other leaders will open.
func (m *Mesh) expect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.steps() {
		rank := m.cfg.LeaderOf[m.node(-d)]
		m.mu.slots[slot{forControl, rank, d}] = false
		for s := range m.streamsTo(d) {
			m.mu.slots[slot{forData, rank, d<<8 | s}] = false
		}
	}
	m.mu.missing = len(m.mu.slots)
}

// meet dials the other leaders and waits until those that dial this one have come.
func (m *Mesh) meet(deadline time.Time) error {
	for _, d := range m.steps() {
		node := m.node(d)
		rank := m.cfg.LeaderOf[node]
		address, err := m.addressOf(rank, deadline)
		if err != nil {
			return err
		}
		conn, err := m.dial(rank, address, hello{use: forControl, stream: uint32(d)}, deadline)
		if err != nil {
			return err
		}
		m.watch(node, conn)
		for s := range m.streamsTo(d) {
			conn, err := m.dial(rank, address, hello{use: forData, stream: uint32(d<<8 | s)}, deadline)
			if err != nil {
				return err
			}
			l, err := newLink(node, conn)
			if err != nil {
				conn.Close()
				return fmt.Errorf("a connection to %s: %w", m.who(rank), err)
			}
			m.addLink(m.out, d, s, l)
		}
	}
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(max(time.Until(deadline), 0))
		defer timer.Stop()
		late = timer.C
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-m.complete:
			return nil
		case <-m.dead:
			return m.Fault()
		case <-look.C:
			if f := m.failed(); f != nil {
				return f
			}
			continue
		case <-late:
		}
		return faultf(errs.ETIMEDOUT, -1, "group %q: %s waited %v for %s to connect to %v. Check that they run, and that a firewall lets the nodes reach each other",
			m.cfg.Name, m.who(m.cfg.Rank), m.cfg.Timeout, m.missingNames(), m.listener.Addr())
	}
}

// dial connects to a rank and shows it the key.
func (m *Mesh) dial(rank int, address string, h hello, deadline time.Time) (net.Conn, error) {
	h.rank = uint32(m.cfg.Rank)
	conn, err := m.tryDial(address, h, deadline)
	if f := m.Fault(); f != nil {
		if err == nil {
			conn.Close()
		}
		return nil, f
	}
	if err != nil {
		return nil, faultf(errs.ECONNECTION, rank, "group %q: %s cannot connect from %v to %s at %s: %v. Check that it runs and that a firewall lets the nodes reach each other; "+
			"RAYGO_COLLECTIVE_INTERFACE chooses the network", m.cfg.Name, m.who(m.cfg.Rank), m.ip, m.who(rank), address, err)
	}
	return conn, nil
}

func (m *Mesh) tryDial(address string, h hello, deadline time.Time) (net.Conn, error) {
	limit := time.Now().Add(handshakeTimeout)
	if !deadline.IsZero() && deadline.Before(limit) {
		limit = deadline
	}
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	go func() { // an abort ends the attempt
		select {
		case <-m.dead:
			cancel()
		case <-m.leaving:
			cancel()
		case <-ctx.Done():
		}
	}()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: m.ip}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	plain := m.adopt(conn.(*net.TCPConn))
	conn = plain
	if !m.track(plain) {
		plain.Close()
		return nil, net.ErrClosed
	}
	defer m.untrack(plain)
	conn.SetDeadline(limit)
	if m.clientTLS != nil {
		conn = tls.Client(conn, m.clientTLS)
	}
	if err := greet(conn, m.key, h); err != nil {
		conn.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errors.New("it does not answer")
		} else if m.clientTLS != nil {
			err = fmt.Errorf("%w (TLS is on: both sides need it, with certificates of one authority)", err)
		}
		return nil, err
	}
	return conn, conn.SetDeadline(time.Time{})
}

// track has a connection closed by an abort; false: it came too late.
func (m *Mesh) track(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.fault != nil || m.mu.closing {
		return false
	}
	m.mu.conns[conn] = struct{}{}
	return true
}

func (m *Mesh) untrack(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.conns, conn)
}

// socket is a connection that a forked child does not keep open.
type socket struct {
	*net.TCPConn
	forget func()
}

func (s *socket) Close() error {
	s.forget()
	return s.TCPConn.Close()
}

// adopt sets what the kernel is to do with a connection.
func (m *Mesh) adopt(conn *net.TCPConn) *socket {
	s := &socket{conn, func() {}}
	conn.SetNoDelay(true)
	conn.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: m.deadSeconds() - 1})
	raw, err := conn.SyscallConn()
	if m.cfg.Fork == nil || err != nil {
		return s
	}
	raw.Control(func(fd uintptr) {
		m.cfg.Fork(int(fd), true)
		s.forget = sync.OnceFunc(func() { m.cfg.Fork(int(fd), false) })
	})
	return s
}

func (m *Mesh) deadSeconds() int { return max(int(m.cfg.DeadAfter/time.Second), 2) }

// hasten bounds how long what was sent may stay unacknowledged. Only a control connection bears that: it carries next to nothing, so that
// it means that the other machine is gone. Of one that carries data it may mean that the other process computes.
func (m *Mesh) hasten(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if raw, err := conn.(*socket).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, m.deadSeconds()*1000)
		})
	}
}

// maxGreetings bounds how many strangers are listened to at a time.
const maxGreetings = 64

func (m *Mesh) accept() {
	slots := make(chan struct{}, maxGreetings)
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				m.breakWith(faultf(errs.EGROUP, m.cfg.Rank, "%s has no file descriptors left for the connections of group %q: raise `ulimit -n`", m.who(m.cfg.Rank), m.cfg.Name), nil, true)
				return
			}
			continue // the other side gave up between
		}
		s := m.adopt(conn.(*net.TCPConn))
		if !m.track(s) {
			s.Close()
			return
		}
		slots <- struct{}{}
		m.wg.Go(func() {
			defer func() { <-slots }()
			defer m.untrack(s)
			m.receive(s)
		})
	}
}

// receive finds out what a new connection is for.
func (m *Mesh) receive(plain *socket) {
	var conn net.Conn = plain
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	if m.serverTLS != nil {
		conn = tls.Server(conn, m.serverTLS)
	}
	h, err := welcome(conn, m.key)
	if err != nil || int(h.rank) >= m.cfg.Size {
		conn.Close() // a stranger, or one that will say itself what is wrong
		return
	}
	conn.SetDeadline(time.Time{})
	m.mu.Lock()
	m.mu.pids[int(h.rank)] = h.pid
	s := slot{int(h.use), int(h.rank), int(h.stream)}
	come, expected := m.mu.slots[s]
	if expected && !come {
		m.mu.slots[s] = true
	}
	m.mu.Unlock()
	node := m.cfg.NodeOf[h.rank]
	switch {
	case h.use == forMessages:
		m.messages.serve(int(h.rank), conn)
	case !expected || come:
		conn.Close()
		return
	case h.use == forControl:
		m.watch(node, conn)
		m.filled()
	default:
		l, err := newLink(node, conn)
		if err != nil {
			conn.Close()
			return
		}
		m.addLink(m.in, int(h.stream>>8), int(h.stream&0xff), l)
		m.filled()
	}
}

func (m *Mesh) filled() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.missing--; m.mu.missing == 0 {
		close(m.complete)
	}
}
