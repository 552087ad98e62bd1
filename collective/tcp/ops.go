package tcp

import (
	"sync"
	"time"
)

// smallBytes is up to which size all that the nodes give together is gathered and reduced by each.
const smallBytes = 128 << 10

// streamBytes is the least that a data connection of its own is used for.
const streamBytes = 1 << 20

// Allreduce reduces buf over all nodes, in place.
func (m *Mesh) Allreduce(buf []byte, count, dtype, op int, timeout time.Duration) error {
	size := m.cfg.Kernel.Size(dtype)
	reduce := func(dst, src []byte) { m.cfg.Kernel.Reduce(dst, src, dtype, op) }
	return m.do(head{kind: Allreduce, dtype: dtype, op: op, count: count}, timeout, func(head []byte, check func([]byte) error) error {
		if len(buf)*(m.cfg.Nodes-1) <= smallBytes {
			return m.reduceSmall(buf, head, check, dtype, op)
		}
		n := m.cfg.Nodes
		return m.ring(stripes(len(buf), size, m.streamsFor(len(buf))), head, check, buf, reduce, func(s span, f *flow) {
			part := parts(s, n, size)
			f.first = part[m.node(0)]
			for step := 1; step < n; step++ {
				f.pieces = pieces(f.pieces, part[m.node(-step)], size, true, true)
			}
			for step := range n - 1 {
				f.pieces = pieces(f.pieces, part[m.node(-step)], size, false, step < n-2)
			}
		})
	})
}

// Reducescatter reduces; node i keeps elements offsets[i] to offsets[i+1]. The rest of buf is left undefined.
func (m *Mesh) Reducescatter(buf []byte, offsets []int, dtype, op int, timeout time.Duration) error {
	size := m.cfg.Kernel.Size(dtype)
	reduce := func(dst, src []byte) { m.cfg.Kernel.Reduce(dst, src, dtype, op) }
	n := m.cfg.Nodes
	return m.do(head{kind: Reducescatter, dtype: dtype, op: op, count: offsets[n]}, timeout, func(head []byte, check func([]byte) error) error {
		streams := m.streamsFor(len(buf))
		return m.ring(make([]span, streams), head, check, buf, reduce, func(_ span, f *flow) {
			f.first = m.share(offsets, m.node(-1), size, f.stream, streams)
			for step := 2; step <= n; step++ {
				f.pieces = pieces(f.pieces, m.share(offsets, m.node(-step), size, f.stream, streams), size, true, step < n)
			}
		})
	})
}

// Allgather gives every node all; node i's own are bytes offsets[i] to offsets[i+1] of buf.
func (m *Mesh) Allgather(buf []byte, offsets []int, timeout time.Duration) error {
	n := m.cfg.Nodes
	return m.do(head{kind: Allgather, count: offsets[n]}, timeout, func(head []byte, check func([]byte) error) error {
		if len(buf) <= smallBytes {
			return m.gatherSmall(head, check, func(position int) []byte {
				node := m.node(-position)
				return buf[offsets[node]:offsets[node+1]]
			})
		}
		streams := m.streamsFor(len(buf))
		return m.ring(make([]span, streams), head, check, buf, nil, func(_ span, f *flow) {
			f.first = m.share(offsets, m.node(0), 1, f.stream, streams)
			for step := 1; step < n; step++ {
				f.pieces = pieces(f.pieces, m.share(offsets, m.node(-step), 1, f.stream, streams), 1, false, step < n-1)
			}
		})
	})
}

// Broadcast gives all nodes the bytes of the node root.
func (m *Mesh) Broadcast(buf []byte, root int, timeout time.Duration) error {
	return m.do(head{kind: Broadcast, root: root, count: len(buf)}, timeout, func(head []byte, check func([]byte) error) error {
		n := m.cfg.Nodes
		place := ((m.cfg.Node-root)%n + n) % n // in the chain that begins at root
		if n > 2 && len(buf) <= smallBytes {
			return m.spreadSmall(buf, place, head, check)
		}
		return m.ring(stripes(len(buf), 1, m.streamsFor(len(buf))), head, check, buf, nil, func(s span, f *flow) {
			if place == 0 {
				f.first = s
			} else {
				f.pieces = pieces(nil, s, 1, false, place < n-1)
			}
		})
	})
}

func (m *Mesh) streamsFor(bytes int) int { return max(1, min(bytes/streamBytes, m.cfg.Streams)) }

// stripes cuts n bytes into parts of whole elements.
func stripes(n, size, count int) []span { return parts(span{0, n}, count, size) }

// parts cuts a span into n nearly equal ones of whole elements.
func parts(s span, n, size int) []span {
	out := make([]span, n)
	elements := s.n / size
	for i := range out {
		from, to := elements*i/n, elements*(i+1)/n
		out[i] = span{s.at + from*size, (to - from) * size}
	}
	return out
}

// share is the part of a node's block that one of the streams carries.
func (m *Mesh) share(offsets []int, node, size, stream, streams int) span {
	block := span{offsets[node] * size, (offsets[node+1] - offsets[node]) * size}
	return parts(block, streams, size)[stream]
}

// ring runs a flow for each stripe, from the node before to the one after. The first carries the head.
func (m *Mesh) ring(stripes []span, head []byte, check func([]byte) error, buf []byte, reduce func(dst, src []byte), plan func(span, *flow)) error {
	flows := make([]*flow, len(stripes))
	for i, s := range stripes {
		f := &flow{stream: i, out: m.out[1][i], in: m.in[1][i], buf: buf, reduce: reduce}
		if i == 0 {
			f.head, f.check = head, check
		}
		plan(s, f)
		flows[i] = f
	}
	errors := make([]error, len(flows))
	var others sync.WaitGroup
	for i, f := range flows[1:] {
		others.Go(func() {
			if errors[i+1] = f.run(); errors[i+1] != nil {
				m.stopFlows()
			}
		})
	}
	if errors[0] = flows[0].run(); errors[0] != nil {
		m.stopFlows()
	}
	others.Wait()
	// Of several, a fault in words says more than the connections that it closed.
	var first error
	for _, err := range errors {
		if _, plain := err.(linkError); err != nil && (first == nil || !plain) {
			first = err
		}
	}
	return first
}

// stopFlows ends the flows beside one that failed; the mesh is broken then.
func (m *Mesh) stopFlows() {
	for _, l := range m.links() {
		l.shut()
	}
}

// exchange sends to the node at this distance and receives from the one at the opposite.
func (m *Mesh) exchange(distance int, head []byte, check func([]byte) error, send []byte, receive []byte) error {
	f := &flow{head: head, check: check}
	if head != nil || len(send) > 0 {
		f.out = m.out[distance][0]
	}
	if check != nil || len(receive) > 0 {
		f.in = m.in[distance][0]
	}
	// One buffer for both would want a copy: the flow only ever indexes what it is told.
	f.queue = queueOf(head, send)
	f.head, f.buf = nil, receive
	f.pieces = pieces(nil, span{0, len(receive)}, 1, false, false)
	return f.run()
}

func queueOf(head, send []byte) [][]byte {
	switch {
	case head != nil && len(send) <= coalesced:
		return [][]byte{append(head[:len(head):len(head)], send...)}
	case head != nil:
		return [][]byte{head, send}
	case len(send) > 0:
		return [][]byte{send}
	}
	return nil
}

// gatherSmall has every node get every block, in rounds in which what is there doubles. block(i) is that of the node i before this one.
func (m *Mesh) gatherSmall(head []byte, check func([]byte) error, block func(position int) []byte) error {
	n := m.cfg.Nodes
	for _, d := range m.steps() {
		blocks := min(d, n-d)
		var send []byte
		incoming := 0
		for i := range blocks {
			if blocks == 1 {
				send = block(0)
			} else {
				send = append(send, block(i)...)
			}
			incoming += len(block(d + i))
		}
		receive := block(d)
		if blocks > 1 {
			receive = make([]byte, incoming)
		}
		if err := m.exchange(d, head, check, send, receive); err != nil {
			return err
		}
		head, check = nil, nil
		if blocks > 1 {
			for i := range blocks {
				receive = receive[copy(block(d+i), receive):]
			}
		}
	}
	return nil
}

// reduceSmall gathers all arrays and reduces them here, in the order of nodes: all get the same bits.
func (m *Mesh) reduceSmall(buf, head []byte, check func([]byte) error, dtype, op int) error {
	n := m.cfg.Nodes
	if need := n * len(buf); len(m.small) < need {
		m.small = make([]byte, need)
	}
	of := func(node int) []byte { return m.small[node*len(buf) : (node+1)*len(buf)] }
	copy(of(m.cfg.Node), buf)
	if err := m.gatherSmall(head, check, func(position int) []byte { return of(m.node(-position)) }); err != nil {
		return err
	}
	if len(buf) > 0 {
		m.cfg.Kernel.Fold(buf, m.small[:n*len(buf)], n, dtype, op)
	}
	return nil
}

// spreadSmall sends along a tree: in the round of distance d, the first d nodes of the chain have it and send it d farther.
func (m *Mesh) spreadSmall(buf []byte, place int, head []byte, check func([]byte) error) error {
	n := m.cfg.Nodes
	for _, d := range m.steps() {
		var send, receive []byte
		if place < d && place+d < n {
			send = buf
		}
		if place >= d && place < 2*d {
			receive = buf
		}
		if err := m.exchange(d, head, check, send, receive); err != nil {
			return err
		}
		head, check = nil, nil
	}
	return nil
}
