package runtimeenv

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Base is what an environment is built on top of.
type Base struct {
	Executable string            // the interpreter
	Cwd        string            // relative paths begin here
	SessionDir string            // files are copied into it
	Env        map[string]string // the job's variables, for ${NAME} in env_vars; what is not there comes from this process
}

// Result is what workers get on top of their job's surroundings. Empty: as the job has it.
type Result struct {
	Executable string
	Cwd        string
	SysPath    []string // before the job's own
	Env        map[string]string
}

// builds is what is being built now, by what it is, so that all who ask for one thing wait for one building of it.
var builds = struct {
	sync.Mutex
	running map[string]*build
}{running: map[string]*build{}}

type build struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiters int // builds.Mutex
	result  Result
	err     error
}

// Build makes what the runtime_env specJSON asks for. cacheDir keeps virtual environments between sessions. Equal requests that come at a time
// are one building; it is given up when all who wait for it are.
func Build(ctx context.Context, specJSON, cacheDir string, base Base) (Result, error) {
	if strings.TrimSpace(specJSON) == "" {
		return Result{}, nil
	}
	key := strings.Join([]string{specJSON, cacheDir, base.Executable, base.Cwd, base.SessionDir}, "\x00")
	builds.Lock()
	b := builds.running[key]
	if b == nil {
		// Not the first one's context: others may come to wait for it, and the first one leave.
		bctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		b = &build{done: make(chan struct{}), cancel: cancel}
		builds.running[key] = b
		go func() {
			b.result, b.err = construct(bctx, specJSON, cacheDir, base)
			cancel()
			builds.Lock()
			if builds.running[key] == b {
				delete(builds.running, key)
			}
			builds.Unlock()
			close(b.done)
		}()
	}
	b.waiters++
	builds.Unlock()
	defer func() {
		builds.Lock()
		defer builds.Unlock()
		if b.waiters--; b.waiters == 0 {
			b.cancel()
			if builds.running[key] == b {
				delete(builds.running, key)
			}
		}
	}()
	select {
	case <-b.done:
		r := b.result
		r.Env = maps.Clone(r.Env)
		r.SysPath = append([]string(nil), r.SysPath...)
		return r, b.err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("runtimeenv: %w", context.Cause(ctx))
	}
}

func construct(ctx context.Context, specJSON, cacheDir string, base Base) (Result, error) {
	s, err := parse(specJSON)
	if err != nil {
		return Result{}, err
	}
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("it took more than %v (config: setup_timeout_seconds)", s.timeout))
		defer cancel()
	}
	var r Result
	if s.workingDir != "" {
		dir, err := stage(ctx, base, s.workingDir, "working_dir", s.excludes)
		if err != nil {
			return Result{}, err
		}
		r.Cwd = dir
		r.SysPath = append(r.SysPath, dir)
	}
	for _, m := range s.pyModules {
		dir, err := stage(ctx, base, m, "py_modules", s.excludes)
		if err != nil {
			return Result{}, err
		}
		if fi, err := os.Stat(resolve(base, m)); err == nil && fi.IsDir() {
			dir = filepath.Dir(dir) // the module is the folder itself
		}
		r.SysPath = append(r.SysPath, dir)
	}
	if len(s.packages) > 0 {
		v, err := buildVenv(ctx, s, cacheDir, base)
		if err != nil {
			return Result{}, err
		}
		r.Executable = v.python
		r.SysPath = append(r.SysPath, v.sitePackages...)
		r.Env = map[string]string{"VIRTUAL_ENV": v.dir, "PATH": filepath.Dir(v.python) + string(os.PathListSeparator) + lookup(base, "PATH")}
	}
	for k, v := range s.envVars {
		if r.Env == nil {
			r.Env = map[string]string{}
		}
		r.Env[k] = expand(v, func(name string) string {
			if own, ok := r.Env[name]; ok && name == "PATH" && name != k {
				return own
			}
			return lookup(base, name)
		})
	}
	return r, nil
}

func lookup(base Base, name string) string {
	if v, ok := base.Env[name]; ok {
		return v
	}
	return os.Getenv(name)
}

// expand replaces ${NAME}, and nothing else: a lone dollar is common in values.
func expand(value string, get func(string) string) string {
	var b strings.Builder
	for {
		i := strings.Index(value, "${")
		if i < 0 {
			break
		}
		j := strings.IndexByte(value[i:], '}')
		if j < 0 {
			break
		}
		b.WriteString(value[:i])
		b.WriteString(get(value[i+2 : i+j]))
		value = value[i+j+1:]
	}
	b.WriteString(value)
	return b.String()
}

func resolve(base Base, path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if !filepath.IsAbs(path) && base.Cwd != "" {
		return filepath.Join(base.Cwd, path)
	}
	return path
}
