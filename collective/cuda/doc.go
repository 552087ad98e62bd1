//go:build cuda

// Package cuda gives Go contexts, streams, events and memory of NVIDIA's GPUs, by gorgonia.org/cu. It is built with the tag cuda only, as cu
// wants CUDA 12's headers (not 13's); `make step-cuda` fetches them. The driver is opened by Load: a program with this package starts, and
// says what is missing, on machines without one.
package cuda
