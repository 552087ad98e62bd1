package collective

/*
#cgo CFLAGS: -std=gnu11 -O2 -D_GNU_SOURCE -I${SRCDIR}
#cgo LDFLAGS: -pthread
#include "core.h"

static void rgc_go_reduce(rgc_kernel kernel, void *dst, const void *src, size_t count) {
  const void *both[2] = {dst, src};
  kernel(dst, both, 2, count, 0);
}

static int rgc_go_fold(rgc_kernel kernel, void *dst, const uint8_t *all, size_t stride, int n, size_t count) {
  const void **each = malloc((size_t)n * sizeof *each);
  if (!each) return -1;
  for (int i = 0; i < n; i++) each[i] = all + (size_t)i * stride;
  kernel(dst, each, n, count, 0);
  free(each);
  return 0;
}
*/
import "C"

import "unsafe"

// Size is the number of bytes of an element; 0: there is no such type.
func Size(dtype int) int { return int(C.rgc_dtype_size(C.uint32_t(dtype))) }

// TypeName is what messages call a type.
func TypeName(dtype int) string { return C.GoString(C.rgc_dtype_name(C.uint32_t(dtype))) }

// Reduces says whether the operation is defined for the type.
func Reduces(dtype, op int) bool { return C.rgc_reducer(C.uint32_t(dtype), C.uint32_t(op)) != nil }

// Reduce sets dst to dst op src, element by element.
func Reduce(dst, src []byte, dtype, op int) {
	if len(dst) > 0 {
		kernel := C.rgc_reducer(C.uint32_t(dtype), C.uint32_t(op))
		C.rgc_go_reduce(kernel, unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), C.size_t(len(dst)/Size(dtype)))
	}
}

// Fold sets dst to the first op the second op … of the n arrays that lie in all one after the other, rounding once.
func Fold(dst, all []byte, n, dtype, op int) {
	if len(dst) == 0 {
		return
	}
	kernel := C.rgc_reducer(C.uint32_t(dtype), C.uint32_t(op))
	if C.rgc_go_fold(kernel, unsafe.Pointer(&dst[0]), (*C.uint8_t)(&all[0]), C.size_t(len(dst)), C.int(n), C.size_t(len(dst)/Size(dtype))) != 0 {
		panic("out of memory")
	}
}

// CallName is what messages call the operation on a type.
func CallName(dtype, op int) string {
	return TypeName(dtype) + " (" + C.GoString(C.rgc_op_name(C.uint32_t(op))) + ")"
}
