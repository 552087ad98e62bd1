package worker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func python(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"python3", "python"} {
		if p, err := exec.LookPath(name); err == nil {
			// Resolved, so that a version manager's wrapper is not started in between.
			out, err := exec.Command(p, "-c", "import sys, cloudpickle; print(sys.executable)").Output()
			if err == nil {
				return strings.TrimSpace(string(out))
			}
		}
	}
	t.Skip("needs a python3 with cloudpickle")
	return ""
}

// events is a Handler that keeps what it hears.
type events struct {
	mu     sync.Mutex
	change chan struct{}
	ready  int
	forked map[uint64]int
	exited map[int]unix.WaitStatus
	gone   bool
	err    error
	out    []string
}

func newEvents() *events {
	return &events{change: make(chan struct{}, 1), forked: map[uint64]int{}, exited: map[int]unix.WaitStatus{}}
}

func (e *events) note(f func()) {
	e.mu.Lock()
	f()
	e.mu.Unlock()
	select {
	case e.change <- struct{}{}:
	default:
	}
}

func (e *events) Ready(_ *Template, pid int)                   { e.note(func() { e.ready = pid }) }
func (e *events) Forked(_ *Template, w uint64, pid int)        { e.note(func() { e.forked[w] = pid }) }
func (e *events) Exited(_ *Template, p int, s unix.WaitStatus) { e.note(func() { e.exited[p] = s }) }
func (e *events) Gone(_ *Template, err error)                  { e.note(func() { e.gone, e.err = true, err }) }
func (e *events) output(w uint64, pid int, r Record) {
	e.note(func() {
		e.out = append(e.out, fmt.Sprintf("%d %s %s|%s|%d|%v", w, r.Kind, r.Name, r.Text, r.Count, r.Progress))
	})
}

func (e *events) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		e.mu.Lock()
		good := ok()
		e.mu.Unlock()
		if good {
			return
		}
		select {
		case <-e.change:
		case <-deadline:
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

type rig struct {
	*events
	*Template
	t     testing.TB
	dir   string
	conns map[uint64]*bufio.ReadWriter
	files map[uint64]*os.File
}

func start(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	exe := python(t)
	fake, err := filepath.Abs("testdata/fake")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "logs", "template.log"))
	if err != nil {
		t.Fatal(err)
	}
	e := newEvents()
	cfg := Config{Executable: exe, SysPath: []string{fake}, Cwd: dir, MainPath: "/x/script.py", Env: map[string]string{"SHELF": "blue"},
		SessionDir: dir, Log: log, Output: e.output}
	if change != nil {
		change(&cfg)
	}
	tm, err := StartTemplate(cfg, e)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{events: e, Template: tm, t: t, dir: dir, conns: map[uint64]*bufio.ReadWriter{}, files: map[uint64]*os.File{}}
	t.Cleanup(func() {
		r.end()
		log.Close()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("template's log:\n%s", b)
		}
	})
	return r
}

func (r *rig) end() {
	for w, f := range r.files {
		_ = CloseFD(f)
		delete(r.files, w)
	}
	r.Close()
}

func (r *rig) fork(w uint64) {
	r.t.Helper()
	conn, err := r.Fork(w)
	if err != nil {
		r.t.Fatal(err)
	}
	r.files[w] = conn
	r.conns[w] = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
}

func (r *rig) tell(w uint64, line string) {
	r.t.Helper()
	fmt.Fprintln(r.conns[w], line)
	if err := r.conns[w].Flush(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) ask(w uint64, line string) string {
	r.t.Helper()
	r.tell(w, line)
	_ = r.files[w].SetReadDeadline(time.Now().Add(20 * time.Second))
	answer, err := r.conns[w].ReadString('\n')
	if err != nil {
		r.t.Fatalf("worker %d did not answer %q: %v", w, line, err)
	}
	return strings.TrimSpace(answer)
}

func (r *rig) exit(w uint64) unix.WaitStatus {
	r.t.Helper()
	var status unix.WaitStatus
	r.until(r.t, fmt.Sprintf("worker %d to end", w), func() bool {
		s, ok := r.events.exited[r.events.forked[w]]
		status = s
		return ok
	})
	return status
}

func (r *rig) pid(w uint64) int {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	return r.events.forked[w]
}

func (r *rig) lines() string {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	return strings.Join(r.events.out, "\n")
}

type seen struct {
	PID, PGID, Arena, Blocked int
	Random                    float64
	FDs                       map[string]string
	Path, Argv, Main, Modules []string
	Cwd, Comm                 string
	File                      *string
	Env                       map[string]string
	SigInt                    bool
}

func (r *rig) show(w uint64) seen {
	r.t.Helper()
	var s seen
	if err := json.Unmarshal([]byte(r.ask(w, "show")), &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestWorkersAreLikeTheirDriver(t *testing.T) {
	t.Setenv("PYTHONPATH", "/some/where")
	arena, err := unix.MemfdCreate("arena", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(arena), "arena")
	defer file.Close()
	r := start(t, func(c *Config) { c.Arena = file; c.Preload = []string{"fractions", "no_such_module"} })
	r.fork(1)
	r.fork(2)
	a, b := r.show(1), r.show(2)
	if a.Random == b.Random {
		t.Error("two workers have the same random state")
	}
	if a.PGID != a.PID || a.PID == b.PID {
		t.Errorf("process %d is in group %d", a.PID, a.PGID)
	}
	if a.Cwd != r.dir || a.Env["SHELF"] != "blue" || a.Argv[0] != "/x/script.py" || a.File != nil || len(a.Main) != 0 || !a.SigInt || a.Blocked != 0 || a.Comm != "raygo-worker" {
		t.Errorf("%+v", a)
	}
	if a.Env["PYTHONPATH"] != "/some/where" || a.Env["OMP_NUM_THREADS"] != os.Getenv("OMP_NUM_THREADS") {
		t.Errorf("PYTHONPATH %q, OMP_NUM_THREADS %q", a.Env["PYTHONPATH"], a.Env["OMP_NUM_THREADS"])
	}
	if !strings.HasSuffix(a.Path[0], "fake") || a.Arena != 4 || !strings.Contains(a.FDs["4"], "arena") {
		t.Errorf("path %v, arena %d %v", a.Path, a.Arena, a.FDs)
	}
	if !strings.Contains(strings.Join(a.Modules, " "), "fractions") {
		t.Error("a module to import in advance is missing")
	}
	// stdin, stdout, stderr, arena, connection; the folder being listed is closed again by the time its entry is read.
	if len(a.FDs) != 5 {
		t.Errorf("descriptors that a worker should not have: %v", a.FDs)
	}
	if a.FDs["0"] != "/dev/null" {
		t.Errorf("stdin is %s", a.FDs["0"])
	}
	log, _ := os.ReadFile(filepath.Join(r.dir, "logs", "template.log"))
	if !bytes.Contains(log, []byte("no_such_module")) {
		t.Errorf("a module that could not be imported is not reported: %s", log)
	}
}

func TestExitIsReported(t *testing.T) {
	r := start(t, nil)
	for w := uint64(1); w <= 4; w++ {
		r.fork(w)
	}
	r.tell(1, "exit 7")
	r.tell(2, "kill 9")
	r.tell(3, "raise oh dear")
	if s := r.exit(1); s.ExitStatus() != 7 {
		t.Errorf("exit 7: %v", s)
	}
	if s := r.exit(2); s.Signal() != unix.SIGKILL {
		t.Errorf("kill -9: %v", s)
	}
	if s := r.exit(3); s.ExitStatus() != 1 {
		t.Errorf("exception: %v", s)
	}
	if tail := r.StderrTail(3); !strings.Contains(tail, "ValueError: oh dear") || !strings.Contains(tail, "Traceback") {
		t.Errorf("stderr of the one that raised: %q", tail)
	}
	r.tell(4, "kill 11")
	r.exit(4)
	if tail := r.StderrTail(4); !strings.Contains(tail, "Segmentation fault") || !strings.Contains(tail, "_worker.py") {
		t.Errorf("stderr of the one that crashed: %q", tail)
	}
}

func TestOutputIsWholeAndNamed(t *testing.T) {
	r := start(t, nil)
	r.fork(1)
	r.ask(1, "print before any task")
	r.ask(1, "name f")
	r.ask(1, "print from f ü")
	r.ask(1, "err from f")
	r.ask(1, `write "half"`)
	r.ask(1, "name g")
	r.ask(1, "print from g")
	r.DrainOutput(1)
	got := r.lines()
	for _, want := range []string{"1 out |before any task|1|false", "1 out f|from f ü", "1 err f|from f|1|false", "half", "1 out g|from g|1|false"} {
		if !strings.Contains(got, want) {
			t.Errorf("missing %q in %q", want, got)
		}
	}
	if strings.Contains(got, "\x1e") {
		t.Errorf("a marker is left: %q", got)
	}
	r.ask(1, `write "open"`)
	if r.DrainOutput(1); strings.Contains(r.lines(), "open") {
		t.Errorf("a line that may go on was shown: %q", r.lines())
	}
	if r.DrainOutput(0); !strings.HasSuffix(r.lines(), "1 out g|open|1|false") {
		t.Errorf("a line without an end was not shown before a shutdown: %q", r.lines())
	}
	r.ask(1, `write "no end"`)
	r.tell(1, "kill 9")
	r.exit(1)
	r.end()
	if !strings.Contains(r.lines(), "no end") {
		t.Errorf("the last half line of a killed worker is lost: %q", r.lines())
	}
	log, err := os.ReadFile(filepath.Join(r.dir, "logs", fmt.Sprintf("worker-1-%d.out", r.pid(1))))
	if err != nil || string(log) != "before any task\nfrom f ü\nhalffrom g\nopenno end" {
		t.Errorf("log %q, %v", log, err)
	}
}

func TestProgressIsThrottled(t *testing.T) {
	r := start(t, nil)
	r.fork(1)
	for i := range 200 {
		r.ask(1, fmt.Sprintf(`write "\r%d it/s"`, i))
	}
	r.ask(1, `write "\r200 it/s\n"`)
	r.DrainOutput(0)
	got := r.lines()
	if n := strings.Count(got, "it/s"); n < 2 || n > 8 {
		t.Errorf("%d states of 200 were shown", n)
	}
	if !strings.Contains(got, "|true") || !strings.HasSuffix(got, "200 it/s|1|false") {
		t.Errorf("%q", got)
	}
}

func TestWorkerWithoutStdout(t *testing.T) {
	r := start(t, nil)
	r.fork(1)
	r.ask(1, "closestdout")
	r.ask(1, "err still here")
	r.tell(1, "exit 0")
	if s := r.exit(1); s.ExitStatus() != 0 {
		t.Errorf("%v", s)
	}
	if !strings.Contains(r.StderrTail(1), "still here") {
		t.Error("stderr is lost")
	}
}

func TestAProcessLeftBehindDoesNotHoldClose(t *testing.T) {
	r := start(t, nil)
	r.fork(1)
	r.ask(1, "child")
	r.ask(1, "print x")
	pid := r.pid(1)
	began := time.Now()
	r.end()
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("Close took %v", d)
	}
	if !strings.Contains(r.lines(), "|x|") {
		t.Error("output is lost")
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
}

func TestTemplateThatCannotStart(t *testing.T) {
	r := start(t, func(c *Config) { c.SysPath = []string{t.TempDir()}; c.Env["PYTHONPATH"] = "/nowhere" })
	conn, err := r.Fork(1)
	if err == nil {
		defer conn.Close()
	}
	r.until(t, "the end", func() bool { return r.events.gone })
	if !errors.Is(r.events.err, ErrGone) || !strings.Contains(r.events.err.Error(), "before it was ready") || !strings.Contains(r.events.err.Error(), "raygo") {
		t.Errorf("%v", r.events.err)
	}
	if _, err := r.Fork(2); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if _, err := StartTemplate(Config{Executable: "/no/such/python", SessionDir: t.TempDir()}, newEvents()); err == nil || !strings.Contains(err.Error(), "/no/such/python") {
		t.Errorf("%v", err)
	}
}

func TestTemplateKilled(t *testing.T) {
	r := start(t, nil)
	r.fork(1)
	r.ask(1, "print x")
	if err := unix.Kill(r.Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the end", func() bool { return r.events.gone })
	if r.events.err == nil || !strings.Contains(r.events.err.Error(), "killed") {
		t.Errorf("%v", r.events.err)
	}
	// Its workers live on.
	if got := r.ask(1, "print y"); got != "ok" {
		t.Error(got)
	}
}

func TestModuleThatStartsThreadsIsLeftOut(t *testing.T) {
	mods := t.TempDir()
	src := "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
	if err := os.WriteFile(filepath.Join(mods, "starts_threads.py"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(c *Config) {
		c.SysPath = append(c.SysPath, mods)
		c.Preload = []string{"starts_threads", "fractions"}
	})
	r.fork(1)
	s := r.show(1)
	all := strings.Join(s.Modules, " ")
	if strings.Contains(all, "starts_threads") || !strings.Contains(all, "fractions") {
		t.Errorf("modules: %s", all)
	}
	if len(s.FDs) != 4 {
		t.Errorf("descriptors are left over: %v", s.FDs)
	}
	log, _ := os.ReadFile(filepath.Join(r.dir, "logs", "template.log"))
	if !bytes.Contains(log, []byte("starts_threads is not imported in advance: it starts 1 thread")) {
		t.Errorf("%s", log)
	}
}

func TestFDHookIsBalanced(t *testing.T) {
	open := map[int]bool{}
	var mu sync.Mutex
	SetFDHook(func(fd int, on bool) {
		mu.Lock()
		defer mu.Unlock()
		if open[fd] == on {
			t.Errorf("descriptor %d is reported %v twice", fd, on)
		}
		open[fd] = on
	})
	defer SetFDHook(nil)
	before := runtime.NumGoroutine()
	r := start(t, nil)
	for w := uint64(1); w < 5; w++ {
		r.fork(w)
		r.ask(w, "print x")
	}
	r.tell(1, "kill 9")
	r.exit(1)
	r.end()
	r.end()
	mu.Lock()
	for fd, on := range open {
		if on {
			t.Errorf("descriptor %d is still open", fd)
		}
	}
	mu.Unlock()
	for i := 0; runtime.NumGoroutine() > before; i++ {
		if i == 100 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestLogRotation(t *testing.T) {
	dir := t.TempDir()
	l := logFile{path: filepath.Join(dir, "a"), max: 100}
	for range 50 {
		l.write([]byte("123456789\n"))
	}
	l.close()
	var total int64
	for _, n := range []string{"a", "a.1"} {
		st, err := os.Stat(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		total += st.Size()
	}
	if l.err != nil || total > 200 || total < 110 {
		t.Errorf("%d bytes, %v", total, l.err)
	}
}

// BenchmarkFork measures from asking for a worker to its first answer.
func BenchmarkFork(b *testing.B) {
	r := start(b, nil)
	r.fork(1)
	r.ask(1, "print x")
	w := uint64(1)
	for b.Loop() {
		w++
		r.fork(w)
		r.ask(w, "name x")
		b.StopTimer()
		_ = CloseFD(r.files[w])
		delete(r.files, w)
		b.StartTimer()
	}
}
