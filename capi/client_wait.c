/* Waiting for objects, pins, answers; the completion queue; logs. */
#include "client_int.h"
#include <sys/eventfd.h>

static void link_waiter(rg_client *c, rg_waiter *w) {
  w->all_prev = NULL;
  w->all_next = c->waiters;
  if (w->all_next) w->all_next->all_prev = w;
  c->waiters = w;
}

static void unlink_waiter(rg_client *c, rg_waiter *w) {
  if (w->all_prev) w->all_prev->all_next = w->all_next;
  else c->waiters = w->all_next;
  if (w->all_next) w->all_next->all_prev = w->all_prev;
}

static void drop_requests(rg_client *c, rg_waiter *w) {   /* mu: the answers may still come, to nobody */
  for (struct rg_request **at = &c->requests; *at;)
    if ((*at)->w == w) *at = (*at)->next;
    else at = &(*at)->next;
}

static void add_request(rg_client *c, struct rg_request *r) {   /* mu; answers come in order, so the search begins at the oldest */
  struct rg_request **at = &c->requests;
  while (*at) at = &(*at)->next;
  r->next = NULL;
  *at = r;
}

/* RETURN, BLOCKED and SUBSCRIBE leave in one write: the engine must know who waits before it may decide who runs. */
static int announce_wait(rg_client *c, uint64_t task, uint16_t flags, const struct rg_vec *ask, const struct rg_vec *missing) {
  struct rg_vec v = {0};
  bool ok = true;
  if (task) {
    struct rg_vec back = {0};
    pthread_mutex_lock(&c->mu);
    for (rg_task *t = c->task_waiter ? NULL : c->task_head, *next; t; t = next) {
      next = t->next;
      if (t->flags & (RG_F_ACTOR_CALL | RG_F_ACTOR_CREATE)) break;   /* an actor's calls cannot run elsewhere */
      ok = ok && rg_vec_add(&back, &t->id, sizeof t->id);
      c->task_head = next;
      if (!next) c->task_tail = NULL;
      c->ntask--;
      rg_task_drop(c, t);
    }
    pthread_mutex_unlock(&c->mu);
    if (back.n) {
      struct rg_hdr h = {(uint32_t)back.n, RG_RETURN, 0, 0};
      ok = ok && rg_vec_add(&v, &h, sizeof h) && rg_vec_add(&v, back.p, back.n);
    }
    free(back.p);
    struct rg_hdr h = {(uint32_t)missing->n, RG_BLOCKED, flags, task};
    ok = ok && rg_vec_add(&v, &h, sizeof h) && rg_vec_add(&v, missing->p, missing->n);
  }
  if (ask->n) {
    struct rg_hdr h = {(uint32_t)ask->n, RG_SUBSCRIBE, 0, 0};
    ok = ok && rg_vec_add(&v, &h, sizeof h) && rg_vec_add(&v, ask->p, ask->n);
  }
  int r = ok ? 0 : E_NOMEM;
  if (ok && v.n) {
    uint8_t *p = rg_out_begin(c, v.n);
    if (p) {
      memcpy(p, v.p, v.n);
      r = rg_out_end(c, v.n, true);
    } else {
      r = E_NOMEM;
    }
  }
  free(v.p);
  return r;
}

/* Not flushed: it leaves with the next frame, or with the monitor's next tick. */
static void announce_done(rg_client *c, uint64_t task, uint16_t flags) {
  if (!task || rg_dead(c)) return;
  if (rg_frame_begin(c, RG_UNBLOCKED, flags, task, 0)) rg_out_end(c, sizeof(struct rg_hdr), false);
}

int rg_wait(rg_client *c, rg_slot **slots, size_t n, size_t need, uint64_t task, int64_t deadline, rg_check_fn check, void *arg,
            uint8_t **error, size_t *error_len) {
  if (error) *error = NULL;
  size_t have = 0;
  bool or_error = need & RG_OR_ERROR, aside = need & RG_ASIDE, failed = false;
  need &= ~(RG_OR_ERROR | RG_ASIDE);
  for (size_t i = 0; i < n && have < need; i++) {
    if (atomic_load_explicit(&slots[i]->state, memory_order_acquire) == RG_S_PENDING) continue;
    have++;
    failed = failed || slots[i]->is_error;
  }
  if (have >= need || (or_error && failed)) return 0;
  if (rg_dead(c)) return rg_dead_code(c);

  struct rg_waitnode *nodes = malloc(n * sizeof *nodes);
  struct rg_vec ask = {0}, missing = {0};
  if (!nodes) return E_NOMEM;
  rg_waiter w = {0};
  pthread_mutex_lock(&c->mu);
  have = 0;
  for (size_t i = 0; i < n; i++) {
    rg_slot *s = slots[i];
    nodes[i].w = NULL;
    if (atomic_load(&s->state) != RG_S_PENDING) {
      have++;
      failed = failed || s->is_error;
      continue;
    }
    nodes[i] = (struct rg_waitnode){s->waiters, &w};
    s->waiters = &nodes[i];
    if (!s->asked) {
      s->asked = 1;
      rg_vec_add(&ask, &s->oid, sizeof s->oid);
    }
    if (task) rg_vec_add(&missing, &s->oid, sizeof s->oid);
  }
  w.task = aside ? 0 : task;   /* a cycle is the task's own wait's to report */
  w.or_error = or_error;
  if (have >= need || (or_error && failed)) w.done = true;
  else w.remaining = need - have;
  link_waiter(c, &w);
  bool there = w.done;
  pthread_mutex_unlock(&c->mu);
  bool told = false;
  int r = 0;
  if (ask.n || (deadline != 0 && !there)) {
    uint64_t tell = deadline != 0 && !there ? task : 0;   /* a look is no wait */
    r = announce_wait(c, tell, (uint16_t)((need < n ? RG_F_ANY : 0) | (deadline >= 0 ? RG_F_TIMED : 0) | (aside ? RG_F_ASIDE : 0)), &ask, &missing);
    told = tell != 0;
  }
  if (!r && deadline == 0 && c->fd >= 0) rg_pump(c);   /* what has arrived counts */
  pthread_mutex_lock(&c->mu);
  if (!r) r = rg_block(c, &w, deadline, check, arg);
  for (size_t i = 0; i < n; i++) {
    if (!nodes[i].w) continue;
    for (struct rg_waitnode **at = &slots[i]->waiters; *at; at = &(*at)->next)
      if (*at == &nodes[i]) {
        *at = nodes[i].next;
        break;
      }
  }
  unlink_waiter(c, &w);
  pthread_mutex_unlock(&c->mu);
  if (told) announce_done(c, task, aside ? RG_F_ASIDE : 0);
  free(nodes);
  free(ask.p);
  free(missing.p);
  if (w.error) {
    if (error) {
      *error = w.error;
      *error_len = w.error_len;
    } else {
      free(w.error);
    }
    return E_DEADLOCK;
  }
  return r;
}

int rg_pin_slots(rg_client *c, rg_slot **slots, size_t n, rg_pin **out, uint64_t task, int64_t deadline, rg_check_fn check, void *arg) {
  (void)task;   /* a restore from disk is the engine's own work: the CPU stays with the task */
  memset(out, 0, n * sizeof *out);
  if (!n) return 0;
  if (rg_dead(c)) return rg_dead_code(c);
  if (n == 1 && (out[0] = rg_pin_own(c, slots[0]))) return 0;
  struct rg_request *q = calloc(n, sizeof *q);
  struct rg_oid *oids = malloc(n * sizeof *oids);
  if (!q || !oids) {
    free(q);
    free(oids);
    return E_NOMEM;
  }
  rg_waiter w = {0};
  size_t k = 0;
  pthread_mutex_lock(&c->mu);
  struct rg_request **tail = &c->requests;
  while (*tail) tail = &(*tail)->next;
  for (size_t i = 0; i < n; i++) {
    if ((out[i] = rg_lease_pin(c, slots[i]))) continue;
    oids[k] = slots[i]->oid;
    q[k] = (struct rg_request){.type = RG_PIN, .oid = oids[k], .w = &w, .pin = &out[i]};
    *tail = &q[k];
    tail = &q[k++].next;
  }
  w.remaining = k;
  pthread_mutex_unlock(&c->mu);
  int r = 0;
  if (k) {
    r = rg_send(c, RG_PIN, 0, 0, oids, k * sizeof *oids, NULL, 0);
    pthread_mutex_lock(&c->mu);
    if (!r) r = rg_block(c, &w, deadline, check, arg);
    drop_requests(c, &w);
    pthread_mutex_unlock(&c->mu);
  }
  for (size_t i = 0; i < k && !r; i++) r = (int)q[i].status;
  if (r)
    for (size_t i = 0; i < n; i++) {
      if (out[i]) rg_pin_decref(out[i]);
      out[i] = NULL;
    }
  free(q);
  free(oids);
  return r;
}

/* Sends a request frame and waits for its answer. */
static int ask(rg_client *c, struct rg_request *q, uint16_t flags, const void *payload, size_t len, int64_t timeout_ns, rg_check_fn check, void *arg) {
  rg_waiter w = {.remaining = 1};
  q->w = &w;
  pthread_mutex_lock(&c->mu);
  if (q->type == RG_CALL) q->id = ++c->next_request;
  add_request(c, q);
  pthread_mutex_unlock(&c->mu);
  int r = rg_send(c, q->type, flags, q->type == RG_CALL ? q->id : q->oid.task, payload, len, NULL, 0);
  pthread_mutex_lock(&c->mu);
  if (!r) r = rg_block(c, &w, timeout_ns < 0 ? -1 : rg_now() + timeout_ns, check, arg);
  drop_requests(c, &w);
  pthread_mutex_unlock(&c->mu);
  return r ? r : (int)q->status;
}

int rg_call(rg_client *c, const void *payload, size_t len, int64_t timeout_ns, rg_check_fn check, void *arg, uint8_t **reply, size_t *reply_len) {
  *reply = NULL;
  *reply_len = 0;
  if (rg_dead(c)) return rg_dead_code(c);
  struct rg_request q = {.type = RG_CALL};
  int r = ask(c, &q, 0, payload, len, timeout_ns, check, arg);
  *reply = q.reply;
  *reply_len = q.reply_len;
  return r;
}

int rg_create_space(rg_client *c, struct rg_request *q, uint64_t size, bool lease, int64_t timeout_ns, rg_check_fn check, void *arg) {
  struct rg_create k = {q->oid.index, 0, size};
  return ask(c, q, lease ? RG_F_LEASE : 0, &k, sizeof k, timeout_ns, check, arg);
}

int rg_logs(rg_client *c, int64_t timeout_ns, rg_check_fn check, void *arg, uint8_t **map, size_t *len) {
  rg_waiter w = {0};
  int r = 0;
  pthread_mutex_lock(&c->mu);
  if (!c->log_head && !c->log_waiter) {
    c->log_waiter = &w;
    r = rg_block(c, &w, timeout_ns < 0 ? -1 : rg_now() + timeout_ns, check, arg);
    c->log_waiter = NULL;
  }
  struct rg_log *l = c->log_head;
  if (l) {
    c->log_head = l->next;
    if (!l->next) c->log_tail = NULL;
    c->nlog--;
    r = 0;
  } else if (!r) {
    r = E_TIMEDOUT;
  }
  pthread_mutex_unlock(&c->mu);
  if (l) {
    *len = l->len;
    if ((*map = malloc(l->len + 1))) memcpy(*map, l->map, l->len);
    else r = E_NOMEM;
    free(l);
  }
  return r;
}

int rg_cq_fd(rg_client *c) {
  pthread_mutex_lock(&c->mu);
  if (c->cq_fd < 0 && (c->cq_fd = eventfd(c->ncq ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0) rg_fork_register_fd(c->cq_fd, 1);
  pthread_mutex_unlock(&c->mu);
  return c->cq_fd;
}

int rg_cq_watch(rg_client *c, rg_slot *s, uint64_t token) {
  bool ask_for = false, there;
  pthread_mutex_lock(&c->mu);
  there = atomic_load(&s->state) != RG_S_PENDING;
  if (!there) {
    if (!s->async_token) c->async_waiting++;
    s->async_token = token;
    ask_for = !s->asked;
    s->asked = 1;
  }
  pthread_mutex_unlock(&c->mu);
  if (ask_for) rg_send(c, RG_SUBSCRIBE, 0, 0, &s->oid, sizeof s->oid, NULL, 0);
  if (!there) rg_kick(c);   /* nobody else may be reading */
  return there;
}

size_t rg_cq_poll(rg_client *c, uint64_t *tokens, size_t max) {
  pthread_mutex_lock(&c->mu);
  size_t n = c->ncq < max ? c->ncq : max;
  if (n) memcpy(tokens, c->cq, n * sizeof *tokens);
  c->ncq -= n;
  if (c->ncq) memmove(c->cq, c->cq + n, c->ncq * sizeof *c->cq);
  else if (c->cq_fd >= 0) {
    uint64_t junk;
    ssize_t r = read(c->cq_fd, &junk, sizeof junk);
    (void)r;
  }
  pthread_mutex_unlock(&c->mu);
  return n;
}
