package task

import (
	"errors"
	"testing"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"

	"github.com/vmihailenco/msgpack/v5"
)

func parse(t *testing.T, m map[string]any) *Template {
	t.Helper()
	raw, err := msgpack.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseTemplate(append(raw, 0, 0, 0)) // as padded in a frame
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestDefaults(t *testing.T) {
	f := parse(t, map[string]any{"kind": "function", "qualname": "f", "resources": map[string]int{"CPU": 10000}})
	if f.NumReturns != 1 || f.MaxRetries != 3 || f.Name != "f" || f.Backpressure != DefaultBackpressure || !f.TaskEvents || f.Strategy.Bundle != -1 {
		t.Errorf("%+v", f)
	}
	if d := f.Demand(7); d.Resources[schedule.CPU] != schedule.One || d.Env != 7 || d.Bundle != -1 || d.Hold != nil {
		t.Errorf("%+v", d)
	}
	a := parse(t, map[string]any{"kind": "actor", "name": "A", "is_async": true, "placement": map[string]int{"CPU": 10000}})
	if a.MaxConcurrency != 1000 || a.MaxTaskRetries != 0 {
		t.Errorf("%+v", a)
	}
	if d := a.Demand(0); d.Hold == nil || len(d.Hold) != 0 || d.Resources[schedule.CPU] != schedule.One {
		t.Errorf("%+v", d)
	}
	m := parse(t, map[string]any{"kind": "method", "method": "m"})
	if m.MaxTaskRetries != Inherit || m.Name != "m" {
		t.Errorf("%+v", m)
	}
	g := parse(t, map[string]any{"kind": "function", "strategy": map[string]any{"type": "pg", "pg": uint64(1) << 40, "bundle": 2}, "label_selector": map[string]string{"b": "1", "a": "!2"}})
	if d := g.Demand(0); d.Group != 1<<40 || d.Bundle != 2 || d.Labels[0].Key != "a" {
		t.Errorf("%+v", d)
	}
}

func TestRefused(t *testing.T) {
	for _, m := range []map[string]any{
		{"kind": "thing"}, {"kind": "function", "resources": map[string]int{"CPU": -1}}, {"kind": "function", "blob_object": []int{1}}, {"kind": 5},
	} {
		raw, _ := msgpack.Marshal(m)
		if _, err := ParseTemplate(raw); !errors.Is(err, errs.EINVAL) {
			t.Errorf("%v: %v", m, err)
		}
	}
}

func TestRing(t *testing.T) {
	r := NewRing(3)
	for i := range uint64(5) {
		r.Add().ID = i
	}
	var got []uint64
	for e := range r.All {
		got = append(got, e.ID)
	}
	if len(got) != 3 || got[0] != 2 || got[2] != 4 {
		t.Error(got)
	}
}

func FuzzTemplate(f *testing.F) {
	raw, _ := msgpack.Marshal(map[string]any{"kind": "function", "resources": map[string]int{"CPU": 1}, "strategy": map[string]any{"type": "pg"}})
	f.Add(raw)
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := ParseTemplate(b); err == nil {
			x.Demand(1)
		}
	})
}
