// Package memmon says how short memory is and which process should go when it is too short.
//
//	source.go    what is in use, against which limit: the machine's, or those of the control groups the process is in
//	process.go   who holds it
//	policy.go    whose process is ended; pure
//
// Nothing here decides when to look, or ends a process: that is the engine's (engine/memory.go).
package memmon
