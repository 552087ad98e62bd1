package worker

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type shown struct {
	mu  sync.Mutex
	all []string
}

func (s *shown) output(worker uint64, _ int, r Record) {
	text := strings.ReplaceAll(r.Text, "\n", "/")
	if r.Count > 1 || strings.HasPrefix(r.Name, "again") {
		text += fmt.Sprintf(" x%d", r.Count)
	}
	if r.Progress {
		text = "~" + text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf("%d:%s", worker, text))
}

func (s *shown) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.all, " "); got != want {
		t.Fatalf("shown %q, want %q", got, want)
	}
	s.all = nil
}

func merging(t *testing.T, f func(m *merger, s *shown)) {
	synctest.Test(t, func(t *testing.T) {
		s := &shown{}
		m := newMerger(s.output, false)
		f(m, s)
		m.close()
		m.out.close()
	})
}

func TestMergeWithinOneStream(t *testing.T) {
	merging(t, func(m *merger, s *shown) {
		a := &source{worker: 1, kind: "out"}
		for _, l := range []string{"x", "x", "x", "y", "z", "y"} {
			m.line(a, "", l)
		}
		m.flush(a)
		s.want(t, "1:x 1:x x2 1:y/z/y")
		m.line(a, "", "y")
		m.flush(a)
		s.want(t, "")
		time.Sleep(mergeWindow + time.Millisecond)
		s.want(t, "1:y")
		m.line(a, "", "y")
		m.flush(a)
		s.want(t, "1:y") // its window is over: shown at once
	})
}

func TestMergeAcrossWorkers(t *testing.T) {
	merging(t, func(m *merger, s *shown) {
		var all []*source
		for i := range 5 {
			all = append(all, &source{worker: uint64(i), kind: "out"})
		}
		for i, src := range all {
			m.line(src, "", "start")
			m.line(src, "", fmt.Sprint("own ", i))
			m.line(src, "", "")
			m.flush(src)
		}
		s.want(t, "0:start/own 0/ 1:own 1/ 2:own 2/ 3:own 3/ 4:own 4/")
		time.Sleep(mergeWindow + time.Millisecond)
		s.want(t, "4:start x4")
	})
}

func TestMergeKeepsNamesAndKindsApart(t *testing.T) {
	merging(t, func(m *merger, s *shown) {
		out, err := &source{worker: 1, kind: "out"}, &source{worker: 2, kind: "err"}
		m.line(out, "f", "x")
		m.line(out, "g", "x")
		m.line(err, "f", "x")
		m.flush(out)
		m.flush(err)
		s.want(t, "1:x 1:x 2:x")
	})
}

func TestNothingIsLostWhenManyLinesAreRemembered(t *testing.T) {
	total := 0
	m := newMerger(func(_ uint64, _ int, r Record) {
		if r.Count > 1 {
			total += r.Count
		} else {
			total += strings.Count(r.Text, "\n") + 1
		}
	}, false)
	srcs := []*source{{worker: 1, kind: "out"}, {worker: 2, kind: "out"}}
	const n = 3 * mergeEntries
	for i := range n {
		for _, s := range srcs {
			m.line(s, "", fmt.Sprint(i))
			m.flush(s)
		}
	}
	m.close()
	m.out.close()
	if total != 2*n {
		t.Fatalf("%d of %d lines were shown", total, 2*n)
	}
}
