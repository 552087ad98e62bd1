package objectstore

import (
	"runtime"
	"testing"
	"time"
)

func TestPaceOnlyWhileOthersWrite(t *testing.T) {
	var p pacer
	p.last.Store(int64(time.Since(epoch) - time.Hour))
	if got := p.pause(time.Millisecond); got != 0 {
		t.Errorf("pauses for %v though nobody writes", got)
	}
	p.begin(paceLarge)
	if got := p.pause(3 * time.Millisecond); got != 3*time.Millisecond {
		t.Errorf("pauses for %v after 3 ms of work", got)
	}
	if got := p.pause(time.Second); got != pauseMost {
		t.Errorf("pauses for %v after a second of work", got)
	}
	p.hurry.Store(true)
	if got := p.pause(time.Millisecond); got != 0 {
		t.Errorf("pauses for %v though room is needed", got)
	}
	p.hurry.Store(false)
	p.end(paceLarge)
	p.last.Store(int64(time.Since(epoch) + time.Hour)) // just now, however slow the machine
	if p.pause(time.Millisecond) == 0 {
		t.Error("the moment between two objects is taken for the end")
	}
	p.begin(1)
	p.end(1)
	if p.writing.Load() != 0 {
		t.Errorf("%d objects are being written", p.writing.Load())
	}
}

func TestPaceFollowsTheStore(t *testing.T) {
	f := open(t, Options{Capacity: 16 * mb, SpillDirs: []string{t.TempDir()}, SpillAt: 0.5, SmallPages: true})
	var open []*Entry
	create := func() {
		f.Create(2*mb, "x", func(e *Entry, err error) {
			if err != nil {
				t.Error(err)
			}
			open = append(open, e)
		})
	}
	create()
	create()
	if f.pace.writing.Load() != 2 || f.pace.hurry.Load() {
		t.Errorf("two objects are being written, not %d; in a hurry: %v", f.pace.writing.Load(), f.pace.hurry.Load())
	}
	open[0].Seal()
	f.Delete(open[1])
	if f.pace.writing.Load() != 0 {
		t.Errorf("%d objects are being written", f.pace.writing.Load())
	}
	for range 6 { // with the first, 14 of 16 MiB, half of the way from the threshold is 12
		create()
	}
	open[len(open)-1].Seal()
	if !f.pace.hurry.Load() {
		t.Error("room is nearly gone, and nobody hurries")
	}
	for _, e := range open[2:] {
		f.Delete(e)
	}
	f.put(2*mb, "x")
	f.until(t, "time", func() bool { f.setPace(); return !f.pace.hurry.Load() })
}

func TestWorkIsMeasured(t *testing.T) {
	runtime.LockOSThread() // or it may go on in another one
	defer runtime.UnlockOSThread()
	took, err := worked(func() error {
		for end := threadTime() + 5*time.Millisecond; threadTime() < end; {
		}
		return nil
	})
	if err != nil || took < 5*time.Millisecond {
		t.Error(took, err)
	}
	if took, _ := worked(func() error { time.Sleep(5 * time.Millisecond); return nil }); took > 4*time.Millisecond {
		t.Errorf("waiting counts as %v of work", took)
	}
}
