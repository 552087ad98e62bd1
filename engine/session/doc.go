// Package session owns a running engine's folder: socket, logs, and the note by which other programs find it.
//
// A session's folder is <temp>/raygo-<uid>/session_<time>_<pid>, readable by its user only; session_latest beside it points to the newest.
// session.json in it says which process serves which socket. Folders of engines that are gone stay for their logs, the newest of them; Create
// removes the rest.
//
// The socket lies in the folder, or, when that path is too long for a socket's address, in a private folder with a short name. Only processes
// of the same user are let in: by the file's mode, and by the kernel's word on who connected.
package session
