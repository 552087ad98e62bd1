package runtimeenv

import (
	"archive/zip"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
)

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func zipOf(t *testing.T, path string, files map[string]string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for name, text := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

func tree(t *testing.T, root string) string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(root, p)
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func spec1(t *testing.T, fields map[string]any) string {
	t.Helper()
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func must(t *testing.T, spec string, base Base) Result {
	t.Helper()
	r, err := Build(context.Background(), spec, filepath.Join(base.SessionDir, "cache"), base)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVariables(t *testing.T) {
	base := Base{SessionDir: t.TempDir(), Env: map[string]string{"OLD": "/a"}}
	r := must(t, `{"env_vars": {"X": "1", "P": "${OLD}:/b", "D": "$OLD ${", "N": "${NOT_THERE}"}, "pip": null, "_extra": 1}`, base)
	want := map[string]string{"X": "1", "P": "/a:/b", "D": "$OLD ${", "N": ""}
	for k, v := range want {
		if r.Env[k] != v {
			t.Errorf("%s=%q, want %q", k, r.Env[k], v)
		}
	}
	if r.Executable != "" || r.Cwd != "" || len(r.SysPath) != 0 {
		t.Errorf("%+v", r)
	}
	if r := must(t, "", base); r.Env != nil {
		t.Errorf("%+v", r)
	}
}

func TestBadSpecs(t *testing.T) {
	for spec, want := range map[string]string{
		`{"conda": "x", "docker": 1}`:                         "unknown field conda, docker",
		`[]`:                                                  "JSON object",
		`{"env_vars": {"A": 1}}`:                              "env_vars",
		`{"env_vars": {"A=B": "1"}}`:                          "A=B",
		`{"working_dir": "s3://bucket/x.zip"}`:                "s3://bucket/x.zip is not a local path",
		`{"working_dir": "/no/such/folder"}`:                  "/no/such/folder",
		`{"py_modules": "x"}`:                                 "list of paths",
		`{"pip": 5}`:                                          "list of requirements",
		`{"pip": "/no/such/requirements.txt"}`:                "/no/such/requirements.txt",
		`{"pip": {"packages": ["a"], "what": 1}}`:             `unknown field "what"`,
		`{"pip": ["a"], "uv": ["b"]}`:                         "pip and uv",
		`{"config": {"setup_timeout_seconds": -3}}`:           "setup_timeout_seconds",
		`{"excludes": "x", "working_dir": "/tmp"}`:            "excludes",
		`{"pip": {"packages": {"packages": {"packages":1}}}}`: "packages",
	} {
		_, err := Build(context.Background(), spec, t.TempDir(), Base{SessionDir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", spec, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"pip": {"packages": ["a"]}, "env_vars": {"a": "b"}, "config": {}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "/dev") || strings.Contains(text, "/proc") {
			t.Skip("may name a file that does not end")
		}
		if _, err := parse(text); err != nil && !errors.Is(err, ErrSpec) {
			t.Fatal(err)
		}
	})
}

func TestWorkingDir(t *testing.T) {
	src := filepath.Join(t.TempDir(), "proj")
	write(t, src, map[string]string{
		"mod.py": "A = 1", "data/big.bin": "x", "data/keep.txt": "x", "sub/.gitignore": "*.tmp\n!good.tmp\n/local", "sub/a.tmp": "x", "sub/good.tmp": "x",
		"sub/local/x": "x", "sub/deep/local/y": "x", ".git/config": "x", "logs/a": "x", "sub/logs/b": "x",
	})
	if err := os.Symlink("mod.py", filepath.Join(src, "link.py")); err != nil {
		t.Fatal(err)
	}
	base := Base{SessionDir: t.TempDir(), Cwd: filepath.Dir(src)}
	spec := `{"working_dir": "proj", "excludes": ["*.bin", "/logs/", "nothing/**"]}`
	r := must(t, spec, base)
	want := "data/keep.txt link.py mod.py sub/.gitignore sub/deep/local/y sub/good.tmp sub/logs/b"
	if got := tree(t, r.Cwd); got != want {
		t.Errorf("copied %q, want %q", got, want)
	}
	if filepath.Base(r.Cwd) != "proj" || !strings.HasPrefix(r.Cwd, base.SessionDir) || r.SysPath[0] != r.Cwd {
		t.Errorf("%+v", r)
	}
	if again := must(t, spec, base); again.Cwd != r.Cwd {
		t.Error("the same content was copied twice")
	}
	write(t, src, map[string]string{"mod.py": "A = 2"})
	if changed := must(t, spec, base); changed.Cwd == r.Cwd {
		t.Error("changed content was not noticed")
	}
	if parts, _ := filepath.Glob(filepath.Join(base.SessionDir, "runtime_env", ".part-*")); len(parts) != 0 {
		t.Errorf("left over: %v", parts)
	}
}

func TestZip(t *testing.T) {
	dir := t.TempDir()
	base := Base{SessionDir: t.TempDir(), Cwd: dir}
	zipOf(t, filepath.Join(dir, "a.zip"), map[string]string{"proj/mod.py": "x", "proj/sub/b.txt": "y"})
	if r := must(t, `{"working_dir": "a.zip"}`, base); tree(t, r.Cwd) != "mod.py sub/b.txt" {
		t.Errorf("%s: %s", r.Cwd, tree(t, r.Cwd))
	}
	zipOf(t, filepath.Join(dir, "evil.zip"), map[string]string{"../../evil": "x"})
	if _, err := Build(context.Background(), `{"working_dir": "evil.zip"}`, dir, base); !errors.Is(err, ErrSpec) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(base.SessionDir, "evil")); err == nil {
		t.Error("a file was written outside")
	}
}

func TestTooLarge(t *testing.T) {
	defer func(old int64) { maxStaged = old }(maxStaged)
	maxStaged = 1 << 20
	dir := t.TempDir()
	write(t, dir, map[string]string{"data/a": strings.Repeat("x", 2<<20), "b": "x"})
	base := Base{SessionDir: t.TempDir(), Cwd: "/"}
	_, err := Build(context.Background(), spec1(t, map[string]any{"working_dir": dir}), dir, base)
	if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "data (2 MiB)") {
		t.Errorf("%v", err)
	}
	must(t, spec1(t, map[string]any{"working_dir": dir, "excludes": []string{"data"}}), base)
	zipOf(t, filepath.Join(dir, "bomb.zip"), map[string]string{"a": strings.Repeat("x", 2<<20)})
	if _, err := Build(context.Background(), spec1(t, map[string]any{"working_dir": filepath.Join(dir, "bomb.zip")}), dir, base); !errors.Is(err, ErrSpec) {
		t.Errorf("%v", err)
	}
}

func TestPyModules(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"pkg/__init__.py": "", "single.py": "x"})
	zipOf(t, filepath.Join(dir, "w-1-py3-none-any.whl"), map[string]string{"wheelmod/__init__.py": ""})
	r := must(t, `{"py_modules": ["pkg", "single.py", "w-1-py3-none-any.whl"]}`, Base{SessionDir: t.TempDir(), Cwd: dir})
	for i, want := range []string{"pkg/__init__.py", "single.py", "wheelmod/__init__.py"} {
		if _, err := os.Stat(filepath.Join(r.SysPath[i], want)); err != nil {
			t.Errorf("%v", err)
		}
	}
	if r.Cwd != "" {
		t.Errorf("%+v", r)
	}
}

func interpreterHere(t *testing.T) string {
	t.Helper()
	p, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	out, err := exec.Command(p, "-c", "import sys, venv, pip; print(sys.executable)").Output()
	if err != nil {
		t.Skip("needs a python3 with venv and pip")
	}
	return strings.TrimSpace(string(out))
}

// wheel writes a wheel by hand, so that no index is asked.
func wheel(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name+"-1.0-py3-none-any.whl")
	info := name + "-1.0.dist-info/"
	zipOf(t, path, map[string]string{
		name + ".py":      "WHO = '" + name + "'\n",
		info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":   "",
	})
	return path
}

func TestPackages(t *testing.T) {
	base := Base{Executable: interpreterHere(t), SessionDir: t.TempDir(), Cwd: t.TempDir()}
	cache := t.TempDir()
	whl := wheel(t, base.Cwd, "raygo_test_pkg")
	write(t, base.Cwd, map[string]string{"requirements.txt": "# mine\n" + whl + "\n"})
	spec := spec1(t, map[string]any{"pip": map[string]any{"packages": []string{whl}}})
	var wg sync.WaitGroup
	results := make([]Result, 3)
	for i := range results {
		wg.Go(func() {
			r, err := Build(context.Background(), spec, cache, base)
			if err != nil {
				t.Error(err)
			}
			results[i] = r
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	r := results[0]
	for _, o := range results {
		if o.Executable != r.Executable {
			t.Error("built more than once")
		}
	}
	out, err := exec.Command(r.Executable, "-c", "import raygo_test_pkg, pip; print(raygo_test_pkg.WHO)").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "raygo_test_pkg" {
		t.Fatalf("%s %v", out, err)
	}
	if len(r.SysPath) != 1 || !strings.HasPrefix(r.SysPath[0], cache) || !strings.HasPrefix(r.Env["PATH"], filepath.Dir(r.Executable)) {
		t.Errorf("%+v", r)
	}
	began := time.Now()
	if again := must(t, spec, Base{Executable: base.Executable, SessionDir: filepath.Dir(cache), Cwd: base.Cwd}); again.Executable == "" {
		t.Error("nothing from the cache")
	}
	t.Logf("from an own cache: %v", time.Since(began))

	// On top of a virtual environment: its packages are seen as well.
	upper, err := Build(context.Background(), spec1(t, map[string]any{"pip": []string{wheel(t, base.Cwd, "raygo_test_two")}}), cache,
		Base{Executable: r.Executable, SessionDir: base.SessionDir, Cwd: base.Cwd})
	if err != nil {
		t.Fatal(err)
	}
	out, err = exec.Command(upper.Executable, "-c", "import raygo_test_pkg, raygo_test_two").CombinedOutput()
	if err != nil {
		t.Errorf("%s %v", out, err)
	}
}

func TestInstallersLastWords(t *testing.T) {
	base := Base{Executable: interpreterHere(t), SessionDir: t.TempDir(), Cwd: t.TempDir()}
	cache := t.TempDir()
	_, err := Build(context.Background(), spec1(t, map[string]any{"pip": []string{"./no_such_wheel-1.0-py3-none-any.whl"}}), cache, base)
	if err == nil || !strings.Contains(err.Error(), "no_such_wheel") || !strings.Contains(err.Error(), "install") || len(strings.Split(err.Error(), "\n")) < 2 {
		t.Fatalf("%v", err)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "*", readyFile))
	if len(left) != 0 {
		t.Errorf("a failed environment is kept: %v", left)
	}
}

func TestTimeoutAndCancel(t *testing.T) {
	dir := t.TempDir()
	slow := filepath.Join(dir, "python")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\necho working on it\nsleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	base := Base{Executable: slow, SessionDir: t.TempDir()}
	_, err := Build(context.Background(), `{"pip": ["x"], "config": {"setup_timeout_seconds": 0.3}}`, dir, base)
	if err == nil || !strings.Contains(err.Error(), "300ms") || !strings.Contains(err.Error(), "working on it") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := Build(ctx, `{"pip": ["y"]}`, dir, base); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestIgnore(t *testing.T) {
	for _, c := range []struct {
		patterns, path string
		dir, want      bool
	}{
		{"*.pyc", "a/b.pyc", false, true},
		{"a/*.pyc", "a/b.pyc", false, true},
		{"a/*.pyc", "x/a/b.pyc", false, false},
		{"/b", "a/b", false, false},
		{"b/", "b", false, false},
		{"b/", "a/b", true, true},
		{"a/**/z", "a/z", false, true},
		{"a/**/z", "a/b/c/z", false, true},
		{"**/z", "q/z", false, true},
		{"a/**", "a/q/r", false, true},
		{"*.t !k.t", "k.t", false, false},
		{"[ab].c", "b.c", false, true},
		{"[!ab].c", "b.c", false, false},
		{"#x \\#y", "#y", false, true},
		{"a.b", "axb", false, false},
		{"f?o", "fxo", false, true},
	} {
		g := newIgnore(strings.Fields(c.patterns))
		if got, _ := g.match(c.path, c.dir); got != c.want {
			t.Errorf("%q on %s: %v", c.patterns, c.path, got)
		}
	}
}
