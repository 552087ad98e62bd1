package tcp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// post begins a message and returns where its end is told.
func post(m *Mesh, send bool, peer int, tag uint32, buf []byte) (*Message, chan *Fault) {
	done := make(chan *Fault, 1)
	x := &Message{Send: send, Peer: peer, Tag: tag, Buf: buf, Done: func(f *Fault) { done <- f }}
	m.Post(x)
	return x, done
}

func outcome(t *testing.T, done chan *Fault) *Fault {
	t.Helper()
	select {
	case f := <-done:
		return f
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		return nil
	}
}

func TestMessagesKeepTheirOrder(t *testing.T) {
	modes(t, func(t *testing.T, change func(*Config)) {
		meshes := cluster(t, []int{2, 2}, change)
		for _, size := range []int{0, 3, maxEager, maxEager + 1, 3 << 20} {
			for _, receiveFirst := range []bool{true, false} {
				var sends, receives []chan *Fault
				var got [][]byte
				begin := func() {
					for i := range 5 {
						got = append(got, make([]byte, size))
						_, done := post(meshes[2], false, 1, uint32(i%2), got[i])
						receives = append(receives, done)
					}
				}
				if receiveFirst {
					begin()
				}
				for i := range 5 {
					_, done := post(meshes[1], true, 2, uint32(i%2), bytes.Repeat([]byte{byte(i + 1)}, size))
					sends = append(sends, done)
				}
				if !receiveFirst {
					begin()
				}
				for i := range 5 {
					if f := outcome(t, sends[i]); f != nil {
						t.Fatal(f)
					}
					if f := outcome(t, receives[i]); f != nil {
						t.Fatal(f)
					}
					if !bytes.Equal(got[i], bytes.Repeat([]byte{byte(i + 1)}, size)) {
						t.Errorf("message %d of %d bytes is another", i, size)
					}
				}
			}
		}
	})
}

func TestManyMessagesNobodyAsksForYet(t *testing.T) {
	meshes := cluster(t, ones(2), nil)
	const n = 3 * maxPending
	var sends []chan *Fault
	for i := range n {
		_, done := post(meshes[0], true, 1, 0, []byte(fmt.Sprintf("%4d", i)))
		sends = append(sends, done)
	}
	for i := range n {
		got := make([]byte, 4)
		_, done := post(meshes[1], false, 0, 0, got)
		if f := outcome(t, done); f != nil || string(got) != fmt.Sprintf("%4d", i) {
			t.Fatalf("message %d is %q, %v", i, got, f)
		}
		if f := outcome(t, sends[i]); f != nil {
			t.Fatal(f)
		}
	}
}

func TestLengthsThatDiffer(t *testing.T) {
	meshes := cluster(t, ones(2), nil)
	for _, size := range []int{10, 1 << 20} {
		_, sent := post(meshes[0], true, 1, 7, make([]byte, size))
		_, received := post(meshes[1], false, 0, 7, make([]byte, size+1))
		for _, done := range []chan *Fault{sent, received} {
			f := outcome(t, done)
			if f == nil || f.Code != errs.EINVAL || !strings.Contains(f.Text, fmt.Sprintf("sent %d bytes with tag 7", size)) || !strings.Contains(f.Text, fmt.Sprint(size+1)) {
				t.Errorf("%v", f)
			}
		}
	}
	if f := meshes[0].Fault(); f != nil {
		t.Errorf("the group broke: %v", f)
	}
}

func TestCancelledMessagesAreForgotten(t *testing.T) {
	meshes := cluster(t, ones(2), nil)
	big := make([]byte, 1<<20)
	x, sent := post(meshes[0], true, 1, 0, big)
	if !meshes[0].Cancel(x) || meshes[0].Cancel(x) {
		t.Error("the send was not cancelled, or twice")
	}
	y, received := post(meshes[1], false, 0, 0, make([]byte, 1))
	if !meshes[1].Cancel(y) || len(sent)+len(received) != 0 {
		t.Error("the receive was not cancelled, or something ended")
	}
	copy(big, "what counts")
	_, sent = post(meshes[0], true, 1, 0, big)
	got := make([]byte, len(big))
	_, received = post(meshes[1], false, 0, 0, got)
	if f := outcome(t, received); f != nil || !bytes.Equal(got, big) {
		t.Errorf("%v", f)
	}
	if f := outcome(t, sent); f != nil {
		t.Error(f)
	}
}

func TestAbortEndsMessages(t *testing.T) {
	meshes := cluster(t, []int{1, 2}, nil)
	_, received := post(meshes[2], false, 0, 0, make([]byte, 10))
	_, sent := post(meshes[0], true, 1, 0, make([]byte, 1<<20))
	meshes[2].Abort(&Fault{errs.EGROUP, -1, "enough"})
	meshes[0].Abort(&Fault{errs.EGROUP, -1, "enough"})
	for _, done := range []chan *Fault{sent, received} {
		if f := outcome(t, done); f == nil || f.Code != errs.EGROUP || f.Text != "enough" {
			t.Errorf("%v", f)
		}
	}
	_, late := post(meshes[2], false, 0, 0, nil)
	if f := outcome(t, late); f == nil || f.Text != "enough" {
		t.Errorf("%v", f)
	}
}

func TestOfferOfOneWhoLeft(t *testing.T) {
	meshes := cluster(t, ones(2), nil)
	_, sent := post(meshes[0], true, 1, 3, make([]byte, 1<<20))
	key := stream{0, 3}
	s := &meshes[1].messages
	for offered := false; !offered; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		offered = len(s.mu.offers[key]) > 0
		s.mu.Unlock()
	}
	meshes[0].Close()
	if f := outcome(t, sent); f == nil {
		t.Error("the send went well, though nobody received")
	}
	for there := true; there; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		there = len(s.mu.ins) > 0
		s.mu.Unlock()
	}
	_, received := post(meshes[1], false, 0, 3, make([]byte, 1<<20))
	if f := outcome(t, received); f == nil || f.Code != errs.EGROUP || f.Rank != 0 || !strings.Contains(f.Text, "before it had sent the 1048576 bytes") {
		t.Errorf("%v", f)
	}
}

func TestCancelBeforeItIsPosted(t *testing.T) {
	meshes := cluster(t, ones(2), nil)
	for _, send := range []bool{true, false} {
		if meshes[0].Cancel(&Message{Send: send, Peer: 1, Done: func(*Fault) {}}) {
			t.Error("what was not posted yet was cancelled; it would be posted afterwards")
		}
	}
}
