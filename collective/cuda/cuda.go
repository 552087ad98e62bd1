//go:build cuda

package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
int raygo_cuda_load(const char *path, const char **why);
*/
import "C"

import (
	"os"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/raygo/raygo/engine/errs"
)

var load = sync.OnceValue(func() error {
	path := os.Getenv("RAYGO_CUDA_LIBRARY")
	if path == "" {
		path = "libcuda.so.1"
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why *C.char
	switch code := C.raygo_cuda_load(name, &why); {
	case code < 0:
		return errs.New(errs.ENOTFOUND, "there is no CUDA driver: %s. Install NVIDIA's driver, or name libcuda.so.1 in RAYGO_CUDA_LIBRARY", C.GoString(why))
	case code != 0:
		return errs.New(errs.EINTERNAL, "the CUDA driver %s does not start (error %d); nvidia-smi should show why", path, int(code))
	}
	return nil
})

// Load opens the driver. All of cu may be called after it, and nothing before.
func Load() error { return load() }

// Device is a GPU with its primary context, which is torch's too.
type Device struct {
	device  cu.Device
	Context cu.CUContext
}

// Open makes the primary context of a GPU current on this thread; the goroutine must stay on it (runtime.LockOSThread).
func Open(index int) (*Device, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	device, err := cu.GetDevice(index)
	if err != nil {
		return nil, errs.New(errs.EINVAL, "there is no GPU %d: %w", index, err)
	}
	ctx, err := device.RetainPrimaryCtx()
	if err != nil {
		return nil, errs.New(errs.EINTERNAL, "the primary context of GPU %d: %w", index, err)
	}
	if err := cu.SetCurrentContext(ctx); err != nil {
		device.ReleasePrimaryCtx()
		return nil, errs.New(errs.EINTERNAL, "the primary context of GPU %d: %w", index, err)
	}
	return &Device{device, ctx}, nil
}

// Close gives the context back.
func (d *Device) Close() error { return d.device.ReleasePrimaryCtx() }
