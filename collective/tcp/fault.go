package tcp

import (
	"errors"
	"fmt"

	"github.com/raygo/raygo/engine/errs"
)

// Fault is why a mesh broke, or a call could not be made.
type Fault struct {
	Code errs.Code
	Rank int // whom it is about; -1: nobody in particular
	Text string
}

func (f *Fault) Error() string { return f.Text }

func faultf(code errs.Code, rank int, format string, args ...any) *Fault {
	return &Fault{code, rank, fmt.Sprintf(format, args...)}
}

// AsFault gives an error the form that the C core wants.
func AsFault(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{errs.CodeOf(err), -1, err.Error()}
}
