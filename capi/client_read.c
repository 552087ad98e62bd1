/* Reading and dispatching frames; the reader's role; blocking. */
#include "client_int.h"
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define SLICE 100000000   /* ns: how often a blocked thread asks its check function even without a signal */

long rg_futex_wait(_Atomic uint32_t *f, uint32_t expect, int64_t ns) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  return syscall(SYS_futex, f, FUTEX_WAIT_PRIVATE, expect, ns < 0 ? NULL : &t, NULL, 0) ? errno : 0;
}

void rg_futex_wake(_Atomic uint32_t *f, int n) { syscall(SYS_futex, f, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0); }

void rg_wake(rg_waiter *w) {
  w->done = true;
  if (w->asleep && !atomic_exchange(&w->futex, 1)) rg_futex_wake(&w->futex, 1);
}

/* mu.  The reader leaves: one of those who sleep must take over, else nobody would read for them. */
void rg_promote(rg_client *c) {
  if (c->fd < 0 || c->reading) return;
  for (rg_waiter *w = c->sleepers; w; w = w->next)
    if (!w->done) {
      if (!atomic_exchange(&w->futex, 1)) rg_futex_wake(&w->futex, 1);
      return;
    }
}

void rg_lost(rg_client *c) {
  pthread_mutex_lock(&c->mu);
  bool was = atomic_exchange(&c->alive, false);
  for (rg_waiter *w = c->sleepers; w; w = w->next)
    if (!atomic_exchange(&w->futex, 1)) rg_futex_wake(&w->futex, 1);
  if (c->cq_fd >= 0) {
    uint64_t one = 1;
    ssize_t r = write(c->cq_fd, &one, sizeof one);
    (void)r;
  }
  pthread_mutex_unlock(&c->mu);
  if (was && !atomic_load(&c->closed) && c->cb.gone) c->cb.gone(c->cb.arg);
}

/* ------------------------------------------------------------------------------------------------ dispatch */

/* Steps over a value at p; *data is its blob.  Returns bytes used, 0 when malformed. */
static size_t value_at(const uint8_t *p, size_t n, struct rg_value *v, const uint8_t **data) {
  if (n < sizeof *v) return 0;
  memcpy(v, p, sizeof *v);
  size_t at = sizeof *v;
  if (v->nrefs > (n - at) / sizeof(struct rg_oid)) return 0;
  at += (size_t)v->nrefs * sizeof(struct rg_oid);
  *data = p + at;
  if (v->kind == RG_V_ARENA) return at;
  if ((v->kind != RG_V_INLINE && v->kind != RG_V_SYSERR) || v->len > n - at || RG_PAD8(v->len) > n - at) return 0;
  return at + RG_PAD8(v->len);
}

static struct rg_request *take_request(rg_client *c, uint16_t type, uint64_t id, struct rg_oid oid) {
  for (struct rg_request **at = &c->requests; *at; at = &(*at)->next) {
    struct rg_request *r = *at;
    if (r->type != type || (type == RG_CALL ? r->id != id : (r->oid.task != oid.task || r->oid.index != oid.index))) continue;
    *at = r->next;
    return r;
  }
  return NULL;
}

static void fulfilled(struct rg_request *r) {
  if (r->w->remaining && --r->w->remaining == 0) rg_wake(r->w);
}

static int on_object(rg_client *c, const struct rg_hdr *h, const uint8_t *p) {
  struct rg_value v;
  const uint8_t *data;
  if (!value_at(p, h->len, &v, &data)) return E_CONNECTION;
  struct rg_oid oid = {h->id, v.index, 0};
  rg_slot *s = rg_slot_find(c, oid);
  bool pinned = v.kind == RG_V_ARENA && v.offset != UINT64_MAX;
  if (s) {
    /* A copy that was in the arena may have been lost since. */
    if (v.kind == RG_V_SYSERR && atomic_load(&s->state) == RG_S_ARENA) {
      rg_lease_drop(s);
      atomic_store(&s->state, RG_S_PENDING);
    }
    rg_slot_ready(c, s, &v, data);
  }
  if (pinned) {
    struct rg_request *r = take_request(c, RG_PIN, 0, oid);
    rg_pin *pin = rg_pin_new(c, oid, &v);
    if (!pin) rg_defer(c, RG_UNPIN, 0, 0, &oid, sizeof oid);   /* the engine counts one all the same */
    if (r) {
      *r->pin = pin;
      r->status = pin ? 0 : v.file ? E_NOMEM : E_INTERNAL;
      fulfilled(r);
    } else if (pin) {
      rg_pin_decref(pin);   /* whoever asked gave up */
    }
  } else if (v.kind != RG_V_ARENA) {
    for (struct rg_request *r; (r = take_request(c, RG_PIN, 0, oid));) {
      *r->pin = NULL;
      fulfilled(r);
    }
  }
  return 0;
}

static void on_created(rg_client *c, const struct rg_hdr *h, const uint8_t *p) {
  struct rg_created k;
  memcpy(&k, p, sizeof k);
  rg_generation(c, k.generation);
  struct rg_oid oid = {h->id, k.index, 0};
  struct rg_request *r = take_request(c, RG_CREATE, 0, oid);
  if (!r) {
    if (!k.status) rg_defer(c, RG_ABORT, 0, h->id, &oid, sizeof oid);
    return;
  }
  r->status = k.status;
  r->offset = k.offset;
  r->file = k.file;
  r->lease = k.lease;
  r->lease_gen = k.lease_gen;
  r->lease_file = k.lease_file;
  if (k.message_len && k.message_len <= h->len - sizeof k && (r->reply = calloc(1, (size_t)k.message_len + 1))) {
    memcpy(r->reply, p + sizeof k, k.message_len);
    r->reply_len = k.message_len;
  }
  fulfilled(r);
}

static void on_reply(rg_client *c, const struct rg_hdr *h, const uint8_t *p) {
  if (h->id == 0) {
    if (!c->refusal && (c->refusal = calloc(1, (size_t)h->len + 1))) memcpy(c->refusal, p, h->len);
    return;
  }
  struct rg_request *r = take_request(c, RG_CALL, h->id, (struct rg_oid){0, 0, 0});
  if (!r) return;
  r->status = h->flags;
  if ((r->reply = calloc(1, (size_t)h->len + 8))) {
    memcpy(r->reply, p, h->len);
    r->reply_len = h->len;
  }
  fulfilled(r);
}

/* mu.  A task whose argument this process cannot map is answered here: another process may have more room, and this one goes on with other tasks. */
static void refuse(rg_client *c, const rg_task *t, const struct rg_arg *a, int why) {
  char text[400];
  int n = snprintf(text, sizeof text, "An argument of %llu bytes lies in a file on disk, because the object store has no room for it, and the process that was to use it (pid %d) cannot map it: %s. "
                   "Raise the limits on its open files (ulimit -n), address space (ulimit -v) and mappings (vm.max_map_count), or make the argument smaller.",
                   (unsigned long long)a->len, (int)getpid(), strerror(why));
  /* {"code": ENOMEM, "message": text}; text is shorter than 64 KiB */
  uint8_t map[sizeof text + 24] = "\x82\xa4" "code" "\xcc" "\0" "\xa7" "message" "\xda";
  size_t at = 17;
  map[7] = E_NOMEM;
  map[at++] = (uint8_t)(n >> 8);
  map[at++] = (uint8_t)n;
  memcpy(map + at, text, (size_t)n);
  at += (size_t)n;
  struct { struct rg_result r; struct rg_value v; uint8_t data[sizeof map]; } x = {0};
  x.r = (struct rg_result){RG_R_ERROR, 1, 0, t->x.attempt, 0};
  x.v = (struct rg_value){1, RG_V_SYSERR, 1, at, UINT64_MAX, 0, 0};
  memcpy(x.data, map, at);
  rg_defer(c, RG_RESULT, 0, t->id, &x, sizeof x.r + sizeof x.v + RG_PAD8(at));
}

static int on_exec(rg_client *c, const struct rg_hdr *h, const uint8_t *p) {
  rg_task *t = malloc(sizeof *t + h->len);
  if (!t || h->len < sizeof t->x) {
    free(t);
    return E_CONNECTION;
  }
  memset(t, 0, sizeof *t);
  memcpy(t->frame, p, h->len);
  memcpy(&t->x, t->frame, sizeof t->x);
  t->id = h->id;
  t->flags = h->flags;
  size_t at = sizeof t->x, n = h->len;
  const struct rg_arg *unmapped = NULL;
  int why = 0;
  if (t->x.ntop > n / (sizeof(struct rg_oid) + sizeof(struct rg_value)) || (t->x.ntop && !(t->top = calloc(t->x.ntop, sizeof *t->top)))) goto bad;
  for (uint32_t i = 0; i < t->x.ntop; i++) {
    struct rg_arg *a = &t->top[i];
    struct rg_value v;
    if (n - at < sizeof a->oid) goto bad;
    memcpy(&a->oid, t->frame + at, sizeof a->oid);
    at += sizeof a->oid;
    size_t used = value_at(t->frame + at, n - at, &v, &a->data);
    if (!used) goto bad;
    at += used;
    a->kind = v.kind;
    a->is_error = v.is_error;
    a->len = v.len;
    if (v.kind == RG_V_ARENA) {
      if (!(a->pin = rg_pin_new(c, a->oid, &v))) {
        if (!v.file) goto bad;
        why = errno;
        unmapped = a;
        rg_defer(c, RG_UNPIN, 0, 0, &a->oid, sizeof a->oid);   /* the engine counts one all the same */
        continue;
      }
      a->data = a->pin->data;
    }
  }
  if (t->x.args_len > n - at || RG_PAD8(t->x.args_len) > n - at) goto bad;
  t->args = t->frame + at;
  at += RG_PAD8(t->x.args_len);
  if (t->x.context_len > n - at) goto bad;
  t->context = t->frame + at;
  if (unmapped) {
    refuse(c, t, unmapped, why);
    rg_task_drop(c, t);
    return 0;
  }
  if (c->task_tail) c->task_tail->next = t;
  else c->task_head = t;
  c->task_tail = t;
  c->ntask++;
  if (t->flags & RG_F_STREAMING) {
    t->gen_next = c->gens;
    c->gens = t;
  }
  return 0;
bad:
  rg_task_drop(c, t);
  return E_CONNECTION;
}

static void give_back(rg_client *c) {   /* mu: tasks that have not begun */
  struct rg_vec v = {0};
  for (rg_task *t = c->task_head, *next; t; t = next) {
    next = t->next;
    rg_vec_add(&v, &t->id, sizeof t->id);
    rg_task_drop(c, t);
  }
  c->task_head = c->task_tail = NULL;
  c->ntask = 0;
  rg_defer(c, RG_RETURN, 0, 0, v.p, v.n);
  free(v.p);
}

static bool cancel_queued(rg_client *c, uint64_t id) {   /* mu */
  rg_task *prev = NULL;
  for (rg_task *t = c->task_head; t; prev = t, t = t->next) {
    if (t->id != id) continue;
    if (prev) prev->next = t->next;
    else c->task_head = t->next;
    if (c->task_tail == t) c->task_tail = prev;
    c->ntask--;
    struct rg_result r = {RG_R_CANCELED, 0, 0, t->x.attempt, 0};
    rg_defer(c, RG_RESULT, 0, id, &r, sizeof r);
    rg_task_drop(c, t);
    return true;
  }
  return false;
}

/* On a socket, tasks with arguments in the arena may stand in the same read as WELCOME: it must be mapped before they are looked at.  One key of the
 * msgpack map is all that is needed here; whoever owns the client reads the rest. */
static void map_arena(rg_client *c) {
  static const char key[] = "\xaa" "arena_size";
  const uint8_t *p = c->welcome, *end = p + c->welcome_len, *at = c->fd >= 0 && c->arena_fd >= 0 ? memmem(p, c->welcome_len, key, sizeof key - 1) : NULL;
  if (!at || (at += sizeof key - 1) >= end) return;
  uint64_t size = *at < 0x80 ? *at : 0;
  if (*at >= 0xcc && *at <= 0xd3 && end - at > 1 << (*at & 3))   /* uint8 to uint64, int8 to int64: both orders by width */
    for (int i = 0, n = 1 << (*at & 3); i < n; i++) size = size << 8 | at[1 + i];
  rg_client_arena(c, -1, size);   /* a failure is met again by the owner, who can report it */
}

#define CALLBACK(c, call)            \
  do {                               \
    pthread_mutex_unlock(&(c)->mu);  \
    call;                            \
    pthread_mutex_lock(&(c)->mu);    \
  } while (0)

static int dispatch_one(rg_client *c, const struct rg_hdr *h, const uint8_t *p) {
  switch (h->type) {
  case RG_OBJECT: return on_object(c, h, p);
  case RG_EXEC: return on_exec(c, h, p);
  case RG_REPLY: on_reply(c, h, p); return 0;
  case RG_CREATED:
    if (h->len < sizeof(struct rg_created)) return E_CONNECTION;
    on_created(c, h, p);
    return 0;
  case RG_CHUNK: {
    struct rg_chunk k;
    if (h->len < sizeof k) return E_CONNECTION;
    memcpy(&k, p, sizeof k);
    rg_generation(c, k.generation);
    rg_chunk_came(c, &k);
    return 0;
  }
  case RG_CHUNK_RECALL: rg_chunk_recalled(c); return 0;
  case RG_TEMPLATE_DEF:
    if (c->cb.template_def) CALLBACK(c, c->cb.template_def(c->cb.arg, h->id, p, h->len));
    return 0;
  case RG_CANCEL_EXEC:
    if (!cancel_queued(c, h->id) && c->cb.cancel) CALLBACK(c, c->cb.cancel(c->cb.arg, h->id, h->flags & RG_F_FORCE));
    return 0;
  case RG_RECALL: give_back(c); return 0;
  case RG_RESUME: {
    uint64_t n;
    if (h->len < sizeof n) return E_CONNECTION;
    memcpy(&n, p, sizeof n);
    for (rg_task *t = c->gens; t; t = t->gen_next)
      if (t->id == h->id && n > atomic_load(&t->taken)) atomic_store(&t->taken, n);
    if (c->cb.resume) CALLBACK(c, c->cb.resume(c->cb.arg, h->id, n));
    return 0;
  }
  case RG_LOG: {
    struct rg_log *l = malloc(sizeof *l + h->len);
    if (!l) return 0;
    l->next = NULL;
    l->len = h->len;
    memcpy(l->map, p, h->len);
    if (c->log_tail) c->log_tail->next = l;
    else c->log_head = l;
    c->log_tail = l;
    c->nlog++;
    if (c->log_waiter) rg_wake(c->log_waiter);
    return 0;
  }
  case RG_EXIT:
    c->exiting = true;
    if (c->task_waiter) rg_wake(c->task_waiter);
    if (c->cb.exit) CALLBACK(c, c->cb.exit(c->cb.arg, h->flags & RG_F_FORCE));
    return 0;
  case RG_WAIT_ERROR:
    for (rg_waiter *w = c->waiters; w; w = w->all_next) {
      struct rg_value v;
      const uint8_t *data;
      if (w->task != h->id || w->done || !value_at(p, h->len, &v, &data)) continue;
      if ((w->error = malloc(v.len + 8))) {
        memcpy(w->error, data, v.len);
        w->error_len = v.len;
        rg_wake(w);
      }
    }
    return 0;
  case RG_WELCOME:
    if (!c->welcome && (c->welcome = malloc(h->len + 8))) {
      memcpy(c->welcome, p, h->len);
      c->welcome_len = h->len;
      map_arena(c);
    }
    return 0;
  default: return 0;   /* a newer engine may say more */
  }
}

int rg_dispatch(rg_client *c, const uint8_t *p, size_t n, size_t *used) {
  size_t at = 0, tasks = c->ntask;
  int r = 0;
  while (!r && n - at >= sizeof(struct rg_hdr)) {
    struct rg_hdr h;
    memcpy(&h, p + at, sizeof h);
    if (h.len > RG_MAX_FRAME) {
      r = E_CONNECTION;
      break;
    }
    if (n - at - sizeof h < h.len) break;
    r = dispatch_one(c, &h, p + at + sizeof h);
    at += sizeof h + h.len;
  }
  *used = at;
  if (c->ntask > tasks) {
    if (c->task_waiter) rg_wake(c->task_waiter);
    else if (c->cb.tasks) CALLBACK(c, c->cb.tasks(c->cb.arg));
  }
  return r;
}

void rg_client_deliver(void *client, const void *frames, size_t len) {
  rg_client *c = client;
  size_t used;
  if (atomic_load(&c->closed)) return;
  pthread_mutex_lock(&c->mu);
  rg_dispatch(c, frames, len, &used);
  pthread_mutex_unlock(&c->mu);
}

/* Reads once and dispatches whole frames.  deadline: -1 blocks without end, 0 does not block. */
int rg_read_some(rg_client *c, int64_t deadline, bool *interrupted) {
  *interrupted = false;
  size_t want = 1 << 16;
  if (c->in.n >= sizeof(struct rg_hdr)) {   /* a long frame has begun: make room for all of it */
    struct rg_hdr h;
    memcpy(&h, c->in.p, sizeof h);
    if (h.len > RG_MAX_FRAME) return E_CONNECTION;
    if (sizeof h + h.len > c->in.n + want) want = sizeof h + h.len - c->in.n;
  }
  if (!rg_vec_room(&c->in, want)) return E_NOMEM;
  ssize_t k = recv(c->fd, c->in.p + c->in.n, c->in.cap - c->in.n, deadline < 0 ? 0 : MSG_DONTWAIT);
  if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && deadline > 0) {
    int64_t left = deadline - rg_now();
    if (left < 0) left = 0;
    struct timespec t = {left / 1000000000, left % 1000000000};
    struct pollfd p = {c->fd, POLLIN, 0};
    int n = ppoll(&p, 1, &t, NULL);
    if (n < 0 && errno == EINTR) *interrupted = true;
    if (n <= 0) return 0;
    k = recv(c->fd, c->in.p + c->in.n, c->in.cap - c->in.n, MSG_DONTWAIT);
  }
  if (k < 0) {
    if (errno == EINTR) *interrupted = true;
    return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK ? 0 : E_CONNECTION;
  }
  if (k == 0) return E_CONNECTION;
  c->in.n += (size_t)k;
  size_t used = 0;
  pthread_mutex_lock(&c->mu);
  int r = rg_dispatch(c, c->in.p, c->in.n, &used);
  pthread_mutex_unlock(&c->mu);
  if (used == c->in.n) {
    c->in.n = 0;
    if (c->in.cap > (1u << 20)) {
      free(c->in.p);
      c->in = (struct rg_vec){0};
    }
  } else if (used) {
    memmove(c->in.p, c->in.p + used, c->in.n - used);
    c->in.n -= used;
  }
  if (atomic_load(&c->ndeferred)) {
    int d = rg_send_deferred(c);
    if (!r) r = d;
  }
  return r;
}

/* mu held on entry and return.  Until w->done, the deadline, a signal whose check says so, or the end of the connection. */
int rg_block(rg_client *c, rg_waiter *w, int64_t deadline, rg_check_fn check, void *arg) {
  int r = 0;
  while (!w->done && !r) {
    if (rg_dead(c)) {
      r = rg_dead_code(c);
      break;
    }
    int64_t now = rg_now();
    if (deadline >= 0 && now >= deadline) {
      r = E_TIMEDOUT;
      break;
    }
    int64_t until = check && !w->idle ? now + SLICE : -1;
    if (deadline >= 0 && (until < 0 || deadline < until)) until = deadline;
    bool interrupted = false;
    if (c->fd >= 0 && !c->reading) {
      c->reading = true;
      pthread_mutex_unlock(&c->mu);
      int k = rg_read_some(c, until, &interrupted);
      if (k == E_CONNECTION) rg_lost(c);
      pthread_mutex_lock(&c->mu);
      c->reading = false;
      if (k && k != E_CONNECTION) r = k;
    } else {
      atomic_store(&w->futex, 0);
      w->asleep = true;
      w->prev = NULL;
      w->next = c->sleepers;
      if (w->next) w->next->prev = w;
      c->sleepers = w;
      pthread_mutex_unlock(&c->mu);
      interrupted = rg_futex_wait(&w->futex, 0, until < 0 ? -1 : until - now) == EINTR;
      pthread_mutex_lock(&c->mu);
      w->asleep = false;
      if (w->prev) w->prev->next = w->next;
      else c->sleepers = w->next;
      if (w->next) w->next->prev = w->prev;
    }
    if (check && !w->done && (interrupted || (until >= 0 && rg_now() >= until))) {
      pthread_mutex_unlock(&c->mu);
      int stop = check(arg);
      pthread_mutex_lock(&c->mu);
      if (stop && !w->done) r = E_INTERRUPTED;
    }
  }
  rg_promote(c);
  return r;
}
