package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ranks runs f as every rank of a group, each on a goroutine.
func ranks(t testing.TB, size int, o Options, f func(g *Group) error) {
	t.Helper()
	o.Store, o.Size = Folder(t.TempDir()), size
	if o.Name == "" {
		o.Name = "test"
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	failures := make(chan error, size)
	for r := range size {
		o := o
		o.Rank = r
		go func() {
			g, err := Open(o)
			if err == nil {
				err = f(g)
				g.Close()
			}
			if err != nil {
				err = fmt.Errorf("rank %d: %w", r, err)
			}
			failures <- err
		}()
	}
	for range size {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
}

func numbers(n int, f func(i int) float64) []byte {
	b := make([]byte, 0, 8*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f(i)))
	}
	return b
}

func number(b []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
}

func TestCallsMoveWhatTheySay(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int{1, 2, 3, 5} {
		for _, n := range []int{0, 1, 1000, 100_001} {
			ranks(t, size, Options{}, func(g *Group) error {
				mine := numbers(n, func(i int) float64 { return float64(g.Rank*1_000_000 + i) })
				all := make([]byte, len(mine)*size)
				sum := make([]byte, len(mine))
				if err := g.AllReduce(ctx, mine, sum, n, Float64, Sum); err != nil {
					return err
				}
				for i := range n {
					if want := float64(size*i + 1_000_000*size*(size-1)/2); number(sum, i) != want {
						return fmt.Errorf("element %d of the sum is %v, not %v", i, number(sum, i), want)
					}
				}
				if err := g.AllGather(ctx, mine, all, n, Float64); err != nil {
					return err
				}
				crossed := make([]byte, len(all))
				if err := g.AllToAll(ctx, all, crossed, n, Float64); err != nil {
					return err
				}
				for r := range size {
					for i := range n {
						if number(all, r*n+i) != float64(r*1_000_000+i) || number(crossed, r*n+i) != float64(g.Rank*1_000_000+i) {
							return fmt.Errorf("element %d of rank %d came as %v and %v", i, r, number(all, r*n+i), number(crossed, r*n+i))
						}
					}
				}
				last := size - 1
				for _, err := range []error{
					g.Reduce(ctx, mine, sum, n, Float64, Max, last), g.Gather(ctx, mine, all, n, Float64, last), g.Scatter(ctx, all, mine, n, Float64, last),
					g.ReduceScatter(ctx, all, sum, n, Float64, Min), g.Broadcast(ctx, sum, n, Float64, 0), g.Barrier(ctx),
				} {
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

func TestMessages(t *testing.T) {
	ctx := context.Background()
	ranks(t, 3, Options{}, func(g *Group) error {
		b := numbers(10_000, func(int) float64 { return float64(g.Rank) })
		if g.Rank > 0 {
			return g.Send(ctx, b, 10_000, Float64, 0, 7)
		}
		seen := map[int]bool{}
		for range 2 {
			from, err := g.Recv(ctx, b, 10_000, Float64, AnySource, 7)
			if err != nil {
				return err
			}
			if number(b, 9_999) != float64(from) {
				return fmt.Errorf("from %d came %v", from, number(b, 9_999))
			}
			seen[from] = true
		}
		if !seen[1] || !seen[2] {
			return fmt.Errorf("messages came from %v", seen)
		}
		return nil
	})
}

func TestStartedCallsKeepTheirOrder(t *testing.T) {
	ctx := context.Background()
	ranks(t, 2, Options{}, func(g *Group) error {
		b := numbers(5000, func(int) float64 { return 1 })
		var works []*Work
		for range 5 {
			w, err := g.StartAllReduce(b, b, 5000, Float64, Sum)
			if err != nil {
				return err
			}
			works = append(works, w)
		}
		if err := g.AllReduce(ctx, b, b, 5000, Float64, Sum); err != nil {
			return err
		}
		for _, w := range works {
			if err := w.Wait(); err != nil {
				return err
			}
		}
		if number(b, 4999) != 64 {
			return fmt.Errorf("%v, not 64", number(b, 4999))
		}
		return nil
	})
}

func TestArraysInTheArenaAreReducedInPlace(t *testing.T) {
	ctx := context.Background()
	const n = 200_000
	ranks(t, 2, Options{}, func(g *Group) error {
		b, err := g.Alloc(8 * n)
		if err != nil {
			return err
		}
		defer g.Free(b)
		copy(b, numbers(n, func(i int) float64 { return float64(i + g.Rank) }))
		if err := g.AllReduce(ctx, b, b, n, Float64, Avg); err != nil {
			return err
		}
		for i := range n {
			if number(b, i) != float64(i)+0.5 {
				return fmt.Errorf("element %d is %v", i, number(b, i))
			}
		}
		return nil
	})
}

func TestContextBreaksTheGroup(t *testing.T) {
	ranks(t, 2, Options{}, func(g *Group) error {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if g.Rank == 1 {
			for g.Broken() == nil {
				time.Sleep(time.Millisecond)
			}
			ctx = context.Background()
		}
		err := g.Barrier(ctx)
		var e *Error
		if !errors.As(err, &e) || e.Code != codeGroup || !strings.Contains(e.Message, "Rank 0 (pid") || !strings.Contains(e.Message, "deadline exceeded") {
			return fmt.Errorf("the barrier said: %v", err)
		}
		return nil
	})
}

func TestArgumentsAreChecked(t *testing.T) {
	ctx := context.Background()
	g, err := Open(Options{Name: "alone", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 80)
	for what, err := range map[string]error{
		"shorter":       g.AllReduce(ctx, b, b, 11, Float64, Sum),
		"no avg":        g.AllReduce(ctx, b, b, 10, Bool, Avg),
		"no rank 1":     g.Broadcast(ctx, b, 10, Float64, 1),
		"none of enum":  g.Broadcast(ctx, b, 0, 99, 0),
		"with itself":   g.Send(ctx, b, 10, Float64, 0, 0),
		"canceled":      func() error { ctx, cancel := context.WithCancel(ctx); cancel(); return g.Barrier(ctx) }(),
		"cannot have 0": func() error { _, err := Open(Options{Name: "none"}); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q is not in: %v", what, err)
		}
	}
	g.Close()
	g.Close()
	if err := g.Barrier(ctx); err == nil || !strings.Contains(err.Error(), "has closed") {
		t.Errorf("after Close: %v", err)
	}
}

func TestStoreThatFails(t *testing.T) {
	_, err := Open(Options{Name: "x", Size: 2, Store: Folder("/nonexistent/folder"), Timeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/folder") {
		t.Errorf("%v", err)
	}
	_, err = Open(Options{Name: "x", Size: 2, Store: Folder(t.TempDir()), Timeout: 50 * time.Millisecond})
	var e *Error
	if !errors.As(err, &e) || e.Code != codeTimedOut || !strings.Contains(e.Message, "did not come in time (1)") {
		t.Errorf("%v", err)
	}
}

// Ranks in processes of their own: the test's binary again, which runs only TestMain's branch.
const processEnv = "RAYGO_TEST_RANK"

func TestMain(m *testing.M) {
	if v := os.Getenv(processEnv); v != "" {
		if err := process(v); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func process(v string) error {
	rank, folder, _ := strings.Cut(v, ":")
	r, err := strconv.Atoi(rank)
	if err != nil {
		return err
	}
	ctx := context.Background()
	g, err := Open(Options{Name: "processes", Rank: r, Size: 3, Store: Folder(folder), Timeout: time.Minute})
	if err != nil {
		return err
	}
	b := numbers(100_000, func(int) float64 { return float64(r) })
	if err := g.AllReduce(ctx, b, b, 100_000, Float64, Sum); err != nil {
		return err
	}
	if number(b, 99_999) != 3 {
		return fmt.Errorf("%v, not 3", number(b, 99_999))
	}
	if r == 1 {
		os.Exit(9) // without a word: exit handlers of C do not run
	}
	err = g.Barrier(ctx)
	if err == nil || !strings.Contains(err.Error(), "rank 1 (pid ") || !strings.Contains(err.Error(), "died") {
		return fmt.Errorf("the barrier said: %w", err)
	}
	return nil
}

func TestProcessThatDiesIsNamed(t *testing.T) {
	folder := t.TempDir()
	var commands []*exec.Cmd
	var outputs [3]strings.Builder
	for r := range 3 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", processEnv, r, folder))
		c.Stdout, c.Stderr = &outputs[r], &outputs[r]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, c)
	}
	for r, c := range commands {
		err := c.Wait()
		if r == 1 {
			if c.ProcessState.ExitCode() != 9 {
				t.Errorf("rank 1 ended with %v: %s", err, outputs[r].String())
			}
		} else if err != nil {
			t.Errorf("rank %d: %v: %s", r, err, outputs[r].String())
		}
	}
}

func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{2, 4} {
		for _, n := range []int{4 << 10, 1 << 20, 25 << 20, 100 << 20} {
			for _, direct := range []bool{false, true} {
				where := "staged"
				if direct {
					where = "direct"
				}
				b.Run(fmt.Sprintf("ranks=%d/bytes=%d/%s", size, n, where), func(b *testing.B) {
					b.SetBytes(int64(n))
					ranks(b, size, Options{}, func(g *Group) error {
						buf := make([]byte, n)
						if direct {
							var err error
							if buf, err = g.Alloc(n); err != nil {
								return err
							}
							defer g.Free(buf)
						}
						clear(buf)
						ctx := context.Background()
						if err := g.AllReduce(ctx, buf, buf, n/4, Float32, Sum); err != nil {
							return err
						}
						if g.Rank == 0 {
							b.ResetTimer()
						}
						for range b.N {
							if err := g.AllReduce(ctx, buf, buf, n/4, Float32, Sum); err != nil {
								return err
							}
						}
						return nil
					})
				})
			}
		}
	}
}
