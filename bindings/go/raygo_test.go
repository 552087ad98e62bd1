package raygo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	raygo "github.com/raygo/raygo/bindings/go"
)

// runtimeFor joins the engine at RAYGO_TEST_ADDRESS, a Python driver's (tests/capi/test_bindings.py starts one), or starts one without Python workers.
var runtimeFor = sync.OnceValues(func() (*raygo.Runtime, error) {
	if address := os.Getenv("RAYGO_TEST_ADDRESS"); address != "" {
		return raygo.Connect(address, raygo.Options{})
	}
	return raygo.Start(raygo.Options{NumCPUs: 2, ObjectStoreMemory: 64 << 20, Python: "/nonexistent"})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if rt, err := runtimeFor(); err == nil {
		if err := rt.Close(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, "closing:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func begin(t testing.TB) (context.Context, *raygo.Runtime) {
	t.Helper()
	rt, err := runtimeFor()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx, rt
}

func python(t testing.TB) {
	t.Helper()
	if os.Getenv("RAYGO_TEST_ADDRESS") == "" {
		t.Skip("no Python driver: RAYGO_TEST_ADDRESS is not set")
	}
}

type point struct {
	X    float64  `msgpack:"x"`
	Name string   `msgpack:"name"`
	Tags []string `msgpack:"tags"`
}

func roundTrip[T any](t *testing.T, v T) {
	t.Helper()
	ctx, rt := begin(t)
	ref, err := raygo.Put(ctx, rt, v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := raygo.Get(ctx, ref)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("put %v, got %v, %v", v, got, err)
	}
	if err := ref.Release(); err != nil {
		t.Error(err)
	}
	if _, err := raygo.Get(ctx, ref); err == nil {
		t.Errorf("a released reference gave a value")
	}
}

func TestValuesComeBack(t *testing.T) {
	roundTrip(t, 42)
	roundTrip(t, -0.5)
	roundTrip(t, "grüße")
	roundTrip(t, true)
	roundTrip(t, []byte{0, 255})
	roundTrip(t, bytes.Repeat([]byte("large"), 100_000))
	roundTrip(t, map[string]int64{"a": 1})
	roundTrip(t, point{1.5, "here", []string{"x"}})
}

func TestServedFunctions(t *testing.T) {
	ctx, rt := begin(t)
	err := raygo.Serve2(ctx, rt, "go.add", 8, func(_ context.Context, a, b int) (int, error) {
		if a < 0 {
			return 0, errors.New("negative")
		}
		return a + b, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	add := raygo.Func2[int, int, int](rt, "go.add")
	if got, err := add(ctx, 40, 2); got != 42 || err != nil {
		t.Error(got, err)
	}
	if _, err := add(ctx, -1, 2); !errors.Is(err, raygo.ErrTask) || !strings.Contains(err.Error(), "negative") {
		t.Error(err)
	}
	if _, err := raygo.Func1[string, int](rt, "go.add")(ctx, "x"); err == nil || !strings.Contains(err.Error(), "takes 2 arguments") {
		t.Error(err)
	}
	if _, err := raygo.Func2[string, int, int](rt, "go.add")(ctx, "x", 1); err == nil || !strings.Contains(err.Error(), "argument 1 of go.add") {
		t.Error(err)
	}

	// References among the arguments, and many at once.
	one, err := raygo.Put(ctx, rt, 1)
	if err != nil {
		t.Fatal(err)
	}
	fn := raygo.Func[int](rt, "go.add")
	var refs []raygo.Ref[int]
	for i := range 200 {
		ref, err := fn.Submit(i, one)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	if ready, rest, err := raygo.Wait(ctx, refs, len(refs)); err != nil || len(ready) != len(refs) || len(rest) != 0 {
		t.Error(len(ready), len(rest), err)
	}
	for i, ref := range refs {
		if got, err := ref.Get(ctx); got != i+1 || err != nil {
			t.Error(i, got, err)
		}
		if err := ref.Release(); err != nil {
			t.Error(err)
		}
	}
	if err := raygo.Unserve(ctx, rt, "go.add"); err != nil {
		t.Error(err)
	}
	if _, err := add(ctx, 1, 2); !errors.Is(err, raygo.ErrNotFound) {
		t.Error(err)
	}
	if err := raygo.Serve(ctx, rt, "a:b", 1, nil); !errors.Is(err, raygo.ErrInvalid) {
		t.Error(err)
	}
}

func TestContextEndsAWait(t *testing.T) {
	ctx, rt := begin(t)
	hold := make(chan struct{})
	err := raygo.Serve0(ctx, rt, "go.slow", 1, func(context.Context) (bool, error) {
		<-hold
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := raygo.Func0[bool](rt, "go.slow")(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(hold)
	if err := raygo.Unserve(ctx, rt, "go.slow"); err != nil {
		t.Error(err)
	}
	if _, err := raygo.Get(ctx, raygo.Ref[int]{}); err == nil {
		t.Error("the zero Ref gave a value")
	}
}

func TestNoEngine(t *testing.T) {
	for _, address := range []string{"/nonexistent/socket", t.TempDir()} {
		if _, err := raygo.Connect(address, raygo.Options{}); !errors.Is(err, raygo.ErrNotFound) || !strings.Contains(err.Error(), address) {
			t.Error(err)
		}
	}
}

func TestPythonFunctions(t *testing.T) {
	python(t)
	ctx, rt := begin(t)
	if got, err := raygo.Func2[int, int, int](rt, "operator:add")(ctx, 40, 2); got != 42 || err != nil {
		t.Error(got, err)
	}
	p := point{2.5, "there", nil}
	if got, err := raygo.Func1[point, point](rt, "copy:copy")(ctx, p); !reflect.DeepEqual(got, p) || err != nil {
		t.Error(got, err)
	}
	if _, err := raygo.Func2[int, int, float64](rt, "operator:truediv")(ctx, 1, 0); !errors.Is(err, raygo.ErrTask) || !strings.Contains(err.Error(), "ZeroDivisionError") {
		t.Error(err)
	}
	large, err := raygo.Put(ctx, rt, bytes.Repeat([]byte{7}, 200_000))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := raygo.Func[[]byte](rt, "operator:concat").Call(ctx, large, large); len(got) != 400_000 || err != nil {
		t.Error(len(got), err)
	}
	if err := large.Release(); err != nil {
		t.Error(err)
	}
}

func BenchmarkPut(b *testing.B) {
	ctx, rt := begin(b)
	for b.Loop() {
		ref, err := raygo.Put(ctx, rt, 1)
		if err == nil {
			err = ref.Release()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutGet1MiB(b *testing.B) {
	ctx, rt := begin(b)
	data := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		ref, err := raygo.Put(ctx, rt, data)
		if err == nil {
			_, err = ref.Get(ctx)
		}
		if err == nil {
			err = ref.Release()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkCalls(b *testing.B, name string, inFlight int) {
	ctx, rt := begin(b)
	fn := raygo.Func[int](rt, name)
	refs := make([]raygo.Ref[int], 0, inFlight)
	done := 0
	for b.Loop() {
		ref, err := fn.Submit(1, 2)
		if err != nil {
			b.Fatal(err)
		}
		if refs = append(refs, ref); len(refs) < inFlight {
			continue
		}
		for _, ref := range refs {
			if _, err := ref.Get(ctx); err != nil {
				b.Fatal(err)
			}
			if err := ref.Release(); err != nil {
				b.Fatal(err)
			}
		}
		done += len(refs)
		refs = refs[:0]
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func BenchmarkServed(b *testing.B) {
	ctx, rt := begin(b)
	if err := raygo.Serve2(ctx, rt, "go.bench", 1000, func(_ context.Context, x, y int) (int, error) { return x + y, nil }); err != nil {
		b.Fatal(err)
	}
	b.Run("one", func(b *testing.B) { benchmarkCalls(b, "go.bench", 1) })
	b.Run("batches", func(b *testing.B) { benchmarkCalls(b, "go.bench", 1000) })
}

func BenchmarkPython(b *testing.B) {
	python(b)
	b.Run("one", func(b *testing.B) { benchmarkCalls(b, "operator:add", 1) })
	b.Run("batches", func(b *testing.B) { benchmarkCalls(b, "operator:add", 1000) })
}
