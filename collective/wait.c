/* Steps, waiting for them, and what ends a wait early. */
#include "core.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLICE INT64_C(100000000)      /* a sleeper looks up that often: for signals and flags that came between its last look and its sleep */
#define LOG_AFTER INT64_C(10000000000)

_Atomic unsigned rgc_forks;

void rgc_futex_wake(_Atomic uint32_t *word, int n, bool shared) {
  syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

int rgc_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns, bool shared) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  return syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, ns < 0 ? NULL : &t, NULL, 0) ? errno : 0;
}

static inline bool reached(uint32_t word, uint32_t step) { return (int32_t)((word & ~1u) - (step << 1)) >= 0; }

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* ------------------------------------------------------------------------------------------------ why a group is broken */

void rgc_stir(rgc_group *g) {
  struct rgc_seg *s = g->seg;
  atomic_fetch_or(&s->phase, 1);
  rgc_futex_wake(&s->phase, INT_MAX, true);
  for (int i = 0; i < g->nlocal; i++) {
    atomic_fetch_or(&s->line[i].step, 1);
    rgc_futex_wake(&s->line[i].step, INT_MAX, true);
    atomic_fetch_or(&s->line[i].bell, 1);
    rgc_futex_wake(&s->line[i].bell, INT_MAX, true);
  }
}

static void abort_net(rgc_group *g, int code, int rank, const char *why) {
  if (g->has_net && !atomic_exchange(&g->net_aborted, 1)) g->net.abort(g->net.ctx, code, rank, why);
}

void rgc_break(rgc_group *g, int code, int rank, const char *why) {
  struct rgc_seg *s = g->seg;
  uint32_t none = 0;
  if (atomic_compare_exchange_strong(&s->why_state, &none, 1)) {
    s->why_code = code;
    s->why_rank = rank;
    snprintf(s->why, sizeof s->why, "%s", why);
    atomic_store(&s->why_state, 2);
    rgc_futex_wake(&s->why_state, INT_MAX, true);
    rgc_stir(g);
  }
  abort_net(g, code, rank, why);
}

int rgc_broke(rgc_group *g, rgc_error *err) {
  struct rgc_seg *s = g->seg;
  uint32_t state = atomic_load_explicit(&s->why_state, memory_order_acquire);
  if (!state) return 0;
  /* Who breaks it needs microseconds to say why, unless it is killed or has no core meanwhile. */
  for (int i = 0; state == 1 && i < 50; i++, state = atomic_load(&s->why_state)) rgc_futex_wait(&s->why_state, 1, SLICE / 10, true);
  if (state == 1) return rgc_fail(err, RAYGO_EGROUP, -1, "Group %s is broken, and the rank that knew why ended before it could say so. Make a new group.", g->name);
  abort_net(g, s->why_code, s->why_rank, s->why);
  return rgc_fail(err, s->why_code, s->why_rank, "%s", s->why);
}

int rgc_depart(rgc_group *g, int local, uint32_t state) {
  uint32_t was = RGC_PRESENT;
  if (!atomic_compare_exchange_strong(&g->seg->line[local].state, &was, state)) {
    was = RGC_ABSENT;
    if (!atomic_compare_exchange_strong(&g->seg->line[local].state, &was, state)) return 0;
  }
  rgc_stir(g);
  return 1;
}

static int break_with(struct rgc_ctx *x, int code, int rank, const char *text) {
  rgc_break(x->g, code, rank, text);
  return rgc_broke(x->g, x->err);   /* somebody else may have been first: all say the same */
}

static void what(struct rgc_ctx *x, char *to, size_t n) {
  char d[160];
  const rgc_call *c = x->call;
  if (!c) {
    snprintf(to, n, "meeting the other ranks");
    return;
  }
  rgc_describe(d, sizeof d, c->kind, c->dtype, c->op, c->root, c->count);
  if (x->p2p) snprintf(to, n, "%s", d);
  else snprintf(to, n, "%s (call %llu)", d, (unsigned long long)x->seq);
}

/* A rank that is gone concerns a collective only if it had not finished it. */
static int look_for_gone(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  for (int i = 0; i < g->nlocal; i++) {
    struct rgc_line *l = &g->seg->line[i];
    uint32_t state = atomic_load(&l->state);
    if (i == g->me || state < RGC_LEFT || (x->p2p && state != RGC_DEAD)) continue;
    if (!x->p2p && atomic_load(&l->done) >= x->seq) continue;
    char who[160], w[256], text[900];
    rgc_who(g, i, who, sizeof who);
    what(x, w, sizeof w);
    if (state == RGC_DEAD) snprintf(text, sizeof text, "%s of group %s died; rank %d found out in %s. Make a new group with the ranks that live.", who, g->name, g->rank, w);
    else snprintf(text, sizeof text, "%s left group %s, but rank %d still calls %s. All ranks must make the same calls before they close the group.", who, g->name, g->rank, w);
    return break_with(x, RAYGO_EGROUP, g->rank_of[i], text);
  }
  return 0;
}

int rgc_p2p_gone(struct rgc_ctx *x, int local) {
  if (atomic_load(&x->g->seg->line[local].state) != RGC_LEFT) return 0;
  char who[160], w[256];
  rgc_who(x->g, local, who, sizeof who);
  what(x, w, sizeof w);
  return rgc_fail(x->err, RAYGO_EGROUP, x->g->rank_of[local], "%s left group %s, so that %s by rank %d cannot be done.", who, x->g->name, w, x->g->rank);
}

int rgc_usable(struct rgc_ctx *x) {
  if (!(atomic_load_explicit(&x->g->seg->phase, memory_order_acquire) & 1)) return 0;
  int r = rgc_broke(x->g, x->err);
  return r ? r : look_for_gone(x);
}

/* ------------------------------------------------------------------------------------------------ who is missing */

static void name_missing(struct rgc_ctx *x, uint32_t step, char *to, size_t n) {
  rgc_group *g = x->g;
  size_t at = 0;
  int missing = 0, named = 0;
  *to = 0;
  for (int i = 0; i < g->nlocal; i++) {
    struct rgc_line *l = &g->seg->line[i];
    uint32_t state = atomic_load(&l->state);
    if (state == RGC_PRESENT && reached(atomic_load(&l->step), step)) continue;
    if (++missing > 6 || at + 260 > n) continue;   /* what is said of one, and the end of the sentence, always fit */
    named++;
    char who[160];
    if (state == RGC_ABSENT) snprintf(who, sizeof who, "rank %d", g->rank_of[i]);
    else rgc_who(g, i, who, sizeof who);
    at += (size_t)snprintf(to + at, n - at, "%s%s", at ? "; " : "", who);
    char run = l->pid ? rgc_process_state(l->pid) : 0;
    uint64_t begun = atomic_load(&l->begun), done = atomic_load(&l->done);
    if (run == 'T' || run == 't') at += (size_t)snprintf(to + at, n - at, ", stopped by a signal");
    if (!x->call) continue;
    if (begun > done) at += (size_t)snprintf(to + at, n - at, ", inside call %llu", (unsigned long long)begun);
    else at += (size_t)snprintf(to + at, n - at, ", outside of any call after %llu", (unsigned long long)done);
  }
  if (missing > named) snprintf(to + at, n - at, "; and %d more", missing - named);
}

static void name_waited_for(struct rgc_ctx *x, uint32_t step, char *to, size_t n) {
  if (!x->p2p) {
    name_missing(x, step, to, n);
    return;
  }
  int peer = x->call->root, local = peer >= 0 ? x->g->local_of[peer] : -1;
  if (local >= 0) rgc_who(x->g, local, to, n);
  else if (peer >= 0) snprintf(to, n, "rank %d", peer);
  else snprintf(to, n, "a rank that sends");
  char run = local >= 0 ? rgc_process_state(x->g->seg->line[local].pid) : 0;
  if (run == 'T' || run == 't') strncat(to, ", stopped by a signal", n - strlen(to) - 1);
}

int rgc_timed_out(struct rgc_ctx *x, uint32_t step) {
  char w[256], missing[600], text[1000];
  what(x, w, sizeof w);
  name_waited_for(x, step, missing, sizeof missing);
  double s = (double)(rgc_now() - x->began) / 1e9;
  snprintf(text, sizeof text, "Rank %d of group %s gave up %s after %.3g s: missing are %s.", x->g->rank, x->g->name, w, s, *missing ? missing : "none any more");
  if (x->p2p) return rgc_fail(x->err, RAYGO_ETIMEDOUT, x->call->root, "%s", text);
  return break_with(x, RAYGO_ETIMEDOUT, -1, text);
}

static int interrupted(struct rgc_ctx *x) {
  char w[256], text[600];
  what(x, w, sizeof w);
  snprintf(text, sizeof text, "Rank %d (pid %d on node %s) of group %s was interrupted in %s.", x->g->rank, (int)getpid(), x->g->node_name, x->g->name, w);
  if (!x->p2p) rgc_break(x->g, RAYGO_EGROUP, x->g->rank, text);
  return rgc_fail(x->err, RAYGO_EINTERRUPTED, x->g->rank, "%s", text);
}

/* ------------------------------------------------------------------------------------------------ waiting */

void rgc_ctx_init(struct rgc_ctx *x, rgc_group *g, const rgc_call *call, const rgc_wait *wait, rgc_error *err) {
  int64_t timeout = wait && wait->timeout_ns ? wait->timeout_ns : g->timeout_ns;
  *x = (struct rgc_ctx){.g = g, .call = call, .deadline = timeout, .check = wait ? wait->check : NULL, .arg = wait ? wait->arg : NULL, .spins = true, .err = err};
}

/* The clock is first read when a wait takes long: a small call should not pay for it. */
void rgc_start_clock(struct rgc_ctx *x) {
  if (x->began) return;
  x->began = rgc_now();
  x->log_at = x->began + LOG_AFTER;
  if (x->deadline >= 0) x->deadline = x->deadline < INT64_MAX - x->began ? x->began + x->deadline : -1;
}

void rgc_log_wait(struct rgc_ctx *x, uint32_t step) {
  char w[256], missing[600];
  what(x, w, sizeof w);
  name_waited_for(x, step, missing, sizeof missing);
  rgc_log(x->g, "rank %d of group %s has been in %s for %.0f s; it waits for %s", x->g->rank, x->g->name, w, (double)(rgc_now() - x->began) / 1e9, missing);
  x->log_at = INT64_MAX;
}

int rgc_sleep(struct rgc_ctx *x, _Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleepers, uint32_t step) {
  rgc_group *g = x->g;
  int r;
  rgc_start_clock(x);
  if (seen & 1) {
    if ((r = rgc_broke(g, x->err)) || (r = look_for_gone(x))) return r;
  }
  int64_t now = rgc_now(), ns = SLICE;
  if (x->deadline >= 0) {
    if (now >= x->deadline) return rgc_timed_out(x, step);
    if (x->deadline - now < ns) ns = x->deadline - now;
  }
  atomic_fetch_add(sleepers, 1);
  r = rgc_futex_wait(word, seen, ns, true);
  atomic_fetch_sub(sleepers, 1);
  if (r != EINTR && r != ETIMEDOUT) return 0;
  if (x->check && x->check(x->arg)) return interrupted(x);
  if (r == ETIMEDOUT && !rgc_all_watched()) rgc_look_at_pids(g);
  if (rgc_now() >= x->log_at) rgc_log_wait(x, step);
  return 0;
}

/* How long it spins follows what spinning has brought: training ranks are out of step for milliseconds, small calls in a row for less than one. */
static int await(struct rgc_ctx *x, _Atomic uint32_t *word, _Atomic uint32_t *sleepers, uint32_t step) {
  rgc_group *g = x->g;
  uint32_t v = atomic_load_explicit(word, memory_order_acquire);
  if (reached(v, step)) return 0;
  if (g->crowded) {
    for (int i = 0; i < 8; i++) {
      sched_yield();
      if (reached(v = atomic_load_explicit(word, memory_order_acquire), step)) return 0;
    }
  } else if (x->spins) {
    int64_t until = 0;
    for (int i = 1;; i++) {
      relax();
      if (reached(v = atomic_load_explicit(word, memory_order_acquire), step)) {
        if (g->spin_ns < g->spin_max) g->spin_ns += g->spin_ns / 4 + 1;
        return 0;
      }
      if (i & 31) continue;
      int64_t now = rgc_now();
      if (!until) until = now + g->spin_ns;
      if (now >= until || v & 1) break;
    }
    if (g->spin_ns > 2000) g->spin_ns -= g->spin_ns / 8;
  }
  while (!reached(v = atomic_load_explicit(word, memory_order_acquire), step)) {
    int r = rgc_sleep(x, word, v, sleepers, step);
    if (r && !reached(atomic_load(word), step)) return r;
    if (r == RAYGO_EINTERRUPTED) return r;   /* an exception is set, which must not be lost */
  }
  return 0;
}

int rgc_await_all(struct rgc_ctx *x, uint32_t step) {
  rgc_group *g = x->g;
  if ((int32_t)((g->seen << 1) - (step << 1)) >= 0) return 0;
  int r = await(x, &g->seg->phase, &g->seg->phase_sleepers, step);
  if (!r) g->seen = step;
  return r;
}

int rgc_await_rank(struct rgc_ctx *x, int local, uint32_t step) {
  return await(x, &x->g->seg->line[local].step, &x->g->seg->line[local].sleepers, step);
}

void rgc_post(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  struct rgc_seg *s = g->seg;
  uint32_t step = ++g->step;
  atomic_fetch_add(&g->mine->step, 2);
  if (atomic_load(&g->mine->sleepers)) rgc_futex_wake(&g->mine->step, INT_MAX, true);
  uint64_t n = atomic_fetch_add(&s->arrived[step & 3].n, 1) + 1;
  if (n % (uint64_t)g->nlocal) return;
  /* The last one.  Whoever completed a later step may have been quicker with its mark. */
  uint32_t v = atomic_load(&s->phase);
  while (!reached(v, step) && !atomic_compare_exchange_weak(&s->phase, &v, (step << 1) | (v & 1))) {}
  if (atomic_load(&s->phase_sleepers)) rgc_futex_wake(&s->phase, INT_MAX, true);
}

void rgc_ring_bell(rgc_group *g, int local) {
  struct rgc_line *l = &g->seg->line[local];
  atomic_fetch_add(&l->bell, 2);
  if (atomic_load(&l->bell_sleepers)) rgc_futex_wake(&l->bell, INT_MAX, true);
}
