/* raygo_nccl.h over the Go exports. */
#include "net.h"
#include "raygo_nccl.h"
#include "_cgo_export.h"

#define SHOWN __attribute__((visibility("default")))

SHOWN int raygo_nccl_open(const rgc_options *o, const char *paths, uint64_t *group, rgc_error *err) {
  return rga_forked(err) ? err->code : raygoGoNcclOpen((rgc_options *)o, (char *)(paths ? paths : ""), group, err);
}
SHOWN int raygo_nccl_run(uint64_t g, const rgc_call *c, void *stream, rgc_error *err) {
  return rga_forked(err) ? err->code : raygoGoNcclRun(g, (rgc_call *)c, (uintptr_t)stream, err);
}
SHOWN int raygo_nccl_group_start(uint64_t g, rgc_error *err) { return rga_forked(err) ? err->code : raygoGoNcclStart(g, err); }
SHOWN int raygo_nccl_group_end(uint64_t g, void *stream, rgc_error *err) { return rga_forked(err) ? err->code : raygoGoNcclEnd(g, (uintptr_t)stream, err); }
SHOWN int raygo_nccl_broken(uint64_t g, rgc_error *err) { return rga_forked(err) ? err->code : raygoGoNcclBroken(g, err); }
SHOWN int raygo_nccl_abort(uint64_t g, const char *why, rgc_error *err) { return rga_forked(err) ? err->code : raygoGoNcclAbort(g, (char *)(why ? why : ""), err); }
SHOWN int raygo_nccl_close(uint64_t g, rgc_error *err) { return rga_forked(err) ? err->code : raygoGoNcclClose(g, err); }
