package collective

import (
	"encoding/binary"
	"math"
	"testing"
)

const (
	bfloat16 = 9
	float32s = 10
	boolean  = 12
	sum      = 0
	largest  = 4
)

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func TestReduce(t *testing.T) {
	dst := floats(1, 2, 3)
	Reduce(dst, floats(10, -20, 0.5), float32s, sum)
	if string(dst) != string(floats(11, -18, 3.5)) {
		t.Errorf("%v", dst)
	}
	Reduce(dst, floats(0, 0, 7), float32s, largest)
	if string(dst) != string(floats(11, 0, 7)) {
		t.Errorf("%v", dst)
	}
	Reduce(nil, nil, float32s, sum)
}

func TestFoldRoundsOnce(t *testing.T) {
	// 1 + 2⁻⁸ + 2⁻⁸ in bfloat16, which has 8 bits: added one by one each half is rounded away.
	all := []byte{0x80, 0x3f, 0x80, 0x3b, 0x80, 0x3b}
	dst := make([]byte, 2)
	Fold(dst, all, 3, bfloat16, sum)
	if dst[0] != 0x81 || dst[1] != 0x3f {
		t.Errorf("%x", dst)
	}
}

func TestTypes(t *testing.T) {
	if Size(bfloat16) != 2 || Size(99) != 0 || TypeName(float32s) != "float32" || Reduces(boolean, 1) || !Reduces(float32s, sum) {
		t.Error("the types are not those of collective.h")
	}
}
