package schedule

import "time"

// How much work a worker may be given ahead. A hop through the engine costs some 40 µs of waking up, so a few milliseconds of work hide it, and a
// task that is stuck behind another is stuck for no longer than that before it is taken back.
const (
	AheadTime  = 4 * time.Millisecond
	AheadTasks = 256
)

// Ahead says how many tasks one worker may hold, the running one included. mean is how long one runs (0: not known), queued how many wait, and
// workers over how many processes these can spread.
func Ahead(mean time.Duration, queued, workers int) int {
	if mean <= 0 || queued == 0 {
		return 1
	}
	n := min(int(AheadTime/mean), AheadTasks)
	// Whatever is handed out now cannot be balanced later, so near the end everyone gets a share only.
	share := (queued + workers - 1) / max(workers, 1)
	return max(1, min(n, share))
}

// Mean is an exponentially weighted mean of run times.
type Mean struct{ ns float64 }

// Add takes a run's time in.
func (m *Mean) Add(ns uint64) {
	x := max(float64(ns), 1)
	switch {
	case m.ns == 0:
		m.ns = x
	case x > 8*m.ns: // a slow run counts at once: too little ahead costs less than too much
		m.ns = (m.ns + x) / 2
	default:
		m.ns += (x - m.ns) / 8
	}
}

// Get returns the mean; 0 when there is none yet.
func (m *Mean) Get() time.Duration {
	if m.ns == 0 {
		return 0
	}
	return max(1, time.Duration(m.ns))
}
