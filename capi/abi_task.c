/* raygo.h: submitting tasks. */
#include "abi_int.h"

void rga_call_end(struct rga_call *k) {
  if (k->tmpl) rga_unuse(k->tmpl);
  if (k->rt) rga_unuse(k->rt);
}

raygo_status rga_call_begin(struct rga_call *k, raygo_runtime h, raygo_template tmpl, raygo_error *err) {
  memset(k, 0, sizeof *k);
  raygo_status r = rga_use_rt(h, &k->rt, err);
  if (r) {
    k->rt = NULL;
    return r;
  }
  k->tmpl = rga_use(tmpl.h, RGA_TEMPLATE);
  if (!k->tmpl) r = rga_stale(err, "template");
  else if (k->tmpl->rt != k->rt->rt) r = rga_fail(err, RAYGO_EINVAL, "The template belongs to another runtime.");
  if (r) rga_call_end(k);
  else k->t = k->tmpl->ptr;
  return r;
}

/* Whether it is one array in which every reference has its object. */
static bool good_args(const raygo_args *a) {
  raygo_mp_reader r = raygo_mp_read(a->packed.data, a->packed.len);
  raygo_mp_value v;
  if (!a->packed.len) return !a->nrefs;
  if (!raygo_mp_next(&r, &v) || v.type != RAYGO_MP_ARRAY) return false;
  uint64_t left = v.n;
  while (left) {
    if (!raygo_mp_next(&r, &v)) return false;
    if (v.type == RAYGO_MP_EXT && (v.ext != 1 || v.s.len != 4 || (uint64_t)v.i >= a->nrefs)) return false;
    left += v.type == RAYGO_MP_ARRAY ? v.n : v.type == RAYGO_MP_MAP ? 2 * (uint64_t)v.n : 0;
    left--;
  }
  return r.p == r.end;
}

/* slots: room for what the template returns (one, for an actor). */
raygo_status rga_submit(struct rga_rt *rt, uint64_t task, uint16_t flags, uint32_t tmpl, uint32_t nreturns, uint64_t actor, const raygo_args *args,
                        rg_slot **slots,
                           raygo_error *err) {
  static const uint8_t none = 0x90;
  static const raygo_args no_args;
  const raygo_args *a = args ? args : &no_args;
  if (!good_args(a) || a->nrefs > UINT32_MAX / 64 || (a->nrefs && !a->refs))
    return rga_fail(err, RAYGO_EINVAL,
                    "The arguments are not one msgpack array in which extension type 1 with a uint32 below %zu stands for each reference "
                    "(raygo_mp_ref writes it).",
                    a->nrefs);
  if (a->packed.len > RG_MAX_FRAME / 2)
    return rga_fail(err, RAYGO_EINVAL,
                    "The arguments are %zu bytes, which is too long for a message: put large values with raygo_put and pass references.", a->packed.len);
  struct rga_entry *few[8], **used = a->nrefs <= 8 ? few : malloc(a->nrefs * sizeof *used);
  struct rg_oid few_oids[8], *oids = a->nrefs <= 8 ? few_oids : malloc(a->nrefs * sizeof *oids);
  raygo_status r = used && oids ? rga_take_slots(rt, a->refs, a->nrefs, used, err) : rga_code(err, RAYGO_ENOMEM, "The task was not submitted");
  if (!r) {
    for (size_t i = 0; i < a->nrefs; i++) oids[i] = ((rg_slot *)used[i]->ptr)->oid;
    struct rg_submit s = {.template_no = tmpl, .nreturns = nreturns, .actor = actor, .ntop = (uint32_t)a->nrefs, .args_len = a->packed.len
                          ? (uint32_t)a->packed.len : 1};
    r = rg_submit(rt->c, task, flags, &s, oids, NULL, a->packed.len ? a->packed.data : &none, NULL, slots);
    if (r) rga_code(err, r, "The task was not submitted");
    for (size_t i = 0; i < a->nrefs; i++) rga_unuse(used[i]);
  }
  if (used != few) free(used);
  if (oids != few_oids) free(oids);
  return r;
}

/* One task, its objects as handles. */
raygo_status rga_submit_one(struct rga_call *k, uint64_t actor, const raygo_args *args, raygo_object *returns, raygo_error *err) {
  static const struct rga_wait briefly = {.deadline = 0};
  uint32_t n = k->t->num_returns, made = 0;
  rg_slot *few[8], **slots = n <= 8 ? few : malloc(n * sizeof *slots);
  uint64_t task = 0;
  if (!slots) return rga_code(err, RAYGO_ENOMEM, "The task was not submitted");
  raygo_status r = rga_number(k->rt->rt, &briefly, &task, err);
  if (!r) r = rga_submit(k->rt->rt, task, actor ? RG_F_ACTOR_CALL : 0, k->t->number, n, actor, args, slots, err);
  if (!r) {
    for (; made < n && !r; made++) r = rga_object_new(k->rt->rt, slots[made], &returns[made], err);
    for (uint32_t i = made; r && i < n; i++) rg_slot_decref(k->rt->rt->c, slots[i]);
    if (r) {   /* nobody could take its values */
      raygo_release(returns, made - 1, NULL);
      memset(returns, 0, n * sizeof *returns);
      rg_cancel(k->rt->rt->c, task, 0, 1);
    }
  }
  if (slots != few) free(slots);
  return r;
}

raygo_status rga_need_returns(const struct rga_call *k, const raygo_object *returns, raygo_error *err) {
  if (!k->t->num_returns || returns) return RAYGO_OK;
  return rga_fail(err, RAYGO_EINVAL, "The template returns %u objects, but `returns` is NULL.", k->t->num_returns);
}

static raygo_status is_task(const struct rga_call *k, raygo_error *err) {
  if (k->t->kind == RAYGO_FUNCTION || k->t->kind == RAYGO_NAMED) return RAYGO_OK;
  return rga_fail(err, RAYGO_EINVAL, "The template is of an actor's %s: use %s.", k->t->kind == RAYGO_METHOD ? "method" : "class",
                  k->t->kind == RAYGO_METHOD ? "raygo_actor_call" : "raygo_actor_new");
}

raygo_status raygo_submit(raygo_runtime h, raygo_template tmpl, const raygo_args *args, raygo_object *returns, raygo_error *err) {
  struct rga_call k;
  raygo_status r = rga_call_begin(&k, h, tmpl, err);
  if (r) return r;
  if (!(r = is_task(&k, err)) && !(r = rga_need_returns(&k, returns, err))) r = rga_submit_one(&k, 0, args, returns, err);
  rga_call_end(&k);
  return r;
}

raygo_status raygo_submit_batch(raygo_runtime h, raygo_template tmpl, const raygo_args *args, size_t n, raygo_object *returns, size_t *done, raygo_error *err) {
  struct rga_call k;
  size_t i = 0;
  if (done) *done = 0;
  raygo_status r = rga_call_begin(&k, h, tmpl, err);
  if (r) return r;
  if (n && !args) r = rga_fail(err, RAYGO_EINVAL, "raygo_submit_batch: `args` is NULL.");
  if (!r && !(r = is_task(&k, err)) && !(n && (r = rga_need_returns(&k, returns, err)))) {
    uint32_t each = k.t->num_returns;
    while (i < n && !(r = rga_submit_one(&k, 0, &args[i], each ? &returns[i * each] : NULL, err))) i++;
    if (each && i < n) memset(&returns[i * each], 0, (n - i) * each * sizeof *returns);
  }
  if (done) *done = i;
  rga_call_end(&k);
  return r;
}

raygo_status raygo_cancel(raygo_runtime h, raygo_object object, uint32_t flags, raygo_error *err) {
  struct rga_entry *e, *o;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (flags & ~(uint32_t)(RAYGO_CANCEL_FORCE | RAYGO_CANCEL_RECURSIVE)) r = rga_fail(err, RAYGO_EINVAL,
                                                                                     "raygo_cancel: %#x has flags that do not exist.", flags);
  if (!r && !(r = rga_take_slots(e->rt, &object, 1, &o, err))) {
    struct rg_oid oid = ((rg_slot *)o->ptr)->oid;
    int k = oid.index ? rg_cancel(e->rt->c, oid.task, (flags & RAYGO_CANCEL_FORCE) != 0, (flags & RAYGO_CANCEL_RECURSIVE) != 0) : 0;
    if (k) r = rga_code(err, k, "The task was not cancelled");
    rga_unuse(o);
  }
  rga_unuse(e);
  return r;
}

/* ------------------------------------------------------------------------------------------------ one call by name */

static raygo_status cached_template(struct rga_rt *rt, raygo_view name, uint32_t *number, raygo_error *err) {
  raygo_template_options o = raygo_template_options_init();
  uint32_t kind = name.len && memchr(name.data, ':', name.len) ? RAYGO_FUNCTION : RAYGO_NAMED;
  raygo_status r = rga_template_check(kind, name, &o, err);
  if (r) return r;
  *number = 0;
  pthread_mutex_lock(&rt->mu);
  for (struct rga_cached *k = rt->cached; k && !*number; k = k->next)
    if (k->len == name.len && memcmp(k->name, name.data, name.len) == 0) *number = k->number;
  pthread_mutex_unlock(&rt->mu);
  if (*number) return RAYGO_OK;
  o.num_returns = 1;
  r = rga_template_send(rt, kind, name, &o, number, err);
  struct rga_cached *k = r ? NULL : malloc(sizeof *k + name.len);
  if (k) {   /* two threads may both make it; the engine gives equal templates one number */
    k->number = *number;
    k->len = name.len;
    memcpy(k->name, name.data, name.len);
    pthread_mutex_lock(&rt->mu);
    k->next = rt->cached;
    rt->cached = k;
    pthread_mutex_unlock(&rt->mu);
  }
  return r;
}

raygo_status raygo_call(raygo_runtime h, raygo_view name, const raygo_args *args, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  uint32_t tmpl;
  uint64_t task;
  rg_slot *slot;
  if (out) memset(out, 0, sizeof *out);
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out) r = rga_fail(err, RAYGO_EINVAL, "raygo_call: `out` is NULL.");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  r = cached_template(e->rt, name, &tmpl, err);
  if (!r) r = rga_number(e->rt, &w, &task, err);
  if (!r) r = rga_submit(e->rt, task, 0, tmpl, 1, 0, args, &slot, err);
  if (!r) {
    r = rga_collect(e->rt, &slot, 1, &w, out, err);
    if (r == RAYGO_EINTERRUPTED || r == RAYGO_ETIMEDOUT) rg_cancel(e->rt->c, task, 0, 1);
    rg_slot_decref(e->rt->c, slot);
  }
  rga_wait_end(&w);
done:
  rga_unuse(e);
  return r;
}
