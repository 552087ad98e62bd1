package arrowipc

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

const align = 64

// Stream is an Arrow stream that has not been put together: its pieces, each of which begins at a multiple of 64.
type Stream struct {
	pieces [][]byte
	size   int
	keep   []arrow.RecordBatch
}

// Gather lists the stream of some batches of one schema. It retains them until Release.
func Gather(schema *arrow.Schema, batches ...arrow.RecordBatch) (*Stream, error) {
	s := &Stream{}
	w := ipc.NewWriterWithPayloadWriter(s, ipc.WithSchema(schema))
	for _, b := range batches {
		b.Retain()
		s.keep = append(s.keep, b)
		if err := w.Write(b); err != nil {
			s.Release()
			return nil, fmt.Errorf("a batch of %d rows is not written: %w", b.NumRows(), err)
		}
	}
	if err := w.Close(); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// Size is the number of bytes that the stream takes.
func (s *Stream) Size() int { return s.size }

// CopyTo writes the stream; copyPiece may be nil, or a faster copy for large pieces.
func (s *Stream) CopyTo(to []byte, copyPiece func(to, from []byte)) {
	if copyPiece == nil {
		copyPiece = func(to, from []byte) { copy(to, from) }
	}
	at := 0
	for _, p := range s.pieces {
		copyPiece(to[at:at+len(p)], p)
		end := at + len(p)
		at = padded(end)
		clear(to[end:min(at, s.size)])
	}
}

// Release lets the batches go.
func (s *Stream) Release() {
	for _, b := range s.keep {
		b.Release()
	}
	s.keep, s.pieces = nil, nil
}

func padded(n int) int { return (n + align - 1) &^ (align - 1) }

func (s *Stream) add(piece []byte) {
	s.size = padded(s.size) + len(piece)
	s.pieces = append(s.pieces, piece)
}

// Start is for arrow's writer.
func (s *Stream) Start() error { return nil }

// WritePayload is for arrow's writer, which pads heads and buffers to 8 bytes only.
func (s *Stream) WritePayload(p ipc.Payload) error {
	var c collector
	if _, err := p.WritePayload(&c); err != nil {
		return err
	}
	var front []byte
	for len(c.parts) > 0 && (len(front) < 8 || len(front) < 8+int(le.Uint32(front[4:]))) {
		front = append(front, c.parts[0]...)
		c.parts = c.parts[1:]
	}
	if len(front) < 8 {
		return fmt.Errorf("arrow's writer gave a head of %d bytes", len(front))
	}
	var pieces [][]byte
	var sizes []int
	for i := 0; i < len(c.parts); i++ {
		piece := c.parts[i]
		pieces, sizes = append(pieces, piece), append(sizes, len(piece))
		if len(piece)%8 != 0 {
			if i++; i == len(c.parts) || len(c.parts[i]) != 8-len(piece)%8 {
				return fmt.Errorf("arrow's writer gave a buffer of %d bytes without its padding", len(piece))
			}
		}
	}
	front = append(front, make([]byte, padded(len(front))-len(front))...)
	le.PutUint32(front[4:], uint32(len(front)-8))
	if err := head(front[8:]).respace(sizes); err != nil {
		return err
	}
	s.add(front)
	for _, piece := range pieces {
		s.add(piece)
	}
	return nil
}

// Close is for arrow's writer.
func (s *Stream) Close() error {
	s.add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	return nil
}

// collector keeps what it is given. Short parts are copied: arrow's writer uses the memory of lengths and markers again.
type collector struct{ parts [][]byte }

func (c *collector) Write(b []byte) (int, error) {
	if len(b) < align {
		b = append([]byte(nil), b...)
	}
	c.parts = append(c.parts, b)
	return len(b), nil
}
