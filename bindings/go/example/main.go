// Command example shows raygo from Go: values there and back, a Python function called by its name, and a Go function that Python calls.
//
//	go run ./bindings/go/example [ADDRESS [CALLS]]
//
// It joins the engine of a running program (its socket or session folder; this user's newest without one) and serves until CALLS calls have come.
// In Python: raygo.cross_language.named_function("go.dot").remote([1.0, 2.0], [3.0, 4.0])
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"

	raygo "github.com/raygo/raygo/bindings/go"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	address, calls := "", -1
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if len(os.Args) > 2 {
		calls, _ = strconv.Atoi(os.Args[2])
	}
	if err := run(ctx, address, calls); err != nil {
		log.Fatal("example: ", err)
	}
}

func run(ctx context.Context, address string, calls int) error {
	rt, err := raygo.Connect(address, raygo.Options{})
	if err != nil {
		return err
	}
	defer rt.Close()

	image, err := raygo.Put(ctx, rt, bytes.Repeat([]byte{200}, 1<<20))
	if err != nil {
		return err
	}
	back, err := image.Get(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("put and got %d bytes, the last is %d\n", len(back), back[len(back)-1])
	if err := image.Release(); err != nil {
		return err
	}

	median, err := raygo.Func1[[]float64, float64](rt, "statistics:median")(ctx, []float64{1, 4, 9, 16})
	if err != nil {
		return err
	}
	fmt.Println("Python says the median is", median)

	came := make(chan struct{}, 100)
	err = raygo.Serve2(ctx, rt, "go.dot", 2, func(_ context.Context, a, b []float64) (float64, error) {
		defer func() { came <- struct{}{} }()
		if len(a) != len(b) {
			return 0, fmt.Errorf("the lists have %d and %d numbers", len(a), len(b))
		}
		sum := 0.0
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum, nil
	})
	if err != nil {
		return err
	}
	fmt.Println("serving go.dot")
	for n := 0; n != calls; n++ {
		select {
		case <-came:
		case <-ctx.Done():
			return nil
		}
	}
	return raygo.Unserve(ctx, rt, "go.dot") // waits for the last answer to leave
}
