/* Internal to the collectives' core.
 *
 * The ranks of a node meet in a segment: a memory file with a line per rank, two staging slots per rank, two areas for results, rings for messages and an
 * arena per rank.  What keeps them in step is a count of *steps*: each call takes a number of steps that all ranks know, a rank *posts* a step when its
 * part is done and *awaits* what it needs of the others.  The invariants:
 *
 *   1. A call begins when all ranks have posted the last step of the call before.  So a rank is never more than one call ahead, and two descriptions of
 *      calls per rank are enough.
 *   2. Chunks are counted through; chunk k uses the slots and the result of parity k & 1.  A rank writes to slot or result of chunk k + 2 only after it has
 *      awaited a step that every rank posts after it has read those of chunk k.
 *   3. Words that ranks sleep on count in steps of 2.  Bit 0 says that somebody died or left, or that the group is broken: whoever sees it looks closer. */
#ifndef RGC_CORE_H
#define RGC_CORE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../capi/include/raygo_status.h"
#include "collective.h"

#define RGC_LINE 128               /* two cache lines: the prefetcher takes them in pairs */
#define RGC_RINGS_CELLS 8u
#define RGC_CELL (32u << 10)

/* ---- what ranks of a node share */

struct rgc_desc {                  /* what a rank has called */
  uint32_t kind, dtype, op;
  int32_t root;
  uint64_t count, sum;             /* sum: of the sizes of all blocks, for calls in which every rank knows them */
  uint64_t src_at, dst_at;         /* where in its arena the arrays are, + 1; 0: elsewhere */
};

enum { RGC_ABSENT, RGC_PRESENT, RGC_LEFT, RGC_DEAD };

struct rgc_line {                  /* one rank's; only it writes, but for `state` and bit 0 of words */
  _Alignas(RGC_LINE) _Atomic uint32_t step;
  _Atomic uint32_t sleepers;       /* who waits for this rank's step */
  _Atomic uint32_t state;
  int32_t rank, pid;
  uint64_t start;                  /* of the process, as /proc says it */
  _Atomic uint64_t begun, done;    /* collectives */
  _Alignas(RGC_LINE) struct rgc_desc desc[2];
  _Alignas(RGC_LINE) _Atomic uint32_t bell;   /* rings when a message or room for one may have come */
  _Atomic uint32_t bell_sleepers;
};

struct rgc_seg {
  uint64_t magic, nonce, bytes;    /* bytes: of the whole file */
  uint32_t nlocal, version;
  uint64_t slot_bytes, slot_stride, slots_at, results_at, rings_at, arenas_at, arena_bytes;
  _Atomic uint32_t why_state;      /* 0, 1: being written, 2: there */
  int32_t why_code, why_rank;
  char why[1008];
  _Alignas(RGC_LINE) _Atomic uint32_t phase;  /* the last step that all have posted */
  _Atomic uint32_t phase_sleepers;
  struct { _Alignas(RGC_LINE) _Atomic uint64_t n; } arrived[4];   /* posts of step s are counted in s & 3 */
  struct rgc_line line[RGC_MAX_LOCAL];
};

struct rgc_cell {                  /* of a ring; a message is one cell or more */
  uint32_t len, tag;
  uint64_t total;                  /* of the message, in its first cell */
  _Alignas(64) uint8_t data[RGC_CELL];
};

struct rgc_ring {                  /* from one rank to another */
  _Alignas(RGC_LINE) _Atomic uint32_t head;   /* cells written */
  _Alignas(RGC_LINE) _Atomic uint32_t tail;   /* cells read */
  _Alignas(RGC_LINE) struct rgc_cell cell[RGC_RINGS_CELLS];
};

/* ---- a rank's own */

struct rgc_work {
  rgc_work *next;
  rgc_call call;
  rgc_block *blocks;               /* copies of srcs and dsts, owned */
  int64_t timeout_ns;
  void (*done)(void *arg, const rgc_error *err);
  void *arg;
  _Atomic int refs;
  _Atomic uint32_t state;          /* a futex: 0 queued, 1 under way, 2 ended */
  int source;
  rgc_group *group;
  rgc_error err;
};

struct rgc_ctx {                   /* one call on one thread */
  rgc_group *g;
  const rgc_call *call;
  int64_t deadline, began, log_at; /* CLOCK_MONOTONIC ns; deadline -1: none */
  int (*check)(void *arg);
  void *arg;
  bool spins;
  bool p2p;
  uint64_t seq;
  rgc_error *err;                  /* never NULL */
};

struct rgc_msg {                   /* a send or receive under way; p2p.c */
  struct rgc_msg *next;
  bool send, ended;
  bool met;                        /* a receive: it has its message; a send: some of it has gone */
  int peer, source;                /* local index, -1: any; rank */
  bool far;                        /* the transport has it */
  uint8_t *buf;
  size_t bytes, at;
  struct rgc_ctx x;
  rgc_work *work;                  /* NULL: it lies on the stack of a thread that waits for it */
  rgc_p2p net;
  rgc_error err;
};

/* The group's own threads, on which its users' functions are called when a call has ended. */
typedef enum { RGC_NOWHERE, RGC_ON_QUEUE, RGC_ON_MESSAGES } rgc_home;

struct rgc_stray { struct rgc_stray *next; int peer; uint32_t tag; size_t bytes, at; uint8_t data[]; };

struct rgc_group {
  char *name, *node_name;
  int rank, size, me, nlocal;      /* me: index on this node */
  int node, nodes;
  int *node_of, *local_of, *leader_of;       /* of ranks; local_of: -1 on other nodes */
  char **node_names;
  int rank_of[RGC_MAX_LOCAL];
  int64_t timeout_ns;
  rgc_store store;
  size_t arena_option;
  int (*net_open)(void *arg, const rgc_net_spec *spec, rgc_net *out, rgc_error *err);
  void *net_arg;
  void (*log)(void *arg, const char *line);
  void *log_arg;
  uint32_t splits;
  unsigned fork_count;             /* rgc_forks when it was made */

  struct rgc_seg *seg;
  size_t map_bytes;
  int fd;                          /* of the segment's file, for a forked child: segment.c */
  rgc_group *next_mapped;
  struct rgc_line *mine;
  _Atomic int map_refs;            /* the group, each work, and each piece of its arena in use */
  rgc_net net;
  bool has_net;
  _Atomic int net_aborted;

  /* Of the thread whose turn it is. */
  uint32_t step, seen;             /* posted; known to have been posted by all */
  uint32_t chunk;
  uint64_t seq;                    /* collectives begun */
  bool unchecked;                  /* whether the others' last calls fit is not known yet */
  int64_t spin_ns, spin_max;
  bool crowded;                    /* more ranks than cores */
  _Atomic bool calling;            /* a collective is under way; it ends before `busy` does, which its waits and `done` need not see */
  int cores;
  rgc_block *scratch;              /* 2 × size */

  pthread_mutex_t mu;              /* guards what follows */
  pthread_cond_t more, room, out;  /* for the worker; the queue got shorter; the last call left a group that closes */
  bool busy, closing, thread;      /* busy: it is some thread's turn */
  rgc_home closer;                 /* whose thread is to end the group: it was closed there */
  rgc_work *head, *tail;
  int queued, inside;              /* inside: calls in this group now */
  pthread_t worker;

  pthread_mutex_t p2p_mu;          /* guards what follows */
  struct rgc_msg *msgs, **msgs_tail;
  struct rgc_stray *strays, **strays_tail;
  struct rgc_msg *filling[RGC_MAX_LOCAL];    /* the receive that gets what comes from there now */
  struct rgc_stray *straying[RGC_MAX_LOCAL];
  size_t dropping[RGC_MAX_LOCAL];  /* bytes of a message that nobody wants */
  size_t stray_bytes;
  bool p2p_thread, p2p_stop;
  pthread_t p2p_worker;

  pthread_mutex_t arena_mu;
  struct rgc_piece *pieces;        /* arena.c */
  _Atomic uint8_t *touched[RGC_MAX_LOCAL];   /* which 2 MiB of whose arena this process has populated */

  rgc_group *next_group;           /* watch.c's, as is the next */
  bool watched[RGC_MAX_LOCAL];
};

/* ---- error.c */
int rgc_fail(rgc_error *err, int code, int rank, const char *format, ...) __attribute__((format(printf, 4, 5)));
void rgc_describe(char *to, size_t n, uint32_t kind, uint32_t dtype, uint32_t op, int root, uint64_t count);
void rgc_who(rgc_group *g, int local, char *to, size_t n);        /* "rank 2 (pid 431 on node a)" */
void rgc_log(rgc_group *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t rgc_now(void);

/* ---- wait.c */
extern _Atomic unsigned rgc_forks;
void rgc_post(struct rgc_ctx *x);                                  /* the next step */
int rgc_await_all(struct rgc_ctx *x, uint32_t step);
int rgc_await_rank(struct rgc_ctx *x, int local, uint32_t step);
void rgc_ctx_init(struct rgc_ctx *x, rgc_group *g, const rgc_call *call, const rgc_wait *wait, rgc_error *err);
/* Sleeps once, at most until *word is not `seen`.  0: look again. */
int rgc_sleep(struct rgc_ctx *x, _Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleepers, uint32_t step);
int rgc_timed_out(struct rgc_ctx *x, uint32_t step);
void rgc_log_wait(struct rgc_ctx *x, uint32_t step);
void rgc_start_clock(struct rgc_ctx *x);
int rgc_usable(struct rgc_ctx *x);                                 /* 0: the call may begin */
void rgc_break(rgc_group *g, int code, int rank, const char *why);
int rgc_broke(rgc_group *g, rgc_error *err);                       /* 0, or why */
void rgc_stir(rgc_group *g);                                       /* sets bit 0 everywhere and wakes everybody */
void rgc_ring_bell(rgc_group *g, int local);
void rgc_futex_wake(_Atomic uint32_t *word, int n, bool shared);
int rgc_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns, bool shared);
int rgc_depart(rgc_group *g, int local, uint32_t state);           /* dead or left */
int rgc_p2p_gone(struct rgc_ctx *x, int local);                    /* a message from or to there will never go */

/* ---- watch.c */
int rgc_watch(rgc_group *g, rgc_error *err);
void rgc_unwatch(rgc_group *g);
uint64_t rgc_start_time(int pid);
char rgc_process_state(int pid);
bool rgc_all_watched(void);
void rgc_look_at_pids(rgc_group *g);                               /* where there are no pidfds */

/* ---- segment.c */
int rgc_segment_make(rgc_group *g, uint64_t nonce, rgc_error *err);
int rgc_segment_join(rgc_group *g, uint64_t nonce, int pid, int fd, rgc_error *err);
static inline uint8_t *rgc_base(const rgc_group *g) { return (uint8_t *)g->seg; }
static inline uint8_t *rgc_slot(const rgc_group *g, int local, uint32_t chunk) {
  return rgc_base(g) + g->seg->slots_at + ((size_t)local * 2 + (chunk & 1)) * g->seg->slot_stride;
}
static inline uint8_t *rgc_result(const rgc_group *g, uint32_t chunk) { return rgc_base(g) + g->seg->results_at + (chunk & 1) * g->seg->slot_stride; }
static inline struct rgc_ring *rgc_ring_of(const rgc_group *g, int from, int to) {
  return (struct rgc_ring *)(rgc_base(g) + g->seg->rings_at) + from * g->nlocal + to;
}
static inline uint8_t *rgc_arena(const rgc_group *g, int local) { return rgc_base(g) + g->seg->arenas_at + (size_t)local * g->seg->arena_bytes; }
uint64_t rgc_arena_at(const rgc_group *g, const void *p, size_t n);   /* where in the own arena, + 1; 0: not there */
uint8_t *rgc_peer(rgc_group *g, int local, uint64_t at, size_t n); /* the same of another rank, populated */

/* ---- kernels.c */
typedef void (*rgc_kernel)(void *dst, const void *const *src, int nsrc, size_t count, int ranks);
/* dst[i] = src[0][i] op src[1][i] op …; dst may be one of the sources.  ranks: what avg divides by; 0: it does not divide. */
rgc_kernel rgc_reducer(uint32_t dtype, uint32_t op);               /* NULL: they do not go together */
void rgc_divide(void *p, size_t count, uint32_t dtype, int by);    /* in place, for avg after several nodes' sums */
void rgc_copy(void *dst, const void *src, size_t n);

/* ---- queue.c */
int rgc_valid(rgc_group *g, const rgc_call *c, rgc_error *err);
void rgc_queue_close(rgc_group *g);
void rgc_queue_closing(rgc_group *g);                              /* nothing may begin any more; waits for nothing */
/* A thread of the group's begins, or ends: an end may have to end the group too. */
void rgc_come_home(rgc_group *g, rgc_home where);
void rgc_leave_home(rgc_group *g, rgc_home where);
rgc_home rgc_at_home(const rgc_group *g);                          /* which of the group's threads this is */
void rgc_work_end(rgc_work *w, const rgc_error *err);
void rgc_work_ref(rgc_work *w);

/* ---- ops.c, multi.c: a whole collective, on the thread whose turn it is */
int rgc_collective(struct rgc_ctx *x);
int rgc_local(struct rgc_ctx *x, const rgc_call *c);               /* among the ranks of this node: root is a local index, blocks are the node's */
int rgc_collective_nodes(struct rgc_ctx *x);

/* ---- p2p.c */
int rgc_message(struct rgc_ctx *x, int *source);
int rgc_message_start(rgc_group *g, rgc_work *w, rgc_error *err);
int rgc_message_cancel(rgc_work *w);
void rgc_p2p_closing(rgc_group *g);
void rgc_p2p_close(rgc_group *g);
struct rgc_part { bool send; int peer; void *buf; size_t bytes; };
int rgc_exchange(struct rgc_ctx *x, const struct rgc_part *parts, int n);   /* all at once, as part of a collective */
#define RGC_TAG_END 0xffff0000u    /* tags from here on are the collectives' own */

/* ---- group.c */
int rgc_enter(rgc_group *g, rgc_error *err);                       /* a call begins; not 0: it must not */
void rgc_leave(rgc_group *g);
void rgc_finish(rgc_group *g);                                     /* the rest of rgc_close */
#endif
