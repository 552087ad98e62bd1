/* In place of the engine, for programs that test the library's C alone. */
#include "abi_int.h"

const char *raygo_version(void) { return "0"; }
int32_t raygo_engine_start(const void *o, size_t n, raygo_fd_fn f, uint64_t *e, char **m) { return (void)o, (void)n, (void)f, (void)e, (void)m,
                                                                                           RAYGO_EINTERNAL; }
int32_t raygo_engine_attach(uint64_t e, raygo_deliver_fn d, void *x, const void *h, size_t n, uint64_t *c, char **m) {
  return (void)e, (void)d, (void)x, (void)h, (void)n, (void)c, (void)m, RAYGO_EINTERNAL;
}
int32_t raygo_engine_input(uint64_t c, const void *f, size_t n) { return (void)c, (void)f, (void)n, RAYGO_EINTERNAL; }
int32_t raygo_engine_stop(uint64_t e, int64_t t, char **m) { return (void)e, (void)t, (void)m, RAYGO_EINTERNAL; }
const void *raygo_engine_collectives(void) { return NULL; }
