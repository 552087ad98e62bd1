package nccl

import "github.com/raygo/raygo/engine/errs"

// Numbers of collective.h.
const (
	kindBarrier = iota
	kindAllreduce
	kindReduce
	kindBroadcast
	kindAllgather
	kindReducescatter
	kindGather
	kindScatter
	kindAlltoall
	kindSend
	kindRecv
)

const (
	opSum = iota
	opAvg
	opProduct
	opMin
	opMax
	opBand
	opBor
)

// kindNames are for messages.
var kindNames = []string{"barrier", "allreduce", "reduce", "broadcast", "allgather", "reducescatter", "gather", "scatter", "alltoall", "send", "recv"}

// types says what NCCL calls a type of collective.h, and how many of that an element is. What is only moved may be of types that NCCL
// does not know.
var types = []struct {
	name    string
	nccl    int // -1: it cannot be reduced
	size    int
	boolean bool
}{
	{"int8", 0, 1, false}, {"uint8", 1, 1, false}, {"int16", -1, 2, false}, {"uint16", -1, 2, false}, {"int32", 2, 4, false}, {"uint32", 3, 4, false},
	{"int64", 4, 8, false}, {"uint64", 5, 8, false}, {"float16", 6, 2, false}, {"bfloat16", 9, 2, false}, {"float32", 7, 4, false},
	{"float64", 8, 8, false}, {"bool", 1, 1, true},
}

const ncclUint8 = 1

// reduction translates type and operation of a call that reduces.
func reduction(dtype, op int) (ncclType, ncclOp int, err error) {
	if dtype < 0 || dtype >= len(types) {
		return 0, 0, errs.New(errs.EINVAL, "there is no type %d", dtype)
	}
	t := types[dtype]
	if t.nccl < 0 {
		return 0, 0, errs.New(errs.EINVAL, "NCCL cannot reduce %s; convert to int32, or reduce on the CPU", t.name)
	}
	ops := map[int]int{opSum: 0, opProduct: 1, opMax: 2, opMin: 3, opAvg: 4}
	if t.boolean { // true is 1: "or" is the largest, "and" the smallest
		ops = map[int]int{opSum: 2, opMax: 2, opBor: 2, opProduct: 3, opMin: 3, opBand: 3}
	}
	ncclOp, ok := ops[op]
	if !ok {
		return 0, 0, errs.New(errs.EINVAL, "NCCL has no such operation on %s (%d): it has sum, avg, product, min and max, and on bool no avg", t.name, op)
	}
	return t.nccl, ncclOp, nil
}

// movement is the type and count with which so many elements are moved.
func movement(dtype, count int) (ncclType, ncclCount int, err error) {
	if dtype < 0 || dtype >= len(types) {
		return 0, 0, errs.New(errs.EINVAL, "there is no type %d", dtype)
	}
	if t := types[dtype]; t.nccl < 0 {
		return ncclUint8, count * t.size, nil
	}
	return types[dtype].nccl, count, nil
}
