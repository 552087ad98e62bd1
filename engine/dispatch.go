package engine

import (
	"fmt"

	"github.com/raygo/raygo/engine/errs"
	"github.com/raygo/raygo/engine/wire"
)

// frames takes whole frames of one peer. What is malformed ends the connection: nothing after it could be trusted.
func (n *Node) frames(p *peer, in []byte) {
	for len(in) > 0 && !p.gone {
		h, payload, rest, err := wire.Next(in)
		if err == nil {
			in = rest
			err = n.frame(p, h, payload)
		}
		if err != nil {
			n.refuse(p, err)
			return
		}
	}
}

func (n *Node) frame(p *peer, h wire.Header, b []byte) error {
	if p.job == nil {
		if h.Type != wire.Hello {
			return errs.New(errs.EINVAL, "a frame of type %d before HELLO", h.Type)
		}
		err := n.hello(p, b)
		if err != nil {
			p.send(wire.Reply, uint16(errs.CodeOf(err)), 0, pack(err.Error()))
			p.flush()
		}
		return err
	}
	switch h.Type {
	case wire.Submit:
		s, err := wire.ParseSubmit(b)
		if err != nil {
			return err
		}
		return n.submit(p, h, &s)
	case wire.Result:
		r, err := wire.ParseResult(b)
		if err != nil {
			return err
		}
		return n.result(p, h.ID, &r)
	case wire.Release:
		oids, err := wire.ParseOIDs(b)
		for i := range oids.Len() {
			if o := n.find(oids.At(i)); o != nil {
				n.letGo(o, p)
			}
		}
		return err
	case wire.AddRef:
		oids, err := wire.ParseOIDs(b)
		for i := range oids.Len() {
			if o := n.find(oids.At(i)); o != nil { // else: whoever asks for its value is told that it is gone
				n.hold(o, p)
			}
		}
		return err
	case wire.Subscribe, wire.Pin:
		oids, err := wire.ParseOIDs(b)
		for i := range oids.Len() {
			n.subscribe(p, oids.At(i), h.Type == wire.Pin)
		}
		return err
	case wire.Unpin:
		oids, err := wire.ParseOIDs(b)
		for i := range oids.Len() {
			n.unpin(p, oids.At(i))
		}
		return err
	case wire.Put, wire.Seal:
		v, err := wire.ParseValue(b)
		if err != nil {
			return err
		}
		return n.put(p, h.ID, v)
	case wire.Create:
		c, err := wire.ParseCreate(b)
		if err != nil {
			return err
		}
		return n.create(p, h.ID, c, h.Flags&wire.FlagLease != 0)
	case wire.Abort:
		oids, err := wire.ParseOIDs(b)
		for i := range oids.Len() {
			n.abort(p, oids.At(i))
		}
		return err
	case wire.Template:
		return n.defineTemplate(p, h.ID, b)
	case wire.Call:
		return n.callFrame(p, h.ID, b)
	case wire.Cancel:
		n.cancel(h.ID, h.Flags&wire.FlagForce != 0, h.Flags&wire.FlagRecursive != 0)
		return nil
	case wire.Kill:
		n.kill(h.ID, h.Flags&wire.FlagNoRestart != 0)
		return nil
	case wire.Item:
		v, err := wire.ParseValue(b)
		if err != nil {
			return err
		}
		return n.item(p, h.ID, v)
	case wire.Consumed:
		k, err := wire.ParseUint64(b)
		if err == nil {
			n.consumed(p, h.ID, k)
		}
		return err
	case wire.Blocked:
		oids, err := wire.ParseOIDs(b)
		if err == nil {
			n.blocked(p, h.ID, oids, h.Flags)
		}
		return err
	case wire.Unblocked:
		n.unblocked(p, h.ID, h.Flags)
		return nil
	case wire.Return:
		nums, err := wire.ParseUint64s(b)
		if err == nil {
			n.returned(p, nums)
		}
		return err
	case wire.Site:
		s, err := wire.ParseSite(b)
		if err == nil {
			n.noteSite(p, h.ID, s)
		}
		return err
	case wire.ChunkAsk:
		size, err := wire.ParseUint64(b)
		if err == nil {
			n.lend(p, size)
		}
		return err
	case wire.ChunkBack:
		ranges, err := wire.ParseRanges(b)
		for i := 0; i < len(ranges) && err == nil; i++ {
			err = n.chunkBack(p, ranges[i].Offset, ranges[i].Size)
		}
		return err
	case wire.Goodbye:
		n.dropPeer(p, nil)
		return nil
	}
	return fmt.Errorf("%w: unknown type %d", wire.ErrMalformed, h.Type)
}
