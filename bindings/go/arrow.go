package raygo

import (
	"context"

	"github.com/raygo/raygo/engine/arrowipc"
	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// GetRecords waits for Arrow data, of whatever kind Python stored, and gives its batches. They are not copied: the value stays in shared memory until
// the reader, and every batch or array that was retained, is released.
func GetRecords[T any](ctx context.Context, r Ref[T]) (array.RecordReader, error) {
	if r.c == nil {
		return nil, zeroRef()
	}
	return records(ctx, r.c, r.ref)
}

// GetTable is GetRecords for all batches at once; a Ref[arrow.Table]'s Get does the same.
func GetTable[T any](ctx context.Context, r Ref[T]) (arrow.Table, error) {
	if r.c == nil {
		return nil, zeroRef()
	}
	return table(ctx, r.c, r.ref)
}

// PutRecords stores batches of one schema; Python gets a pyarrow.Table.
func PutRecords(ctx context.Context, rt *Runtime, schema *arrow.Schema, batches ...arrow.RecordBatch) (Ref[arrow.Table], error) {
	stream, err := arrowipc.Gather(schema, batches...)
	if err != nil {
		return Ref[arrow.Table]{}, errs.New(errs.EINVAL, "the batches are not stored: %w", err)
	}
	ref, err := rt.c.Put(ctx, arrowBlob{stream})
	return Ref[arrow.Table]{rt.c, ref}, explain(err)
}

// PutTable stores a table.
func PutTable(ctx context.Context, rt *Runtime, t arrow.Table) (Ref[arrow.Table], error) {
	return Put(ctx, rt, t)
}

func records(ctx context.Context, c *client.Client, ref client.Ref) (array.RecordReader, error) {
	view, err := c.GetView(ctx, ref)
	if err != nil {
		return nil, explain(err)
	}
	defer view.Release()
	return openRecords(view)
}

// openRecords takes a reference on the view.
func openRecords(view *client.View) (array.RecordReader, error) {
	format, _, buffers, err := wire.ParseBlob(view.Blob)
	if err != nil {
		return nil, err
	}
	if format != wire.FormatArrow || len(buffers) == 0 {
		return nil, errs.New(errs.EINVAL, "the value is of format %d and no Arrow data", format)
	}
	view.Retain()
	return arrowipc.Open(buffers[0], view.Release)
}

func table(ctx context.Context, c *client.Client, ref client.Ref) (arrow.Table, error) {
	r, err := records(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	return collect(r)
}

func collect(r array.RecordReader) (arrow.Table, error) {
	defer r.Release()
	var batches []arrow.RecordBatch
	defer func() {
		for _, b := range batches {
			b.Release()
		}
	}()
	for r.Next() {
		b := r.RecordBatch()
		b.Retain()
		batches = append(batches, b)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return array.NewTableFromRecords(r.Schema(), batches), nil
}

// arrowBlob writes a stream as a value.
type arrowBlob struct{ *arrowipc.Stream }

func (a arrowBlob) BlobSize() int { return wire.BlobSize(0, a.Size()) }

func (a arrowBlob) WriteBlob(to []byte) {
	_, buffers := wire.LayOutBlob(to, wire.FormatArrow, 0, a.Size())
	a.CopyTo(buffers[0], nil)
}

// Done is for the client.
func (a arrowBlob) Done() { a.Release() }

// gather lists what a table or a batch consists of.
func gather(v any) (*arrowipc.Stream, error) {
	var stream *arrowipc.Stream
	var err error
	switch x := v.(type) {
	case arrow.RecordBatch:
		stream, err = arrowipc.Gather(x.Schema(), x)
	case arrow.Table:
		r := array.NewTableReader(x, 0)
		defer r.Release()
		var batches []arrow.RecordBatch
		for r.Next() {
			b := r.RecordBatch()
			b.Retain()
			defer b.Release()
			batches = append(batches, b)
		}
		stream, err = arrowipc.Gather(x.Schema(), batches...)
	}
	if err != nil {
		return nil, errs.New(errs.EINVAL, "the Arrow data is not stored: %w", err)
	}
	return stream, nil
}
