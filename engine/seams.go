package engine

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

// sessionDir is the folder of a session: logs, socket, spilled objects.
type sessionDir interface {
	dir() string
	logs() string
	socket() string
	listen() (net.Listener, error)
	close() error
}

type plainSession struct{ path string }

func openSession(temp, name string) (sessionDir, error) {
	path, err := os.MkdirTemp(temp, "raygo-session-")
	if err != nil {
		return nil, err
	}
	if name != "" {
		path = filepath.Join(temp, name)
	}
	return plainSession{path}, os.MkdirAll(path+"/logs", 0o700)
}

func (s plainSession) dir() string                   { return s.path }
func (s plainSession) logs() string                  { return s.path + "/logs" }
func (s plainSession) socket() string                { return s.path + "/s" }
func (s plainSession) listen() (net.Listener, error) { return net.Listen("unix", s.socket()) }
func (s plainSession) close() error                  { return os.RemoveAll(s.path) }

func buildEnv(_ context.Context, spec, cache string) (builtEnv, error) { return builtEnv{}, nil }
