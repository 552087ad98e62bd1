package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/ids"
	"github.com/raygo/raygo/engine/ownership"
	"github.com/raygo/raygo/engine/schedule"
	"github.com/raygo/raygo/engine/session"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"
	workerproc "github.com/raygo/raygo/engine/worker"
	"github.com/raygo/raygo/objectstore"

	"golang.org/x/sys/unix"
)

// Node is one machine's engine. Its exported methods may be called from anywhere; everything else runs on the strand.
type Node struct {
	opts        Options
	strand      *strand
	epoch       time.Time
	now         time.Duration // since epoch, as of the present step
	id          [ids.NodeSize]byte
	incarnation uint64
	total       schedule.Resources

	session  *session.Session
	listener net.Listener
	logFile  *os.File
	store    *objectstore.Store
	sched    *schedule.Scheduler

	units    map[uint64]*unit
	refs     *ownership.Table[*peer, *object]
	ready    worklist[*taskState] // whose last argument has just come
	children int                  // tasks that tasks have started and that have not ended

	kept      lineages
	losses    map[*object]loss // of the objects that are missing
	toRebuild worklist[*unit]  // with missing objects

	fetches    []fetch // sent tasks whose arguments are to be brought back from disk, one after another
	fetchBusy  bool    // the store is at it for one
	fetchArmed bool    // a timer looks at fetches again
	refetch    bool    // something changed that may make room for one

	peers      map[uint32]*peer
	dirty      []*peer // have frames to be sent
	lastPeer   uint32
	lastPrefix uint32
	lazyTimer  *time.Timer
	lazyArmed  bool

	jobs         map[uint32]*job
	lastJob      uint32
	envs         map[envKey]*env
	lastEnv      uint64
	templates    []*template // by number - 1
	templateKeys map[templateKey]*template

	workers     map[uint64]*worker
	byPID       map[int]*worker
	lastWorker  uint64
	refill      []*worker // may take more of their class's queue; looked at when the round ends
	reschedule  bool      // something changed that may let something start
	wanting     []*schedule.Class
	anyBlocked  int // tasks that said RG_BLOCKED
	ahead       int // tasks sent that wait behind another one, but actors' calls
	recallArmed bool
	reapArmed   bool

	actors        map[uint64]*actorState
	actorNames    actor.Names
	reserved      map[actor.Name]reservation
	pgNames       map[string]uint64
	services      map[string]*service
	kv            map[string]map[string][]byte
	metrics       metrics
	memory        memoryMonitor
	ended         *task.Ring
	deadActors    kept[uint64]
	removedGroups kept[*schedule.Group]
	endedJobs     kept[uint32]
	timers        map[*time.Timer]struct{} // of after
	counts        taskCounts
	warned        warnings
	full          fullness
	infeasible    bool // a timer for infeasible demands is set

	ctx      context.Context // ends with the node
	endCtx   context.CancelFunc
	stopping bool
	idle     chan struct{} // closed when stopping and no worker is left
	wg       sync.WaitGroup
	launches sync.WaitGroup // templates being started
	stop     sync.Once
	stopErr  error
}

// Start makes a node. Nothing of the user's runs until a driver attaches.
func Start(opts Options) (*Node, error) {
	if opts.Version != "" && opts.Version != version.Version {
		return nil, versionError("the package", opts.Version)
	}
	total, err := opts.complete()
	if err != nil {
		return nil, err
	}
	if opts.Launch == nil {
		opts.Launch = startTemplate
	}
	workerproc.SetFDHook(opts.RegisterFD)
	n := &Node{
		opts: opts, epoch: time.Now(), total: total,
		units: map[uint64]*unit{}, peers: map[uint32]*peer{}, jobs: map[uint32]*job{}, envs: map[envKey]*env{},
		templateKeys: map[templateKey]*template{}, workers: map[uint64]*worker{}, byPID: map[int]*worker{},
		actors: map[uint64]*actorState{}, reserved: map[actor.Name]reservation{}, pgNames: map[string]uint64{}, services: map[string]*service{},
		kv: map[string]map[string][]byte{}, ended: task.NewRing(endedKept), timers: map[*time.Timer]struct{}{}, idle: make(chan struct{}),
	}
	n.ctx, n.endCtx = context.WithCancel(context.Background())
	n.id, n.incarnation = ids.NewNode()
	labels := map[string]string{"ray.io/node-id": n.nodeID()}
	for k, v := range opts.Labels {
		labels[k] = v
	}
	n.sched = schedule.New(n.nodeID(), total, labels)
	n.refs = ownership.NewTable[*peer](n.free)
	n.strand = newStrand(n.runStep, n.settle)
	n.lazyTimer = time.AfterFunc(time.Hour, func() { n.strand.post(func() { n.lazyArmed = false }) })
	n.lazyTimer.Stop()
	n.openMemory()
	if err := n.open(); err != nil {
		n.closeFiles()
		return nil, err
	}
	n.wg.Go(n.strand.serve)
	if n.listener != nil {
		n.wg.Go(func() { n.accept(n.listener) })
	}
	n.logf("raygo %s, node %s, pid %d: %v", version.Version, n.nodeID(), os.Getpid(), total)
	if opts.gpuLost != nil {
		n.logf("warning: of this machine's GPUs only their number is known: %v", opts.gpuLost)
	}
	return n, nil
}

// folderError says of a full disk how full it is.
func (n *Node) folderError(what string, err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return errs.New(errs.EINTERNAL, "%s: %w", what, err)
	}
	var st unix.Statfs_t
	if unix.Statfs(session.Root(n.opts.TempDir), &st) != nil {
		return errs.New(errs.EOUTOFDISK, "%s: %w", what, err)
	}
	return errs.New(errs.EOUTOFDISK, "%s: %w. The disk has %d KiB free of %d KiB: free space there, or choose another folder for temporary files (_temp_dir of init, or RAYGO_TMPDIR)",
		what, err, st.Bavail*uint64(st.Bsize)>>10, st.Blocks*uint64(st.Bsize)>>10)
}

// open makes the session's folder, the socket and the store.
func (n *Node) open() (err error) {
	if n.session, err = session.Create(session.Options{TempDir: n.opts.TempDir, Name: n.opts.SessionName}); err != nil {
		return n.folderError("the session's folder cannot be made", err)
	}
	if n.logFile, err = os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return n.folderError("the engine cannot write its log", err)
	}
	n.registerFD(int(n.logFile.Fd()), true)
	if n.opts.SpillDirs == nil {
		n.opts.SpillDirs = []string{n.session.Dir + "/spill"}
	}
	n.store, err = objectstore.Open(objectstore.Options{
		Capacity: n.opts.ObjectStoreMemory, SpillDirs: n.opts.SpillDirs, Env: storeEnv{n}, Warn: n.storeIsTight, Tight: n.storeIsShort, SpillAt: n.opts.spillAt(),
		RegisterFD: n.opts.RegisterFD, Recall: n.recallChunks, Leased: n.leaseCalledIn,
	})
	if err != nil {
		return errs.New(errs.ENOMEM, "the object store of %d bytes cannot be made: %w", n.opts.ObjectStoreMemory, err)
	}
	n.registerFD(n.arenaFD(), true)
	n.full.limit = int64(fullShare * float64(n.store.Capacity()))
	if n.opts.Listen {
		if n.listener, err = n.session.Listen(); err != nil {
			return errs.New(errs.ECONNECTION, "the session's socket cannot be made: %w", err)
		}
	}
	return nil
}

type storeEnv struct{ n *Node }

// Post has f run on the strand.
func (e storeEnv) Post(f func()) { e.n.strand.post(f) }

func (n *Node) nodeID() string { return ids.Hex(n.id[:]) }

func (n *Node) arenaFD() int {
	raw, err := n.store.File().SyscallConn()
	if err != nil {
		return -1
	}
	fd := -1
	raw.Control(func(f uintptr) { fd = int(f) }) // fails only when the file is closed: then there is no descriptor
	return fd
}

func (n *Node) registerFD(fd int, on bool) {
	if n.opts.RegisterFD != nil && fd >= 0 {
		n.opts.RegisterFD(fd, on)
	}
}

// SessionDir is the folder of the session.
func (n *Node) SessionDir() string { return n.session.Dir }

func (n *Node) logPath() string { return filepath.Join(n.session.LogDir, "engine.log") }

// Socket is where other programs connect.
func (n *Node) Socket() string { return n.session.SocketPath }

// runStep is what the strand runs.
func (n *Node) runStep(st step) {
	if !n.strand.broken.Load() {
		n.guarded(st)
	}
	if st.buf != nil { // also in a broken engine, or the reader would never end
		st.buf.give()
		<-st.p.tokens
	}
}

func (n *Node) guarded(st step) {
	defer n.guard()
	n.now = time.Since(n.epoch)
	if st.fn != nil {
		st.fn()
	} else {
		n.frames(st.p, st.in)
	}
}

// settle ends a round: what may start starts, then every process gets its frames.
func (n *Node) settle(captured bool) {
	if n.strand.broken.Load() {
		return
	}
	defer n.guard()
	if len(n.refill) > 0 {
		n.refillWorkers()
	}
	changed := n.reschedule || n.refetch
	if n.reschedule {
		n.dispatch()
	}
	if n.refetch {
		n.refetch = false
		n.nextFetch()
	}
	if changed {
		n.fetchAhead()
	}
	n.watchStore()
	n.flushAll(captured)
}

// after has fn run on the strand when d has passed, unless the node is stopped first.
func (n *Node) after(d time.Duration, fn func()) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		n.strand.post(func() {
			delete(n.timers, t)
			fn()
		})
	})
	n.timers[t] = struct{}{}
}

// logf writes to the engine's own log. Never to the standard streams: they are the user's.
func (n *Node) logf(format string, args ...any) {
	if n.logFile != nil {
		fmt.Fprintf(n.logFile, "%s %s\n", time.Now().Format("2006-01-02 15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// guard, deferred, turns a panic into a broken engine: the stacks are written down once, no further step runs, and the processes end.
func (n *Node) guard() {
	r := recover()
	if r == nil {
		return
	}
	stack := debug.Stack()
	if n.strand.broken.Swap(true) {
		return
	}
	close(n.strand.broke)
	n.logf("the engine is broken: %v\n%s", r, stack)
	for _, p := range n.peers {
		if p.fd >= 0 {
			unix.Shutdown(p.fd, unix.SHUT_RDWR) // workers end with their connection
		} else if p.deliver != nil {
			p.deliver(wire.AppendHeader(nil, wire.Header{Type: wire.Exit, Flags: wire.FlagForce}))
		}
	}
}

// Broken says whether a fault of the engine itself has stopped it, and where its log is.
func (n *Node) Broken() (bool, string) {
	return n.strand.broken.Load(), n.logPath()
}

func versionError(who, theirs string) error {
	return errs.New(errs.EVERSION, "%s is of raygo %s and the engine of raygo %s; install one of them again so that both are of the same version", who, theirs, version.Version)
}
