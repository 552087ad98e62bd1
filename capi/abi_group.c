/* Collectives of raygo.h, over the core in collective/.  That is linked as part of a Go package, so its functions are reached through a table. */
#include "abi_int.h"
#include "../collective/collective.h"

struct group {
  rgc_group *g;
  rgc_store store;
  bool folder;
  struct group *parent;           /* whose store a part of a group uses */
  _Atomic int refs;               /* its handle, and its parts */
};

struct work { rgc_work *w; };

struct callbacks {
  void *store;
  raygo_status (*set)(void *store, raygo_view key, raygo_view value);
  raygo_status (*get)(void *store, raygo_view key, int64_t timeout_ns, void **value, size_t *len);
};

static const struct rgc_api *core(void) { return raygo_engine_collectives(); }

static raygo_status fail(raygo_error *err, int code, const rgc_error *e) {
  rga_fail(err, code, "%s", e->message);
  if (err && err->struct_size >= sizeof *err && e->rank >= 0) {
    uint8_t map[11] = {0x81, 0xa4, 'r', 'a', 'n', 'k', 0xd2, (uint8_t)(e->rank >> 24), (uint8_t)(e->rank >> 16), (uint8_t)(e->rank >> 8), (uint8_t)e->rank};
    rga_buf_copy(&err->detail, map, sizeof map, RAYGO_MSGPACK);
  }
  return code;
}

/* ------------------------------------------------------------------------------------------------ stores of the caller's */

static int store_set(void *arg, const char *key, const void *data, size_t len, rgc_error *err) {
  struct callbacks *c = arg;
  err->code = 0;
  return c->set(c->store, raygo_str(key), raygo_bytes(data, len));
}

static int store_get(void *arg, const char *key, int64_t timeout_ns, void **data, size_t *len, rgc_error *err) {
  struct callbacks *c = arg;
  err->code = 0;
  *data = NULL;
  return c->get(c->store, raygo_str(key), timeout_ns, data, len);
}

static void unref(struct group *g) {
  while (g && atomic_fetch_sub(&g->refs, 1) == 1) {
    struct group *up = g->parent;
    if (g->folder) core()->folder_store_free(&g->store);
    else if (!up) free(g->store.arg);
    free(g);
    g = up;
  }
}

void rga_group_free(void *ptr) {
  struct group *g = ptr;
  core()->drop(g->g);
  unref(g);
}

void rga_work_free(void *ptr) {
  core()->work_free(((struct work *)ptr)->w);
  free(ptr);
}

/* ------------------------------------------------------------------------------------------------ beginning and end */

static raygo_status hand_out(struct group *g, raygo_group *out, raygo_error *err) {
  core()->hold(g->g);               /* a call on a handle that is closed meanwhile is an error, no crash */
  if ((out->h = rga_new(RGA_GROUP, g, NULL))) return RAYGO_OK;
  core()->close(g->g);
  rga_group_free(g);
  return rga_code(err, RAYGO_ENOMEM, "A group could not be made");
}

static char *text_of(raygo_view v) {
  char *s = v.len && v.data ? malloc(v.len + 1) : NULL;
  if (!s) return NULL;
  memcpy(s, v.data, v.len);
  s[v.len] = 0;
  return s;
}

static raygo_status new_group(const raygo_group_options *o, struct group **out, raygo_error *err) {
  struct group *g = calloc(1, sizeof *g);
  rgc_error e = {.rank = -1};
  *out = g;
  if (!g) return rga_code(err, RAYGO_ENOMEM, "A group could not be made");
  atomic_store(&g->refs, 1);
  char *folder = text_of(o->folder);
  if (folder) {
    int r = core()->folder_store(folder, &g->store, &e);
    free(folder);
    g->folder = !r;
    if (r) return fail(err, r, &e);
  } else if (o->store_set && o->store_get) {
    struct callbacks *c = malloc(sizeof *c);
    if (!c) return rga_code(err, RAYGO_ENOMEM, "A group could not be made");
    *c = (struct callbacks){o->store, o->store_set, o->store_get};
    g->store = (rgc_store){c, store_set, store_get};
  }
  return RAYGO_OK;
}

raygo_status raygo_group_open(const raygo_group_options *options, raygo_token token, raygo_group *out, raygo_error *err) {
  if (out) out->h = 0;
  RGA_ENTER(err);
  RGA_NEED(err, out, "raygo_group_open: `out` is NULL.");
  raygo_group_options o;
  RGA_NEED(err, options && rga_options(&o, sizeof o, sizeof o, options), "raygo_group_open: the options are missing or of another version; make them with raygo_group_options_init.");
  RGA_NEED(err, core(), "raygo_group_open: this library was built without collectives.");
  struct rga_wait w;
  raygo_status r = rga_wait_begin(&w, -1, token, err);
  if (r) return r;
  rgc_error e = {.rank = -1};
  struct group *g;
  char *name = text_of(o.name), *node = text_of(o.node);
  if ((r = new_group(&o, &g, err))) {
    if (g) unref(g);
  } else {
    rgc_options c = {.struct_size = sizeof c, .name = name, .rank = o.rank, .size = o.size, .timeout_ns = o.timeout_ns, .store = g->store, .node = node, .arena_bytes = (size_t)o.arena_bytes};
    rgc_wait wait = {0, w.check, w.arg};
    int code = core()->open(&c, &wait, &g->g, &e);
    r = code ? fail(err, code, &e) : hand_out(g, out, err);
    if (code) unref(g);
  }
  free(name);
  free(node);
  rga_wait_end(&w);
  return r;
}

raygo_status raygo_group_close(raygo_group group, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  bool ok = e && rga_drop(e);
  if (ok) core()->close(((struct group *)e->ptr)->g);
  if (e) rga_unuse(e);
  return ok ? RAYGO_OK : rga_stale(err, "group");
}

raygo_status raygo_group_abort(raygo_group group, raygo_view why, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  if (!e) return rga_stale(err, "group");
  char *text = text_of(why);
  rgc_error x = {.rank = -1};
  int code = core()->abort(((struct group *)e->ptr)->g, text, &x);
  free(text);
  rga_unuse(e);
  return code ? fail(err, code, &x) : RAYGO_OK;
}

raygo_status raygo_group_split(raygo_group group, int32_t color, int32_t key, int64_t timeout_ns, raygo_token token, raygo_group *out, raygo_error *err) {
  if (out) out->h = 0;
  RGA_ENTER(err);
  RGA_NEED(err, out, "raygo_group_split: `out` is NULL.");
  struct rga_wait w;
  raygo_status r = rga_wait_begin(&w, -1, token, err);
  if (r) return r;
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  struct group *up = e ? e->ptr : NULL, *g = up ? calloc(1, sizeof *g) : NULL;
  if (!e) {
    r = rga_stale(err, "group");
  } else if (!g) {
    r = rga_code(err, RAYGO_ENOMEM, "A group could not be parted");
  } else {
    rgc_error x = {.rank = -1};
    rgc_wait wait = {timeout_ns, w.check, w.arg};
    atomic_store(&g->refs, 1);
    atomic_fetch_add(&up->refs, 1);
    g->parent = up;
    int code = core()->split(up->g, color, key, &wait, &g->g, &x);
    r = code ? fail(err, code, &x) : g->g ? hand_out(g, out, err) : RAYGO_OK;
    if (code || !g->g) unref(g);
  }
  if (e) rga_unuse(e);
  rga_wait_end(&w);
  return r;
}

raygo_status raygo_group_info(raygo_group group, raygo_group_facts *facts, raygo_error *err) {
  RGA_ENTER(err);
  RGA_NEED(err, facts && facts->struct_size >= sizeof *facts, "raygo_group_info: `facts` is NULL, or its struct_size is not set.");
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  if (!e) return rga_stale(err, "group");
  facts->rank = core()->rank(((struct group *)e->ptr)->g);
  facts->size = core()->size(((struct group *)e->ptr)->g);
  rga_unuse(e);
  return RAYGO_OK;
}

raygo_status raygo_group_alloc(raygo_group group, size_t len, void **out, raygo_error *err) {
  if (out) *out = NULL;
  RGA_ENTER(err);
  RGA_NEED(err, out, "raygo_group_alloc: `out` is NULL.");
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  if (!e) return rga_stale(err, "group");
  rgc_error x = {.rank = -1};
  int code = core()->alloc(((struct group *)e->ptr)->g, len, out, &x);
  rga_unuse(e);
  return code ? fail(err, code, &x) : RAYGO_OK;
}

raygo_status raygo_group_free(raygo_group group, void *data, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  if (!e) return rga_stale(err, "group");
  core()->free(((struct group *)e->ptr)->g, data);
  rga_unuse(e);
  return RAYGO_OK;
}

/* ------------------------------------------------------------------------------------------------ calls */

_Static_assert(sizeof(raygo_block) == sizeof(rgc_block) && offsetof(raygo_block, count) == offsetof(rgc_block, count), "one is handed on as the other");

static bool call_of(const raygo_collective *from, rgc_call *to) {
  raygo_collective c;
  if (!from || !rga_options(&c, sizeof c, sizeof c, from)) return false;
  *to = (rgc_call){.kind = c.kind, .dtype = c.dtype, .op = c.reduction, .root = c.root, .tag = c.tag, .count = c.count, .src = c.src, .dst = c.dst, .srcs = (const rgc_block *)c.srcs,
                   .dsts = (const rgc_block *)c.dsts};
  return true;
}

raygo_status raygo_group_run(raygo_group group, const raygo_collective *call, int64_t timeout_ns, raygo_token token, int32_t *source, raygo_error *err) {
  if (source) *source = -1;
  RGA_ENTER(err);
  rgc_call c;
  RGA_NEED(err, call_of(call, &c), "raygo_group_run: the call is missing or of another version; make it with raygo_collective_init.");
  struct rga_wait w;
  raygo_status r = rga_wait_begin(&w, -1, token, err);
  if (r) return r;
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  rgc_error x = {.rank = -1};
  rgc_wait wait = {timeout_ns, w.check, w.arg};
  int from = -1;
  r = e ? core()->run(((struct group *)e->ptr)->g, &c, &wait, &from, &x) : rga_stale(err, "group");
  if (e && r) fail(err, r, &x);
  if (e) rga_unuse(e);
  if (source) *source = from;
  rga_wait_end(&w);
  return r;
}

raygo_status raygo_group_start(raygo_group group, const raygo_collective *call, int64_t timeout_ns, raygo_work *out, raygo_error *err) {
  if (out) out->h = 0;
  RGA_ENTER(err);
  rgc_call c;
  RGA_NEED(err, out, "raygo_group_start: `out` is NULL.");
  RGA_NEED(err, call_of(call, &c), "raygo_group_start: the call is missing or of another version; make it with raygo_collective_init.");
  struct rga_entry *e = rga_use(group.h, RGA_GROUP);
  if (!e) return rga_stale(err, "group");
  struct work *k = malloc(sizeof *k);
  raygo_status r = k ? RAYGO_OK : rga_code(err, RAYGO_ENOMEM, "A call could not be started");
  if (k) {
    rgc_error x = {.rank = -1};
    rgc_wait wait = {timeout_ns, NULL, NULL};
    int code = core()->start(((struct group *)e->ptr)->g, &c, &wait, NULL, NULL, &k->w, &x);
    if (code) {
      free(k);
      r = fail(err, code, &x);
    } else if (!(out->h = rga_new(RGA_WORK, k, NULL))) {
      rga_work_free(k);
      r = rga_code(err, RAYGO_ENOMEM, "A call was started, but there was no memory for its handle");
    }
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_work_wait(raygo_work work, int64_t timeout_ns, raygo_token token, int32_t *source, int32_t *ended, raygo_error *err) {
  if (source) *source = -1;
  if (ended) *ended = 0;
  RGA_ENTER(err);
  struct rga_wait w;
  raygo_status r = rga_wait_begin(&w, timeout_ns, token, err);
  if (r) return r;
  struct rga_entry *e = rga_use(work.h, RGA_WORK);
  if (!e) {
    r = rga_stale(err, "work");
  } else {
    rgc_work *k = ((struct work *)e->ptr)->w;
    rgc_error x = {.rank = -1};
    rgc_wait wait = {timeout_ns ? timeout_ns : 1, w.check, w.arg};
    int from = -1;
    if ((r = core()->work_wait(k, &wait, &from, &x))) fail(err, r, &x);
    if (source) *source = from;
    if (ended) *ended = core()->work_done(k);
    rga_unuse(e);
  }
  rga_wait_end(&w);
  return r;
}

raygo_status raygo_work_cancel(raygo_work work, int32_t *cancelled, raygo_error *err) {
  if (cancelled) *cancelled = 0;
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(work.h, RGA_WORK);
  if (!e) return rga_stale(err, "work");
  int done = core()->work_cancel(((struct work *)e->ptr)->w);
  if (cancelled) *cancelled = done;
  rga_unuse(e);
  return RAYGO_OK;
}

raygo_status raygo_work_release(raygo_work work, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(work.h, RGA_WORK);
  bool ok = e && rga_drop(e);
  if (e) rga_unuse(e);
  return ok ? RAYGO_OK : rga_stale(err, "work");
}
