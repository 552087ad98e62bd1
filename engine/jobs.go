package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"

	"github.com/vmihailenco/msgpack/v5"
)

// job is what one driver started. It ends with the driver; what it made detached lives on.
type job struct {
	num       uint32
	driver    *peer // nil once it is gone
	name      string
	namespace string
	hello     hello
	preload   map[string]bool // heavy modules its workers have imported
	started   time.Duration
	ended     time.Duration
	startedAt time.Time
	endedAt   time.Time
	over      bool // ended, with all that it made detached
	env       *env // without a runtime_env of a task's own
}

func (j *job) number() uint32 {
	if j == nil {
		return 0
	}
	return j.num
}

// hello is the map of RG_HELLO.
type hello struct {
	Version     string            `msgpack:"version"`
	Role        string            `msgpack:"role"`
	PID         int               `msgpack:"pid"`
	Namespace   string            `msgpack:"namespace"`
	SysPath     []string          `msgpack:"sys_path"`
	Cwd         string            `msgpack:"cwd"`
	MainPath    string            `msgpack:"main_path"`
	Executable  string            `msgpack:"executable"`
	RuntimeEnv  string            `msgpack:"runtime_env"`
	LogToDriver *bool             `msgpack:"log_to_driver"`
	Env         map[string]string `msgpack:"env"`
	JobName     string            `msgpack:"job_name"`
	Token       string            `msgpack:"token"`
}

// hello greets a driver or client.
func (n *Node) hello(p *peer, raw []byte) error {
	var h hello
	if err := msgpack.Unmarshal(raw, &h); err != nil {
		return errs.New(errs.EINVAL, "HELLO is not the map it should be: %w", err)
	}
	if p.greeted {
		return errs.New(errs.EINVAL, "a second HELLO")
	}
	if h.Version != version.Version {
		return versionError("the "+h.Role, h.Version)
	}
	if h.Role != roleDriver && h.Role != roleClient {
		return errs.New(errs.EINVAL, "role %q is neither driver nor client", h.Role)
	}
	if n.stopping {
		return errs.New(errs.ESHUTDOWN, "the engine is being stopped")
	}
	p.greeted, p.role = true, h.Role
	if p.pid == 0 {
		p.pid = h.PID
	}
	p.wants = h.LogToDriver == nil || *h.LogToDriver
	n.lastJob++
	if h.Namespace == "" {
		h.Namespace = fmt.Sprintf("anonymous-%x-%d", n.incarnation&0xffffffff, n.lastJob)
	}
	j := &job{num: n.lastJob, driver: p, name: h.JobName, namespace: h.Namespace, hello: h, preload: map[string]bool{}, started: n.now, startedAt: time.Now()}
	n.jobs[j.num] = j
	p.job = j
	n.logf("%s with pid %d attaches as job %d, namespace %q", p.role, p.pid, j.num, j.namespace)
	n.welcome(p, 0)
	if p.role == roleDriver {
		j.env = n.envFor(j, h.RuntimeEnv)
		j.env.prestart = n.prestart()
		n.startEnv(j.env)
	}
	return nil
}

func (n *Node) prestart() int {
	if k := n.opts.Prestart; k != nil && *k >= 0 {
		return *k
	}
	return min(int(n.total["CPU"].Float()+0.5), 64)
}

func (n *Node) nextPrefix() uint32 {
	n.lastPrefix++
	return n.lastPrefix
}

// welcome answers a HELLO, or greets a worker unasked.
func (n *Node) welcome(p *peer, worker uint64) {
	fd := -1
	if p.deliver != nil {
		fd = n.arenaFD()
	} else if p.role != roleWorker {
		p.passFD = n.arenaFD()
	}
	spec := p.job.hello.RuntimeEnv
	if p.worker != nil {
		spec = p.worker.env.spec
	}
	p.send(wire.Welcome, 0, 0, pack(map[string]any{
		"version": version.Version, "peer": p.num, "prefix": n.nextPrefix(), "node_id": n.nodeID(), "incarnation": n.incarnation,
		"job": p.job.num, "namespace": p.job.namespace, "session_dir": n.SessionDir(), "socket": n.Socket(), "node_ip": n.opts.NodeIP,
		"arena_size": n.store.Capacity(), "arena_fd": fd, "worker": worker, "role": p.role, "log_to_driver": p.wants, "runtime_env": spec,
	}))
	p.flush()
}

// driverGone ends the job of a driver whose connection ended.
func (n *Node) driverGone(p *peer) {
	j := p.job
	if j.driver != p {
		return
	}
	j.driver, j.ended, j.endedAt = nil, n.now, time.Now()
	n.logf("job %d ends", j.num)
	for _, a := range n.actorsBy(func(a *actorState) bool { return a.job == j && !a.detached && a.State != actor.Dead }) {
		n.killActor(a, &sysError{Code: errs.EACTORDIED, Message: fmt.Sprintf("%s ended with its job: the driver that created it is gone. Create it with lifetime=\"detached\" to let it live on.", n.actorText(a)), Actor: a.id})
	}
	// Tasks first, then groups: a task of a removed group would be told of that instead.
	for _, t := range n.tasksBy(func(t *taskState) bool { return t.job == j && !t.detached && (t.actor == nil || !t.actor.detached) }) {
		if t.u.task == t { // the end of another may have ended it
			n.endTask(t, &sysError{Code: errs.ECANCELED, Message: n.describe(t) + " was cancelled because its driver is gone"}, true)
		}
	}
	for _, g := range n.sched.Groups() {
		if d := groupOf(g); d.job == j && !d.detached {
			n.removeGroup(g)
		}
	}
	n.retireJob(j)
	n.reschedule = true
}

// retireJob lets the processes of an ended job go, and what was prepared for it as soon as nothing of it lives on.
func (n *Node) retireJob(j *job) {
	lives := n.jobLives(j)
	for _, e := range n.envs {
		if e.job == j {
			n.retireEnv(e, lives)
		}
	}
	if lives {
		return
	}
	n.jobOver(j)
	for k, t := range n.templateKeys {
		if k.job == j.num {
			delete(n.templateKeys, k)
			n.templates[t.num-1] = nil
			if t.blobObject != nil {
				n.unneed(t.blobObject)
				t.blobObject = nil
			}
		}
	}
}

// jobLives says whether something detached of an ended job is still there.
func (n *Node) jobLives(j *job) bool {
	if j.driver != nil {
		return true
	}
	for _, a := range n.actors {
		if a.job == j && a.detached && a.State != actor.Dead {
			return true
		}
	}
	return false
}

// tasksBy lists those that have not ended, in the order they came.
func (n *Node) tasksBy(which func(*taskState) bool) []*taskState {
	var out []*taskState
	for _, u := range n.units {
		if t := u.task; t != nil && which(t) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *taskState) int { return cmp.Compare(a.created, b.created) })
	return out
}

// actorsBy lists actors, in the order of their numbers.
func (n *Node) actorsBy(which func(*actorState) bool) []*actorState {
	var out []*actorState
	for _, a := range n.actors {
		if which(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *actorState) int { return cmp.Compare(a.id, b.id) })
	return out
}
