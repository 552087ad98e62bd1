package worker

import (
	"strings"
	"sync"
	"time"
)

// Record is a piece of a worker's output.
type Record struct {
	Kind     string // "out" or "err"
	Name     string // of the task or actor that wrote it; empty if none said so
	Text     string // whole lines, without the last newline; valid UTF-8
	Count    int    // 1; more: Text is one line that has come so many times since it was last shown
	Progress bool   // Text is the present state of a progress bar, which replaces the one before
}

const (
	mergeWindow  = time.Second
	mergeEntries = 4096
	maxText      = 64 << 10
)

// merger shows a line that comes again, in the same stream or from other workers within a second, once and then with a count.
// Only identical lines are merged, and a line that a worker repeats between others is shown each time.
type merger struct {
	out   *delivery
	off   bool // show everything
	now   func() time.Time
	after func(time.Duration, func()) *time.Timer

	mu struct {
		sync.Mutex
		seen  map[lineKey]*seenLine
		order []*seenLine // oldest first
		timer *time.Timer // set while a line waits to be shown with its count
	}
}

type lineKey struct{ kind, name, text string }

type seenLine struct {
	key   lineKey
	first time.Time
	from  *source // who wrote it first
	count int     // times it came since it was shown
	last  *source // who wrote it last
}

// source is one stream of one worker, as the merger sees it. Its fields belong to merger.mu.
type source struct {
	worker uint64
	pid    int
	kind   string
	recent *seenLine // the line it wrote last
	batch  []string  // lines to show in one record
	name   string    // of the task that wrote batch
	size   int
}

func newMerger(output func(uint64, int, Record), off bool) *merger {
	m := &merger{out: newDelivery(output), off: off, now: time.Now, after: time.AfterFunc}
	m.mu.seen = map[lineKey]*seenLine{}
	return m
}

// line takes a line; flush must follow before the source's lock is let go.
func (m *merger) line(s *source, name, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off || strings.TrimSpace(text) == "" {
		s.recent = nil
		m.add(s, name, text)
		return
	}
	now := m.now()
	m.expire(now)
	key := lineKey{s.kind, name, text}
	if e := m.mu.seen[key]; e != nil {
		if s.recent == e || e.from.worker != s.worker {
			e.count++
			e.last = s
			s.leave(e, m)
			s.recent = e
			if m.mu.timer == nil {
				m.mu.timer = m.after(mergeWindow, m.tick)
			}
			return
		}
		s.leave(e, m)
		s.recent = e
		m.add(s, name, text)
		return
	}
	e := &seenLine{key: key, first: now, from: s}
	s.leave(e, m)
	s.recent = e
	m.mu.seen[key] = e
	m.mu.order = append(m.mu.order, e)
	if len(m.mu.order) > mergeEntries {
		m.forget(m.mu.order[0])
		m.mu.order = m.mu.order[1:]
	}
	m.add(s, name, text)
}

// leave shows the count of the source's line before when another one comes and nobody else wrote it: the order within a stream is kept.
func (s *source) leave(next *seenLine, m *merger) {
	if e := s.recent; e != nil && e != next && e.count > 0 && e.from == s && e.last == s {
		m.showCount(e)
	}
}

func (m *merger) add(s *source, name, text string) {
	if len(s.batch) > 0 && (s.name != name || s.size > maxText) {
		m.showBatch(s)
	}
	s.name = name
	s.batch = append(s.batch, text)
	s.size += len(text)
}

func (m *merger) showBatch(s *source) {
	if len(s.batch) == 0 {
		return
	}
	text := strings.ToValidUTF8(strings.Join(s.batch, "\n"), "\uFFFD")
	s.batch, s.size = s.batch[:0], 0
	m.out.add(s.worker, s.pid, Record{Kind: s.kind, Name: s.name, Text: text, Count: 1})
}

// flush shows the lines that were taken since the last flush.
func (m *merger) flush(s *source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.showBatch(s)
}

// progress shows a state of a bar, after the lines before it.
func (m *merger) progress(s *source, name, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.showBatch(s)
	m.out.add(s.worker, s.pid, Record{Kind: s.kind, Name: name, Text: strings.ToValidUTF8(text, "\uFFFD"), Count: 1, Progress: true})
}

func (m *merger) showCount(e *seenLine) {
	n, s := e.count, e.last
	e.count = 0
	m.showBatch(s)
	m.out.add(s.worker, s.pid, Record{Kind: s.kind, Name: e.key.name, Text: strings.ToValidUTF8(e.key.text, "\uFFFD"), Count: n})
}

func (m *merger) expire(now time.Time) {
	i := 0
	for ; i < len(m.mu.order) && now.Sub(m.mu.order[i].first) >= mergeWindow; i++ {
		m.forget(m.mu.order[i])
		m.mu.order[i] = nil
	}
	m.mu.order = m.mu.order[i:]
}

func (m *merger) forget(e *seenLine) {
	delete(m.mu.seen, e.key)
	if e.count > 0 {
		m.showCount(e)
	}
}

// tick shows counts whose window is over; it runs only while there are some.
func (m *merger) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.timer = nil
	now := m.now()
	m.expire(now)
	for _, e := range m.mu.order {
		if e.count > 0 {
			m.mu.timer = m.after(max(mergeWindow-now.Sub(e.first), time.Millisecond), m.tick)
			return
		}
	}
}

// flushAll shows every count that waits.
func (m *merger) flushAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.mu.order {
		if e.count > 0 {
			m.showCount(e)
		}
	}
}

// close shows what waits and stops the timer. The delivery is closed after it.
func (m *merger) close() {
	m.flushAll()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.timer != nil {
		m.mu.timer.Stop()
		m.mu.timer = nil
	}
}
