package wire

// Value is what an object holds, or where it is.
type Value struct {
	Index   uint32
	Kind    Kind
	IsError bool
	Len     uint64
	Offset  uint64 // Arena
	File    uint32 // Arena, from the engine: 0 when it is in the arena, else 1 + the engine's descriptor of the file that it lies in
	Refs    OIDs   // references the value contains
	Data    []byte // Inline, SysErr
}

// TakeValue splits a value off b.
func TakeValue(b []byte) (v Value, rest []byte, err error) {
	if len(b) < ValueSize {
		return v, nil, malformed("a value of %d bytes", len(b))
	}
	v.Index = le.Uint32(b)
	v.Kind = Kind(le.Uint16(b[4:]))
	isError := le.Uint16(b[6:])
	v.Len = le.Uint64(b[8:])
	v.Offset = le.Uint64(b[16:])
	nrefs := le.Uint32(b[24:])
	v.File = le.Uint32(b[28:])
	if isError > 1 || v.File != 0 && v.Kind != Arena {
		return v, nil, malformed("a value with unknown marks")
	}
	v.IsError = isError == 1
	if v.Refs, rest, err = takeOIDs(b[ValueSize:], nrefs); err != nil {
		return v, nil, err
	}
	switch v.Kind {
	case Inline, SysErr:
		v.Data, rest, err = takeBytes(rest, v.Len)
	case Arena:
	default:
		err = malformed("a value of kind %d", v.Kind)
	}
	return v, rest, err
}

// ParseValue reads a payload that is one value.
func ParseValue(b []byte) (Value, error) {
	v, rest, err := TakeValue(b)
	if err == nil && len(rest) != 0 {
		err = malformed("%d bytes after the value", len(rest))
	}
	return v, err
}

// SubmitFrame is the payload of Submit.
type SubmitFrame struct {
	Template uint32
	NReturns uint32
	Actor    uint64
	Parent   uint64
	Top      OIDs // resolved before the task starts
	Nested   OIDs // held until it ends
	Args     []byte
}

// ParseSubmit reads the payload of Submit.
func ParseSubmit(b []byte) (s SubmitFrame, err error) {
	if len(b) < SubmitSize {
		return s, malformed("a submit of %d bytes", len(b))
	}
	s.Template, s.NReturns = le.Uint32(b), le.Uint32(b[4:])
	s.Actor, s.Parent = le.Uint64(b[8:]), le.Uint64(b[16:])
	ntop, nnested, nargs := le.Uint32(b[24:]), le.Uint32(b[28:]), le.Uint32(b[32:])
	if le.Uint32(b[36:]) != 0 {
		return s, malformed("a submit with unknown marks")
	}
	rest := b[SubmitSize:]
	if s.Top, rest, err = takeOIDs(rest, ntop); err != nil {
		return s, err
	}
	if s.Nested, rest, err = takeOIDs(rest, nnested); err != nil {
		return s, err
	}
	if s.Args, rest, err = takeBytes(rest, uint64(nargs)); err != nil {
		return s, err
	}
	if len(rest) != 0 {
		return s, malformed("%d bytes after the submit", len(rest))
	}
	return s, nil
}

// ExecFrame is the payload of Exec.
type ExecFrame struct {
	Template    uint32
	NReturns    uint32
	Actor       uint64
	Parent      uint64
	NTop        uint32
	Attempt     uint32
	RetriesLeft uint32
	Top         []byte // NTop arguments, see TakeArg
	Args        []byte
	Context     []byte
}

// ParseExec reads the payload of Exec.
func ParseExec(b []byte) (x ExecFrame, err error) {
	if len(b) < ExecSize {
		return x, malformed("an exec of %d bytes", len(b))
	}
	x.Template, x.NReturns = le.Uint32(b), le.Uint32(b[4:])
	x.Actor, x.Parent = le.Uint64(b[8:]), le.Uint64(b[16:])
	x.NTop, x.Attempt = le.Uint32(b[24:]), le.Uint32(b[28:])
	nargs, ncontext := le.Uint32(b[32:]), le.Uint32(b[36:])
	x.RetriesLeft = le.Uint32(b[40:])
	if le.Uint32(b[44:]) != 0 {
		return x, malformed("an exec with unknown marks")
	}
	rest := b[ExecSize:]
	top := rest
	for range x.NTop {
		if _, _, rest, err = TakeArg(rest); err != nil {
			return x, err
		}
	}
	x.Top = top[:len(top)-len(rest)]
	if x.Args, rest, err = takeBytes(rest, uint64(nargs)); err != nil {
		return x, err
	}
	if x.Context, rest, err = takeBytes(rest, uint64(ncontext)); err != nil {
		return x, err
	}
	if len(rest) != 0 {
		return x, malformed("%d bytes after the exec", len(rest))
	}
	return x, nil
}

// TakeArg splits one resolved argument off the Top of an ExecFrame.
func TakeArg(b []byte) (id OID, v Value, rest []byte, err error) {
	o, rest, err := takeOIDs(b, 1)
	if err != nil {
		return id, v, nil, err
	}
	v, rest, err = TakeValue(rest)
	return o.At(0), v, rest, err
}

// ResultFrame is the payload of Result.
type ResultFrame struct {
	Status  Status
	NValues uint32
	ExecNS  uint64
	Attempt uint32
	Values  []byte // NValues values, see TakeValue
}

// ParseResult reads the payload of Result.
func ParseResult(b []byte) (r ResultFrame, err error) {
	if len(b) < ResultSize {
		return r, malformed("a result of %d bytes", len(b))
	}
	r.Status, r.NValues = Status(le.Uint32(b)), le.Uint32(b[4:])
	r.ExecNS, r.Attempt = le.Uint64(b[8:]), le.Uint32(b[16:])
	if r.Status > StatusExitActor || le.Uint32(b[20:]) != 0 {
		return r, malformed("a result with unknown marks")
	}
	rest := b[ResultSize:]
	for range r.NValues {
		if _, rest, err = TakeValue(rest); err != nil {
			return r, err
		}
	}
	if len(rest) != 0 {
		return r, malformed("%d bytes after the result", len(rest))
	}
	r.Values = b[ResultSize:]
	return r, nil
}

// CreateFrame is the payload of Create.
type CreateFrame struct {
	Index uint32
	Size  uint64
}

// ParseCreate reads the payload of Create.
func ParseCreate(b []byte) (c CreateFrame, err error) {
	if len(b) != CreateSize || le.Uint32(b[4:]) != 0 {
		return c, malformed("a create of %d bytes", len(b))
	}
	return CreateFrame{le.Uint32(b), le.Uint64(b[8:])}, nil
}

// CreatedFrame is the payload of Created.
type CreatedFrame struct {
	Index      uint32
	Status     uint32
	Offset     uint64
	File       uint32 // as in Value
	Generation uint32
	Lease      uint32 // 0: none; else 1 + its index
	LeaseGen   uint32
	LeaseFile  uint32 // as File
	Message    string
}

// ParseCreated reads the payload of Created.
func ParseCreated(b []byte) (c CreatedFrame, err error) {
	if len(b) < CreatedSize {
		return c, malformed("a created of %d bytes", len(b))
	}
	c.Index, c.Status, c.Offset, c.File, c.Generation = le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint32(b[20:]), le.Uint32(b[24:])
	c.Lease, c.LeaseGen, c.LeaseFile = le.Uint32(b[28:]), le.Uint32(b[32:]), le.Uint32(b[36:])
	text, rest, err := takeBytes(b[CreatedSize:], uint64(le.Uint32(b[16:])))
	if err != nil {
		return c, err
	}
	if len(rest) != 0 {
		return c, malformed("%d bytes after the created", len(rest))
	}
	c.Message = string(text)
	return c, nil
}

// SiteFrame is the payload of Site.
type SiteFrame struct {
	Index, Count uint32
	Text         []byte
}

// ParseSite reads the payload of Site.
func ParseSite(b []byte) (s SiteFrame, err error) {
	if len(b) < SiteSize || le.Uint32(b[12:]) != 0 {
		return s, malformed("a site of %d bytes", len(b))
	}
	s.Index, s.Count = le.Uint32(b), le.Uint32(b[4:])
	text, rest, err := takeBytes(b[SiteSize:], uint64(le.Uint32(b[8:])))
	if err != nil {
		return s, err
	}
	if len(rest) != 0 || len(text) > MaxSite || s.Count > 1<<20 {
		return s, malformed("a site of %d values with a text of %d bytes and %d more", s.Count, len(text), len(rest))
	}
	s.Text = text
	return s, nil
}

// Range is a run of bytes in the arena.
type Range struct{ Offset, Size uint64 }

// ParseRanges reads the payload of ChunkBack.
func ParseRanges(b []byte) ([]Range, error) {
	if len(b)%RangeSize != 0 {
		return nil, malformed("%d bytes are no list of ranges", len(b))
	}
	out := make([]Range, len(b)/RangeSize)
	for i := range out {
		out[i] = Range{le.Uint64(b[i*RangeSize:]), le.Uint64(b[i*RangeSize+8:])}
	}
	return out, nil
}

// ChunkFrame is the payload of Chunk.
type ChunkFrame struct {
	Range
	Generation uint32
}

// ParseChunk reads the payload of Chunk.
func ParseChunk(b []byte) (c ChunkFrame, err error) {
	if len(b) != ChunkSize || le.Uint32(b[20:]) != 0 {
		return c, malformed("a chunk of %d bytes", len(b))
	}
	return ChunkFrame{Range{le.Uint64(b), le.Uint64(b[8:])}, le.Uint32(b[16:])}, nil
}
