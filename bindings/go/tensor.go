package raygo

import (
	"context"
	"encoding/binary"
	"unsafe"

	"github.com/raygo/raygo/engine/client"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"
)

const maxDims = 16

// Tensor is an array of numbers, as NumPy has them. One that came from Get stands in shared memory: it must not be written, and is valid until Release.
type Tensor struct {
	Kind     byte  // b bool, i and u integers, f floats, c complex numbers, as in NumPy
	ItemSize int   // bytes of an element
	Shape    []int // no dimensions: a single number
	Strides  []int // in bytes, one for each dimension; nil: row by row
	Data     []byte
	view     *client.View
}

// Number is what elements can be.
type Number interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 | complex64 | complex128
}

func kindOf[T Number]() byte {
	var v T
	switch any(v).(type) {
	case bool:
		return 'b'
	case int8, int16, int32, int64:
		return 'i'
	case uint8, uint16, uint32, uint64:
		return 'u'
	case float32, float64:
		return 'f'
	case complex64, complex128:
		return 'c'
	}
	return 0
}

// NewTensor makes an array of data, row by row, without copying it.
func NewTensor[T Number](data []T, shape ...int) *Tensor {
	size := int(unsafe.Sizeof(*new(T)))
	return &Tensor{
		Kind: kindOf[T](), ItemSize: size, Shape: shape,
		Data: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*size),
	}
}

// Elements gives the elements row by row, in place; the type must be the array's own. The slice is valid as long as the tensor.
func Elements[T Number](t *Tensor) ([]T, error) {
	size := int(unsafe.Sizeof(*new(T)))
	if t.Kind != kindOf[T]() || t.ItemSize != size {
		return nil, errs.New(errs.EINVAL, "the array has elements of kind %q and %d bytes, not %T", t.Kind, t.ItemSize, *new(T))
	}
	if !t.dense() {
		return nil, errs.New(errs.EINVAL, "the array does not lie row by row: use Strides")
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))%uintptr(min(size, 8)) != 0 {
		return nil, errs.New(errs.EINVAL, "the array's data is not aligned for %T", *new(T))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/size), nil
}

// Release lets shared memory go. It does nothing to a tensor of the program's own.
func (t *Tensor) Release() {
	if t.view != nil {
		t.view.Release()
		t.view, t.Data = nil, nil
	}
}

// Len is the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, k := range t.Shape {
		n *= k
	}
	return n
}

func (t *Tensor) rowStrides() []int {
	s := make([]int, len(t.Shape))
	at := t.ItemSize
	for i := len(s) - 1; i >= 0; i-- {
		s[i] = at
		at *= max(t.Shape[i], 1)
	}
	return s
}

func (t *Tensor) dense() bool {
	if t.Strides == nil {
		return true
	}
	for i, s := range t.rowStrides() {
		if t.Shape[i] > 1 && t.Strides[i] != s {
			return false
		}
	}
	return true
}

func (t *Tensor) check() error {
	if len(t.Shape) > maxDims || t.Strides != nil && len(t.Strides) != len(t.Shape) {
		return errs.New(errs.EINVAL, "an array of %d dimensions and %d strides is not known: %d is the most", len(t.Shape), len(t.Strides), maxDims)
	}
	last, size := t.ItemSize, t.ItemSize
	strides := t.Strides
	if strides == nil {
		strides = t.rowStrides()
	}
	for i, n := range t.Shape {
		if n < 0 || strides[i] < 0 {
			return errs.New(errs.EINVAL, "dimension %d of the array has length %d and stride %d", i, n, strides[i])
		}
		last += max(n-1, 0) * strides[i]
		size *= n
	}
	if size > 0 && last > len(t.Data) {
		return errs.New(errs.EINVAL, "an array of shape %v with elements of %d bytes needs %d bytes, but has %d", t.Shape, t.ItemSize, last, len(t.Data))
	}
	return nil
}

// BlobSize is for the client.
func (t *Tensor) BlobSize() int { return wire.BlobSize(8+8*len(t.Shape), t.Len()*t.ItemSize) }

// WriteBlob is for the client.
func (t *Tensor) WriteBlob(to []byte) {
	body, buffers := wire.LayOutBlob(to, wire.FormatTensor, 8+8*len(t.Shape), t.Len()*t.ItemSize)
	clear(body)
	body[0], body[1], body[2] = t.Kind, byte(t.ItemSize), byte(len(t.Shape))
	for i, n := range t.Shape {
		binary.LittleEndian.PutUint64(body[8+8*i:], uint64(n))
	}
	if t.dense() {
		copy(buffers[0], t.Data)
		return
	}
	at := make([]int, len(t.Shape))
	from := 0
	for out := buffers[0]; len(out) > 0; out = out[t.ItemSize:] {
		copy(out[:t.ItemSize], t.Data[from:])
		for i := len(at) - 1; i >= 0; i-- {
			from += t.Strides[i]
			if at[i]++; at[i] < t.Shape[i] {
				break
			}
			from -= t.Strides[i] * t.Shape[i]
			at[i] = 0
		}
	}
}

// Done is for the client.
func (t *Tensor) Done() {}

// openTensor takes a reference on the view.
func openTensor(view *client.View) (*Tensor, error) {
	format, body, buffers, err := wire.ParseBlob(view.Blob)
	if err != nil {
		return nil, err
	}
	if format != wire.FormatTensor || len(buffers) != 1 || len(body) < 8 || len(body) < 8+8*int(body[2]) {
		return nil, errs.New(errs.EINVAL, "the value is of format %d and no array", format)
	}
	t := &Tensor{Kind: body[0], ItemSize: int(body[1]), Shape: make([]int, body[2]), Data: buffers[0]}
	for i := range t.Shape {
		t.Shape[i] = int(binary.LittleEndian.Uint64(body[8+8*i:]))
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	t.Strides = t.rowStrides()
	view.Retain()
	t.view = view
	return t, nil
}

func tensor(ctx context.Context, c *client.Client, ref client.Ref) (*Tensor, error) {
	view, err := c.GetView(ctx, ref)
	if err != nil {
		return nil, explain(err)
	}
	defer view.Release()
	return openTensor(view)
}
