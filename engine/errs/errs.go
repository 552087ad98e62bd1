package errs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Code is one cause. It is an error, so that errors.Is(err, errs.ESTOREFULL) asks for it.
type Code int32

type cause struct{ name, meaning string }

// Error returns the cause's meaning.
func (c Code) Error() string {
	if known, ok := table[c]; ok {
		return known.meaning
	}
	return fmt.Sprintf("unknown cause %d", int32(c))
}

// Name returns the cause's name as the C header has it, without the prefix.
func (c Code) Name() string {
	if known, ok := table[c]; ok {
		return known.name
	}
	return fmt.Sprintf("E%d", int32(c))
}

// coded is an error whose text says everything; the code only classifies it.
type coded struct {
	code  Code
	text  string
	cause error
}

func (e *coded) Error() string { return e.text }

// Unwrap makes both the code and a wrapped cause visible to errors.Is and errors.As.
func (e *coded) Unwrap() []error {
	if e.cause == nil {
		return []error{e.code}
	}
	return []error{e.code, e.cause}
}

// New makes an error of the given cause. The text is for the user: what happened, to what, and what to do. It takes %w like fmt.Errorf.
func New(code Code, format string, args ...any) error {
	wrapped := fmt.Errorf(format, args...)
	return &coded{code: code, text: wrapped.Error(), cause: unwrapAny(wrapped)}
}

// unwrapAny returns what the %w verbs of fmt.Errorf wrapped, if anything.
func unwrapAny(err error) error {
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return u.Unwrap()
	case interface{ Unwrap() []error }:
		return errors.Join(u.Unwrap()...)
	}
	return nil
}

// CodeOf returns the cause of err: the outermost code, a code that stands for a well-known error of the standard library, or EINTERNAL.
func CodeOf(err error) Code {
	var code Code
	switch {
	case err == nil:
		return OK
	case errors.As(err, &code):
		return code
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return ETIMEDOUT
	case errors.Is(err, context.Canceled):
		return ECANCELED
	case errors.Is(err, syscall.ENOSPC):
		return EOUTOFDISK
	case errors.Is(err, syscall.ENOMEM):
		return ENOMEM
	}
	return EINTERNAL
}
