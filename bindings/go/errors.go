package raygo

import "github.com/raygo/raygo/engine/errs"

// The causes of failure that programs tell apart with errors.Is. Numbers and meanings are those of capi/errors.tsv.
const (
	ErrInvalid    = errs.EINVAL
	ErrTimedOut   = errs.ETIMEDOUT
	ErrCancelled  = errs.ECANCELED
	ErrNotFound   = errs.ENOTFOUND
	ErrExists     = errs.EEXISTS
	ErrConnection = errs.ECONNECTION
	ErrTask       = errs.ETASK
	ErrWorkerDied = errs.EWORKERDIED
	ErrActorDied  = errs.EACTORDIED
	ErrStoreFull  = errs.ESTOREFULL
	ErrShutdown   = errs.ESHUTDOWN
)
