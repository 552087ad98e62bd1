/* rgc_net over the Go exports.  As everywhere, a forked child does not enter Go.  It also lets go of its parent's connections: while a child keeps
 * them open, the other ranks do not see that the parent has died. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net.h"
#include "raygo_status.h"
#include "_cgo_export.h"

enum { MOST = 1 << 16 };             /* descriptors above are not looked after */
static _Atomic int in_child;
static _Atomic uint64_t open_fds[MOST / 64];

void rga_net_fork(int fd, int on) {
  if (fd < 0 || fd >= MOST) return;
  if (on) atomic_fetch_or(&open_fds[fd / 64], UINT64_C(1) << fd % 64);
  else atomic_fetch_and(&open_fds[fd / 64], ~(UINT64_C(1) << fd % 64));
}

static void forked_child(void) {
  atomic_store(&in_child, 1);
  for (int i = 0; i < MOST / 64; i++)
    for (uint64_t bits = atomic_load_explicit(&open_fds[i], memory_order_relaxed); bits; bits &= bits - 1) close(i * 64 + __builtin_ctzll(bits));
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, forked_child); }

int rga_forked(rgc_error *err) {
  if (!atomic_load_explicit(&in_child, memory_order_relaxed)) return 0;
  if (err) {
    err->code = RAYGO_EFORKED;
    err->rank = -1;
    snprintf(err->message, sizeof err->message, "A group was used in a forked child of the process that made it; use it there, or make a group in the child.");
  }
  return RAYGO_EFORKED;
}

static uint64_t handle(void *ctx) { return (uint64_t)(uintptr_t)ctx; }

static int net_allreduce(void *ctx, void *buf, size_t count, int dtype, int op, int64_t timeout_ns, rgc_error *err) {
  return rga_forked(err) ? RAYGO_EFORKED : raygoGoNetAllreduce(handle(ctx), buf, count, dtype, op, timeout_ns, err);
}

static int net_allgather(void *ctx, void *buf, const size_t *offsets, int64_t timeout_ns, rgc_error *err) {
  return rga_forked(err) ? RAYGO_EFORKED : raygoGoNetAllgather(handle(ctx), buf, (size_t *)offsets, timeout_ns, err);
}

static int net_reducescatter(void *ctx, void *buf, const size_t *offsets, int dtype, int op, int64_t timeout_ns, rgc_error *err) {
  return rga_forked(err) ? RAYGO_EFORKED : raygoGoNetReducescatter(handle(ctx), buf, (size_t *)offsets, dtype, op, timeout_ns, err);
}

static int net_broadcast(void *ctx, void *buf, size_t bytes, int root_node, int64_t timeout_ns, rgc_error *err) {
  return rga_forked(err) ? RAYGO_EFORKED : raygoGoNetBroadcast(handle(ctx), buf, bytes, root_node, timeout_ns, err);
}

static void net_post(void *ctx, rgc_p2p *op) {
  rgc_error err;
  if (rga_forked(&err)) op->done(op, err.code, err.message);
  else raygoGoNetPost(handle(ctx), op);
}

static int net_cancel(void *ctx, rgc_p2p *op) { return rga_forked(NULL) ? 1 : raygoGoNetCancel(handle(ctx), op); }

static void net_abort(void *ctx, int code, int rank, const char *why) {
  if (!rga_forked(NULL)) raygoGoNetAbort(handle(ctx), code, rank, (char *)why);
}

static void net_close(void *ctx) {
  if (!rga_forked(NULL)) raygoGoNetClose(handle(ctx));
}

__attribute__((visibility("default"))) int raygo_net_open(const rgc_net_spec *spec, rgc_net *out, rgc_error *err) {
  if (rga_forked(err)) return RAYGO_EFORKED;
  uint64_t opened = 0;
  int r = raygoGoNetOpen((rgc_net_spec *)spec, &opened, err);
  if (r) return r;
  *out = (rgc_net){sizeof *out,   (void *)(uintptr_t)opened, net_allreduce, net_allgather, net_reducescatter,
                   net_broadcast, net_post,                  net_cancel,    net_abort,     net_close};
  return 0;
}
