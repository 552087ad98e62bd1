/* References: the table of slots, handles, pins, and what is announced about them. */
#include "client_int.h"
#include <sys/mman.h>

static size_t hash(struct rg_oid o) {
  uint64_t h = (o.task ^ ((uint64_t)o.index << 40)) * 0x9e3779b97f4a7c15u;
  return (size_t)(h >> 20);
}

static bool same(struct rg_oid a, struct rg_oid b) { return a.task == b.task && a.index == b.index; }

rg_slot *rg_slot_find(rg_client *c, struct rg_oid oid) {
  rg_slot *s = c->bucket[hash(oid) & (c->nbucket - 1)];
  while (s && !same(s->oid, oid)) s = s->hash_next;
  return s;
}

static void grow(rg_client *c) {
  size_t n = c->nbucket * 2;
  rg_slot **b = calloc(n, sizeof *b);
  if (!b) return;   /* slower, still right */
  for (size_t i = 0; i < c->nbucket; i++)
    for (rg_slot *s = c->bucket[i], *next; s; s = next) {
      next = s->hash_next;
      rg_slot **at = &b[hash(s->oid) & (n - 1)];
      s->hash_next = *at;
      *at = s;
    }
  free(c->bucket);
  c->bucket = b;
  c->nbucket = n;
}

static rg_slot *insert(rg_client *c, struct rg_oid oid) {   /* mu */
  rg_slot *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->oid = oid;
  s->oid.zero = 0;
  atomic_store_explicit(&s->refs, 2, memory_order_relaxed);
  if (c->nslot >= c->nbucket) grow(c);
  rg_slot **at = &c->bucket[hash(oid) & (c->nbucket - 1)];
  s->hash_next = *at;
  *at = s;
  c->nslot++;
  atomic_fetch_add_explicit(&c->users, 1, memory_order_relaxed);
  return s;
}

static void forget(rg_client *c, rg_slot *s) {   /* mu */
  rg_slot **at = &c->bucket[hash(s->oid) & (c->nbucket - 1)];
  while (*at && *at != s) at = &(*at)->hash_next;
  if (*at) *at = s->hash_next;
  c->nslot--;
}

static void free_slot(rg_client *c, rg_slot *s) {
  if (s->counter) rg_counter_decref(s->counter);
  free(s->data);
  free(s);
  rg_user_done(c);
}

void rg_counter_decref(rg_counter *k) {
  if (atomic_fetch_sub(&k->refs, 1) == 1) free(k);
}

rg_slot *rg_slot_new(rg_client *c, uint64_t task, uint32_t index, int asked) {
  struct rg_oid oid = {task, index, 0};
  pthread_mutex_lock(&c->mu);
  rg_slot *s = insert(c, oid);
  if (s) s->asked = (uint8_t)asked;
  pthread_mutex_unlock(&c->mu);
  return s;
}

rg_slot *rg_slot_ref(rg_client *c, struct rg_oid oid) {
  oid.zero = 0;
  pthread_mutex_lock(&c->mu);
  rg_slot *s = rg_slot_find(c, oid);
  if (s) {
    /* refs may be 0 here, with the slot waiting to be drained: drain looks again, under mu. */
    atomic_fetch_add(&s->refs, 2);
  } else if ((s = insert(c, oid))) {
    pthread_mutex_lock(&c->rmu);
    if (rg_vec_add(&c->addrefs, &oid, sizeof oid)) atomic_fetch_add(&c->naddrefs, sizeof oid);
    pthread_mutex_unlock(&c->rmu);
  }
  pthread_mutex_unlock(&c->mu);
  return s;
}

void rg_slot_incref(rg_slot *s) { atomic_fetch_add_explicit(&s->refs, 2, memory_order_relaxed); }

static void push_released(rg_client *c, rg_slot *s) {
  rg_slot *head = atomic_load_explicit(&c->released, memory_order_relaxed);
  do s->release_next = head;
  while (!atomic_compare_exchange_weak(&c->released, &head, s));
}

/* The last handle and the mark change in one step.  A slot is freed only from the list, so whoever set the mark may still touch it until it is
 * pushed, and whoever found the mark set must not touch it again. */
void rg_slot_decref(rg_client *c, rg_slot *s) {
  int32_t old = atomic_load_explicit(&s->refs, memory_order_relaxed), now;
  do now = old >> 1 == 1 ? 1 : old - 2;
  while (!atomic_compare_exchange_weak(&s->refs, &old, now));
  if (now != 1 || old & 1 || atomic_load_explicit(&rg_forked, memory_order_relaxed)) return;
  push_released(c, s);
  atomic_fetch_add_explicit(&c->nreleased, 1, memory_order_relaxed);
  if (atomic_load(&c->closed)) rg_drain(c);
  else rg_kick(c);
}

void rg_pin_incref(rg_pin *p) { atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed); }

static void free_pin(rg_pin *p) {
  if (p->map) munmap(p->map, p->maplen);
  free(p);
}

void rg_pin_decref(rg_pin *p) {
  if (atomic_fetch_sub(&p->refs, 1) != 1) return;
  if (atomic_load_explicit(&rg_forked, memory_order_relaxed)) return;
  rg_client *c = p->c;
  if (atomic_load(&c->closed)) {   /* nobody is left to tell */
    free_pin(p);
    rg_user_done(c);
    return;
  }
  if (p->lease_gen && rg_lease_unpin(c, p)) {
    free_pin(p);
    rg_user_done(c);
    return;
  }
  rg_pin *head = atomic_load_explicit(&c->unpinned, memory_order_relaxed);
  do p->next = head;
  while (!atomic_compare_exchange_weak(&c->unpinned, &head, p));
  rg_kick(c);
}

rg_pin *rg_pin_new(rg_client *c, struct rg_oid oid, const struct rg_value *v) {
  if (!v->file && (!c->arena_ro || v->offset > c->arena_size || v->len > c->arena_size - v->offset)) return NULL;
  rg_pin *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  uint8_t *data = NULL;
  if (v->file && !(p->map = rg_file_map(c, v->file, v->offset, v->len, false, &p->maplen, &data))) {
    free(p);
    return NULL;
  }
  p->oid = oid;
  p->c = c;
  p->data = v->file ? data : c->arena_ro + v->offset;
  p->len = v->len;
  p->is_error = (uint8_t)v->is_error;
  atomic_store_explicit(&p->refs, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&c->users, 1, memory_order_relaxed);
  return p;
}

/* Sends RELEASE and UNPIN for all that was let go, or leaves them to the frame that follows.  Many threads may do so at once. */
static void drain(rg_client *c, bool flush) {
  bool dead = rg_dead(c) || atomic_load(&c->closed);
  rg_pin *pins = atomic_exchange(&c->unpinned, NULL);
  rg_slot *slots = atomic_exchange(&c->released, NULL);
  if (!pins && !slots) return;
  atomic_store_explicit(&c->nreleased, 0, memory_order_relaxed);
  struct rg_vec v = {0};
  size_t npins = 0, nslots = 0;
  struct rg_hdr h = {0};
  if (pins) {
    rg_vec_add(&v, &h, sizeof h);
    for (rg_pin *p = pins, *next; p; p = next) {
      next = p->next;
      rg_vec_add(&v, &p->oid, sizeof p->oid);
      npins++;
      free_pin(p);
      if (dead) rg_user_done(c);
    }
    *(struct rg_hdr *)v.p = (struct rg_hdr){(uint32_t)(npins * sizeof(struct rg_oid)), RG_UNPIN, 0, 0};
  }
  size_t at = v.n;
  rg_slot *gone = NULL;
  if (slots) {
    rg_vec_add(&v, &h, sizeof h);
    pthread_mutex_lock(&c->mu);
    for (rg_slot *s = slots, *next; s; s = next) {
      next = s->release_next;
      int32_t refs = atomic_load(&s->refs);
      /* Held again: off the list.  Not held: no handle can come back, the table entry goes in the same critical section. */
      while (refs != 1 && !atomic_compare_exchange_weak(&s->refs, &refs, refs & ~1)) {
      }
      if (refs != 1) continue;
      if (s->counter && !dead) {   /* the call still counts though nobody wants its value: rg_slot_ready releases it */
        atomic_store(&s->refs, 0);
        continue;
      }
      forget(c, s);
      rg_vec_add(&v, &s->oid, sizeof s->oid);
      nslots++;
      s->release_next = gone;
      gone = s;
    }
    pthread_mutex_unlock(&c->mu);
    if (nslots) *(struct rg_hdr *)(v.p + at) = (struct rg_hdr){(uint32_t)(nslots * sizeof(struct rg_oid)), RG_RELEASE, 0, 0};
    else v.n = at;
  }
  if (v.n && !dead) {
    uint8_t *p = rg_out_begin(c, v.n);
    if (p) {
      memcpy(p, v.p, v.n);
      rg_out_end(c, v.n, flush);
    }
  }
  free(v.p);
  while (gone) {
    rg_slot *next = gone->release_next;
    free_slot(c, gone);
    gone = next;
  }
  for (; !dead && npins; npins--) rg_user_done(c);
}

void rg_drain(rg_client *c) { drain(c, true); }

void rg_drain_ahead(rg_client *c) { drain(c, false); }

void rg_refs_flush(rg_client *c) {
  if (rg_dead(c)) return;
  rg_drain(c);
  if (atomic_load(&c->naddrefs) && rg_out_begin(c, 0)) rg_out_end(c, 0, true);
}

/* mu.  A slot without handles that stayed for its counter. */
static void release_unwanted(rg_client *c, rg_slot *s) {
  int32_t none = 0;
  if (!atomic_compare_exchange_strong(&s->refs, &none, 1)) return;
  push_released(c, s);
  atomic_fetch_add_explicit(&c->nreleased, 1, memory_order_relaxed);
  rg_kick(c);
}

void rg_release_counted(rg_client *c) {
  pthread_mutex_lock(&c->mu);
  for (size_t i = 0; i < c->nbucket; i++)
    for (rg_slot *s = c->bucket[i]; s; s = s->hash_next) release_unwanted(c, s);
  pthread_mutex_unlock(&c->mu);
}

/* mu.  The value has come. */
void rg_slot_ready(rg_client *c, rg_slot *s, const struct rg_value *v, const uint8_t *data) {
  uint8_t now = atomic_load_explicit(&s->state, memory_order_relaxed);
  if (now == RG_S_INLINE || now == RG_S_SYSERR) return;
  uint8_t state = v->kind == RG_V_INLINE ? RG_S_INLINE : v->kind == RG_V_ARENA ? RG_S_ARENA : RG_S_SYSERR;
  if (state != RG_S_ARENA) {
    uint8_t *p = malloc(RG_PAD8(v->len) + 8);
    if (!p) return;
    memcpy(p, data, v->len);
    if (now == RG_S_ARENA) rg_lease_drop(s);
    s->data = p;
  }
  s->len = v->len;
  s->is_error = v->is_error || state == RG_S_SYSERR;
  atomic_store_explicit(&s->state, state, memory_order_release);
  if (now != RG_S_PENDING) return;
  if (s->counter) {
    atomic_fetch_sub(&s->counter->n, 1);
    rg_counter_decref(s->counter);
    s->counter = NULL;
    release_unwanted(c, s);
  }
  for (struct rg_waitnode *w = s->waiters; w; w = w->next)
    if ((w->w->remaining && --w->w->remaining == 0) || (w->w->or_error && s->is_error)) rg_wake(w->w);
  s->waiters = NULL;
  if (s->async_token) {
    if (c->ncq == c->capcq) {
      size_t cap = c->capcq ? c->capcq * 2 : 64;
      uint64_t *p = realloc(c->cq, cap * sizeof *p);
      if (!p) return;
      c->cq = p;
      c->capcq = cap;
    }
    c->cq[c->ncq++] = s->async_token;
    s->async_token = 0;
    if (c->async_waiting) c->async_waiting--;
    if (c->ncq == 1 && c->cq_fd >= 0) {
      uint64_t one = 1;
      ssize_t r = write(c->cq_fd, &one, sizeof one);
      (void)r;
    }
  }
}
