package tcp

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/raygo/raygo/engine/errs"
)

// memory is a store in this process.
type memory struct {
	mu   sync.Mutex
	keys map[string][]byte
	cond *sync.Cond
}

func newMemory() *memory {
	s := &memory{keys: map[string][]byte{}}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *memory) Set(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = value
	s.cond.Broadcast()
	return nil
}

func (s *memory) Get(key string, timeout time.Duration) ([]byte, error) {
	late := false
	if timeout >= 0 {
		timer := time.AfterFunc(timeout, func() {
			s.mu.Lock()
			late = true
			s.mu.Unlock()
			s.cond.Broadcast()
		})
		defer timer.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.keys[key] == nil {
		if late {
			return nil, errs.New(errs.ETIMEDOUT, "no value for %q within %v", key, timeout)
		}
		s.cond.Wait()
	}
	return s.keys[key], nil
}

// The kernel of the tests knows two types: 0 is int64, 1 is float32; and sums.
var testKernel Kernel

func init() {
	testKernel = Kernel{
		Size:   func(dtype int) int { return []int{8, 4}[dtype] },
		Reduce: func(dst, src []byte, dtype, op int) { add(dst, src, dtype) },
		Fold: func(dst, all []byte, n int, dtype, op int) {
			copy(dst, all)
			for i := 1; i < n; i++ {
				add(dst, all[i*len(dst):], dtype)
			}
		},
		Name: func(dtype, op int) string { return []string{"int64", "float32"}[dtype] },
	}
}

func add(dst, src []byte, dtype int) {
	u := binary.LittleEndian
	for i := 0; i < len(dst); i += testKernel.Size(dtype) {
		if dtype == 0 {
			u.PutUint64(dst[i:], u.Uint64(dst[i:])+u.Uint64(src[i:]))
		} else {
			u.PutUint32(dst[i:], math.Float32bits(math.Float32frombits(u.Uint32(dst[i:]))+math.Float32frombits(u.Uint32(src[i:]))))
		}
	}
}

// cluster opens one mesh per rank; ranks stand for nodes as perNode says.
func cluster(t testing.TB, perNode []int, change func(*Config)) []*Mesh {
	t.Helper()
	store := newMemory()
	var nodeOf, leaderOf []int
	var names []string
	for node, ranks := range perNode {
		leaderOf = append(leaderOf, len(nodeOf))
		names = append(names, fmt.Sprintf("n%d", node))
		for range ranks {
			nodeOf = append(nodeOf, node)
		}
	}
	meshes := make([]*Mesh, len(nodeOf))
	var wg sync.WaitGroup
	for rank, node := range nodeOf {
		wg.Go(func() {
			cfg := Config{
				Name: "g", Rank: rank, Size: len(nodeOf), Node: node, Nodes: len(perNode), NodeOf: nodeOf, LeaderOf: leaderOf, NodeNames: names,
				Store: store, Timeout: 30 * time.Second, Fail: func(*Fault) {}, Kernel: testKernel, Where: Where{Address: "127.0.0.1"},
			}
			if change != nil {
				change(&cfg)
			}
			var err error
			if meshes[rank], err = Open(cfg); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, m := range meshes {
			if m != nil {
				m.Close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return meshes
}

// each runs f for every mesh at once and returns what they said.
func each(meshes []*Mesh, f func(i int, m *Mesh) error) []error {
	out := make([]error, len(meshes))
	var wg sync.WaitGroup
	for i, m := range meshes {
		wg.Go(func() { out[i] = f(i, m) })
	}
	wg.Wait()
	return out
}

func must(t testing.TB, errors []error) {
	t.Helper()
	for i, err := range errors {
		if err != nil {
			t.Fatalf("node %d: %v", i, err)
		}
	}
}

func ones(nodes int) []int {
	out := make([]int, nodes)
	for i := range out {
		out[i] = 1
	}
	return out
}

func numbers(n int, f func(i int) int64) []byte {
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, uint64(f(i)))
	}
	return b
}

func at(b []byte, i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }

var sizes = []int{0, 1, 2, 7, 1000, 5000, 40_000, 300_001}

func modes(t *testing.T, f func(t *testing.T, change func(*Config))) {
	t.Run("plain", func(t *testing.T) { f(t, nil) })
	files := certificates(t)
	t.Run("tls", func(t *testing.T) { f(t, func(c *Config) { c.TLS = files }) })
	t.Run("streams", func(t *testing.T) { f(t, func(c *Config) { c.Streams = 4 }) })
}

func TestCollectives(t *testing.T) {
	modes(t, func(t *testing.T, change func(*Config)) {
		for nodes := 2; nodes <= 5; nodes++ {
			meshes := cluster(t, ones(nodes), change)
			for _, n := range sizes {
				if n > 100_000 && nodes != 3 {
					continue // it takes long under the race detector
				}
				value := func(node, i int) int64 { return int64(node*1_000_003 + i*7) }
				must(t, each(meshes, func(node int, m *Mesh) error {
					buf := numbers(n, func(i int) int64 { return value(node, i) })
					if err := m.Allreduce(buf, n, 0, 0, time.Minute); err != nil {
						return err
					}
					for i := range n {
						want := int64(0)
						for other := range nodes {
							want += value(other, i)
						}
						if at(buf, i) != want {
							return fmt.Errorf("allreduce of %d: element %d is %d, not %d", n, i, at(buf, i), want)
						}
					}
					return nil
				}))
				offsets := []int{0}
				for node := range nodes { // uneven, and some of nothing
					offsets = append(offsets, offsets[node]+n*((node*2)%3)/2)
				}
				total := offsets[nodes]
				must(t, each(meshes, func(node int, m *Mesh) error {
					buf := numbers(total, func(i int) int64 {
						if i >= offsets[node] && i < offsets[node+1] {
							return value(node, i)
						}
						return -1
					})
					bytes := make([]int, len(offsets))
					for i, o := range offsets {
						bytes[i] = 8 * o
					}
					if err := m.Allgather(buf, bytes, time.Minute); err != nil {
						return err
					}
					for other := range nodes {
						for i := offsets[other]; i < offsets[other+1]; i++ {
							if at(buf, i) != value(other, i) {
								return fmt.Errorf("allgather of %d: element %d is %d", total, i, at(buf, i))
							}
						}
					}
					buf = numbers(total, func(i int) int64 { return value(node, i) })
					if err := m.Reducescatter(buf, offsets, 0, 0, time.Minute); err != nil {
						return err
					}
					for i := offsets[node]; i < offsets[node+1]; i++ {
						want := int64(0)
						for other := range nodes {
							want += value(other, i)
						}
						if at(buf, i) != want {
							return fmt.Errorf("reducescatter of %d: element %d is %d, not %d", total, i, at(buf, i), want)
						}
					}
					for root := range nodes {
						buf = numbers(n, func(i int) int64 { return value(node, i) })
						if err := m.Broadcast(buf, root, time.Minute); err != nil {
							return err
						}
						for i := range n {
							if at(buf, i) != value(root, i) {
								return fmt.Errorf("broadcast of %d from %d: element %d is %d", n, root, i, at(buf, i))
							}
						}
					}
					return nil
				}))
			}
		}
	})
}

func TestAllNodesGetTheSameBits(t *testing.T) {
	for _, n := range []int{100, 100_000} {
		meshes := cluster(t, ones(3), nil)
		bufs := make([][]byte, 3)
		must(t, each(meshes, func(node int, m *Mesh) error {
			r := rand.New(rand.NewPCG(uint64(node), 1))
			for range n {
				bufs[node] = binary.LittleEndian.AppendUint32(bufs[node], math.Float32bits(r.Float32()*1e6))
			}
			return m.Allreduce(bufs[node], n, 1, 0, time.Minute)
		}))
		if string(bufs[0]) != string(bufs[1]) || string(bufs[0]) != string(bufs[2]) {
			t.Errorf("sums of %d differ between nodes", n)
		}
	}
}

func TestCallsThatDoNotFit(t *testing.T) {
	for name, calls := range map[string][2]func(*Mesh) error{
		"sizes":    {func(m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 0, time.Minute) }, func(m *Mesh) error { return m.Allreduce(make([]byte, 8<<20), 1<<20, 0, 0, time.Minute) }},
		"kinds":    {func(m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 0, time.Minute) }, func(m *Mesh) error { return m.Broadcast(make([]byte, 80), 0, time.Minute) }},
		"op":       {func(m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 0, time.Minute) }, func(m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 1, time.Minute) }},
		"the root": {func(m *Mesh) error { return m.Broadcast(make([]byte, 8<<20), 0, time.Minute) }, func(m *Mesh) error { return m.Broadcast(make([]byte, 8<<20), 1, time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			meshes := cluster(t, ones(3), nil)
			for i, err := range each(meshes, func(i int, m *Mesh) error { return calls[min(i, 1)](m) }) {
				if err == nil || !strings.Contains(err.Error(), "calls do not fit") || AsFault(err).Code != errs.EGROUP {
					t.Errorf("node %d: %v", i, err)
				}
			}
		})
	}
}

func TestTimeoutNamesWhoHasNotCalled(t *testing.T) {
	meshes := cluster(t, ones(3), nil)
	for i, err := range each(meshes[:2], func(_ int, m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 0, 200*time.Millisecond) }) {
		if err == nil || !strings.Contains(err.Error(), "rank 2 (node n2") || !strings.Contains(err.Error(), "has not called it") {
			t.Errorf("node %d: %v", i, err)
		}
	}
	if f := meshes[0].Fault(); f == nil || f.Code != errs.ETIMEDOUT || f.Rank != 2 {
		t.Errorf("%+v", f)
	}
}

func TestAbortEndsEverything(t *testing.T) {
	failed := make(chan *Fault, 4)
	meshes := cluster(t, ones(4), func(c *Config) { c.Fail = func(f *Fault) { failed <- f } })
	time.AfterFunc(100*time.Millisecond, func() { meshes[3].Abort(&Fault{errs.EGROUP, -1, "somebody pressed Ctrl-C"}) })
	for i, err := range each(meshes[:3], func(_ int, m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 0, time.Minute) }) {
		if err == nil || !strings.Contains(err.Error(), "Ctrl-C") {
			t.Errorf("node %d: %v", i, err)
		}
	}
	for range 3 { // all but the one that did it
		if f := <-failed; f.Text != "somebody pressed Ctrl-C" {
			t.Error(f)
		}
	}
}

func TestLeavingIsNamed(t *testing.T) {
	meshes := cluster(t, ones(3), nil)
	must(t, each(meshes, func(_ int, m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 0, time.Minute) }))
	meshes[1].Close()
	for i, err := range each([]*Mesh{meshes[0], meshes[2]}, func(_ int, m *Mesh) error { return m.Allreduce(make([]byte, 80), 10, 0, 0, time.Minute) }) {
		if err == nil || !strings.Contains(err.Error(), "rank 1 (node n1") || !strings.Contains(err.Error(), "has left group") {
			t.Errorf("node %d: %v", i, err)
		}
	}
}

func TestAStrangerIsNotLetIn(t *testing.T) {
	store := newMemory()
	open := func(rank int, token string) (*Mesh, error) {
		return Open(Config{
			Name: "g", Rank: rank, Size: 2, Node: rank, Nodes: 2, NodeOf: []int{0, 1}, LeaderOf: []int{0, 1}, NodeNames: []string{"a", "b"},
			Store: store, Timeout: 3 * time.Second, Fail: func(*Fault) {}, Kernel: testKernel, Where: Where{Address: "127.0.0.1"}, Token: []byte(token),
		})
	}
	results := make([]error, 2)
	var wg sync.WaitGroup
	for i, token := range []string{"right", "wrong"} {
		wg.Go(func() {
			var m *Mesh
			if m, results[i] = open(i, token); m != nil {
				m.Close()
			}
		})
	}
	wg.Wait()
	// Who finds out second may only see that the first has gone.
	if results[0] == nil || results[1] == nil || !strings.Contains(results[0].Error()+results[1].Error(), "RAY_AUTH_TOKEN") {
		t.Errorf("%v; %v", results[0], results[1])
	}
}

func TestMeetingWithoutOneTimesOut(t *testing.T) {
	_, err := Open(Config{
		Name: "g", Rank: 0, Size: 2, Node: 0, Nodes: 2, NodeOf: []int{0, 1}, LeaderOf: []int{0, 1}, NodeNames: []string{"a", "b"},
		Store: newMemory(), Timeout: 100 * time.Millisecond, Fail: func(*Fault) {}, Kernel: testKernel, Where: Where{Address: "127.0.0.1"},
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1 (node b)") {
		t.Errorf("%v", err)
	}
}
