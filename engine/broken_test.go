package engine

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/version"
	"github.com/raygo/raygo/engine/wire"
	workerproc "github.com/raygo/raygo/engine/worker"
)

func TestPanicStopsTheEngineAndNothingElse(t *testing.T) {
	n, err := Start(Options{
		Version: version.Version, ObjectStoreMemory: 1 << 20, TempDir: t.TempDir(),
		Launch: func(workerproc.Config, workerproc.Handler) (Template, error) {
			return nil, errors.New("no processes here")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	told := false
	c, err := n.Attach(pack(map[string]any{"version": version.Version, "role": "client"}), func(b []byte) {
		h, _, _, _ := wire.Next(b)
		told = told || h.Type == wire.Exit
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n.strand.post(func() { panic("a fault made by a test") })
	}
	if err := c.Input(nil); !errors.Is(err, errs.EINTERNAL) {
		t.Error(err)
	}
	if !told {
		t.Error("the process was not told")
	}
	broken, log := n.Broken()
	text, err := os.ReadFile(log)
	if err != nil || !broken || strings.Count(string(text), "a fault made by a test") != 1 || !strings.Contains(string(text), "broken_test.go") {
		t.Errorf("%v %v\n%s", broken, err, text)
	}
	c.Detach()
	if err := n.Stop(5 * time.Second); err != nil {
		t.Error(err)
	}
	if n.Stop(0) != nil {
		t.Error("stopping twice is stopping once")
	}
}

func TestStartCleansUpWhenItFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := Start(Options{ObjectStoreMemory: 5, TempDir: dir}); !errors.Is(err, errs.EINVAL) {
		t.Error(err)
	}
	if _, err := Start(Options{Resources: map[string]float64{"CPU": 1}, TempDir: dir}); !errors.Is(err, errs.EINVAL) {
		t.Error(err)
	}
}

// TestPanicLeavesNoReaderBehind: a reader may wait for frames of its own that a broken engine will never look at.
func TestPanicLeavesNoReaderBehind(t *testing.T) {
	n, err := Start(Options{Version: version.Version, ObjectStoreMemory: 1 << 20, TempDir: t.TempDir(), Listen: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", n.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(wire.AppendFrame(nil, wire.Hello, 0, 0, pack(map[string]any{"version": version.Version, "role": roleClient}))); err != nil {
		t.Fatal(err)
	}
	for greeted := false; !greeted; {
		n.call(func() {
			for _, p := range n.peers {
				greeted = p.greeted
			}
		})
	}
	// The reader itself may have run what looked; the next step must not be its own to run too.
	for busy := true; busy; {
		n.strand.mu.Lock()
		busy = n.strand.mu.held
		n.strand.mu.Unlock()
	}
	held, panicked := make(chan struct{}), make(chan struct{})
	go n.strand.post(func() {
		defer close(panicked)
		close(held)
		for _, p := range n.peers {
			for len(p.tokens) < readAhead {
				time.Sleep(time.Millisecond)
			}
		}
		panic("a fault made by a test")
	})
	<-held // before the reader has anything to do, which would have it run the step itself
	go func() {
		unpins := wire.AppendFrame(nil, wire.Unpin, 0, 0, make([]byte, 32<<10))
		for err := error(nil); err == nil; {
			_, err = c.Write(unpins)
		}
	}()
	<-panicked
	if err := n.Stop(2 * time.Second); err != nil {
		t.Error(err)
	}
}
