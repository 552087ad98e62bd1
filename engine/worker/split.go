package worker

import "bytes"

const (
	marker    = "\x1eraygo:"
	maxMarker = 1 << 10 // a marker's name is shorter; anything else that begins like one is text
	maxLine   = 1 << 20 // a longer line is passed on in pieces
	cursorUp  = "\x1b[A"
)

// splitter cuts a byte stream into lines. It takes out the markers by which a worker says which task writes, and understands enough of
// how progress bars draw (a carriage return to overwrite, cursor-up after a bar below another) to tell a bar's states from lines.
// It is a pure step: bytes in, calls out.
type splitter struct {
	name  string // of the task that writes
	rest  []byte // the line that has not ended, marker being read included
	held  int    // how many bytes at rest's end may be the beginning of a marker
	below bool   // the last thing drawn was a bar below another, which moves by newlines that are not lines
}

// sink takes what a splitter finds. The slices are good during the call.
type sink interface {
	raw(b []byte)                              // everything but markers, as it came
	line(name string, text []byte)             // a line, without its end
	progress(name string, text []byte, e bool) // a state of a bar; e: its line has ended and more bars or lines follow
}

func (s *splitter) feed(chunk []byte, to sink) {
	from := len(s.rest) - s.held // all before was looked at
	buf := chunk
	if len(s.rest) > 0 {
		buf = append(s.rest, chunk...)
	}
	start, logged := 0, from
	s.held = 0
	for {
		i := bytes.IndexAny(buf[from:], "\n\x1e")
		if i < 0 {
			break
		}
		i += from
		if buf[i] == '\n' {
			s.endLine(buf[start:i], to)
			start, from = i+1, i+1
			continue
		}
		n, whole := markerAt(buf[i:])
		if n == 0 {
			from = i + 1
			continue
		}
		to.raw(buf[logged:i])
		logged = i
		if !whole {
			s.held = n
			break
		}
		if i > start {
			// Text of the task before, which did not end its line.
			s.endLine(buf[start:i], to)
		}
		s.name = string(buf[i+len(marker) : i+n-1])
		start, from, logged = i+n, i+n, i+n
	}
	to.raw(buf[logged : len(buf)-s.held])
	s.keep(buf[start:], to)
}

// markerAt says how long the marker at the beginning of b is, and whether all of it is there. 0: it is none.
func markerAt(b []byte) (n int, whole bool) {
	m := min(len(b), len(marker))
	if string(b[:m]) != marker[:m] {
		return 0, false
	}
	if i := bytes.IndexByte(b, '\n'); i >= 0 && i < maxMarker {
		return i + 1, true
	}
	if len(b) < maxMarker {
		return len(b), false
	}
	return 0, false
}

// keep stores the unfinished line and shows a bar's state if it holds one.
func (s *splitter) keep(rest []byte, to sink) {
	text := rest[:len(rest)-s.held]
	if cr, seg := lastSegment(text); cr >= 0 {
		if len(seg) > 0 {
			to.progress(s.name, seg, false)
		}
		// What was overwritten is of no more use.
		rest = rest[cr:]
	} else if len(text) > maxLine {
		to.line(s.name, text)
		rest = rest[len(text):]
	}
	if cap(s.rest) > 64<<10 && len(rest) < 4<<10 {
		s.rest = nil // a burst is over
	}
	s.rest = append(s.rest[:0], rest...)
}

// lastSegment returns the last piece of text between carriage returns that is not blank, and where the return before it stands; -1 if
// there is no return.
func lastSegment(text []byte) (int, []byte) {
	first := bytes.LastIndexByte(text, '\r')
	if first < 0 {
		return -1, nil
	}
	for end, cr := len(text), first; ; {
		if seg := bytes.TrimSpace(text[cr+1 : end]); len(seg) > 0 {
			return cr, bytes.TrimRight(text[cr+1:end], " ")
		}
		if cr == 0 {
			return first, nil
		}
		end = cr
		if cr = bytes.LastIndexByte(text[:end], '\r'); cr < 0 {
			if seg := bytes.TrimSpace(text[:end]); len(seg) > 0 {
				return 0, bytes.TrimRight(text[:end], " ")
			}
			return first, nil
		}
	}
}

func (s *splitter) endLine(line []byte, to sink) {
	line = bytes.TrimRight(line, "\r")
	if bytes.IndexByte(line, '\r') >= 0 {
		_, line = lastSegment(line)
	}
	if bytes.Contains(line, []byte(cursorUp)) {
		s.below = true
		if text := bytes.TrimSpace(bytes.ReplaceAll(line, []byte(cursorUp), nil)); len(text) > 0 {
			to.progress(s.name, text, true)
		}
		return
	}
	if len(line) == 0 && s.below {
		return
	}
	s.below = false
	to.line(s.name, line)
}

// end passes on what has no end of line when there is no more to come.
func (s *splitter) end(to sink) {
	if s.held > 0 {
		to.raw(s.rest[len(s.rest)-s.held:])
	}
	if line := s.rest; len(line) > 0 {
		s.rest, s.held = nil, 0
		s.endLine(line, to)
	}
}
