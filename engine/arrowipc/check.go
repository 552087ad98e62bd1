package arrowipc

import "fmt"

// What is checked of a head before arrow-go sees it, which makes memory for as many parts as a head says that it has.
const (
	schemaHead     = 1 // value of messageKind
	schemaFields   = 1 // fields of Schema
	schemaMetadata = 2
	fieldTypeKind  = 2 // fields of Field
	fieldType      = 3
	fieldChildren  = 5
	fieldMetadata  = 6
	union          = 14 // value of fieldTypeKind
	unionIDs       = 1  // field of Union
	recordLength   = 0  // fields of RecordBatch
	recordNodes    = 1
	recordCodec    = 3
	recordVariadic = 4
	deepest        = 64 // types within types
)

// check says whether lists lie in the head, and buffers in the body of size bytes.
func (h head) check(size uint64) error {
	message := h.follow(0)
	header := h.target(message, messageHeader)
	kind := h.field(message, messageKind, 1)
	if kind == 0 || header == 0 {
		return fmt.Errorf("%w: a message's head of %d bytes says not what it is", ErrMalformed, len(h))
	}
	switch h[kind] {
	case schemaHead:
		if _, _, err := h.list(header, schemaMetadata, 4); err != nil {
			return err
		}
		left := len(h) / 4 // a field takes more; one that is referred to many times could take any number
		return h.checkFields(header, schemaFields, 0, &left)
	case dictionary:
		return h.checkBatch(h.target(header, dictData), size)
	case records:
		return h.checkBatch(header, size)
	}
	return nil
}

// target gives the place that a table's field points to.
func (h head) target(table uint64, number int) uint64 {
	if at := h.field(table, number, 4); at != 0 {
		return h.follow(at)
	}
	return 0
}

// list gives the first item's place and the number of items of n bytes.
func (h head) list(table uint64, number int, n uint64) (at, count uint64, err error) {
	at = h.target(table, number)
	if at == 0 {
		return 0, 0, nil
	}
	count = uint64(le.Uint32(h[at:]))
	if !h.has(at+4, n*count) {
		return 0, 0, fmt.Errorf("%w: a head of %d bytes has a list of %d items", ErrMalformed, len(h), count)
	}
	return at + 4, count, nil
}

func (h head) checkFields(table uint64, number, depth int, left *int) error {
	at, count, err := h.list(table, number, 4)
	if err != nil {
		return err
	}
	for i := range count {
		field := h.follow(at + 4*i)
		if *left--; *left < 0 || field == 0 || depth > deepest {
			return fmt.Errorf("%w: its schema has a field that is missing, nested too deep or referred to too often", ErrMalformed)
		}
		if kind := h.field(field, fieldTypeKind, 1); kind != 0 && h[kind] == union {
			if _, _, err := h.list(h.target(field, fieldType), unionIDs, 4); err != nil {
				return err
			}
		}
		if _, _, err := h.list(field, fieldMetadata, 4); err != nil {
			return err
		}
		if err := h.checkFields(field, fieldChildren, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

func (h head) checkBatch(batch, size uint64) error {
	if batch == 0 {
		return fmt.Errorf("%w: a batch has no header", ErrMalformed)
	}
	if h.target(batch, recordCodec) != 0 {
		return fmt.Errorf("%w: its buffers are compressed, and values in memory are to be as they are", ErrMalformed)
	}
	if at := h.field(batch, recordLength, 8); at != 0 && int64(le.Uint64(h[at:])) < 0 {
		return fmt.Errorf("%w: a batch of %d rows", ErrMalformed, int64(le.Uint64(h[at:])))
	}
	at, count, err := h.list(batch, recordBuffers, 16)
	if err != nil {
		return err
	}
	buffers := count
	for ; count > 0; at, count = at+16, count-1 {
		from, n := le.Uint64(h[at:]), le.Uint64(h[at+8:])
		if from > size || n > size-from {
			return fmt.Errorf("%w: a buffer of %d bytes at %d does not lie in its body of %d", ErrMalformed, int64(n), int64(from), size)
		}
	}
	if _, _, err = h.list(batch, recordNodes, 16); err != nil {
		return err
	}
	at, count, err = h.list(batch, recordVariadic, 8)
	for ; count > 0 && err == nil; at, count = at+8, count-1 {
		if n := le.Uint64(h[at:]); n > buffers {
			err = fmt.Errorf("%w: a column says that it has %d of %d buffers", ErrMalformed, int64(n), buffers)
		}
	}
	return err
}
