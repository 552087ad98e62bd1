/* raygo.h: the beginning and the end of a runtime. */
#include "abi_int.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEGIN_NS (30 * RAYGO_SECOND)

/* ------------------------------------------------------------------------------------------------ what the engine tells */

static void on_template_def(void *arg, uint64_t number, const uint8_t *map, size_t len) {
  struct rga_rt *rt = arg;
  raygo_mp_value name, codec;
  raygo_view m = raygo_bytes(map, len);
  if (!raygo_mp_find(m, "name", &name) || name.type != RAYGO_MP_STR) name.s = raygo_str("");
  struct rga_def *d = calloc(1, sizeof *d + name.s.len + 1);
  if (!d) return;   /* its tasks will be refused */
  d->number = number;
  d->plain = raygo_mp_find(m, "codec", &codec) && codec.type == RAYGO_MP_STR && codec.s.len == 7 && memcmp(codec.s.data, "msgpack", 7) == 0;
  d->name_len = name.s.len;
  memcpy(d->name, name.s.data, name.s.len);
  pthread_mutex_lock(&rt->mu);
  d->next = rt->defs;
  rt->defs = d;
  pthread_mutex_unlock(&rt->mu);
}

static void on_cancel(void *arg, uint64_t task, int force) {
  (void)force;   /* a process that serves is not the engine's to kill */
  struct rga_rt *rt = arg;
  pthread_mutex_lock(&rt->mu);
  for (struct rga_task *t = rt->running; t; t = t->next)
    if (t->t->id == task) atomic_store(&t->cancelled, 1);
  pthread_mutex_unlock(&rt->mu);
}

/* ------------------------------------------------------------------------------------------------ life */

static struct rga_rt *rt_new(void) {
  struct rga_rt *rt = calloc(1, sizeof *rt);
  if (!rt) return NULL;
  struct rg_callbacks cb = {.arg = rt, .template_def = on_template_def, .cancel = on_cancel};
  rt->c = rg_client_new(&cb);
  /* Never announced: the engine does not know it. */
  rt->anchor = rt->c ? rg_slot_new(rt->c, 0, UINT32_MAX, 1) : NULL;
  if (!rt->anchor) {
    rg_client_close(rt->c);
    free(rt);
    return NULL;
  }
  atomic_store(&rt->refs, 1);
  pthread_mutex_init(&rt->mu, NULL);
  pthread_mutex_init(&rt->number_mu, NULL);
  rga_turn_init(&rt->task_turn);
  rga_turn_init(&rt->log_turn);
  return rt;
}

void rga_rt_unref(struct rga_rt *rt) {
  if (atomic_fetch_sub_explicit(&rt->refs, 1, memory_order_acq_rel) != 1) return;
  rg_client_close(rt->c);   /* mostly closed long ago; no callback comes after it */
  rg_slot_decref(rt->c, rt->anchor);
  for (struct rga_def *d = rt->defs, *next; d; d = next) {
    next = d->next;
    free(d);
  }
  for (struct rga_cached *k = rt->cached, *next; k; k = next) {
    next = k->next;
    free(k);
  }
  rga_turn_free(&rt->task_turn);
  rga_turn_free(&rt->log_turn);
  pthread_mutex_destroy(&rt->mu);
  pthread_mutex_destroy(&rt->number_mu);
  free(rt->name_space);
  free(rt);
}

raygo_status rga_use_rt(raygo_runtime h, struct rga_entry **e, raygo_error *err) {
  RGA_ENTER(err);
  *e = rga_use(h.h, RGA_RUNTIME);
  if (!*e) return rga_stale(err, "runtime");
  return RAYGO_OK;
}

/* ------------------------------------------------------------------------------------------------ HELLO and the engine's options */

void rga_key_view(raygo_mp *w, const char *key, raygo_view text) {
  raygo_mp_str(w, key);
  raygo_mp_text(w, text);
}

void rga_key_uint(raygo_mp *w, const char *key, uint64_t v) {
  raygo_mp_str(w, key);
  raygo_mp_uint(w, v);
}

static void key_raw(raygo_mp *w, const char *key, raygo_view msgpack, uint8_t otherwise) {
  raygo_mp_str(w, key);
  raygo_mp_raw(w, msgpack.len ? msgpack.data : &otherwise, msgpack.len ? msgpack.len : 1);
}

static bool one_value(raygo_view v, int type) {   /* exactly one msgpack value of this type, or nothing */
  raygo_mp_reader r = raygo_mp_read(v.data, v.len), s = r;
  raygo_mp_value head;
  return !v.len || (raygo_mp_next(&r, &head) && head.type == type && raygo_mp_skip(&s) && s.p == s.end);
}

/* The path of an interpreter; malloc'd. */
static char *find_python(raygo_view given) {
  const char *env = getenv("RAYGO_PYTHON"), *path = getenv("PATH");
  if (given.len) return strndup(given.data, given.len);
  if (env && *env) return strdup(env);
  for (const char *p = path ? path : ""; *p;) {
    size_t n = strcspn(p, ":");
    char *at = NULL;
    if (n && asprintf(&at, "%.*s/python3", (int)n, p) >= 0 && access(at, X_OK) == 0) return at;
    free(at);
    p += n + (p[n] == ':');
  }
  return strdup("python3");
}

static void write_hello(raygo_mp *w, const raygo_options *o, const char *role, const char *python) {
  char cwd[4096];
  const char *token = getenv("RAY_AUTH_TOKEN");
  if (!getcwd(cwd, sizeof cwd)) cwd[0] = 0;
  raygo_mp_map(w, 13);
  rga_key_view(w, "version", raygo_str(raygo_version()));
  rga_key_view(w, "role", raygo_str(role));
  rga_key_uint(w, "pid", (uint64_t)getpid());
  rga_key_view(w, "namespace", o->name_space);
  key_raw(w, "sys_path", o->sys_path, 0x90);
  rga_key_view(w, "cwd", o->working_dir.len ? o->working_dir : raygo_str(cwd));
  rga_key_view(w, "main_path", raygo_str(""));
  rga_key_view(w, "executable", raygo_str(python));
  rga_key_view(w, "runtime_env", o->runtime_env);
  raygo_mp_str(w, "log_to_driver");
  raygo_mp_bool(w, o->log_to_driver != 0);
  key_raw(w, "env", o->env, 0x80);
  rga_key_view(w, "job_name", o->job_name.len ? o->job_name : raygo_str(program_invocation_short_name));
  rga_key_view(w, "token", raygo_str(token ? token : ""));
}

static void write_options(raygo_mp *w, const raygo_options *o, const char *python) {
  raygo_mp_value head = {0};
  raygo_mp_reader r = raygo_mp_read(o->engine_options.data, o->engine_options.len);
  raygo_mp_next(&r, &head);
  uint32_t n = 3 + (o->num_cpus != 0) + (o->num_gpus != 0) + (o->resources.len != 0) + (o->object_store_memory != 0);
  raygo_mp_map(w, n + head.n);
  rga_key_view(w, "version", raygo_str(raygo_version()));
  rga_key_view(w, "executable", raygo_str(python));
  raygo_mp_str(w, "listen");
  raygo_mp_bool(w, 1);
  if (o->num_cpus != 0) {
    raygo_mp_str(w, "num_cpus");
    raygo_mp_float(w, o->num_cpus < 0 ? 0 : o->num_cpus);
  }
  if (o->num_gpus != 0) {
    raygo_mp_str(w, "num_gpus");
    raygo_mp_float(w, o->num_gpus < 0 ? 0 : o->num_gpus);
  }
  if (o->resources.len) key_raw(w, "resources", o->resources, 0x80);
  if (o->object_store_memory) rga_key_uint(w, "object_store_memory", o->object_store_memory);
  raygo_mp_raw(w, r.p, (size_t)(r.end - r.p));   /* the last of two equal keys counts */
}

static raygo_status read_options(raygo_options *o, const raygo_options *from, raygo_error *err) {
  RGA_NEED(err, rga_options(o, sizeof *o, offsetof(raygo_options, num_cpus), from),
           "raygo_options.struct_size is too small, or the struct says something that this version does not know: make it with raygo_options_init().");
  RGA_NEED(err, one_value(o->sys_path, RAYGO_MP_ARRAY), "raygo_options.sys_path is not one msgpack array.");
  RGA_NEED(err, one_value(o->env, RAYGO_MP_MAP), "raygo_options.env is not one msgpack map.");
  RGA_NEED(err, one_value(o->resources, RAYGO_MP_MAP), "raygo_options.resources is not one msgpack map.");
  RGA_NEED(err, one_value(o->engine_options, RAYGO_MP_MAP), "raygo_options.engine_options is not one msgpack map.");
  if (!o->timeout_ns) o->timeout_ns = BEGIN_NS;
  return RAYGO_OK;
}

/* ------------------------------------------------------------------------------------------------ beginning */

static uint64_t number_of(raygo_view map, const char *key) {
  raygo_mp_value v;
  return raygo_mp_find(map, key, &v) ? rga_uint(&v) : 0;
}

/* After WELCOME.  On failure the caller closes. */
static raygo_status welcomed(struct rga_rt *rt, raygo_runtime *out, raygo_error *err) {
  size_t n;
  const uint8_t *p = rg_client_welcome(rt->c, &n);
  raygo_view m = raygo_bytes(p, p ? n : 0);
  raygo_mp_value name;
  if (!p || !number_of(m, "prefix")) return rga_fail(err, RAYGO_ECONNECTION, "The node engine closed the connection before it said who it is.");
  rt->incarnation = number_of(m, "incarnation");
  rt->job = (uint32_t)number_of(m, "job");
  rg_client_set_prefix(rt->c, (uint32_t)number_of(m, "prefix"));
  if (!raygo_mp_find(m, "namespace", &name) || name.type != RAYGO_MP_STR) name.s = raygo_str("");
  rt->name_space = strndup(name.s.len ? name.s.data : "", name.s.len);
  uint64_t size = number_of(m, "arena_size");
  int r = size ? rg_client_arena(rt->c, rt->engine ? (int)number_of(m, "arena_fd") : -1, size) : 0;
  if (r) return rga_fail(err, r, "The shared memory of the object store (%llu bytes) could not be mapped.", (unsigned long long)size);
  if (!rt->name_space || !(out->h = rga_new(RGA_RUNTIME, NULL, rt))) return rga_code(err, RAYGO_ENOMEM, "The runtime could not be made");
  return RAYGO_OK;
}

raygo_status raygo_start(const raygo_options *options, raygo_runtime *out, raygo_error *err) {
  if (out) out->h = 0;
  RGA_ENTER(err);
  RGA_NEED(err, out, "raygo_start: `out` is NULL.");
  raygo_options o;
  raygo_status r = read_options(&o, options, err);
  if (r) return r;
  raygo_mp hello = RAYGO_MP_INIT, settings = RAYGO_MP_INIT;
  char *python = find_python(o.python), *message = NULL;
  struct rga_rt *rt = rt_new();
  write_hello(&hello, &o, "driver", python ? python : "");
  write_options(&settings, &o, python ? python : "");
  if (!rt || !python || hello.failed || settings.failed) {
    r = rga_code(err, RAYGO_ENOMEM, "The engine was not started");
  } else {
    r = raygo_engine_start(settings.p, settings.n, rg_fork_register_fd, &rt->engine, &message);
    if (!r) {
      r = raygo_engine_attach(rt->engine, rg_client_deliver, rt->c, hello.p, hello.n, &rt->conn, &message);
      if (!r) r = rg_client_embed(rt->c, raygo_engine_input, rt->conn);
      if (r) rga_said(err, r, "The engine was started but gave no session", message, message ? strlen(message) : 0);
      else r = welcomed(rt, out, err);
      if (r) {
        char *ignored = NULL;
        raygo_engine_stop(rt->engine, RAYGO_SECOND, &ignored);
        free(ignored);
      }
    } else {
      rga_said(err, r, "The engine could not be started", message, message ? strlen(message) : 0);
    }
  }
  if (r && rt) rg_client_close(rt->c);
  if (rt) rga_rt_unref(rt);
  free(message);
  free(python);
  raygo_mp_free(&hello);
  raygo_mp_free(&settings);
  return r;
}

/* The socket's path from a session's folder, malloc'd; NULL: there is none. */
static char *socket_of(const char *folder) {
  char *path = NULL, text[8192];
  if (asprintf(&path, "%s/session.json", folder) < 0) return NULL;
  FILE *f = fopen(path, "re");
  free(path);
  if (!f) return NULL;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  /* raygo's own file: a flat object whose paths need no escapes. */
  char *at = strstr(text, "\"socket\"");
  at = at ? strchr(at + 8, ':') : NULL;
  at = at ? strchr(at, '"') : NULL;
  char *end = at ? strchr(at + 1, '"') : NULL;
  return end ? strndup(at + 1, (size_t)(end - at - 1)) : NULL;
}

static raygo_status find_socket(raygo_view address, char **out, raygo_error *err) {
  struct stat st;
  char *path = NULL;
  const char *env = getenv("RAYGO_ADDRESS"), *tmp = getenv("RAYGO_TMPDIR");
  if (!tmp || !*tmp) tmp = getenv("TMPDIR");
  if (!tmp || !*tmp) tmp = "/tmp";
  if (address.len) path = strndup(address.data, address.len);
  else if (env && *env) path = strdup(env);
  else if (asprintf(&path, "%s/raygo-%u/session_latest", tmp, (unsigned)getuid()) < 0) path = NULL;
  if (!path) return rga_code(err, RAYGO_ENOMEM, "The engine's socket was not looked for");
  *out = NULL;
  bool there = stat(path, &st) == 0;
  if (there && S_ISDIR(st.st_mode)) *out = socket_of(path);
  else if (there) *out = strdup(path);
  raygo_status r = *out ? RAYGO_OK
                        : rga_fail(err, RAYGO_ENOTFOUND, "No running engine at %s: %s. A program starts one with raygo_start, or raygo.init() in Python.", path,
                                   there ? "its session.json cannot be read" : "there is no such file or folder");
  free(path);
  return r;
}

raygo_status raygo_connect(raygo_view address, const raygo_options *options, raygo_runtime *out, raygo_error *err) {
  if (out) out->h = 0;
  RGA_ENTER(err);
  RGA_NEED(err, out, "raygo_connect: `out` is NULL.");
  raygo_options o;
  char *path = NULL;
  raygo_status r = read_options(&o, options, err);
  if (!r) r = find_socket(address, &path, err);
  if (r) return r;
  raygo_mp hello = RAYGO_MP_INIT;
  char *python = find_python(o.python);
  struct rga_rt *rt = rt_new();
  write_hello(&hello, &o, "client", python ? python : "");
  if (!rt || !python || hello.failed) {
    r = rga_code(err, RAYGO_ENOMEM, "The connection was not made");
  } else if ((r = rg_client_connect(rt->c, path, hello.p, hello.n, o.timeout_ns))) {
    const char *why = rg_client_refusal(rt->c);
    if (why) rga_said(err, r, "The engine refused the connection", why, strlen(why));
    else if (r == RAYGO_EINVAL) rga_fail(err, r, "The socket's path is too long for this system: %s", path);
    else if (r == RAYGO_ETIMEDOUT) rga_fail(err, r, "The engine at %s did not answer within %lld ms.", path, (long long)(o.timeout_ns / 1000000));
    else rga_fail(err, r = RAYGO_ENOTFOUND, "No engine answered on the socket %s. Is it still running?", path);
  } else {
    r = welcomed(rt, out, err);
  }
  if (r && rt) rg_client_close(rt->c);
  if (rt) rga_rt_unref(rt);
  free(path);
  free(python);
  raygo_mp_free(&hello);
  return r;
}

/* ------------------------------------------------------------------------------------------------ end */

static raygo_status end(struct rga_rt *rt, int64_t timeout_ns, raygo_error *err) {
  char *message = NULL;
  raygo_status r = RAYGO_OK;
  rg_give_back(rt->c);
  if (!rt->engine) rg_send(rt->c, RG_GOODBYE, 0, 0, NULL, 0, NULL, 0);
  else if ((r = raygo_engine_stop(rt->engine, timeout_ns, &message))) rga_said(err, r, "The engine did not stop as it should", message, message
                                                                               ? strlen(message) : 0);
  free(message);
  rg_client_close(rt->c);
  return r;
}

raygo_status raygo_shutdown(raygo_runtime h, int64_t timeout_ns, raygo_error *err) {
  struct rga_entry *e;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (timeout_ns < -1) r = rga_fail(err, RAYGO_EINVAL, "A timeout of %lld ns is none: use -1 to wait for ever.", (long long)timeout_ns);
  else if (atomic_exchange(&e->rt->down, 1)) r = rga_fail(err, RAYGO_ESHUTDOWN, "The runtime was shut down before.");
  else r = end(e->rt, timeout_ns, err);
  rga_unuse(e);
  return r;
}

raygo_status raygo_runtime_release(raygo_runtime h, raygo_error *err) {
  struct rga_entry *e;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!rga_drop(e)) r = rga_stale(err, "runtime");
  else if (!atomic_exchange(&e->rt->down, 1)) r = end(e->rt, 10 * RAYGO_SECOND, err);
  rga_unuse(e);
  return r;
}

raygo_status raygo_info(raygo_runtime h, raygo_buf *out, raygo_error *err) {
  struct rga_entry *e;
  size_t n;
  raygo_status r = rga_use_rt(h, &e, err);
  if (out) memset(out, 0, sizeof *out);
  if (r) return r;
  const uint8_t *p = rg_client_welcome(e->rt->c, &n);
  raygo_mp_reader reader = raygo_mp_read(p, n);   /* without the frame's padding */
  if (!out) r = rga_fail(err, RAYGO_EINVAL, "raygo_info: `out` is NULL.");
  else if (!raygo_mp_skip(&reader)) r = rga_fail(err, RAYGO_EINTERNAL, "The engine's WELCOME is no msgpack map.");
  else if (!rga_buf_copy(out, p, (size_t)(reader.p - p), RAYGO_MSGPACK)) r = rga_code(err, RAYGO_ENOMEM, "The session's description could not be copied");
  rga_unuse(e);
  return r;
}
