// Package arrowipc reads and writes the Arrow IPC streams that values of format RG_B_ARROW are, without copying the data on the way.
//
// [Open] gives batches over memory that stays the caller's until the last of them goes. [Gather] lists what a stream consists of, so that it can be
// written once, to where it belongs. In streams written here every buffer begins at a multiple of 64 from the stream's beginning.
package arrowipc
