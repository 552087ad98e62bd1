// Package errs holds the causes an operation can fail for.
//
// A [Code] is an error itself, one sentinel per cause, numbered by capi/errors.tsv: the same number leaves through the C ABI and becomes an
// exception in Python. Wrap a code once, with the operation and the id it concerns:
//
//	return errs.New(errs.ENOTFOUND, "no actor %q in namespace %q", name, namespace)
//
// [CodeOf] finds the code again however deep it was wrapped; an error without one is EINTERNAL, so that nothing leaves unnumbered.
package errs
