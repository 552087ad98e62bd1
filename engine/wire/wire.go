package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes in bytes of the fixed parts.
const (
	HeaderSize  = 16
	OIDSize     = 16
	ValueSize   = 32
	SubmitSize  = 40
	ExecSize    = 48
	ResultSize  = 24
	CreateSize  = 16
	CreatedSize = 40
	RangeSize   = 16
	ChunkSize   = 24
	SiteSize    = 16

	MaxFrame  = 256 << 20 // bytes after the header
	MaxSite   = 4 << 10   // bytes of a Site's text
	InlineMax = 64 << 10  // larger values go through the arena
	NoOffset  = ^uint64(0)
	Dropped   = ^uint64(0) // in Consumed: the generator was dropped; in Resume: stop producing
)

// Type says what a frame is.
type Type uint16

// Frames from a process to its engine.
const (
	Hello     Type = 1
	Template  Type = 2
	Submit    Type = 3
	Put       Type = 4
	Create    Type = 5
	Seal      Type = 6
	Abort     Type = 7
	AddRef    Type = 8
	Release   Type = 9
	Subscribe Type = 10
	Pin       Type = 11
	Unpin     Type = 12
	Call      Type = 13
	Cancel    Type = 14
	Kill      Type = 15
	Result    Type = 16
	Item      Type = 17
	Blocked   Type = 18
	Unblocked Type = 19
	Return    Type = 20
	Consumed  Type = 21
	Goodbye   Type = 22
	Site      Type = 23
	ChunkAsk  Type = 24
	ChunkBack Type = 25
)

// Frames from the engine to a process.
const (
	Welcome     Type = 64
	Object      Type = 65
	Created     Type = 66
	Reply       Type = 67
	TemplateDef Type = 68
	Exec        Type = 69
	CancelExec  Type = 70
	Recall      Type = 71
	Resume      Type = 72
	Log         Type = 73
	Exit        Type = 74
	WaitError   Type = 75
	Chunk       Type = 76
	ChunkRecall Type = 77
)

// Flags of frames.
const (
	FlagForce       uint16 = 1
	FlagRecursive   uint16 = 2
	FlagNoRestart   uint16 = 4
	FlagAny         uint16 = 8
	FlagActorCreate uint16 = 16
	FlagActorCall   uint16 = 32
	FlagStreaming   uint16 = 64
	FlagHasContext  uint16 = 128
	FlagTimed       uint16 = 256
	FlagLease       uint16 = 512
	FlagAside       uint16 = 1024
)

// Kind says how a value is held.
type Kind uint16

// The kinds of values.
const (
	Inline Kind = 1 // data follows
	Arena  Kind = 2 // in the arena
	SysErr Kind = 3 // data follows: the engine's own error instead of a value
)

// Status is how a task ended.
type Status uint32

// The ways a task ends.
const (
	StatusOK        Status = 0
	StatusError     Status = 1 // final
	StatusRetry     Status = 2 // an exception that may be retried
	StatusCanceled  Status = 3
	StatusExitActor Status = 4
)

// Formats of a value's blob.
const (
	FormatNone    byte = 0
	FormatPickle  byte = 1
	FormatBytes   byte = 2
	FormatMsgpack byte = 3
	FormatArrow   byte = 4
	FormatTensor  byte = 5
	FormatError   byte = 16
)

var le = binary.LittleEndian

// ErrShort says that the bytes end before the frame does. More may come.
var ErrShort = errors.New("the frame is not whole yet")

// ErrMalformed is wrapped by every error that says why bytes are not a frame.
var ErrMalformed = errors.New("malformed frame")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// Pad8 returns n rounded up to a multiple of 8.
func Pad8(n int) int { return (n + 7) &^ 7 }

// Header stands before every frame.
type Header struct {
	Len   uint32 // bytes after the header, padding included
	Type  Type
	Flags uint16
	ID    uint64
}

// Next takes the first frame off b.
func Next(b []byte) (h Header, payload, rest []byte, err error) {
	if len(b) < HeaderSize {
		return h, nil, b, ErrShort
	}
	h = Header{le.Uint32(b), Type(le.Uint16(b[4:])), le.Uint16(b[6:]), le.Uint64(b[8:])}
	if h.Len > MaxFrame || h.Len&7 != 0 {
		return h, nil, b, malformed("type %d with a length of %d", h.Type, h.Len)
	}
	end := HeaderSize + int(h.Len)
	if len(b) < end {
		return h, nil, b, ErrShort
	}
	return h, b[HeaderSize:end:end], b[end:], nil
}

// Whole returns how many bytes at the start of b are whole frames and how long the frame after them will be (0: unknown yet).
func Whole(b []byte) (whole, next int, err error) {
	for {
		rest := b[whole:]
		if len(rest) < HeaderSize {
			return whole, 0, nil
		}
		n := le.Uint32(rest)
		if n > MaxFrame || n&7 != 0 {
			return whole, 0, malformed("type %d with a length of %d", le.Uint16(rest[4:]), n)
		}
		end := HeaderSize + int(n)
		if len(rest) < end {
			return whole, end, nil
		}
		whole += end
	}
}

// OID names an object: the task that made it and which of its values it is.
type OID struct {
	Task  uint64
	Index uint32
}

func (o OID) String() string { return fmt.Sprintf("%x.%d", o.Task, o.Index) }

// OIDs is a run of object names in a frame.
type OIDs []byte

// ParseOIDs takes a payload that consists of object names only.
func ParseOIDs(b []byte) (OIDs, error) {
	if len(b)%OIDSize != 0 {
		return nil, malformed("%d bytes are no list of objects", len(b))
	}
	return OIDs(b), nil
}

// Len returns how many names there are.
func (o OIDs) Len() int { return len(o) / OIDSize }

// At returns the i-th name.
func (o OIDs) At(i int) OID {
	b := o[i*OIDSize:]
	return OID{le.Uint64(b), le.Uint32(b[8:])}
}

// take splits n names off b.
func takeOIDs(b []byte, n uint32) (OIDs, []byte, error) {
	size := uint64(n) * OIDSize
	if size > uint64(len(b)) {
		return nil, nil, malformed("%d objects in %d bytes", n, len(b))
	}
	return OIDs(b[:size:size]), b[size:], nil
}

// takeBytes splits n bytes and their padding off b.
func takeBytes(b []byte, n uint64) (data, rest []byte, err error) {
	if n > uint64(len(b)) || Pad8(int(n)) > len(b) {
		return nil, nil, malformed("%d bytes announced, %d are there", n, len(b))
	}
	return b[:n:n], b[Pad8(int(n)):], nil
}

// ParseUint64s reads a payload of numbers.
func ParseUint64s(b []byte) ([]uint64, error) {
	if len(b)%8 != 0 {
		return nil, malformed("%d bytes are no list of numbers", len(b))
	}
	out := make([]uint64, len(b)/8)
	for i := range out {
		out[i] = le.Uint64(b[i*8:])
	}
	return out, nil
}

// ParseUint64 reads a payload of one number.
func ParseUint64(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, malformed("%d bytes instead of one number", len(b))
	}
	return le.Uint64(b), nil
}
