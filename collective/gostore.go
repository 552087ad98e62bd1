package collective

/*
#include "gostore.h"

extern int rgcGoStoreSet(uintptr_t store, char *key, void *data, size_t len, rgc_error *err);
extern int rgcGoStoreGet(uintptr_t store, char *key, int64_t timeout, void **data, size_t *len, rgc_error *err);

static int store_set(void *arg, const char *key, const void *data, size_t len, rgc_error *err) {
  return rgcGoStoreSet((uintptr_t)arg, (char *)key, (void *)data, len, err);
}
static int store_get(void *arg, const char *key, int64_t timeout, void **data, size_t *len, rgc_error *err) {
  return rgcGoStoreGet((uintptr_t)arg, (char *)key, timeout, data, len, err);
}

int rgc_go_open(const char *name, const char *node, int rank, int size, int64_t timeout, size_t arena, uintptr_t store, rgc_group **out, rgc_error *err) {
  rgc_options o = {.struct_size = sizeof o, .name = name, .node = node, .rank = rank, .size = size, .timeout_ns = timeout, .arena_bytes = arena};
  if (store) o.store = (rgc_store){(void *)store, store_set, store_get};
  return rgc_open(&o, NULL, out, err);
}

int rgc_go_run(rgc_group *g, uint32_t kind, uint32_t dtype, uint32_t op, int32_t root, uint32_t tag, size_t count, const void *src, void *dst, int *source, rgc_error *err) {
  rgc_call c = {.kind = kind, .dtype = dtype, .op = op, .root = root, .tag = tag, .count = count, .src = src, .dst = dst};
  return rgc_run(g, &c, NULL, source, err);
}

int rgc_go_start(rgc_group *g, uint32_t kind, uint32_t dtype, uint32_t op, int32_t root, uint32_t tag, size_t count, const void *src, void *dst, rgc_work **out,
                 rgc_error *err) {
  rgc_call c = {.kind = kind, .dtype = dtype, .op = op, .root = root, .tag = tag, .count = count, .src = src, .dst = dst};
  return rgc_start(g, &c, NULL, NULL, NULL, out, err);
}

int rgc_go_folder_set(const char *folder, const char *key, const void *data, size_t len, rgc_error *err) {
  rgc_store s;
  int r = rgc_folder_store(folder, &s, err);
  if (r) return r;
  r = s.set(s.arg, key, data, len, err);
  rgc_folder_store_free(&s);
  return r;
}

int rgc_go_folder_get(const char *folder, const char *key, int64_t timeout, void **data, size_t *len, rgc_error *err) {
  rgc_store s;
  int r = rgc_folder_store(folder, &s, err);
  if (r) return r;
  r = s.get(s.arg, key, timeout, data, len, err);
  rgc_folder_store_free(&s);
  return r;
}

void rgc_go_say(rgc_error *err, int code, const char *text) { rgc_fail(err, code, -1, "%s", text); }
*/
import "C"

import "unsafe"

// API is the core's table of functions (struct rgc_api), for C code that is linked apart from this package.
func API() unsafe.Pointer { return unsafe.Pointer(C.rgc_functions()) }
