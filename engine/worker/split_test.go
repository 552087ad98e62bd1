package worker

import (
	"fmt"
	"strings"
	"testing"
)

// record keeps what a splitter finds, in a form that is easy to compare.
type recorder struct {
	log   strings.Builder
	lines []string
	bars  []string
}

func (r *recorder) raw(b []byte)                  { r.log.Write(b) }
func (r *recorder) line(name string, text []byte) { r.lines = append(r.lines, name+"|"+string(text)) }
func (r *recorder) progress(name string, text []byte, below bool) {
	r.bars = append(r.bars, fmt.Sprintf("%s|%s", name, text))
}

func split(input string, size int) *recorder {
	r := &recorder{}
	s := &splitter{}
	for len(input) > 0 {
		n := min(size, len(input))
		s.feed([]byte(input[:n]), r)
		input = input[n:]
	}
	s.end(r)
	return r
}

func TestSplit(t *testing.T) {
	for _, c := range []struct{ name, in, lines, log string }{
		{"lines", "a\nb\n\nc", "|a;|b;|;|c", "a\nb\n\nc"},
		{"crlf", "a\r\nb\r\n", "|a;|b", "a\r\nb\r\n"},
		{"marker", "\x1eraygo:f\na\nb\n\x1eraygo:g\nc\n", "f|a;f|b;g|c", "a\nb\nc\n"},
		{"marker after half a line", "\x1eraygo:f\nhalf\x1eraygo:g\nc\n", "f|half;g|c", "halfc\n"},
		{"not a marker", "x\x1ey\x1erayg\x1e\n", "|x\x1ey\x1erayg\x1e", "x\x1ey\x1erayg\x1e\n"},
		{"marker cut by the end", "a\x1eraygo:f", "|a\x1eraygo:f", "a\x1eraygo:f"},
		{"bar", "\r 10%\r 50%\r100%\nnext\n", "|100%;|next", "\r 10%\r 50%\r100%\nnext\n"},
		{"bar wiped", "\r 10%\r     \rdone\n", "|done", "\r 10%\r     \rdone\n"},
		{"bars below each other", "\n\r 10%\x1b[A\n\r 20%\x1b[A\rend\n", "|;|end", "\n\r 10%\x1b[A\n\r 20%\x1b[A\rend\n"},
	} {
		for size := 1; size <= len(c.in); size++ {
			r := split(c.in, size)
			if got := strings.Join(r.lines, ";"); got != c.lines {
				t.Errorf("%s in pieces of %d: lines %q, want %q", c.name, size, got, c.lines)
			}
			if r.log.String() != c.log {
				t.Errorf("%s in pieces of %d: log %q, want %q", c.name, size, r.log.String(), c.log)
			}
		}
	}
}

func TestSplitBarStates(t *testing.T) {
	r := &recorder{}
	s := &splitter{}
	for i := range 5 {
		s.feed(fmt.Appendf(nil, "\r%d/5", i), r)
	}
	s.feed([]byte("\r5/5\n"), r)
	if got := strings.Join(r.bars, " "); got != "|0/5 |1/5 |2/5 |3/5 |4/5" || strings.Join(r.lines, " ") != "|5/5" {
		t.Fatalf("bars %q, lines %q", got, r.lines)
	}
	if len(s.rest) > 64 {
		t.Fatalf("a bar's past states are kept: %d bytes", len(s.rest))
	}
}

func TestSplitLongLine(t *testing.T) {
	r := split(strings.Repeat("x", 3*maxLine)+"\n", 64<<10)
	if n := len(strings.Join(r.lines, "")) - len(r.lines); n != 3*maxLine {
		t.Fatalf("%d bytes of %d came through", n, 3*maxLine)
	}
}

// FuzzSplit: how a stream is cut into reads changes neither its lines nor its log.
func FuzzSplit(f *testing.F) {
	f.Add("a\n\x1eraygo:f\nb\rc\n\x1b[A\n", 3)
	f.Fuzz(func(t *testing.T, in string, size int) {
		size = size&15 + 1
		whole, pieces := split(in, len(in)+1), split(in, size)
		if whole.log.String() != pieces.log.String() {
			t.Fatalf("logs differ: %q and %q", whole.log.String(), pieces.log.String())
		}
		if a, b := strings.Join(whole.lines, ";"), strings.Join(pieces.lines, ";"); a != b {
			t.Fatalf("lines differ: %q and %q", a, b)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	chunk := []byte(strings.Repeat("a line such as programs print, with some words in it\n", 1200))
	m := newMerger(func(uint64, int, Record) {}, true)
	st := &stream{merger: m}
	s := &splitter{}
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		s.feed(chunk, streamSink{st})
		m.flush(&st.mu.source)
	}
}
