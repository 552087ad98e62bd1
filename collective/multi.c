/* Collectives of groups that are on several nodes.
 *
 * What is reduced, or is the same for all, is joined on each node first, then exchanged by the leaders over the transport, then spread on each node.  What differs for each
 * pair of ranks goes from rank to rank as messages: through shared memory on a node, through the transport between nodes. */
#include "core.h"
#include <stdint.h>

#define GRACE INT64_C(3000000000)

static bool leader(const rgc_group *g) { return g->me == 0; }

/* The transport's errors break the group: the other ranks of this node wait for the leader. */
static int broke(struct rgc_ctx *x, int code) {
  if (code) {
    if (!x->err->code) rgc_fail(x->err, code, -1, "The transport between the nodes of group %s failed.", x->g->name);
    rgc_break(x->g, x->err->code, x->err->rank, x->err->message);
  }
  return code;
}

static int64_t left(struct rgc_ctx *x) {
  if (x->deadline < 0) return -1;
  int64_t n = x->deadline - rgc_now();
  return n > 1 ? n : 1;
}

static int no_memory(struct rgc_ctx *x) {
  rgc_fail(x->err, RAYGO_ENOMEM, x->g->rank, "Rank %d had no memory for %s between nodes.", x->g->rank, rgc_kind_name(x->call->kind));
  rgc_break(x->g, RAYGO_ENOMEM, x->g->rank, x->err->message);
  return RAYGO_ENOMEM;
}

static rgc_call part_of(struct rgc_ctx *x, uint32_t kind, int root, size_t count, const void *src, void *dst) {
  uint32_t op = x->call->op == RGC_AVG ? RGC_SUM : x->call->op;   /* divided once, in the end */
  return (rgc_call){.kind = kind, .dtype = x->call->dtype, .op = op, .root = root, .count = count, .src = src, .dst = dst};
}

static int barrier(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  uint8_t nothing = 0;
  int r = rgc_local(x, x->call);
  if (!r && leader(g)) r = broke(x, g->net.allreduce(g->net.ctx, &nothing, 1, RGC_UINT8, RGC_SUM, left(x), x->err));
  return r ? r : rgc_local(x, x->call);
}

/* To the leader, between leaders; whose result it is then is the caller's affair. */
static int reduce_nodes(struct rgc_ctx *x, void *result) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  rgc_call sub = part_of(x, RGC_REDUCE, 0, c->count, c->src, leader(g) ? result : NULL);
  int r = rgc_local(x, &sub);
  if (r || !leader(g)) return r;
  if ((r = broke(x, g->net.allreduce(g->net.ctx, result, c->count, (int)c->dtype, (int)sub.op, left(x), x->err)))) return r;
  if (c->op == RGC_AVG) rgc_divide(result, c->count, c->dtype, g->size);
  return 0;
}

static int allreduce(struct rgc_ctx *x) {
  const rgc_call *c = x->call;
  int r = reduce_nodes(x, c->dst);
  rgc_call sub = part_of(x, RGC_BROADCAST, 0, c->count, c->dst, c->dst);
  return r ? r : rgc_local(x, &sub);
}

static int reduce(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  bool root = c->root == g->rank, here = g->node_of[c->root] == g->node;
  void *own = leader(g) && !root ? malloc(c->count * rgc_dtype_size(c->dtype) + 1) : NULL;
  if (leader(g) && !root && !own) return no_memory(x);
  void *result = root ? c->dst : own;
  int r = reduce_nodes(x, result);
  if (!r && here && g->local_of[c->root] != 0) {
    rgc_call sub = part_of(x, RGC_BROADCAST, 0, c->count, result, root ? c->dst : NULL);
    r = rgc_local(x, &sub);
  }
  free(own);
  return r;
}

static int broadcast(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  int home = g->node_of[c->root], r = 0;
  void *buf = c->dst ? c->dst : (void *)(uintptr_t)c->src;
  if (c->root == g->rank) buf = (void *)(uintptr_t)c->src;
  if (home == g->node) {
    rgc_call sub = part_of(x, RGC_BROADCAST, g->local_of[c->root], c->count, c->src, c->dst);
    if ((r = rgc_local(x, &sub))) return r;
  }
  if (leader(g)) r = broke(x, g->net.broadcast(g->net.ctx, buf, c->count * rgc_dtype_size(c->dtype), home, left(x), x->err));
  if (r || home == g->node) return r;
  rgc_call sub = part_of(x, RGC_BROADCAST, 0, c->count, buf, buf);
  return rgc_local(x, &sub);
}

static rgc_block block_of(struct rgc_ctx *x, const rgc_block *given, const void *base, int rank) {
  if (given) return given[rank];
  size_t bytes = x->call->count * rgc_dtype_size(x->call->dtype);
  return (rgc_block){base ? (uint8_t *)(uintptr_t)base + (size_t)rank * bytes : NULL, x->call->count};
}

/* Node by node, and on each node by rank, one after the other: where each rank's block is in such a buffer.  at has size + 1 entries, nodes_at nodes + 1. */
static void lay_out(struct rgc_ctx *x, const rgc_block *given, size_t unit, size_t *at, size_t *nodes_at) {
  rgc_group *g = x->g;
  size_t n = 0;
  for (int node = 0; node < g->nodes; node++) {
    nodes_at[node] = n;
    for (int i = 0; i < g->size; i++) {
      if (g->node_of[i] != node) continue;
      at[i] = n;
      n += (given ? given[i].count : x->call->count) * unit;
    }
  }
  at[g->size] = nodes_at[g->nodes] = n;
}

/* What all ranks give, and where in it each rank's part is. */
struct layout {
  size_t *at, *nodes_at;           /* as lay_out has them, in bytes or in elements */
  uint8_t *all;                    /* leaders only */
  rgc_block local[RGC_MAX_LOCAL];  /* the parts of this node's ranks */
};

static int make_layout(struct rgc_ctx *x, struct layout *l, const rgc_block *given, bool elements) {
  rgc_group *g = x->g;
  size_t size = rgc_dtype_size(x->call->dtype), unit = elements ? size : 1;
  *l = (struct layout){.at = calloc((size_t)g->size + (size_t)g->nodes + 2, sizeof *l->at)};
  if (!l->at) return no_memory(x);
  l->nodes_at = l->at + g->size + 1;
  lay_out(x, given, size / unit, l->at, l->nodes_at);
  if (leader(g) && !(l->all = malloc(l->at[g->size] * unit + 1))) return no_memory(x);
  for (int i = 0; i < g->nlocal; i++)
    l->local[i] = (rgc_block){l->all ? l->all + l->at[g->rank_of[i]] * unit : NULL, block_of(x, given, NULL, g->rank_of[i]).count};
  return 0;
}

static void free_layout(struct layout *l) {
  free(l->all);
  free(l->at);
}

static int allgather(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  struct layout l;
  int r = make_layout(x, &l, c->dsts, false);
  if (!r) {
    rgc_call sub = part_of(x, RGC_GATHER, 0, c->count, c->src, NULL);
    sub.dsts = leader(g) ? l.local : NULL;
    r = rgc_local(x, &sub);
  }
  if (!r && leader(g)) r = broke(x, g->net.allgather(g->net.ctx, l.all, l.nodes_at, left(x), x->err));
  for (int i = 0; i < g->size && !r; i++) {
    rgc_block to = block_of(x, c->dsts, c->dst, i);
    rgc_call spread = part_of(x, RGC_BROADCAST, 0, to.count, l.all ? l.all + l.at[i] : NULL, to.data);
    r = rgc_local(x, &spread);
  }
  free_layout(&l);
  return r;
}

static int reduce_scatter(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  size_t size = rgc_dtype_size(c->dtype);
  struct layout l;
  rgc_call sub = {0};
  int r = make_layout(x, &l, c->srcs, true);
  for (int i = 0; i < g->size && !r; i++) {
    rgc_block from = block_of(x, c->srcs, c->src, i);
    sub = part_of(x, RGC_REDUCE, 0, from.count, from.data, l.all ? l.all + l.at[i] * size : NULL);
    r = rgc_local(x, &sub);
  }
  if (!r && leader(g)) {
    r = broke(x, g->net.reducescatter(g->net.ctx, l.all, l.nodes_at, (int)c->dtype, (int)sub.op, left(x), x->err));
    if (!r && c->op == RGC_AVG) rgc_divide(l.all + l.nodes_at[g->node] * size, l.nodes_at[g->node + 1] - l.nodes_at[g->node], c->dtype, g->size);
  }
  if (!r) {
    sub = part_of(x, RGC_SCATTER, 0, c->count, NULL, c->dst);
    sub.srcs = leader(g) ? l.local : NULL;
    r = rgc_local(x, &sub);
  }
  free_layout(&l);
  return r;
}

/* What a node has called, as its leader tells the others. */
struct word { uint32_t kind, dtype; int32_t root, rank; uint64_t count; };

static int compare_nodes(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  int r = 0;
  struct word *all = calloc((size_t)g->nodes, sizeof *all);
  size_t *at = calloc((size_t)g->nodes + 1, sizeof *at);
  if (!all || !at) {
    r = no_memory(x);
  } else {
    for (int i = 0; i <= g->nodes; i++) at[i] = (size_t)i * sizeof *all;
    all[g->node] = (struct word){c->kind, c->dtype, c->kind == RGC_ALLTOALL ? 0 : c->root, g->rank, c->count};
    r = broke(x, g->net.allgather(g->net.ctx, all, at, left(x), x->err));
  }
  for (int i = 0; i < g->nodes && !r; i++) {
    const struct word *a = &all[g->node], *b = &all[i];
    if (a->kind == b->kind && a->dtype == b->dtype && a->root == b->root) continue;
    char mine[160], theirs[160];
    rgc_describe(mine, sizeof mine, a->kind, a->dtype, 0, a->root, a->count);
    rgc_describe(theirs, sizeof theirs, b->kind, b->dtype, 0, b->root, b->count);
    r = broke(x, rgc_fail(x->err, RAYGO_EGROUP, b->rank,
                          "Ranks of group %s do not fit in call %llu: rank %d called %s, rank %d called %s. All ranks must make the same calls in the same order.", g->name,
                          (unsigned long long)x->seq, b->rank, theirs, a->rank, mine));
  }
  free(all);
  free(at);
  return r;
}

/* Messages alone would not show that ranks of two nodes called something else: each would wait for what the other never sends. */
static int agree(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  rgc_call meet = {.kind = RGC_BARRIER};
  int r = rgc_local(x, &meet);         /* which looks at what the ranks of this node have called */
  if (r) return r;
  if (leader(g) && (r = compare_nodes(x))) return r;
  return rgc_local(x, &meet);          /* nobody sends before the nodes have agreed: a rank that has failed takes no messages */
}

/* gather, scatter, alltoall */
static int messages(struct rgc_ctx *x) {
  rgc_group *g = x->g;
  const rgc_call *c = x->call;
  size_t size = rgc_dtype_size(c->dtype);
  int r = agree(x);
  if (r) return r;
  struct rgc_part *parts = malloc(2 * (size_t)g->size * sizeof *parts);
  if (!parts) return no_memory(x);
  rgc_post(x);                         /* or a rank whose messages went fast would be two calls ahead of another on its node */
  int n = 0;
  bool root = c->root == g->rank;
  for (int i = 0; i < g->size; i++) {
    bool out = c->kind == RGC_ALLTOALL || (c->kind == RGC_GATHER ? i == c->root : root), in = c->kind == RGC_ALLTOALL || (c->kind == RGC_GATHER ? root : i == c->root);
    rgc_block from = c->kind == RGC_GATHER ? (rgc_block){(void *)(uintptr_t)c->src, c->count} : root || c->kind == RGC_ALLTOALL ? block_of(x, c->srcs, c->src, i) : (rgc_block){0};
    rgc_block to = c->kind == RGC_SCATTER ? (rgc_block){c->dst, c->count} : root || c->kind == RGC_ALLTOALL ? block_of(x, c->dsts, c->dst, i) : (rgc_block){0};
    if (i == g->rank) {
      if (out && in && from.data != to.data) memmove(to.data, from.data, to.count * size);
      continue;
    }
    if (out) parts[n++] = (struct rgc_part){true, i, from.data, from.count * size};
    if (in) parts[n++] = (struct rgc_part){false, i, to.data, to.count * size};
  }
  r = rgc_exchange(x, parts, n);
  free(parts);
  return r;
}

int rgc_collective_nodes(struct rgc_ctx *x) {
  rgc_start_clock(x);
  /* The leaders give up first: they know which node is late, the others only that their leader is. */
  if (x->deadline >= 0 && !leader(x->g)) x->deadline += GRACE;
  switch (x->call->kind) {
  case RGC_BARRIER: return barrier(x);
  case RGC_ALLREDUCE: return allreduce(x);
  case RGC_REDUCE: return reduce(x);
  case RGC_BROADCAST: return broadcast(x);
  case RGC_ALLGATHER: return allgather(x);
  case RGC_REDUCESCATTER: return reduce_scatter(x);
  default: return messages(x);
  }
}
