package engine

import (
	"fmt"
	"testing"
)

func TestWarningsAreForgottenInTime(t *testing.T) {
	var w warnings
	if !w.first("a") || w.first("a") {
		t.Error("a warning is said other than once")
	}
	for i := range warningsKept {
		w.first(fmt.Sprint(i))
	}
	if len(w.said) != warningsKept || len(w.order) != warningsKept {
		t.Errorf("%d and %d warnings are remembered", len(w.said), len(w.order))
	}
	if !w.first("a") {
		t.Error("the oldest warning is remembered still")
	}
}
