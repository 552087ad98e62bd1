package engine

import (
	"github.com/raygo/raygo/engine/wire"
	workerproc "github.com/raygo/raygo/engine/worker"
)

// logMap is the map of RG_LOG.
type logMap struct {
	Kind      string `msgpack:"kind"`
	Text      string `msgpack:"text"`
	Name      string `msgpack:"name,omitempty"`
	PID       int    `msgpack:"pid,omitempty"`
	IP        string `msgpack:"ip,omitempty"`
	ActorName string `msgpack:"actor_name,omitempty"`
	Worker    uint64 `msgpack:"worker,omitempty"`
	Count     int    `msgpack:"count,omitempty"`
	Progress  bool   `msgpack:"progress,omitempty"`
}

// warn tells a job's user something; nil: all users.
func (n *Node) warn(j *job, text string) {
	n.logf("warning: %s", text)
	n.tell(j, logMap{Kind: "warning", Text: text})
}

func (n *Node) tell(j *job, m logMap) {
	b := pack(m)
	for _, p := range n.peers {
		if p.role == roleWorker || p.job == nil || !p.wants || (j != nil && p.job != j) {
			continue
		}
		p.send(wire.Log, 0, 0, b)
	}
}

// output passes on what a worker wrote.
func (n *Node) output(e *env, num uint64, pid int, r workerproc.Record) {
	m := logMap{Kind: r.Kind, Text: r.Text, Name: r.Name, PID: pid, IP: n.opts.NodeIP, Worker: num, Count: r.Count, Progress: r.Progress}
	if w := n.workers[num]; w != nil && w.actor != nil {
		m.ActorName = w.actor.t.Name
		if w.actor.name.Name != "" {
			m.ActorName = w.actor.name.Name
		}
	}
	n.tell(e.job, m)
}
