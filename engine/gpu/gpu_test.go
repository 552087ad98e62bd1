package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// probe builds raygo-gpus once, and a library for it that records its calls.
var probe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "raygo-gpus")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "raygo-gpus"), "./raygo-gpus")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, &os.PathError{Op: string(out), Path: "raygo-gpus", Err: err}
	}
	cc := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "nvml.so"), "testdata/nvml.c")
	if out, err := cc.CombinedOutput(); err != nil {
		return dir, &os.PathError{Op: string(out), Path: "testdata/nvml.c", Err: err}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := probe(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func recorded(t *testing.T) (m Machine, calls func() []string) {
	t.Helper()
	dir, err := probe()
	if err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(t.TempDir(), "calls")
	t.Setenv("RECORD", record)
	return Machine{Root: t.TempDir(), Probe: filepath.Join(dir, "raygo-gpus"), Library: filepath.Join(dir, "nvml.so")}, func() []string {
		text, _ := os.ReadFile(record)
		return strings.Fields(string(text))
	}
}

func TestNoDriverCostsNothing(t *testing.T) {
	devices, err := Find(Machine{Root: t.TempDir(), Probe: "/absent"})
	if devices != nil || err != nil {
		t.Fatalf("%v, %v", devices, err)
	}
}

func TestFindAsksTheLibrary(t *testing.T) {
	m, calls := recorded(t)
	devices, err := Find(m)
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{{0, "GPU-1111", "NVIDIA A100-SXM4-40GB", 40 << 30}, {1, "GPU-2222", "NVIDIA A100-SXM4-40GB", 40 << 30}}
	if !slices.Equal(devices, want) {
		t.Errorf("%v", devices)
	}
	each := []string{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"}
	order := slices.Concat([]string{"nvmlInit_v2", "nvmlDeviceGetCount_v2"}, each, each, []string{"nvmlShutdown"})
	if got := calls(); !slices.Equal(got, order) {
		t.Errorf("calls %v", got)
	}
}

func TestNothingIsAskedAfterInitFailed(t *testing.T) {
	m, calls := recorded(t)
	t.Setenv("FAIL", "nvmlInit_v2")
	devices, err := Find(m)
	if len(devices) != 0 || err == nil || !strings.Contains(err.Error(), "Driver Not Loaded") {
		t.Errorf("%v, %v", devices, err)
	}
	if got := calls(); !slices.Equal(got, []string{"nvmlInit_v2"}) {
		t.Errorf("calls %v", got)
	}
}

func TestWithoutTheLibraryTheKernelCounts(t *testing.T) {
	m, _ := recorded(t)
	m.Library = filepath.Join(t.TempDir(), "absent.so")
	for _, bus := range []string{"0000:01:00.0", "0000:02:00.0"} {
		if err := os.MkdirAll(filepath.Join(m.Root, "proc/driver/nvidia/gpus", bus), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	devices, err := Find(m)
	if err == nil || !strings.Contains(err.Error(), "absent.so") {
		t.Errorf("%v", err)
	}
	if !slices.Equal(devices, []Device{{Index: 0}, {Index: 1}}) {
		t.Errorf("%v", devices)
	}
}

func TestVisibleDevices(t *testing.T) {
	m, _ := recorded(t)
	for visible, want := range map[string][]string{
		"":             {},
		"-1":           {},
		"1":            {"1"},
		"1, 0":         {"1", "0"},
		"GPU-2":        {"GPU-2"},
		"0,7,1":        {"0"},
		"MIG-abc/1/2":  {"MIG-abc/1/2"},
		"GPU-1111,huh": {"GPU-1111"},
	} {
		m.Visible = &visible
		devices, err := Find(m)
		if got := IDs(devices, m.Visible); err != nil || !slices.Equal(got, want) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q: %v, %v", visible, got, err)
		}
	}
}

func TestAcceleratorType(t *testing.T) {
	for product, want := range map[string]string{
		"NVIDIA A100-SXM4-40GB": "A100", "NVIDIA A100 80GB PCIe": "A100", "Tesla V100-SXM2-16GB": "V100", "NVIDIA H200": "H200",
		"NVIDIA GeForce RTX 3090": "GeForce-RTX-3090", "NVIDIA RTX A6000": "RTX-A6000", "NVIDIA L40S": "L40S", "Tesla T4": "T4",
		"NVIDIA RTX PRO 6000 Blackwell Server Edition": "RTX-PRO-6000", "": "", "NVIDIA": "", "NVIDIA Graphics": "",
	} {
		if got := AcceleratorType(product); got != want {
			t.Errorf("%q: %q, want %q", product, got, want)
		}
	}
}
