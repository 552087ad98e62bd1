package engine

import "testing"

// Workers of a template without what was asked for are replaced, and the answer waits for the template that has it.
func TestLearnIsAboutWhatIsNew(t *testing.T) {
	e := &env{job: &job{preload: map[string]bool{"numpy": true}}}
	if e.learn([]string{"numpy"}) {
		t.Error("numpy is known")
	}
	if !e.learn([]string{"numpy", "torch"}) || !e.job.preload["torch"] {
		t.Error("torch is new")
	}
	answered := 0
	e.preloads = append(e.preloads, func() { answered++ }, func() { answered++ })
	e.preloaded()
	e.preloaded()
	if answered != 2 {
		t.Errorf("answered %d times, want 2", answered)
	}
}
