package raygo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/version"
)

// Options say how a session begins; the zero value is right for most.
type Options struct {
	Namespace         string   // where actor names are looked up; empty: one of this session's own
	Python            string   // interpreter for workers, with raygo installed; empty: $RAYGO_PYTHON, else python3 on the PATH
	SysPath           []string // folders that workers import from
	NumCPUs           float64  // of a started engine; 0: those of the machine
	ObjectStoreMemory int64    // bytes, of a started engine; 0: 30 % of the machine's memory
	Log               func(map[string]any)
}

func (o *Options) python() string {
	if o.Python != "" {
		return o.Python
	}
	if p := os.Getenv("RAYGO_PYTHON"); p != "" {
		return p
	}
	if p, err := exec.LookPath("python3"); err == nil {
		return p
	}
	return "python3"
}

func (o *Options) hello(role string) client.Hello {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "/"
	}
	return client.Hello{
		Role: role, Namespace: o.Namespace, SysPath: o.SysPath, Cwd: cwd, Executable: o.python(), LogToDriver: o.Log != nil, OnLog: o.Log,
		JobName: filepath.Base(os.Args[0]),
	}
}

// Runtime is a session on an engine.
type Runtime struct {
	c    *client.Client
	node *engine.Node // nil: connected
}

// Start starts an engine in this process and a session on it.
func Start(o Options) (*Runtime, error) {
	opts := engine.Options{Version: version.Version, Executable: o.python(), Listen: true, ObjectStoreMemory: o.ObjectStoreMemory}
	if o.NumCPUs > 0 {
		opts.NumCPUs = &o.NumCPUs
	}
	node, err := engine.Start(opts)
	if err != nil {
		return nil, err
	}
	attach := func(hello []byte, deliver func([]byte)) (func([]byte) error, func(), error) {
		conn, err := node.Attach(hello, deliver)
		if err != nil {
			return nil, nil, err
		}
		return conn.Input, conn.Detach, nil
	}
	c, err := client.Embed(attach, o.hello("driver"))
	if err != nil {
		return nil, fmt.Errorf("starting a session: %w", stopAfter(node, err))
	}
	return &Runtime{c, node}, nil
}

func stopAfter(node *engine.Node, err error) error {
	if stop := node.Stop(time.Second); stop != nil {
		return fmt.Errorf("%w (and stopping the engine again failed: %v)", err, stop)
	}
	return err
}

// Connect begins a session on an engine that runs: at the path of its socket, or in its session's folder; empty: $RAYGO_ADDRESS, else this user's newest.
func Connect(address string, o Options) (*Runtime, error) {
	socket, err := findSocket(address)
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(socket, o.hello("client"))
	if err != nil {
		return nil, err
	}
	return &Runtime{c: c}, nil
}

func findSocket(address string) (string, error) {
	if address == "" {
		address = os.Getenv("RAYGO_ADDRESS")
	}
	if address == "" {
		tmp := os.Getenv("RAYGO_TMPDIR")
		if tmp == "" {
			tmp = os.TempDir()
		}
		address = filepath.Join(tmp, fmt.Sprintf("raygo-%d", os.Getuid()), "session_latest")
	}
	info, err := os.Stat(address)
	if err != nil {
		return "", errs.New(errs.ENOTFOUND, "no running engine at %s: %w; a program starts one with raygo.Start, or raygo.init() in Python", address, err)
	}
	if !info.IsDir() {
		return address, nil
	}
	var session struct{ Socket string }
	raw, err := os.ReadFile(filepath.Join(address, "session.json"))
	if err == nil {
		err = json.Unmarshal(raw, &session)
	}
	if err != nil || session.Socket == "" {
		return "", errs.New(errs.ENOTFOUND, "no running engine in %s: its session.json cannot be read (%v)", address, err)
	}
	return session.Socket, nil
}

// Close ends the session, and the engine when this process started it.
func (rt *Runtime) Close() error {
	rt.c.Close()
	if rt.node != nil {
		return rt.node.Stop(10 * time.Second)
	}
	return nil
}

// Socket is where other programs connect.
func (rt *Runtime) Socket() string {
	socket, _ := rt.c.Welcome["socket"].(string)
	return socket
}

// Query asks the engine: any method of "CALL methods" in engine/wire/PROTOCOL.md. out is a pointer, or nil.
func (rt *Runtime) Query(ctx context.Context, method string, argument, out any) error {
	return rt.c.Call(ctx, method, argument, out)
}
