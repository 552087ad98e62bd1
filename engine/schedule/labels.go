package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Label is a condition on a node's labels.
type Label struct {
	Key    string
	Op     string // in, not_in, exists, absent
	Values []string
}

func (l Label) String() string {
	if len(l.Values) == 0 {
		return fmt.Sprintf("%s %s", l.Key, l.Op)
	}
	return fmt.Sprintf("%s %s (%s)", l.Key, l.Op, strings.Join(l.Values, ", "))
}

// Meets says whether the labels meet the condition.
func (l Label) Meets(labels map[string]string) bool {
	value, there := labels[l.Key]
	switch l.Op {
	case "in":
		return there && slices.Contains(l.Values, value)
	case "not_in":
		return !there || !slices.Contains(l.Values, value)
	case "exists":
		return there
	case "absent":
		return !there
	}
	return false
}

// ParseSelector reads the text form of a condition: "v", "!v", "in(a,b)" or "!in(a,b)".
func ParseSelector(key, text string) Label {
	op := "in"
	if rest, ok := strings.CutPrefix(text, "!"); ok {
		op, text = "not_in", rest
	}
	if inner, ok := strings.CutPrefix(text, "in("); ok && strings.HasSuffix(inner, ")") {
		var values []string
		for v := range strings.SplitSeq(strings.TrimSuffix(inner, ")"), ",") {
			values = append(values, strings.TrimSpace(v))
		}
		return Label{key, op, values}
	}
	return Label{key, op, []string{text}}
}

// SortLabels puts conditions into one order, so that equal sets make equal demands.
func SortLabels(labels []Label) {
	slices.SortFunc(labels, func(a, b Label) int { return strings.Compare(a.String(), b.String()) })
}
