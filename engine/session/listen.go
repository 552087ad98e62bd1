package session

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Listen opens the session's socket. Its Accept returns only connections from processes of this user; others are closed.
func (s *Session) Listen() (net.Listener, error) {
	// The folder lets nobody else in, so it does not matter that the mode is set a moment later. (A umask would be the whole process's.)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.SocketPath, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err := os.Chmod(s.SocketPath, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("session: %w", err)
	}
	l.SetUnlinkOnClose(false) // Close removes it
	return &listener{UnixListener: l, uid: uint32(os.Getuid())}, nil
}

type listener struct {
	*net.UnixListener
	uid uint32
}

// Accept waits for a connection of this user, or of root.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peer(conn)
		if err == nil && (uid == l.uid || uid == 0) {
			return conn, nil
		}
		conn.Close()
	}
}

// peer asks the kernel which user is at the other end.
func peer(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(cerr, err); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

func answers(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
