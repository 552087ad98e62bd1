//go:build cuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/cu"
)

// TestDriver runs each case in a process of its own, as the driver is loaded once.
func TestDriver(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "libcuda.so.1")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", fake, "testdata/cuda.c").CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	run := func(t *testing.T, env ...string) []string {
		record := filepath.Join(t.TempDir(), "calls")
		cmd := exec.Command(os.Args[0], "-test.run=^TestInner$")
		cmd.Env = append(append(os.Environ(), "INNER=1", "RECORD="+record, "RAYGO_CUDA_LIBRARY="+fake), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		calls, _ := os.ReadFile(record)
		return strings.Fields(string(calls))
	}
	t.Run("calls", func(t *testing.T) {
		want := []string{"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate",
			"cuEventRecord", "cuStreamSynchronize", "cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2"}
		if got := run(t); !slices.Equal(got, want) {
			t.Errorf("called %v", got)
		}
	})
	t.Run("no driver", func(t *testing.T) {
		if got := run(t, "WANT=there is no CUDA driver", "RAYGO_CUDA_LIBRARY=/absent/libcuda.so.1"); len(got) != 0 {
			t.Errorf("called %v", got)
		}
	})
	t.Run("init fails", func(t *testing.T) {
		if got := run(t, "WANT=does not start (error 100)", "FAIL=cuInit"); !slices.Equal(got, []string{"cuInit"}) {
			t.Errorf("called %v", got)
		}
	})
	t.Run("no context", func(t *testing.T) {
		want := []string{"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"}
		if got := run(t, "WANT=the primary context of GPU 0", "FAIL=cuDevicePrimaryCtxRetain"); !slices.Equal(got, want) {
			t.Errorf("called %v", got)
		}
	})
}

func TestInner(t *testing.T) {
	if os.Getenv("INNER") == "" {
		t.Skip("a part of TestDriver")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d, err := Open(0)
	if want := os.Getenv("WANT"); want != "" {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	memory, err := cu.MemAlloc(64)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := cu.MakeStream(cu.DefaultStream)
	if err != nil {
		t.Fatal(err)
	}
	event, err := cu.MakeEvent(cu.DefaultEvent)
	if err != nil {
		t.Fatal(err)
	}
	if err := event.Record(stream); err != nil {
		t.Fatal(err)
	}
	if err := stream.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if err := cu.MemFree(memory); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
