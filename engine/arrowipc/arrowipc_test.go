package arrowipc

import (
	"bytes"
	"errors"
	"math/rand"
	"runtime"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func schema() *arrow.Schema {
	meta := arrow.MetadataFrom(map[string]string{"k": "v"})
	return arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32), Nullable: true},
		{Name: "d", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}},
		{Name: "b", Type: arrow.FixedWidthTypes.Boolean},
	}, &meta)
}

func batch(t testing.TB, mem memory.Allocator, rows int) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(mem, schema())
	defer b.Release()
	for i := range rows {
		if i%5 == 0 {
			b.Field(0).AppendNull()
		} else {
			b.Field(0).(*array.Int64Builder).Append(int64(i))
		}
		b.Field(1).(*array.StringBuilder).Append("text number " + string(rune('a'+i%26)))
		l := b.Field(2).(*array.ListBuilder)
		l.Append(true)
		for range i % 3 {
			l.ValueBuilder().(*array.Float32Builder).Append(float32(i))
		}
		if err := b.Field(3).(*array.BinaryDictionaryBuilder).AppendString([]string{"red", "green"}[i%2]); err != nil {
			t.Fatal(err)
		}
		b.Field(4).(*array.BooleanBuilder).Append(i%2 == 0)
	}
	return b.NewRecordBatch()
}

// aligned is memory at a multiple of 64, as the arena gives it.
func aligned(n int) []byte {
	b := make([]byte, n+align)
	at := -int(uintptr(unsafe.Pointer(&b[0]))) & (align - 1)
	return b[at : at+n]
}

func written(t testing.TB, batches ...arrow.RecordBatch) []byte {
	t.Helper()
	s, err := Gather(schema(), batches...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	to := aligned(s.Size())
	s.CopyTo(to, nil)
	return to
}

func TestStreams(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	for _, sizes := range [][]int{{}, {0}, {1}, {1000, 7, 0, 300}} {
		var batches []arrow.RecordBatch
		for _, n := range sizes {
			batches = append(batches, batch(t, mem, n))
		}
		if len(sizes) == 4 {
			batches = append(batches, batches[0].NewSlice(333, 444))
		}
		stream := written(t, batches...)

		// Arrow's own reader takes it.
		own, err := ipc.NewReader(bytes.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		r, err := Open(stream, func() { done++ })
		if err != nil {
			t.Fatal(err)
		}
		if !r.Schema().Equal(schema()) || r.Schema().Metadata().Len() != 1 {
			t.Error(r.Schema())
		}
		var got []arrow.RecordBatch
		for r.Next() {
			rec := r.RecordBatch()
			rec.Retain()
			got = append(got, rec)
			if !own.Next() || !array.RecordEqual(own.RecordBatch(), rec) {
				t.Errorf("arrow's reader and ours differ: %v", own.Err())
			}
		}
		own.Release()
		if r.Err() != nil || len(got) != len(batches) {
			t.Fatal(len(got), r.Err())
		}
		r.Release()
		for i, rec := range got {
			if !array.RecordEqual(rec, batches[i]) {
				t.Errorf("batch %d differs", i)
			}
			inside(t, stream, rec)
			if len(got) > 0 && done != 0 {
				t.Error("let go too early")
			}
			rec.Release()
			batches[i].Release()
		}
		if done != 1 {
			t.Errorf("the stream was let go %d times", done)
		}
	}
}

// inside says whether the data is where the stream is, and as it should be.
func inside(t *testing.T, stream []byte, rec arrow.RecordBatch) {
	t.Helper()
	from := uintptr(unsafe.Pointer(&stream[0]))
	var look func(d arrow.ArrayData)
	look = func(d arrow.ArrayData) {
		for _, b := range d.Buffers() {
			if b == nil || b.Len() == 0 {
				continue
			}
			at := uintptr(unsafe.Pointer(&b.Bytes()[0]))
			if at < from || at+uintptr(b.Len()) > from+uintptr(len(stream)) {
				t.Errorf("a buffer of %d bytes was copied", b.Len())
			} else if at%align != 0 {
				t.Errorf("a buffer begins at %d", at-from)
			}
		}
		for _, c := range d.Children() {
			look(c)
		}
	}
	for _, c := range rec.Columns() {
		look(c.Data())
	}
}

func TestSlicesTakeTheirRows(t *testing.T) {
	rec := batch(t, memory.DefaultAllocator, 100_000)
	defer rec.Release()
	slice := rec.NewSlice(5000, 5010)
	defer slice.Release()
	if n := len(written(t, slice)); n > 8000 {
		t.Errorf("ten rows take %d bytes", n)
	}
}

func TestBrokenStreams(t *testing.T) {
	rec := batch(t, memory.DefaultAllocator, 50)
	defer rec.Release()
	whole := written(t, rec)
	read := func(stream []byte) (err error) {
		done := 0
		r, err := Open(stream, func() { done++ })
		if err == nil {
			for r.Next() {
			}
			err = r.Err()
			r.Release()
		}
		if done != 1 {
			t.Errorf("a broken stream was let go %d times", done)
		}
		return err
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, 9, 200, 1000} {
		if err := read(whole[:cut]); err == nil && cut > 8 {
			t.Errorf("%d bytes of a stream were taken for one", cut)
		}
	}
	if err := read([]byte("no Arrow stream at all")); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
	random := rand.New(rand.NewSource(1))
	for range 500 { // wherever it ends, nothing panics and the memory is let go
		_ = read(whole[:random.Intn(len(whole))])
	}
}

// opens a stream that may be broken in any way: no more memory is asked for than its bytes explain, and it is let go.
func opens(t *testing.T, stream []byte) bool {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := 0
	r, err := Open(stream, func() { done++ })
	if err == nil {
		r.Release()
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes were made of %d", n, len(stream))
	}
	if done != 1 {
		t.Errorf("let go %d times", done)
	}
	return err == nil
}

func TestFlippedBytes(t *testing.T) {
	rec := batch(t, memory.DefaultAllocator, 50)
	defer rec.Release()
	whole := written(t, rec)
	random := rand.New(rand.NewSource(1))
	opened := 0
	for range 3000 {
		b := append([]byte(nil), whole...)
		for range random.Intn(4) + 1 {
			b[random.Intn(1200)] = []byte{0, 1, 0x7f, 0xff, byte(random.Int())}[random.Intn(5)]
		}
		if opens(t, b) {
			opened++
		}
	}
	if opened == 0 || opened == 3000 {
		t.Errorf("%d of 3000 streams were opened", opened)
	}
}

func FuzzOpen(f *testing.F) {
	rec := batch(f, memory.DefaultAllocator, 50)
	defer rec.Release()
	whole := written(f, rec)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 1<<16 {
			opens(t, append([]byte(nil), b...))
		}
	})
}

// FuzzHead: what is read of a head stays within it.
func FuzzHead(f *testing.F) {
	rec := batch(f, memory.DefaultAllocator, 50)
	defer rec.Release()
	whole := written(f, rec)
	f.Add(whole[8:64])
	f.Add(whole[8:])
	f.Add([]byte{4, 0, 0, 0, 0, 0, 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		h := head(append([]byte(nil), b...))
		if n, err := h.body(); err == nil && n > 1<<62 {
			t.Error(n)
		}
		_ = h.check(1000)
		_ = h.respace([]int{1, 100, 7})
	})
}
