/* raygo.h: getting values, waiting for them, and the completion queue. */
#include "abi_int.h"

static raygo_status value_error(rg_slot *s, const uint8_t *p, size_t len, raygo_error *err) {
  if (atomic_load(&s->state) == RG_S_SYSERR) return rga_map_error(err, 0, p, len);
  return rga_fail(err, RAYGO_ETASK,
                  "Task %llx raised a Python exception that only Python can read, since it was not called for another language. Call it with a "
                  "template of this library, or catch the exception in the task.",
                  (unsigned long long)s->oid.task);
}

/* pin: set when the value is in shared memory. */
static raygo_status value_of(struct rga_rt *rt, rg_slot *s, rg_pin *pin, raygo_buf *out, raygo_error *err) {
  const uint8_t *p = pin ? pin->data : s->data, *body;
  size_t len = (size_t)(pin ? pin->len : s->len), n;
  uint32_t format;
  if (!p && len) return rga_fail(err, RAYGO_EINTERNAL, "The engine answered for object %llx.%u without its value.", (unsigned long long)s->oid.task,
                                 s->oid.index);
  if (pin ? pin->is_error : s->is_error) return value_error(s, p, len, err);
  if (!rga_blob(p, len, &format, &body, &n)) return rga_fail(err, RAYGO_EINTERNAL, "The value of object %llx.%u is not whole.",
                                                             (unsigned long long)s->oid.task, s->oid.index);
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
  if (out && n < RGA_MAX) memset(out, 0, n * sizeof *out);
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

raygo_status raygo_wait(raygo_runtime h, const raygo_object *objects, size_t n, size_t need, int64_t timeout_ns, raygo_token token, uint8_t *ready,
                        size_t *nready,
                        raygo_error *err) {
  struct rga_entry *e, **used;
  struct rga_wait w;
  rg_slot **slots;
  size_t have = 0;
  if (ready && n < RGA_MAX) memset(ready, 0, n);
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
