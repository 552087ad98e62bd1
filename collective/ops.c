/* The collectives of one node.  core.h has the invariants that make their order of steps right.
 *
 * Where an array lies in its rank's arena, the others read it there; otherwise its rank copies it to its slot first, chunk by chunk, so that what is
 * exchanged stays in the caches.  Reductions are shared out: each rank reduces its part of a chunk and leaves it in the common result. */
#include "core.h"
#include <stdio.h>

#define SMALL (32u << 10)           /* up to here everybody reduces everything: one step in place of two */
#define DIRECT (16u << 10)          /* what a direct reduction has in the caches at once */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t chunks_of(size_t n, size_t chunk) { return n ? (n + chunk - 1) / chunk : 1; }

/* Where rank i's part of n begins, at a multiple of `unit`. */
static size_t part(size_t n, int i, int ranks, size_t unit) {
  if (i >= ranks) return n;
  return n * (size_t)i / (size_t)ranks / unit * unit;
}

/* ------------------------------------------------------------------------------------------------ what the others have called */

static struct rgc_desc *desc_of(struct rgc_ctx *x, int local) { return &x->g->seg->line[local].desc[x->seq & 1]; }

static uint64_t sum_of(const rgc_block *b, int n) {
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < n; i++) h = (h ^ b[i].count) * 1099511628211u;
  return h;
}

static bool fits(const struct rgc_desc *a, const struct rgc_desc *b) {
  if (a->kind != b->kind || a->dtype != b->dtype || a->sum != b->sum || a->root != b->root || a->op != b->op) return false;
  switch (a->kind) {
  case RGC_ALLREDUCE: case RGC_REDUCE: case RGC_BROADCAST: return a->count == b->count;
  default: return true;
  }
}

static int misfit(struct rgc_ctx *x, int local, const char *more) {
  rgc_group *g = x->g;
  char mine[160], theirs[160], text[700];
  struct rgc_desc *m = desc_of(x, g->me), *t = desc_of(x, local);
  rgc_describe(mine, sizeof mine, m->kind, m->dtype, m->op, m->root, m->count);
  rgc_describe(theirs, sizeof theirs, t->kind, t->dtype, t->op, t->root, t->count);
  snprintf(text, sizeof text, "Ranks of group %s do not fit in call %llu: rank %d called %s, rank %d called %s%s. All ranks must make the same calls in the same order.", g->name,
           (unsigned long long)x->seq, g->rank_of[local], theirs, g->rank, mine, more);
  rgc_break(g, RAYGO_EGROUP, g->rank_of[local], text);
  return rgc_broke(g, x->err);
}

static int check_one(struct rgc_ctx *x, int local) { return fits(desc_of(x, x->g->me), desc_of(x, local)) ? 0 : misfit(x, local, ""); }

static int check_all(struct rgc_ctx *x) {
  for (int i = 0; i < x->g->nlocal; i++)
    if (i != x->g->me && !fits(desc_of(x, x->g->me), desc_of(x, i))) return misfit(x, i, "");
  return 0;
}

/* Posts a step, awaits it of all, and looks at what they have called. */
static int meet(struct rgc_ctx *x) {
  rgc_post(x);
  int r = rgc_await_all(x, x->g->step);
  return r ? r : check_all(x);
}

static int together(struct rgc_ctx *x) {
  rgc_post(x);
  return rgc_await_all(x, x->g->step);
}

static const rgc_block *blocks(struct rgc_ctx *x, const rgc_block *given, const void *base, bool dst) {
  rgc_group *g = x->g;
  if (given) return given;
  rgc_block *b = g->scratch + (dst ? g->size : 0);
  size_t bytes = x->call->count * rgc_dtype_size(x->call->dtype);
  for (int i = 0; i < g->size; i++) b[i] = (rgc_block){base ? (uint8_t *)base + (size_t)i * bytes : NULL, x->call->count};
  return b;
}

static size_t most(const rgc_block *b, int n) {
  size_t m = 0;
  for (int i = 0; i < n; i++)
    if (b[i].count > m) m = b[i].count;
  return m;
}

/* ------------------------------------------------------------------------------------------------ reductions to all, or to one */

struct reduction {
  struct rgc_ctx *x;
  rgc_kernel kernel;
  size_t size, count;               /* of an element; elements */
  int divide;
  int root;                         /* local index; -1: all get the result */
  bool direct;                      /* the own source is read in the arena */
};

static size_t own_from(const struct reduction *a, int i, size_t n) { return part(n, i, a->x->g->nlocal, 64); }

static void stage(const struct reduction *a, uint32_t k, size_t at, size_t n) {
  rgc_group *g = a->x->g;
  if (a->direct) return;
  /* The own part is read where it is. */
  const uint8_t *src = (const uint8_t *)a->x->call->src + at * a->size;
  size_t lo = own_from(a, g->me, n) * a->size, hi = own_from(a, g->me + 1, n) * a->size;
  uint8_t *to = rgc_slot(g, g->me, k);
  rgc_copy(to, src, lo);
  rgc_copy(to + hi, src + hi, n * a->size - hi);
}

static const uint8_t *source(const struct reduction *a, int i, uint32_t k, size_t at, size_t n) {
  rgc_group *g = a->x->g;
  if (i == g->me) return (const uint8_t *)a->x->call->src + at * a->size;
  uint64_t src = desc_of(a->x, i)->src_at;
  return src ? rgc_peer(g, i, src + at * a->size, n * a->size) : rgc_slot(g, i, k);
}

static int reduce_chunks(const struct reduction *a) {
  struct rgc_ctx *x = a->x;
  rgc_group *g = x->g;
  size_t chunk = g->seg->slot_bytes / a->size, count = a->count;
  bool wanted = a->root < 0 || a->root == g->me;
  uint32_t awaited = g->step;       /* the step that says that the slots of the chunk are filled */
  int r;
  for (size_t at = 0; at < count; at += chunk) {
    size_t n = least(chunk, count - at), next = at + n;
    uint32_t k = ++g->chunk;
    if ((r = rgc_await_all(x, awaited))) return r;
    if (next < count) {
      stage(a, k + 1, next, least(chunk, count - next));
      rgc_post(x);
      awaited = g->step;
    }
    size_t lo = own_from(a, g->me, n), hi = own_from(a, g->me + 1, n);
    const void *src[RGC_MAX_LOCAL];
    for (int i = 0; i < g->nlocal; i++) src[i] = source(a, i, k, at, n) + lo * a->size;
    uint8_t *result = rgc_result(g, k), *dst = wanted ? (uint8_t *)x->call->dst + at * a->size : NULL;
    a->kernel(result + lo * a->size, src, g->nlocal, hi - lo, a->divide);
    rgc_post(x);
    if (wanted) rgc_copy(dst + lo * a->size, result + lo * a->size, (hi - lo) * a->size);
    if ((r = rgc_await_all(x, g->step))) return r;
    if (!wanted) continue;
    rgc_copy(dst, result, lo * a->size);
    rgc_copy(dst + hi * a->size, result + hi * a->size, (n - hi) * a->size);
  }
  return 0;
}

/* All arrays lie in arenas: each rank reduces its part of the whole and writes it to everybody's result. */
static int reduce_direct(const struct reduction *a) {
  struct rgc_ctx *x = a->x;
  rgc_group *g = x->g;
  size_t lo = own_from(a, g->me, a->count), hi = own_from(a, g->me + 1, a->count), step = DIRECT / a->size;
  uint8_t *src[RGC_MAX_LOCAL], *dst[RGC_MAX_LOCAL];
  for (int i = 0; i < g->nlocal; i++) {
    struct rgc_desc *d = desc_of(x, i);
    src[i] = rgc_peer(g, i, d->src_at + lo * a->size, (hi - lo) * a->size);
    dst[i] = d->dst_at ? rgc_peer(g, i, d->dst_at + lo * a->size, (hi - lo) * a->size) : NULL;
  }
  int first = a->root < 0 ? g->me : a->root;
  for (size_t at = lo; at < hi; at += step) {
    size_t n = least(step, hi - at), off = (at - lo) * a->size;
    const void *from[RGC_MAX_LOCAL];
    /* Others' arrays are written to, which are their own again once they have failed. */
    int r = rgc_usable(x);
    if (r) return r;
    for (int i = 0; i < g->nlocal; i++) from[i] = src[i] + off;
    a->kernel(dst[first] + off, from, g->nlocal, n, a->divide);
    for (int i = 0; i < g->nlocal; i++)
      if (i != first && dst[i]) rgc_copy(dst[i] + off, dst[first] + off, n * a->size);
  }
  g->chunk++;
  return together(x);
}

static int reduce_to(struct rgc_ctx *x, int root) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  struct reduction a = {x, rgc_reducer(c->dtype, c->op), rgc_dtype_size(c->dtype), c->count, c->op == RGC_AVG ? g->size : 0, root, false};
  size_t bytes = c->count * a.size;
  bool wanted = root < 0 || root == g->me;
  int r;
  if (bytes <= SMALL) {
    uint32_t k = ++g->chunk;
    rgc_copy(rgc_slot(g, g->me, k), c->src, bytes);
    if ((r = meet(x)) || !wanted) return r;
    const void *src[RGC_MAX_LOCAL];
    for (int i = 0; i < g->nlocal; i++) src[i] = rgc_slot(g, i, k);
    a.kernel(c->dst, src, g->nlocal, c->count, a.divide);
    return 0;
  }
  struct rgc_desc *d = desc_of(x, g->me);
  d->src_at = rgc_arena_at(g, c->src, bytes);
  d->dst_at = wanted ? rgc_arena_at(g, c->dst, bytes) : 0;
  a.direct = d->src_at != 0;
  stage(&a, g->chunk + 1, 0, least(g->seg->slot_bytes / a.size, c->count));
  if ((r = meet(x))) return r;
  bool direct = true;
  for (int i = 0; i < g->nlocal; i++) direct = direct && desc_of(x, i)->src_at && (desc_of(x, i)->dst_at || (root >= 0 && i != root));
  return direct ? reduce_direct(&a) : reduce_chunks(&a);
}

static int reduce_scatter(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  int n = g->nlocal;
  size_t size = rgc_dtype_size(c->dtype), room = g->seg->slot_bytes / (size_t)n / 64 * 64;
  const rgc_block *src = blocks(x, c->srcs, c->src, false);
  rgc_kernel kernel = rgc_reducer(c->dtype, c->op);
  size_t per = room / size, chunks = chunks_of(most(src, n), per);
  desc_of(x, g->me)->sum = sum_of(src, n);
  for (size_t i = 0; i < chunks; i++) {
    uint32_t k = ++g->chunk;
    size_t at = i * per;
    for (int j = 0; j < n; j++)
      if (j != g->me && at < src[j].count) rgc_copy(rgc_slot(g, g->me, k) + (size_t)j * room, (uint8_t *)src[j].data + at * size, least(per, src[j].count - at) * size);
    int r = i ? together(x) : meet(x);
    if (r) return r;
    if (at >= c->count) continue;
    const void *from[RGC_MAX_LOCAL];
    for (int j = 0; j < n; j++) from[j] = j == g->me ? (uint8_t *)src[j].data + at * size : rgc_slot(g, j, k) + (size_t)g->me * room;
    kernel((uint8_t *)c->dst + at * size, from, n, least(per, c->count - at), c->op == RGC_AVG ? g->size : 0);
  }
  return 0;
}

/* ------------------------------------------------------------------------------------------------ moving arrays */

static int broadcast(struct rgc_ctx *x, int root) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  size_t bytes = c->count * rgc_dtype_size(c->dtype), room = g->seg->slot_bytes, chunks = chunks_of(bytes, room);
  g->unchecked = true;
  for (size_t i = 0; i < chunks; i++) {
    uint32_t k = ++g->chunk;
    size_t at = i * room, n = least(room, bytes - at);
    if (g->me == root) {
      /* Invariant 2 for what comes after: at most one chunk ahead. */
      int r = rgc_await_all(x, g->step);
      if (r) return r;
      rgc_copy(rgc_slot(g, root, k), (const uint8_t *)c->src + at, n);
      rgc_post(x);
      if (c->dst) rgc_copy((uint8_t *)c->dst + at, (const uint8_t *)c->src + at, n);
      continue;
    }
    rgc_post(x);
    int r = rgc_await_rank(x, root, g->step);
    if (r || (!i && (r = check_one(x, root)))) return r;
    if (c->dst) rgc_copy((uint8_t *)c->dst + at, rgc_slot(g, root, k), n);
  }
  return 0;
}

static int allgather(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  int n = g->nlocal;
  const rgc_block *dst = blocks(x, c->dsts, c->dst, true);
  size_t size = rgc_dtype_size(c->dtype), bytes = c->count * size, room = g->seg->slot_bytes, all = most(dst, n) * size, chunks = chunks_of(all, room);
  desc_of(x, g->me)->sum = sum_of(dst, n);
  for (size_t i = 0; i < chunks; i++) {
    uint32_t k = ++g->chunk;
    size_t at = i * room;
    if (at < bytes) rgc_copy(rgc_slot(g, g->me, k), (const uint8_t *)c->src + at, least(room, bytes - at));
    int r = i ? together(x) : meet(x);
    if (r) return r;
    for (int j = 0; j < n; j++) {
      int from = (g->me + j) % n;   /* not all from the same */
      size_t have = dst[from].count * size;
      if (at >= have) continue;
      const uint8_t *s = from == g->me ? (const uint8_t *)c->src + at : rgc_slot(g, from, k);
      rgc_copy((uint8_t *)dst[from].data + at, s, least(room, have - at));
    }
  }
  return 0;
}

static int gather(struct rgc_ctx *x, int root) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  size_t size = rgc_dtype_size(c->dtype), bytes = c->count * size, room = g->seg->slot_bytes, all = 0;
  const rgc_block *dst = g->me == root ? blocks(x, c->dsts, c->dst, true) : NULL;
  for (size_t i = 0, chunks = 1; i < chunks; i++) {
    uint32_t k = ++g->chunk;
    size_t at = i * room;
    int r = rgc_await_all(x, g->step);
    if (r) return r;
    if (g->me != root && at < bytes) rgc_copy(rgc_slot(g, g->me, k), (const uint8_t *)c->src + at, least(room, bytes - at));
    if ((r = i ? together(x) : meet(x))) return r;
    for (int j = 0; !i && j < g->nlocal; j++) {
      size_t count = desc_of(x, j)->count;
      if (dst && dst[j].count != count) return misfit(x, j, ", whose blocks have other sizes");
      if (count * size > all) all = count * size;
    }
    chunks = chunks_of(all, room);
    for (int j = 0; dst && j < g->nlocal; j++) {
      size_t have = dst[j].count * size;
      if (at < have) rgc_copy((uint8_t *)dst[j].data + at, j == root ? (const uint8_t *)c->src + at : rgc_slot(g, j, k), least(room, have - at));
    }
  }
  return 0;
}

static int scatter(struct rgc_ctx *x, int root) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  size_t size = rgc_dtype_size(c->dtype), bytes = c->count * size, room = g->seg->slot_bytes, all = 0;
  const rgc_block *src = g->me == root ? blocks(x, c->srcs, c->src, false) : NULL;
  int r = meet(x);                   /* how much each one wants */
  if (r) return r;
  for (int j = 0; j < g->nlocal; j++) {
    size_t count = desc_of(x, j)->count;
    if (src && src[j].count != count) return misfit(x, j, ", whose blocks have other sizes");
    if (count * size > all) all = count * size;
  }
  for (size_t i = 0, chunks = chunks_of(all, room); i < chunks; i++) {
    uint32_t k = ++g->chunk;
    size_t at = i * room;
    if (src) {
      if ((r = rgc_await_all(x, g->step))) return r;
      for (int j = 0; j < g->nlocal; j++)
        if (j != root && at < src[j].count * size) rgc_copy(rgc_slot(g, j, k), (uint8_t *)src[j].data + at, least(room, src[j].count * size - at));
      rgc_post(x);
      if (at < bytes) rgc_copy((uint8_t *)c->dst + at, (uint8_t *)src[root].data + at, least(room, bytes - at));
      continue;
    }
    rgc_post(x);
    if ((r = rgc_await_rank(x, root, g->step))) return r;
    if (at < bytes) rgc_copy((uint8_t *)c->dst + at, rgc_slot(g, g->me, k), least(room, bytes - at));
  }
  return 0;
}

static int all_to_all(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  int n = g->nlocal, r;
  const rgc_block *src = blocks(x, c->srcs, c->src, false), *dst = blocks(x, c->dsts, c->dst, true);
  size_t size = rgc_dtype_size(c->dtype), room = g->seg->slot_bytes / (size_t)n / 64 * 64;
  /* First everybody says how much it sends to whom: how many chunks there are depends on all of it. */
  uint32_t k = ++g->chunk;
  uint64_t *row = (uint64_t *)rgc_slot(g, g->me, k), all = 0;
  for (int j = 0; j < n; j++) row[j] = src[j].count;
  if ((r = meet(x))) return r;
  for (int i = 0; i < n; i++) {
    const uint64_t *counts = (const uint64_t *)rgc_slot(g, i, k);
    if (counts[g->me] != dst[i].count) return misfit(x, i, ", which expects another count from it than it sends");
    for (int j = 0; j < n; j++)
      if (counts[j] * size > all) all = counts[j] * size;
  }
  for (size_t i = 0, chunks = chunks_of(all, room); i < chunks; i++) {
    k = ++g->chunk;
    size_t at = i * room;
    for (int j = 0; j < n; j++)
      if (j != g->me && at < src[j].count * size) rgc_copy(rgc_slot(g, g->me, k) + (size_t)j * room, (uint8_t *)src[j].data + at, least(room, src[j].count * size - at));
    if ((r = together(x))) return r;
    for (int d = 0; d < n; d++) {
      int j = (g->me + d) % n;
      size_t have = dst[j].count * size;
      if (at >= have) continue;
      const uint8_t *s = j == g->me ? (const uint8_t *)src[j].data + at : rgc_slot(g, j, k) + (size_t)g->me * room;
      rgc_copy((uint8_t *)dst[j].data + at, s, least(room, have - at));
    }
  }
  return 0;
}

/* ------------------------------------------------------------------------------------------------ all of them */

/* A node with one rank: there is nothing to exchange. */
static int alone(struct rgc_ctx *x) {
  const rgc_call *c = x->call;
  size_t bytes = c->count * rgc_dtype_size(c->dtype);
  const rgc_block *src = c->srcs, *dst = c->dsts;
  if (c->kind != RGC_BARRIER && (dst ? dst->data : c->dst)) memmove(dst ? dst->data : c->dst, src ? src->data : c->src, src && c->kind == RGC_ALLTOALL ? src->count * rgc_dtype_size(c->dtype) : bytes);
  return 0;
}

int rgc_local(struct rgc_ctx *x, const rgc_call *c) {
  struct rgc_ctx sub = *x;
  sub.call = c;
  if (x->g->nlocal == 1) return alone(&sub);
  switch (c->kind) {
  case RGC_BARRIER: return meet(&sub);
  case RGC_ALLREDUCE: return reduce_to(&sub, -1);
  case RGC_REDUCE: return reduce_to(&sub, c->root);
  case RGC_BROADCAST: return broadcast(&sub, c->root);
  case RGC_ALLGATHER: return allgather(&sub);
  case RGC_REDUCESCATTER: return reduce_scatter(&sub);
  case RGC_GATHER: return gather(&sub, c->root);
  case RGC_SCATTER: return scatter(&sub, c->root);
  case RGC_ALLTOALL: return all_to_all(&sub);
  default: return rgc_fail(x->err, RAYGO_EINVAL, x->g->rank, "There is no collective of kind %u.", c->kind);
  }
}

static void describe_call(struct rgc_ctx *x) {
  const rgc_call *c = x->call;
  bool reduces = c->kind == RGC_ALLREDUCE || c->kind == RGC_REDUCE || c->kind == RGC_REDUCESCATTER;
  bool rooted = c->kind == RGC_REDUCE || c->kind == RGC_BROADCAST || c->kind == RGC_GATHER || c->kind == RGC_SCATTER;
  bool plain = c->kind == RGC_BARRIER;
  *desc_of(x, x->g->me) = (struct rgc_desc){.kind = c->kind, .dtype = plain ? 0 : c->dtype, .op = reduces ? c->op : 0, .root = rooted ? c->root : 0, .count = plain ? 0 : c->count};
}

/* A broadcast's root waits for nobody, so what the others called then is seen only now. */
static int check_last(struct rgc_ctx *x) {
  x->g->unchecked = false;
  x->seq--;
  int r = check_all(x);
  x->seq++;
  return r;
}

static int run_call(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  x->seq = ++g->seq;
  atomic_store_explicit(&g->mine->begun, x->seq, memory_order_relaxed);
  int r = rgc_usable(x);
  if (!r) r = rgc_await_all(x, g->step);
  if (!r && g->unchecked) r = check_last(x);
  if (r) return r;
  describe_call(x);
  r = g->nodes > 1 ? rgc_collective_nodes(x) : rgc_local(x, x->call);   /* on one node, ranks are numbered as their lines are */
  if (!r) atomic_store_explicit(&g->mine->done, x->seq, memory_order_release);
  return r;
}

int rgc_collective(struct rgc_ctx *x) {
  atomic_store_explicit(&x->g->calling, true, memory_order_relaxed);
  int r = run_call(x);
  atomic_store_explicit(&x->g->calling, false, memory_order_release);
  return r;
}
