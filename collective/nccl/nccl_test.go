package nccl

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// TestMain builds one library that stands for NCCL and for CUDA's driver.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "nccl")
	if err != nil {
		panic(err)
	}
	fake := filepath.Join(dir, "fake.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", fake, "testdata/nccl.c").CombinedOutput(); err != nil {
		panic(string(out))
	}
	os.Setenv("RAYGO_CUDA_LIBRARY", fake)
	_, absent := Load([]string{filepath.Join(dir, "absent.so"), "/dev/null"})
	if absent == nil || errs.CodeOf(absent) != errs.ENOTFOUND || !strings.Contains(absent.Error(), "absent.so") || !strings.Contains(absent.Error(), "RAYGO_NCCL_LIBRARY") {
		panic(absent)
	}
	if version, err := Load([]string{filepath.Join(dir, "absent.so"), fake}); err != nil || version != 22704 {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

type store map[string][]byte

func (s store) Set(key string, value []byte) error { s[key] = value; return nil }
func (s store) Get(key string, timeout time.Duration) ([]byte, error) {
	if value, ok := s[key]; ok {
		return value, nil
	}
	return nil, errs.New(errs.ETIMEDOUT, "no %s within %v", key, timeout)
}

// recording returns what was called since; freed events and the watcher's context are left out, as they come when they come.
func recording(t *testing.T) func() []string {
	path := filepath.Join(t.TempDir(), "calls")
	t.Setenv("RECORD", path)
	return func() []string {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		os.Truncate(path, 0)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return slices.DeleteFunc(lines, func(s string) bool {
			return s == "" || strings.HasPrefix(s, "cuEventDestroy") || strings.HasPrefix(s, "cuCtxSetCurrent")
		})
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("called\n  %s\nnot\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const (
	float32s = 10
	int16s   = 2
	boolean  = 12
)

func TestCallsAndTheirOrder(t *testing.T) {
	calls := recording(t)
	s := store{}
	g, err := Open("g", 0, 2, time.Minute, s)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, calls(), "ncclGetUniqueId()", "ncclCommInitRankConfig(2, ii, 0, size 24 magic cafebeef version 21400 blocking 0)")
	if len(s["g/nccl"]) != 128 {
		t.Error("the id is not in the store")
	}
	for _, c := range []struct {
		Call
		want []string
	}{
		{Call{kindAllreduce, float32s, opSum, 0, 5, 0x10, 0x20}, []string{"ncclAllReduce(0x10, 0x20, 5, 7, 0, 0xc0, 0x57)"}},
		{Call{kindAllreduce, boolean, opSum, 0, 5, 0x10, 0x10}, []string{"ncclAllReduce(0x10, 0x10, 5, 1, 2, 0xc0, 0x57)"}},
		{Call{kindReduce, float32s, opAvg, 1, 5, 0x10, 0x20}, []string{"ncclReduce(0x10, 0x20, 5, 7, 4, 1, 0xc0, 0x57)"}},
		{Call{kindReducescatter, float32s, opMin, 0, 5, 0x10, 0x20}, []string{"ncclReduceScatter(0x10, 0x20, 5, 7, 3, 0xc0, 0x57)"}},
		{Call{kindBroadcast, int16s, 0, 1, 5, 0x10, 0x10}, []string{"ncclBroadcast(0x10, 0x10, 10, 1, 1, 0xc0, 0x57)"}},
		{Call{kindAllgather, float32s, 0, 0, 5, 0x10, 0x20}, []string{"ncclAllGather(0x10, 0x20, 5, 7, 0xc0, 0x57)"}},
		{Call{kindSend, float32s, 0, 1, 5, 0x10, 0}, []string{"ncclSend(0x10, 5, 7, 1, 0xc0, 0x57)"}},
		{Call{kindRecv, float32s, 0, 1, 5, 0, 0x20}, []string{"ncclRecv(0x20, 5, 7, 1, 0xc0, 0x57)"}},
		{Call{kindAlltoall, float32s, 0, 0, 4, 0x100, 0x200}, []string{
			"ncclGroupStart()", "ncclSend(0x100, 4, 7, 0, 0xc0, 0x57)", "ncclRecv(0x200, 4, 7, 0, 0xc0, 0x57)",
			"ncclSend(0x110, 4, 7, 1, 0xc0, 0x57)", "ncclRecv(0x210, 4, 7, 1, 0xc0, 0x57)", "ncclGroupEnd()"}},
		{Call{kindGather, float32s, 0, 0, 4, 0x100, 0x200}, []string{
			"ncclGroupStart()", "ncclRecv(0x200, 4, 7, 0, 0xc0, 0x57)", "ncclRecv(0x210, 4, 7, 1, 0xc0, 0x57)", "ncclSend(0x100, 4, 7, 0, 0xc0, 0x57)", "ncclGroupEnd()"}},
		{Call{kindScatter, float32s, 0, 1, 4, 0, 0x200}, []string{"ncclGroupStart()", "ncclRecv(0x200, 4, 7, 1, 0xc0, 0x57)", "ncclGroupEnd()"}},
	} {
		if err := g.Run(c.Call, 0x57); err != nil {
			t.Fatal(err)
		}
		expect(t, calls(), append(c.want, "cuEventCreate(2)", "cuEventRecord(0xe0, 0x57)")...)
	}
	if err := g.GroupStart(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Run(Call{kindAllreduce, float32s, opSum, 0, 5, 0x10, 0x20}, 0x57); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.GroupEnd(0x57); err != nil {
		t.Fatal(err)
	}
	one := "ncclAllReduce(0x10, 0x20, 5, 7, 0, 0xc0, 0x57)"
	expect(t, calls(), "ncclGroupStart()", one, one, "ncclGroupEnd()", "cuEventCreate(2)", "cuEventRecord(0xe0, 0x57)")
	g.Close()
	g.Close()
	expect(t, calls(), "ncclCommFinalize(0xc0)", "ncclCommDestroy(0xc0)")
	if err := g.Run(Call{Kind: kindAllreduce, Dtype: float32s}, 0); errs.CodeOf(err) != errs.ESTALE {
		t.Errorf("%v", err)
	}
}

func TestOtherRanksReadTheID(t *testing.T) {
	calls := recording(t)
	if _, err := Open("g", 1, 2, time.Second, store{}); errs.CodeOf(err) != errs.ETIMEDOUT {
		t.Errorf("%v", err)
	}
	g, err := Open("g", 1, 2, time.Second, store{"g/nccl": []byte(strings.Repeat("x", 128))})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	expect(t, calls(), "ncclCommInitRankConfig(2, xx, 1, size 24 magic cafebeef version 21400 blocking 0)", "ncclCommFinalize(0xc0)", "ncclCommDestroy(0xc0)")
}

func TestWhatNCCLCannotDo(t *testing.T) {
	calls := recording(t)
	g, err := Open("g", 0, 1, time.Second, store{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	calls()
	for _, c := range []Call{{Kind: kindAllreduce, Dtype: int16s}, {Kind: kindAllreduce, Dtype: float32s, Op: opBand}, {Kind: kindBarrier}, {Kind: 99}, {Kind: kindSend, Dtype: 99}} {
		if err := g.Run(c, 0); errs.CodeOf(err) != errs.EINVAL {
			t.Errorf("%+v: %v", c, err)
		}
	}
	expect(t, calls())
	if g.Fault() != nil {
		t.Error("a bad argument broke the group")
	}
}

func TestInitThatFails(t *testing.T) {
	calls := recording(t)
	t.Setenv("FAIL", "ncclCommInitRankConfig")
	_, err := Open("g", 0, 2, time.Minute, store{})
	if err == nil || !strings.Contains(err.Error(), "unhandled system error (the fake was told to)") {
		t.Errorf("%v", err)
	}
	if got := calls(); got[len(got)-1] != "ncclCommAbort(0xc0)" {
		t.Errorf("%v", got)
	}
}

func TestInitThatNobodyElseJoins(t *testing.T) {
	calls := recording(t)
	t.Setenv("HANG", "init")
	_, err := Open("g", 0, 2, 50*time.Millisecond, store{})
	if errs.CodeOf(err) != errs.ETIMEDOUT || !strings.Contains(err.Error(), "not all 2 ranks") {
		t.Errorf("%v", err)
	}
	if got := calls(); got[len(got)-1] != "ncclCommAbort(0xc0)" {
		t.Errorf("%v", got)
	}
}

// broken waits until the watcher has found out.
func broken(t *testing.T, g *Group) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err := g.Fault(); err != nil {
			return err
		}
	}
	t.Fatal("the watcher noticed nothing")
	return nil
}

func TestAnAsynchronousErrorAborts(t *testing.T) {
	calls := recording(t)
	g, err := Open("g", 0, 2, time.Minute, store{})
	if err != nil {
		t.Fatal(err)
	}
	calls()
	t.Setenv("FAIL", "async")
	if err := broken(t, g); !strings.Contains(err.Error(), "remote process exited") {
		t.Errorf("%v", err)
	}
	if err := g.Run(Call{Kind: kindAllreduce, Dtype: float32s}, 0); err == nil || !strings.Contains(err.Error(), "remote process exited") {
		t.Errorf("%v", err)
	}
	g.Close()
	expect(t, calls(), "ncclCommAbort(0xc0)")
}

func TestAKernelThatDoesNotEndAborts(t *testing.T) {
	calls := recording(t)
	t.Setenv("HANG", "calls")
	g, err := Open("g", 0, 2, 150*time.Millisecond, store{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Run(Call{Kind: kindAllreduce, Dtype: float32s, Count: 7}, 0x57); err != nil {
		t.Fatal(err)
	}
	if err := broken(t, g); errs.CodeOf(err) != errs.ETIMEDOUT || !strings.Contains(err.Error(), "allreduce of 7 elements") {
		t.Errorf("%v", err)
	}
	g.Close()
	if got := calls(); got[len(got)-1] != "ncclCommAbort(0xc0)" {
		t.Errorf("%v", got)
	}
}

func TestACallThatFailsAborts(t *testing.T) {
	calls := recording(t)
	g, err := Open("g", 0, 2, time.Minute, store{})
	if err != nil {
		t.Fatal(err)
	}
	calls()
	t.Setenv("FAIL", "ncclAllReduce")
	if err := g.Run(Call{Kind: kindAllreduce, Dtype: float32s, Count: 7}, 0); err == nil || !strings.Contains(err.Error(), "allreduce of 7 elements failed") {
		t.Errorf("%v", err)
	}
	g.Close()
	expect(t, calls(), "ncclAllReduce((nil), (nil), 7, 7, 0, 0xc0, (nil))", "ncclCommAbort(0xc0)")
}

func TestAbort(t *testing.T) {
	calls := recording(t)
	g, err := Open("g", 0, 2, time.Minute, store{})
	if err != nil {
		t.Fatal(err)
	}
	calls()
	g.Abort("rank 1 died")
	g.Abort("again")
	if err := g.Run(Call{Kind: kindAllreduce, Dtype: float32s}, 0); err == nil || err.Error() != "rank 1 died" {
		t.Errorf("%v", err)
	}
	g.Close()
	expect(t, calls(), "ncclCommAbort(0xc0)")
}

func TestAbortDoesNotWaitForACall(t *testing.T) {
	recording(t)
	t.Setenv("HANG", "init")
	g := &Group{name: "g", size: 2, timeout: -1}
	g.mu.comm = 0xc0
	ended := make(chan error, 1)
	go func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		ended <- g.settle("a call")
	}()
	time.Sleep(10 * time.Millisecond)
	g.Abort("enough")
	if err := <-ended; err == nil || err.Error() != "enough" {
		t.Errorf("%v", err)
	}
}
