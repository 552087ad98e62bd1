// Package engine is one machine's node: it owns the objects, decides what runs, keeps the worker processes and speaks with every process that
// takes part. There is one per machine; on a laptop it lives in the driver's own process.
//
// Processes are peers (peer.go): the one that holds the engine hands frames over by a call, all others by a Unix socket. What frames mean is
// written in engine/wire/PROTOCOL.md; dispatch.go is its table of contents.
//
// Everything runs on one strand (strand.go): steps one after the other, on the thread of whoever brings them. So state needs no locks, and a
// step must never block: processes are started, output is read and disks are waited for on goroutines, which post what follows. LOCKS.md lists the few locks
// there are. At the end of a round of steps the scheduler is asked once (run.go) and every process gets its frames in one write.
//
// Decisions without I/O are in packages of their own: schedule (who runs next), actor (mailboxes, restarts, names), ownership (when an object goes). Here they are joined:
//
//	objects.go     values, who gets them, waiting for them      storage.go    the arena: create, seal, pin
//	tasks.go       a task from SUBMIT to its end                run.go        leases, sending tasks, results, prefetch
//	admission.go   whose arguments may be in memory             exec.go       what a process is sent
//	workers.go     processes: pool, death                       envs.go       templates of processes, runtime environments
//	actors.go      actors and their calls                       generators.go streams of values
//	jobs.go        drivers, and what ends with them             groups.go     placement groups
//	lineage.go     what it takes to run ended tasks again       rebuild.go    lost values made again
//	deadlock.go    waits that cannot end                        infeasible.go demands that cannot be met
//	memory.go      ending processes before memory runs out
//	explain.go     what a wait is waiting for                   calls.go …    questions and answers; state for tools
//
// What the engine guarantees: every submitted task's values become ready, with a value or an error that says what happened; an object is freed when
// nobody holds or needs it, and not before; resources that were leased come back whatever dies; nothing the user's processes send can stop it.
package engine
