package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/raygo/raygo/engine/actor"
)

// sample is one value of a metric; labels are as Prometheus writes them.
type sample struct {
	labels string
	value  float64
}

// ownMetric is a metric that the engine fills when it is asked. Names that begin with ray_ are Ray's, and mean what they mean there.
type ownMetric struct {
	name, kind, help string
	read             func(n *Node) []sample
}

func one(f func(n *Node) float64) func(n *Node) []sample {
	return func(n *Node) []sample { return []sample{{value: f(n)}} }
}

var ownMetrics = []ownMetric{
	{"ray_object_store_memory", "gauge", "bytes of objects by where they are: in shared memory, in the engine's own memory, on disk", (*Node).memorySamples},
	{"ray_object_store_used_memory", "gauge", "bytes of shared memory in use", one(func(n *Node) float64 { return float64(n.store.Used()) })},
	{"ray_object_store_available_memory", "gauge", "bytes of shared memory not in use", one(func(n *Node) float64 { return float64(n.store.Capacity() - n.store.Used()) })},
	{"ray_object_store_num_local_objects", "gauge", "objects in shared memory or on disk", one(func(n *Node) float64 { return float64(n.store.Stats().Objects) })},
	{"ray_spill_manager_objects_bytes", "gauge", "bytes of objects that are pinned, or waited for to come back from disk", (*Node).spillSamples},
	{"ray_spill_manager_throughput_mb", "gauge", "mean rate of writing to and reading from disk, in MiB/s", (*Node).rateSamples},
	{"ray_resources", "gauge", "resources by name and whether they are in use", (*Node).resourceSamples},
	{"ray_tasks", "gauge", "tasks by function and state; those that ended are counted since the start", (*Node).taskSamples},
	{"ray_actors", "gauge", "actors by class and state", (*Node).actorSamples},
	{"ray_node_mem_total", "gauge", "bytes of memory of the machine, or the limit of the control group", one(func(n *Node) float64 { return float64(n.memory.read().Limit) })},
	{"ray_node_mem_used", "gauge", "bytes of memory in use, without page cache", one(func(n *Node) float64 { return float64(n.memory.read().Used) })},
	{"ray_node_mem_available", "gauge", "bytes of memory that are left", one(func(n *Node) float64 {
		u := n.memory.read()
		return float64(u.Limit - u.Used)
	})},
	{"ray_memory_manager_worker_eviction_total", "counter", "worker processes ended to save memory", one(func(n *Node) float64 { return float64(n.memory.kills) })},
	{"raygo_object_store_capacity_bytes", "gauge", "bytes that shared memory can hold", one(func(n *Node) float64 { return float64(n.store.Capacity()) })},
	{"raygo_object_store_waiting", "gauge", "requests that wait for room in shared memory", one(func(n *Node) float64 { return float64(n.store.Stats().Waiting) })},
	{"raygo_spill_bytes_total", "counter", "bytes written to and read back from disk", (*Node).movedSamples},
	{"raygo_spill_disk_bytes", "gauge", "bytes of the spill files, by whether an object still needs them", (*Node).diskSamples},
	{"raygo_tasks_submitted_total", "counter", "tasks submitted", one(func(n *Node) float64 { return float64(n.counts.submitted) })},
	{"raygo_tasks_finished_total", "counter", "tasks that ended well", one(func(n *Node) float64 { return float64(n.counts.finished) })},
	{"raygo_tasks_failed_total", "counter", "tasks that ended with an error", one(func(n *Node) float64 { return float64(n.counts.failed) })},
	{"raygo_workers", "gauge", "worker processes", one(func(n *Node) float64 { return float64(len(n.workers)) })},
}

// isOwnMetric says whether a program may not record by this name.
func isOwnMetric(full string) bool {
	return slices.ContainsFunc(ownMetrics, func(m ownMetric) bool { return m.name == full })
}

// own adds what the engine counts itself.
func (n *Node) own(b *strings.Builder) {
	for _, m := range ownMetrics {
		head(b, m.name, m.help, m.kind)
		for _, s := range m.read(n) {
			fmt.Fprintf(b, "%s%s %s\n", m.name, braces(s.labels), number(s.value))
		}
	}
}

func label(name string, value any) string {
	return name + `="` + labelEscapes.Replace(fmt.Sprint(value)) + `"`
}

func (n *Node) memorySamples() []sample {
	s := n.store.Stats()
	var inlined, writing int64
	for o := range n.objects {
		inlined += int64(len(o.data))
	}
	for _, p := range n.peers {
		for _, e := range p.created {
			writing += e.Size()
		}
	}
	place := func(where, state string) string { return label("Location", where) + "," + label("ObjectState", state) }
	return []sample{
		{place("MMAP_SHM", "SEALED"), float64(max(s.Used-writing, 0))}, {place("MMAP_SHM", "UNSEALED"), float64(writing)},
		{place("SPILLED", "SEALED"), float64(s.Spilled)}, {place("WORKER_HEAP", "SEALED"), float64(inlined)},
	}
}

func (n *Node) spillSamples() []sample {
	s := n.store.Stats()
	var back int64
	for _, w := range n.store.Waiting() {
		if w.Restore {
			back += w.Size
		}
	}
	return []sample{{label("State", "Pinned"), float64(s.Pinned)}, {label("State", "PendingRestore"), float64(back)}}
}

func (n *Node) movedSamples() []sample {
	s := n.store.Stats()
	return []sample{{label("Type", "Spilled"), float64(s.SpilledTotal)}, {label("Type", "Restored"), float64(s.RestoredTotal)}}
}

func (n *Node) rateSamples() []sample {
	s := n.store.Stats()
	var all []sample
	for _, r := range []struct {
		what    string
		bytes   int64
		seconds float64
	}{{"Spilled", s.SpilledTotal, s.SpillTime.Seconds()}, {"Restored", s.RestoredTotal, s.RestoreTime.Seconds()}} {
		if r.seconds > 0 {
			all = append(all, sample{label("Type", r.what), float64(r.bytes) / (1 << 20) / r.seconds})
		}
	}
	return all
}

func (n *Node) diskSamples() []sample {
	s := n.store.Stats()
	return []sample{{label("State", "live"), float64(s.DiskUsed - s.DiskDead)}, {label("State", "dead"), float64(s.DiskDead)}}
}

func (n *Node) resourceSamples() []sample {
	var all []sample
	free := n.sched.Node().Free().Floats()
	for name, total := range n.total.Floats() {
		available := free[name]
		if name == "object_store_memory" {
			available = float64(n.store.Capacity() - n.store.Used())
		}
		all = append(all, sample{label("Name", name) + "," + label("State", "AVAILABLE"), available}, sample{label("Name", name) + "," + label("State", "USED"), total - available})
	}
	return sorted(all)
}

func (n *Node) taskSamples() []sample {
	counts := map[string]float64{}
	of := func(name string, state fmt.Stringer) string { return label("Name", name) + "," + label("State", state) }
	for _, u := range n.units {
		if t := u.task; t != nil {
			counts[of(t.t.Name, t.state)]++
		}
	}
	for e := range n.ended.All {
		counts[of(e.Name, e.State)]++
	}
	return counted(counts)
}

func (n *Node) actorSamples() []sample {
	counts := map[string]float64{}
	for _, a := range n.actors {
		if a.State != actor.Dead {
			counts[label("Name", a.t.Name)+","+label("State", a.State)]++
		}
	}
	return counted(counts)
}

func counted(counts map[string]float64) []sample {
	all := make([]sample, 0, len(counts))
	for l, v := range counts {
		all = append(all, sample{l, v})
	}
	return sorted(all)
}

func sorted(all []sample) []sample {
	slices.SortFunc(all, func(a, b sample) int { return strings.Compare(a.labels, b.labels) })
	return all
}
