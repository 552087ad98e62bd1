/* A CUDA driver that notes each call in the file $RECORD; $FAIL names a function that fails. It has one GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int note(const char *name) {
  const char *record = getenv("RECORD"), *fail = getenv("FAIL");
  FILE *f = record ? fopen(record, "a") : NULL;
  if (f) {
    fprintf(f, "%s\n", name);
    fclose(f);
  }
  return fail && !strcmp(fail, name) ? 100 /* no device */ : 0;
}

static long gpu[8], context[8], stream[8], event[8]; /* things to point to */

int cuInit(unsigned flags) { return flags ? 1 : note("cuInit"); }
int cuDeviceGet(int *device, int ordinal) { return *device = 7, ordinal ? 101 : note("cuDeviceGet"); }
int cuDevicePrimaryCtxRetain(void **c, int device) { return *c = context, device == 7 ? note("cuDevicePrimaryCtxRetain") : 101; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device == 7 ? note("cuDevicePrimaryCtxRelease_v2") : 101; }
int cuCtxSetCurrent(void *c) { return c == context ? note("cuCtxSetCurrent") : 201; }
int cuStreamCreate(void **s, unsigned flags) { return (void)flags, *s = stream, note("cuStreamCreate"); }
int cuStreamSynchronize(void *s) { return s == stream ? note("cuStreamSynchronize") : 400; }
int cuEventCreate(void **e, unsigned flags) { return (void)flags, *e = event, note("cuEventCreate"); }
int cuEventRecord(void *e, void *s) { return e == event && s == stream ? note("cuEventRecord") : 400; }
int cuMemAlloc_v2(void **p, size_t n) { return *p = gpu, n == 64 ? note("cuMemAlloc_v2") : 2; }
int cuMemFree_v2(void *p) { return p == gpu ? note("cuMemFree_v2") : 1; }
