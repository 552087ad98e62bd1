// Package ids makes the public forms of the engine's numbers.
//
// Inside a session everything is named by a 64-bit number that the process which made it chose: prefix<<32 | counter. What leaves a session,
// in Python's reprs, in the state API or in logs, is longer, so that two sessions cannot be confused: it carries the incarnation, a random
// number that the engine draws when it starts.
package ids
