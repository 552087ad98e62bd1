package session

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCreateListenFindClose(t *testing.T) {
	tmp := t.TempDir()
	s, err := Create(Options{TempDir: tmp})
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{Root(tmp): 0o700, s.Dir: 0o700, s.LogDir: 0o700} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, st.Mode(), err)
		}
	}
	if len(Find(tmp)) != 0 {
		t.Error("a session is found before it listens")
	}
	l, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(s.SocketPath); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v %v", st.Mode(), err)
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	found := Find(tmp)
	if len(found) != 1 || found[0].Dir != s.Dir || found[0].PID != os.Getpid() || found[0].Socket != s.SocketPath {
		t.Errorf("%+v", found)
	}
	if err := <-accepted; err != nil {
		t.Error(err)
	}
	if latest, err := os.Readlink(filepath.Join(Root(tmp), latestLink)); err != nil || latest != filepath.Base(s.Dir) {
		t.Errorf("%s %v", latest, err)
	}
	l.Close()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(s.SocketPath); !os.IsNotExist(err) {
		t.Error("the socket is left")
	}
	if _, err := os.Stat(s.LogDir); err != nil {
		t.Error("the logs are gone")
	}
	if len(Find(tmp)) != 0 {
		t.Error("a closed session is found")
	}
}

func TestLongPath(t *testing.T) {
	tmp := filepath.Join(t.TempDir(), strings.Repeat("x", 90))
	s, err := Create(Options{TempDir: tmp})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.SocketPath) > maxSocketPath {
		t.Fatalf("%d: %s", len(s.SocketPath), s.SocketPath)
	}
	l, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(s.SocketPath)); !os.IsNotExist(err) {
		t.Error("the socket's folder is left")
	}
}

func TestForeignFolderIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to be root to give a folder to somebody else")
	}
	tmp := t.TempDir()
	if err := os.Mkdir(Root(tmp), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(Root(tmp), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(Options{TempDir: tmp}); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "12345") {
		t.Fatalf("%v", err)
	}
	tmp = t.TempDir()
	if err := os.Symlink("/etc", Root(tmp)); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(Options{TempDir: tmp}); err == nil {
		t.Fatal("a link is followed")
	}
}

func TestOtherUsersAreNotLetIn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs to be root to act as somebody else")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	dir, err := os.MkdirTemp("/tmp", "raygo-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "socket")
	s := &Session{SocketPath: path, Dir: dir}
	l, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Opened wide, so that only the check in Accept is left to refuse.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			accepted <- c
		}
	}()
	cmd := exec.Command(python, "-c", "import os, socket, sys; os.setuid(12345); s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(len(s.recv(1)))", path)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "0" {
		t.Fatalf("another user's connection was not closed: %s %v", out, err)
	}
	if !answers(path) {
		t.Fatal("does not answer this user")
	}
	select {
	case c := <-accepted:
		c.Close()
	case <-time.After(10 * time.Second):
		t.Fatal("this user's connection was not accepted")
	}
}

func TestOldSessionsArePruned(t *testing.T) {
	tmp := t.TempDir()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	first, err := Create(Options{TempDir: tmp})
	if err != nil {
		t.Fatal(err)
	}
	for i := range keepSessions + 5 {
		dir := filepath.Join(Root(tmp), fmt.Sprintf("session_old_%02d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		info := fmt.Sprintf(`{"pid": %d, "socket": "%s/socket", "version": "0", "started": "2020-01-01T00:00:%02dZ"}`, dead.Process.Pid, dir, i)
		if err := os.WriteFile(filepath.Join(dir, infoFile), []byte(info), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Create(Options{TempDir: tmp}); err != nil {
		t.Fatal(err)
	}
	old, err := filepath.Glob(filepath.Join(Root(tmp), "session_old_*"))
	if err != nil || len(old) != keepSessions || filepath.Base(old[0]) != "session_old_05" {
		t.Errorf("%d are left: %v", len(old), old)
	}
	if _, err := os.Stat(first.Dir); err != nil {
		t.Error("a live session's folder was removed")
	}
}

func TestNameIsChecked(t *testing.T) {
	for _, name := range []string{"x", "session_a/b", "../session_a", latestLink} {
		if _, err := Create(Options{TempDir: t.TempDir(), Name: name}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestManySessionsOfOneProcess(t *testing.T) {
	tmp := t.TempDir()
	for range 50 {
		s, err := Create(Options{TempDir: tmp})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// This process lives on, but its closed sessions count as dead.
	all, _ := filepath.Glob(filepath.Join(Root(tmp), "session_*-*"))
	if len(all) > keepSessions+2 {
		t.Errorf("%d folders are left", len(all))
	}
}
