/* raygo.h: objects and the completion queue. */
#include "abi_int.h"
#include <stdio.h>

#define PUBLIC_MAX (SIZE_MAX / 64)

uint32_t rga_known_format(uint32_t format) { return format <= RAYGO_ARROW; }

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

/* ------------------------------------------------------------------------------------------------ blobs */

int rga_blob(const uint8_t *p, size_t len, uint32_t *format, const uint8_t **body, size_t *body_len) {
  struct rg_blob h = {0};
  if (len >= sizeof h) memcpy(&h, p, sizeof h);
  size_t at = len ? sizeof h + h.nbuf * sizeof(struct rg_bufent) : 0;
  if (at > len || h.body_len > len - at) return 0;
  *format = h.format;
  *body = p + at;
  *body_len = (size_t)h.body_len;
  return 1;
}

static void write_head(uint8_t *at, uint32_t format, size_t len) {
  struct rg_blob h = {.format = (uint8_t)format, .body_len = len};
  memcpy(at, &h, sizeof h);
}

/* Space in shared memory with the blob's head written; *body is where the bytes go. */
raygo_status rga_store(struct rga_rt *rt, struct rg_oid oid, uint32_t format, size_t len, const struct rga_wait *w, uint8_t **body, raygo_error *err) {
  uint8_t *data;
  char *message = NULL;
  int r = rg_create(rt->c, oid, sizeof(struct rg_blob) + len, rga_left(w), w->check, w->arg, &data, &message);
  if (r) {
    char what[96];
    snprintf(what, sizeof what, "There is no room in the object store for a value of %zu bytes", len);
    rga_said(err, r, what, message, message ? strlen(message) : 0);
  } else {
    write_head(data, format, len);
    *body = data + sizeof(struct rg_blob);
  }
  free(message);
  return r;
}

static raygo_status put_small(struct rga_rt *rt, uint64_t number, uint32_t format, raygo_view body, rg_slot **slot, raygo_error *err) {
  uint8_t small[2048], *blob = small;
  size_t n = sizeof(struct rg_blob) + body.len;
  if (n > sizeof small && !(blob = malloc(n))) return rga_code(err, RAYGO_ENOMEM, "The value was not stored");
  write_head(blob, format, body.len);
  if (body.len) memcpy(blob + sizeof(struct rg_blob), body.data, body.len);
  int r = rg_put(rt->c, number, blob, n, 0, NULL, 0, slot);
  if (blob != small) free(blob);
  return r ? rga_code(err, r, "The value was not stored") : RAYGO_OK;
}

/* The slot of a value that this process wrote into shared memory; it knows without asking that it is there. */
static rg_slot *arena_slot(struct rga_rt *rt, uint64_t number) { return rg_slot_new(rt->c, number, 0, 1); }

static raygo_status seal(struct rga_rt *rt, rg_slot *s, size_t len, raygo_error *err) {
  s->len = len;
  atomic_store_explicit(&s->state, RG_S_ARENA, memory_order_release);
  int r = rg_seal(rt->c, s->oid, len, 0, NULL, 0);
  return r ? rga_code(err, r, "The object was not sealed") : RAYGO_OK;
}

static raygo_status check_value(uint32_t format, size_t len, const void *data, bool has_data, raygo_error *err) {
  if (!rga_known_format(format)) return rga_fail(err, RAYGO_EINVAL, "A value cannot have format %u: see enum raygo_format.", format);
  if (format == RAYGO_NONE && len) return rga_fail(err, RAYGO_EINVAL, "A value of format RAYGO_NONE has no bytes, but %zu were given.", len);
  if (has_data && len && !data) return rga_fail(err, RAYGO_EINVAL, "The value has %zu bytes at a NULL address.", len);
  if (len > PUBLIC_MAX) return rga_fail(err, RAYGO_EINVAL, "A value of %zu bytes is larger than any store.", len);
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
  if (!r) r = check_value(format, body.len, body.data, true, err);
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  r = rga_number(e->rt, &w, &number, err);
  if (!r && body.len + sizeof(struct rg_blob) <= RG_INLINE_MAX) {
    r = put_small(e->rt, number, format, body, &slot, err);
  } else if (!r) {
    uint8_t *to;
    struct rg_oid oid = {number, 0, 0};
    r = rga_store(e->rt, oid, format, body.len, &w, &to, err);
    if (!r) {
      rg_copy(to, body.data, body.len);
      slot = arena_slot(e->rt, number);
      if (slot) {
        r = seal(e->rt, slot, sizeof(struct rg_blob) + body.len, err);
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

raygo_status raygo_create(raygo_runtime h, uint32_t format, size_t len, int64_t timeout_ns, raygo_token token, raygo_object *out, void **data, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  uint64_t number = 0;
  uint8_t *to = NULL;
  if (out) out->h = 0;
  if (data) *data = NULL;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out || !data) r = rga_fail(err, RAYGO_EINVAL, "raygo_create: `%s` is NULL.", out ? "data" : "out");
  if (!r) r = check_value(format, len, NULL, false, err);
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  r = rga_number(e->rt, &w, &number, err);
  struct rg_oid oid = {number, 0, 0};
  if (!r) r = rga_store(e->rt, oid, format, len, &w, &to, err);
  if (!r) {
    rg_slot *slot = arena_slot(e->rt, number);
    if (!slot || !(out->h = rga_new(RGA_OBJECT, slot, e->rt))) {
      if (slot) rg_slot_decref(e->rt->c, slot);
      rg_abort(e->rt->c, oid);
      r = rga_code(err, RAYGO_ENOMEM, "The object was not created");
    } else {
      struct rga_entry *o = rga_use(out->h, RGA_OBJECT);
      slot->len = sizeof(struct rg_blob) + len;
      atomic_store(&o->unsealed, 1);
      rga_unuse(o);
      *data = to;
    }
  }
  rga_wait_end(&w);
done:
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

/* ------------------------------------------------------------------------------------------------ get */

static raygo_status value_error(rg_slot *s, const uint8_t *p, size_t len, raygo_error *err) {
  if (atomic_load(&s->state) == RG_S_SYSERR) return rga_map_error(err, 0, p, len);
  return rga_fail(err, RAYGO_ETASK,
                  "Task %llx raised a Python exception that only Python can read, since it was not called for another language. Call it with a template of this "
                  "library, or catch the exception in the task.",
                  (unsigned long long)s->oid.task);
}

/* pin: set when the value is in shared memory. */
static raygo_status value_of(struct rga_rt *rt, rg_slot *s, rg_pin *pin, raygo_buf *out, raygo_error *err) {
  const uint8_t *p = pin ? pin->data : s->data, *body;
  size_t len = (size_t)(pin ? pin->len : s->len), n;
  uint32_t format;
  if (!p && len) return rga_fail(err, RAYGO_EINTERNAL, "The engine answered for object %llx.%u without its value.", (unsigned long long)s->oid.task, s->oid.index);
  if (pin ? pin->is_error : s->is_error) return value_error(s, p, len, err);
  if (!rga_blob(p, len, &format, &body, &n)) return rga_fail(err, RAYGO_EINTERNAL, "The value of object %llx.%u is not whole.", (unsigned long long)s->oid.task, s->oid.index);
  bool ok = pin ? rga_buf_pin(out, pin, body, n, format) : rga_buf_slot(out, rt->c, s, body, n, format);
  return ok ? RAYGO_OK : rga_code(err, RAYGO_ENOMEM, "The value could not be handed over");
}

/* What the engine says about a wait that did not end; it must not make the caller wait much longer. */
static raygo_status timed_out(struct rga_rt *rt, rg_slot **slots, size_t n, raygo_error *err) {
  size_t missing = 0;
  struct rga_wait w = {.deadline = rga_now() + RAYGO_SECOND};
  raygo_mp arg = RAYGO_MP_INIT;
  uint8_t *reply = NULL;
  size_t len = 0;
  if (!err) return RAYGO_ETIMEDOUT;
  for (size_t i = 0; i < n; i++) missing += atomic_load(&slots[i]->state) == RG_S_PENDING;
  raygo_mp_map(&arg, 1);
  raygo_mp_str(&arg, "objects");
  raygo_mp_array(&arg, (uint32_t)(missing < 10 ? missing : 10));
  for (size_t i = 0, k = 0; i < n && k < 10 && k < missing; i++)
    if (atomic_load(&slots[i]->state) == RG_S_PENDING) {
      raygo_mp_array(&arg, 2);
      raygo_mp_uint(&arg, slots[i]->oid.task);
      raygo_mp_uint(&arg, slots[i]->oid.index);
      k++;
    }
  raygo_mp_value v = {0};
  if (!rga_ask(rt, "explain", raygo_mp_view(&arg), &w, &reply, &len, NULL)) {
    raygo_mp_reader r = raygo_mp_read(reply, len);
    if (!raygo_mp_next(&r, &v) || v.type != RAYGO_MP_STR) v.s.len = 0;
  }
  rga_fail(err, RAYGO_ETIMEDOUT, "%zu of %zu objects had no value when the timeout passed%s%.*s", missing, n, v.s.len ? ": " : ".", (int)v.s.len,
           v.s.len ? (const char *)v.s.data : "");
  free(reply);
  raygo_mp_free(&arg);
  return RAYGO_ETIMEDOUT;
}

static raygo_status await(struct rga_rt *rt, rg_slot **slots, size_t n, size_t need, const struct rga_wait *w, raygo_error *err) {
  uint8_t *why = NULL;
  size_t why_len = 0;
  int r = rg_wait(rt->c, slots, n, need, 0, w->deadline, w->check, w->arg, &why, &why_len);
  if (r == RAYGO_EDEADLOCK && why) rga_map_error(err, r, why, why_len);
  else if (r == RAYGO_ETIMEDOUT && w->deadline) timed_out(rt, slots, n, err);
  else if (r) rga_code(err, r, "The wait for objects ended early");
  free(why);
  return r;
}

raygo_status rga_collect(struct rga_rt *rt, rg_slot **slots, size_t n, const struct rga_wait *w, raygo_buf *out, raygo_error *err) {
  memset(out, 0, n * sizeof *out);
  raygo_status r = await(rt, slots, n, n, w, err);
  if (r || !n) return r;
  rg_slot **large = malloc(n * sizeof *large);
  rg_pin **pins = calloc(n, sizeof *pins);
  size_t nlarge = 0, k = 0;
  if (!large || !pins) r = rga_code(err, RAYGO_ENOMEM, "The values could not be read");
  for (size_t i = 0; i < n && !r; i++)
    if (atomic_load_explicit(&slots[i]->state, memory_order_acquire) == RG_S_ARENA) large[nlarge++] = slots[i];
  if (nlarge) {
    /* Also with a timeout of 0: a value that is there is there, and the engine answers at once unless it has to be read from disk. */
    int p = rg_pin_slots(rt->c, large, nlarge, pins, 0, w->deadline ? w->deadline : rga_now() + RAYGO_SECOND, w->check, w->arg);
    if (p) r = rga_code(err, p, "The values could not be read from shared memory");
  }
  for (size_t i = 0; i < n && !r; i++) {
    rg_pin *pin = k < nlarge && large[k] == slots[i] ? pins[k++] : NULL;
    r = value_of(rt, slots[i], pin, &out[i], err);
  }
  for (size_t i = 0; i < nlarge; i++)
    if (pins[i]) rg_pin_decref(pins[i]);
  for (size_t i = 0; i < n && r; i++) raygo_buf_release(&out[i]);
  free(large);
  free(pins);
  return r;
}

/* The n handles in use and their slots, in one block; NULL with *r set. */
static struct rga_entry **take(struct rga_rt *rt, const raygo_object *objects, size_t n, rg_slot ***slots, raygo_status *r, raygo_error *err) {
  if (n > UINT32_MAX || (n && !objects)) {
    *r = objects ? rga_fail(err, RAYGO_EINVAL, "%zu objects are too many for one call.", n) : rga_fail(err, RAYGO_EINVAL, "`objects` is NULL.");
    return NULL;
  }
  struct rga_entry **e = malloc((n + 1) * (sizeof *e + sizeof **slots));
  if (!e) {
    *r = rga_code(err, RAYGO_ENOMEM, "The objects could not be waited for");
    return NULL;
  }
  *r = rga_take_slots(rt, objects, n, e, err);
  if (*r) {
    free(e);
    return NULL;
  }
  *slots = (rg_slot **)(e + n);
  for (size_t i = 0; i < n; i++) (*slots)[i] = e[i]->ptr;
  return e;
}

static void untake(struct rga_entry **e, size_t n) {
  for (size_t i = 0; i < n; i++) rga_unuse(e[i]);
  free(e);
}

raygo_status raygo_get(raygo_runtime h, const raygo_object *objects, size_t n, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  struct rga_entry *e, **used;
  struct rga_wait w;
  rg_slot **slots;
  if (out && n < PUBLIC_MAX) memset(out, 0, n * sizeof *out);
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (n && !out) r = rga_fail(err, RAYGO_EINVAL, "raygo_get: `out` is NULL.");
  if (!r && (used = take(e->rt, objects, n, &slots, &r, err))) {
    if (!(r = rga_wait_begin(&w, timeout_ns, token, err))) {
      r = rga_collect(e->rt, slots, n, &w, out, err);
      rga_wait_end(&w);
    }
    untake(used, n);
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_wait(raygo_runtime h, const raygo_object *objects, size_t n, size_t need, int64_t timeout_ns, raygo_token token, uint8_t *ready, size_t *nready,
                        raygo_error *err) {
  struct rga_entry *e, **used;
  struct rga_wait w;
  rg_slot **slots;
  size_t have = 0;
  if (ready && n < PUBLIC_MAX) memset(ready, 0, n);
  if (nready) *nready = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (need > n) r = rga_fail(err, RAYGO_EINVAL, "raygo_wait: %zu of %zu objects cannot be waited for.", need, n);
  if (!r && (used = take(e->rt, objects, n, &slots, &r, err))) {
    if (!(r = rga_wait_begin(&w, timeout_ns, token, err))) {
      if (!need) {   /* a look: what has arrived counts, and whoever was not asked for is asked for now */
        int k = n ? rg_wait(e->rt->c, slots, n, n, 0, 0, NULL, NULL, NULL, NULL) : 0;
        if (k && k != RAYGO_ETIMEDOUT) r = rga_code(err, k, "The objects could not be looked at");
      } else {
        r = await(e->rt, slots, n, need, &w, err);
      }
      rga_wait_end(&w);
    }
    for (size_t i = 0; i < n; i++) {
      bool there = atomic_load_explicit(&slots[i]->state, memory_order_acquire) != RG_S_PENDING;
      if (ready) ready[i] = there;
      have += there;
    }
    if (nready) *nready = have;
    untake(used, n);
  }
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

/* ------------------------------------------------------------------------------------------------ completion queue */

raygo_status raygo_cq_fd(raygo_runtime h, int *fd, raygo_error *err) {
  struct rga_entry *e;
  if (fd) *fd = -1;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!fd) r = rga_fail(err, RAYGO_EINVAL, "raygo_cq_fd: `fd` is NULL.");
  else if (!rg_client_alive(e->rt->c)) r = rga_code(err, atomic_load(&e->rt->down) ? RAYGO_ESHUTDOWN : RAYGO_ECONNECTION, "There is no completion queue");
  else if ((*fd = rg_cq_fd(e->rt->c)) < 0) r = rga_fail(err, RAYGO_ENOMEM, "The kernel gives no eventfd: the process has too many open files.");
  rga_unuse(e);
  return r;
}

raygo_status raygo_cq_watch(raygo_runtime h, raygo_object object, uint64_t tag, int32_t *ready, raygo_error *err) {
  struct rga_entry *e, *o = NULL;
  if (ready) *ready = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!tag || !ready) r = rga_fail(err, RAYGO_EINVAL, "raygo_cq_watch: `%s`.", tag ? "ready` is NULL" : "tag` is 0");
  else if (!rg_client_alive(e->rt->c)) r = rga_code(err, atomic_load(&e->rt->down) ? RAYGO_ESHUTDOWN : RAYGO_ECONNECTION, "The object cannot be watched");
  else if (!(r = rga_take_slots(e->rt, &object, 1, &o, err))) *ready = rg_cq_watch(e->rt->c, o->ptr, tag) != 0;
  if (o && !r) rga_unuse(o);
  rga_unuse(e);
  return r;
}

raygo_status raygo_cq_poll(raygo_runtime h, uint64_t *tags, size_t max, size_t *n, raygo_error *err) {
  struct rga_entry *e;
  if (n) *n = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!n || (max && !tags)) r = rga_fail(err, RAYGO_EINVAL, "raygo_cq_poll: `%s` is NULL.", n ? "tags" : "n");
  else *n = rg_cq_poll(e->rt->c, tags, max);
  if (!r && !*n && !rg_client_alive(e->rt->c)) r = rga_code(err, atomic_load(&e->rt->down) ? RAYGO_ESHUTDOWN : RAYGO_ECONNECTION, "Nothing more will come");
  rga_unuse(e);
  return r;
}
