package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// What a connection is for.
const (
	forControl = iota + 1
	forData
	forMessages // between two ranks
)

// hello is what a dialer says of itself.
type hello struct {
	use    uint32
	rank   uint32
	pid    uint32
	stream uint32 // of several data connections
}

const (
	magic     = "raygo-c1"
	nonceSize = 32
	helloSize = 16
)

// handshakeTimeout bounds what a stranger at the port can hold up, and how long a connection may take.
const handshakeTimeout = 10 * time.Second

var errRefused = errors.New("the other side refused this group's key: check that RAY_AUTH_TOKEN is the same on all nodes")

// groupKey is what ranks of one group have in common: a secret from their store, and the cluster's token.
func groupKey(name string, secret, token []byte) []byte {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "%s %d %s %s", magic, len(name), name, token)
	return h.Sum(nil)
}

func proof(key []byte, role string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(role))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func (h hello) encode() []byte {
	b := make([]byte, 0, helloSize)
	for _, v := range []uint32{h.use, h.rank, h.pid, h.stream} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func decodeHello(b []byte) hello {
	u := binary.LittleEndian.Uint32
	return hello{u(b), u(b[4:]), u(b[8:]), u(b[12:])}
}

// greet proves to who accepted the connection that this side knows the key, and has it do the same.
func greet(conn net.Conn, key []byte, h hello) error {
	h.pid = uint32(os.Getpid())
	theirs := make([]byte, len(magic)+nonceSize)
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return fmt.Errorf("it closed the connection at once: %w", err)
	}
	if string(theirs[:len(magic)]) != magic {
		return errors.New("what answers there is not a rank of this version of raygo")
	}
	mine := make([]byte, nonceSize)
	if _, err := rand.Read(mine); err != nil {
		return err
	}
	said := append(h.encode(), mine...)
	if _, err := conn.Write(append(said, proof(key, "dial", theirs, said)...)); err != nil {
		return err
	}
	answer := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return errRefused
	}
	if !hmac.Equal(answer, proof(key, "accept", mine, theirs)) {
		return errRefused
	}
	return nil
}

// welcome is the other side of greet.
func welcome(conn net.Conn, key []byte) (hello, error) {
	mine := append([]byte(magic), make([]byte, nonceSize)...)
	if _, err := rand.Read(mine[len(magic):]); err != nil {
		return hello{}, err
	}
	if _, err := conn.Write(mine); err != nil {
		return hello{}, err
	}
	said := make([]byte, helloSize+nonceSize+sha256.Size)
	if _, err := io.ReadFull(conn, said); err != nil {
		return hello{}, err
	}
	said, mac := said[:helloSize+nonceSize], said[helloSize+nonceSize:]
	if !hmac.Equal(mac, proof(key, "dial", mine, said)) {
		return hello{}, errRefused
	}
	_, err := conn.Write(proof(key, "accept", said[helloSize:], mine))
	return decodeHello(said), err
}

// TLS is what the connections are wrapped in; nil: nothing.
type TLS struct{ Certificate, Key, CA string }

// configs loads the files. Nodes show each other certificates of the same authority; a node's name is not in them, as it may have many.
func (t *TLS) configs() (server, client *tls.Config, err error) {
	if t == nil {
		return nil, nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("the certificate of this node (RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY): %w", err)
	}
	roots, err := loadRoots(t.CA)
	if err != nil {
		return nil, nil, err
	}
	common := tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
	server, client = common.Clone(), common.Clone()
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, roots
	client.InsecureSkipVerify = true // the name only: the chain is verified here
	client.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, roots) }
	return server, client, nil
}
