/* engine.h over the Go exports. Go is never entered in a forked child: it would hang there. */
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "engine.h"
#include "_cgo_export.h"

enum { FORKED = 7 };   /* EFORKED of errors.tsv */

static int32_t forked(char **message) {
  if (message) *message = strdup("raygo was called in a forked child of the process that started it; call raygo from that process, or start raygo anew in a fresh one");
  return FORKED;
}

const char *raygo_version(void) {
  static _Atomic(char *) version;
  char *v = atomic_load(&version);
  if (!v && atomic_load(&rg_forked)) return "unknown";   /* nobody asked before the fork, and now Go cannot be */
  if (!v) {
    char *expected = NULL;
    v = raygoGoVersion();
    if (!atomic_compare_exchange_strong(&version, &expected, v)) {
      free(v);
      v = expected;
    }
  }
  return v;
}

int32_t raygo_engine_start(const void *options, size_t len, raygo_fd_fn fds, uint64_t *engine, char **message) {
  if (message) *message = NULL;
  return atomic_load(&rg_forked) ? forked(message) : raygoGoStart((void *)options, len, fds, engine, message);
}

int32_t raygo_engine_attach(uint64_t engine, raygo_deliver_fn deliver, void *ctx, const void *hello, size_t len, uint64_t *conn, char **message) {
  if (message) *message = NULL;
  return atomic_load(&rg_forked) ? forked(message) : raygoGoAttach(engine, deliver, ctx, (void *)hello, len, conn, message);
}

int32_t raygo_engine_input(uint64_t conn, const void *frames, size_t len) {
  return atomic_load_explicit(&rg_forked, memory_order_relaxed) ? FORKED : raygoGoInput(conn, (void *)frames, len);
}

int32_t raygo_engine_detach(uint64_t conn) { return atomic_load(&rg_forked) ? FORKED : raygoGoDetach(conn); }

int32_t raygo_engine_stop(uint64_t engine, int64_t timeout_ns, char **message) {
  if (message) *message = NULL;
  return atomic_load(&rg_forked) ? forked(message) : raygoGoStop(engine, timeout_ns, message);
}

const void *raygo_engine_collectives(void) {
  static _Atomic(const void *) known;
  const void *api = atomic_load(&known);
  if (!api && !atomic_load(&rg_forked)) atomic_store(&known, api = raygoGoCollectives());
  return api;
}
