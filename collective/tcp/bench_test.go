package tcp_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/raygo/raygo/collective"
	"github.com/raygo/raygo/collective/tcp"
	"github.com/raygo/raygo/engine/errs"
)

type memory struct{ sync.Map }

func (s *memory) Set(key string, value []byte) error { s.Store(key, value); return nil }

func (s *memory) Get(key string, timeout time.Duration) ([]byte, error) {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if value, ok := s.Load(key); ok {
			return value.([]byte), nil
		}
	}
	return nil, errs.New(errs.ETIMEDOUT, "no %s", key)
}

// BenchmarkAllreduce sums float32 arrays of nodes that are connected through loopback.
func BenchmarkAllreduce(b *testing.B) {
	const float32s, sum = 10, 0
	for _, nodes := range []int{2, 3} {
		store := &memory{}
		var nodeOf []int
		var names []string
		for i := range nodes {
			nodeOf, names = append(nodeOf, i), append(names, fmt.Sprint(i))
		}
		meshes := make([]*tcp.Mesh, nodes)
		var wg sync.WaitGroup
		for i := range nodes {
			wg.Go(func() {
				m, err := tcp.Open(tcp.Config{
					Name: "b", Rank: i, Size: nodes, Node: i, Nodes: nodes, NodeOf: nodeOf, LeaderOf: nodeOf, NodeNames: names, Store: store,
					Timeout: time.Minute, Fail: func(*tcp.Fault) {}, Where: tcp.Where{Address: "127.0.0.1"},
					Kernel: tcp.Kernel{Size: collective.Size, Reduce: collective.Reduce, Fold: collective.Fold, Name: collective.CallName},
				})
				if err != nil {
					b.Error(err)
				}
				meshes[i] = m
			})
		}
		wg.Wait()
		if b.Failed() {
			return
		}
		for _, size := range []int{4, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 25 << 20, 100 << 20} {
			bufs := make([][]byte, nodes)
			for i := range bufs {
				bufs[i] = make([]byte, size)
			}
			b.Run(fmt.Sprintf("%d nodes/%d", nodes, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for i, m := range meshes {
					wg.Go(func() {
						for range b.N {
							if err := m.Allreduce(bufs[i], size/4, float32s, sum, time.Minute); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
		for _, m := range meshes {
			m.Close()
		}
	}
}
