package tcp

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// Store is where ranks find each other. Get waits until the key has a value, at most for the time given (< 0: for ever).
type Store interface {
	Set(key string, value []byte) error
	Get(key string, timeout time.Duration) ([]byte, error)
}

// Kernel is what the transport knows of numbers.
type Kernel struct {
	Size   func(dtype int) int                         // of an element in bytes
	Reduce func(dst, src []byte, dtype, op int)        // dst = dst op src
	Fold   func(dst, all []byte, n int, dtype, op int) // dst = the first of the n arrays in all op the second op …
	Name   func(dtype, op int) string                  // for messages, as in "float32 (sum)"
}

// Config says what this rank's part is.
type Config struct {
	Name        string
	Rank, Size  int
	Node, Nodes int
	NodeOf      []int    // [Size]
	LeaderOf    []int    // [Nodes]
	NodeNames   []string // [Nodes]
	Store       Store
	Timeout     time.Duration // of the meeting; < 0: none
	Fail        func(*Fault)  // the mesh broke, and not by Abort; from any goroutine, until Close returns
	Kernel      Kernel
	Where       Where
	Token       []byte
	TLS         *TLS
	Streams     int                   // data connections to the next node; rank 0's counts. 0: 2
	Fork        func(fd int, on bool) // descriptors that a forked child is to close; nil: nobody forks
	DeadAfter   time.Duration         // without a sign of the other machine's kernel; 0: 5 s
}

// Mesh is a rank's connections to other nodes. A leader's carries collectives too.
type Mesh struct {
	cfg      Config
	key      []byte
	ip       net.IP
	listener net.Listener
	messages messages

	serverTLS, clientTLS *tls.Config // nil: none

	// Filled under mu while meeting, final afterwards.
	out, in  map[int][]*link // data to node+2^k and from node-2^k, by distance and stream
	controls []*control

	op    sync.Mutex // held by the collective under way
	small []byte     // what reduceSmall gathers; guarded by op
	seq   atomic.Uint64
	busy  atomic.Bool // a collective is under way

	dead chan struct{} // closed when fault is set
	wg   sync.WaitGroup
	mu   struct {
		sync.Mutex
		fault   *Fault
		opened  bool
		closing bool
		slots   map[slot]bool // connections that are to come; true: it has
		conns   map[net.Conn]struct{}
		missing int
		pids    map[int]uint32
	}
	complete chan struct{} // all slots have their connection
	leaving  chan struct{} // Close was called
}

// slot is a connection that another leader opens to this one.
type slot struct {
	use, rank, stream int
}

// Open makes this rank reachable, publishes that, and, on leaders, meets the other leaders.
func Open(cfg Config) (*Mesh, error) {
	m := &Mesh{cfg: cfg, out: map[int][]*link{}, in: map[int][]*link{}, dead: make(chan struct{}), complete: make(chan struct{}), leaving: make(chan struct{})}
	m.mu.slots, m.mu.conns, m.mu.pids = map[slot]bool{}, map[net.Conn]struct{}{}, map[int]uint32{}
	m.messages.init(m)
	if m.cfg.DeadAfter == 0 {
		m.cfg.DeadAfter = 5 * time.Second
	}
	if err := m.open(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Mesh) open() (err error) {
	if m.serverTLS, m.clientTLS, err = m.cfg.TLS.configs(); err != nil {
		return faultf(errs.EINVAL, m.cfg.Rank, "rank %d: %v", m.cfg.Rank, err)
	}
	if m.ip, err = m.cfg.Where.find(); err != nil {
		return faultf(errs.EINVAL, m.cfg.Rank, "rank %d: %v", m.cfg.Rank, err)
	}
	if m.listener, err = net.Listen("tcp", net.JoinHostPort(m.ip.String(), "0")); err != nil {
		return faultf(errs.ECONNECTION, m.cfg.Rank, "rank %d cannot listen at %v: %v. Set RAYGO_COLLECTIVE_INTERFACE or RAYGO_COLLECTIVE_ADDRESS to one of this machine's", m.cfg.Rank, m.ip, err)
	}
	deadline := time.Time{}
	if m.cfg.Timeout >= 0 {
		deadline = time.Now().Add(m.cfg.Timeout)
	}
	secret, err := m.agree(deadline)
	if err != nil {
		return err
	}
	m.key = groupKey(m.cfg.Name, secret, m.cfg.Token)
	if m.leads() {
		m.expect()
	}
	m.wg.Go(m.accept)
	if err := m.publish(); err != nil {
		return err
	}
	if m.leads() {
		if err := m.meet(deadline); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.fault != nil {
		return m.mu.fault
	}
	m.mu.opened = true
	return nil
}

// Nodes is how many nodes there are.
func (m *Mesh) Nodes() int { return m.cfg.Nodes }

func (m *Mesh) leads() bool { return m.cfg.LeaderOf[m.cfg.Node] == m.cfg.Rank }

// who names a rank in messages.
func (m *Mesh) who(rank int) string {
	m.mu.Lock()
	pid := m.mu.pids[rank]
	m.mu.Unlock()
	node := m.cfg.NodeNames[m.cfg.NodeOf[rank]]
	if pid == 0 {
		return fmt.Sprintf("rank %d (node %s)", rank, node)
	}
	return fmt.Sprintf("rank %d (node %s, pid %d)", rank, node, pid)
}

func (m *Mesh) whoLeads(node int) string { return m.who(m.cfg.LeaderOf[node]) }

// Fault is why the mesh is broken; nil: it is not.
func (m *Mesh) Fault() *Fault {
	select {
	case <-m.dead:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.mu.fault
	default:
		return nil
	}
}

// Abort ends everything under way with this fault and tells the other nodes.
func (m *Mesh) Abort(why *Fault) {
	m.breakWith(why, nil, false)
}

// breakWith breaks the mesh, unless it is broken. from is the control connection that said so.
func (m *Mesh) breakWith(f *Fault, from *control, tell bool) {
	m.mu.Lock()
	if m.mu.fault != nil || m.mu.closing {
		m.mu.Unlock()
		return
	}
	m.mu.fault = f
	m.wg.Add(1) // Close waits: Fail is not to be called after it
	defer m.wg.Done()
	opened := m.mu.opened
	conns := make([]net.Conn, 0, len(m.mu.conns))
	for c := range m.mu.conns {
		conns = append(conns, c)
	}
	controls := m.controls
	m.mu.Unlock()
	close(m.dead)
	for _, c := range conns { // handshakes under way
		c.Close()
	}
	// First the word, then the end of the data: who sees the latter waits a moment for the former.
	ending := func() {
		for _, c := range controls {
			if c != from {
				c.tellFault(f)
			}
		}
		for _, l := range m.links() {
			l.shut()
		}
		m.messages.fail(f)
	}
	if !tell {
		// Who aborts may hold locks that the ends of messages want.
		m.wg.Go(ending)
		return
	}
	ending()
	if opened {
		m.cfg.Fail(f)
	}
}

// links are all data connections there are.
func (m *Mesh) links() []*link {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*link
	for _, side := range []map[int][]*link{m.out, m.in} {
		for _, links := range side {
			out = append(out, links...)
		}
	}
	return slices.DeleteFunc(out, func(l *link) bool { return l == nil })
}

// addLink keeps a data connection; what comes after a break is shut like the rest was.
func (m *Mesh) addLink(side map[int][]*link, distance, stream int, l *link) {
	if m.cfg.Fork != nil && l.fd >= 0 {
		m.cfg.Fork(l.fd, true)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if side[distance] == nil {
		side[distance] = make([]*link, m.streamsTo(distance))
	}
	side[distance][stream] = l
	if m.mu.fault != nil || m.mu.closing {
		l.shut()
	}
}

// Close says goodbye and gives everything back. What is under way must have ended, or ends now.
func (m *Mesh) Close() {
	m.mu.Lock()
	if m.mu.closing {
		m.mu.Unlock()
		return
	}
	m.mu.closing = true
	close(m.leaving)
	broken, opened := m.mu.fault != nil, m.mu.opened
	conns := make([]net.Conn, 0, len(m.mu.conns))
	for c := range m.mu.conns {
		conns = append(conns, c)
	}
	controls := m.controls
	m.mu.Unlock()
	if m.listener != nil {
		m.listener.Close()
	}
	for _, c := range controls {
		if !broken && opened {
			c.send(ctlBye, nil)
		}
		c.conn.Close()
	}
	for _, c := range conns {
		c.Close()
	}
	for _, l := range m.links() {
		l.shut()
	}
	m.messages.fail(&Fault{errs.EGROUP, m.cfg.Rank, fmt.Sprintf("rank %d left group %q", m.cfg.Rank, m.cfg.Name)})
	m.wg.Wait()
	m.op.Lock() // until the collective that this ended is gone
	defer m.op.Unlock()
	for _, l := range m.links() {
		if m.cfg.Fork != nil && l.fd >= 0 {
			m.cfg.Fork(l.fd, false)
		}
		l.free()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out, m.in = nil, nil
}

// missingNames lists who has not connected.
func (m *Mesh) missingNames() string {
	m.mu.Lock()
	seen := map[int]bool{}
	for s, come := range m.mu.slots {
		if !come {
			seen[s.rank] = true
		}
	}
	m.mu.Unlock()
	var names []string
	for node := range m.cfg.Nodes {
		if rank := m.cfg.LeaderOf[node]; seen[rank] {
			names = append(names, m.who(rank))
		}
	}
	return strings.Join(names, ", ")
}
