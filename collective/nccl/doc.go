// Package nccl runs collectives on NVIDIA's GPUs by NCCL, which is opened when the first group is made and not needed before.
//
// A communicator is made without blocking, so that a rank that does not come ends the attempt at the timeout. Calls are queued on the
// stream that the caller names, in the context that is current on its thread; they return when they are queued. NCCL tells of faults only
// when it is asked: a watcher asks, looks whether what was queued has been done in time, and aborts the communicator otherwise. An abort
// ends the kernels on all streams that wait for other ranks.
package nccl
