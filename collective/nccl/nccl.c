#include "nccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static struct {
  const char *(*GetErrorString)(int);
  const char *(*GetLastError)(void *);
  int (*GetVersion)(int *);
  int (*GetUniqueId)(nccl_id *);
  int (*CommInitRankConfig)(void **, int, nccl_id, int, nccl_config *);
  int (*CommGetAsyncError)(void *, int *);
  int (*CommAbort)(void *);
  int (*CommFinalize)(void *);
  int (*CommDestroy)(void *);
  int (*GroupStart)(void);
  int (*GroupEnd)(void);
  int (*AllReduce)(const void *, void *, size_t, int, int, void *, void *);
  int (*Reduce)(const void *, void *, size_t, int, int, int, void *, void *);
  int (*Broadcast)(const void *, void *, size_t, int, int, void *, void *);
  int (*AllGather)(const void *, void *, size_t, int, void *, void *);
  int (*ReduceScatter)(const void *, void *, size_t, int, int, void *, void *);
  int (*Send)(const void *, size_t, int, int, void *, void *);
  int (*Recv)(void *, size_t, int, int, void *, void *);
} n;

static struct {
  int (*CtxGetCurrent)(void **);
  int (*CtxSetCurrent)(void *);
  int (*EventCreate)(void **, unsigned);
  int (*EventRecord)(void *, void *);
  int (*EventQuery)(void *);
  int (*EventDestroy)(void *);
} cu;
static int has_driver;

#define P(x) ((void *)(x))

static char *said(const char *a, const char *b) {
  char *text = malloc(strlen(a) + strlen(b) + 1);
  return text ? strcat(strcpy(text, a), b) : NULL;
}

static void load_driver(void) {
  const char *path = getenv("RAYGO_CUDA_LIBRARY");
  void *lib = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return;
#define FIND(name, symbol) (*(void **)&cu.name = dlsym(lib, symbol))
  has_driver = FIND(CtxGetCurrent, "cuCtxGetCurrent") && FIND(CtxSetCurrent, "cuCtxSetCurrent") && FIND(EventCreate, "cuEventCreate") &&
               FIND(EventRecord, "cuEventRecord") && FIND(EventQuery, "cuEventQuery") && FIND(EventDestroy, "cuEventDestroy_v2");
#undef FIND
}

int nccl_load(const char *path, char **error) {
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  *error = NULL;
  if (!lib) {
    *error = said("", dlerror());
    return 0;
  }
#define FIND(name)                                           \
  if (!(*(void **)&n.name = dlsym(lib, "nccl" #name))) {      \
    *error = said(path, " lacks nccl" #name "; raygo needs NCCL 2.14 or newer"); \
    dlclose(lib);                                            \
    return 0;                                                \
  }
  FIND(GetErrorString) FIND(GetLastError) FIND(GetVersion) FIND(GetUniqueId) FIND(CommInitRankConfig) FIND(CommGetAsyncError) FIND(CommAbort)
  FIND(CommFinalize) FIND(CommDestroy) FIND(GroupStart) FIND(GroupEnd) FIND(AllReduce) FIND(Reduce) FIND(Broadcast) FIND(AllGather)
  FIND(ReduceScatter) FIND(Send) FIND(Recv)
#undef FIND
  load_driver();
  return 1;
}

int nccl_has_driver(void) { return has_driver; }
const char *nccl_words(int code) { return n.GetErrorString(code); }
const char *nccl_last_error(uintptr_t comm) { return n.GetLastError(P(comm)); }
int nccl_version(int *v) { return n.GetVersion(v); }
int nccl_unique_id(nccl_id *id) { return n.GetUniqueId(id); }

int nccl_init(uintptr_t *comm, int size, const nccl_id *id, int rank) {
  nccl_config config = {sizeof config, 0xcafebeef, 21400, 0};
  return n.CommInitRankConfig((void **)comm, size, *id, rank, &config);
}

int nccl_async_error(uintptr_t comm, int *state) { return n.CommGetAsyncError(P(comm), state); }
int nccl_abort(uintptr_t comm) { return n.CommAbort(P(comm)); }
int nccl_finalize(uintptr_t comm) { return n.CommFinalize(P(comm)); }
int nccl_destroy(uintptr_t comm) { return n.CommDestroy(P(comm)); }
int nccl_group_start(void) { return n.GroupStart(); }
int nccl_group_end(void) { return n.GroupEnd(); }
int nccl_all_reduce(uintptr_t s, uintptr_t r, size_t c, int t, int o, uintptr_t comm, uintptr_t stream) { return n.AllReduce(P(s), P(r), c, t, o, P(comm), P(stream)); }
int nccl_reduce(uintptr_t s, uintptr_t r, size_t c, int t, int o, int root, uintptr_t comm, uintptr_t stream) { return n.Reduce(P(s), P(r), c, t, o, root, P(comm), P(stream)); }
int nccl_broadcast(uintptr_t s, uintptr_t r, size_t c, int t, int root, uintptr_t comm, uintptr_t stream) { return n.Broadcast(P(s), P(r), c, t, root, P(comm), P(stream)); }
int nccl_all_gather(uintptr_t s, uintptr_t r, size_t c, int t, uintptr_t comm, uintptr_t stream) { return n.AllGather(P(s), P(r), c, t, P(comm), P(stream)); }
int nccl_reduce_scatter(uintptr_t s, uintptr_t r, size_t c, int t, int o, uintptr_t comm, uintptr_t stream) { return n.ReduceScatter(P(s), P(r), c, t, o, P(comm), P(stream)); }
int nccl_send(uintptr_t s, size_t c, int t, int peer, uintptr_t comm, uintptr_t stream) { return n.Send(P(s), c, t, peer, P(comm), P(stream)); }
int nccl_recv(uintptr_t r, size_t c, int t, int peer, uintptr_t comm, uintptr_t stream) { return n.Recv(P(r), c, t, peer, P(comm), P(stream)); }

int nccl_context(uintptr_t *context) { return cu.CtxGetCurrent((void **)context); }
int nccl_enter(uintptr_t context) { return cu.CtxSetCurrent(P(context)); }

int nccl_event_record(uintptr_t *event, uintptr_t stream) {
  int r = cu.EventCreate((void **)event, 2 /* without timing */);
  if (r) return r;
  if ((r = cu.EventRecord(P(*event), P(stream)))) cu.EventDestroy(P(*event));
  return r;
}

int nccl_event_query(uintptr_t event) { return cu.EventQuery(P(event)); }
int nccl_event_free(uintptr_t event) { return cu.EventDestroy(P(event)); }
