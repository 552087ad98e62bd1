package arrowipc

import (
	"encoding/binary"
	"fmt"
)

// What is read here of a message's head, which is a flatbuffers table: arrow-go shows none of it before the body is at hand, and changes none of it.
const (
	messageKind   = 1 // fields of Message
	messageHeader = 2
	messageBody   = 3
	dictionary    = 2 // values of messageKind
	records       = 3
	dictData      = 1 // field of DictionaryBatch
	recordBuffers = 2 // field of RecordBatch: pairs of offset and length
)

var le = binary.LittleEndian

// head is a message's head. Places in it are checked; what is not there is 0.
type head []byte

func (h head) has(at, n uint64) bool { return at <= uint64(len(h)) && n <= uint64(len(h))-at }

// follow gives the place that the offset at a place points to.
func (h head) follow(at uint64) uint64 {
	if at == 0 && len(h) < 4 || !h.has(at, 4) {
		return 0
	}
	to := at + uint64(le.Uint32(h[at:]))
	if !h.has(to, 4) {
		return 0
	}
	return to
}

// field gives the place of a table's field of n bytes.
func (h head) field(table uint64, number int, n uint64) uint64 {
	if table == 0 || !h.has(table, 4) {
		return 0
	}
	vtable := table - uint64(int64(int32(le.Uint32(h[table:])))) // wraps below zero, and is refused
	if !h.has(vtable, 4) {
		return 0
	}
	place := uint64(4 + 2*number)
	if place+2 > uint64(le.Uint16(h[vtable:])) || !h.has(vtable, place+2) {
		return 0
	}
	offset := uint64(le.Uint16(h[vtable+place:]))
	if offset == 0 || !h.has(table+offset, n) {
		return 0
	}
	return table + offset
}

// body is the length of the body that follows.
func (h head) body() (uint64, error) {
	message := h.follow(0)
	if message == 0 {
		return 0, fmt.Errorf("%w: a message's head of %d bytes is none", ErrMalformed, len(h))
	}
	at := h.field(message, messageBody, 8)
	if at == 0 {
		return 0, nil
	}
	size := le.Uint64(h[at:])
	if size > 1<<62 {
		return 0, fmt.Errorf("%w: a message's body of %d bytes", ErrMalformed, int64(size))
	}
	return size, nil
}

// respace changes the places of the body's buffers to multiples of 64, for buffers of these sizes, none of them empty.
func (h head) respace(sizes []int) error {
	message := h.follow(0)
	kind := h.field(message, messageKind, 1)
	var batch uint64
	if kind != 0 && (h[kind] == records || h[kind] == dictionary) {
		if header := h.field(message, messageHeader, 4); header != 0 {
			batch = h.follow(header)
		}
		if h[kind] == dictionary {
			if data := h.field(batch, dictData, 4); data != 0 {
				batch = h.follow(data)
			}
		}
	}
	var buffers []byte
	if list := h.field(batch, recordBuffers, 4); list != 0 {
		at := h.follow(list)
		if n := uint64(le.Uint32(h[at:])); h.has(at+4, 16*n) {
			buffers = h[at+4 : at+4+16*n]
		}
	}
	at := 0
	for ; len(buffers) > 0; buffers = buffers[16:] {
		le.PutUint64(buffers, uint64(at))
		if le.Uint64(buffers[8:]) == 0 {
			continue
		}
		if len(sizes) == 0 {
			return fmt.Errorf("arrow's writer gave fewer buffers than it lists")
		}
		at = padded(at + sizes[0])
		sizes = sizes[1:]
	}
	if len(sizes) > 0 {
		return fmt.Errorf("arrow's writer gave %d buffers more than it lists", len(sizes))
	}
	if total := h.field(message, messageBody, 8); total != 0 {
		le.PutUint64(h[total:], uint64(at))
	}
	return nil
}
