package raygo_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	raygo "github.com/raygo/raygo/bindings/go"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func used(ctx context.Context, t testing.TB, rt *raygo.Runtime) int64 {
	t.Helper()
	var stats struct {
		Used int64 `msgpack:"used"`
	}
	if err := rt.Query(ctx, "store.stats", nil, &stats); err != nil {
		t.Fatal(err)
	}
	return stats.Used
}

// settles waits until the store holds no more than before.
func settles(ctx context.Context, t testing.TB, rt *raygo.Runtime, before int64) {
	t.Helper()
	for used(ctx, t, rt) > before {
		select {
		case <-ctx.Done():
			t.Fatalf("the store holds %d bytes, %d before", used(ctx, t, rt), before)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func numbers(t testing.TB, rows int) arrow.Table {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	var batches []arrow.RecordBatch
	for range 2 {
		for i := range rows / 2 {
			b.Field(0).(*array.Int64Builder).Append(int64(i))
			if i%3 == 0 {
				b.Field(1).AppendNull()
			} else {
				b.Field(1).(*array.StringBuilder).Append("text")
			}
		}
		rec := b.NewRecordBatch()
		defer rec.Release()
		batches = append(batches, rec)
	}
	return array.NewTableFromRecords(schema, batches)
}

func TestTables(t *testing.T) {
	ctx, rt := begin(t)
	before := used(ctx, t, rt)
	for _, rows := range []int{0, 10, 200_000} {
		value := numbers(t, rows)
		ref, err := raygo.PutTable(ctx, rt, value)
		if err != nil {
			t.Fatal(err)
		}
		one, err := ref.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		two, err := raygo.GetTable(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		if !array.TableEqual(one, value) || !array.TableEqual(two, value) || !one.Schema().Equal(value.Schema()) {
			t.Error("the table that was got is not the one that was put")
		}
		if rows > 1000 {
			if data(one) != data(two) || data(one)%64 != 0 {
				t.Errorf("two gets have their data at %x and %x", data(one), data(two))
			}
			full := used(ctx, t, rt)
			if err := ref.Release(); err != nil {
				t.Error(err)
			}
			one.Release()
			if got := two.Column(0).Data().Chunk(1).(*array.Int64).Value(99_999); got != 99_999 || used(ctx, t, rt) != full {
				t.Error("a view did not keep its value", got)
			}
		} else {
			one.Release()
			if err := ref.Release(); err != nil {
				t.Error(err)
			}
		}
		two.Release()
		value.Release()
	}
	settles(ctx, t, rt, before)
}

func data(t arrow.Table) uintptr {
	return uintptr(unsafe.Pointer(&t.Column(0).Data().Chunk(0).Data().Buffers()[1].Bytes()[0]))
}

func TestRecords(t *testing.T) {
	ctx, rt := begin(t)
	value := numbers(t, 1000)
	defer value.Release()
	tr := array.NewTableReader(value, 300)
	defer tr.Release()
	if !tr.Next() {
		t.Fatal(tr.Err())
	}
	ref, err := raygo.PutRecords(ctx, rt, value.Schema(), tr.RecordBatch(), tr.RecordBatch())
	if err != nil {
		t.Fatal(err)
	}
	r, err := raygo.GetRecords(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for r.Next() {
		n++
		if !array.RecordEqual(r.RecordBatch(), tr.RecordBatch()) {
			t.Error("a batch differs")
		}
	}
	if n != 2 || r.Err() != nil {
		t.Error(n, r.Err())
	}
	r.Release()
	if err := ref.Release(); err != nil {
		t.Error(err)
	}
	plain, err := raygo.Put(ctx, rt, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raygo.GetRecords(ctx, plain); !errors.Is(err, raygo.ErrInvalid) {
		t.Error(err)
	}
	if err := plain.Release(); err != nil {
		t.Error(err)
	}
}

func TestTensors(t *testing.T) {
	ctx, rt := begin(t)
	before := used(ctx, t, rt)
	large := make([]float32, 100_000)
	large[99_999] = 7
	for _, v := range []*raygo.Tensor{
		raygo.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3),
		raygo.NewTensor([]int64{42}),
		raygo.NewTensor([]bool{}, 0, 5),
		raygo.NewTensor(large, 100, 1000),
	} {
		ref, err := raygo.Put(ctx, rt, v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ref.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != v.Kind || got.ItemSize != v.ItemSize || got.Len() != v.Len() || string(got.Data) != string(v.Data) || len(got.Shape) != len(v.Shape) {
			t.Errorf("put %v, got %v", v, got)
		}
		got.Release()
		if err := ref.Release(); err != nil {
			t.Error(err)
		}
	}
	settles(ctx, t, rt, before)

	columns := raygo.NewTensor([]int32{0, 1, 2, 3, 4, 5}, 3, 2)
	columns.Strides = []int{4, 12} // the transpose of two rows of three
	ref, err := raygo.Put(ctx, rt, columns)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ref.Get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := raygo.Elements[int32](got); err != nil || !reflect.DeepEqual(e, []int32{0, 3, 1, 4, 2, 5}) {
		t.Error(e, err)
	}
	if _, err := raygo.Elements[float32](got); !errors.Is(err, raygo.ErrInvalid) {
		t.Error(err)
	}
	got.Release()
	if err := ref.Release(); err != nil {
		t.Error(err)
	}
	if _, err := raygo.Put(ctx, rt, raygo.NewTensor([]int32{1}, 2, 2)); !errors.Is(err, raygo.ErrInvalid) || !strings.Contains(err.Error(), "needs 16 bytes") {
		t.Error(err)
	}
}

func TestServedTables(t *testing.T) {
	ctx, rt := begin(t)
	before := used(ctx, t, rt)
	err := raygo.Serve1(ctx, rt, "go.same_table", 2, func(_ context.Context, v arrow.Table) (arrow.Table, error) { return v, nil })
	if err == nil {
		err = raygo.Serve1(ctx, rt, "go.same_tensor", 2, func(_ context.Context, v *raygo.Tensor) (*raygo.Tensor, error) { return v, nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{10, 100_000} {
		value := numbers(t, rows)
		ref, err := raygo.Put(ctx, rt, value)
		if err != nil {
			t.Fatal(err)
		}
		got, err := raygo.Func[arrow.Table](rt, "go.same_table").Call(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		if !array.TableEqual(got, value) {
			t.Error("the table came back different")
		}
		got.Release()
		if _, err := raygo.Func[*raygo.Tensor](rt, "go.same_tensor").Call(ctx, ref); err == nil || !strings.Contains(err.Error(), "argument 1 of go.same_tensor") {
			t.Error(err)
		}
		if err := ref.Release(); err != nil {
			t.Error(err)
		}
		value.Release()
	}
	tensor, err := raygo.Put(ctx, rt, raygo.NewTensor(make([]float64, 50_000), 50_000))
	if err != nil {
		t.Fatal(err)
	}
	got, err := raygo.Func[*raygo.Tensor](rt, "go.same_tensor").Call(ctx, tensor)
	if err != nil || got.Len() != 50_000 {
		t.Fatal(got, err)
	}
	got.Release()
	if err := tensor.Release(); err != nil {
		t.Error(err)
	}
	settles(ctx, t, rt, before)
	for _, name := range []string{"go.same_table", "go.same_tensor"} {
		if err := raygo.Unserve(ctx, rt, name); err != nil {
			t.Error(err)
		}
	}
}

// TestPythonReadsTables needs a driver whose interpreter has pyarrow.
func TestPythonReadsTables(t *testing.T) {
	python(t)
	ctx, rt := begin(t)
	value := numbers(t, 100_000)
	defer value.Release()
	ref, err := raygo.Put(ctx, rt, value)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := raygo.Func[int](rt, "builtins:len").Call(ctx, ref); n != 100_000 || err != nil {
		if err != nil && strings.Contains(err.Error(), "No module named") {
			t.Skip(err)
		}
		t.Error(n, err)
	}
	got, err := raygo.Func[arrow.Table](rt, "copy:copy").Call(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	if !array.TableEqual(got, value) {
		t.Error("Python's table differs")
	}
	got.Release()
	array, err := raygo.Put(ctx, rt, raygo.NewTensor([]float64{1, 2, 3, 4}, 2, 2))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := raygo.Func[*raygo.Tensor](rt, "operator:add").Call(ctx, array, array)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := raygo.Elements[float64](sum); err != nil || !reflect.DeepEqual(e, []float64{2, 4, 6, 8}) {
		t.Error(e, err)
	}
	sum.Release()
	for _, err := range []error{ref.Release(), array.Release()} {
		if err != nil {
			t.Error(err)
		}
	}
}
