// Package gpu finds a node's GPUs.
//
// Where the machine shows no trace of an NVIDIA driver nothing is run and nothing is loaded. Where it does, the program raygo-gpus asks
// NVIDIA's management library; if it cannot, the kernel driver's own list says how many there are, without names.
package gpu
