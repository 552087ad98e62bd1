package engine

import (
	"os"

	workerproc "github.com/raygo/raygo/engine/worker"
)

// Launcher starts a template process: one that has imported what a job's workers need, and forks them.
type Launcher func(workerproc.Config, workerproc.Handler) (Template, error)

// Template is what the engine needs of a template process; engine/worker's is one.
type Template interface {
	// Fork asks for a worker. The connection is usable at once; what is written to it waits for the child.
	Fork(worker uint64) (*os.File, error)
	// StderrTail returns the last lines that a worker wrote to stderr.
	StderrTail(worker uint64) string
	// DrainOutput blocks until what a worker (0: each) has written has been passed on.
	DrainOutput(worker uint64)
	// Close ends the template.
	Close()
}

func startTemplate(c workerproc.Config, h workerproc.Handler) (Template, error) {
	t, err := workerproc.StartTemplate(c, h)
	if err != nil {
		return nil, err // not t: a nil *worker.Template is no nil Template
	}
	return t, nil
}
