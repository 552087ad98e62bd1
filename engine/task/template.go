package task

import (
	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/schedule"

	"github.com/vmihailenco/msgpack/v5"
)

// Kinds of templates.
const (
	Function = "function"
	Actor    = "actor"
	Method   = "method"
	Named    = "named"
)

// Which exceptions of a task's own code are retried.
const (
	RetryNone = 0
	RetryAll  = 1
	RetryList = 2 // the worker knows the list
)

// Inherit, as a method's MaxTaskRetries, means the actor's number.
const Inherit = -2

// DefaultBackpressure is how many items of a generator may wait to be consumed.
const DefaultBackpressure = 4096

// Template is a function or class with its options, as RG_TEMPLATE carries it.
type Template struct {
	Kind       string             `msgpack:"kind"`
	Name       string             `msgpack:"name"`
	Qualname   string             `msgpack:"qualname"`
	Module     string             `msgpack:"module"`
	Key        []byte             `msgpack:"key"`
	Codec      string             `msgpack:"codec"`
	BlobObject []uint64           `msgpack:"blob_object"`
	Meta       []byte             `msgpack:"meta"`
	Signature  string             `msgpack:"signature"`
	Resources  schedule.Resources `msgpack:"resources"`
	Placement  schedule.Resources `msgpack:"placement"`

	NumReturns      int    `msgpack:"num_returns"`
	Streaming       bool   `msgpack:"streaming"`
	Dynamic         bool   `msgpack:"dynamic"`
	Backpressure    int    `msgpack:"backpressure"`
	MaxRetries      int    `msgpack:"max_retries"`
	RetryExceptions int    `msgpack:"retry_exceptions"`
	MaxCalls        int    `msgpack:"max_calls"`
	RuntimeEnv      string `msgpack:"runtime_env"`

	Strategy      Strategy          `msgpack:"strategy"`
	LabelSelector map[string]string `msgpack:"label_selector"`

	ActorName       string         `msgpack:"actor_name"`
	Namespace       string         `msgpack:"namespace"`
	Detached        bool           `msgpack:"detached"`
	MaxRestarts     int            `msgpack:"max_restarts"`
	MaxTaskRetries  int            `msgpack:"max_task_retries"`
	MaxConcurrency  int            `msgpack:"max_concurrency"`
	IsAsync         bool           `msgpack:"is_async"`
	Groups          map[string]int `msgpack:"groups"`
	MaxPendingCalls int            `msgpack:"max_pending_calls"`
	OutOfOrder      bool           `msgpack:"out_of_order"`

	Method string `msgpack:"method"`
	Group  string `msgpack:"group"`

	// TaskEvents turns the record of ended tasks off when false.
	TaskEvents bool `msgpack:"enable_task_events"`
}

// Strategy says where a task may be placed.
type Strategy struct {
	Type    string                    `msgpack:"type"`
	Node    string                    `msgpack:"node"`
	Soft    bool                      `msgpack:"soft"`
	PG      uint64                    `msgpack:"pg"`
	Bundle  int                       `msgpack:"bundle"`
	Capture bool                      `msgpack:"capture"`
	Hard    map[string]LabelCondition `msgpack:"hard"`
}

// LabelCondition is one condition on a node's labels.
type LabelCondition struct {
	Op     string   `msgpack:"op"`
	Values []string `msgpack:"values"`
}

// ParseTemplate reads the map of RG_TEMPLATE, in which what is absent has its default.
func ParseTemplate(raw []byte) (*Template, error) {
	t := &Template{
		Codec: "pickle", NumReturns: 1, MaxRetries: 3, MaxTaskRetries: Inherit, TaskEvents: true,
		Strategy: Strategy{Type: "default", Bundle: -1},
	}
	if err := msgpack.Unmarshal(raw, t); err != nil {
		return nil, errs.New(errs.EINVAL, "a template is not the map it should be: %w", err)
	}
	switch t.Kind {
	case Function, Named:
		t.Name = first(t.Name, t.Qualname, "task")
	case Method:
		t.Name = first(t.Name, t.Method, "method")
	case Actor:
		t.Name = first(t.Name, t.Qualname, "actor")
		if t.MaxTaskRetries == Inherit {
			t.MaxTaskRetries = 0
		}
		if t.MaxConcurrency <= 0 {
			t.MaxConcurrency = 1
			if t.IsAsync {
				t.MaxConcurrency = 1000
			}
		}
	default:
		return nil, errs.New(errs.EINVAL, "template %q is of kind %q; known are function, actor, method and named", t.Name, t.Kind)
	}
	if t.Backpressure == 0 {
		t.Backpressure = DefaultBackpressure
	}
	for name, a := range t.Resources {
		if a < 0 {
			return nil, errs.New(errs.EINVAL, "template %q asks for %v %s; an amount cannot be negative", t.Name, a, name)
		}
	}
	for name, a := range t.Placement {
		if a < 0 {
			return nil, errs.New(errs.EINVAL, "template %q asks for %v %s to be placed; an amount cannot be negative", t.Name, a, name)
		}
	}
	for name, a := range t.Resources {
		if t.Kind == Actor && t.Placement != nil && a > t.Placement[name] {
			return nil, errs.New(errs.EINVAL, "template %q is placed where %v %s are free and keeps %v; it cannot keep more than it was placed with", t.Name, t.Placement[name], name, a)
		}
	}
	if len(t.BlobObject) != 0 && len(t.BlobObject) != 2 {
		return nil, errs.New(errs.EINVAL, "template %q: blob_object has %d numbers instead of 2", t.Name, len(t.BlobObject))
	}
	return t, nil
}

func first(s ...string) string {
	for _, x := range s {
		if x != "" {
			return x
		}
	}
	return ""
}

// Demand is what the scheduler must know of a task of this template.
func (t *Template) Demand(env uint64) schedule.Demand {
	d := schedule.Demand{Resources: t.Resources, Env: env, Bundle: -1, Actor: t.Kind == Actor}
	if t.Kind == Actor && t.Placement != nil {
		d.Resources, d.Hold = t.Placement, t.Resources
		if d.Hold == nil {
			d.Hold = schedule.Resources{}
		}
	}
	if d.Resources == nil {
		d.Resources = schedule.Resources{}
	}
	switch t.Strategy.Type {
	case "node":
		d.Node, d.Soft = t.Strategy.Node, t.Strategy.Soft
	case "pg":
		d.Group, d.Bundle = t.Strategy.PG, t.Strategy.Bundle
	case "labels":
		for key, c := range t.Strategy.Hard {
			d.Labels = append(d.Labels, schedule.Label{Key: key, Op: c.Op, Values: c.Values})
		}
	}
	for key, text := range t.LabelSelector {
		d.Labels = append(d.Labels, schedule.ParseSelector(key, text))
	}
	schedule.SortLabels(d.Labels)
	return d
}
