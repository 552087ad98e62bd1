/* raygo.h: templates, tasks and actors, from the side that calls. */
#include "abi_int.h"

#define UNITS 10000.0
#define NOTHING UINT32_MAX          /* num_returns of a template that returns nothing */

/* ------------------------------------------------------------------------------------------------ templates */

/* 128 bits over what a template runs; equal keys are equal functions to the engine. */
static void hash128(const uint8_t *p, size_t n, uint64_t out[2]) {
  uint64_t a = 0x9ae16a3b2f90404fu ^ n, b = 0xc949c7defebedd5bu;
  for (size_t i = 0; i < n; i += 8) {
    uint64_t w = 0;
    memcpy(&w, p + i, n - i < 8 ? n - i : 8);
    a = (a ^ w * 0x87c37b91114253d5u) * 0x4cf5ad432745937fu;
    a = (a << 31 | a >> 33) + b;
    b = (b ^ (w << 32 | w >> 32) * 0xff51afd7ed558ccdu) * 0xc4ceb9fe1a85ec53u;
    b = (b << 29 | b >> 35) + a;
  }
  for (int i = 0; i < 2; i++) {
    a = (a ^ a >> 33) * 0xff51afd7ed558ccdu;
    b = (b ^ b >> 29) * 0xc4ceb9fe1a85ec53u;
    a += b;
    b ^= a >> 31;
  }
  out[0] = a;
  out[1] = b;
}

static uint32_t resources_count(const raygo_template_options *o, double cpus) {
  raygo_mp_value head = {0};
  raygo_mp_reader r = raygo_mp_read(o->resources.data, o->resources.len);
  raygo_mp_next(&r, &head);
  return (cpus > 0) + (o->num_gpus > 0) + (o->memory > 0) + head.n;
}

static void amount(raygo_mp *w, const char *name, double v) {
  raygo_mp_str(w, name);
  raygo_mp_int(w, (int64_t)(v * UNITS + 0.5));
}

static bool write_resources(raygo_mp *w, const raygo_template_options *o, double cpus) {
  raygo_mp_reader r = raygo_mp_read(o->resources.data, o->resources.len);
  raygo_mp_value head = {0}, key, v;
  raygo_mp_map(w, resources_count(o, cpus));
  if (cpus > 0) amount(w, "CPU", cpus);
  if (o->num_gpus > 0) amount(w, "GPU", o->num_gpus);
  if (o->memory) amount(w, "memory", (double)o->memory);
  if (o->resources.len && (!raygo_mp_next(&r, &head) || head.type != RAYGO_MP_MAP)) return false;
  for (uint32_t i = 0; i < head.n; i++) {
    if (!raygo_mp_next(&r, &key) || key.type != RAYGO_MP_STR || !raygo_mp_next(&r, &v) || (v.type != RAYGO_MP_INT && v.type != RAYGO_MP_FLOAT)) return false;
    if (!(v.f >= 0 && v.f < 9e14)) return false;
    raygo_mp_text(w, key.s);
    raygo_mp_int(w, (int64_t)(v.f * UNITS + 0.5));
  }
  return r.p == r.end;
}

static void key_int(raygo_mp *w, const char *key, int64_t v) {
  raygo_mp_str(w, key);
  raygo_mp_int(w, v);
}

static void split(raygo_view function, raygo_view *module, raygo_view *qualname) {
  const char *p = function.data, *colon = memchr(p, ':', function.len);
  size_t n = colon ? (size_t)(colon - p) : 0;
  *module = raygo_bytes(p, n);
  *qualname = colon ? raygo_bytes(colon + 1, function.len - n - 1) : function;
}

static double default_cpus(uint32_t kind, double given) {
  if (given < 0) return 0;
  return given > 0 || kind != RAYGO_FUNCTION ? given : 1;
}

raygo_status rga_template_send(struct rga_rt *rt, uint32_t kind, raygo_view function, const raygo_template_options *o, uint32_t *number, raygo_error *err) {
  static const char *const kinds[] = {NULL, "function", "actor", "method", "named"};
  bool imported = kind == RAYGO_FUNCTION || kind == RAYGO_ACTOR;
  raygo_mp w = RAYGO_MP_INIT;
  raygo_view module, qualname;
  raygo_mp_value extra = {0};
  raygo_mp_reader more = raygo_mp_read(o->extra.data, o->extra.len), check = more;
  uint64_t key[2];
  if (o->extra.len && (!raygo_mp_next(&more, &extra) || extra.type != RAYGO_MP_MAP || !raygo_mp_skip(&check) || check.p != check.end))
    return rga_fail(err, RAYGO_EINVAL, "raygo_template_options.extra is not one msgpack map.");
  split(function, &module, &qualname);
  hash128(function.data, function.len, key);
  bool retries = o->max_retries || kind == RAYGO_FUNCTION;
  int64_t max_retries = o->max_retries == -2 ? 0 : o->max_retries ? o->max_retries : 3;
  bool placed = kind == RAYGO_ACTOR && o->num_cpus == 0;   /* as in Ray: one CPU to be placed, none to live */
  uint32_t n = 9 + (imported ? 1 : 0) + (retries ? 1 : 0) + (placed ? 1 : 0) + (o->max_calls != 0) + (o->runtime_env.len != 0) + (kind == RAYGO_ACTOR ? 6 : 0) +
               (kind == RAYGO_METHOD ? 1 : 0);
  raygo_mp_map(&w, n + extra.n);
  rga_key_view(&w, "kind", raygo_str(kinds[kind]));
  rga_key_view(&w, "name", kind == RAYGO_NAMED || !o->name.len ? (kind == RAYGO_NAMED || kind == RAYGO_METHOD ? function : qualname) : o->name);
  rga_key_view(&w, "qualname", qualname);
  rga_key_view(&w, "module", module);
  raygo_mp_str(&w, "key");
  raygo_mp_bin(&w, raygo_bytes(key, sizeof key));
  rga_key_view(&w, "codec", raygo_str(imported ? "import" : "msgpack"));
  if (imported) {
    raygo_mp_str(&w, "blob");
    raygo_mp_bin(&w, function);
  }
  raygo_mp_str(&w, "resources");
  bool ok = write_resources(&w, o, default_cpus(kind, o->num_cpus));
  if (placed) {
    raygo_mp_str(&w, "placement");
    ok = write_resources(&w, o, 1) && ok;
  }
  rga_key_uint(&w, "num_returns", o->num_returns == NOTHING ? 0 : o->num_returns);
  rga_key_uint(&w, "retry_exceptions", o->retry_exceptions != 0);
  if (retries) key_int(&w, kind == RAYGO_METHOD ? "max_task_retries" : "max_retries", max_retries);
  if (o->max_calls) rga_key_uint(&w, "max_calls", o->max_calls);
  if (o->runtime_env.len) rga_key_view(&w, "runtime_env", o->runtime_env);
  if (kind == RAYGO_METHOD) rga_key_view(&w, "method", function);
  if (kind == RAYGO_ACTOR) {
    rga_key_view(&w, "actor_name", o->actor_name);
    rga_key_view(&w, "namespace", o->name_space.len ? o->name_space : raygo_str(rt->name_space));
    raygo_mp_str(&w, "detached");
    raygo_mp_bool(&w, o->detached != 0);
    key_int(&w, "max_restarts", o->max_restarts);
    key_int(&w, "max_task_retries", o->max_task_retries);
    rga_key_uint(&w, "max_concurrency", o->max_concurrency);
  }
  raygo_mp_raw(&w, more.p, o->extra.len ? (size_t)(more.end - more.p) : 0);
  *number = atomic_fetch_add(&rt->templates, 1) + 1;
  raygo_status r = RAYGO_OK;
  if (!ok) r = rga_fail(err, RAYGO_EINVAL, "raygo_template_options.resources must be a msgpack map of names to amounts that are not negative.");
  else if (w.failed) r = rga_code(err, RAYGO_ENOMEM, "The template was not made");
  else if ((r = rg_template(rt->c, *number, w.p, w.n))) rga_code(err, r, "The template was not made");
  raygo_mp_free(&w);
  return r;
}

void rga_template_free(struct rga_template *t) { free(t); }

static raygo_status check_template(uint32_t kind, raygo_view function, const raygo_template_options *o, raygo_error *err) {
  raygo_view module, qualname;
  if (kind < RAYGO_FUNCTION || kind > RAYGO_NAMED) return rga_fail(err, RAYGO_EINVAL, "raygo_template_new: %u is no kind of template.", kind);
  if (!function.len || !function.data) return rga_fail(err, RAYGO_EINVAL, "raygo_template_new: the function has no name.");
  split(function, &module, &qualname);
  if (kind <= RAYGO_ACTOR && (!module.len || !qualname.len))
    return rga_fail(err, RAYGO_EINVAL, "\"%.*s\" names no Python function: it must be \"module:qualname\", as in \"os.path:join\".", (int)function.len,
                    (const char *)function.data);
  if (kind >= RAYGO_METHOD && memchr(function.data, ':', function.len))
    return rga_fail(err, RAYGO_EINVAL, "\"%.*s\" has a colon, which the name of a %s cannot have.", (int)function.len, (const char *)function.data,
                    kind == RAYGO_METHOD ? "method" : "served function");
  if (kind != RAYGO_ACTOR && (o->actor_name.len || o->detached || o->get_if_exists || o->max_restarts))
    return rga_fail(err, RAYGO_EINVAL, "actor_name, detached, get_if_exists and max_restarts are options of RAYGO_ACTOR templates only.");
  return RAYGO_OK;
}

raygo_status raygo_template_new(raygo_runtime h, uint32_t kind, raygo_view function, const raygo_template_options *options, raygo_template *out, raygo_error *err) {
  struct rga_entry *e;
  raygo_template_options o;
  if (out) out->h = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out) r = rga_fail(err, RAYGO_EINVAL, "raygo_template_new: `out` is NULL.");
  else if (!rga_options(&o, sizeof o, sizeof o, options))
    r = rga_fail(err, RAYGO_EINVAL,
                 "raygo_template_options.struct_size is too small, or the struct says something that this version does not know: make it with "
                 "raygo_template_options_init().");
  else r = check_template(kind, function, &o, err);
  if (r) goto done;
  if (!o.num_returns) o.num_returns = 1;
  raygo_view ns = o.name_space.len ? o.name_space : raygo_str(e->rt->name_space);
  struct rga_template *t = calloc(1, sizeof *t + o.actor_name.len + ns.len);
  if (!t) {
    r = rga_code(err, RAYGO_ENOMEM, "The template was not made");
    goto done;
  }
  t->kind = kind;
  t->num_returns = kind == RAYGO_ACTOR || o.num_returns == NOTHING ? 0 : o.num_returns;
  t->get_if_exists = o.get_if_exists;
  char *text = (char *)(t + 1);
  if (o.actor_name.len) memcpy(text, o.actor_name.data, o.actor_name.len);
  if (ns.len) memcpy(text + o.actor_name.len, ns.data, ns.len);
  t->actor_name = raygo_bytes(text, o.actor_name.len);
  t->name_space = raygo_bytes(text + o.actor_name.len, ns.len);
  r = rga_template_send(e->rt, kind, function, &o, &t->number, err);
  if (!r && !(out->h = rga_new(RGA_TEMPLATE, t, e->rt))) r = rga_code(err, RAYGO_ENOMEM, "The template was not made");
  if (r) free(t);
done:
  rga_unuse(e);
  return r;
}

static raygo_status release(uint64_t h, int kind, const char *what, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(h, kind);
  bool ok = e && rga_drop(e);
  if (e) rga_unuse(e);
  return ok ? RAYGO_OK : rga_stale(err, what);
}

raygo_status raygo_template_release(raygo_template t, raygo_error *err) { return release(t.h, RGA_TEMPLATE, "template", err); }

/* ------------------------------------------------------------------------------------------------ submitting */

struct call {                       /* a runtime and a template, in use */
  struct rga_entry *rt, *tmpl;
  struct rga_template *t;
};

static void call_end(struct call *k) {
  if (k->tmpl) rga_unuse(k->tmpl);
  if (k->rt) rga_unuse(k->rt);
}

static raygo_status call_begin(struct call *k, raygo_runtime h, raygo_template tmpl, raygo_error *err) {
  memset(k, 0, sizeof *k);
  raygo_status r = rga_use_rt(h, &k->rt, err);
  if (r) {
    k->rt = NULL;
    return r;
  }
  k->tmpl = rga_use(tmpl.h, RGA_TEMPLATE);
  if (!k->tmpl) r = rga_stale(err, "template");
  else if (k->tmpl->rt != k->rt->rt) r = rga_fail(err, RAYGO_EINVAL, "The template belongs to another runtime.");
  if (r) call_end(k);
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
static raygo_status submit(struct rga_rt *rt, uint64_t task, uint16_t flags, uint32_t tmpl, uint32_t nreturns, uint64_t actor, const raygo_args *args, rg_slot **slots,
                           raygo_error *err) {
  static const uint8_t none = 0x90;
  static const raygo_args no_args;
  const raygo_args *a = args ? args : &no_args;
  if (!good_args(a) || a->nrefs > UINT32_MAX / 64 || (a->nrefs && !a->refs))
    return rga_fail(err, RAYGO_EINVAL,
                    "The arguments are not one msgpack array in which extension type 1 with a uint32 below %zu stands for each reference (raygo_mp_ref writes it).", a->nrefs);
  if (a->packed.len > RG_MAX_FRAME / 2)
    return rga_fail(err, RAYGO_EINVAL, "The arguments are %zu bytes, which is too long for a message: put large values with raygo_put and pass references.", a->packed.len);
  struct rga_entry *few[8], **used = a->nrefs <= 8 ? few : malloc(a->nrefs * sizeof *used);
  struct rg_oid few_oids[8], *oids = a->nrefs <= 8 ? few_oids : malloc(a->nrefs * sizeof *oids);
  raygo_status r = used && oids ? rga_take_slots(rt, a->refs, a->nrefs, used, err) : rga_code(err, RAYGO_ENOMEM, "The task was not submitted");
  if (!r) {
    for (size_t i = 0; i < a->nrefs; i++) oids[i] = ((rg_slot *)used[i]->ptr)->oid;
    struct rg_submit s = {.template_no = tmpl, .nreturns = nreturns, .actor = actor, .ntop = (uint32_t)a->nrefs, .args_len = a->packed.len ? (uint32_t)a->packed.len : 1};
    r = rg_submit(rt->c, task, flags, &s, oids, NULL, a->packed.len ? a->packed.data : &none, NULL, slots);
    if (r) rga_code(err, r, "The task was not submitted");
    for (size_t i = 0; i < a->nrefs; i++) rga_unuse(used[i]);
  }
  if (used != few) free(used);
  if (oids != few_oids) free(oids);
  return r;
}

/* One task, its objects as handles. */
static raygo_status submit_one(struct call *k, uint64_t actor, const raygo_args *args, raygo_object *returns, raygo_error *err) {
  static const struct rga_wait briefly = {.deadline = 0};
  uint32_t n = k->t->num_returns, made = 0;
  rg_slot *few[8], **slots = n <= 8 ? few : malloc(n * sizeof *slots);
  uint64_t task = 0;
  if (!slots) return rga_code(err, RAYGO_ENOMEM, "The task was not submitted");
  raygo_status r = rga_number(k->rt->rt, &briefly, &task, err);
  if (!r) r = submit(k->rt->rt, task, actor ? RG_F_ACTOR_CALL : 0, k->t->number, n, actor, args, slots, err);
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

static raygo_status no_returns(const struct call *k, const raygo_object *returns, raygo_error *err) {
  if (!k->t->num_returns || returns) return RAYGO_OK;
  return rga_fail(err, RAYGO_EINVAL, "The template returns %u objects, but `returns` is NULL.", k->t->num_returns);
}

static raygo_status is_task(const struct call *k, raygo_error *err) {
  if (k->t->kind == RAYGO_FUNCTION || k->t->kind == RAYGO_NAMED) return RAYGO_OK;
  return rga_fail(err, RAYGO_EINVAL, "The template is of an actor's %s: use %s.", k->t->kind == RAYGO_METHOD ? "method" : "class",
                  k->t->kind == RAYGO_METHOD ? "raygo_actor_call" : "raygo_actor_new");
}

raygo_status raygo_submit(raygo_runtime h, raygo_template tmpl, const raygo_args *args, raygo_object *returns, raygo_error *err) {
  struct call k;
  raygo_status r = call_begin(&k, h, tmpl, err);
  if (r) return r;
  if (!(r = is_task(&k, err)) && !(r = no_returns(&k, returns, err))) r = submit_one(&k, 0, args, returns, err);
  call_end(&k);
  return r;
}

raygo_status raygo_submit_batch(raygo_runtime h, raygo_template tmpl, const raygo_args *args, size_t n, raygo_object *returns, size_t *done, raygo_error *err) {
  struct call k;
  size_t i = 0;
  if (done) *done = 0;
  raygo_status r = call_begin(&k, h, tmpl, err);
  if (r) return r;
  if (n && !args) r = rga_fail(err, RAYGO_EINVAL, "raygo_submit_batch: `args` is NULL.");
  if (!r && !(r = is_task(&k, err)) && !(n && (r = no_returns(&k, returns, err)))) {
    uint32_t each = k.t->num_returns;
    while (i < n && !(r = submit_one(&k, 0, &args[i], each ? &returns[i * each] : NULL, err))) i++;
    if (each && i < n) memset(&returns[i * each], 0, (n - i) * each * sizeof *returns);
  }
  if (done) *done = i;
  call_end(&k);
  return r;
}

raygo_status raygo_cancel(raygo_runtime h, raygo_object object, uint32_t flags, raygo_error *err) {
  struct rga_entry *e, *o;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (flags & ~(uint32_t)(RAYGO_CANCEL_FORCE | RAYGO_CANCEL_RECURSIVE)) r = rga_fail(err, RAYGO_EINVAL, "raygo_cancel: %#x has flags that do not exist.", flags);
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
  raygo_status r = check_template(kind, name, &o, err);
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
  if (!r) r = submit(e->rt, task, 0, tmpl, 1, 0, args, &slot, err);
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

/* ------------------------------------------------------------------------------------------------ actors */

static raygo_status actor_handle(struct rga_rt *rt, uint64_t number, raygo_actor *out, raygo_error *err) {
  rg_slot *s = rg_slot_ref(rt->c, (struct rg_oid){number, 0, 0});
  if (s) rg_refs_flush(rt->c);
  if (s && (out->h = rga_new(RGA_ACTOR, s, rt))) return RAYGO_OK;
  if (s) rg_slot_decref(rt->c, s);
  return rga_code(err, RAYGO_ENOMEM, "A handle for the actor could not be made");
}

/* Reserves the template's name for this number.  *taken: the number of the actor that has it, 0: none. */
static raygo_status reserve(struct rga_rt *rt, const struct rga_template *t, uint64_t number, const struct rga_wait *w, uint64_t *taken, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  size_t len;
  *taken = 0;
  raygo_mp_map(&q, 3);
  rga_key_view(&q, "name", t->actor_name);
  rga_key_view(&q, "namespace", t->name_space);
  rga_key_uint(&q, "actor", number);
  raygo_status r = q.failed ? rga_code(err, RAYGO_ENOMEM, "actor.reserve") : rga_ask(rt, "actor.reserve", raygo_mp_view(&q), w, &reply, &len, err);
  raygo_mp_free(&q);
  if (r) return r;
  if (raygo_mp_find(raygo_bytes(reply, len), "exists", &v) && v.type == RAYGO_MP_BOOL && v.i && raygo_mp_find(raygo_bytes(reply, len), "actor", &v)) *taken = rga_uint(&v);
  free(reply);
  if (!*taken || t->get_if_exists) return RAYGO_OK;
  return rga_fail(err, RAYGO_EEXISTS, "There is an actor named \"%.*s\" already in the name space \"%.*s\": choose another name, or set get_if_exists.", (int)t->actor_name.len,
                  (const char *)t->actor_name.data, (int)t->name_space.len, (const char *)t->name_space.data);
}

raygo_status raygo_actor_new(raygo_runtime h, raygo_template tmpl, const raygo_args *args, int64_t timeout_ns, raygo_token token, raygo_actor *out, raygo_error *err) {
  struct call k;
  struct rga_wait w;
  uint64_t number, taken = 0;
  rg_slot *slot;
  if (out) out->h = 0;
  raygo_status r = call_begin(&k, h, tmpl, err);
  if (r) return r;
  struct rga_rt *rt = k.rt->rt;
  if (!out) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_new: `out` is NULL.");
  else if (k.t->kind != RAYGO_ACTOR) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_new: the template is not of kind RAYGO_ACTOR.");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  r = rga_number(rt, &w, &number, err);
  if (!r && k.t->actor_name.len) r = reserve(rt, k.t, number, &w, &taken, err);
  if (!r && taken) r = actor_handle(rt, taken, out, err);
  else if (!r && !(r = submit(rt, number, RG_F_ACTOR_CREATE, k.t->number, 0, 0, args, &slot, err)) && !(out->h = rga_new(RGA_ACTOR, slot, rt))) {
    rg_slot_decref(rt->c, slot);
    r = rga_code(err, RAYGO_ENOMEM, "A handle for the actor could not be made");
  }
  rga_wait_end(&w);
done:
  call_end(&k);
  return r;
}

static raygo_status use_actor(struct rga_rt *rt, raygo_actor actor, struct rga_entry **e, raygo_error *err) {
  *e = rga_use(actor.h, RGA_ACTOR);
  if (!*e) return rga_stale(err, "actor");
  if ((*e)->rt == rt) return RAYGO_OK;
  rga_unuse(*e);
  return rga_fail(err, RAYGO_EINVAL, "The actor belongs to another runtime.");
}

raygo_status raygo_actor_call(raygo_runtime h, raygo_actor actor, raygo_template method, const raygo_args *args, raygo_object *returns, raygo_error *err) {
  struct call k;
  struct rga_entry *a;
  raygo_status r = call_begin(&k, h, method, err);
  if (r) return r;
  if (k.t->kind != RAYGO_METHOD) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_call: the template is not of kind RAYGO_METHOD.");
  if (!r && !(r = no_returns(&k, returns, err)) && !(r = use_actor(k.rt->rt, actor, &a, err))) {
    r = submit_one(&k, ((rg_slot *)a->ptr)->oid.task, args, returns, err);
    rga_unuse(a);
  }
  call_end(&k);
  return r;
}

raygo_status raygo_actor_kill(raygo_runtime h, raygo_actor actor, int32_t no_restart, raygo_error *err) {
  struct rga_entry *e, *a;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!(r = use_actor(e->rt, actor, &a, err))) {
    int k = rg_kill(e->rt->c, ((rg_slot *)a->ptr)->oid.task, no_restart);
    if (k) r = rga_code(err, k, "The actor was not killed");
    rga_unuse(a);
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_actor_lookup(raygo_runtime h, raygo_view name, raygo_view name_space, int64_t timeout_ns, raygo_token token, raygo_actor *out, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  size_t len;
  if (out) out->h = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out || !name.len) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_lookup: %s.", out ? "the name is empty" : "`out` is NULL");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  raygo_mp_map(&q, 2);
  rga_key_view(&q, "name", name);
  rga_key_view(&q, "namespace", name_space.len ? name_space : raygo_str(e->rt->name_space));
  r = q.failed ? rga_code(err, RAYGO_ENOMEM, "actor.lookup") : rga_ask(e->rt, "actor.lookup", raygo_mp_view(&q), &w, &reply, &len, err);
  if (!r) {
    if (raygo_mp_find(raygo_bytes(reply, len), "actor", &v) && rga_uint(&v)) r = actor_handle(e->rt, rga_uint(&v), out, err);
    else r = rga_fail(err, RAYGO_ENOTFOUND, "There is no living actor named \"%.*s\".", (int)name.len, (const char *)name.data);
    free(reply);
  }
  raygo_mp_free(&q);
  rga_wait_end(&w);
done:
  rga_unuse(e);
  return r;
}

raygo_status raygo_actor_id(raygo_actor actor, uint8_t id[16], raygo_error *err) {
  RGA_ENTER(err);
  RGA_NEED(err, id, "raygo_actor_id: `id` is NULL.");
  memset(id, 0, 16);
  struct rga_entry *a = rga_use(actor.h, RGA_ACTOR);
  if (!a) return rga_stale(err, "actor");
  uint64_t number = ((rg_slot *)a->ptr)->oid.task;
  uint32_t low = (uint32_t)a->rt->incarnation, job = a->rt->job;
  for (int i = 0; i < 8; i++) id[i] = (uint8_t)(number >> (8 * i));
  for (int i = 0; i < 4; i++) {
    id[8 + i] = (uint8_t)(low >> (8 * i));
    id[12 + i] = (uint8_t)(job >> (8 * i));
  }
  rga_unuse(a);
  return RAYGO_OK;
}

raygo_status raygo_actor_release(raygo_actor actor, raygo_error *err) { return release(actor.h, RGA_ACTOR, "actor", err); }
