// Command capi is built into libraygo.so: the node engine for the process that loads it, behind the C ABI.
//
//	go build -buildmode=c-shared -o libraygo.so ./capi
//
// The Go side is small. exports.go has the functions that C calls; engine.c gives them the names of engine.h and refuses forked children before
// Go is entered, where they would hang. The C files beside them are the client (client*.c) and raygo.h over it (abi*.c): they need no Go and are
// compiled into Python's binding too.
//
// Handles are numbers, never Go pointers; see handles.go. No panic crosses into C: it becomes EINTERNAL, its stacks go to the session's log once,
// and the engine takes no further step.
package main
