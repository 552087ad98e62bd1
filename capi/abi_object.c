/* raygo.h: objects: storing them, and references. */
#include "abi_int.h"
#include <stdio.h>

raygo_status rga_object_new(struct rga_rt *rt, rg_slot *slot, raygo_object *out, raygo_error *err) {
  out->h = rga_new(RGA_OBJECT, slot, rt);
  if (out->h) return RAYGO_OK;
  rg_slot_decref(rt->c, slot);
  return rga_code(err, RAYGO_ENOMEM, "A handle for the object could not be made");
}

static raygo_status use_object(raygo_object o, struct rga_entry **e, raygo_error *err) {
  RGA_ENTER(err);
  *e = rga_use(o.h, RGA_OBJECT);
  return *e ? RAYGO_OK : rga_stale(err, "object");
}

raygo_status rga_take_slots(struct rga_rt *rt, const raygo_object *objects, size_t n, struct rga_entry **e, raygo_error *err) {
  raygo_status r = RAYGO_OK;
  size_t i = 0;
  for (; i < n && !r; i++) {
    e[i] = rga_use(objects[i].h, RGA_OBJECT);
    if (!e[i]) {
      r = rga_fail(err, RAYGO_ESTALE, "Object %zu of %zu: its handle is no handle or was released.", i, n);
      break;
    }
    if (e[i]->rt != rt) r = rga_fail(err, RAYGO_EINVAL, "Object %zu of %zu belongs to another runtime.", i, n);
    else if (atomic_load(&e[i]->unsealed)) r = rga_fail(err, RAYGO_EINVAL, "Object %zu of %zu has no value yet: seal it with raygo_seal first.", i, n);
  }
  while (r && i) rga_unuse(e[--i]);
  return r;
}

/* ------------------------------------------------------------------------------------------------ storing */

/* Space in shared memory with the blob's head written; *body is where the bytes go.  body0: the value's bytes as far as rga_head_write reads them. */
raygo_status rga_store(struct rga_rt *rt, struct rg_oid oid, uint32_t format, size_t len, const void *body0, const struct rga_wait *w, uint8_t **body,
                       raygo_error *err) {
  uint8_t *data;
  char *message = NULL;
  int r = rg_create(rt->c, oid, rga_head(format) + len, rga_left(w), w->check, w->arg, &data, NULL, &message);
  if (r) {
    char what[96];
    snprintf(what, sizeof what, "There is no room in the object store for a value of %zu bytes", len);
    rga_said(err, r, what, message, message ? strlen(message) : 0);
  } else {
    rga_head_write(data, format, body0, len);
    *body = data + rga_head(format);
  }
  free(message);
  return r;
}

static raygo_status put_small(struct rga_rt *rt, uint64_t number, uint32_t format, raygo_view body, rg_slot **slot, raygo_error *err) {
  uint8_t small[2048], *blob = small;
  size_t head = rga_head(format), n = head + body.len;
  if (n > sizeof small && !(blob = malloc(n))) return rga_code(err, RAYGO_ENOMEM, "The value was not stored");
  rga_head_write(blob, format, body.data, body.len);
  if (body.len) memcpy(blob + head, body.data, body.len);
  int r = rg_put(rt->c, number, blob, n, 0, NULL, 0, slot);
  if (blob != small) free(blob);
  return r ? rga_code(err, r, "The value was not stored") : RAYGO_OK;
}

/* The slot of a value that this process wrote into shared memory; it knows without asking that it is there. */
static rg_slot *arena_slot(struct rga_rt *rt, uint64_t number) { return rg_slot_new(rt->c, number, 0, 1); }

static raygo_status seal(struct rga_rt *rt, rg_slot *s, size_t len, raygo_error *err) {
  rg_slot_stored(s, len, 0, NULL);
  int r = rg_seal(rt->c, s->oid, len, 0, NULL, 0);
  return r ? rga_code(err, r, "The object was not sealed") : RAYGO_OK;
}

raygo_status rga_check_value(uint32_t format, raygo_view body, raygo_error *err) {
  if (!rga_known_format(format)) return rga_fail(err, RAYGO_EINVAL, "A value cannot have format %u: see enum raygo_format.", format);
  if (format == RAYGO_NONE && body.len) return rga_fail(err, RAYGO_EINVAL, "A value of format RAYGO_NONE has no bytes, but %zu were given.", body.len);
  if (body.len && !body.data) return rga_fail(err, RAYGO_EINVAL, "The value has %zu bytes at a NULL address.", body.len);
  if (body.len > RGA_MAX) return rga_fail(err, RAYGO_EINVAL, "A value of %zu bytes is larger than any store.", body.len);
  return format == RAYGO_TENSOR ? rga_check_tensor(body, err) : RAYGO_OK;
}

/* Space for a value, as a handle that waits for its seal. */
raygo_status rga_create(struct rga_rt *rt, uint32_t format, size_t len, const void *body0, const struct rga_wait *w, raygo_object *out, void **data,
                        raygo_error *err) {
  uint64_t number;
  uint8_t *to;
  raygo_status r = rga_number(rt, w, &number, err);
  struct rg_oid oid = {number, 0, 0};
  if (r || (r = rga_store(rt, oid, format, len, body0, w, &to, err))) return r;
  rg_slot *slot = arena_slot(rt, number);
  if (!slot || !(out->h = rga_new(RGA_OBJECT, slot, rt))) {
    if (slot) rg_slot_decref(rt->c, slot);
    rg_abort(rt->c, oid);
    return rga_code(err, RAYGO_ENOMEM, "The object was not created");
  }
  struct rga_entry *o = rga_use(out->h, RGA_OBJECT);
  slot->len = rga_head(format) + len;
  rg_touch(rt->c, to, len);
  atomic_store(&o->unsealed, 1);
  rga_unuse(o);
  *data = to;
  return RAYGO_OK;
}

raygo_status raygo_put(raygo_runtime h, uint32_t format, raygo_view body, int64_t timeout_ns, raygo_token token, raygo_object *out, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  uint64_t number = 0;
  rg_slot *slot = NULL;
  if (out) out->h = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out) r = rga_fail(err, RAYGO_EINVAL, "raygo_put: `out` is NULL.");
  if (!r) r = rga_check_value(format, body, err);
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  r = rga_number(e->rt, &w, &number, err);
  if (!r && body.len + rga_head(format) <= RG_INLINE_MAX) {
    r = put_small(e->rt, number, format, body, &slot, err);
  } else if (!r) {
    uint8_t *to;
    struct rg_oid oid = {number, 0, 0};
    r = rga_store(e->rt, oid, format, body.len, body.data, &w, &to, err);
    if (!r) {
      rg_fill(e->rt->c, to, body.data, body.len);
      slot = arena_slot(e->rt, number);
      if (slot) {
        r = seal(e->rt, slot, rga_head(format) + body.len, err);
      } else {
        rg_abort(e->rt->c, oid);
        r = rga_code(err, RAYGO_ENOMEM, "The value was not stored");
      }
      if (r && slot) rg_slot_decref(e->rt->c, slot);
    }
  }
  if (!r) r = rga_object_new(e->rt, slot, out, err);
  rga_wait_end(&w);
done:
  rga_unuse(e);
  return r;
}

raygo_status raygo_create(raygo_runtime h, uint32_t format, size_t len, int64_t timeout_ns, raygo_token token, raygo_object *out, void **data,
                          raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  if (out) out->h = 0;
  if (data) *data = NULL;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out || !data) r = rga_fail(err, RAYGO_EINVAL, "raygo_create: `%s` is NULL.", out ? "data" : "out");
  else if (format == RAYGO_TENSOR) r = rga_fail(err, RAYGO_EINVAL, "raygo_create: make the space of an array with raygo_create_tensor, which is told its shape.");
  else r = rga_check_value(format, raygo_bytes("", len), err);
  if (!r && !(r = rga_wait_begin(&w, timeout_ns, token, err))) {
    r = rga_create(e->rt, format, len, NULL, &w, out, data, err);
    rga_wait_end(&w);
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_seal(raygo_object object, raygo_error *err) {
  struct rga_entry *e;
  raygo_status r = use_object(object, &e, err);
  if (r) return r;
  rg_slot *s = e->ptr;
  if (!atomic_exchange(&e->unsealed, 0)) r = rga_fail(err, RAYGO_EINVAL, "raygo_seal: the object does not come from raygo_create, or was sealed before.");
  else r = seal(e->rt, s, s->len, err);
  rga_unuse(e);
  return r;
}

raygo_status raygo_abort(raygo_object object, raygo_error *err) {
  struct rga_entry *e;
  raygo_status r = use_object(object, &e, err);
  if (r) return r;
  if (!atomic_load(&e->unsealed)) r = rga_fail(err, RAYGO_EINVAL, "raygo_abort: the object does not come from raygo_create, or was sealed before.");
  else if (!rga_drop(e)) r = rga_stale(err, "object");   /* the space goes with the handle's last use */
  rga_unuse(e);
  return r;
}

/* ------------------------------------------------------------------------------------------------ references */

raygo_status raygo_retain(const raygo_object *objects, size_t n, raygo_error *err) {
  raygo_status first = RAYGO_OK;
  RGA_ENTER(err);
  RGA_NEED(err, objects || !n, "raygo_retain: `objects` is NULL.");
  for (size_t i = 0; i < n; i++) {
    struct rga_entry *e = rga_use(objects[i].h, RGA_OBJECT);
    int32_t refs = e ? atomic_load(&e->refs) : 0;
    while (refs > 0 && refs < INT32_MAX && !atomic_compare_exchange_weak(&e->refs, &refs, refs + 1)) {
    }
    if (refs <= 0 && !first) first = rga_stale(err, "object");
    if (refs == INT32_MAX && !first) first = rga_fail(err, RAYGO_EINVAL, "raygo_retain: the handle has 2^31 references already.");
    if (e) rga_unuse(e);
  }
  return first;
}

raygo_status raygo_release(const raygo_object *objects, size_t n, raygo_error *err) {
  raygo_status first = RAYGO_OK;
  RGA_ENTER(err);
  RGA_NEED(err, objects || !n, "raygo_release: `objects` is NULL.");
  for (size_t i = 0; i < n; i++) {
    struct rga_entry *e = rga_use(objects[i].h, RGA_OBJECT);
    int32_t refs = e ? atomic_load(&e->refs) : 0;
    while (refs > 0 && !atomic_compare_exchange_weak(&e->refs, &refs, refs - 1)) {
    }
    if (refs <= 0 && !first) first = rga_stale(err, "object");
    if (refs == 1) rga_drop(e);
    if (e) rga_unuse(e);
  }
  return first;
}

static void put_le(uint8_t *at, uint64_t v, int n) {
  for (int i = 0; i < n; i++) at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *at, int n) {
  uint64_t v = 0;
  for (int i = n; i--;) v = v << 8 | at[i];
  return v;
}

raygo_status raygo_object_id(raygo_object object, uint8_t id[28], raygo_error *err) {
  struct rga_entry *e;
  if (id) memset(id, 0, 28);
  raygo_status r = use_object(object, &e, err);
  if (r) return r;
  if (!id) {
    r = rga_fail(err, RAYGO_EINVAL, "raygo_object_id: `id` is NULL.");
  } else if (atomic_load(&e->unsealed)) {
    r = rga_fail(err, RAYGO_EINVAL, "raygo_object_id: nobody else can use the object yet. Seal it with raygo_seal first.");
  } else {
    struct rg_oid o = ((rg_slot *)e->ptr)->oid;
    put_le(id, o.task, 8);
    put_le(id + 8, e->rt->incarnation, 8);
    put_le(id + 20, e->rt->job, 4);
    put_le(id + 24, o.index, 4);
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_object_from_id(raygo_runtime h, const uint8_t id[28], raygo_object *out, raygo_error *err) {
  struct rga_entry *e;
  if (out) out->h = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!id || !out) {
    r = rga_fail(err, RAYGO_EINVAL, "raygo_object_from_id: `%s` is NULL.", id ? "out" : "id");
  } else if (get_le(id + 8, 8) != e->rt->incarnation || !get_le(id, 8)) {
    r = rga_fail(err, RAYGO_ESTALE, "The id belongs to another session: objects do not outlive the engine that held them.");
  } else if (!rg_client_alive(e->rt->c)) {
    r = rga_code(err, atomic_load(&e->rt->down) ? RAYGO_ESHUTDOWN : RAYGO_ECONNECTION, "The reference was not made");
  } else {
    struct rg_oid oid = {get_le(id, 8), (uint32_t)get_le(id + 24, 4), 0};
    rg_slot *s = rg_slot_ref(e->rt->c, oid);
    if (s) rg_refs_flush(e->rt->c);   /* whoever gave the bytes may let go as soon as this returns */
    r = s ? rga_object_new(e->rt, s, out, err) : rga_code(err, RAYGO_ENOMEM, "The reference was not made");
  }
  rga_unuse(e);
  return r;
}
