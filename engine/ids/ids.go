package ids

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
)

var le = binary.LittleEndian

// Sizes of the public forms in bytes.
const (
	ObjectSize = 28
	TaskSize   = 24
	ActorSize  = 16
	NodeSize   = 28
	JobSize    = 4
	PGSize     = 18
)

// Object is the public form of an object's name.
func Object(task uint64, index uint32, incarnation uint64, job uint32) [ObjectSize]byte {
	var b [ObjectSize]byte
	le.PutUint64(b[:], task)
	le.PutUint64(b[8:], incarnation)
	le.PutUint32(b[20:], job)
	le.PutUint32(b[24:], index)
	return b
}

// Task is the public form of a task's number.
func Task(task, incarnation uint64, job uint32) [TaskSize]byte {
	o := Object(task, 0, incarnation, job)
	return [TaskSize]byte(o[:TaskSize])
}

// Actor is the public form of an actor's number.
func Actor(actor, incarnation uint64, job uint32) [ActorSize]byte {
	var b [ActorSize]byte
	le.PutUint64(b[:], actor)
	le.PutUint32(b[8:], uint32(incarnation))
	le.PutUint32(b[12:], job)
	return b
}

// Job is the public form of a job's number.
func Job(job uint32) [JobSize]byte {
	var b [JobSize]byte
	le.PutUint32(b[:], job)
	return b
}

// PG is the public form of a placement group's number.
func PG(pg, incarnation uint64, job uint32) [PGSize]byte {
	var b [PGSize]byte
	var inc [8]byte
	le.PutUint64(b[:], pg)
	le.PutUint64(inc[:], incarnation)
	copy(b[8:14], inc[:6])
	le.PutUint32(b[14:], job)
	return b
}

// Worker is the public form of a worker's number.
func Worker(worker, incarnation uint64) [NodeSize]byte {
	var b [NodeSize]byte
	le.PutUint64(b[:], worker)
	le.PutUint64(b[8:], incarnation)
	return b
}

// Hex writes a public form as text.
func Hex(b []byte) string { return hex.EncodeToString(b) }

// NewNode draws a node's name and its incarnation, which is the name's first 8 bytes and never 0.
func NewNode() (node [NodeSize]byte, incarnation uint64) {
	for incarnation == 0 {
		rand.Read(node[:]) // never fails: see crypto/rand
		incarnation = le.Uint64(node[:])
	}
	return node, incarnation
}
