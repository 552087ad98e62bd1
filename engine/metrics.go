package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/raygo/raygo/engine/errs"
)

// metrics are what programs record by raygo.util.metrics, as Prometheus has them.
type metrics struct{ families map[string]*family }

type family struct {
	kind, description string
	buckets           []float64
	series            map[string]*series // by label text
}

type series struct {
	value  float64
	counts []uint64 // histogram: per bucket, not cumulative, the last one is +Inf
	sum    float64
}

type metricArg struct {
	Name        string            `msgpack:"name"`
	Type        string            `msgpack:"type"`
	Description string            `msgpack:"description"`
	Tags        map[string]string `msgpack:"tags"`
	Value       float64           `msgpack:"value"`
	Buckets     []float64         `msgpack:"buckets"`
}

func (m *metrics) record(a metricArg) error {
	switch a.Type {
	case "counter", "gauge", "histogram":
	default: // before the name is taken
		return errs.New(errs.EINVAL, "metric %q is of type %q; known are counter, gauge and histogram", a.Name, a.Type)
	}
	f := m.families[a.Name]
	if f == nil {
		if isOwnMetric("ray_" + a.Name) {
			return errs.New(errs.EINVAL, "metric %q would be shown as ray_%s, which is a metric of raygo's own; give it another name", a.Name, a.Name)
		}
		if m.families == nil {
			m.families = map[string]*family{}
		}
		f = &family{kind: a.Type, description: a.Description, buckets: slices.Sorted(slices.Values(a.Buckets)), series: map[string]*series{}}
		m.families[a.Name] = f
	}
	if f.kind != a.Type {
		return errs.New(errs.EINVAL, "metric %q is a %s and cannot be a %s too", a.Name, f.kind, a.Type)
	}
	labels := labelText(a.Tags)
	s := f.series[labels]
	if s == nil {
		s = &series{counts: make([]uint64, len(f.buckets)+1)}
		f.series[labels] = s
	}
	switch f.kind {
	case "counter":
		if a.Value < 0 {
			return errs.New(errs.EINVAL, "counter %q cannot fall by %v", a.Name, -a.Value)
		}
		s.value += a.Value
	case "gauge":
		s.value = a.Value
	case "histogram":
		i, _ := slices.BinarySearch(f.buckets, a.Value)
		s.counts[i]++
		s.sum += a.Value
	}
	return nil
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func labelText(tags map[string]string) string {
	parts := make([]string, 0, len(tags))
	for k, v := range tags {
		parts = append(parts, k+`="`+labelEscapes.Replace(v)+`"`)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// text writes everything in Prometheus' text format.
func (m *metrics) text(b *strings.Builder) {
	names := make([]string, 0, len(m.families))
	for name := range m.families {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f := m.families[name]
		full := "ray_" + name
		head(b, full, f.description, f.kind)
		labels := make([]string, 0, len(f.series))
		for l := range f.series {
			labels = append(labels, l)
		}
		slices.Sort(labels)
		for _, l := range labels {
			s := f.series[l]
			if f.kind != "histogram" {
				fmt.Fprintf(b, "%s%s %s\n", full, braces(l), number(s.value))
				continue
			}
			total := uint64(0)
			for i, k := range s.counts {
				total += k
				le := "+Inf"
				if i < len(f.buckets) {
					le = number(f.buckets[i])
				}
				fmt.Fprintf(b, "%s_bucket%s %d\n", full, braces(join(l, `le="`+le+`"`)), total)
			}
			fmt.Fprintf(b, "%s_sum%s %s\n%s_count%s %d\n", full, braces(l), number(s.sum), full, braces(l), total)
		}
	}
}

func braces(l string) string {
	if l == "" {
		return ""
	}
	return "{" + l + "}"
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "," + b
}

var helpEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// head writes what stands before a metric's samples.
func head(b *strings.Builder, name, help, kind string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, helpEscapes.Replace(help), name, kind)
}

var metricMethods = map[string]callMethod{
	"metrics.record": method(func(n *Node, p *peer, _ uint64, all []metricArg) (any, error) {
		for _, a := range all {
			if err := n.metrics.record(a); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}),
	"metrics.text": noArgument(func(n *Node, p *peer) (any, error) {
		var b strings.Builder
		n.metrics.text(&b)
		n.own(&b)
		return b.String(), nil
	}),
}
