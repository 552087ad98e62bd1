// Package worker starts worker processes and reads what they print.
//
// Workers are forked by a template: a Python process with one thread that has imported what a job's workers need (python/raygo/_template.py;
// PROTOCOL.md in engine/wire has the conversation). There is one template per job and runtime environment. Forking takes a few milliseconds,
// where a fresh interpreter with the same imports takes seconds and memory of its own.
//
// What the package guarantees:
//
//   - Every fork that was asked for ends in exactly one of: Forked, the end of its connection (the template could not fork; StderrTail says
//     why), or Gone. Every Forked is followed by Exited unless Gone comes first.
//   - All that a worker writes to stdout and stderr reaches its log files and, as Records, the Output function: whole lines, in order per
//     stream, also when the worker is killed.
//   - Close is idempotent, joins all goroutines, and leaves no template process.
//
// It leaves to its callers what a worker's connection says, when to start and end workers, and what a death means.
//
// A template has one goroutine that reads its control socket and calls the Handler, one that sends requests, one that waits for the
// process, and two per live worker that read its output. Locks: stream.mu before merger.mu; Template.mu is taken by itself.
package worker
