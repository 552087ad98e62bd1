/* Submitting, storing, running tasks. */
#include "client_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

static size_t put_oids(uint8_t *at, const struct rg_oid *p, uint32_t n) {
  if (n) memcpy(at, p, (size_t)n * sizeof *p);
  return (size_t)n * sizeof *p;
}

static void put_bytes(uint8_t *at, const void *p, size_t n) {   /* zero padding to 8 */
  if (n & 7) memset(at + (n & ~(size_t)7), 0, 8);
  if (n) memcpy(at, p, n);
}

static size_t value_size(uint16_t kind, size_t len, uint32_t nrefs) {
  return sizeof(struct rg_value) + (size_t)nrefs * sizeof(struct rg_oid) + (kind == RG_V_ARENA ? 0 : RG_PAD8(len));
}

static size_t put_value(rg_client *c, uint64_t task, uint8_t *at, const struct rg_out *o) {
  struct rg_value v = {o->index, o->kind, o->is_error, o->len, UINT64_MAX, o->nrefs, 0};
  if (o->kind == RG_V_ARENA) v.offset = rg_chunk_sealed(c, (struct rg_oid){task, o->index, 0}, o->len);
  memcpy(at, &v, sizeof v);
  size_t n = sizeof v + put_oids(at + sizeof v, o->refs, o->nrefs);
  if (o->kind != RG_V_ARENA) {
    put_bytes(at + n, o->data, o->len);
    n += RG_PAD8(o->len);
  }
  return n;
}

/* A submit that did not leave: no value will come to take the call off its counter. */
static void unsubmit(rg_client *c, rg_slot **returns, uint32_t n) {
  if (n) {
    pthread_mutex_lock(&c->mu);
    rg_counter *k = returns[0]->counter;
    returns[0]->counter = NULL;
    pthread_mutex_unlock(&c->mu);
    if (k) {
      atomic_fetch_sub(&k->n, 1);
      rg_counter_decref(k);
    }
  }
  for (uint32_t i = 0; i < n; i++) rg_slot_decref(c, returns[i]);
}

int rg_submit(rg_client *c, uint64_t task, uint16_t flags, const struct rg_submit *s, const struct rg_oid *top, const struct rg_oid *nested,
              const void *args, rg_counter *counter, rg_slot **returns) {
  if (rg_dead(c)) return rg_dead_code(c);
  if (atomic_load_explicit(&c->nreleased, memory_order_relaxed) > 256) rg_drain(c);
  /* The slots stand before the frame leaves: the answer may come at once. */
  uint32_t n = flags & (RG_F_STREAMING | RG_F_ACTOR_CREATE) ? 1 : s->nreturns;
  uint32_t first = flags & RG_F_ACTOR_CREATE ? 0 : 1;
  for (uint32_t i = 0; i < n; i++) {
    rg_slot *slot = rg_slot_new(c, task, first + i, 1);
    if (!slot) {
      unsubmit(c, returns, i);
      return E_NOMEM;
    }
    if (counter && i == 0) {
      atomic_fetch_add(&counter->refs, 1);
      atomic_fetch_add(&counter->n, 1);
      slot->counter = counter;
    }
    returns[i] = slot;
  }
  size_t len = sizeof *s + ((size_t)s->ntop + s->nnested) * sizeof(struct rg_oid) + s->args_len;
  uint8_t *p = rg_frame_begin(c, RG_SUBMIT, flags, task, len);
  int r = len > RG_MAX_FRAME ? E_INVAL : E_NOMEM;
  if (p) {
    memcpy(p, s, sizeof *s);
    p += sizeof *s;
    p += put_oids(p, top, s->ntop);
    p += put_oids(p, nested, s->nnested);
    put_bytes(p, args, s->args_len);
    r = rg_out_end(c, sizeof(struct rg_hdr) + RG_PAD8(len), true);
  }
  if (r) unsubmit(c, returns, n);
  return r;
}

int rg_put(rg_client *c, uint64_t task, const void *blob, size_t len, int is_error, const struct rg_oid *refs, uint32_t nrefs, rg_slot **out) {
  if (rg_dead(c)) return rg_dead_code(c);
  if (atomic_load_explicit(&c->nreleased, memory_order_relaxed) > 256) rg_drain(c);
  rg_slot *s = rg_slot_new(c, task, 0, 1);
  if (!s) return E_NOMEM;
  struct rg_out o = {0, RG_V_INLINE, (uint16_t)(is_error != 0), blob, len, refs, nrefs};
  struct rg_value v = {0, RG_V_INLINE, o.is_error, len, UINT64_MAX, nrefs, 0};
  pthread_mutex_lock(&c->mu);
  rg_slot_ready(c, s, &v, blob);   /* our own copy: a get of it asks nobody */
  pthread_mutex_unlock(&c->mu);
  size_t n = value_size(RG_V_INLINE, len, nrefs);
  uint8_t *p = rg_frame_begin(c, RG_PUT, 0, task, n);
  int r = E_NOMEM;
  if (p) {
    put_value(c, task, p, &o);
    r = rg_out_end(c, sizeof(struct rg_hdr) + RG_PAD8(n), true);
  }
  if (r) rg_slot_decref(c, s);
  else *out = s;
  return r;
}

/* ------------------------------------------------------------------------------------------------ arena */

static int writable(rg_client *c) {
  int r = 0;
  pthread_mutex_lock(&c->mu);
  if (!c->arena_rw) {
    void *p = c->arena_ro ? mmap(NULL, c->arena_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, c->arena_fd, 0) : MAP_FAILED;
    if (p == MAP_FAILED) {
      r = E_NOMEM;
    } else {
      c->arena_rw = p;
      c->populated = calloc(c->arena_size / RG_REGION + 2, sizeof *c->populated);
    }
  }
  pthread_mutex_unlock(&c->mu);
  return r;
}

int rg_create(rg_client *c, struct rg_oid oid, uint64_t size, int64_t timeout_ns, rg_check_fn check, void *arg, uint8_t **data, struct rg_lease **lease,
              char **message) {
  if (message) *message = NULL;
  if (lease) *lease = NULL;
  if (rg_dead(c)) return rg_dead_code(c);
  int r = writable(c);
  if (r) {
    if (message && asprintf(message, "The %" PRIu64 " bytes of the object store cannot be mapped for writing: %s. Raise the limit on this process's address space (ulimit -v), "
                            "or give the store less (object_store_memory).", c->arena_size, strerror(errno)) < 0) *message = NULL;
    return r;
  }
  rg_drain_ahead(c);   /* what was let go makes room first */
  struct rg_request q = {.type = RG_CREATE, .oid = oid};
  if (!rg_chunk_cut(c, oid, size, &q.offset)) {
    r = rg_create_space(c, &q, size, lease != NULL, timeout_ns, check, arg);
    if (message) *message = (char *)q.reply;
    else free(q.reply);
    if (r) return r;
    if (q.file) {
      if ((r = rg_file_create(c, oid, q.file, q.offset, size, data))) {
        int why = errno;
        rg_abort(c, oid);
        if (message && asprintf(message, "The %" PRIu64 " bytes of the object, which is to lie in a file on disk, cannot be mapped for writing: %s. Raise the limits on this "
                                "process's address space (ulimit -v) and its mappings (vm.max_map_count), or make the object smaller.", size, strerror(why)) < 0) *message = NULL;
      }
      return r;
    }
  }
  if (q.offset > c->arena_size || size > c->arena_size - q.offset) return E_INTERNAL;
  *data = c->arena_rw + q.offset;
  if (lease) *lease = rg_lease_new(c, &q);
  return 0;
}

int rg_seal(rg_client *c, struct rg_oid oid, uint64_t len, int is_error, const struct rg_oid *refs, uint32_t nrefs) {
  struct rg_out o = {oid.index, RG_V_ARENA, (uint16_t)(is_error != 0), NULL, len, refs, nrefs};
  rg_file_done(c, oid);
  size_t n = value_size(RG_V_ARENA, len, nrefs);
  uint8_t *p = rg_frame_begin(c, RG_SEAL, 0, oid.task, n);
  if (!p) return rg_no_frame(n);
  put_value(c, oid.task, p, &o);
  return rg_out_end(c, sizeof(struct rg_hdr) + n, true);
}

int rg_abort(rg_client *c, struct rg_oid oid) {
  rg_file_done(c, oid);
  return rg_chunk_abort(c, oid) ? 0 : rg_send(c, RG_ABORT, 0, oid.task, &oid, sizeof oid, NULL, 0);
}

/* ------------------------------------------------------------------------------------------------ running tasks */

static rg_task *pop(rg_client *c) {   /* mu */
  rg_task *t = c->task_head;
  if (!t) return NULL;
  c->task_head = t->next;
  if (!t->next) c->task_tail = NULL;
  t->next = NULL;
  c->ntask--;
  return t;
}

rg_task *rg_task_try(rg_client *c) {
  pthread_mutex_lock(&c->mu);
  rg_task *t = pop(c);
  pthread_mutex_unlock(&c->mu);
  return t;
}

rg_task *rg_task_next(rg_client *c, int64_t deadline, rg_check_fn check, void *arg, int *status) {
  rg_waiter w = {.idle = c->worker};
  atomic_store(&c->busy, 0);
  rg_task *t = rg_task_try(c);
  *status = 0;
  if (t) return t;
  if (atomic_load(&c->released) || atomic_load(&c->unpinned)) rg_drain(c);
  if ((*status = rg_flush(c))) return NULL;
  pthread_mutex_lock(&c->mu);
  if (!(t = pop(c)) && !c->exiting) {
    c->task_waiter = &w;
    *status = rg_block(c, &w, deadline, check, arg);
    c->task_waiter = NULL;
    t = pop(c);
  }
  if (t) *status = 0;
  else if (c->exiting) *status = E_SHUTDOWN;
  else if (!*status) *status = E_INTERRUPTED;   /* what woke this thread is gone again: taken by another, given back, cancelled */
  pthread_mutex_unlock(&c->mu);
  return t;
}

int rg_pump(rg_client *c) {
  if (rg_dead(c)) return -rg_dead_code(c);
  pthread_mutex_lock(&c->mu);
  int r = 0;
  if (c->fd >= 0 && !c->reading) {
    c->reading = true;
    pthread_mutex_unlock(&c->mu);
    bool interrupted;
    r = rg_read_some(c, 0, &interrupted);
    if (r == E_CONNECTION) rg_lost(c);
    pthread_mutex_lock(&c->mu);
    c->reading = false;
    rg_promote(c);
  }
  int n = (int)c->ntask;
  bool over = c->exiting && !n;
  pthread_mutex_unlock(&c->mu);
  return r ? -r : over ? -E_SHUTDOWN : n;
}

void rg_client_pumped(rg_client *c, int on) {
  pthread_mutex_lock(&c->mu);
  c->pumped = on != 0;
  pthread_mutex_unlock(&c->mu);
}

void rg_task_drop(rg_client *c, rg_task *t) {
  for (rg_task **at = t->flags & RG_F_STREAMING ? &c->gens : NULL; at && *at; at = &(*at)->gen_next)
    if (*at == t) {
      *at = t->gen_next;
      break;
    }
  for (uint32_t i = 0; t->top && i < t->x.ntop; i++)
    if (t->top[i].pin) rg_pin_decref(t->top[i].pin);
  free(t->top);
  free(t);
}

void rg_task_free(rg_client *c, rg_task *t) {
  if (!t) return;
  bool listed = t->flags & RG_F_STREAMING;
  if (listed) pthread_mutex_lock(&c->mu);
  rg_task_drop(c, t);
  if (listed) pthread_mutex_unlock(&c->mu);
}

int rg_result(rg_client *c, uint64_t task, uint32_t attempt, uint32_t status, uint64_t exec_ns, const struct rg_out *v, uint32_t n, int more) {
  if (rg_dead(c)) return rg_dead_code(c);
  for (uint32_t i = 0; i < n; i++)
    if (v[i].kind == RG_V_ARENA) rg_file_done(c, (struct rg_oid){task, v[i].index, 0});
  struct rg_result r = {status, n, exec_ns, attempt, 0};
  size_t len = sizeof r;
  for (uint32_t i = 0; i < n; i++) len += value_size(v[i].kind, v[i].len, v[i].nrefs);
  uint8_t *p = rg_frame_begin(c, RG_RESULT, 0, task, len);
  if (!p) return rg_no_frame(len);
  memcpy(p, &r, sizeof r);
  p += sizeof r;
  for (uint32_t i = 0; i < n; i++) p += put_value(c, task, p, &v[i]);
  return rg_out_end(c, sizeof(struct rg_hdr) + RG_PAD8(len), !more);
}

int rg_item(rg_client *c, uint64_t task, const struct rg_out *v) {
  if (rg_dead(c)) return rg_dead_code(c);
  if (v->kind == RG_V_ARENA) rg_file_done(c, (struct rg_oid){task, v->index, 0});
  size_t len = value_size(v->kind, v->len, v->nrefs);
  uint8_t *p = rg_frame_begin(c, RG_ITEM, 0, task, len);
  if (!p) return rg_no_frame(len);
  put_value(c, task, p, v);
  /* The monitor sends it within a millisecond; a fast producer fills a write. */
  return rg_out_end(c, sizeof(struct rg_hdr) + RG_PAD8(len), false);
}
