package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/raygo/raygo/engine/version"
)

const (
	keepSessions  = 20  // dead sessions whose folders stay
	maxSocketPath = 100 // a socket's address holds 107 bytes
	infoFile      = "session.json"
	latestLink    = "session_latest"
	prefix        = "session_"
)

// ErrForeign is the cause when the folder for sessions belongs to somebody else.
var ErrForeign = errors.New("the session folder belongs to another user")

// Options of Create.
type Options struct {
	TempDir string // where sessions live; empty: RAYGO_TMPDIR, or the system's folder for temporary files
	Name    string // of the session's folder; empty: from time and process
}

// Session is one engine's folder.
type Session struct {
	Dir        string
	SocketPath string
	LogDir     string

	info      Info
	root      string
	socketDir string // made for the socket alone; empty when it lies in Dir
	closed    bool
}

// Info is what session.json says.
type Info struct {
	PID     int       `json:"pid"`
	Socket  string    `json:"socket"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"` // closed properly

	Dir string `json:"-"`
}

// Create makes the folder of a new session and removes those of old ones.
func Create(opts Options) (*Session, error) {
	root, err := openRoot(opts.TempDir)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	name := opts.Name
	if name == "" {
		name = fmt.Sprintf("%s%s_%06d_%d", prefix, now.Format("2006-01-02_15-04-05"), now.Nanosecond()/1000, os.Getpid())
	}
	if name != filepath.Base(name) || !strings.HasPrefix(name, prefix) || name == latestLink {
		return nil, fmt.Errorf("session: %q cannot name a session's folder: it has to begin with %q and hold no slash", name, prefix)
	}
	s := &Session{Dir: filepath.Join(root, name), root: root}
	s.LogDir = filepath.Join(s.Dir, "logs")
	prune(root)
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err := s.fill(now); err != nil {
		os.RemoveAll(s.Dir)
		if s.socketDir != "" {
			os.RemoveAll(s.socketDir)
		}
		return nil, err
	}
	return s, nil
}

func (s *Session) fill(now time.Time) error {
	if err := os.Mkdir(s.LogDir, 0o700); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	s.SocketPath = filepath.Join(s.Dir, "socket")
	if len(s.SocketPath) > maxSocketPath {
		dir, err := os.MkdirTemp("/tmp", "raygo-")
		if err != nil {
			return fmt.Errorf("session: a folder for the socket, whose path %s would be too long: %w", s.SocketPath, err)
		}
		s.socketDir = dir
		s.SocketPath = filepath.Join(dir, "socket")
	}
	s.info = Info{PID: os.Getpid(), Socket: s.SocketPath, Version: version.Version, Started: now.UTC()}
	if err := s.writeInfo(); err != nil {
		return err
	}
	link := filepath.Join(s.root, fmt.Sprintf(".latest-%d", os.Getpid()))
	os.Remove(link)
	if err := os.Symlink(filepath.Base(s.Dir), link); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if err := os.Rename(link, filepath.Join(s.root, latestLink)); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// writeInfo renames session.json into place, so that nobody reads half of it.
func (s *Session) writeInfo() error {
	info, err := json.MarshalIndent(s.info, "", "  ")
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	part := filepath.Join(s.Dir, infoFile+".part")
	if err := os.WriteFile(part, append(info, '\n'), 0o600); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	if err := os.Rename(part, filepath.Join(s.Dir, infoFile)); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	return nil
}

// Close removes the socket. The logs stay until newer sessions push them out.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	err := os.Remove(s.SocketPath)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if s.socketDir != "" {
		err = errors.Join(err, os.RemoveAll(s.socketDir))
	}
	s.info.Ended = time.Now().UTC()
	return errors.Join(err, s.writeInfo())
}

// Root is the folder that holds a user's sessions.
func Root(tempDir string) string {
	if tempDir == "" {
		tempDir = os.Getenv("RAYGO_TMPDIR")
	}
	if tempDir == "" {
		tempDir = os.TempDir()
	}
	return filepath.Join(tempDir, fmt.Sprintf("raygo-%d", os.Getuid()))
}

// openRoot makes sure that the folder for sessions exists and is ours alone. Somebody who owned it could put a socket of his own there.
func openRoot(tempDir string) (string, error) {
	root := Root(tempDir)
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("session: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return "", fmt.Errorf("session: %s: %w", root, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", fmt.Errorf("session: %s is not a folder; remove it, or choose another folder for temporary files", root)
	}
	if int(st.Uid) != os.Getuid() {
		return "", fmt.Errorf("%w: %s is owned by user %d, and this is user %d; choose another folder for temporary files", ErrForeign, root, st.Uid, os.Getuid())
	}
	if st.Mode&0o077 != 0 {
		if err := os.Chmod(root, 0o700); err != nil {
			return "", fmt.Errorf("session: %s is open to other users: %w", root, err)
		}
	}
	return root, nil
}

// Find lists the sessions under tempDir that live, newest first: their process exists and their socket answers.
func Find(tempDir string) []Info {
	var live []Info
	for _, info := range list(Root(tempDir)) {
		if info.live() && answers(info.Socket) {
			live = append(live, info)
		}
	}
	return live
}

// list reads all sessions' notes, newest first.
func list(root string) []Info {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var all []Info
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		dir := filepath.Join(root, e.Name())
		info := Info{Dir: dir}
		b, err := os.ReadFile(filepath.Join(dir, infoFile))
		if err != nil || json.Unmarshal(b, &info) != nil {
			// Just being made, or left half made by a process that died: as old as its folder.
			if fi, err := e.Info(); err == nil {
				info.Started = fi.ModTime()
			}
		}
		all = append(all, info)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Started.After(all[j].Started) })
	return all
}

// prune removes the folders of dead sessions but for the newest.
func prune(root string) {
	dead := 0
	for _, info := range list(root) {
		if info.live() || info.PID == 0 && time.Since(info.Started) < time.Minute {
			continue
		}
		// A killed engine leaves its socket; where that is elsewhere, its folder too.
		if dir := filepath.Dir(info.Socket); info.Socket != "" && dir != info.Dir && strings.HasPrefix(filepath.Base(dir), "raygo-") && ours(dir) {
			os.RemoveAll(dir)
		}
		if dead++; dead > keepSessions {
			os.RemoveAll(info.Dir)
		}
	}
}

func ours(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Getuid()
}

func (i *Info) live() bool { return i.Ended.IsZero() && alive(i.PID) }

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
