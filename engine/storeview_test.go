package engine_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/raygo/raygo/engine"
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"

	"github.com/vmihailenco/msgpack/v5"
)

// exposition reads Prometheus' text format as strictly as it is defined: name and labels → value.
func exposition(t *testing.T, text string) map[string]float64 {
	t.Helper()
	var (
		help   = regexp.MustCompile(`^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (?:[^\\]|\\\\|\\n)*$`)
		kind   = regexp.MustCompile(`^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)$`)
		value  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\\\|\\"|\\n)*",?)*\})? (\S+)$`)
		out    = map[string]float64{}
		seen   = map[string]bool{}
		family string
		typ    string
	)
	if !strings.HasSuffix(text, "\n") {
		t.Error("the last line has no end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := help.FindStringSubmatch(line); m != nil {
			if seen[m[1]] {
				t.Errorf("%s is described twice", m[1])
			}
			family, typ, seen[m[1]] = m[1], "", true
			continue
		}
		if m := kind.FindStringSubmatch(line); m != nil {
			if m[1] != family || typ != "" {
				t.Errorf("TYPE of %s after HELP of %s", m[1], family)
			}
			typ = m[2]
			continue
		}
		m := value.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("no line of the format: %q", line)
			continue
		}
		name := m[1]
		if typ == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
		}
		if name != family {
			t.Errorf("a value of %s among those of %s", m[1], family)
		}
		f, err := strconv.ParseFloat(m[3], 64)
		if _, twice := out[m[1]+m[2]]; err != nil || twice {
			t.Errorf("%q: %v, twice: %v", line, err, twice)
		}
		out[m[1]+m[2]] = f
	}
	return out
}

func TestMetricsAreRaysAndWellFormed(t *testing.T) {
	r := newRig(t, 2)
	r.on("echo", echo)
	r.want(r.submit(r.function("echo"), "x"), "x")
	big, err := r.c.Put(ctx(t), make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	var none any
	if err := r.c.Call(ctx(t), "metrics.record", []map[string]any{
		{"name": "mine", "type": "counter", "value": 2, "description": "a \\ and\na line", "tags": map[string]string{"who": "a\"b\\c\nd"}},
		{"name": "seconds", "type": "histogram", "value": 0.5, "buckets": []float64{0.1, 1}},
	}, &none); err != nil {
		t.Fatal(err)
	}
	for _, taken := range []string{"tasks", "object_store_memory"} {
		if err := r.c.Call(ctx(t), "metrics.record", []map[string]any{{"name": taken, "type": "gauge", "value": 1}}, &none); !errors.Is(err, errs.EINVAL) {
			t.Errorf("%s is raygo's own: %v", taken, err)
		}
	}
	var text string
	if err := r.c.Call(ctx(t), "metrics.text", nil, &text); err != nil {
		t.Fatal(err)
	}
	got := exposition(t, text)
	stats := r.ask("store.stats", nil)
	for name, want := range map[string]float64{
		`ray_mine{who="a\"b\\c\nd"}`:                                           2,
		`ray_seconds_bucket{le="1"}`:                                           1,
		`ray_object_store_memory{Location="MMAP_SHM",ObjectState="SEALED"}`:    float64(asInt(stats["used"])),
		`ray_object_store_memory{Location="MMAP_SHM",ObjectState="UNSEALED"}`:  0,
		`ray_object_store_memory{Location="SPILLED",ObjectState="SEALED"}`:     0,
		`ray_object_store_memory{Location="WORKER_HEAP",ObjectState="SEALED"}`: float64(asInt(stats["inline_bytes"])),
		`ray_object_store_used_memory`:                                         float64(asInt(stats["used"])),
		`ray_object_store_available_memory`:                                    float64(asInt(stats["capacity"]) - asInt(stats["used"])),
		`ray_object_store_num_local_objects`:                                   1,
		`ray_spill_manager_objects_bytes{State="Pinned"}`:                      0,
		`ray_tasks{Name="echo",State="FINISHED"}`:                              1,
		`ray_resources{Name="CPU",State="AVAILABLE"}`:                          2,
		`ray_resources{Name="object_store_memory",State="USED"}`:               float64(asInt(stats["used"])),
		`raygo_tasks_finished_total`:                                           1,
		`raygo_spill_bytes_total{Type="Restored"}`:                             0,
		`raygo_object_store_waiting`:                                           0,
	} {
		if v, there := got[name]; !there || v != want {
			t.Errorf("%s: %v (%v), not %v", name, v, there, want)
		}
	}
	if asInt(stats["used"]) < 1<<20 || got["ray_node_mem_total"] <= got["ray_node_mem_used"] || got["ray_node_mem_used"] <= 0 {
		t.Error(stats["used"], got["ray_node_mem_total"], got["ray_node_mem_used"])
	}
	big.Release()
}

// logs collects what a driver that wants logs is told.
func logs(t *testing.T, n *engine.Node) (<-chan string, *engine.Conn) {
	t.Helper()
	told := make(chan string, 100)
	return told, listen(t, n, map[string]any{"log_to_driver": true}, func(typ wire.Type, payload []byte) {
		var m struct {
			Kind string `msgpack:"kind"`
			Text string `msgpack:"text"`
		}
		if typ == wire.Log && msgpack.Unmarshal(payload, &m) == nil && m.Kind == "warning" {
			told <- m.Text
		}
	})
}

// fill makes an object in the arena and then sends frames about it.
func (r *rig) fill(c *engine.Conn, num, size uint64, types ...wire.Type) {
	t := r.t
	t.Helper()
	if err := c.Input(wire.AppendCreate(nil, num, wire.CreateFrame{Size: size})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is space", func() bool { return len(r.objectRows([]any{"where", "=", "writing"})) == 1 })
	b := wire.AppendFrame(nil, wire.Seal, 0, num, wire.AppendValue(nil, wire.Value{Kind: wire.Arena, Len: size, Offset: wire.NoOffset}))
	for _, typ := range types {
		b = wire.AppendOIDFrame(b, typ, 0, 0, wire.OID{Task: num})
	}
	if err := c.Input(b); err != nil {
		t.Fatal(err)
	}
}

func TestWarningNamesWhatPinsTheStore(t *testing.T) {
	r := newRig(t, 1, func(o *engine.Options) {
		o.ObjectStoreMemory = 10 << 20
		o.StoreWarnAfter = 0.05
		o.SpillDirs = []string{t.TempDir()}
	})
	told, c := logs(t, r.n)
	r.fill(c, 1<<40, 6<<20, wire.Pin)
	if err := c.Input(wire.AppendSite(nil, 1<<40, wire.SiteFrame{Count: 1, Text: []byte("(put object) | train.py:load:7")})); err != nil {
		t.Fatal(err)
	}
	r.fill(c, 1<<40|1, 3<<20, wire.Pin, wire.Release)
	var text string
	select {
	case text = <-told:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was told")
	}
	pid := asInt(r.objectRows()[0]["pid"])
	for _, want := range []string{
		"more than 80 % full", "9.0 MiB of 10.0 MiB are in use", "9.0 MiB of it cannot be moved to disk", "raygo memory", "object_store_memory",
		fmt.Sprintf("\n  6.0 MiB in 1 object: read by the driver (pid %d), made by driver, (put object) | train.py:load:7\n", pid),
		fmt.Sprintf("\n  3.0 MiB in 1 object: read by the driver (pid %d), made by driver\n", pid),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the warning:\n%s", want, text)
		}
	}
	select {
	case text := <-told:
		t.Error("told again at once:", text)
	case <-time.After(300 * time.Millisecond):
	}
}

func TestNoWarningOfWhatCanBeSpilled(t *testing.T) {
	r := newRig(t, 1, func(o *engine.Options) {
		o.ObjectStoreMemory = 10 << 20
		o.StoreWarnAfter = 1 // longer than the object is being written
		o.SpillDirs = []string{t.TempDir()}
	})
	told, c := logs(t, r.n)
	r.fill(c, 1<<40, 9<<20)
	select {
	case text := <-told:
		t.Error("what can be moved to disk is no reason to warn:", text)
	case <-time.After(2 * time.Second):
	}
}

func TestWarningWhereNothingCanBeSpilled(t *testing.T) {
	r := newRig(t, 1, func(o *engine.Options) {
		o.ObjectStoreMemory = 10 << 20
		o.StoreWarnAfter = 1 // longer than the object is being written
		o.SpillDirs = []string{}
	})
	told, c := logs(t, r.n)
	r.fill(c, 1<<40, 9<<20)
	select {
	case text := <-told:
		if !strings.Contains(text, "because there is no spill directory") || !strings.Contains(text, "9.0 MiB in 1 object: referred to by the driver") {
			t.Error(text)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nobody was told")
	}
}
