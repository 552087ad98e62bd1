/* libcuda for gorgonia.org/cu, which links it and calls cuInit when a program starts: linked plainly, a program with it ends there on a machine without a
 * driver. These functions jump to the driver's once raygo_cuda_load has found it; before that cuInit says that all is well, and the others that nothing has
 * been initialised. Built into a libcuda.a of raygo's own by the step "cuda" of the Makefile. */
#include <cuda.h> /* its macros say which version of a function is meant */

#define LAZY_NAMES "names.h"
#define LAZY_SLOTS raygo_cuda_slots
#define LAZY_CODE 3 /* CUDA_ERROR_NOT_INITIALIZED */
#include "lazy.h"

#include <string.h>

static int all_is_well(unsigned flags) {
  (void)flags;
  return 0;
}

/* After lazy_empty, which the compiler's order of constructors with and without a priority sees to. */
__attribute__((constructor(65535))) static void early_init(void) {
  for (int i = 0; i < LAZY_COUNT; i++)
    if (!strcmp(lazy_names[i], "cuInit")) LAZY_SLOTS[i] = (void *)all_is_well;
}

/* 0, or the driver's code; -1: there is no driver, as *why says. */
int raygo_cuda_load(const char *path, const char **why) {
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  *why = NULL;
  if (!lib) {
    *why = dlerror();
    return -1;
  }
  int (*init)(unsigned) = NULL;
  *(void **)&init = dlsym(lib, "cuInit");
  if (!init) {
    *why = "it has no cuInit";
    dlclose(lib);
    return -1;
  }
  int code = init(0);
  if (!code) lazy_fill(lib);
  return code;
}
