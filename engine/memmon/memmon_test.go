package memmon

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const gib = int64(1) << 30

// machine is a folder with a /proc and a /sys of its own.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T, total, available int64) machine {
	m := machine{t, t.TempDir()}
	m.write("proc/meminfo", fmt.Sprintf("MemTotal:       %d kB\nMemFree:        1 kB\nMemAvailable:   %d kB\nShmem:  5 kB\n", total>>10, available>>10))
	return m
}

func (m machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) writeAll(dir string, files map[string]string) {
	m.t.Helper()
	for name, text := range files {
		m.write(dir+"/"+name, text)
	}
}

func (m machine) open(s Settings) *Source {
	m.t.Helper()
	source, err := Open(m.root, s)
	if err != nil {
		m.t.Fatal(err)
	}
	return source
}

func (m machine) read(s Settings) Usage {
	m.t.Helper()
	u, err := m.open(s).Read()
	if err != nil {
		m.t.Fatal(err)
	}
	return u
}

var ray = Settings{Threshold: 0.95, MinFree: -1}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		want int64
	}{
		{Settings{0.95, -1}, 950},
		{Settings{0.5, 100}, 900}, // the later of the two
		{Settings{0.95, 100}, 950},
		{Settings{1, 0}, 1000},
		{Settings{0, -1}, 0},
	} {
		if got := c.s.Line(1000); got != c.want {
			t.Errorf("%+v: %d, want %d", c.s, got, c.want)
		}
	}
}

func TestMachineAlone(t *testing.T) {
	m := newMachine(t, 16*gib, 4*gib)
	want := Usage{Used: 12 * gib, Limit: 16 * gib, Line: ray.Line(16 * gib), Where: "the machine"}
	if got := m.read(ray); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// A group without a limit, and a hierarchy without a memory controller, change nothing.
	m.write("proc/self/cgroup", "4:memory:/a\n3:cpuset:/\n0::/\n")
	m.write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
	m.writeAll("sys/fs/cgroup/memory/a", map[string]string{"memory.limit_in_bytes": "9223372036854771712\n", "memory.usage_in_bytes": "5\n"})
	if got := m.read(ray); got != want {
		t.Errorf("with an unlimited group: %+v", got)
	}
	if _, err := Open(t.TempDir(), ray); err == nil {
		t.Error("a machine without /proc/meminfo is no error")
	}
}

func TestOldKernelWithoutAvailable(t *testing.T) {
	m := newMachine(t, gib, 0)
	m.write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 50 kB\nCached: 400 kB\nShmem: 150 kB\n")
	if got := m.read(ray); got.Used != 400<<10 {
		t.Errorf("%d KiB in use, want 400: shared memory is no cache", got.Used>>10)
	}
}

func TestNestedGroupsOfVersion2(t *testing.T) {
	m := newMachine(t, 16*gib, gib)
	m.write("proc/self/cgroup", "0::/pod/job/task\n")
	m.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n")
	m.writeAll("sys/fs/cgroup/pod", map[string]string{
		"memory.max": fmt.Sprint(8 * gib), "memory.high": "max", "memory.current": fmt.Sprint(7 * gib),
		"memory.stat": fmt.Sprintf("anon 1\ninactive_file %d\nactive_file %d\nworkingset_refault_file 99\n", gib, gib/2), "memory.events": "low 0\noom 9\noom_kill 3\n",
	})
	m.writeAll("sys/fs/cgroup/pod/job", map[string]string{"memory.max": "max\n", "memory.high": "max\n", "memory.current": "1"})
	m.writeAll("sys/fs/cgroup/pod/job/task", map[string]string{
		"memory.max": fmt.Sprint(4 * gib), "memory.high": fmt.Sprint(2 * gib), "memory.current": fmt.Sprint(gib / 2), "memory.events": "oom_kill 1\n",
	})
	s := m.open(ray)
	if s.Limit() != 2*gib {
		t.Errorf("limit %d, want that of memory.high", s.Limit())
	}
	u, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	// The task has 1.4 GiB to go, and the pod, where 5.5 of 7.6 are used, 2.1. The machine does not count. memory.stat is not read for the task.
	if u.Where != "control group /pod/job/task" || u.Used != gib/2 {
		t.Errorf("%+v", u)
	}
	m.write("sys/fs/cgroup/pod/memory.current", fmt.Sprint(8*gib))
	if u, err = s.Read(); err != nil || u.Where != "control group /pod" || u.Used != 8*gib-gib-gib/2 || u.Over() {
		t.Errorf("%+v, %v", u, err)
	}
	m.write("sys/fs/cgroup/pod/memory.stat", "inactive_file 0\nactive_file 0\n")
	if u, err = s.Read(); err != nil || !u.Over() {
		t.Errorf("%+v, %v", u, err)
	}
	m.write("proc/vmstat", "pgfault 8\noom_kill 5\n")
	if k := s.OOMKills(); k != 1 {
		t.Errorf("%d kills, want that of the task's own group", k)
	}
}

func TestVersion1InAContainer(t *testing.T) {
	m := newMachine(t, 16*gib, gib)
	// The container sees a part of the hierarchy, and its own name from the root.
	m.write("proc/self/cgroup", "5:cpu,memory:/docker/abc/inner\n0::/docker/abc\n")
	m.write("proc/self/mountinfo", `35 31 0:32 /docker/abc /sys/fs/cgroup/mem\040ory ro - cgroup cgroup rw,cpu,memory`+"\n")
	m.writeAll("sys/fs/cgroup/mem ory", map[string]string{
		"memory.limit_in_bytes": fmt.Sprint(2 * gib), "memory.usage_in_bytes": fmt.Sprint(2 * gib),
		"memory.stat": fmt.Sprintf("inactive_file 7\ntotal_inactive_file %d\ntotal_active_file 0\n", gib/4), "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
	})
	m.writeAll("sys/fs/cgroup/mem ory/inner", map[string]string{"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "0"})
	s := m.open(ray)
	u, err := s.Read()
	if err != nil || u.Used != 2*gib-gib/4 || u.Limit != 2*gib || u.Where != "control group /" {
		t.Errorf("%+v, %v", u, err)
	}
	if k := s.OOMKills(); k != -1 {
		t.Errorf("%d kills, though neither the group nor the machine counts them", k)
	}
	m.write("proc/vmstat", "oom_kill 5\n")
	if k := s.OOMKills(); k != 5 {
		t.Errorf("%d kills, want the machine's, as the group counts none", k)
	}
	m.write("sys/fs/cgroup/mem ory/inner/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
	if k := m.open(ray).OOMKills(); k != 1 {
		t.Errorf("%d kills, want those of its own group, which has no limit", k)
	}
}

func TestGroupOutsideOfTheNamespace(t *testing.T) {
	m := newMachine(t, 16*gib, gib)
	m.write("proc/self/cgroup", "0::/../../other\n")
	m.write("proc/self/mountinfo", "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	m.writeAll("sys/fs/cgroup", map[string]string{"memory.max": fmt.Sprint(gib), "memory.current": "1"})
	if u := m.read(ray); u.Limit != gib {
		t.Errorf("%+v", u)
	}
}

func TestThisMachine(t *testing.T) {
	s, err := Open("", ray)
	if err != nil {
		t.Skip(err)
	}
	u, err := s.Read()
	if err != nil || u.Used <= 0 || u.Used > u.Limit || u.Limit != s.Limit() && u.Where == "the machine" {
		t.Errorf("%+v, %v", u, err)
	}
	block := make([]byte, 64<<20)
	for i := range block {
		block[i] = byte(i)
	}
	own := s.Process(os.Getpid())
	if own == nil || own.Anon < 64<<20 || own.RSS < own.Anon || own.Parent != os.Getppid() {
		t.Errorf("%+v", own)
	}
	if uss, err := s.Unique(os.Getpid()); err != nil || uss < 64<<20 {
		t.Errorf("unique: %d, %v", uss, err)
	}
	all, err := s.Processes()
	if err != nil || all[os.Getpid()] == nil || all[os.Getpid()].Name != own.Name {
		t.Errorf("%v, %v", all[os.Getpid()], err)
	}
	_ = block[len(block)-1]
}

func (m machine) process(pid int, name, state string, parent, group int, rssPages, sharedPages int) {
	m.write(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (%s) %s %d %d 1 0 -1", pid, name, state, parent, group))
	m.write(fmt.Sprintf("proc/%d/statm", pid), fmt.Sprintf("99999 %d %d 1 0 1 0", rssPages, sharedPages))
}

func TestTrees(t *testing.T) {
	m := newMachine(t, gib, gib)
	m.process(10, "template", "S", 1, 10, 50, 10)
	m.process(20, "odd) (name", "R", 10, 20, 190, 20)   // a worker: 170 its own, 40 from the template
	m.process(21, "child", "S", 20, 20, 30, 0)          // its child
	m.process(22, "orphan", "S", 1, 20, 5, 0)           // left behind by one, in its group
	m.process(23, "daemon", "S", 21, 23, 7, 0)          // a grandchild with a group of its own
	m.process(30, "worker", "S", 10, 30, 45, 10)        // another one, with less than the template
	m.process(31, "dead", "Z", 30, 30, 1000, 0)         // holds nothing
	m.process(40, "stranger", "S", 1, 40, 100000, 0)    // nobody's
	m.write("proc/50/stat", "50 (going) R 20 20 1 0\n") // ends while it is read
	s := m.open(ray)
	all, err := s.Processes()
	if err != nil {
		t.Fatal(err)
	}
	if all[31] != nil || all[50] != nil || all[20].Name != "odd) (name" {
		t.Errorf("%+v", all)
	}
	trees := Trees(all, map[int]int{20: 10, 30: 10, 60: 10})
	if got, want := trees[20].Own/pageSize, int64(130+30+5+7); got != want {
		t.Errorf("%d pages, want %d", got, want)
	}
	if got := slices.Sorted(slices.Values(trees[20].PIDs)); !slices.Equal(got, []int{21, 22, 23}) {
		t.Errorf("descendants %v", got)
	}
	if trees[30].Own != 0 || trees[30].RSS != 45*pageSize || trees[60].Own != 0 {
		t.Errorf("%+v %+v", trees[30], trees[60])
	}
	if got := slices.Sorted(maps.Keys(trees)); !slices.Equal(got, []int{20, 30, 60}) {
		t.Errorf("roots %v", got)
	}
}

const mib = int64(1) << 20

func sec(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }

// after notes rounds of sizes, a quarter of a second apart, and returns the time and the candidates of the last one.
func after(w *Watch, base []Candidate, rounds ...[]int64) (time.Duration, []Candidate) {
	now := time.Duration(0)
	var last []Candidate
	for _, sizes := range rounds {
		now += sec(0.25)
		last = slices.Clone(base)
		for i := range last {
			last[i].Bytes = sizes[i] * mib
		}
		w.Note(now, last)
	}
	return now, last
}

func TestChoice(t *testing.T) {
	task := func(id uint64, since float64, retriable bool) Candidate {
		return Candidate{ID: id, Since: sec(since), Retriable: retriable}
	}
	idle := Candidate{ID: 9, Idle: true}
	for _, c := range []struct {
		name   string
		base   []Candidate
		rounds [][]int64
		want   uint64
		why    Why
	}{
		{"nobody", nil, [][]int64{{}}, 0, Nobody},
		{"the one that grows, though one that does not began later and is tried again", []Candidate{task(1, 0, false), task(2, 5, true)},
			[][]int64{{300, 400}, {350, 400}, {400, 400}}, 1, Grew},
		{"others have the memory", []Candidate{task(1, 0, true), task(2, 5, true)}, [][]int64{{1, 10}, {10, 10}, {10, 10}}, 0, Nobody},
		{"one that only idles goes first", []Candidate{task(1, 0, true), idle}, [][]int64{{300, 100}, {400, 100}}, 9, WasIdle},
		{"an idle one with little does not matter", []Candidate{task(1, 0, true), idle}, [][]int64{{300, 10}, {400, 10}}, 1, Grew},
		{"of two that grow, the one that is tried again", []Candidate{task(1, 9, false), task(2, 1, true)}, [][]int64{{300, 300}, {400, 400}}, 2, Grew},
		{"of two like that, the one that began last", []Candidate{task(1, 1, true), task(2, 2, true)}, [][]int64{{500, 300}, {600, 400}}, 2, Grew},
		{"of two that began together, the larger", []Candidate{task(1, 1, true), task(2, 1, true)}, [][]int64{{500, 300}, {600, 400}}, 1, Grew},
		{"one that grows a little and holds little is left alone", []Candidate{task(1, 1, false), task(2, 9, true)}, [][]int64{{500, 10}, {600, 30}}, 1, Grew},
		{"nobody grows: one that holds much and is tried again", []Candidate{task(1, 1, false), task(2, 2, true), task(3, 9, true)},
			[][]int64{{900, 800, 200}, {900, 800, 200}, {900, 800, 200}}, 2, Largest},
		{"one that grew long ago stands still", []Candidate{task(1, 1, false), task(2, 2, false)},
			append([][]int64{{300, 400}, {400, 400}}, slices.Repeat([][]int64{{400, 400}}, 20)...), 2, Largest},
		{"one that shrank and grew again grows", []Candidate{task(1, 1, false), task(2, 2, false)}, [][]int64{{400, 400}, {100, 400}, {200, 400}}, 1, Grew},
		{"seen for the first time: who grows is not known", []Candidate{task(1, 1, true), task(2, 2, true)}, [][]int64{{400, 300}}, 0, Later},
		{"a single one needs no second look", []Candidate{task(1, 1, true), task(2, 2, true)}, [][]int64{{400, 3}}, 1, Largest},
		{"of two that grow, the one that began last, whatever it held before", []Candidate{task(1, 1, true), task(2, 2, true)}, [][]int64{{400, 0}, {450, 0}, {500, 400}}, 2, Grew},
	} {
		var w Watch
		now, last := after(&w, c.base, c.rounds...)
		if got, why := w.Choose(now, last, false); got.ID != c.want || why != c.why {
			t.Errorf("%s: %d for %d, want %d for %d", c.name, got.ID, why, c.want, c.why)
		}
	}
}

func TestUrgentChoiceDoesNotWait(t *testing.T) {
	var w Watch
	now, last := after(&w, []Candidate{{ID: 1, Retriable: true}, {ID: 2}}, []int64{400, 900})
	if got, why := w.Choose(now, last, true); got.ID != 1 || why != Largest {
		t.Errorf("%d for %d", got.ID, why)
	}
}

func TestWatchForgets(t *testing.T) {
	var w Watch
	_, last := after(&w, []Candidate{{ID: 1}, {ID: 2}}, []int64{100, 100}, []int64{200, 200})
	w.Note(sec(1), last[:1])
	if len(w.seen) != 1 {
		t.Errorf("%d are remembered, want 1", len(w.seen))
	}
	w.Forget()
	if got, why := w.Choose(sec(2), last, false); why != Later {
		t.Errorf("%d for %d, want to look again", got.ID, why)
	}
}
