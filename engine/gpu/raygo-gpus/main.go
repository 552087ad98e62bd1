// Command raygo-gpus writes the NVIDIA GPUs of this machine as a msgpack list of engine/gpu's Device to its output.
//
// It is a program of its own because a driver that hangs or crashes must not take a user's Python with it, and because go-nvml would add
// 2 MB to the library that every session loads.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../lazy
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "nvml.h"
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/raygo/raygo/engine/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/vmihailenco/msgpack/v5"
)

//go:generate go run ../lazy/generate.go github.com/NVIDIA/go-nvml/pkg/nvml nvml names.h

func main() {
	path := "libnvidia-ml.so.1"
	if named := os.Getenv("RAYGO_NVML_LIBRARY"); named != "" {
		path = named
	}
	found, err := devices(path)
	if err == nil {
		err = msgpack.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func devices(path string) (found []gpu.Device, err error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if why := C.raygo_nvml_load(name); why != nil {
		return nil, fmt.Errorf("NVIDIA's library cannot be loaded: %s", C.GoString(why))
	}
	lib := nvml.New(nvml.WithLibraryPath(path))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("nvmlInit of %s failed: %s", path, lib.ErrorString(ret))
	}
	defer func() {
		if ret := lib.Shutdown(); ret != nvml.SUCCESS && err == nil {
			err = fmt.Errorf("nvmlShutdown failed: %s", lib.ErrorString(ret))
		}
	}()
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("nvmlDeviceGetCount failed: %s", lib.ErrorString(ret))
	}
	for i := range count {
		device, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU %d does not answer: %s", i, lib.ErrorString(ret))
		}
		d := gpu.Device{Index: i}
		// A GPU that does not tell these can still be used.
		if text, ret := device.GetUUID(); ret == nvml.SUCCESS {
			d.UUID = text
		}
		if text, ret := device.GetName(); ret == nvml.SUCCESS {
			d.Name = text
		}
		if memory, ret := device.GetMemoryInfo(); ret == nvml.SUCCESS {
			d.Memory = memory.Total
		}
		found = append(found, d)
	}
	return found, nil
}
