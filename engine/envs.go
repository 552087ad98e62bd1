package engine

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/runtimeenv"
	"github.com/raygo/raygo/engine/session"
	workerproc "github.com/raygo/raygo/engine/worker"

	"golang.org/x/sys/unix"
)

// env is the surroundings of worker processes: a job's, with a runtime_env. Its processes are forked from one template.
type env struct {
	id       uint64
	job      *job
	spec     string // JSON text of the runtime_env; "" none
	prestart int

	template    Template
	templates   []Template // earlier ones, kept while their children live
	coming      []Template // started, and not yet ready
	starting    int        // forked, and not yet reported so
	toFork      int        // wanted, as soon as the template is ready
	state       envState
	failures    int    // in a row: a worker that came up ends it, not a template that says it is ready
	short       string // why no process can be started just now; "" none is known
	err         error  // it cannot be had: what its tasks fail with
	code        errs.Code
	retired     bool
	built       runtimeenv.Result
	relaunching bool
	again       bool     // another template is wanted as soon as this one is ready
	preloads    []func() // who waits for a template that has the modules it asked for

	idle    []*worker // the last one was used last
	workers int
}

type envState uint8

const (
	envNew envState = iota
	envBuilding
	envStarting
	envReady
)

type envKey struct {
	job  uint32
	spec string
}

func (n *Node) envFor(j *job, spec string) *env {
	if spec == "{}" {
		spec = ""
	}
	key := envKey{j.num, spec}
	e := n.envs[key]
	if e == nil {
		n.lastEnv++
		e = &env{id: n.lastEnv, job: j, spec: spec}
		n.envs[key] = e
	}
	return e
}

// failure is what a task becomes whose environment cannot be had.
func (e *env) failure(n *Node, t *taskState) *sysError {
	return &sysError{Code: e.code, Message: fmt.Sprintf("%s cannot run: %v", n.describe(t), e.err)}
}

// startEnv does the next thing towards processes of the environment.
func (n *Node) startEnv(e *env) {
	if n.stopping || e.retired || e.err != nil {
		return
	}
	switch e.state {
	case envNew:
		e.state = envBuilding
		if e.spec == "" {
			n.launch(e, runtimeenv.Result{})
			return
		}
		spec := e.spec
		base := runtimeenv.Base{Executable: n.executable(e.job), Cwd: e.job.hello.Cwd, SessionDir: n.SessionDir(), Env: e.job.hello.Env}
		n.wg.Go(func() {
			defer n.guard()
			built, err := runtimeenv.Build(n.ctx, spec, filepath.Join(session.Root(n.opts.TempDir), "runtime_envs"), base)
			n.strand.post(func() {
				if err != nil {
					e.fail(n, errs.ERUNTIMEENV, fmt.Errorf("its runtime_env could not be built: %w", err))
					return
				}
				n.launch(e, built)
			})
		})
	case envReady:
		for e.toFork > 0 && e.state == envReady && e.short == "" { // a fork that fails takes the template away
			e.toFork--
			n.forkWorker(e)
		}
	}
}

func (n *Node) executable(j *job) string {
	if j.hello.Executable != "" {
		return j.hello.Executable
	}
	return n.opts.Executable
}

// launch starts the environment's template.
func (n *Node) launch(e *env, b runtimeenv.Result) {
	if n.stopping || e.retired {
		return
	}
	e.built = b
	h := e.job.hello
	c := workerproc.Config{
		Executable: n.executable(e.job), SysPath: append(slices.Clone(b.SysPath), h.SysPath...), Cwd: h.Cwd, MainPath: h.MainPath,
		Env: map[string]string{}, Preload: slices.Sorted(maps.Keys(e.job.preload)), SessionDir: n.SessionDir(), Arena: n.store.File(),
		WorkerIdle: n.opts.workerIdle(), Log: n.logFile,
	}
	if b.Executable != "" {
		c.Executable = b.Executable
	}
	if b.Cwd != "" {
		c.Cwd = b.Cwd
	}
	maps.Copy(c.Env, n.opts.Env)
	maps.Copy(c.Env, h.Env)
	maps.Copy(c.Env, b.Env)
	c.Output = func(num uint64, pid int, r workerproc.Record) {
		n.strand.post(func() { n.output(e, num, pid, r) })
	}
	if e.template == nil {
		e.state = envStarting
	}
	handler := &launchHandler{n: n, e: e}
	n.launches.Add(1)
	n.wg.Go(func() { // starting a process takes about a millisecond: not on the strand
		defer n.launches.Done()
		defer n.guard()
		t, err := n.opts.Launch(c, handler)
		n.strand.post(func() {
			handler.t = t
			switch {
			case err != nil && e.template != nil:
				n.logf("a template with %v cannot be started: %v", c.Preload, err)
				e.preloaded()
			case err != nil:
				e.trouble(n, fmt.Errorf("the template process (%s) cannot be started: %w", c.Executable, err))
			case e.retired || handler.gone:
				n.wg.Go(t.Close)
			case handler.ready && !n.stopping:
				n.useTemplate(e, t)
			default:
				e.coming = append(e.coming, t)
			}
		})
	})
}

// useTemplate has an environment's workers forked from a template that is ready, in place of an earlier one.
func (n *Node) useTemplate(e *env, t Template) {
	if n.stopping || e.retired {
		return // who stops or retires ends it, wherever it stands
	}
	e.coming = slices.DeleteFunc(e.coming, func(c Template) bool { return c == t })
	if e.template != nil {
		e.templates = append(e.templates, e.template)
	}
	e.template = t
	n.replaceIdle(e)
	n.dropOldTemplates(e)
	n.envReady(e)
	if e.again {
		e.again = false
		n.launch(e, e.built)
		return
	}
	e.preloaded()
}

// dropOldTemplates ends earlier templates whose workers are gone.
func (n *Node) dropOldTemplates(e *env) {
	e.templates = slices.DeleteFunc(e.templates, func(t Template) bool {
		for _, w := range n.workers {
			if w.template == t {
				return false
			}
		}
		n.wg.Go(t.Close)
		return true
	})
}

func (n *Node) envReady(e *env) {
	e.state = envReady
	e.toFork = max(e.toFork, e.prestart-e.workers)
	n.startEnv(e)
	n.reschedule = true
}

// maxTemplateFailures is how often a template is started anew before its tasks fail.
const maxTemplateFailures = 3

// trouble notes a failure to start processes: once more, or the tasks that wait for them fail.
func (e *env) trouble(n *Node, err error) {
	if e.template != nil {
		e.templates = append(e.templates, e.template)
		e.template = nil
		n.dropOldTemplates(e)
	}
	e.failures++
	e.state = envNew
	if e.failures >= maxTemplateFailures || errors.Is(err, os.ErrNotExist) {
		e.fail(n, errs.EWORKERDIED, err)
		return
	}
	n.startEnv(e)
}

// scarceRetry is how long after a fork for which no descriptors were left another one is tried, if no process has ended before.
const scarceRetry = time.Second

// scarce notes that the engine's process has no descriptors left for another worker. The template is well, so what waits goes on waiting, for a worker
// to end; with none there that could, it fails.
func (e *env) scarce(n *Node, err error) {
	e.toFork = 0
	e.short = fmt.Sprintf("no worker process can be started beside the %d there are (%v). Raise the limit of open files (ulimit -n) of the process that runs raygo, or let fewer actors and tasks run at a time", len(n.workers), err)
	if len(n.workers) == 0 {
		e.err, e.code = errors.New(e.short), errs.EWORKERDIED
		n.failEnv(e)
		e.err, e.code = nil, errs.OK
	} else if key := fmt.Sprintf("descriptors of environment %d", e.id); n.warned.first(key) {
		n.warn(e.job, e.short)
	}
	n.after(scarceRetry, func() {
		if e.short != "" {
			e.short = ""
			n.reschedule = true
		}
	})
}

func (e *env) fail(n *Node, code errs.Code, err error) {
	e.err, e.code = err, code
	n.logf("environment %d of job %d fails: %v", e.id, e.job.num, err)
	n.failEnv(e)
	e.preloaded()
}

// failEnv fails what waits for processes of an environment that cannot be had.
func (n *Node) failEnv(e *env) {
	for _, c := range slices.Clone(n.sched.Waiting()) {
		if c.Data != e {
			continue
		}
		for it := c.Pop(); it != nil; it = c.Pop() {
			t := it.Value.(*taskState)
			n.fail(t, e.failure(n, t))
		}
	}
}

// retireEnv lets the processes of an ended job go.
func (n *Node) retireEnv(e *env, lives bool) {
	for len(e.idle) > 0 {
		n.dismiss(e.idle[len(e.idle)-1])
	}
	if lives {
		return
	}
	e.retired = true
	n.closeEnvWhenEmpty(e)
}

func (n *Node) closeEnvWhenEmpty(e *env) {
	if !e.retired || e.workers > 0 || n.stopping {
		return
	}
	delete(n.envs, envKey{e.job.num, e.spec})
	n.sched.Forget(e.id)
	for _, t := range e.takeTemplates() {
		n.wg.Go(t.Close)
	}
}

// takeTemplates gives all templates to one who ends them.
func (e *env) takeTemplates() []Template {
	all := append(e.templates, e.coming...)
	if e.template != nil {
		all = append(all, e.template)
	}
	e.templates, e.coming, e.template = nil, nil, nil
	return all
}

// launchHandler brings a template's news to the strand.
type launchHandler struct {
	n     *Node
	e     *env
	t     Template // strand
	ready bool     // strand
	gone  bool     // strand
}

// Ready says that the template can fork.
func (h *launchHandler) Ready(*workerproc.Template, int) {
	h.n.strand.post(func() {
		h.ready = true
		if h.t != nil {
			h.n.useTemplate(h.e, h.t)
		}
	})
}

// Forked says which process a worker is.
func (h *launchHandler) Forked(_ *workerproc.Template, num uint64, pid int) {
	h.n.strand.post(func() { h.n.workerForked(h.e, num, pid) })
}

// Exited says that a child ended.
func (h *launchHandler) Exited(_ *workerproc.Template, pid int, status unix.WaitStatus) {
	h.n.strand.post(func() { h.n.workerExited(pid, status) })
}

// Gone says that the template itself ended.
func (h *launchHandler) Gone(_ *workerproc.Template, err error) {
	h.n.strand.post(func() {
		h.gone = true
		if i := slices.Index(h.e.coming, h.t); i >= 0 {
			h.e.coming = slices.Delete(h.e.coming, i, i+1)
			h.n.wg.Go(h.t.Close)
		}
		if h.n.stopping || h.e.retired || (h.ready && h.e.template != h.t) {
			return
		}
		if !h.ready && h.e.template != nil {
			h.n.logf("a template that was to replace another ended: %v", err)
			h.e.preloaded()
			return
		}
		if err == nil {
			err = errors.New("the template process ended")
		}
		h.e.trouble(h.n, fmt.Errorf("the template process ended: %w", err))
	})
}
