/* Chunks: pieces of the arena that the engine has lent, from which this process cuts objects without asking.  PROTOCOL.md has the rules.
 *
 * All of it is guarded by rmu, the innermost lock, since frames are built with wmu held and read with mu held. */
#include "client_int.h"
#include <sys/mman.h>

#define CUT_PAGE 4096u
#define CUT_MAX ((1u << 20) + (64u << 10))   /* larger objects ask: their copy takes longer than the answer */
#define CHUNK_FIRST (2u << 20)
#define CHUNK_MOST (4u << 20)
#define OFTEN 100000000                      /* ns: who asks again sooner gets more */

struct rg_cut {                              /* an object that is being written */
  struct rg_cut *next;
  struct rg_oid oid;
  struct rg_range at;
};

static uint64_t whole_pages(uint64_t n) { return (n + CUT_PAGE - 1) & ~(uint64_t)(CUT_PAGE - 1); }

static void give_back(rg_client *c, struct rg_range r, bool flush) {   /* without locks */
  if (!r.size) return;
  uint8_t *p = rg_frame_begin(c, RG_CHUNK_BACK, 0, 0, sizeof r);
  if (!p) return;
  memcpy(p, &r, sizeof r);
  rg_out_end(c, sizeof(struct rg_hdr) + sizeof r, flush);
}

static struct rg_range take_rest(struct rg_range *r) {
  struct rg_range rest = *r;
  *r = (struct rg_range){0, 0};
  return rest;
}

/* rmu.  Makes c->chunk one with n bytes if there is one; *old: what is left of the one that was too small. */
static bool fits(rg_client *c, uint64_t n, struct rg_range *old) {
  if (c->chunk.size >= n) return true;
  if (c->spare.size < n) return false;
  *old = c->chunk;
  c->chunk = take_rest(&c->spare);
  c->chunk_touched = c->chunk.offset;
  return true;
}

/* rmu.  How much to ask for now; 0: enough is there or on its way. */
static uint64_t wanted(rg_client *c) {
  if (c->chunk_asked || c->spare.size || c->chunk.size > c->chunk_size / 2) return 0;
  int64_t now = rg_now();
  if (now < c->chunk_not_before) return 0;
  bool often = c->chunk_when && now - c->chunk_when < OFTEN;
  c->chunk_when = now;
  if (!often) {   /* one object is no reason */
    c->chunk_size = CHUNK_FIRST / 2;
    return 0;
  }
  c->chunk_size = c->chunk_size < CHUNK_MOST ? c->chunk_size * 2 : CHUNK_MOST;
  c->chunk_asked = true;
  return c->chunk_size;
}

/* Faults in what comes next of the chunk, a piece at a time.  What is mapped already costs little. */
static void touch(rg_client *c, uint64_t from, uint64_t to) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
  if (to > from) madvise(c->arena_rw + from, to - from, MADV_POPULATE_WRITE);
}

bool rg_chunk_cut(rg_client *c, struct rg_oid oid, uint64_t size, uint64_t *offset) {
  uint64_t n = whole_pages(size), ask, from = 0, to = 0;
  struct rg_range old = {0, 0};
  if (size > CUT_MAX || c->fd < 0) return false;   /* the process that holds the engine asks it by a call, which costs less than what follows */
  struct rg_cut *cut = malloc(sizeof *cut);
  if (!cut) return false;
  pthread_mutex_lock(&c->rmu);
  bool ok = fits(c, n, &old);
  if (!ok && c->chunk_asked) {   /* the answer may lie in the socket unread */
    pthread_mutex_unlock(&c->rmu);
    rg_pump(c);
    pthread_mutex_lock(&c->rmu);
    ok = fits(c, n, &old);
  }
  if (ok) {
    *cut = (struct rg_cut){c->cuts, oid, {c->chunk.offset, n}};
    c->cuts = cut;
    c->chunk.offset += n;
    c->chunk.size -= n;
    if (c->chunk.offset > c->chunk_touched) {
      from = c->chunk_touched;
      to = c->chunk.offset + (c->chunk.size < RG_REGION ? c->chunk.size : RG_REGION);
      c->chunk_touched = to;
    }
    *offset = cut->at.offset;
    atomic_fetch_add_explicit(&c->ncuts, 1, memory_order_relaxed);
  }
  ask = wanted(c);
  pthread_mutex_unlock(&c->rmu);
  if (!ok) free(cut);
  give_back(c, old, false);
  if (ask) {
    uint8_t *p = rg_frame_begin(c, RG_CHUNK_ASK, 0, 0, sizeof ask);
    if (p) {
      memcpy(p, &ask, sizeof ask);
      rg_out_end(c, sizeof(struct rg_hdr) + sizeof ask, false);   /* leaves with the frame that follows */
    }
  }
  touch(c, from, to);
  return ok;
}

static struct rg_cut *take_cut(rg_client *c, struct rg_oid oid) {   /* rmu */
  for (struct rg_cut **at = &c->cuts; *at; at = &(*at)->next) {
    struct rg_cut *k = *at;
    if (k->oid.task != oid.task || k->oid.index != oid.index) continue;
    *at = k->next;
    return k;
  }
  return NULL;
}

uint64_t rg_chunk_sealed(rg_client *c, struct rg_oid oid, uint64_t len) {
  pthread_mutex_lock(&c->rmu);
  struct rg_cut *k = take_cut(c, oid);
  pthread_mutex_unlock(&c->rmu);
  if (!k) return UINT64_MAX;
  uint64_t offset = k->at.offset, n = whole_pages(len);
  if (n < k->at.size) {   /* it became shorter */
    struct rg_range rest = {offset + n, k->at.size - n};
    rg_defer(c, RG_CHUNK_BACK, 0, 0, &rest, sizeof rest);
    rg_kick(c);
  }
  free(k);
  return offset;
}

bool rg_chunk_abort(rg_client *c, struct rg_oid oid) {
  pthread_mutex_lock(&c->rmu);
  struct rg_cut *k = take_cut(c, oid);
  pthread_mutex_unlock(&c->rmu);
  if (!k) return false;
  give_back(c, k->at, true);
  free(k);
  return true;
}

void rg_chunk_came(rg_client *c, const struct rg_chunk *k) {
  struct rg_range old = {0, 0};
  pthread_mutex_lock(&c->rmu);
  c->chunk_asked = false;
  if (!k->at.size || k->at.offset > c->arena_size || k->at.size > c->arena_size - k->at.offset) {
    c->chunk_not_before = rg_now() + OFTEN;
  } else if (c->chunk.size < CUT_PAGE) {
    c->chunk = k->at;
    c->chunk_touched = k->at.offset;
  } else {
    old = c->spare;   /* none, unless the engine gives unasked */
    c->spare = k->at;
  }
  atomic_store(&c->has_chunk, c->chunk.size || c->spare.size);
  pthread_mutex_unlock(&c->rmu);
  if (old.size) rg_defer(c, RG_CHUNK_BACK, 0, 0, &old, sizeof old);
  rg_kick(c);   /* the monitor gives back what stays unused */
}

/* Ranges that are not in use any more, to go into one RG_CHUNK_BACK. */
static size_t take_unused(rg_client *c, struct rg_range out[2]) {
  size_t n = 0;
  pthread_mutex_lock(&c->rmu);
  if (c->chunk.size) out[n++] = take_rest(&c->chunk);
  if (c->spare.size) out[n++] = take_rest(&c->spare);
  atomic_store(&c->has_chunk, false);
  pthread_mutex_unlock(&c->rmu);
  return n;
}

void rg_chunk_recalled(rg_client *c) {
  struct rg_range r[2];
  size_t n = take_unused(c, r);
  pthread_mutex_lock(&c->rmu);
  c->chunk_not_before = rg_now() + 10 * OFTEN;
  pthread_mutex_unlock(&c->rmu);
  if (n) rg_defer(c, RG_CHUNK_BACK, 0, 0, r, n * sizeof *r);
}

void rg_give_back(rg_client *c) {
  struct rg_range r[2];
  size_t n = atomic_load(&c->has_chunk) ? take_unused(c, r) : 0;
  if (n) rg_send(c, RG_CHUNK_BACK, 0, 0, r, n * sizeof *r, NULL, 0);
}

void rg_chunk_free(rg_client *c) {
  while (c->cuts) {
    struct rg_cut *k = c->cuts;
    c->cuts = k->next;
    free(k);
  }
}

void rg_generation(rg_client *c, uint32_t generation) {
  if (atomic_exchange_explicit(&c->generation, generation, memory_order_relaxed) == generation || !c->populated) return;
  for (size_t i = 0; i < c->arena_size / RG_REGION + 2; i++) atomic_store_explicit(&c->populated[i], 0, memory_order_relaxed);
}
