/* Between Go and the core: what cgo cannot say. */
#ifndef RGC_GOSTORE_H
#define RGC_GOSTORE_H
#include "core.h"

int rgc_go_open(const char *name, const char *node, int rank, int size, int64_t timeout, size_t arena, uintptr_t store, rgc_group **out, rgc_error *err);
/* The arrays are arguments of their own, so that cgo keeps them where they are. */
int rgc_go_run(rgc_group *g, uint32_t kind, uint32_t dtype, uint32_t op, int32_t root, uint32_t tag, size_t count, const void *src, void *dst, int *source, rgc_error *err);
int rgc_go_start(rgc_group *g, uint32_t kind, uint32_t dtype, uint32_t op, int32_t root, uint32_t tag, size_t count, const void *src, void *dst, rgc_work **out,
                 rgc_error *err);
int rgc_go_folder_set(const char *folder, const char *key, const void *data, size_t len, rgc_error *err);
int rgc_go_folder_get(const char *folder, const char *key, int64_t timeout, void **data, size_t *len, rgc_error *err);
void rgc_go_say(rgc_error *err, int code, const char *text);
#endif
