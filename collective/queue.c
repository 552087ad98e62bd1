/* Whose turn it is, and calls that were started.
 *
 * A collective that is run while nothing is queued takes the turn itself, on the caller's thread; everything else, and what may wait for other nodes where no
 * signal can end it, goes through a queue that one thread of the group's works off.  So calls take effect in the order in which they were made.  The thread begins with the first call that is started. */
#include "core.h"
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>

#define QUEUE 1024

static __thread struct { const rgc_group *group; rgc_home where; } home __attribute__((tls_model("initial-exec")));

/* ------------------------------------------------------------------------------------------------ arguments */

static int bad(rgc_group *g, rgc_error *err, const char *kind, const char *what) {
  return rgc_fail(err, RAYGO_EINVAL, g->rank, "%s in group %s: %s", kind, g->name, what);
}

static bool overlong(size_t count, size_t size) { return count > ((size_t)1 << 46) / size; }

static bool blocks_ok(const rgc_block *b, int n, size_t size) {
  for (int i = 0; i < n; i++)
    if ((b[i].count && !b[i].data) || overlong(b[i].count, size)) return false;
  return true;
}

int rgc_valid(rgc_group *g, const rgc_call *c, rgc_error *err) {
  if (c->kind >= RGC_KINDS) return rgc_fail(err, RAYGO_EINVAL, g->rank, "There is no call of kind %u.", c->kind);
  const char *k = rgc_kind_name(c->kind);
  char text[200];
  if (c->kind == RGC_BARRIER) return 0;
  size_t size = rgc_dtype_size(c->dtype);
  if (!size) return bad(g, err, k, "the dtype is none of enum rgc_dtype.");
  bool reduces = c->kind == RGC_ALLREDUCE || c->kind == RGC_REDUCE || c->kind == RGC_REDUCESCATTER;
  if (reduces && !rgc_reducer(c->dtype, c->op)) {
    snprintf(text, sizeof text, "%s cannot be reduced so: bool has no avg, floats have no band, bor and bxor.", rgc_dtype_name(c->dtype));
    return bad(g, err, k, text);
  }
  bool rooted = c->kind == RGC_REDUCE || c->kind == RGC_BROADCAST || c->kind == RGC_GATHER || c->kind == RGC_SCATTER || c->kind >= RGC_SEND;
  if (rooted && (c->root < 0 || c->root >= g->size) && !(c->kind == RGC_RECV && c->root == RGC_ANY_SOURCE)) {
    snprintf(text, sizeof text, "there is no rank %d; the ranks are 0 to %d.", c->root, g->size - 1);
    return bad(g, err, k, text);
  }
  if (c->kind >= RGC_SEND && c->root == g->rank) {
    snprintf(text, sizeof text, "rank %d cannot exchange messages with itself; copy the array instead.", g->rank);
    return bad(g, err, k, text);
  }
  if (c->kind >= RGC_SEND && c->tag >= RGC_TAG_END) return bad(g, err, k, "tags go from 0 to 4294901759.");
  if (overlong(c->count, size)) return bad(g, err, k, "the count is larger than any memory.");
  bool root = c->root == g->rank;
  bool many_src = c->kind == RGC_REDUCESCATTER || c->kind == RGC_ALLTOALL || (c->kind == RGC_SCATTER && root);
  bool many_dst = c->kind == RGC_ALLGATHER || c->kind == RGC_ALLTOALL || (c->kind == RGC_GATHER && root);
  bool src = many_src || c->kind == RGC_ALLREDUCE || c->kind == RGC_REDUCE || (c->kind == RGC_BROADCAST && root) || c->kind == RGC_ALLGATHER || c->kind == RGC_GATHER ||
             c->kind == RGC_SEND;
  bool dst = many_dst || c->kind == RGC_ALLREDUCE || (c->kind == RGC_REDUCE && root) || (c->kind == RGC_BROADCAST && !root) || c->kind == RGC_REDUCESCATTER ||
             c->kind == RGC_SCATTER || c->kind == RGC_RECV;
  bool lists_src = many_src && c->srcs, lists_dst = many_dst && c->dsts;
  if (lists_src && !blocks_ok(c->srcs, g->size, size)) return bad(g, err, k, "a block of srcs has a count but no address, or is larger than any memory.");
  if (lists_dst && !blocks_ok(c->dsts, g->size, size)) return bad(g, err, k, "a block of dsts has a count but no address, or is larger than any memory.");
  if (src && !lists_src && c->count && !c->src) return bad(g, err, k, "src is NULL.");
  if (dst && !lists_dst && c->count && !c->dst) return bad(g, err, k, "dst is NULL.");
  if ((many_src || many_dst) && overlong(c->count, size * (size_t)g->size)) return bad(g, err, k, "the count is larger than any memory.");
  size_t own = c->kind == RGC_ALLTOALL ? (lists_src ? c->srcs[g->rank].count : c->count) : c->count;
  if ((lists_src && c->srcs[g->rank].count != own) || (lists_dst && c->dsts[g->rank].count != own) || (c->kind == RGC_ALLTOALL && lists_src && !lists_dst && own != c->count))
    return bad(g, err, k, "the block of this rank itself has another count than the call, or on one side than on the other.");
  return 0;
}

/* ------------------------------------------------------------------------------------------------ coming and going */

static int gone(rgc_group *g, rgc_error *err) {
  return rgc_fail(err, RAYGO_ESTALE, g->rank, "Rank %d has closed group %s: it cannot be used any more.", g->rank, g->name);
}

static int forked(rgc_group *g, rgc_error *err) {
  return rgc_fail(err, RAYGO_EFORKED, g->rank, "Group %s was made by the process that this one was forked from, and only that one can use it. Make a group of its own here.", g->name);
}

static bool is_forked(rgc_group *g) { return g->fork_count != atomic_load_explicit(&rgc_forks, memory_order_relaxed); }

int rgc_enter(rgc_group *g, rgc_error *err) {
  if (is_forked(g)) return forked(g, err);
  pthread_mutex_lock(&g->mu);
  bool ok = !g->closing;
  g->inside += ok;
  pthread_mutex_unlock(&g->mu);
  return ok ? 0 : gone(g, err);
}

static void leave_locked(rgc_group *g) {
  if (!--g->inside && g->closing) pthread_cond_broadcast(&g->out);
}

void rgc_leave(rgc_group *g) {
  pthread_mutex_lock(&g->mu);
  leave_locked(g);
  pthread_mutex_unlock(&g->mu);
}

/* ------------------------------------------------------------------------------------------------ the group's own threads */

rgc_home rgc_at_home(const rgc_group *g) { return home.group == g ? home.where : RGC_NOWHERE; }

void rgc_come_home(rgc_group *g, rgc_home where) {
  home.group = g;
  home.where = where;
}

void rgc_leave_home(rgc_group *g, rgc_home where) {
  pthread_mutex_lock(&g->mu);
  bool closes = g->closer == where;
  pthread_mutex_unlock(&g->mu);
  home.group = NULL;                 /* so that what is called back from now on may not take this for a thread that goes on */
  if (!closes) return;
  pthread_detach(pthread_self());
  rgc_finish(g);
}

/* A wait on the thread that alone can end it. */
static int would_wait_for_itself(rgc_group *g, rgc_error *err, const char *what) {
  return rgc_fail(err, RAYGO_EDEADLOCK, g->rank,
                  "%s of group %s was called when another call had ended, on the thread that would have to run it, and so would wait for ever. Start the call there, or wait elsewhere.", what,
                  g->name);
}

/* ------------------------------------------------------------------------------------------------ works */

void rgc_work_ref(rgc_work *w) { atomic_fetch_add(&w->refs, 1); }

void rgc_work_free(rgc_work *w) {
  if (!w || atomic_fetch_sub(&w->refs, 1) != 1) return;
  rgc_drop(w->group);
  free(w->blocks);
  free(w);
}

void rgc_work_end(rgc_work *w, const rgc_error *err) {
  if (err->code) w->err = *err;
  if (w->done) w->done(w->arg, &w->err);
  atomic_store(&w->state, 2);
  rgc_futex_wake(&w->state, INT_MAX, false);
  rgc_work_free(w);
}

bool rgc_work_done(const rgc_work *w) { return atomic_load_explicit(&((rgc_work *)w)->state, memory_order_acquire) == 2; }

static rgc_work *new_work(rgc_group *g, const rgc_call *c, const rgc_wait *wait, void (*done)(void *, const rgc_error *), void *arg) {
  rgc_work *w = calloc(1, sizeof *w);
  size_t ns = c->srcs ? (size_t)g->size : 0, nd = c->dsts ? (size_t)g->size : 0;
  rgc_block *b = w && ns + nd ? malloc((ns + nd) * sizeof *b) : NULL;
  if (!w || (ns + nd && !b)) {
    free(w);
    return NULL;
  }
  *w = (rgc_work){.call = *c, .blocks = b, .timeout_ns = wait ? wait->timeout_ns : 0, .done = done, .arg = arg, .refs = 1, .source = -1, .group = g, .err = {.rank = -1}};
  atomic_fetch_add(&g->map_refs, 1);   /* so that a late cancel finds something */
  if (ns) w->call.srcs = memcpy(b, c->srcs, ns * sizeof *b);
  if (nd) w->call.dsts = memcpy(b + ns, c->dsts, nd * sizeof *b);
  return w;
}

int rgc_work_wait(rgc_work *w, const rgc_wait *wait, int *source, rgc_error *err) {
  int64_t deadline = wait && wait->timeout_ns > 0 ? wait->timeout_ns : -1, began = 0;
  if (is_forked(w->group) && !rgc_work_done(w)) return forked(w->group, err);   /* what would end it is not in this process */
  if (!rgc_work_done(w) && rgc_at_home(w->group) == (w->call.kind >= RGC_SEND ? RGC_ON_MESSAGES : RGC_ON_QUEUE))
    return would_wait_for_itself(w->group, err, "A wait for a call");
  for (uint32_t state; (state = atomic_load_explicit(&w->state, memory_order_acquire)) != 2;) {
    int64_t now = rgc_now(), ns = INT64_C(100000000);
    if (!began) {
      began = now;
      deadline = deadline >= 0 && deadline < INT64_MAX - now ? now + deadline : -1;
    }
    if (deadline >= 0 && now >= deadline)
      return rgc_fail(err, RAYGO_ETIMEDOUT, -1, "The call (%s) had not ended after %.3g s; it goes on.", rgc_kind_name(w->call.kind), (double)(now - began) / 1e9);
    if (deadline >= 0 && deadline - now < ns) ns = deadline - now;
    int r = rgc_futex_wait(&w->state, state, ns, false);
    if ((r == EINTR || r == ETIMEDOUT) && wait && wait->check && wait->check(wait->arg))
      return rgc_fail(err, RAYGO_EINTERRUPTED, -1, "The wait for a call (%s) was interrupted; the call goes on.", rgc_kind_name(w->call.kind));
  }
  if (source) *source = w->source;
  if (w->err.code && err) *err = w->err;
  return w->err.code;
}

/* ------------------------------------------------------------------------------------------------ turns */

static void run_work(rgc_group *g, rgc_work *w) {
  struct rgc_ctx x;
  rgc_error err = {.rank = -1};
  rgc_wait wait = {w->timeout_ns, NULL, NULL};
  rgc_ctx_init(&x, g, &w->call, &wait, &err);
  x.spins = false;                   /* the cores are for what runs meanwhile */
  if (!rgc_collective(&x)) err.code = 0;   /* a wait that failed just as what it waited for came leaves its words behind */
  rgc_work_end(w, &err);
}

static void *work_off(void *arg) {
  rgc_group *g = arg;
  rgc_come_home(g, RGC_ON_QUEUE);
  pthread_mutex_lock(&g->mu);
  for (;;) {
    while (g->busy || (!g->head && !g->closing)) pthread_cond_wait(&g->more, &g->mu);
    rgc_work *w = g->head;
    if (!w || g->closing) break;     /* what is queued then is ended by who closes */
    g->head = w->next;
    if (!g->head) g->tail = NULL;
    g->queued--;
    g->busy = true;
    atomic_store(&w->state, 1);
    pthread_cond_signal(&g->room);
    pthread_mutex_unlock(&g->mu);
    run_work(g, w);
    pthread_mutex_lock(&g->mu);
    g->busy = false;
    leave_locked(g);
  }
  pthread_mutex_unlock(&g->mu);
  rgc_leave_home(g, RGC_ON_QUEUE);
  return NULL;
}

static int start_thread(rgc_group *g, rgc_error *err) {   /* mu */
  if (g->thread) return 0;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);   /* signals are for the user's threads */
  int r = pthread_create(&g->worker, NULL, work_off, g);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  g->thread = !r;
  return r ? rgc_fail(err, RAYGO_ENOMEM, g->rank, "Group %s could not start its thread: there are too many threads (ulimit -u), or there is no memory.", g->name) : 0;
}

static int wait_for_room(rgc_group *g, const rgc_wait *wait, rgc_error *err) {   /* mu */
  if (rgc_at_home(g) != RGC_NOWHERE && !g->closing)   /* it cannot wait for what it has to make itself */
    return g->queued < 2 * QUEUE ? 0 : would_wait_for_itself(g, err, "A call that finds the queue full");
  while (g->queued >= QUEUE && !g->closing) {
    struct timespec t;
    int64_t until = rgc_now() + INT64_C(100000000);
    t = (struct timespec){until / 1000000000, until % 1000000000};
    if (pthread_cond_timedwait(&g->room, &g->mu, &t) && wait && wait->check) {
      pthread_mutex_unlock(&g->mu);
      int r = wait->check(wait->arg);
      pthread_mutex_lock(&g->mu);
      if (r) return rgc_fail(err, RAYGO_EINTERRUPTED, g->rank, "The wait for room in the queue of group %s was interrupted.", g->name);
    }
  }
  return g->closing ? gone(g, err) : 0;
}

/* Takes the work over, and one reference for the queue. */
static int enqueue(rgc_group *g, rgc_work *w, const rgc_wait *wait, rgc_error *err) {   /* mu */
  int r = wait_for_room(g, wait, err);
  if (r || (r = start_thread(g, err))) return r;
  rgc_work_ref(w);
  w->next = NULL;
  if (g->tail) g->tail->next = w;
  else g->head = w;
  g->tail = w;
  g->queued++;
  g->inside++;
  if (!g->busy) pthread_cond_signal(&g->more);
  return 0;
}

int rgc_start(rgc_group *g, const rgc_call *c, const rgc_wait *wait, void (*done)(void *, const rgc_error *), void *arg, rgc_work **out, rgc_error *err) {
  if (out) *out = NULL;
  if (is_forked(g)) return forked(g, err);
  int r = rgc_valid(g, c, err);
  if (r) return r;
  rgc_work *w = new_work(g, c, wait, done, arg);
  if (!w) return rgc_fail(err, RAYGO_ENOMEM, g->rank, "There was no memory to start a call.");
  if (c->kind >= RGC_SEND) {
    if (!(r = rgc_enter(g, err))) {
      r = rgc_message_start(g, w, err);
      rgc_leave(g);
    }
  } else {
    pthread_mutex_lock(&g->mu);
    r = enqueue(g, w, wait, err);
    pthread_mutex_unlock(&g->mu);
  }
  if (!r && out) *out = w;
  else rgc_work_free(w);
  return r;
}

static int queue_and_wait(rgc_group *g, const rgc_call *c, const rgc_wait *wait, rgc_error *err) {   /* mu, which it gives back */
  rgc_work *w = new_work(g, c, wait, NULL, NULL);
  int r = w ? enqueue(g, w, wait, err) : rgc_fail(err, RAYGO_ENOMEM, g->rank, "There was no memory to start a call.");
  pthread_mutex_unlock(&g->mu);
  rgc_wait until = {-1, wait ? wait->check : NULL, wait ? wait->arg : NULL};
  if (!r && (r = rgc_work_wait(w, &until, NULL, err)) == RAYGO_EINTERRUPTED && !rgc_work_done(w)) {
    /* The arrays are the caller's again when this returns, so the call has to end. */
    char text[300];
    snprintf(text, sizeof text, "Rank %d of group %s was interrupted in %s.", g->rank, g->name, rgc_kind_name(c->kind));
    rgc_break(g, RAYGO_EGROUP, g->rank, text);
    rgc_work_wait(w, NULL, NULL, NULL);
  }
  rgc_work_free(w);
  return r;
}

int rgc_run(rgc_group *g, const rgc_call *c, const rgc_wait *wait, int *source, rgc_error *err) {
  rgc_error own;
  struct rgc_ctx x;
  if (!err) err = &own;
  err->code = 0;
  if (source) *source = -1;
  if (is_forked(g)) return forked(g, err);
  int r = rgc_valid(g, c, err);
  if (r) return r;
  bool message = c->kind >= RGC_SEND;
  pthread_mutex_lock(&g->mu);
  if (g->closing) r = gone(g, err);
  else if (!message && rgc_at_home(g) == RGC_ON_QUEUE) r = would_wait_for_itself(g, err, rgc_kind_name(c->kind));
  else if (!message && (g->busy || g->head || g->nodes > 1)) return queue_and_wait(g, c, wait, err);
  if (r) {
    pthread_mutex_unlock(&g->mu);
    return r;
  }
  g->inside++;
  if (!message) g->busy = true;
  pthread_mutex_unlock(&g->mu);
  rgc_ctx_init(&x, g, c, wait, err);
  r = message ? rgc_message(&x, source) : rgc_collective(&x);
  pthread_mutex_lock(&g->mu);
  if (!message) {
    g->busy = false;
    if (g->head || g->closing) pthread_cond_signal(&g->more);
  }
  leave_locked(g);
  pthread_mutex_unlock(&g->mu);
  return r;
}

int rgc_work_cancel(rgc_work *w) {
  rgc_group *g = w->group;
  if (is_forked(g) || rgc_work_done(w)) return 0;
  if (w->call.kind >= RGC_SEND) return rgc_message_cancel(w);
  rgc_work *before = NULL, *at;
  pthread_mutex_lock(&g->mu);
  for (at = g->head; at && at != w; at = at->next) before = at;
  if (at) {
    if (before) before->next = w->next;
    else g->head = w->next;
    if (g->tail == w) g->tail = before;
    g->queued--;
  }
  pthread_mutex_unlock(&g->mu);
  if (!at) return 0;
  char text[300];
  rgc_error err;
  snprintf(text, sizeof text, "Rank %d of group %s cancelled %s, which the other ranks need it for.", g->rank, g->name, rgc_kind_name(w->call.kind));
  rgc_fail(&err, RAYGO_ECANCELED, g->rank, "%s", text);
  rgc_break(g, RAYGO_EGROUP, g->rank, text);
  rgc_leave(g);                        /* before `done`, which may close the group and would wait for this call */
  rgc_work_end(w, &err);
  return 1;
}

void rgc_queue_closing(rgc_group *g) {
  pthread_mutex_lock(&g->mu);
  g->closing = true;
  pthread_cond_broadcast(&g->more);
  pthread_cond_broadcast(&g->room);
  pthread_mutex_unlock(&g->mu);
}

/* The group is broken or left already, so that what runs ends by itself. */
void rgc_queue_close(rgc_group *g) {
  rgc_error err;
  gone(g, &err);
  rgc_queue_closing(g);
  pthread_mutex_lock(&g->mu);
  rgc_work *queued = g->head;
  g->head = g->tail = NULL;
  g->queued = 0;
  bool thread = g->thread && g->closer != RGC_ON_QUEUE;
  pthread_mutex_unlock(&g->mu);
  for (rgc_work *next; queued; queued = next) {
    next = queued->next;
    rgc_work_end(queued, &err);
    rgc_leave(g);
  }
  if (thread) pthread_join(g->worker, NULL);
  pthread_mutex_lock(&g->mu);
  while (g->inside) pthread_cond_wait(&g->out, &g->mu);
  pthread_mutex_unlock(&g->mu);
}
