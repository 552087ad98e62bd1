package errs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
)

func TestCodeOf(t *testing.T) {
	wrapped := New(ENOTFOUND, "no actor %q: %w", "a", io.EOF)
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, OK},
		{ESTOREFULL, ESTOREFULL},
		{wrapped, ENOTFOUND},
		{fmt.Errorf("lookup: %w", wrapped), ENOTFOUND},
		{New(EACTORDIED, "restart: %w", wrapped), EACTORDIED},
		{context.DeadlineExceeded, ETIMEDOUT},
		{fmt.Errorf("write: %w", syscall.ENOSPC), EOUTOFDISK},
		{io.EOF, EINTERNAL},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %s, want %s", c.err, got.Name(), c.want.Name())
		}
	}
}

func TestNewKeepsTextAndCauses(t *testing.T) {
	err := New(EOUTOFDISK, "spill %d bytes: %w (%w)", 7, io.ErrShortWrite, syscall.ENOSPC)
	if got, want := err.Error(), "spill 7 bytes: short write (no space left on device)"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	for _, want := range []error{EOUTOFDISK, io.ErrShortWrite, syscall.ENOSPC} {
		if !errors.Is(err, want) {
			t.Errorf("%v is lost", want)
		}
	}
}

func TestUnknownCode(t *testing.T) {
	if got := Code(9999); got.Name() != "E9999" || got.Error() != "unknown cause 9999" {
		t.Errorf("name %q, text %q", got.Name(), got.Error())
	}
}
