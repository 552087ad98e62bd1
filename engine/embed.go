package engine

import (
	"github.com/raygo/raygo/engine/errs"
)

// Conn is an embedded connection: frames in by Input, frames out by the function given to Attach.
type Conn struct{ p *peer }

// Attach connects the process that holds the engine. deliver gets whole frames, valid for the call, and must neither block nor call back.
// WELCOME has been delivered when Attach returns.
func (n *Node) Attach(hello []byte, deliver func([]byte)) (*Conn, error) {
	var c *Conn
	err := errs.New(errs.ESHUTDOWN, "the engine was stopped")
	n.call(func() {
		p := n.newPeer("")
		p.deliver = deliver
		if err = n.hello(p, hello); err != nil {
			delete(n.peers, p.num)
			return
		}
		c = &Conn{p}
	})
	return c, err
}

// Of says whether the connection is one of this node's.
func (c *Conn) Of(n *Node) bool { return c.p.n == n }

// Input hands whole frames over. They are borrowed for the call. It never blocks.
func (c *Conn) Input(frames []byte) error {
	n := c.p.n
	if n.strand.broken.Load() {
		_, log := n.Broken()
		return errs.New(errs.EINTERNAL, "a fault of raygo itself has stopped the engine; %s has the stacks", log)
	}
	if c.p.ended.Load() {
		return errs.New(errs.ECONNECTION, "the engine has ended this connection; %s says why", n.logPath())
	}
	if !n.strand.do(step{p: c.p, in: frames}, keepFrames, true) {
		return errs.New(errs.ESHUTDOWN, "the engine was stopped")
	}
	return nil
}

// keepFrames copies borrowed frames for a step that has to wait.
func keepFrames(st step) step {
	st.in = append([]byte(nil), st.in...)
	return st
}

// Detach ends the connection, as the end of a socket would.
func (c *Conn) Detach() {
	c.p.n.call(func() { c.p.n.dropPeer(c.p, nil) })
}

// call runs fn on the strand and waits for it. A broken or closed strand does not run it.
func (n *Node) call(fn func()) {
	done := make(chan struct{})
	if n.strand.post(func() { fn(); close(done) }) {
		select {
		case <-done:
		case <-n.strand.broke:
		}
	}
}
