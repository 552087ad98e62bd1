package engine

import (
	"fmt"
	"os"
	"time"

	"github.com/raygo/raygo/engine/actor"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/ids"
	"github.com/raygo/raygo/engine/task"
)

// taskCounts counts tasks since the engine started.
type taskCounts struct{ submitted, finished, failed, lost, rebuilt, evicted uint64 }

// taskTimes are an actor's times.
type taskTimes struct{ ready, dead time.Duration }

// record remembers a task that ended.
func (n *Node) record(t *taskState, s task.State, code errs.Code, message string) {
	if s == task.Finished {
		n.counts.finished++
	} else {
		n.counts.failed++
	}
	if !t.t.TaskEvents {
		return
	}
	e := n.ended.Add()
	*e = task.Event{
		ID: t.id, Parent: t.parent, Template: t.t.Template, Name: t.t.Name, Job: t.job.number(), Attempt: t.attempt, State: s, Error: int(code), Message: message,
		Created: t.created, Started: t.started, Ended: n.now,
	}
	if t.actor != nil {
		e.Actor = t.actor.id
	}
	if t.lastWorker != nil {
		e.Worker, e.PID = t.lastWorker.num, t.lastWorker.pid
	}
}

func (n *Node) unixMilli(d time.Duration) int64 { return n.epoch.Add(d).UnixMilli() }

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return h
}

// query is what the state methods take.
type query struct {
	Limit   int     `msgpack:"limit"`
	Filters [][]any `msgpack:"filters"`
	Detail  bool    `msgpack:"detail"`
}

const defaultLimit = 10_000

// select keeps the rows that meet all filters, up to the limit.
func (q *query) pick(rows func(yield func(map[string]any) bool)) ([]map[string]any, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	for _, f := range q.Filters {
		if len(f) != 3 || (f[1] != "=" && f[1] != "!=") {
			return nil, errs.New(errs.EINVAL, "a filter is [key, \"=\" or \"!=\", value], not %v", f)
		}
	}
	out := []map[string]any{}
	for row := range rows {
		meets := true
		for _, f := range q.Filters {
			equal := fmt.Sprint(row[fmt.Sprint(f[0])]) == fmt.Sprint(f[2])
			meets = meets && equal == (f[1] == "=")
		}
		if meets {
			if out = append(out, row); len(out) >= limit {
				break
			}
		}
	}
	return out, nil
}

func stateMethod(rows func(n *Node, q *query, yield func(map[string]any) bool)) callMethod {
	return method(func(n *Node, p *peer, _ uint64, q query) (any, error) {
		return q.pick(func(yield func(map[string]any) bool) { rows(n, &q, yield) })
	})
}

var stateMethods = map[string]callMethod{
	"state.tasks":            stateMethod((*Node).taskRows),
	"state.task":             stateMethod((*Node).taskRows),
	"state.actors":           stateMethod((*Node).actorRows),
	"state.objects":          stateMethod((*Node).objectRows),
	"state.workers":          stateMethod((*Node).workerRows),
	"state.jobs":             stateMethod((*Node).jobRows),
	"state.nodes":            stateMethod((*Node).nodeRows),
	"state.placement_groups": stateMethod((*Node).groupRows),
	"timeline":               noArgument((*Node).timeline),
	"objects.totals":         noArgument((*Node).objectTotals),
	"store.stats":            noArgument((*Node).storeStats),
	"node.stats":             noArgument((*Node).nodeStats),
	"node.memory":            method(callNodeMemory),
}

// rayTypes are the names by which Ray's state API tells why a task failed.
var rayTypes = map[errs.Code]string{
	errs.ETASK: "TASK_EXECUTION_EXCEPTION", errs.ETASKEXIT: "TASK_EXECUTION_EXCEPTION", errs.ECANCELED: "TASK_CANCELLED", errs.EWORKERDIED: "WORKER_DIED",
	errs.EACTORDIED: "ACTOR_DIED", errs.EACTORUNAVAILABLE: "ACTOR_UNAVAILABLE", errs.EUNSCHEDULABLE: "TASK_UNSCHEDULABLE_ERROR",
	errs.EACTORUNSCHEDULABLE: "ACTOR_UNSCHEDULABLE_ERROR", errs.EOBJECTLOST: "OBJECT_LOST", errs.EOWNERDIED: "OWNER_DIED", errs.EOBJECTFREED: "OBJECT_FREED",
	errs.EREBUILD: "OBJECT_UNRECONSTRUCTABLE", errs.EOUTOFDISK: "OUT_OF_DISK_ERROR", errs.EOUTOFMEMORY: "OUT_OF_MEMORY",
	errs.ERUNTIMEENV: "RUNTIME_ENV_SETUP_FAILED", errs.EPGREMOVED: "TASK_PLACEMENT_GROUP_REMOVED", errs.EACTORPGREMOVED: "ACTOR_PLACEMENT_GROUP_REMOVED",
}

// rayType is our own name where Ray has none.
func rayType(c errs.Code) string {
	if name := rayTypes[c]; name != "" {
		return name
	}
	return c.Name()
}

func (n *Node) taskRows(q *query, yield func(map[string]any) bool) {
	for e := range n.ended.All {
		row := n.taskRow(e.ID, e.Job, e.Template, e.Name, e.State, e.Attempt, e.Actor, e.Parent, e.Worker, e.PID)
		row["creation_time_ms"], row["start_time_ms"], row["end_time_ms"] = n.unixMilli(e.Created), n.unixMilli(e.Started), n.unixMilli(e.Ended)
		if e.State == task.Failed {
			row["error_type"], row["error_message"] = rayType(errs.Code(e.Error)), e.Message
		}
		if !yield(row) {
			return
		}
	}
	for _, t := range n.tasksBy(func(*taskState) bool { return true }) {
		var a uint64
		if t.actor != nil {
			a = t.actor.id
		}
		var num uint64
		pid := 0
		if t.w != nil {
			num, pid = t.w.num, t.w.pid
		}
		row := n.taskRow(t.id, t.job.number(), t.t.Template, t.t.Name, t.state, t.attempt, a, t.parent, num, pid)
		row["creation_time_ms"] = n.unixMilli(t.created)
		if t.state == task.Running {
			row["start_time_ms"] = n.unixMilli(t.started)
		}
		if !yield(row) {
			return
		}
	}
}

func (n *Node) taskRow(id uint64, jobNum uint32, t *task.Template, name string, s task.State, attempt uint32, a, parent, workerNum uint64, pid int) map[string]any {
	hex := ids.Task(id, n.incarnation, jobNum)
	jobHex := ids.Job(jobNum)
	function := t.Function()
	if t.Kind == task.Actor {
		name = function
	}
	row := map[string]any{
		"task_id": ids.Hex(hex[:]), "number": id, "attempt_number": attempt, "name": name, "state": s.String(), "job_id": ids.Hex(jobHex[:]), "type": task.Type(t.Kind),
		"func_or_class_name": function, "node_id": n.nodeID(), "language": "PYTHON", "required_resources": t.Resources.Floats(), "worker_pid": pid, "actor_id": nil,
		"parent_task_id": nil, "worker_id": nil, "error_type": nil, "error_message": nil, "creation_time_ms": nil, "start_time_ms": nil, "end_time_ms": nil,
		"runtime_env_info": nil, "placement_group_id": nil, "label_selector": t.LabelSelector,
	}
	if t.RuntimeEnv != "" {
		row["runtime_env_info"] = t.RuntimeEnv
	}
	if a != 0 {
		x := ids.Actor(a, n.incarnation, jobNum)
		row["actor_id"] = ids.Hex(x[:])
	}
	if parent != 0 {
		x := ids.Task(parent, n.incarnation, jobNum)
		row["parent_task_id"] = ids.Hex(x[:])
	}
	if workerNum != 0 {
		x := ids.Worker(workerNum, n.incarnation)
		row["worker_id"] = ids.Hex(x[:])
	}
	if t.Strategy.PG != 0 {
		x := ids.PG(t.Strategy.PG, n.incarnation, jobNum)
		row["placement_group_id"] = ids.Hex(x[:])
	}
	return row
}

func (n *Node) actorRows(q *query, yield func(map[string]any) bool) {
	for _, a := range n.actorsBy(func(*actorState) bool { return true }) {
		jobHex := ids.Job(a.job.number())
		row := map[string]any{
			"actor_id": n.actorHex(a.id, a.job), "number": a.id, "class_name": a.t.Name, "state": a.State.String(), "job_id": ids.Hex(jobHex[:]), "name": a.name.Name,
			"ray_namespace": a.name.Namespace, "node_id": n.nodeID(), "pid": 0, "required_resources": a.t.Resources.Floats(), "is_detached": a.detached,
			"num_restarts": a.Restarts, "death_cause": nil, "serialized_runtime_env": a.t.RuntimeEnv, "repr_name": "", "placement_group_id": nil, "pending_calls": a.Unfinished(),
		}
		if a.worker != nil {
			row["pid"] = a.worker.pid
		}
		if a.cause != nil && a.State == actor.Dead {
			row["death_cause"] = a.cause.Message
		}
		if !yield(row) {
			return
		}
	}
}

func (n *Node) workerRows(q *query, yield func(map[string]any) bool) {
	for _, w := range n.workers {
		x := ids.Worker(w.num, n.incarnation)
		row := map[string]any{
			"worker_id": ids.Hex(x[:]), "number": w.num, "is_alive": true, "worker_type": "WORKER", "exit_type": nil, "node_id": n.nodeID(), "ip": n.opts.NodeIP, "pid": w.pid,
			"exit_detail": nil, "start_time_ms": n.unixMilli(w.forked), "state": w.stateName(), "tasks": w.ntasks, "blocked": w.nblocked, "job": w.env.job.num, "actor_id": nil,
		}
		if w.actor != nil {
			row["actor_id"] = n.actorHex(w.actor.id, w.actor.job)
		}
		if p := n.processOf(w); q.Detail && p != nil {
			row["rss_bytes"], row["anon_bytes"] = p.RSS, p.Anon
		}
		if !yield(row) {
			return
		}
	}
	for _, p := range n.peers {
		if p.role == roleDriver || p.role == roleClient {
			x := ids.Worker(uint64(p.num)<<32, n.incarnation)
			if !yield(map[string]any{
				"worker_id": ids.Hex(x[:]), "number": 0, "is_alive": true, "worker_type": "DRIVER", "exit_type": nil, "node_id": n.nodeID(), "ip": n.opts.NodeIP, "pid": p.pid,
				"exit_detail": nil, "start_time_ms": n.unixMilli(p.job.started), "state": "DRIVER", "tasks": 0, "blocked": 0, "job": p.job.num, "actor_id": nil,
			}) {
				return
			}
		}
	}
}

func (w *worker) stateName() string {
	switch {
	case w.pid == 0:
		return "STARTING"
	case w.actor != nil:
		return "ACTOR"
	case w.nblocked > 0:
		return "BLOCKED"
	case w.idle:
		return "IDLE"
	}
	return "RUNNING"
}

func (n *Node) jobRows(q *query, yield func(map[string]any) bool) {
	for i := uint32(1); i <= n.lastJob; i++ {
		j := n.jobs[i]
		if j == nil {
			continue
		}
		hex := ids.Job(j.num)
		row := map[string]any{
			"job_id": ids.Hex(hex[:]), "submission_id": nil, "type": "DRIVER", "status": "RUNNING", "entrypoint": j.hello.MainPath, "message": "", "error_type": nil,
			"start_time": j.startedAt.UnixMilli(), "end_time": nil, "namespace": j.namespace, "runtime_env": j.hello.RuntimeEnv, "pid": j.hello.PID, "name": j.name,
		}
		if j.driver == nil {
			row["status"], row["end_time"] = "SUCCEEDED", j.endedAt.UnixMilli()
		}
		if !yield(row) {
			return
		}
	}
}

func (n *Node) nodeRows(q *query, yield func(map[string]any) bool) {
	yield(map[string]any{
		"node_id": n.nodeID(), "node_ip": n.opts.NodeIP, "is_head_node": true, "state": "ALIVE", "state_message": nil, "node_name": n.opts.NodeIP,
		"resources_total": n.total.Floats(), "labels": n.sched.Labels, "start_time_ms": n.epoch.UnixMilli(), "end_time_ms": nil,
	})
}

func (n *Node) groupRows(q *query, yield func(map[string]any) bool) {
	for _, g := range n.sched.Groups() {
		d := groupOf(g)
		id := ids.PG(g.ID, n.incarnation, d.job.number())
		jobHex := ids.Job(d.job.number())
		bundles := []any{}
		for i, b := range g.Bundles {
			bundles = append(bundles, map[string]any{"bundle_id": map[string]any{"bundle_index": i}, "unit_resources": b.Floats(), "node_id": n.nodeID()})
		}
		if !yield(map[string]any{
			"placement_group_id": ids.Hex(id[:]), "number": g.ID, "name": d.name, "creator_job_id": ids.Hex(jobHex[:]), "state": g.State.String(), "bundles": bundles,
			"is_detached": d.detached, "strategy": g.Strategy,
		}) {
			return
		}
	}
}

// timeline is the ended tasks as events of Chrome's trace viewer.
func (n *Node) timeline(p *peer) (any, error) {
	out := []map[string]any{}
	for e := range n.ended.All {
		if e.Worker == 0 {
			continue
		}
		hex := ids.Task(e.ID, n.incarnation, e.Job)
		out = append(out, map[string]any{
			"cat": "task::" + e.Name, "name": "task::" + e.Name, "ph": "X", "pid": "node " + n.opts.NodeIP, "tid": fmt.Sprintf("worker %d (pid %d)", e.Worker, e.PID),
			"ts": float64(n.epoch.Add(e.Started).UnixNano()) / 1e3, "dur": float64(e.Ended-e.Started) / 1e3, "cname": map[bool]string{true: "good", false: "terrible"}[e.State == task.Finished],
			"args": map[string]any{"task_id": ids.Hex(hex[:]), "name": e.Name, "state": e.State.String(), "attempt": e.Attempt, "waited_us": float64(e.Started-e.Created) / 1e3},
		})
	}
	return out, nil
}

func (n *Node) nodeStats(p *peer) (any, error) {
	queued := 0
	for _, c := range n.sched.Waiting() {
		queued += c.Len()
	}
	return map[string]any{
		"uptime_s": n.now.Seconds(), "workers": len(n.workers), "peers": len(n.peers), "queued": queued, "submitted": n.counts.submitted, "finished": n.counts.finished,
		"failed": n.counts.failed, "actors": len(n.actors), "units": len(n.units), "templates": len(n.templates),
		"lineage_bytes": n.kept.bytes, "lineage_tasks": n.kept.tasks, "lineage_evicted": n.counts.evicted, "objects_lost": n.counts.lost, "tasks_rerun": n.counts.rebuilt,
	}, nil
}
