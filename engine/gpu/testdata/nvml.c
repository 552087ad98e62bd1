/* A libnvidia-ml that notes each call in the file $RECORD, and fails where $FAIL names a function. It has two GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int called(const char *name) {
  const char *record = getenv("RECORD");
  FILE *f = record ? fopen(record, "a") : NULL;
  if (f) {
    fprintf(f, "%s\n", name);
    fclose(f);
  }
  const char *fail = getenv("FAIL");
  if (fail && !strcmp(fail, "hang")) pause();
  return fail && !strcmp(fail, name) ? 9 /* DRIVER_NOT_LOADED */ : 0;
}

typedef struct { unsigned long long total, free, used; } memory_info;

int nvmlInit_v2(void) { return called("nvmlInit_v2"); }
int nvmlShutdown(void) { return called("nvmlShutdown"); }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "another error"; }
int nvmlDeviceGetCount_v2(unsigned *n) {
  *n = 2;
  return called("nvmlDeviceGetCount_v2");
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
  *device = (void *)(size_t)(i + 1);
  return called("nvmlDeviceGetHandleByIndex_v2");
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned n) {
  snprintf(text, n, "GPU-%zu%zu%zu%zu", (size_t)device, (size_t)device, (size_t)device, (size_t)device);
  return called("nvmlDeviceGetUUID");
}
int nvmlDeviceGetName(void *device, char *text, unsigned n) {
  (void)device;
  snprintf(text, n, "NVIDIA A100-SXM4-40GB");
  return called("nvmlDeviceGetName");
}
int nvmlDeviceGetMemoryInfo(void *device, memory_info *m) {
  (void)device;
  memset(m, 0, sizeof *m);
  m->total = 40ull << 30;
  return called("nvmlDeviceGetMemoryInfo");
}
