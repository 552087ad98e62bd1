package engine

import (
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/ids"
	"github.com/raygo/raygo/engine/task"
	"github.com/raygo/raygo/engine/wire"

	"github.com/vmihailenco/msgpack/v5"
)

// sysError is the engine's own error in place of a value; the map of RG_V_SYSERR.
type sysError struct {
	Code      errs.Code `msgpack:"code"`
	Message   string    `msgpack:"message"`
	TaskName  string    `msgpack:"task_name,omitempty"`
	Actor     uint64    `msgpack:"actor,omitempty"`
	PID       int       `msgpack:"pid,omitempty"`
	NodeID    string    `msgpack:"node_id,omitempty"`
	Object    []uint64  `msgpack:"object,omitempty"`
	CauseBlob []byte    `msgpack:"cause_blob,omitempty"`
	Signal    int       `msgpack:"signal,omitempty"`
	ExitCode  int       `msgpack:"exit_code,omitempty"`
	Stderr    string    `msgpack:"stderr,omitempty"`
	Retryable bool      `msgpack:"retryable,omitempty"`
	Preempted bool      `msgpack:"preempted,omitempty"`
	Reason    int       `msgpack:"reason,omitempty"` // of EREBUILD
}

func (e *sysError) encode() []byte { return pack(e) }

func (e *sysError) value() value {
	data := e.encode()
	return value{state: sysErr, isError: true, data: data, size: uint64(len(data))}
}

// pack encodes what the engine itself made. That cannot fail.
func pack(v any) []byte {
	b, err := msgpack.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func (n *Node) objectHex(o wire.OID) string {
	job := uint32(0)
	if u := n.units[o.Task]; u != nil && u.job != nil {
		job = u.job.num
	}
	id := ids.Object(o.Task, o.Index, n.incarnation, job)
	return ids.Hex(id[:])
}

func (n *Node) taskHex(num uint64, j *job) string {
	id := ids.Task(num, n.incarnation, j.number())
	return ids.Hex(id[:])
}

func (n *Node) actorHex(num uint64, j *job) string {
	id := ids.Actor(num, n.incarnation, j.number())
	return ids.Hex(id[:])
}

// describe names a task in messages: what a user calls it, then how the tools do.
func (n *Node) describe(t *taskState) string {
	if t.t.Kind == task.Method && t.actor != nil {
		return "call " + n.shortly(t) + " (task " + n.taskHex(t.id, t.job) + ")"
	}
	if t.flags&wire.FlagActorCreate != 0 {
		return "creation of actor " + t.t.Name + " (" + n.actorHex(t.id, t.job) + ")"
	}
	return "task " + t.t.Name + " (" + n.taskHex(t.id, t.job) + ")"
}
