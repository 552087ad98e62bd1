/* Leases: how the process that made an object pins it without asking.  objectstore/lease.go has the rules, and the other side. */
#include "client_int.h"
#include <sys/mman.h>

static uint32_t gen_of(uint64_t word) { return (uint32_t)(word >> 32); }
static uint32_t pins_of(uint64_t word) { return (uint32_t)word & (RG_LEASE_CALLED - 1); }

struct rg_lease *rg_lease_new(rg_client *c, const struct rg_request *created) {
  if (!created->lease || created->lease > RG_LEASES) return NULL;
  pthread_mutex_lock(&c->mu);
  if (!c->leases) {
    size_t n;
    uint8_t *at;
    if (rg_file_map(c, created->lease_file, 0, RG_LEASES * sizeof *c->leases, true, &n, &at)) c->leases = (_Atomic uint64_t *)at;
  }
  struct rg_lease *l = c->leases ? malloc(sizeof *l) : NULL;
  pthread_mutex_unlock(&c->mu);
  if (l) *l = (struct rg_lease){created->offset, created->lease - 1, created->lease_gen};
  return l;
}

rg_pin *rg_lease_pin(rg_client *c, rg_slot *s) {
  struct rg_lease *l = atomic_load_explicit(&s->state, memory_order_acquire) == RG_S_ARENA ? s->lease : NULL;
  if (!l) return NULL;
  struct rg_value v = {.kind = RG_V_ARENA, .is_error = s->is_error, .len = s->len, .offset = l->offset};
  rg_pin *p = rg_pin_new(c, s->oid, &v);
  if (!p) return NULL;
  _Atomic uint64_t *word = &c->leases[l->index];
  uint64_t was = atomic_load(word);
  do {
    if (gen_of(was) != l->gen || was & RG_LEASE_CALLED || pins_of(was) == RG_LEASE_CALLED - 1) {
      if (gen_of(was) != l->gen) rg_lease_drop(s);
      free(p);
      rg_user_done(c);
      return NULL;
    }
  } while (!atomic_compare_exchange_weak(word, &was, was + 1));
  p->lease_index = l->index;
  p->lease_gen = l->gen;
  return p;
}

rg_pin *rg_pin_own(rg_client *c, rg_slot *s) {
  if (rg_dead(c)) return NULL;
  pthread_mutex_lock(&c->mu);
  rg_pin *p = rg_lease_pin(c, s);
  pthread_mutex_unlock(&c->mu);
  return p;
}

/* In finalizers, so it takes no lock. */
bool rg_lease_unpin(rg_client *c, rg_pin *p) {
  _Atomic uint64_t *word = &c->leases[p->lease_index];
  uint64_t was = atomic_load(word), now;
  bool last;
  do {
    if (gen_of(was) != p->lease_gen || !pins_of(was)) return true;   /* the engine has given this process up */
    last = was & RG_LEASE_CALLED && pins_of(was) == 1;
    now = last ? 0 : was - 1;
  } while (!atomic_compare_exchange_weak(word, &was, now));
  return !last;
}

void rg_lease_drop(rg_slot *s) {
  free(s->lease);
  s->lease = NULL;
}

void rg_slot_stored(rg_slot *s, uint64_t len, int is_error, struct rg_lease *lease) {
  s->len = len;
  s->is_error = (uint8_t)(is_error != 0);
  s->lease = lease;
  atomic_store_explicit(&s->state, RG_S_ARENA, memory_order_release);
}
