/* The table of handles.  A handle is a generation and the number of an entry; entries are never freed, only used again under another generation, so
 * looking up any 64-bit number is safe.  No lock on the way in or out: entries come from a list whose head carries a tag against ABA, and only
 * its growth takes a mutex. */
#include "abi_int.h"

#define FIRST 1024u                /* entries of chunk 0; each further chunk doubles what there is */
#define CHUNKS 22

static _Atomic(struct rga_entry *) chunk[CHUNKS];
static _Atomic uint32_t nentry;    /* entries that exist */
static _Atomic uint64_t free_head; /* tag << 32 | number + 1 */
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;

static struct rga_entry *entry(uint32_t i) {
  uint32_t k = i < FIRST ? 0 : 32 - (uint32_t)__builtin_clz(i / FIRST), start = k ? FIRST << (k - 1) : 0;
  return &atomic_load_explicit(&chunk[k], memory_order_acquire)[i - start];
}

static void push_free(uint32_t first, uint32_t last) {
  uint64_t head = atomic_load(&free_head);
  do atomic_store_explicit(&entry(last)->next_free, (uint32_t)head, memory_order_relaxed);
  while (!atomic_compare_exchange_weak(&free_head, &head, ((head >> 32) + 1) << 32 | (first + 1)));
}

static bool grow(void) {
  pthread_mutex_lock(&growing);
  bool ok = (uint32_t)atomic_load(&free_head) != 0;   /* somebody else grew it, or gave one back */
  uint32_t have = atomic_load(&nentry), k = 0, size = FIRST;
  while (have >> 10 >> k) k++;
  if (k) size = FIRST << (k - 1);
  struct rga_entry *c = !ok && k < CHUNKS ? calloc(size, sizeof *c) : NULL;
  if (c) {
    for (uint32_t i = 0; i < size; i++) {
      c[i].number = have + i;
      atomic_init(&c[i].state, RGA_DROPPED);
      atomic_init(&c[i].next_free, i + 1 < size ? have + i + 2 : 0);
    }
    atomic_store_explicit(&chunk[k], c, memory_order_release);
    atomic_store_explicit(&nentry, have + size, memory_order_release);
    push_free(have, have + size - 1);
    ok = true;
  }
  pthread_mutex_unlock(&growing);
  return ok;
}

uint64_t rga_new(int kind, void *ptr, struct rga_rt *rt) {
  uint64_t head = atomic_load(&free_head);
  uint32_t i;
  for (;;) {
    if (!(uint32_t)head) {
      if (!grow()) return 0;
      head = atomic_load(&free_head);
      continue;
    }
    i = (uint32_t)head - 1;
    uint32_t next = atomic_load_explicit(&entry(i)->next_free, memory_order_relaxed);
    if (atomic_compare_exchange_weak(&free_head, &head, ((head >> 32) + 1) << 32 | next)) break;
  }
  struct rga_entry *e = entry(i);
  e->kind = kind;
  e->ptr = ptr;
  e->rt = rt;
  atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
  atomic_store_explicit(&e->unsealed, 0, memory_order_relaxed);
  if (rt) atomic_fetch_add_explicit(&rt->refs, 1, memory_order_relaxed);
  uint32_t generation = (uint32_t)(atomic_load_explicit(&e->state, memory_order_relaxed) >> 32) + 1;
  if (!generation) generation = 1;
  atomic_store_explicit(&e->state, (uint64_t)generation << 32, memory_order_release);
  return (uint64_t)generation << 32 | i;
}

struct rga_entry *rga_use(uint64_t h, int kind) {
  if (!(h >> 32) || (uint32_t)h >= atomic_load_explicit(&nentry, memory_order_acquire)) return NULL;
  struct rga_entry *e = entry((uint32_t)h);
  uint64_t s = atomic_load_explicit(&e->state, memory_order_relaxed);
  do
    if (s >> 32 != h >> 32 || s & RGA_DROPPED) return NULL;
  while (!atomic_compare_exchange_weak_explicit(&e->state, &s, s + 1, memory_order_acquire, memory_order_relaxed));
  if (e->kind == kind) return e;
  rga_unuse(e);
  return NULL;
}

bool rga_drop(struct rga_entry *e) {
  return !(atomic_fetch_or_explicit(&e->state, RGA_DROPPED, memory_order_acq_rel) & RGA_DROPPED);
}

static void destroy(struct rga_entry *e) {
  struct rga_rt *rt = e->rt;
  switch (e->kind) {
  case RGA_OBJECT:
    if (atomic_exchange(&e->unsealed, 0)) rg_abort(rt->c, ((rg_slot *)e->ptr)->oid);
    rg_slot_decref(rt->c, e->ptr);
    break;
  case RGA_ACTOR: rg_slot_decref(rt->c, e->ptr); break;
  case RGA_TEMPLATE: rga_template_free(e->ptr); break;
  case RGA_TASK: rga_task_ended(e->ptr); break;
  case RGA_TOKEN: rga_token_free(e->ptr); break;
  case RGA_GROUP: rga_group_free(e->ptr); break;
  case RGA_WORK: rga_work_free(e->ptr); break;
  default: break;
  }
  if (rt) rga_rt_unref(rt);
}

void rga_unuse(struct rga_entry *e) {
  uint64_t now = atomic_fetch_sub_explicit(&e->state, 1, memory_order_acq_rel) - 1;
  if ((uint32_t)now != RGA_DROPPED) return;
  /* Dropped, and this was the last use: nobody can take it up again, so the entry is this thread's. */
  destroy(e);
  push_free(e->number, e->number);
}
