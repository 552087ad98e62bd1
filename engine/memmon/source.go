package memmon

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Settings are what a user may choose. The names are Ray's.
type Settings struct {
	Threshold float64 // the part of the limit that may be in use
	MinFree   int64   // bytes that suffice to be free, however large the limit; negative: none
}

// Line is how much of a limit may be in use.
func (s Settings) Line(limit int64) int64 {
	line := int64(s.Threshold * float64(limit))
	if s.MinFree >= 0 {
		line = max(line, limit-s.MinFree)
	}
	return line
}

// Usage is how much memory is in use where it is shortest.
type Usage struct {
	Used  int64
	Limit int64
	Line  int64  // above it processes are ended
	Where string // whose memory it is: "the machine", or a control group
}

// Over says whether processes should be ended.
func (u Usage) Over() bool { return u.Limit > 0 && u.Used > u.Line }

// Left is how much more may be used before processes are ended.
func (u Usage) Left() int64 { return u.Line - u.Used }

// group is a control group with a memory limit of its own.
type group struct {
	dir   string
	name  string
	usage string // file names: they differ between versions 1 and 2
	limit int64
	cache [2]string // lines of memory.stat
}

// Source reads the kernel's files. It keeps nothing of what it read, so it may be used from anywhere.
type Source struct {
	root     string
	settings Settings
	total    int64
	groups   []group
	kills    string // the file that counts the kernel's kills
}

// Open finds out which limits the process is under. root is "" but in tests, which have their own /proc and /sys in a folder.
func Open(root string, settings Settings) (*Source, error) {
	s := &Source{root: root, settings: settings}
	info, err := s.meminfo()
	if err != nil {
		return nil, err
	}
	s.total = info.total
	s.kills = root + "/proc/vmstat"
	for _, m := range s.mounts() {
		s.addGroups(m)
	}
	return s, nil
}

// Limit is the least of the limits: what the process can hope to use.
func (s *Source) Limit() int64 {
	limit := s.total
	for _, g := range s.groups {
		limit = min(limit, g.limit)
	}
	return limit
}

// Read says where memory is shortest. A process in a group with a limit of its own is measured by that alone, as its neighbours on the machine are
// under limits of their own. That makes one file to read where there is one limit.
func (s *Source) Read() (Usage, error) {
	if len(s.groups) == 0 {
		info, err := s.meminfo()
		if err != nil {
			return Usage{}, err
		}
		return Usage{Used: info.total - info.available, Limit: info.total, Line: s.settings.Line(info.total), Where: "the machine"}, nil
	}
	var worst Usage
	for i := range s.groups {
		g := &s.groups[i]
		used, err := g.used()
		if err != nil {
			return Usage{}, err
		}
		u := Usage{Used: used, Limit: g.limit, Line: s.settings.Line(g.limit), Where: "control group " + g.name}
		if i == 0 || u.Left() < worst.Left() {
			worst = u
		}
	}
	return worst, nil
}

type meminfo struct{ total, available int64 }

// meminfo counts as available what psutil and Ray do: shared memory, such as the object store's, is in use, once, and page cache is not.
func (s *Source) meminfo() (meminfo, error) {
	path := s.root + "/proc/meminfo"
	b, err := os.ReadFile(path)
	if err != nil {
		return meminfo{}, fmt.Errorf("memmon: %w", err)
	}
	m := meminfo{kib(b, "MemTotal:"), kib(b, "MemAvailable:")}
	if m.available < 0 { // a kernel before 3.14
		m.available = max(kib(b, "MemFree:"), 0) + max(kib(b, "Buffers:"), 0) + max(kib(b, "Cached:"), 0) - max(kib(b, "Shmem:"), 0)
	}
	if m.total <= 0 {
		return meminfo{}, fmt.Errorf("memmon: %s does not say how much memory there is", path)
	}
	return m, nil
}

func kib(b []byte, key string) int64 {
	v := line(b, key)
	if v < 0 {
		return v
	}
	return v << 10
}

// line returns the number that follows a word at the start of a line; -1: there is no such line.
func line(b []byte, key string) int64 {
	for len(b) > 0 {
		var l []byte
		l, b, _ = bytes.Cut(b, []byte{'\n'})
		rest, ok := bytes.CutPrefix(l, []byte(key))
		if !ok || len(rest) == 0 || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		if f := bytes.Fields(rest); len(f) > 0 {
			if v, err := strconv.ParseInt(string(f[0]), 10, 64); err == nil {
				return v
			}
		}
	}
	return -1
}

// used leaves out the pages of files, which the kernel takes back when it needs memory, as it does for the machine in MemAvailable. What a task reads
// from disk must not be its death. While less than half is in use the difference does not matter, and a file is not read.
func (g *group) used() (int64, error) {
	used, err := number(g.dir + "/" + g.usage)
	if err != nil || used < g.limit/2 {
		return used, err
	}
	stat, err := os.ReadFile(g.dir + "/memory.stat")
	if err != nil {
		return 0, fmt.Errorf("memmon: %w", err)
	}
	for _, key := range g.cache {
		used -= max(line(stat, key), 0)
	}
	return max(used, 0), nil
}

func number(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("memmon: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if text == "max" {
		return 1<<63 - 1, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memmon: %s: %w", path, err)
	}
	return v, nil
}

// mount is a mounted hierarchy of control groups and the process's place in it.
type mount struct {
	dir  string // where it is mounted
	path string // of the process's group, from there
	v2   bool
}

// mounts lists the hierarchies that may limit memory.
func (s *Source) mounts() []mount {
	own, err := os.ReadFile(s.root + "/proc/self/cgroup")
	if err != nil {
		return nil // a kernel without control groups
	}
	v1, v2 := "", ""
	for l := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSuffix(l, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch {
		case f[0] == "0" && f[1] == "":
			v2 = f[2]
		case hasWord(f[1], "memory"):
			v1 = f[2]
		}
	}
	info, err := os.ReadFile(s.root + "/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []mount
	for l := range strings.Lines(string(info)) {
		// 32 25 0:28 ROOT DIR options … - TYPE source superoptions
		before, after, ok := strings.Cut(strings.TrimSuffix(l, "\n"), " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 5 || len(tail) < 3 {
			continue
		}
		m := mount{dir: unescape(head[4])}
		switch {
		case tail[0] == "cgroup" && v1 != "" && hasWord(tail[2], "memory"):
			m.path = v1
		case tail[0] == "cgroup2" && v2 != "":
			m.path, m.v2 = v2, true
		default:
			continue
		}
		// In a container the mount may show a part of the hierarchy, and the process be named from its root or from the part's.
		m.path = strings.TrimPrefix(m.path, strings.TrimSuffix(unescape(head[3]), "/"))
		if strings.HasPrefix(m.path, "/..") {
			m.path = "/"
		}
		found = append(found, m)
	}
	return found
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// unescape undoes what mountinfo writes for a space, a tab, a newline and a backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// addGroups notes the process's group and those it stands in, as far as they limit memory.
func (s *Source) addGroups(m mount) {
	events := "memory.oom_control"
	if m.v2 {
		events = "memory.events"
	}
	if own := filepath.Join(s.root, m.dir, filepath.Clean("/"+m.path), events); kills(own) >= 0 {
		s.kills = own
	}
	for path := filepath.Clean("/" + m.path); ; path = filepath.Dir(path) {
		g := group{dir: filepath.Join(s.root, m.dir, path), name: path}
		var limits []string
		if m.v2 {
			g.usage, limits = "memory.current", []string{"memory.max", "memory.high"}
			g.cache = [2]string{"inactive_file", "active_file"}
		} else {
			g.usage, limits = "memory.usage_in_bytes", []string{"memory.limit_in_bytes"}
			g.cache = [2]string{"total_inactive_file", "total_active_file"}
		}
		g.limit = s.total
		for _, file := range limits {
			if limit, err := number(g.dir + "/" + file); err == nil && limit > 0 {
				g.limit = min(g.limit, limit)
			}
		}
		if _, err := number(g.dir + "/" + g.usage); err == nil && g.limit < s.total {
			s.groups = append(s.groups, g)
		}
		if path == "/" {
			return
		}
	}
}

// OOMKills counts the processes that the kernel has killed for want of memory; -1: it does not say. Whatever limit they met, those of the process's
// own group are counted there, and its workers are in it. What befell others must not be taken for a worker's end, so the machine is asked only
// where groups do not count.
func (s *Source) OOMKills() int64 { return kills(s.kills) }

func kills(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	return line(b, "oom_kill")
}
