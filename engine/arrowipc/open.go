package arrowipc

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// ErrMalformed is wrapped by errors that say why bytes are no Arrow stream.
var ErrMalformed = errors.New("malformed Arrow stream")

// Open reads a stream in place. done is called once, when the reader and all batches and arrays that came from it have been released, or when
// Open fails. The reader is to be released; its batches too where they are retained. What heads say
// of lists and buffers is checked against the stream's bytes; of types and rows it is believed, as arrow-go does: streams come from processes of the
// same session.
func Open(stream []byte, done func()) (*ipc.Reader, error) {
	m := &messages{rest: stream, whole: memory.NewBufferWithAllocator(stream, borrowed{done: done})}
	m.refs.Store(1)
	r, err := ipc.NewReaderFromMessageReader(m)
	if err != nil {
		m.end()
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return r, nil
}

// borrowed is the allocator of memory that is somebody else's: freeing it tells them.
type borrowed struct {
	memory.Allocator
	done func()
}

func (b borrowed) Free([]byte) { b.done() }

// messages takes a stream apart without copying it.
type messages struct {
	refs  atomic.Int64
	whole *memory.Buffer
	rest  []byte
	last  *ipc.Message
	ended bool
}

func (m *messages) Retain() { m.refs.Add(1) }

func (m *messages) Release() {
	if m.refs.Add(-1) == 0 {
		m.end()
	}
}

// end lets go of the stream. A reader that could not be made may or may not have released its messages.
func (m *messages) end() {
	if m.ended {
		return
	}
	m.ended = true
	if m.last != nil {
		m.last.Release()
		m.last = nil
	}
	m.whole.Release()
}

// Message gives the next message, which is valid until the next call.
func (m *messages) Message() (*ipc.Message, error) {
	if len(m.rest) < 8 {
		return nil, io.EOF // the end's mark may be missing
	}
	if le.Uint32(m.rest) != 0xffffffff {
		return nil, fmt.Errorf("%w: no message begins %d bytes before its end", ErrMalformed, len(m.rest))
	}
	n := uint64(le.Uint32(m.rest[4:]))
	if n == 0 {
		return nil, io.EOF
	}
	if n > uint64(len(m.rest)-8) {
		return nil, fmt.Errorf("%w: a message's head has %d bytes where %d are left", ErrMalformed, n, len(m.rest)-8)
	}
	meta := head(m.rest[8 : 8+n])
	size, err := meta.body()
	if err != nil {
		return nil, err
	}
	from := len(m.whole.Bytes()) - len(m.rest) + 8 + int(n)
	if size > uint64(len(m.rest)-8)-n {
		return nil, fmt.Errorf("%w: a message's body has %d bytes where %d are left", ErrMalformed, size, uint64(len(m.rest)-8)-n)
	}
	if err := meta.check(size); err != nil {
		return nil, err
	}
	m.rest = m.rest[8+n+size:]
	body := memory.SliceBuffer(m.whole, from, int(size))
	defer body.Release()
	if m.last != nil {
		m.last.Release()
	}
	m.last = ipc.NewMessage(memory.NewBufferBytes(meta), body)
	return m.last, nil
}
