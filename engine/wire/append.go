package wire

var zeros [8]byte

// Begin appends a header whose length End fills in.
func Begin(b []byte, t Type, flags uint16, id uint64) []byte {
	return AppendHeader(b, Header{Type: t, Flags: flags, ID: id})
}

// End pads the frame that begins at start and fills in its length.
func End(b []byte, start int) []byte {
	b = Pad(b, start)
	le.PutUint32(b[start:], uint32(len(b)-start-HeaderSize))
	return b
}

// Pad appends zeros until b is a multiple of 8 longer than start.
func Pad(b []byte, start int) []byte {
	if k := (len(b) - start) & 7; k != 0 {
		b = append(b, zeros[k:]...)
	}
	return b
}

// AppendHeader appends a header.
func AppendHeader(b []byte, h Header) []byte {
	b = le.AppendUint32(b, h.Len)
	b = le.AppendUint16(b, uint16(h.Type))
	b = le.AppendUint16(b, h.Flags)
	return le.AppendUint64(b, h.ID)
}

// AppendFrame appends a frame with the payload given.
func AppendFrame(b []byte, t Type, flags uint16, id uint64, payload []byte) []byte {
	start := len(b)
	b = Begin(b, t, flags, id)
	b = append(b, payload...)
	return End(b, start)
}

// AppendOID appends the name of an object.
func AppendOID(b []byte, o OID) []byte {
	b = le.AppendUint64(b, o.Task)
	b = le.AppendUint32(b, o.Index)
	return le.AppendUint32(b, 0)
}

// AppendUint64 appends a number.
func AppendUint64(b []byte, n uint64) []byte { return le.AppendUint64(b, n) }

// AppendPlace appends a value that lies in the arena, or in a file (see Value.File).
func AppendPlace(b []byte, index uint32, isError bool, n, offset uint64, file uint32) []byte {
	b = AppendValueHead(b, index, Arena, isError, n, offset, 0)
	le.PutUint32(b[len(b)-4:], file)
	return b
}

// AppendValueHead appends a value without its references and data, which must follow.
func AppendValueHead(b []byte, index uint32, kind Kind, isError bool, n, offset uint64, nrefs int) []byte {
	b = le.AppendUint32(b, index)
	b = le.AppendUint16(b, uint16(kind))
	var mark uint16
	if isError {
		mark = 1
	}
	b = le.AppendUint16(b, mark)
	b = le.AppendUint64(b, n)
	b = le.AppendUint64(b, offset)
	b = le.AppendUint32(b, uint32(nrefs))
	return le.AppendUint32(b, 0)
}

// AppendValue appends a value. b must be a multiple of 8 into its frame.
func AppendValue(b []byte, v Value) []byte {
	n := v.Len
	if v.Kind != Arena {
		n = uint64(len(v.Data))
	}
	b = AppendValueHead(b, v.Index, v.Kind, v.IsError, n, v.Offset, v.Refs.Len())
	b = append(b, v.Refs...)
	if v.Kind != Arena {
		start := len(b)
		b = append(b, v.Data...)
		b = Pad(b, start)
	}
	return b
}

// AppendSubmit appends a Submit frame.
func AppendSubmit(b []byte, task uint64, flags uint16, s SubmitFrame) []byte {
	start := len(b)
	b = Begin(b, Submit, flags, task)
	b = le.AppendUint32(b, s.Template)
	b = le.AppendUint32(b, s.NReturns)
	b = le.AppendUint64(b, s.Actor)
	b = le.AppendUint64(b, s.Parent)
	b = le.AppendUint32(b, uint32(s.Top.Len()))
	b = le.AppendUint32(b, uint32(s.Nested.Len()))
	b = le.AppendUint32(b, uint32(len(s.Args)))
	b = le.AppendUint32(b, 0)
	b = append(b, s.Top...)
	b = append(b, s.Nested...)
	b = append(b, s.Args...)
	return End(b, start)
}

// AppendExecHead appends the fixed part of an Exec payload; then NTop arguments (AppendOID, AppendValue), Args and Context follow, the latter
// two each padded.
func AppendExecHead(b []byte, x *ExecFrame) []byte {
	b = le.AppendUint32(b, x.Template)
	b = le.AppendUint32(b, x.NReturns)
	b = le.AppendUint64(b, x.Actor)
	b = le.AppendUint64(b, x.Parent)
	b = le.AppendUint32(b, x.NTop)
	b = le.AppendUint32(b, x.Attempt)
	b = le.AppendUint32(b, uint32(len(x.Args)))
	b = le.AppendUint32(b, uint32(len(x.Context)))
	b = le.AppendUint32(b, x.RetriesLeft)
	return le.AppendUint32(b, 0)
}

// AppendExec appends an Exec frame whose arguments are x.Top.
func AppendExec(b []byte, task uint64, flags uint16, x *ExecFrame) []byte {
	start := len(b)
	b = Begin(b, Exec, flags, task)
	b = AppendExecHead(b, x)
	b = append(b, x.Top...)
	b = append(b, x.Args...)
	b = Pad(b, start)
	b = append(b, x.Context...)
	return End(b, start)
}

// AppendResult appends a Result frame.
func AppendResult(b []byte, task uint64, r ResultFrame, values ...Value) []byte {
	start := len(b)
	b = Begin(b, Result, 0, task)
	b = le.AppendUint32(b, uint32(r.Status))
	b = le.AppendUint32(b, uint32(len(values)))
	b = le.AppendUint64(b, r.ExecNS)
	b = le.AppendUint32(b, r.Attempt)
	b = le.AppendUint32(b, 0)
	for _, v := range values {
		b = AppendValue(b, v)
	}
	return End(b, start)
}

// AppendCreate appends a Create frame.
func AppendCreate(b []byte, task uint64, c CreateFrame) []byte {
	b = AppendHeader(b, Header{CreateSize, Create, 0, task})
	b = le.AppendUint32(b, c.Index)
	b = le.AppendUint32(b, 0)
	return le.AppendUint64(b, c.Size)
}

// AppendCreated appends a Created frame.
func AppendCreated(b []byte, task uint64, c CreatedFrame) []byte {
	start := len(b)
	b = Begin(b, Created, 0, task)
	b = le.AppendUint32(b, c.Index)
	b = le.AppendUint32(b, c.Status)
	b = le.AppendUint64(b, c.Offset)
	b = le.AppendUint32(b, uint32(len(c.Message)))
	b = le.AppendUint32(b, c.File)
	b = le.AppendUint32(b, c.Generation)
	b = le.AppendUint32(b, c.Lease)
	b = le.AppendUint32(b, c.LeaseGen)
	b = le.AppendUint32(b, c.LeaseFile)
	b = append(b, c.Message...)
	return End(b, start)
}

// AppendSite appends a Site frame.
func AppendSite(b []byte, task uint64, s SiteFrame) []byte {
	start := len(b)
	b = Begin(b, Site, 0, task)
	b = le.AppendUint32(b, s.Index)
	b = le.AppendUint32(b, s.Count)
	b = le.AppendUint32(b, uint32(len(s.Text)))
	b = le.AppendUint32(b, 0)
	b = append(b, s.Text...)
	return End(b, start)
}

// AppendChunk appends a Chunk frame.
func AppendChunk(b []byte, c ChunkFrame) []byte {
	b = AppendHeader(b, Header{ChunkSize, Chunk, 0, 0})
	b = le.AppendUint64(b, c.Offset)
	b = le.AppendUint64(b, c.Size)
	b = le.AppendUint32(b, c.Generation)
	return le.AppendUint32(b, 0)
}

// AppendChunkBack appends a ChunkBack frame.
func AppendChunkBack(b []byte, ranges ...Range) []byte {
	b = AppendHeader(b, Header{uint32(len(ranges) * RangeSize), ChunkBack, 0, 0})
	for _, r := range ranges {
		b = le.AppendUint64(b, r.Offset)
		b = le.AppendUint64(b, r.Size)
	}
	return b
}

// AppendOIDFrame appends a frame whose payload is a list of objects.
func AppendOIDFrame(b []byte, t Type, flags uint16, id uint64, oids ...OID) []byte {
	b = AppendHeader(b, Header{uint32(len(oids) * OIDSize), t, flags, id})
	for _, o := range oids {
		b = AppendOID(b, o)
	}
	return b
}

// MakeOIDs puts names into the form frames carry.
func MakeOIDs(oids ...OID) OIDs {
	if len(oids) == 0 {
		return nil
	}
	b := make([]byte, 0, len(oids)*OIDSize)
	for _, o := range oids {
		b = AppendOID(b, o)
	}
	return b
}

// Blob makes a value's blob without out-of-band buffers.
func Blob(format byte, body []byte) []byte {
	b := make([]byte, 16, 16+len(body))
	b[0] = format
	le.PutUint64(b[8:], uint64(len(body)))
	return append(b, body...)
}

// BlobSize is the length of a blob of these parts.
func BlobSize(body int, buffers ...int) int {
	n := 16 + 16*len(buffers) + body
	for _, b := range buffers {
		n = (n+63)&^63 + b
	}
	return n
}

// LayOutBlob writes the head of a blob, zeros between its parts included, into b, which has [BlobSize], and gives the places for body and buffers.
func LayOutBlob(b []byte, format byte, body int, buffers ...int) (to []byte, bufs [][]byte) {
	at := 16 + 16*len(buffers)
	clear(b[:at])
	b[0] = format
	le.PutUint16(b[2:], uint16(len(buffers)))
	le.PutUint64(b[8:], uint64(body))
	to = b[at : at+body]
	at += body
	for i, n := range buffers {
		from := (at + 63) &^ 63
		clear(b[at:from])
		le.PutUint64(b[16+16*i:], uint64(from))
		le.PutUint64(b[24+16*i:], uint64(n))
		at = from + n
		bufs = append(bufs, b[from:at])
	}
	return to, bufs
}

// ParseBlob reads a blob; buffers are its out-of-band ones.
func ParseBlob(b []byte) (format byte, body []byte, buffers [][]byte, err error) {
	if len(b) < 16 {
		return 0, nil, nil, malformed("a blob of %d bytes", len(b))
	}
	n, count := le.Uint64(b[8:]), int(le.Uint16(b[2:]))
	at := 16 + 16*count
	if at > len(b) || n > uint64(len(b)-at) {
		return 0, nil, nil, malformed("a blob of %d bytes with a body of %d and %d buffers", len(b), n, count)
	}
	for i := range count {
		off, size := le.Uint64(b[16+16*i:]), le.Uint64(b[24+16*i:])
		if off > uint64(len(b)) || size > uint64(len(b))-off {
			return 0, nil, nil, malformed("a blob of %d bytes with a buffer of %d at %d", len(b), size, off)
		}
		buffers = append(buffers, b[off:off+size:off+size])
	}
	return b[0], b[at : uint64(at)+n], buffers, nil
}
