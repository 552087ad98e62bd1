package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone is what Fork says when the template has ended.
var ErrGone = errors.New("the workers' template process is gone")

// Config says what a template's workers need.
type Config struct {
	Executable  string            // the Python interpreter
	SysPath     []string          // where modules are searched
	Cwd         string            // workers start here
	MainPath    string            // the driver's script, for sys.argv
	Env         map[string]string // on top of this process's
	Preload     []string          // modules to import before forking
	SessionDir  string            // the template starts here; logs go to its folder "logs"
	WorkerIdle  time.Duration     // passed on
	Arena       *os.File          // inherited by workers; may be nil
	Log         *os.File          // the template's own stdout and stderr; may be nil
	NoMerge     bool              // show every line, also identical ones
	LogMaxBytes int64             // per log file (32 MiB); two are kept

	// Output is called by one goroutine at a time, in order, with no lock held. What it has not returned for is not lost, but while it blocks
	// workers that print are slowed down.
	Output func(worker uint64, pid int, r Record)
}

// Handler is told what happens to a template and its workers, by the template's own goroutine.
type Handler interface {
	Ready(t *Template, pid int)
	Forked(t *Template, worker uint64, pid int)
	Exited(t *Template, pid int, status unix.WaitStatus)
	Gone(t *Template, err error) // once, last; err is nil after Close
}

// Template is a process that forks workers.
type Template struct {
	cfg     Config
	handler Handler
	control *os.File
	merger  *merger
	cmd     *exec.Cmd
	exited  chan struct{} // the process has ended; waitErr is set
	waitErr error
	readEnd chan struct{} // the reading goroutine has ended
	sendEnd chan struct{} // the sending goroutine has ended
	closing sync.Once

	mu struct {
		sync.Mutex
		changed sync.Cond
		ready   bool
		gone    bool
		closed  bool
		queue   []request
		procs   map[uint64]*proc
		pids    map[int]uint64
		ended   []uint64 // workers whose streams may be forgotten, oldest first
	}
}

// request is a fork to ask for: descriptors that go to the template and are then closed here.
type request struct {
	worker uint64
	fds    [3]int
}

// proc is what is kept of a worker.
type proc struct {
	pid     int
	out     *stream
	err     *stream
	started bool   // its streams are being read
	note    string // why it could not be forked
}

const keepEnded = 256 // workers whose last stderr lines are kept after they ended

// StartTemplate starts the process; it does not wait for it to be ready.
func StartTemplate(cfg Config, h Handler) (*Template, error) {
	if cfg.LogMaxBytes <= 0 {
		cfg.LogMaxBytes = 32 << 20
	}
	if cfg.Output == nil {
		cfg.Output = func(uint64, int, Record) {}
	}
	t := &Template{
		cfg: cfg, handler: h, merger: newMerger(cfg.Output, cfg.NoMerge),
		exited: make(chan struct{}), readEnd: make(chan struct{}), sendEnd: make(chan struct{}),
	}
	t.mu.changed.L = &t.mu
	t.mu.procs = map[uint64]*proc{}
	t.mu.pids = map[int]uint64{}
	first, err := cfg.firstLine()
	if err != nil {
		return nil, err
	}
	control, child, err := socketPair("raygo template control")
	if err != nil {
		return nil, err
	}
	t.control = control
	theirs := os.NewFile(uintptr(child), "raygo template control")
	err = t.start(theirs)
	theirs.Close()
	if err != nil {
		_ = CloseFD(control)
		return nil, err
	}
	go t.wait()
	go t.send(first)
	go t.read()
	return t, nil
}

// Pid is the template's process number.
func (t *Template) Pid() int { return t.cmd.Process.Pid }

func (cfg *Config) firstLine() ([]byte, error) {
	line, err := json.Marshal(map[string]any{
		"sys_path": orEmpty(cfg.SysPath), "cwd": cfg.Cwd, "main_path": cfg.MainPath, "env": cfg.Env, "preload": orEmpty(cfg.Preload),
		"session_dir": cfg.SessionDir, "worker_idle_s": cfg.WorkerIdle.Seconds(),
	})
	if err != nil {
		return nil, fmt.Errorf("worker: describe the job to its template: %w", err)
	}
	return append(line, '\n'), nil
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func (t *Template) start(control *os.File) error {
	cmd := exec.Command(t.cfg.Executable, "-m", "raygo._template")
	cmd.Dir = t.cfg.SessionDir
	cmd.ExtraFiles = []*os.File{control} // descriptor 3
	env := overlay(os.Environ(), t.cfg.Env)
	if t.cfg.Arena != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, t.cfg.Arena)
		env = append(env, "RAYGO_ARENA_FD=4")
	} else {
		env = append(env, "RAYGO_ARENA_FD=-1")
	}
	if home := findPackage(t.cfg.SysPath); home != "" {
		// The interpreter has to find the package before it is told where the driver searches. It puts PYTHONPATH back.
		if old, ok := lookup(env, "PYTHONPATH"); ok {
			env = append(env, "RAYGO_TEMPLATE_PYTHONPATH="+old)
		}
		env = append(env, "RAYGO_TEMPLATE_PATH="+home, "PYTHONPATH="+home)
	}
	cmd.Env = env
	if t.cfg.Log != nil {
		cmd.Stdout, cmd.Stderr = t.cfg.Log, t.cfg.Log
	}
	// Its own group: Ctrl-C in the driver's terminal is the driver's to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.cmd = cmd
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("worker: start %s -m raygo._template: %w", t.cfg.Executable, err)
	}
	return nil
}

// findPackage returns the entry of a search path that holds the raygo package, if it is a plain folder.
func findPackage(path []string) string {
	for _, dir := range path {
		if dir == "" || strings.ContainsRune(dir, os.PathListSeparator) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "raygo", "_template.py")); err == nil {
			return dir
		}
	}
	return ""
}

func overlay(env []string, over map[string]string) []string {
	out := make([]string, 0, len(env)+len(over))
	for _, kv := range env {
		if k, _, ok := strings.Cut(kv, "="); ok {
			if _, replaced := over[k]; replaced {
				continue
			}
		}
		out = append(out, kv)
	}
	for k, v := range over {
		out = append(out, k+"="+v)
	}
	return out
}

func lookup(env []string, key string) (string, bool) {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}

// wait reaps the process.
func (t *Template) wait() {
	t.waitErr = t.cmd.Wait()
	close(t.exited)
}

// read is the template's own goroutine: it hears what the process says until that ends, and tells the handler.
func (t *Template) read() {
	defer close(t.readEnd)
	in := bufio.NewReader(t.control)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		t.hear(strings.TrimSuffix(line, "\n"))
	}
	t.end()
}

func (t *Template) hear(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	arg, text, _ := strings.Cut(rest, " ")
	switch verb {
	case "ready":
		t.mu.Lock()
		t.mu.ready = true
		t.mu.changed.Broadcast()
		t.mu.Unlock()
		pid, _ := strconv.Atoi(arg)
		t.handler.Ready(t, pid)
	case "forked":
		worker, _ := strconv.ParseUint(arg, 10, 64)
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.logf("not understood: %q", line)
			return
		}
		t.forked(worker, pid)
		t.handler.Forked(t, worker, pid)
	case "exit":
		pid, _ := strconv.Atoi(arg)
		status, err := strconv.Atoi(text)
		if err != nil {
			t.logf("not understood: %q", line)
			return
		}
		t.ended(pid)
		t.handler.Exited(t, pid, unix.WaitStatus(status))
	case "failed":
		worker, _ := strconv.ParseUint(arg, 10, 64)
		t.logf("cannot fork worker %d: %s", worker, text)
		t.failed(worker, "the worker could not be forked: "+text)
	case "skipped":
		t.logf("module %s is not imported in advance: %s", arg, text)
	default:
		t.logf("%s", line)
	}
}

func (t *Template) logf(format string, args ...any) {
	if t.cfg.Log != nil {
		fmt.Fprintf(t.cfg.Log, "raygo: "+format+"\n", args...)
	}
}

// end runs when the control socket has ended: the process is made to end too, and the handler told why it did.
func (t *Template) end() {
	t.mu.Lock()
	t.mu.gone = true
	queue := t.mu.queue
	t.mu.queue = nil
	closed := t.mu.closed
	ready := t.mu.ready
	var lost []*proc
	for _, p := range t.mu.procs {
		if !p.started && p.note == "" {
			p.note = ErrGone.Error()
			p.started = true
			lost = append(lost, p)
		}
	}
	t.mu.changed.Broadcast()
	t.mu.Unlock()
	for _, r := range queue {
		r.close()
	}
	if closed && !ready { // it has no children, and what it imports is for nobody
		_ = t.cmd.Process.Kill()
	}
	select {
	case <-t.exited:
	case <-time.After(2 * time.Second):
		_ = t.cmd.Process.Kill()
		<-t.exited
	}
	// Their pipes have ended unless a child was forked in the last moment, whose output is then read without knowing its number.
	for _, p := range lost {
		go p.out.run(0, logFile{})
		go p.err.run(0, logFile{})
	}
	var err error
	if !closed {
		when := "while it served"
		if !ready {
			when = "before it was ready"
		}
		cause := "exit status 0"
		if t.waitErr != nil {
			cause = t.waitErr.Error()
		}
		err = fmt.Errorf("%w: process %d (%s) ended %s: %s%s", ErrGone, t.Pid(), t.cfg.Executable, when, cause, t.logTail())
	}
	t.handler.Gone(t, err)
}

// logTail is the end of the template's own output, for errors.
func (t *Template) logTail() string {
	if t.cfg.Log == nil {
		return ""
	}
	f, err := os.Open(t.cfg.Log.Name())
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 4 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err != nil || len(b) == 0 {
		return ""
	}
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return "\n" + strings.Join(lines, "\n")
}
