/* Internal to client*.c. */
#ifndef RAYGO_CLIENT_INT_H
#define RAYGO_CLIENT_INT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "client.h"

enum {                            /* of capi/errors.tsv; only what the client itself says */
  E_INVAL = 1, E_TIMEDOUT = 2, E_CANCELED = 3, E_FORKED = 7, E_INTERNAL = 8, E_VERSION = 9, E_CONNECTION = 10,
  E_DEADLOCK = 23, E_SHUTDOWN = 25, E_INTERRUPTED = 28, E_NOMEM = 30
};

struct rg_vec { uint8_t *p; size_t n, cap; };
bool rg_vec_room(struct rg_vec *v, size_t more);
bool rg_vec_add(struct rg_vec *v, const void *p, size_t n);

typedef struct rg_waiter rg_waiter;
struct rg_waiter {                /* on the stack of the thread that waits; all under mu but the futex */
  _Atomic uint32_t futex;         /* 1: look again */
  bool done;
  bool asleep;
  bool idle;                      /* waits for something to do: only a signal makes it look up, so that an idle process never wakes */
  size_t remaining;               /* values still missing */
  bool or_error;                  /* an error among them is enough */
  uint64_t task;                  /* whose wait this is, for RG_WAIT_ERROR */
  uint8_t *error;                 /* SYSERR map of RG_WAIT_ERROR, malloc'd */
  size_t error_len;
  rg_waiter *prev, *next;         /* c->sleepers */
  rg_waiter *all_prev, *all_next; /* c->waiters: every blocked rg_wait */
};

struct rg_waitnode { struct rg_waitnode *next; rg_waiter *w; };

struct rg_request {               /* an RG_CALL, RG_CREATE or RG_PIN in flight */
  struct rg_request *next;
  uint16_t type;
  uint64_t id;                    /* RG_CALL */
  struct rg_oid oid;              /* RG_CREATE, RG_PIN */
  rg_waiter *w;
  uint32_t status;
  uint64_t offset;                /* RG_CREATE: the answer's, as file */
  uint32_t file;
  uint32_t lease, lease_gen, lease_file;
  uint8_t *reply;                 /* malloc'd */
  size_t reply_len;
  rg_pin **pin;
};

struct rg_log { struct rg_log *next; size_t len; uint8_t map[]; };

enum { MON_TICKING = 0, MON_PARKED = 1 };

struct rg_client {
  struct rg_callbacks cb;
  pthread_mutex_t mu;
  int fd;                         /* -1 when embedded */
  rg_input_fn input;
  uint64_t conn;
  _Atomic bool alive, closed;
  _Atomic int64_t users;          /* slots + pins + 1 while open; the memory goes with the last */
  _Atomic uint64_t number;        /* prefix << 32 | last counter */

  rg_slot **bucket;               /* mu */
  size_t nbucket, nslot;
  _Atomic(rg_slot *) released;    /* refs reached 0; checked again when drained */
  _Atomic(rg_pin *) unpinned;
  _Atomic uint32_t nreleased;

  pthread_mutex_t wmu;            /* orders frames; taken inside mu never, and mu never inside it */
  struct rg_vec out;              /* wmu: frames not yet written */
  _Atomic size_t out_pending;
  pthread_mutex_t rmu;            /* guards addrefs, deferred and chunks; innermost */
  struct rg_vec addrefs;
  _Atomic size_t naddrefs;        /* lowered only after the frame went out */

  bool reading;                   /* mu: a thread has the reader's role */
  rg_waiter *sleepers;            /* mu */
  rg_waiter *waiters;             /* mu */
  struct rg_request *requests;    /* mu */
  uint64_t next_request;          /* mu */
  struct rg_vec in;               /* reader's: bytes not yet a whole frame */
  size_t in_pos;

  rg_task *task_head, *task_tail; /* mu */
  size_t ntask;
  rg_task *gens;                  /* mu: generators from RG_EXEC until they are freed */
  bool exiting;
  rg_waiter *task_waiter;         /* mu: the thread in rg_task_next */
  struct rg_log *log_head, *log_tail;
  size_t nlog;
  rg_waiter *log_waiter;

  int cq_fd;                      /* -1 until asked for */
  uint64_t *cq;                   /* mu */
  size_t ncq, capcq;
  size_t async_waiting;           /* mu: slots with a token, value still missing */
  bool worker;                    /* adopted: its loop needs no look but at signals */
  bool pumped;                    /* mu: an event loop reads the socket by rg_pump */

  uint8_t *welcome;
  char *refusal;                  /* why the engine refused HELLO */
  size_t welcome_len;
  uint8_t *arena_ro, *arena_rw;
  int arena_fd;
  uint64_t arena_size;
  _Atomic uint64_t *leases;       /* mapped by the first rg_create that is given one */
  struct rg_filemap *filemaps;    /* mu: objects being written outside the arena */
  _Atomic size_t nfilemaps;
  _Atomic uint8_t *populated;     /* per RG_REGION of arena_rw: its pages were faulted in */

  _Atomic uint32_t generation;    /* of the engine's trimming, when populated was last right */

  struct rg_range chunk, spare;   /* rmu: what is left of the piece that objects are cut from, and the next one */
  uint64_t chunk_touched;         /* rmu: pages of chunk up to here were faulted in */
  uint64_t chunk_size;            /* rmu: asked for last */
  int64_t chunk_when, chunk_not_before;   /* rmu: when; and when not to, after a refusal */
  bool chunk_asked;               /* rmu: the answer has not come */
  struct rg_cut *cuts;            /* rmu: objects being written */
  _Atomic bool has_chunk;
  _Atomic uint32_t ncuts;

  pthread_t monitor;
  bool has_monitor;
  int mon_fd;                     /* eventfd */
  _Atomic int mon_state;
  _Atomic uint32_t busy;          /* 0: idle, else a number that grows with each rg_busy */
  _Atomic uint32_t busy_seq;
  _Atomic size_t ndeferred;
  struct rg_vec deferred;         /* rmu: frames that dispatch wants sent, when it may not send itself */
};

#define RG_REGION (1u << 20)

int64_t rg_now(void);
static inline bool rg_dead(rg_client *c) { return atomic_load_explicit(&rg_forked, memory_order_relaxed) || !atomic_load_explicit(&c->alive, memory_order_acquire); }
int rg_dead_code(rg_client *c);

/* client.c */
uint8_t *rg_out_begin(rg_client *c, size_t n);        /* room for one whole frame; NULL without memory.  Nothing else may be sent until rg_out_end */
int rg_out_end(rg_client *c, size_t n, bool flush);
uint8_t *rg_frame_begin(rg_client *c, uint16_t type, uint16_t flags, uint64_t id, size_t payload);
static inline int rg_no_frame(size_t payload) { return payload > RG_MAX_FRAME ? E_INVAL : E_NOMEM; }   /* why rg_frame_begin gave none */
void rg_defer(rg_client *c, uint16_t type, uint16_t flags, uint64_t id, const void *p, size_t n);
int rg_send_deferred(rg_client *c);
void rg_kick(rg_client *c);
void *rg_monitor_main(void *arg);
int rg_out_write(rg_client *c);                       /* wmu held */
void rg_free_client(rg_client *c);
void rg_user_done(rg_client *c);

/* client_wait.c */
int rg_create_space(rg_client *c, struct rg_request *q, uint64_t size, bool lease, int64_t timeout_ns, rg_check_fn check, void *arg);

/* client_lease.c */
struct rg_lease *rg_lease_new(rg_client *c, const struct rg_request *created);   /* NULL: none was given, or can be used */
rg_pin *rg_lease_pin(rg_client *c, rg_slot *s);          /* mu.  NULL: ask the engine */
bool rg_lease_unpin(rg_client *c, rg_pin *p);            /* the engine need not be told */
void rg_lease_drop(rg_slot *s);                          /* mu; the slot's state is ARENA */

/* client_file.c */
void *rg_file_map(rg_client *c, uint32_t file, uint64_t offset, uint64_t len, bool write, size_t *maplen, uint8_t **data);
int rg_file_create(rg_client *c, struct rg_oid oid, uint32_t file, uint64_t offset, uint64_t size, uint8_t **data);
void rg_file_done(rg_client *c, struct rg_oid oid);   /* it is written: its mapping goes */
void rg_file_free_all(rg_client *c);

/* client_chunk.c */
bool rg_chunk_cut(rg_client *c, struct rg_oid oid, uint64_t size, uint64_t *offset);   /* false: ask for space */
uint64_t rg_chunk_sealed(rg_client *c, struct rg_oid oid, uint64_t len);   /* where it was cut; UINT64_MAX: it was not */
bool rg_chunk_abort(rg_client *c, struct rg_oid oid);
void rg_chunk_came(rg_client *c, const struct rg_chunk *k);                /* mu */
void rg_chunk_recalled(rg_client *c);                                      /* mu */
void rg_chunk_free(rg_client *c);
void rg_generation(rg_client *c, uint32_t generation);

/* client_exec.c */
void rg_task_drop(rg_client *c, rg_task *t);              /* mu held: rg_task_free */

/* client_refs.c */
rg_slot *rg_slot_find(rg_client *c, struct rg_oid oid);   /* mu */
void rg_drain(rg_client *c);
void rg_drain_ahead(rg_client *c);       /* the caller sends a frame next */
void rg_release_counted(rg_client *c);   /* at the end: slots that nobody holds but their counter */
rg_pin *rg_pin_new(rg_client *c, struct rg_oid oid, const struct rg_value *v);
void rg_slot_ready(rg_client *c, rg_slot *s, const struct rg_value *v, const uint8_t *data);  /* mu */

/* client_read.c */
int rg_read_some(rg_client *c, int64_t deadline, bool *interrupted);  /* reader's role held, mu not; reads once and dispatches */
int rg_dispatch(rg_client *c, const uint8_t *p, size_t n, size_t *used);   /* mu held on entry and return; released for callbacks */
void rg_wake(rg_waiter *w);                                                /* mu */
int rg_block(rg_client *c, rg_waiter *w, int64_t deadline, rg_check_fn check, void *arg);  /* mu held on entry and return */
void rg_lost(rg_client *c);                                                /* the engine is gone: wakes everyone */
void rg_promote(rg_client *c);                                             /* mu: somebody else should read */
long rg_futex_wait(_Atomic uint32_t *f, uint32_t expect, int64_t ns);
void rg_futex_wake(_Atomic uint32_t *f, int n);
#endif
