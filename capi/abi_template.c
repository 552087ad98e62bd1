/* raygo.h: templates: what is to run, with its options. */
#include "abi_int.h"

#define UNITS 10000.0
#define NOTHING UINT32_MAX          /* num_returns of a template that returns nothing */

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

raygo_status rga_template_check(uint32_t kind, raygo_view function, const raygo_template_options *o, raygo_error *err) {
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

raygo_status raygo_template_new(raygo_runtime h, uint32_t kind, raygo_view function, const raygo_template_options *options, raygo_template *out,
                                raygo_error *err) {
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
  else r = rga_template_check(kind, function, &o, err);
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

raygo_status rga_release(uint64_t h, int kind, const char *what, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(h, kind);
  bool ok = e && rga_drop(e);
  if (e) rga_unuse(e);
  return ok ? RAYGO_OK : rga_stale(err, what);
}

raygo_status raygo_template_release(raygo_template t, raygo_error *err) { return rga_release(t.h, RGA_TEMPLATE, "template", err); }
