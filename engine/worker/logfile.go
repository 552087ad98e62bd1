package worker

import (
	"fmt"
	"os"
)

// logFile holds a stream's bytes as they came. It begins with the first byte, and when it has grown to max it becomes path.1 and a new one
// begins, so that a process takes at most twice max.
type logFile struct {
	path string
	max  int64
	file *os.File
	size int64
	err  error // the first failure; after it nothing more is written
}

func (l *logFile) write(b []byte) {
	if l.err != nil || len(b) == 0 || l.path == "" {
		return
	}
	if l.file != nil && l.size > 0 && l.size+int64(len(b)) > l.max {
		l.close()
		if l.err = os.Rename(l.path, l.path+".1"); l.err != nil {
			return
		}
	}
	if l.file == nil {
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			l.err = err
			return
		}
		l.file, l.size = f, 0
		report(f, true)
	}
	n, err := l.file.Write(b)
	l.size += int64(n)
	if err != nil {
		l.err = fmt.Errorf("worker: log %s: %w", l.path, err)
	}
}

func (l *logFile) close() {
	if l.file != nil {
		if err := CloseFD(l.file); err != nil && l.err == nil {
			l.err = err
		}
		l.file = nil
	}
}
