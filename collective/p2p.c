/* Sends and receives.
 *
 * From each rank to each other there is a ring of cells; a message is cut into cells.  All that wait, on their own stacks or as works, are in one list, and
 * whoever wakes up moves whatever can be moved, its own or not: so any number of sends and receives may be under way, and none blocks another.  A ring is a
 * stream: a message whose tag nobody asks for yet is put aside when one behind it is wanted.  Every rank has a bell that others ring when they wrote a cell
 * for it or made room for it. */
#include "core.h"
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* Bytes of messages that may be put aside; then senders wait.  A receive that waits behind them would never end, so this is what the machine can bear. */
static uint64_t most_aside(void) {
  static uint64_t most;               /* the same whoever finds it out */
  if (!most) most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;
  return most;
}

static void append(rgc_group *g, struct rgc_msg *m) {   /* p2p_mu, as all below unless it says otherwise */
  m->next = NULL;
  *g->msgs_tail = m;
  g->msgs_tail = &m->next;
}

static void take_out(rgc_group *g, struct rgc_msg *m) {
  for (struct rgc_msg **at = &g->msgs; *at; at = &(*at)->next) {
    if (*at != m) continue;
    *at = m->next;
    if (g->msgs_tail == &m->next) g->msgs_tail = at;
    return;
  }
}

static bool matches(const struct rgc_msg *m, int from, uint32_t tag) {
  return !m->send && !m->far && !m->met && !m->ended && (m->peer < 0 || m->peer == from) && m->x.call->tag == tag;
}

static void wrong_length(struct rgc_msg *m, int from, uint64_t sent) {
  rgc_group *g = m->x.g;
  m->ended = true;
  rgc_fail(&m->err, RAYGO_EINVAL, g->rank_of[from], "Rank %d of group %s receives %zu bytes with tag %u, but rank %d sent %llu. The message is lost.", g->rank, g->name, m->bytes, m->x.call->tag,
           g->rank_of[from], (unsigned long long)sent);
}

static bool push(rgc_group *g, struct rgc_msg *m) {
  struct rgc_ring *r = rgc_ring_of(g, g->me, m->peer);
  uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed), was = head;
  while (!m->ended && head - atomic_load_explicit(&r->tail, memory_order_acquire) < RGC_RINGS_CELLS) {
    struct rgc_cell *c = &r->cell[head % RGC_RINGS_CELLS];
    size_t left = m->bytes - m->at, n = left < RGC_CELL ? left : RGC_CELL;
    c->len = (uint32_t)n;
    c->tag = m->x.call->tag;
    c->total = m->bytes;
    rgc_copy(c->data, m->buf + m->at, n);
    m->at += n;
    m->met = true;
    m->ended = m->at == m->bytes;
    atomic_store_explicit(&r->head, ++head, memory_order_release);
  }
  if (head == was) return false;
  rgc_ring_bell(g, m->peer);
  return true;
}

/* Who gets the message that begins with this cell.  false: it stays where it is. */
static bool find_taker(rgc_group *g, int from, const struct rgc_cell *c) {
  bool wanted = false;
  for (struct rgc_msg *m = g->msgs; m; m = m->next) {
    if (matches(m, from, c->tag)) {
      if (m->bytes != c->total) {
        wrong_length(m, from, c->total);
        g->dropping[from] = c->total;
        return true;
      }
      m->met = true;
      m->source = g->rank_of[from];
      g->filling[from] = m;
      return true;
    }
    wanted = wanted || (!m->send && !m->far && !m->met && !m->ended && (m->peer < 0 || m->peer == from));
  }
  if (!wanted || g->stray_bytes + c->total > most_aside()) return false;
  struct rgc_stray *s = malloc(sizeof *s + c->total);
  if (!s) return false;
  *s = (struct rgc_stray){.peer = from, .tag = c->tag, .bytes = c->total};
  *g->strays_tail = s;
  g->strays_tail = &s->next;
  g->stray_bytes += s->bytes;
  g->straying[from] = s;
  return true;
}

static bool pull(rgc_group *g, int from) {
  struct rgc_ring *r = rgc_ring_of(g, from, g->me);
  uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), was = tail;
  while (tail != atomic_load_explicit(&r->head, memory_order_acquire)) {
    const struct rgc_cell *c = &r->cell[tail % RGC_RINGS_CELLS];
    if (!g->filling[from] && !g->straying[from] && !g->dropping[from] && !find_taker(g, from, c)) break;
    struct rgc_msg *m = g->filling[from];
    struct rgc_stray *s = g->straying[from];
    if (m) {
      rgc_copy(m->buf + m->at, c->data, c->len);
      m->at += c->len;
      m->ended = m->at == m->bytes;
      if (m->ended) g->filling[from] = NULL;
    } else if (s) {
      rgc_copy(s->data + s->at, c->data, c->len);
      s->at += c->len;
      if (s->at == s->bytes) g->straying[from] = NULL;
    } else {
      g->dropping[from] -= c->len;
    }
    atomic_store_explicit(&r->tail, ++tail, memory_order_release);
  }
  if (tail == was) return false;
  rgc_ring_bell(g, from);
  return true;
}

/* Moves what can be moved. */
static void progress(rgc_group *g) {
  bool full[RGC_MAX_LOCAL] = {false}, asked[RGC_MAX_LOCAL] = {false}, ended = false;
  for (struct rgc_msg *m = g->msgs; m; m = m->next) {
    if (m->far || m->ended) continue;
    if (m->send) {
      if (full[m->peer]) continue;
      push(g, m);
      full[m->peer] = !m->ended;
    } else if (m->peer >= 0) {
      asked[m->peer] = true;
    } else {
      for (int i = 0; i < g->nlocal; i++) asked[i] = i != g->me;
    }
  }
  for (int i = 0; i < g->nlocal; i++)
    if (asked[i]) pull(g, i);
  for (struct rgc_msg *m = g->msgs; m; m = m->next) ended = ended || m->ended;
  if (ended && g->msgs && g->msgs->next) rgc_ring_bell(g, g->me);   /* somebody else's may be among them */
}

/* Of messages that came before they were asked for. */
static void look_aside(rgc_group *g, struct rgc_msg *m) {
  for (struct rgc_stray **at = &g->strays; *at; at = &(*at)->next) {
    struct rgc_stray *s = *at;
    if (!matches(m, s->peer, s->tag)) continue;
    if (s->bytes != m->bytes) {
      wrong_length(m, s->peer, s->bytes);
      if (g->straying[s->peer] == s) g->dropping[s->peer] = s->bytes - s->at;
    } else {
      rgc_copy(m->buf, s->data, s->at);
      m->met = true;
      m->at = s->at;
      m->source = g->rank_of[s->peer];
      m->ended = m->at == m->bytes;
      if (!m->ended) g->filling[s->peer] = m;
    }
    if (g->straying[s->peer] == s) g->straying[s->peer] = NULL;
    g->stray_bytes -= s->bytes;
    *at = s->next;
    if (g->strays_tail == &s->next) g->strays_tail = at;
    free(s);
    return;
  }
}

/* ------------------------------------------------------------------------------------------------ giving up */

/* Without the lock.  What the transport has ends by a call of its own. */
static void far_done(rgc_p2p *op, int code, const char *message) {
  struct rgc_msg *m = (struct rgc_msg *)((char *)op - offsetof(struct rgc_msg, net));
  rgc_group *g = m->x.g;
  pthread_mutex_lock(&g->p2p_mu);
  if (code && !m->err.code) rgc_fail(&m->err, code, m->x.call->root, "%s", message ? message : "The transport between nodes gave no reason.");
  m->source = m->x.call->root;
  m->ended = true;
  rgc_ring_bell(g, g->me);
  pthread_mutex_unlock(&g->p2p_mu);
}

/* Takes out what has not ended.  When some of a send has gone, the receiver would take the next message for its rest: the group is broken then. */
static void forget(rgc_group *g, struct rgc_msg *m) {
  if (m->send && m->met && m->at < m->bytes) rgc_break(g, m->err.code ? m->err.code : RAYGO_EGROUP, g->rank, *m->err.message ? m->err.message : "A send was given up half way.");
  for (int i = 0; i < g->nlocal; i++)
    if (g->filling[i] == m) {
      g->filling[i] = NULL;
      g->dropping[i] = m->bytes - m->at;
    }
  take_out(g, m);
}

/* Whether it can still go; 0 or the reason, which is in m->x.err too. */
static int hopeless(struct rgc_msg *m) {
  struct rgc_ctx *x = &m->x;
  rgc_group *g = x->g;
  if (atomic_load(&g->mine->state) == RGC_LEFT) return rgc_fail(x->err, RAYGO_ESTALE, g->rank, "Rank %d closed group %s during this call.", g->rank, g->name);
  int r = rgc_usable(x);
  if (r) return r;
  if (!m->far && m->peer >= 0) return rgc_p2p_gone(x, m->peer);
  return 0;
}

/* ------------------------------------------------------------------------------------------------ on the caller's thread */

static void prepare(struct rgc_msg *m, rgc_group *g, const rgc_call *c, const rgc_wait *wait) {
  memset(m, 0, sizeof *m);
  rgc_ctx_init(&m->x, g, c, wait, &m->err);
  m->x.p2p = true;
  m->err.rank = -1;
  m->send = c->kind == RGC_SEND;
  m->source = -1;
  m->peer = c->root < 0 ? -1 : g->local_of[c->root];
  m->far = c->root >= 0 && m->peer < 0;
  m->buf = m->send ? (uint8_t *)(uintptr_t)c->src : c->dst;
  m->bytes = c->count * rgc_dtype_size(c->dtype);
}

static int closed_meanwhile(rgc_error *err, const struct rgc_msg *m) {
  rgc_group *g = m->x.g;
  return rgc_fail(err, RAYGO_ESTALE, g->rank, "Rank %d closed group %s before this call (%s) was done.", g->rank, g->name, rgc_kind_name(m->x.call->kind));
}

/* Without the lock. */
static int begin(rgc_group *g, struct rgc_msg *m) {
  int r = 0;
  if (!m->send && m->x.call->root < 0 && g->nodes > 1)
    return rgc_fail(&m->err, RAYGO_EINVAL, g->rank, "A receive from any rank works on one node only; group %s is on %d. Name the rank.", g->name, g->nodes);
  pthread_mutex_lock(&g->p2p_mu);
  if (m->work && g->p2p_stop) r = closed_meanwhile(&m->err, m);   /* the thread that would look after it may have ended */
  else append(g, m);
  if (!r && !m->send && !m->far) look_aside(g, m);
  pthread_mutex_unlock(&g->p2p_mu);
  if (!r && m->far) {
    m->net = (rgc_p2p){.kind = (int)m->x.call->kind, .peer = m->x.call->root, .tag = m->x.call->tag, .buf = m->buf, .bytes = m->bytes, .done = far_done};
    g->net.post(g->net.ctx, &m->net);
  }
  return r;
}

/* Without the lock: sleeps until the bell rings; what ends the wait is noted in m->x.err, which must not be m->err: that says how the message ended, under the lock. */
static int doze(struct rgc_msg *m, uint32_t seen) {
  rgc_group *g = m->x.g;
  for (int i = 0; !g->crowded && i < 2000; i++) {
    if (atomic_load_explicit(&g->mine->bell, memory_order_acquire) != seen) return 0;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  if (seen & 1) {
    int r = hopeless(m);
    if (r) return r;
  }
  return rgc_sleep(&m->x, &g->mine->bell, seen, &g->mine->bell_sleepers, 0);
}

/* The transport still has it: that ends when the group breaks. */
static void wait_for_far(rgc_group *g, struct rgc_msg *m, const char *why) {
  if (!m->far || m->ended) return;
  if (g->net.cancel(g->net.ctx, &m->net)) return;
  pthread_mutex_unlock(&g->p2p_mu);
  rgc_break(g, RAYGO_EGROUP, g->rank, why);
  for (;;) {
    uint32_t seen = atomic_load(&g->mine->bell);
    pthread_mutex_lock(&g->p2p_mu);
    if (m->ended) return;
    pthread_mutex_unlock(&g->p2p_mu);
    rgc_futex_wait(&g->mine->bell, seen, INT64_C(100000000), true);
  }
}

int rgc_message(struct rgc_ctx *x, int *source) {
  rgc_group *g = x->g;
  struct rgc_msg m;
  rgc_wait wait = {x->deadline, x->check, x->arg};
  prepare(&m, g, x->call, &wait);
  m.x.err = x->err;
  int r = rgc_usable(&m.x);
  if (r) return r;
  if ((r = begin(g, &m))) {
    *x->err = m.err;
    return r;
  }
  pthread_mutex_lock(&g->p2p_mu);
  for (;;) {
    uint32_t seen = atomic_load(&g->mine->bell);
    progress(g);
    if (m.ended) break;
    pthread_mutex_unlock(&g->p2p_mu);
    r = doze(&m, seen);
    pthread_mutex_lock(&g->p2p_mu);
    if (!r) continue;
    progress(g);                     /* what came before the end counts */
    if (!m.ended) wait_for_far(g, &m, x->err->message);
    else if (r != RAYGO_EINTERRUPTED) r = 0;
    break;
  }
  if (r && !m.err.code) m.err = *x->err;   /* forget says why it breaks the group */
  forget(g, &m);
  pthread_mutex_unlock(&g->p2p_mu);
  if (!r && (r = m.err.code)) *x->err = m.err;
  if (!r) x->err->code = 0;
  if (source) *source = m.source;
  return r;
}

/* A collective's: the first that fails fails all. */
int rgc_exchange(struct rgc_ctx *x, const struct rgc_part *parts, int n) {
  rgc_group *g = x->g;
  struct rgc_msg *m = calloc((size_t)n + 1, sizeof *m);
  rgc_call *c = calloc((size_t)n + 1, sizeof *c);
  int r = m && c ? 0 : rgc_fail(x->err, RAYGO_ENOMEM, g->rank, "There was no memory to exchange arrays.");
  rgc_wait wait = {-1, x->check, x->arg};
  int begun = 0;
  for (int i = 0; i < n && !r; i++) {
    c[i] = (rgc_call){.kind = parts[i].send ? RGC_SEND : RGC_RECV, .dtype = RGC_UINT8, .root = parts[i].peer, .tag = RGC_TAG_END, .count = parts[i].bytes, .src = parts[i].buf, .dst = parts[i].buf};
    prepare(&m[i], g, &c[i], &wait);
    m[i].x.deadline = x->deadline;
    m[i].x.began = x->began;
    m[i].x.log_at = i ? INT64_MAX : x->log_at;
    m[i].x.err = x->err;
    if ((r = begin(g, &m[i]))) *x->err = m[i].err;
    else begun++;
  }
  if (begun) pthread_mutex_lock(&g->p2p_mu);
  for (int waits_for = 0; waits_for < begun && !r;) {
    uint32_t seen = atomic_load(&g->mine->bell);
    progress(g);
    while (waits_for < begun && m[waits_for].ended && !m[waits_for].err.code) waits_for++;
    for (int i = 0; i < begun && !r; i++)
      if (m[i].ended && (r = m[i].err.code)) *x->err = m[i].err;
    if (waits_for == begun || r) break;
    pthread_mutex_unlock(&g->p2p_mu);
    r = doze(&m[waits_for], seen);
    pthread_mutex_lock(&g->p2p_mu);
    if (!r) continue;
    progress(g);                     /* what came before the end counts */
    if (r == RAYGO_EINTERRUPTED || !m[waits_for].ended) break;
    x->err->code = r = 0;
  }
  for (int i = 0; i < begun; i++) {
    if (!m[i].ended) wait_for_far(g, &m[i], x->err->message);
    if (r && !m[i].err.code) m[i].err = *x->err;
    forget(g, &m[i]);
  }
  if (begun) pthread_mutex_unlock(&g->p2p_mu);
  free(m);
  free(c);
  if (r) rgc_break(g, x->err->code, x->err->rank, x->err->message);
  return r;
}

/* ------------------------------------------------------------------------------------------------ on the group's */

static void end_ended(rgc_group *g) {
  for (struct rgc_msg *m = g->msgs, *next; m; m = next) {
    next = m->next;
    if (!m->ended || !m->work) continue;
    take_out(g, m);
    m->work->source = m->source;
    pthread_mutex_unlock(&g->p2p_mu);
    rgc_work_end(m->work, &m->err);   /* runs what the user wants to run then */
    free(m);
    rgc_leave(g);
    pthread_mutex_lock(&g->p2p_mu);
    next = g->msgs;
  }
}

/* Deadlines, deaths, and the line for the log. */
static void look_after(rgc_group *g, bool closing) {
  bool flagged = atomic_load(&g->mine->bell) & 1;
  int64_t now = rgc_now();
  for (struct rgc_msg *m = g->msgs, *next; m; m = next) {
    next = m->next;
    if (!m->work || m->ended) continue;
    rgc_start_clock(&m->x);
    if (closing) closed_meanwhile(&m->err, m);
    else if (flagged && hopeless(m)) {
      /* What was sent before the end counts, and how that ended. */
      rgc_error why = m->err;
      m->err.code = 0;
      progress(g);
      if (m->ended) continue;
      m->err = why;
    }
    if (!m->err.code && m->x.deadline >= 0 && now >= m->x.deadline) rgc_timed_out(&m->x, 0);
    if (!m->err.code && now >= m->x.log_at) rgc_log_wait(&m->x, 0);
    if (!m->err.code) continue;
    if (m->far && !g->net.cancel(g->net.ctx, &m->net) && !m->ended) {
      rgc_break(g, RAYGO_EGROUP, g->rank, m->err.message);   /* it is half way: nothing else ends it */
      continue;
    }
    forget(g, m);
    m->ended = true;
    append(g, m);
  }
}

static void *run_messages(void *arg) {
  rgc_group *g = arg;
  rgc_come_home(g, RGC_ON_MESSAGES);
  pthread_mutex_lock(&g->p2p_mu);
  for (;;) {
    uint32_t seen = atomic_load(&g->mine->bell);
    progress(g);
    look_after(g, g->p2p_stop);
    end_ended(g);
    bool works = false;
    for (struct rgc_msg *m = g->msgs; m; m = m->next) works = works || m->work;
    if (!works && g->p2p_stop) break;
    pthread_mutex_unlock(&g->p2p_mu);
    atomic_fetch_add(&g->mine->bell_sleepers, 1);
    rgc_futex_wait(&g->mine->bell, seen, works ? INT64_C(250000000) : -1, true);
    atomic_fetch_sub(&g->mine->bell_sleepers, 1);
    pthread_mutex_lock(&g->p2p_mu);
  }
  pthread_mutex_unlock(&g->p2p_mu);
  rgc_leave_home(g, RGC_ON_MESSAGES);
  return NULL;
}

int rgc_message_start(rgc_group *g, rgc_work *w, rgc_error *err) {
  struct rgc_msg *m = malloc(sizeof *m);
  if (!m) return rgc_fail(err, RAYGO_ENOMEM, g->rank, "There was no memory to start a call.");
  rgc_wait wait = {w->timeout_ns, NULL, NULL};
  prepare(m, g, &w->call, &wait);
  m->x.err = err;
  int r = rgc_usable(&m->x);
  m->x.err = &m->err;
  pthread_mutex_lock(&g->p2p_mu);
  if (!r && !g->p2p_thread && !g->p2p_stop) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    g->p2p_thread = !pthread_create(&g->p2p_worker, NULL, run_messages, g);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!g->p2p_thread) r = rgc_fail(err, RAYGO_ENOMEM, g->rank, "Group %s could not start its thread: there are too many threads (ulimit -u), or there is no memory.", g->name);
  }
  pthread_mutex_unlock(&g->p2p_mu);
  if (r) {
    free(m);
    return r;
  }
  m->work = w;
  rgc_work_ref(w);
  atomic_store(&w->state, 1);
  pthread_mutex_lock(&g->mu);
  g->inside++;
  pthread_mutex_unlock(&g->mu);
  if ((r = begin(g, m))) {
    *err = m->err;
    rgc_work_free(w);
    free(m);
    rgc_leave(g);
    return r;
  }
  rgc_ring_bell(g, g->me);
  return 0;
}

int rgc_message_cancel(rgc_work *w) {
  rgc_group *g = w->group;
  int done = 0;
  pthread_mutex_lock(&g->p2p_mu);
  for (struct rgc_msg *m = g->msgs; m; m = m->next) {
    if (m->work != w || m->ended || m->met) continue;
    if (m->far && !g->net.cancel(g->net.ctx, &m->net)) break;
    rgc_fail(&m->err, RAYGO_ECANCELED, g->rank, "The call (%s) was cancelled before it had met its other side.", rgc_kind_name(m->x.call->kind));
    m->ended = true;
    done = 1;
    rgc_ring_bell(g, g->me);
    break;
  }
  pthread_mutex_unlock(&g->p2p_mu);
  return done;
}

void rgc_p2p_closing(rgc_group *g) {
  pthread_mutex_lock(&g->p2p_mu);
  g->p2p_stop = true;
  bool thread = g->p2p_thread;
  pthread_mutex_unlock(&g->p2p_mu);
  if (thread) rgc_ring_bell(g, g->me);
}

void rgc_p2p_close(rgc_group *g) {
  rgc_p2p_closing(g);
  if (g->p2p_thread && g->closer != RGC_ON_MESSAGES) pthread_join(g->p2p_worker, NULL);
  while (g->strays) {
    struct rgc_stray *s = g->strays;
    g->strays = s->next;
    free(s);
  }
  g->strays_tail = &g->strays;
}
