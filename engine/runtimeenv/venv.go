package runtimeenv

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	lastLines = 20 // of an installer's output, in errors
	keepVenvs = 20 // virtual environments that stay in the cache
	readyFile = ".raygo-ready"
)

type venv struct {
	dir          string
	python       string
	sitePackages []string
}

// interpreter is what has to be known of a Python to build on it.
type interpreter struct {
	Version string   `json:"version"`
	Site    []string `json:"site"` // its own site-packages; a virtual environment's are not seen by environments made from it
	UV      bool     `json:"uv"`   // python -m uv works
	Pip     string   `json:"pip"`  // its version, if there is one
	Prefix  string   `json:"prefix"`
	Below   string   `json:"below"` // the prefix of the interpreter that a virtual environment was made from; its own otherwise
}

const askInterpreter = `
import json, site, sys, importlib.util
try:
    from importlib.metadata import version
    pip = version("pip")
except Exception:
    pip = ""
print(json.dumps({"version": sys.version, "site": site.getsitepackages(), "uv": importlib.util.find_spec("uv") is not None, "pip": pip, "prefix": sys.prefix, "below": sys.base_prefix}))
`

// buildVenv makes, or finds in the cache, a virtual environment that has the packages and sees all that the base interpreter sees.
func buildVenv(ctx context.Context, s *spec, cacheDir string, base Base) (*venv, error) {
	fail := func(err error) (*venv, error) {
		return nil, fmt.Errorf("runtime_env: packages %s: %w", brief(s.packages), err)
	}
	var py interpreter
	out, err := run(ctx, base, nil, base.Executable, "-c", askInterpreter)
	if err == nil {
		err = json.Unmarshal(out, &py)
	}
	if err != nil {
		return fail(fmt.Errorf("%s cannot be asked about itself: %w", base.Executable, err))
	}
	uv := findUV(base, py)
	if s.uv && uv == nil {
		return fail(fmt.Errorf("%w: uv is asked for, and there is no uv on PATH or in %s", ErrSpec, base.Executable))
	}
	id, err := json.Marshal([]any{s.packages, s.pipOptions, s.pipVersion, s.uv, base.Executable, py.Version, py.Prefix})
	if err != nil {
		return fail(err)
	}
	sum := sha256.Sum256(id)
	dir := filepath.Join(cacheDir, hex.EncodeToString(sum[:16]))
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return fail(err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return fail(err)
	}
	defer unlock()
	v := &venv{dir: dir, python: filepath.Join(dir, "bin", "python")}
	if _, err := os.Stat(filepath.Join(dir, readyFile)); err != nil {
		// A half-made one was left by somebody who died.
		if err := os.RemoveAll(dir); err != nil {
			return fail(err)
		}
		if err := v.install(ctx, s, base, py, uv); err != nil {
			os.RemoveAll(dir)
			return fail(err)
		}
		if err := os.WriteFile(filepath.Join(dir, readyFile), nil, 0o600); err != nil {
			return fail(err)
		}
		pruneVenvs(cacheDir)
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, readyFile), now, now) // the order of pruning
	v.sitePackages, err = filepath.Glob(filepath.Join(dir, "lib", "python*", "site-packages"))
	if err != nil || len(v.sitePackages) == 0 {
		return fail(fmt.Errorf("%s has no site-packages", dir))
	}
	return v, nil
}

func (v *venv) install(ctx context.Context, s *spec, base Base, py interpreter, uv []string) error {
	ownPip := s.pipVersion != "" || py.Pip == "" || olderPip(py.Pip)
	create := slices.Concat(uv, []string{"venv", "--quiet", "--system-site-packages", "--python", base.Executable, v.dir})
	if uv == nil {
		create = []string{base.Executable, "-m", "venv", "--system-site-packages", v.dir}
		if !ownPip {
			create = slices.Insert(create, 3, "--without-pip")
		}
	}
	if _, err := run(ctx, base, nil, create...); err != nil {
		return err
	}
	if err := v.seeBase(py); err != nil {
		return err
	}
	requirements := filepath.Join(v.dir, "requirements.txt")
	if err := os.WriteFile(requirements, []byte(strings.Join(s.packages, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	env := []string{"VIRTUAL_ENV=" + v.dir, "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1"}
	pip := []string{base.Executable, "-m", "pip", "--python", v.python}
	switch {
	case uv != nil:
		pip = slices.Concat(uv, []string{"pip"})
	case ownPip:
		pip = []string{v.python, "-m", "pip"}
		if s.pipVersion != "" {
			if _, err := run(ctx, base, env, append(slices.Clone(pip), "install", "--quiet", "pip"+s.pipVersion)...); err != nil {
				return err
			}
		}
	}
	args := slices.Concat(pip, []string{"install"})
	if uv != nil {
		args = append(args, "--python", v.python)
	}
	args = append(slices.Concat(args, s.pipOptions), "-r", requirements)
	if _, err := run(ctx, base, env, args...); err != nil {
		return err
	}
	if s.pipCheck {
		args := append(slices.Clone(pip), "check")
		if uv != nil {
			args = append(args, "--python", v.python)
		}
		if _, err := run(ctx, base, env, args...); err != nil {
			return err
		}
	}
	return nil
}

// seeBase makes the base interpreter's packages visible after the environment's own, editable ones included. --system-site-packages is
// not enough when the base is a virtual environment itself: it means the interpreter below that.
func (v *venv) seeBase(py interpreter) error {
	if py.Prefix == py.Below {
		return nil
	}
	own, err := filepath.Glob(filepath.Join(v.dir, "lib", "python*", "site-packages"))
	if err != nil || len(own) == 0 {
		return fmt.Errorf("the virtual environment %s has no site-packages", v.dir)
	}
	var b strings.Builder
	for _, dir := range py.Site {
		fmt.Fprintf(&b, "import site; site.addsitedir(%s)\n", pyString(dir))
	}
	return os.WriteFile(filepath.Join(own[0], "_raygo_base.pth"), []byte(b.String()), 0o600)
}

// pyString writes a path as a Python literal; JSON's strings are Python's.
func pyString(s string) string {
	b, _ := json.Marshal(s) // a string always can be
	return string(b)
}

// olderPip tells whether a pip is too old to install for another interpreter (--python came with 22.3).
func olderPip(version string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 1 {
		return true
	}
	return major < 22 || major == 22 && minor < 3
}

func findUV(base Base, py interpreter) []string {
	for _, dir := range filepath.SplitList(lookup(base, "PATH")) {
		path := filepath.Join(dir, "uv")
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0 {
			return []string{path}
		}
	}
	if py.UV {
		return []string{base.Executable, "-m", "uv"}
	}
	return nil
}

// run runs a program in a process group of its own and returns its stdout. The error holds the last lines of what it printed.
func run(ctx context.Context, base Base, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stdout bytes.Buffer
	both := &output{}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, both), both
	if filepath.IsAbs(base.Cwd) {
		cmd.Dir = base.Cwd // requirements may name paths relative to it
	}
	cmd.Env = os.Environ()
	for k, v := range base.Env {
		if k != "PYTHONPATH" && k != "PYTHONHOME" {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	text := strings.TrimSpace(both.all.String())
	lines := strings.Split(text, "\n")
	if len(lines) > lastLines {
		lines = lines[len(lines)-lastLines:]
	}
	return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.Join(lines, "\n"))
}

// output keeps what a program prints on both streams, in the order in which it comes.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

// lock waits for a file lock; other processes may be building the same.
func lock(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() {
		for {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return nil, err
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		// The goroutine cannot be called back; it lets go as soon as it has the lock.
		go func() {
			<-got
			f.Close()
		}()
		return nil, fmt.Errorf("waiting for another process that builds the same: %w", context.Cause(ctx))
	}
}

// pruneVenvs removes the environments that were not used for longest. One that a running session uses was touched when it was built or found there, so
// that twenty others would have to follow.
func pruneVenvs(cacheDir string) {
	marks, err := filepath.Glob(filepath.Join(cacheDir, "*", readyFile))
	if err != nil || len(marks) <= keepVenvs {
		return
	}
	age := func(path string) time.Time {
		if fi, err := os.Stat(path); err == nil {
			return fi.ModTime()
		}
		return time.Time{}
	}
	slices.SortFunc(marks, func(a, b string) int { return age(b).Compare(age(a)) })
	for _, m := range marks[keepVenvs:] {
		if time.Since(age(m)) > 24*time.Hour {
			os.Remove(m)
			os.RemoveAll(filepath.Dir(m))
		}
	}
}

func brief(packages []string) string {
	if len(packages) > 5 {
		return strings.Join(packages[:5], ", ") + fmt.Sprintf(" and %d more", len(packages)-5)
	}
	return strings.Join(packages, ", ")
}
