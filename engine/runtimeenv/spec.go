package runtimeenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"time"
)

// ErrSpec is the cause when a runtime_env itself is at fault, not the building of it.
var ErrSpec = errors.New("this runtime_env cannot be used")

// spec is a runtime_env that was understood.
type spec struct {
	envVars    map[string]string
	workingDir string
	excludes   []string
	pyModules  []string
	packages   []string // requirement lines
	pipOptions []string // further arguments of the installer
	pipCheck   bool
	pipVersion string // of pip itself
	uv         bool   // asked for by name
	timeout    time.Duration
}

var known = []string{"config", "env_vars", "excludes", "pip", "py_modules", "uv", "working_dir"}

func parse(text string) (*spec, error) {
	bad := func(format string, args ...any) (*spec, error) {
		return nil, fmt.Errorf("%w: %s", ErrSpec, fmt.Sprintf(format, args...))
	}
	s := &spec{timeout: 10 * time.Minute}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return bad("it is not a JSON object: %v", err)
	}
	var unknown []string
	for name, raw := range fields {
		if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
			delete(fields, name)
		} else if !slices.Contains(known, name) && !strings.HasPrefix(name, "_") {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		return bad("unknown field %s; there are %s", strings.Join(unknown, ", "), strings.Join(known, ", "))
	}
	if raw, ok := fields["env_vars"]; ok {
		if err := json.Unmarshal(raw, &s.envVars); err != nil {
			return bad("env_vars has to map names to strings: %v", err)
		}
		for k, v := range s.envVars {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
				return bad("env_vars: %q is not the name of a variable, or its value holds a zero byte", k)
			}
		}
	}
	if raw, ok := fields["working_dir"]; ok {
		if err := json.Unmarshal(raw, &s.workingDir); err != nil {
			return bad("working_dir has to be a path: %v", err)
		}
		if err := localPath("working_dir", s.workingDir); err != nil {
			return nil, err
		}
	}
	if raw, ok := fields["excludes"]; ok {
		if err := json.Unmarshal(raw, &s.excludes); err != nil {
			return bad("excludes has to be a list of patterns: %v", err)
		}
	}
	if raw, ok := fields["py_modules"]; ok {
		if err := json.Unmarshal(raw, &s.pyModules); err != nil {
			return bad("py_modules has to be a list of paths: %v", err)
		}
		for _, p := range s.pyModules {
			if err := localPath("py_modules", p); err != nil {
				return nil, err
			}
		}
	}
	_, pip := fields["pip"]
	_, uv := fields["uv"]
	if pip && uv {
		return bad("pip and uv are both given; one of them can install everything")
	}
	for _, name := range []string{"pip", "uv"} {
		if raw, ok := fields[name]; ok {
			s.uv = name == "uv"
			if err := s.parsePackages(name, raw); err != nil {
				return nil, err
			}
		}
	}
	if raw, ok := fields["config"]; ok {
		var c struct {
			Timeout *float64 `json:"setup_timeout_seconds"`
		}
		if err := json.Unmarshal(raw, &c); err != nil {
			return bad("config: %v", err)
		}
		switch {
		case c.Timeout == nil:
		case *c.Timeout == -1:
			s.timeout = 0
		case *c.Timeout <= 0:
			return bad("config: setup_timeout_seconds has to be over zero, or -1 for no limit, not %v", *c.Timeout)
		default:
			s.timeout = time.Duration(*c.Timeout * float64(time.Second))
		}
	}
	return s, nil
}

// parsePackages reads the value of pip or uv: a list of requirements, the path of a requirements file, or an object with "packages".
func (s *spec) parsePackages(name string, raw json.RawMessage) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrSpec, name, fmt.Sprintf(format, args...))
	}
	var file string
	if json.Unmarshal(raw, &file) == nil {
		b, err := os.ReadFile(file)
		if err != nil {
			return bad("the requirements file cannot be read: %v", err)
		}
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "#") {
				s.packages = append(s.packages, line)
			}
		}
		return nil
	}
	if json.Unmarshal(raw, &s.packages) == nil {
		return nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return bad("it has to be a list of requirements, the path of a requirements file, or an object with \"packages\"")
	}
	for key, value := range object {
		var err error
		switch key {
		case "packages":
			var inner spec
			if bytes.HasPrefix(bytes.TrimSpace(value), []byte("{")) {
				return bad("packages has to be a list or the path of a requirements file")
			}
			if err = inner.parsePackages(name, value); err == nil {
				s.packages = inner.packages
			}
		case "pip_check", "uv_check":
			err = json.Unmarshal(value, &s.pipCheck)
		case "pip_install_options", "uv_pip_install_options":
			err = json.Unmarshal(value, &s.pipOptions)
		case "pip_version":
			err = json.Unmarshal(value, &s.pipVersion)
		case "uv_version":
			// The uv that is there is used.
		default:
			return bad("unknown field %q", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func localPath(field, path string) error {
	if i := strings.Index(path, "://"); i > 0 {
		return fmt.Errorf("%w: %s: %s is not a local path; copy it to this machine first", ErrSpec, field, path)
	}
	if path == "" {
		return fmt.Errorf("%w: %s: the path is empty", ErrSpec, field)
	}
	return nil
}
