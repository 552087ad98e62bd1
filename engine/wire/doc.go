// Package wire reads and writes the frames that a process and its node engine exchange.
//
// capi/wire.h is the source of the layouts and PROTOCOL.md, beside this file, says what the frames mean; this package mirrors the former and
// knows nothing of the latter. Reading copies nothing: what a Parse function returns points into the bytes it was given and is valid as
// long as they are. Writing appends to a byte slice, so that many frames leave in one system call.
//
//	for len(in) > 0 {
//		h, payload, rest, err := wire.Next(in)
//		if err == wire.ErrShort {
//			break // the rest of this frame has not come yet
//		}
//		…
//		in = rest
//	}
//
// Parsing is strict: a count that does not fit the frame, a reserved field that is not zero or bytes left over are an error, after which the
// connection must end, for nothing that follows can be trusted.
package wire
