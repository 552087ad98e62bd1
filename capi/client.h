/* A process's side of its node: references, waiting, submitting, running tasks.  No Go, no Python.
 *
 * The file is compiled twice: into libraygo.so, under the public names of raygo.h, and into Python's binding, so that a worker
 * needs no Go runtime and may fork.  The transport is either a Unix socket or, in the process that holds the engine, a function.
 *
 * Locks.  c->mu guards the tables and is never held while frames are sent, while Python runs, or while anything blocks.  c->wmu orders what is
 * written to the socket.  mu is never taken inside wmu.  rg_slot_decref and rg_pin_decref take no lock: they may run in finalizers.
 *
 * Reading the socket is a role that whichever thread waits takes over (leader and followers): a lone call costs no thread switch.
 * The monitor thread does it when every thread is busy for more than a millisecond, and sends what was left unsent. */
#ifndef RAYGO_CLIENT_H
#define RAYGO_CLIENT_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "wire.h"

typedef struct rg_client rg_client;
typedef struct rg_slot rg_slot;
typedef struct rg_pin rg_pin;
typedef struct rg_task rg_task;
typedef struct rg_counter rg_counter;

/* Results of the functions below: 0 or a code of capi/errors.tsv, negated where a count is returned as well. */

enum { RG_S_PENDING = 0, RG_S_INLINE = 1, RG_S_ARENA = 2, RG_S_SYSERR = 3 };

struct rg_slot {                 /* what this process knows of one object; read state with acquire, then the rest is fixed */
  struct rg_oid oid;
  _Atomic int32_t refs;          /* twice the handles in this process, plus 1 while it stands in the list of slots to release */
  _Atomic uint8_t state;         /* RG_S_* */
  uint8_t is_error;              /* the value is an exception */
  uint8_t asked;                 /* mu: SUBSCRIBE or the submit itself will bring it */
  union {
    uint8_t *data;               /* inline and syserr: the blob, 8-aligned, valid while a handle is held */
    struct rg_lease *lease;      /* mu.  arena: how this process, which made the object, pins it without asking; may be NULL */
  };
  uint64_t len;
  struct rg_waitnode *waiters;   /* mu */
  rg_slot *hash_next;            /* mu */
  rg_slot *release_next;
  rg_counter *counter;           /* decremented once when the value is there (max_pending_calls) */
  uint64_t async_token;          /* mu: pushed to the completion queue when the value is there; 0 none */
  uint64_t call_site;            /* free for the binding */
};

struct rg_counter { _Atomic int32_t n; _Atomic int32_t refs; };   /* malloc'd; freed at refs 0 */
void rg_counter_decref(rg_counter *k);

struct rg_lease {                /* a word of the file of leases, while its upper half is gen; objectstore/lease.go */
  uint64_t offset;               /* of the object in the arena */
  uint32_t index, gen;
};

struct rg_pin {                  /* read-only bytes in the arena, or in a file, that stay while refs > 0 */
  struct rg_oid oid;
  rg_client *c;
  const uint8_t *data;
  uint64_t len;
  uint8_t is_error;
  _Atomic int32_t refs;
  void *map;                     /* NULL: in the arena; else this pin's own mapping */
  size_t maplen;
  uint32_t lease_index, lease_gen;   /* lease_gen not 0: it was taken by a lease */
  rg_pin *next;
};

struct rg_arg {                  /* a resolved top-level argument of a task */
  struct rg_oid oid;
  uint16_t kind;                 /* RG_V_INLINE: data in the frame; RG_V_ARENA: data in the arena, pin is set (owned by the task) */
  uint16_t is_error;
  const uint8_t *data;
  uint64_t len;
  rg_pin *pin;
};

struct rg_task {                 /* one RG_EXEC; free with rg_task_free */
  rg_task *next;
  uint64_t id;
  uint16_t flags;
  struct rg_exec x;
  struct rg_arg *top;            /* x.ntop of them */
  const uint8_t *args, *context; /* x.args_len, x.context_len bytes */
  void *user;                    /* free for the binding */
  _Atomic uint64_t taken;        /* a generator's: the latest RESUME, which may come before the task has begun; look after resume is listened to */
  rg_task *gen_next;             /* mu */
  uint8_t frame[];
};

struct rg_callbacks {            /* run on whichever thread reads, without mu and (in Python) without the GIL: only note and signal */
  void *arg;
  void (*template_def)(void *arg, uint64_t number, const uint8_t *map, size_t len);
  void (*cancel)(void *arg, uint64_t task, int force);   /* for a task that has begun; queued ones are answered by the client itself */
  void (*resume)(void *arg, uint64_t task, uint64_t consumed);
  void (*tasks)(void *arg);      /* tasks were queued and no thread sits in rg_task_next */
  void (*exit)(void *arg, int force);
  void (*gone)(void *arg);       /* the engine is gone.  a worker's process ends here */
};

/* Called now and then by a thread that blocks (after EINTR, at least every 100 ms), with no lock: not 0 makes the wait return EINTERRUPTED. */
typedef int (*rg_check_fn)(void *arg);
typedef int32_t (*rg_input_fn)(uint64_t conn, const void *frames, size_t len);

/* ---- life */
rg_client *rg_client_new(const struct rg_callbacks *cb);
int rg_client_embed(rg_client *c, rg_input_fn input, uint64_t conn);       /* then the engine calls rg_client_deliver */
void rg_client_deliver(void *c, const void *frames, size_t len);
int rg_client_connect(rg_client *c, const char *path, const void *hello, size_t len, int64_t timeout_ns);  /* socket, HELLO, WELCOME */
int rg_client_adopt(rg_client *c, int fd, int arena_fd, int64_t timeout_ns);  /* worker: an open socket; waits for WELCOME */
int rg_client_arena(rg_client *c, int fd, uint64_t size);                  /* maps the arena (read-write; handed out read-only) */
const uint8_t *rg_client_welcome(rg_client *c, size_t *len);               /* the WELCOME map; NULL before it came */
const char *rg_client_refusal(rg_client *c);                               /* the engine's words after EVERSION; NULL else */
void rg_client_set_prefix(rg_client *c, uint32_t prefix);                  /* the caller reads it from WELCOME or `prefix.next` */
void rg_client_close(rg_client *c);     /* ends the monitor, wakes every waiter with ESHUTDOWN, closes the socket; the memory stays until refs are gone */
void rg_give_back(rg_client *c);        /* before it is closed: what was lent and is not being written to, which the engine else keeps until the process is dead */
int rg_client_fd(rg_client *c);         /* the socket, for an event loop; -1 when embedded */
int rg_client_alive(rg_client *c);
void rg_fork_child(void);               /* pthread_atfork handler: from now on every call returns EFORKED, every registered descriptor is closed */
void rg_fork_register_fd(int fd, int on);
extern _Atomic int rg_forked;

/* ---- numbers and references */
uint64_t rg_next_number(rg_client *c);  /* a new task number; 0 when a new prefix must be fetched first (CALL prefix.next) */
rg_slot *rg_slot_new(rg_client *c, uint64_t task, uint32_t index, int asked);   /* own object, one handle */
rg_slot *rg_slot_ref(rg_client *c, struct rg_oid oid);                     /* a reference that came in a value: finds or makes, one handle more */
void rg_slot_incref(rg_slot *s);
void rg_slot_decref(rg_client *c, rg_slot *s);
void rg_pin_incref(rg_pin *p);
void rg_pin_decref(rg_pin *p);
void rg_refs_flush(rg_client *c);       /* sends ADDREF, RELEASE, UNPIN that wait */

/* ---- sending.  Frames go out in the order of the calls of one thread; references met are announced first */
int rg_send(rg_client *c, uint16_t type, uint16_t flags, uint64_t id, const void *p1, size_t n1, const void *p2, size_t n2);
int rg_template(rg_client *c, uint64_t number, const void *map, size_t len);
/* returns: out, nreturns slots (none for streaming: then index 1, one slot) with one handle each; ESHUTDOWN etc. otherwise */
int rg_submit(rg_client *c, uint64_t task, uint16_t flags, const struct rg_submit *s, const struct rg_oid *top,
              const struct rg_oid *nested, const void *args, rg_counter *counter, rg_slot **returns);
int rg_put(rg_client *c, uint64_t task, const void *blob, size_t len, int is_error, const struct rg_oid *refs, uint32_t nrefs, rg_slot **out);
/* message: malloc'd, on error.  lease: may be NULL; else this process will want to read the object: malloc'd, or NULL when there is none */
int rg_create(rg_client *c, struct rg_oid oid, uint64_t size, int64_t timeout_ns, rg_check_fn check, void *arg,
              uint8_t **data, struct rg_lease **lease, char **message);
void rg_slot_stored(rg_slot *s, uint64_t len, int is_error, struct rg_lease *lease);   /* the value of a new slot is in such space; takes lease */
int rg_seal(rg_client *c, struct rg_oid oid, uint64_t len, int is_error, const struct rg_oid *refs, uint32_t nrefs);
int rg_abort(rg_client *c, struct rg_oid oid);
void rg_copy(void *dst, const void *src, size_t n);                        /* memory speed: non-temporal and on two threads where that pays */
void rg_fill(rg_client *c, uint8_t *dst, const void *src, size_t n);       /* the same into space of rg_create, whose pages may be fresh */
void rg_touch(rg_client *c, const uint8_t *p, size_t n);                   /* faults pages of such space in, for writing by other means */
int rg_cancel(rg_client *c, uint64_t task, int force, int recursive);
int rg_kill(rg_client *c, uint64_t actor, int no_restart);
int rg_consumed(rg_client *c, uint64_t task, uint64_t count);              /* UINT64_MAX: dropped */

/* ---- waiting */
/* Waits until `need` of the n slots have their value.  task: what this thread runs (0: nothing), for BLOCKED/UNBLOCKED.
 * 0, ETIMEDOUT, EINTERRUPTED, ESHUTDOWN, ECONNECTION, or EDEADLOCK with *error the malloc'd SYSERR map. deadline: CLOCK_MONOTONIC ns, -1 never, 0 only looks. */
#define RG_OR_ERROR ((size_t)1 << (sizeof(size_t) * 8 - 1))                /* or'ed to need: an error among them is enough */
#define RG_ASIDE (RG_OR_ERROR >> 1)                                        /* or'ed to need: a thread beside the task's own waits, and the task may go on */
int rg_wait(rg_client *c, rg_slot **slots, size_t n, size_t need, uint64_t task, int64_t deadline, rg_check_fn check, void *arg,
            uint8_t **error, size_t *error_len);
/* For slots in state ARENA: out[i] = a new pin (one ref) or NULL when the value turned out to be inline or an error (then the slot says so). */
int rg_pin_slots(rg_client *c, rg_slot **slots, size_t n, rg_pin **out, uint64_t task, int64_t deadline, rg_check_fn check, void *arg);
rg_pin *rg_pin_own(rg_client *c, rg_slot *s);   /* for a slot in state ARENA: a new pin, if this process may take it without asking; else NULL */
int rg_call(rg_client *c, const void *payload, size_t len, int64_t timeout_ns, rg_check_fn check, void *arg,
            uint8_t **reply, size_t *reply_len);                           /* status of RG_REPLY; reply malloc'd, a message on error */
int rg_logs(rg_client *c, int64_t timeout_ns, rg_check_fn check, void *arg, uint8_t **map, size_t *len);  /* next RG_LOG, malloc'd; ETIMEDOUT, ESHUTDOWN */

/* ---- completion queue, for event loops */
int rg_cq_fd(rg_client *c);                                                /* an eventfd, readable when there is something */
int rg_cq_watch(rg_client *c, rg_slot *s, uint64_t token);                 /* 1: it is there already, nothing will come */
size_t rg_cq_poll(rg_client *c, uint64_t *tokens, size_t max);             /* clears the eventfd */

/* ---- running tasks */
rg_task *rg_task_try(rg_client *c);                                        /* from what was read already; NULL: nothing */
rg_task *rg_task_next(rg_client *c, int64_t deadline, rg_check_fn check, void *arg, int *status);  /* blocks; first sends what waits; status 0, ETIMEDOUT, EINTERRUPTED (also when woken for nothing: call again), ESHUTDOWN (EXIT) */
int rg_pump(rg_client *c);                                                 /* for an event loop that owns the fd: reads what is there, never blocks; number of tasks waiting, or -code */
void rg_client_pumped(rg_client *c, int on);                               /* an event loop reads by rg_pump: the monitor leaves the socket alone */
void rg_task_free(rg_client *c, rg_task *t);                               /* drops its pins */
struct rg_out {                  /* a value to send */
  uint32_t index;
  uint16_t kind;                 /* RG_V_INLINE, RG_V_ARENA (created by rg_create under the same oid), or RG_V_SYSERR (an error as text, for every language) */
  uint16_t is_error;
  const void *data;              /* inline: the blob; syserr: the map */
  uint64_t len;
  const struct rg_oid *refs;
  uint32_t nrefs;
};
/* more: further tasks are at hand, so the frame may wait a moment for company. */
int rg_result(rg_client *c, uint64_t task, uint32_t attempt, uint32_t status, uint64_t exec_ns, const struct rg_out *v, uint32_t n, int more);
int rg_item(rg_client *c, uint64_t task, const struct rg_out *v);
int rg_flush(rg_client *c);
void rg_busy(rg_client *c);                                                /* a thread begins to run user code: the monitor watches the socket meanwhile */
#endif
