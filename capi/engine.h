/* What libraygo.so offers for holding the node engine in this process.  Implemented in Go (exports.go); raygo.h documents the public part. */
#ifndef RAYGO_ENGINE_H
#define RAYGO_ENGINE_H
#include <stddef.h>
#include <stdint.h>
/* frames for this peer: rg_client_deliver(ctx, frames, len).  The memory is borrowed for the call.  Never blocks, never calls back into the engine. */
typedef void (*raygo_deliver_fn)(void *ctx, const void *frames, size_t len);
typedef void (*raygo_fd_fn)(int fd, int on);        /* descriptors to close in a forked child */
/* All return a code of errors.tsv.  *message: malloc'd text on error (free with free()), may be NULL. */
const char *raygo_version(void);
int32_t raygo_engine_start(const void *options, size_t len, raygo_fd_fn fds, uint64_t *engine, char **message);   /* options: msgpack map, engine/options.go */
int32_t raygo_engine_attach(uint64_t engine, raygo_deliver_fn deliver, void *ctx, const void *hello, size_t len, uint64_t *conn, char **message);  /* WELCOME is delivered before it returns */
int32_t raygo_engine_input(uint64_t conn, const void *frames, size_t len);    /* whole frames, borrowed for the call; never blocks */
int32_t raygo_engine_detach(uint64_t conn);         /* as the end of a connection */
int32_t raygo_engine_stop(uint64_t engine, int64_t timeout_ns, char **message);  /* ends workers, drains their output to LOG, removes the session's socket and arena; then no delivery follows */
const void *raygo_engine_collectives(void);         /* struct rgc_api of collective/collective.h; NULL in a forked child that has not asked before */
#endif
