package worker

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	tailLines     = 20
	tailLine      = 2 << 10
	progressEvery = 500 * time.Millisecond
	readSize      = 64 << 10
)

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readSize); return &b }}

// stream reads one pipe of one worker: into its log file, its tail, and through the splitter to the merger.
type stream struct {
	merger *merger
	file   *os.File
	conn   syscall.RawConn
	done   chan struct{} // closed when the pipe has ended and all of it was passed on

	mu struct {
		sync.Mutex
		source
		split  splitter
		log    logFile
		tail   []string // the last lines, oldest first; of stderr only
		eof    bool
		bar    string // a bar's state that has not been shown yet
		barBy  string
		hasBar bool
		below  bool // the bar's line has ended, so nothing that follows replaces it
		shown  time.Time
		timer  *time.Timer
		failed error // why reading ended, if not by the end of the pipe
	}
}

func newStream(m *merger, file *os.File, worker uint64, kind string) (*stream, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &stream{merger: m, file: file, conn: conn, done: make(chan struct{})}
	s.mu.source = source{worker: worker, kind: kind}
	return s, nil
}

// run reads until the pipe ends. Between bursts it holds no buffer.
func (s *stream) run(pid int, log logFile) {
	s.mu.Lock()
	s.mu.pid = pid
	s.mu.log = log
	s.mu.Unlock()
	err := s.conn.Read(func(fd uintptr) bool {
		for s.pump(fd) > 0 {
			s.merger.out.room()
		}
		return s.ended()
	})
	s.finish(err)
	// Without the lock: closing waits for drain, which takes it.
	_ = CloseFD(s.file)
	close(s.done)
}

func (s *stream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.eof
}

// drain passes on what is in the pipe now; with unended also a line that has no end yet.
func (s *stream) drain(unended bool) {
	_ = s.conn.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for err == nil && left > 0 {
			n := s.pump(fd)
			if n == 0 {
				break
			}
			left -= n
		}
		// What another goroutine has read is passed on once it lets go of the lock.
		s.mu.Lock()
		defer s.mu.Unlock()
		if unended && !s.mu.eof {
			s.mu.split.end(streamSink{s})
			s.merger.flush(&s.mu.source)
		}
		s.showBar()
	})
}

// pump reads once and passes it on. 0: there is nothing, now or ever.
func (s *stream) pump(fd uintptr) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.eof {
		return 0
	}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := unix.Read(int(fd), *buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0
		case err != nil || n == 0:
			s.mu.eof = true
			s.mu.failed = err
			return 0
		}
		s.mu.split.feed((*buf)[:n], streamSink{s})
		s.merger.flush(&s.mu.source)
		return n
	}
}

// finish passes on what is left.
func (s *stream) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failed == nil {
		s.mu.failed = err
	}
	s.mu.eof = true
	s.mu.split.end(streamSink{s})
	s.showBar()
	s.merger.flush(&s.mu.source)
	s.mu.log.close()
	if s.mu.timer != nil {
		s.mu.timer.Stop()
	}
}

// abandon ends a stream whose pipe somebody still holds open, after passing on what is in it.
func (s *stream) abandon() {
	s.drain(true)
	_ = s.file.SetReadDeadline(time.Unix(1, 0))
}

func (s *stream) lastLines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.mu.tail...)
}

// showBar shows the bar's state that waits. s.mu is held.
func (s *stream) showBar() {
	if s.mu.hasBar {
		s.mu.hasBar = false
		s.mu.shown = time.Now()
		s.merger.progress(&s.mu.source, s.mu.barBy, s.mu.bar)
		s.mu.bar = ""
	}
}

// streamSink is a stream as its splitter sees it; s.mu is held.
type streamSink struct{ *stream }

func (k streamSink) raw(b []byte) { k.mu.log.write(b) }

func (k streamSink) line(name string, text []byte) {
	s := k.stream
	if s.mu.hasBar && s.mu.below {
		s.showBar()
	}
	s.mu.hasBar = false // the line is the bar's last state, or follows it
	s.keepTail(text)
	s.merger.line(&s.mu.source, name, string(text))
}

func (k streamSink) progress(name string, text []byte, below bool) {
	s := k.stream
	s.mu.bar, s.mu.barBy, s.mu.hasBar, s.mu.below = string(text), name, true, below
	wait := progressEvery - time.Since(s.mu.shown)
	if wait <= 0 {
		s.showBar()
		return
	}
	if s.mu.timer == nil {
		s.mu.timer = time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mu.timer = nil
			if !s.mu.eof {
				s.showBar()
			}
		})
	}
}

func (s *stream) keepTail(text []byte) {
	if s.mu.kind != "err" {
		return
	}
	if len(text) > tailLine {
		text = text[:tailLine]
	}
	if len(s.mu.tail) == tailLines {
		copy(s.mu.tail, s.mu.tail[1:])
		s.mu.tail = s.mu.tail[:tailLines-1]
	}
	s.mu.tail = append(s.mu.tail, string(text))
}
