/* NCCL and CUDA's driver that note each call in the file $RECORD and do nothing else.
   $FAIL names a function that fails; $HANG, "init" or "calls", what never ends. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char internal[128]; } nccl_id;
typedef struct { size_t size; unsigned magic, version; int blocking; } nccl_config;

static int asked, began, failed_already;

static int note(const char *name, const char *format, ...) {
  FILE *f = fopen(getenv("RECORD"), "a");
  va_list args;
  va_start(args, format);
  fprintf(f, "%s(", name);
  vfprintf(f, format, args);
  fprintf(f, ")\n");
  va_end(args);
  fclose(f);
  const char *fail = getenv("FAIL");
  failed_already = fail && !strcmp(fail, name);
  return failed_already ? 2 /* ncclSystemError */ : 0;
}

static int hangs(const char *what) {
  const char *hang = getenv("HANG");
  return hang && !strcmp(hang, what);
}

const char *ncclGetErrorString(int code) { return code == 6 ? "remote process exited or there was a network error" : "unhandled system error"; }
const char *ncclGetLastError(void *comm) { return failed_already ? "the fake was told to" : ""; }
int ncclGetVersion(int *v) { return *v = 22704, 0; }
int ncclGetUniqueId(nccl_id *id) { return memset(id, 'i', sizeof *id), note("ncclGetUniqueId", ""); }

int ncclCommInitRankConfig(void **comm, int n, nccl_id id, int rank, nccl_config *c) {
  asked = 0;
  began = 1;
  *comm = (void *)0xc0;
  int r = note("ncclCommInitRankConfig", "%d, %c%c, %d, size %zu magic %x version %u blocking %d", n, id.internal[0], id.internal[127], rank, c->size, c->magic, c->version, c->blocking);
  return r ? r : 7;
}

int ncclCommGetAsyncError(void *comm, int *state) {
  const char *fail = getenv("FAIL");
  *state = hangs("init") || (began && asked++ < 2) ? 7 : fail && !strcmp(fail, "async") ? 6 : 0;
  if (*state == 0) began = 0;
  return 0;
}

int ncclCommAbort(void *comm) { return note("ncclCommAbort", "%p", comm); }
int ncclCommFinalize(void *comm) { return note("ncclCommFinalize", "%p", comm); }
int ncclCommDestroy(void *comm) { return note("ncclCommDestroy", "%p", comm); }
int ncclGroupStart(void) { return note("ncclGroupStart", ""); }
int ncclGroupEnd(void) { return note("ncclGroupEnd", ""); }
int ncclAllReduce(const void *s, void *r, size_t n, int t, int o, void *c, void *st) { return note("ncclAllReduce", "%p, %p, %zu, %d, %d, %p, %p", s, r, n, t, o, c, st); }
int ncclReduce(const void *s, void *r, size_t n, int t, int o, int root, void *c, void *st) { return note("ncclReduce", "%p, %p, %zu, %d, %d, %d, %p, %p", s, r, n, t, o, root, c, st); }
int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { return note("ncclBroadcast", "%p, %p, %zu, %d, %d, %p, %p", s, r, n, t, root, c, st); }
int ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st) { return note("ncclAllGather", "%p, %p, %zu, %d, %p, %p", s, r, n, t, c, st); }
int ncclReduceScatter(const void *s, void *r, size_t n, int t, int o, void *c, void *st) { return note("ncclReduceScatter", "%p, %p, %zu, %d, %d, %p, %p", s, r, n, t, o, c, st); }
int ncclSend(const void *s, size_t n, int t, int peer, void *c, void *st) { return note("ncclSend", "%p, %zu, %d, %d, %p, %p", s, n, t, peer, c, st); }
int ncclRecv(void *r, size_t n, int t, int peer, void *c, void *st) { return note("ncclRecv", "%p, %zu, %d, %d, %p, %p", r, n, t, peer, c, st); }

int cuCtxGetCurrent(void **context) { return *context = (void *)0xcc, 0; }
int cuCtxSetCurrent(void *context) { return note("cuCtxSetCurrent", "%p", context) ? 999 : 0; }
int cuEventCreate(void **event, unsigned flags) { return *event = (void *)0xe0, note("cuEventCreate", "%u", flags) ? 999 : 0; }
int cuEventRecord(void *event, void *stream) { return note("cuEventRecord", "%p, %p", event, stream) ? 999 : 0; }
int cuEventQuery(void *event) { return hangs("calls") ? 600 : 0; }
int cuEventDestroy_v2(void *event) { return note("cuEventDestroy_v2", "%p", event) ? 999 : 0; }
