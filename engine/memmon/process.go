package memmon

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Process is one of the machine's processes and what it holds.
type Process struct {
	PID    int
	Parent int
	Group  int
	Name   string
	RSS    int64 // all that it has in memory
	Anon   int64 // without files and shared memory. Pages that it shares with the process it was forked from are counted in both
}

var pageSize = int64(os.Getpagesize())

// Processes lists the processes that can be seen. It reads two files of each, so it is for when memory is about to run short.
func (s *Source) Processes() (map[int]*Process, error) {
	dir, err := os.Open(s.root + "/proc")
	if err != nil {
		return nil, fmt.Errorf("memmon: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("memmon: %w", err)
	}
	all := map[int]*Process{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p := s.Process(pid); p != nil {
				all[pid] = p
			}
		}
	}
	return all, nil
}

// Process reads what one process holds; nil: it is gone, or is a zombie and holds nothing.
func (s *Source) Process(pid int) *Process {
	folder := s.root + "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return nil
	}
	// pid (name) state parent group …; a name may hold anything.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return nil
	}
	f := bytes.Fields(stat[end+1:])
	if len(f) < 3 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return nil
	}
	p := &Process{PID: pid, Parent: atoi(f[1]), Group: atoi(f[2]), Name: string(stat[open+1 : end])}
	statm, err := os.ReadFile(folder + "/statm")
	if err != nil {
		return nil
	}
	if f = bytes.Fields(statm); len(f) < 3 {
		return nil
	}
	p.RSS = int64(atoi(f[1])) * pageSize
	p.Anon = max(p.RSS-int64(atoi(f[2]))*pageSize, 0)
	return p
}

func atoi(b []byte) int {
	v, err := strconv.Atoi(string(b))
	if err != nil {
		return 0
	}
	return v
}

// Unique reads what would come back if a process ended: memory that nobody else has (USS). The kernel walks all of its pages for it, milliseconds per GB.
func (s *Source) Unique(pid int) (int64, error) {
	b, err := os.ReadFile(s.root + "/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0, fmt.Errorf("memmon: %w", err)
	}
	return max(kib(b, "Private_Clean:"), 0) + max(kib(b, "Private_Dirty:"), 0), nil
}

// Tree is what a process and all that it started hold.
type Tree struct {
	Own  int64 // what comes back if they end, nearly: without shared memory and without what the process has from the one it was forked from
	RSS  int64
	PIDs []int // of the descendants
}

// Trees sums up processes by the root they belong to: a root's group, and descendants of its that have left the group. What a root shares with
// the process that it was forked from, parents[root], is not counted as its own.
func Trees(all map[int]*Process, parents map[int]int) map[int]*Tree {
	trees := make(map[int]*Tree, len(parents))
	for root := range parents {
		trees[root] = &Tree{}
	}
	rootOf := make(map[int]int, len(all)) // 0: of none
	var find func(pid, depth int) int
	find = func(pid, depth int) int {
		if trees[pid] != nil {
			return pid
		}
		if root, known := rootOf[pid]; known {
			return root
		}
		p, root := all[pid], 0
		if p != nil && depth < 1000 {
			if trees[p.Group] != nil {
				root = p.Group
			} else {
				root = find(p.Parent, depth+1)
			}
		}
		rootOf[pid] = root
		return root
	}
	for pid, p := range all {
		t := trees[find(pid, 0)]
		if t == nil {
			continue
		}
		own := p.Anon
		if parent, isRoot := parents[pid]; !isRoot {
			t.PIDs = append(t.PIDs, pid)
		} else if from := all[parent]; from != nil {
			own = max(own-from.Anon, 0)
		}
		t.Own += own
		t.RSS += p.RSS
	}
	return trees
}
