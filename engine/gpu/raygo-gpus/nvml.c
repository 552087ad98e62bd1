/* go-nvml leaves NVML's functions to the dynamic linker, which would refuse the program under LD_BIND_NOW, and which zig's linker refuses
   at once. Here they are. */
#define LAZY_NAMES "names.h"
#define LAZY_SLOTS raygo_nvml_slots
#define LAZY_CODE 13 /* NVML_ERROR_FUNCTION_NOT_FOUND */
#include "lazy.h"

#include "nvml.h"

const char *raygo_nvml_load(const char *path) {
  void *library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
  if (!library) return dlerror();
  lazy_fill(library);
  return NULL;
}
