/* raygo.h: version, errors, buffers, options, tokens, and the means of waiting. */
#include "abi_int.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* A process that forks after it opened the library has Go's runtime without Go's threads in its child, session or not. */
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, rg_fork_child); }

uint32_t raygo_abi_version(void) { return RAYGO_ABI_VERSION; }

const char *raygo_status_name(raygo_status status) {
  switch (status) {
#define X(name, number, meaning) case number: return #name;
    RAYGO_STATUS_LIST(X)
#undef X
  default: return "UNKNOWN";
  }
}

const char *raygo_status_text(raygo_status status) {
  switch (status) {
#define X(name, number, meaning) case number: return meaning;
    RAYGO_STATUS_LIST(X)
#undef X
  default: return "a status that this version does not know";
  }
}

/* ------------------------------------------------------------------------------------------------ buffers */

/* What a buffer's owner field points to.  `copy` buffers have their bytes behind it. */
struct owner {
  enum { COPY, MALLOCED, SLOT, PIN } how;
  rg_client *c;
  void *p;
  _Alignas(16) uint8_t bytes[];
};

static bool own(raygo_buf *out, struct owner *o, const void *data, size_t len, uint32_t format) {
  out->data = len ? data : NULL;
  out->len = len;
  out->owner = o;
  out->format = format;
  out->reserved = 0;
  return true;
}

bool rga_buf_copy(raygo_buf *out, const void *data, size_t len, uint32_t format) {
  if (!len) return own(out, NULL, NULL, 0, format);
  struct owner *o = malloc(sizeof *o + len);
  if (!o) return false;
  o->how = COPY;
  memcpy(o->bytes, data, len);
  return own(out, o, o->bytes, len, format);
}

bool rga_buf_take(raygo_buf *out, uint8_t *data, size_t len, uint32_t format) {
  struct owner *o = malloc(sizeof *o);
  if (!o) {
    free(data);
    return false;
  }
  o->how = MALLOCED;
  o->p = data;
  return own(out, o, data, len, format);
}

bool rga_buf_slot(raygo_buf *out, rg_client *c, rg_slot *s, const uint8_t *data, size_t len, uint32_t format) {
  if (len < 1024) return rga_buf_copy(out, data, len, format);
  struct owner *o = malloc(sizeof *o);
  if (!o) return false;
  o->how = SLOT;
  o->c = c;
  o->p = s;
  rg_slot_incref(s);
  return own(out, o, data, len, format);
}

bool rga_buf_pin(raygo_buf *out, rg_pin *p, const uint8_t *data, size_t len, uint32_t format) {
  struct owner *o = malloc(sizeof *o);
  if (!o) return false;
  o->how = PIN;
  o->p = p;
  rg_pin_incref(p);
  return own(out, o, data, len, format);
}

void raygo_buf_release(raygo_buf *buf) {
  if (!buf) return;
  struct owner *o = buf->owner;
  memset(buf, 0, sizeof *buf);
  if (!o) return;
  switch (o->how) {
  case COPY: break;
  case MALLOCED: free(o->p); break;
  case SLOT: rg_slot_decref(o->c, o->p); break;
  case PIN: rg_pin_decref(o->p); break;
  }
  free(o);
}

/* ------------------------------------------------------------------------------------------------ errors */

void raygo_error_clear(raygo_error *err) {
  if (!err || err->struct_size < sizeof *err) return;
  free(err->message);
  err->message = NULL;
  err->code = err->retryable = 0;
  raygo_buf_release(&err->detail);
}

static bool may_retry(int status) {
  switch (status) {
  case RAYGO_ETIMEDOUT: case RAYGO_EWORKERDIED: case RAYGO_EACTORUNAVAILABLE: case RAYGO_EOUTOFMEMORY: case RAYGO_EPENDINGCALLS:
  case RAYGO_ESTOREFULL: case RAYGO_EINTERRUPTED: case RAYGO_ENOMEM: return true;
  default: return false;
  }
}

static void set(raygo_error *err, int status, char *message) {
  raygo_error_clear(err);
  err->code = status;
  err->retryable = may_retry(status);
  err->message = message;
}

static bool wanted(const raygo_error *err) { return err && err->struct_size >= sizeof *err; }

raygo_status rga_fail(raygo_error *err, int status, const char *format, ...) {
  if (!wanted(err)) return status;
  char *text = NULL;
  va_list args;
  va_start(args, format);
  if (vasprintf(&text, format, args) < 0) text = NULL;
  va_end(args);
  set(err, status, text);
  return status;
}

raygo_status rga_said(raygo_error *err, int status, const char *what, const char *text, size_t len) {
  if (!wanted(err)) return status;
  /* REPLY carries a msgpack str; CREATED and the engine's own functions carry plain text. */
  raygo_mp_reader r = raygo_mp_read(text, text ? len : 0);
  raygo_mp_value v;
  if (raygo_mp_next(&r, &v) && v.type == RAYGO_MP_STR && r.p <= r.end && (size_t)(r.end - r.p) < 8) {
    text = v.s.data;
    len = v.s.len;
  }
  if (!text || !len) return rga_code(err, status, what);
  return rga_fail(err, status, "%s: %.*s", what, (int)(len > 1 << 20 ? 1 << 20 : len), text);
}

raygo_status rga_map_error(raygo_error *err, int status, const uint8_t *map, size_t len) {
  raygo_view m = raygo_bytes(map, len);
  raygo_mp_value code, message, out, again;
  if (!status) status = raygo_mp_find(m, "code", &code) && code.type == RAYGO_MP_INT && code.i > 0 && code.i < INT32_MAX ? (int)code.i : RAYGO_ETASK;
  if (!wanted(err)) return status;
  bool has_message = raygo_mp_find(m, "message", &message) && message.type == RAYGO_MP_STR;
  bool has_out = raygo_mp_find(m, "stderr", &out) && out.type == RAYGO_MP_STR && out.s.len;
#define TEXT(has, v) (has) ? (int)(v).s.len : 0, (has) ? (const char *)(v).s.data : ""
  if (has_out && has_message && memmem(message.s.data, message.s.len, out.s.data, out.s.len)) has_out = false;   /* it says so itself */
  rga_fail(err, status, "%.*s%s%.*s", TEXT(has_message, message), has_out ? "\nThe last lines that it wrote to stderr:\n" : "", TEXT(has_out, out));
#undef TEXT
  if (raygo_mp_find(m, "retryable", &again) && again.type == RAYGO_MP_BOOL) err->retryable = again.i != 0;
  raygo_mp_reader r = raygo_mp_read(map, len);
  if (raygo_mp_skip(&r)) rga_buf_copy(&err->detail, map, (size_t)(r.p - map), RAYGO_MSGPACK);
  return status;
}

raygo_status rga_stale(raygo_error *err, const char *what) {
  return rga_fail(err, RAYGO_ESTALE,
                  "This %s handle is no handle or was released: make a new one, and release a handle only when no call will use it again.", what);
}

raygo_status rga_forked(raygo_error *err) {
  return rga_fail(err, RAYGO_EFORKED,
                  "raygo was called in a forked child of the process that opened it. The child cannot use its parent's session: start it with "
                  "exec or posix_spawn, or call raygo in the parent.");
}

raygo_status rga_code(raygo_error *err, int status, const char *doing) {
  const char *advice = "";
  switch (status) {
  case RAYGO_EFORKED: return rga_forked(err);
  case RAYGO_ESHUTDOWN: advice = ": the runtime was shut down. Start or connect a new one"; break;
  case RAYGO_ECONNECTION: advice = ": the connection to the node engine is gone, because its process ended or closed it. Start or connect a new runtime"; break;
  case RAYGO_EINTERRUPTED: advice = ": the token was fired"; break;
  case RAYGO_ETIMEDOUT: advice = ": the timeout passed first"; break;
  case RAYGO_ENOMEM: advice = ": there was not enough memory"; break;
  case RAYGO_EINVAL: advice = ": the message would be longer than 256 MiB. Put large values with raygo_put and pass references"; break;
  default: return rga_fail(err, status, "%s: %s", doing, raygo_status_text(status));
  }
  return rga_fail(err, status, "%s%s.", doing, advice);
}

/* ------------------------------------------------------------------------------------------------ options */

int rga_options(void *to, size_t size, size_t least, const void *from) {
  memset(to, 0, size);
  if (!from) return 1;
  size_t n;
  memcpy(&n, from, sizeof n);
  if (n < least || n > (1u << 16)) return 0;
  for (size_t i = size; i < n; i++)
    if (((const uint8_t *)from)[i]) return 0;
  memcpy(to, from, n < size ? n : size);
  return 1;
}

/* ------------------------------------------------------------------------------------------------ tokens and waiting */

struct token { _Atomic int fired; };

void rga_token_free(void *token) { free(token); }

raygo_status raygo_token_new(raygo_token *out, raygo_error *err) {
  if (out) out->h = 0;
  RGA_ENTER(err);
  RGA_NEED(err, out, "raygo_token_new: `out` is NULL.");
  struct token *t = calloc(1, sizeof *t);
  if (t && !(out->h = rga_new(RGA_TOKEN, t, NULL))) {
    free(t);
    t = NULL;
  }
  return t ? RAYGO_OK : rga_code(err, RAYGO_ENOMEM, "A token could not be made");
}

raygo_status raygo_token_fire(raygo_token token, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(token.h, RGA_TOKEN);
  if (!e) return rga_stale(err, "token");
  atomic_store(&((struct token *)e->ptr)->fired, 1);
  rga_unuse(e);
  return RAYGO_OK;
}

raygo_status raygo_token_release(raygo_token token, raygo_error *err) {
  RGA_ENTER(err);
  struct rga_entry *e = rga_use(token.h, RGA_TOKEN);
  bool ok = e && rga_drop(e);
  if (e) rga_unuse(e);
  return ok ? RAYGO_OK : rga_stale(err, "token");
}

int64_t rga_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int fired(void *arg) { return atomic_load_explicit(&((struct token *)arg)->fired, memory_order_relaxed); }

raygo_status rga_wait_begin(struct rga_wait *w, int64_t timeout_ns, raygo_token token, raygo_error *err) {
  memset(w, 0, sizeof *w);
  w->deadline = timeout_ns;
  if (timeout_ns > 0) {
    int64_t now = rga_now();
    w->deadline = timeout_ns < INT64_MAX - now ? now + timeout_ns : -1;
  } else if (timeout_ns < -1) {
    return rga_fail(err, RAYGO_EINVAL, "A timeout of %lld ns is none: use -1 to wait for ever, 0 not to wait.", (long long)timeout_ns);
  }
  if (!token.h) return RAYGO_OK;
  w->token = rga_use(token.h, RGA_TOKEN);
  if (!w->token) return rga_stale(err, "token");
  w->check = fired;
  w->arg = w->token->ptr;
  if (!fired(w->arg)) return RAYGO_OK;
  rga_wait_end(w);
  return rga_fail(err, RAYGO_EINTERRUPTED, "The call did not begin: its token was fired before.");
}

void rga_wait_end(struct rga_wait *w) {
  if (w->token) rga_unuse(w->token);
  w->token = NULL;
}

int64_t rga_left(const struct rga_wait *w) {
  if (w->deadline <= 0) return w->deadline;
  int64_t left = w->deadline - rga_now();
  return left > 0 ? left : 0;
}

/* ------------------------------------------------------------------------------------------------ turns */

void rga_turn_init(struct rga_turn *t) {
  pthread_condattr_t a;
  pthread_condattr_init(&a);
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
  pthread_mutex_init(&t->mu, NULL);
  pthread_cond_init(&t->cv, &a);
  pthread_condattr_destroy(&a);
  t->taken = false;
}

void rga_turn_free(struct rga_turn *t) {
  pthread_mutex_destroy(&t->mu);
  pthread_cond_destroy(&t->cv);
}

int rga_turn_take(struct rga_turn *t, const struct rga_wait *w) {
  int r = 0;
  pthread_mutex_lock(&t->mu);
  while (t->taken && !r) {
    int64_t now = rga_now(), until = w->check ? now + 100000000 : INT64_MAX;
    if (w->check && w->check(w->arg)) r = RAYGO_EINTERRUPTED;
    else if (w->deadline >= 0 && now >= w->deadline) r = RAYGO_ETIMEDOUT;
    if (r) break;
    if (w->deadline >= 0 && w->deadline < until) until = w->deadline;
    struct timespec ts = {until / 1000000000, until % 1000000000};
    if (until == INT64_MAX) pthread_cond_wait(&t->cv, &t->mu);
    else pthread_cond_timedwait(&t->cv, &t->mu, &ts);
  }
  if (!r) t->taken = true;
  pthread_mutex_unlock(&t->mu);
  return r;
}

void rga_turn_give(struct rga_turn *t) {
  pthread_mutex_lock(&t->mu);
  t->taken = false;
  pthread_cond_signal(&t->cv);
  pthread_mutex_unlock(&t->mu);
}
