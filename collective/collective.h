/* collective.h: groups of processes that reduce, gather and exchange arrays.  Plain C: compiled into Python's binding, so that a training worker
 * loads no Go, and into libraygo.so, where raygo.h and the Go package `collective` stand on it.
 *
 * A group has `size` ranks.  They find each other through a store (set and get of keys).  Ranks on one node share a memory file and meet there; between
 * nodes the transport is whoever fills rgc_net.  An operation is described by an rgc_call and either run (rgc_run) or started (rgc_start).
 *
 * Order     All ranks of a group make the same collective calls in the same order; a rank's calls take effect in the order in which they were made,
 *           started ones too.  Calls that do not fit together (another operation, size or type) are found out and fail on every rank, saying who
 *           called what.  Sends and receives have an order of their own: per pair of ranks and tag, and never hold up a collective.
 * Failure   What fails in the middle of a collective breaks the group for good: a rank that died, left or did not come in time, a call that was
 *           interrupted, cancelled or did not fit.  Every rank's present and later calls then fail with the same message.  The remedy is a new group,
 *           which may be made at once.
 * Threads   Any thread may call anything at any time; collectives of one group run one after the other.
 * Fork      In a forked child every call on its parent's groups returns RAYGO_EFORKED.
 * Results   Each element is reduced by one rank in the order of ranks, so all ranks get the same bits.  bfloat16 and float16 are added up in float32 and
 *           rounded once on each node, and once more for each node whose sum is added.  Integers wrap around.  min and max of floats give NaN where any rank has one.  Of bool, sum, max and bor are "or", product,
 *           min and band are "and"; avg divides the sum by the number of ranks, integers towards zero; bool has no avg, floats no bitwise operations.
 * Codes     Functions return 0 or a code of raygo_status.h and, unless err is NULL, say in it what happened. */
#ifndef RGC_COLLECTIVE_H
#define RGC_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RGC_MAX_LOCAL 64          /* ranks on one node */
#define RGC_MAX_SIZE 4096         /* ranks of a group */

typedef struct rgc_group rgc_group;
typedef struct rgc_work rgc_work;

enum rgc_dtype {                  /* numbers that are part of the C ABI and of what ranks tell each other */
  RGC_INT8 = 0,
  RGC_UINT8 = 1,
  RGC_INT16 = 2,
  RGC_UINT16 = 3,
  RGC_INT32 = 4,
  RGC_UINT32 = 5,
  RGC_INT64 = 6,
  RGC_UINT64 = 7,
  RGC_FLOAT16 = 8,
  RGC_BFLOAT16 = 9,
  RGC_FLOAT32 = 10,
  RGC_FLOAT64 = 11,
  RGC_BOOL = 12,
  RGC_DTYPES = 13
};

enum rgc_op { RGC_SUM = 0, RGC_AVG = 1, RGC_PRODUCT = 2, RGC_MIN = 3, RGC_MAX = 4, RGC_BAND = 5, RGC_BOR = 6, RGC_BXOR = 7, RGC_OPS = 8 };

enum rgc_kind {
  RGC_BARRIER = 0,
  RGC_ALLREDUCE = 1,
  RGC_REDUCE = 2,
  RGC_BROADCAST = 3,
  RGC_ALLGATHER = 4,
  RGC_REDUCESCATTER = 5,
  RGC_GATHER = 6,
  RGC_SCATTER = 7,
  RGC_ALLTOALL = 8,
  RGC_SEND = 9,
  RGC_RECV = 10,
  RGC_KINDS = 11
};

#define RGC_ANY_SOURCE (-1)

typedef struct rgc_error {
  int code;                       /* RAYGO_E… */
  int rank;                       /* the rank that it is about, or -1 */
  char message[1008];             /* what happened, to whom, what to do */
} rgc_error;

/* How long to wait, and what else ends a wait.  timeout_ns: -1 for ever, 0: the group's.  check, which may be NULL, is called on the waiting thread after
 * signals and now and then; what is not 0 ends the wait with RAYGO_EINTERRUPTED. */
typedef struct rgc_wait {
  int64_t timeout_ns;
  int (*check)(void *arg);
  void *arg;
} rgc_wait;

/* ---- finding each other */

typedef struct rgc_store {
  void *arg;
  int (*set)(void *arg, const char *key, const void *data, size_t len, rgc_error *err);
  /* Waits until the key has a value.  *data is malloc'd.  RAYGO_ETIMEDOUT after timeout_ns. */
  int (*get)(void *arg, const char *key, int64_t timeout_ns, void **data, size_t *len, rgc_error *err);
} rgc_store;

/* ---- between nodes: filled by whoever provides the transport (see rgc_options.net_open)
 *
 * Nodes are numbered from 0; each has a leader, its lowest rank.  The four collectives are called by leaders only, by all of them in the same order,
 * never two at once, on the group's own thread.  buf is shared memory or the caller's; the result replaces it.  They return 0 or a code and fill err.
 * When a call is to end early, `broken` becomes 1 and `abort` is called: everything under way returns. */

typedef struct rgc_p2p {          /* one send or receive between ranks of different nodes; lives until done was called */
  int kind;                       /* RGC_SEND or RGC_RECV */
  int peer;                       /* rank; for RGC_RECV RGC_ANY_SOURCE is never asked of a transport */
  uint32_t tag;
  void *buf;                      /* not written to by RGC_SEND */
  size_t bytes;                   /* a message of another length is an error of both sides */
  /* Once, from any thread, also before post returns, without a lock of the transport that post or cancel take; message may be NULL. */
  void (*done)(struct rgc_p2p *op, int code, const char *message);
  void *net;                      /* the transport's own */
} rgc_p2p;

typedef struct rgc_net {
  size_t struct_size;
  void *ctx;
  int (*allreduce)(void *ctx, void *buf, size_t count, int dtype, int op, int64_t timeout_ns, rgc_error *err);   /* RGC_AVG is never asked: the core divides */
  int (*allgather)(void *ctx, void *buf, const size_t *offsets, int64_t timeout_ns, rgc_error *err);       /* node i gives bytes offsets[i] to offsets[i + 1] */
  int (*reducescatter)(void *ctx, void *buf, const size_t *offsets, int dtype, int op, int64_t timeout_ns, rgc_error *err); /* elements; node i keeps its part,
                                                                                                                   the rest of buf is left undefined */
  int (*broadcast)(void *ctx, void *buf, size_t bytes, int root_node, int64_t timeout_ns, rgc_error *err);
  void (*post)(void *ctx, rgc_p2p *op);      /* returns at once; from any rank to any rank of another node; in order per pair and tag */
  int (*cancel)(void *ctx, rgc_p2p *op);     /* 1: it had not begun, and done will not be called.  0: too late */
  void (*abort)(void *ctx, int code, int rank, const char *why); /* ends everything under way and tells the other nodes, with the words given; calls done only
                                                                    later, from another thread */
  void (*close)(void *ctx);                  /* nothing is under way any more; frees ctx */
} rgc_net;

/* What a rank whose net_open failed leaves in the store under the group's name and this: code and rank as int32_t of this machine, and the message.  A
 * transport that waits for other ranks looks for it now and then. */
#define RGC_NET_FAILED "/net/failed"

typedef struct rgc_net_spec {     /* what a transport is told; valid during net_open, the store and `group` until close */
  size_t struct_size;
  const char *name;               /* of the group; keys in the store begin with it and a '/' */
  int rank, size;
  int node, nodes;                /* this rank's node, and how many there are */
  const int *node_of;             /* [size] */
  const int *leader_of;           /* [nodes] */
  const char *const *node_names;  /* [nodes] for messages */
  const rgc_store *store;
  int64_t timeout_ns;
  /* Breaks the group, from any thread: another node is gone, or told why it broke.  rank: whom it is about, or -1. */
  void (*fail)(rgc_group *group, int code, int rank, const char *message);
  rgc_group *group;
} rgc_net_spec;

/* ---- groups */

typedef struct rgc_options {
  size_t struct_size;
  const char *name;               /* 1 to 200 bytes; a store has it once: another group, also a later one, takes another name or a fresh store */
  int rank, size;
  int64_t timeout_ns;             /* of every call and of the meeting itself; 0: 30 minutes; -1: none */
  rgc_store store;                /* used while the group is made, and by rgc_split later */
  const char *node;               /* name of this node in messages; ranks share memory only if it is the same; NULL: the host's name */
  size_t arena_bytes;             /* what rgc_alloc can hand out on each rank; address space only until used; 0: 16 GiB */
  /* Called when ranks are on several nodes; NULL: that is an error. */
  int (*net_open)(void *arg, const rgc_net_spec *spec, rgc_net *out, rgc_error *err);
  void *net_arg;
  /* A line for the log: what is being waited for.  From any thread.  NULL: stderr. */
  void (*log)(void *arg, const char *line);
  void *log_arg;
} rgc_options;

/* Meets the other ranks; returns when all are there. */
int rgc_open(const rgc_options *options, const rgc_wait *wait, rgc_group **out, rgc_error *err);

/* Leaves the group: what is queued here fails, what others still wait for from this rank fails there.  Waits for calls under way in this process, which end at
 * once; not where it is called by a `done` of the group's own, whose thread then ends the group after it.  NULL is fine.  Memory of rgc_alloc stays mapped until it is freed. */
void rgc_close(rgc_group *group);

/* Between these two, calls on a group that was closed meanwhile return RAYGO_ESTALE: for callers that cannot tell when their last call is.  rgc_close drops the
 * reference that rgc_open made. */
void rgc_hold(rgc_group *group);
void rgc_drop(rgc_group *group);

/* Breaks the group on all ranks; `why` may be NULL. */
int rgc_abort(rgc_group *group, const char *why, rgc_error *err);

/* Parts the group by color: ranks with the same one form a new group, ordered by key and then by rank.  A collective call.  color < 0: into none (*out is NULL). */
int rgc_split(rgc_group *group, int color, int key, const rgc_wait *wait, rgc_group **out, rgc_error *err);

int rgc_rank(const rgc_group *group);
int rgc_size(const rgc_group *group);
int rgc_local_size(const rgc_group *group);           /* ranks on this node */
int rgc_node_count(const rgc_group *group);
const char *rgc_name(const rgc_group *group);
int rgc_broken(rgc_group *group, rgc_error *err);     /* 0, or the code with which calls fail from now on */

/* Memory that all ranks of the node see, 64-aligned: arrays in it are reduced in place, without copies.  Contents are zero. */
int rgc_alloc(rgc_group *group, size_t bytes, void **out, rgc_error *err);
void rgc_free(rgc_group *group, void *p);             /* also after rgc_close; NULL is fine */

/* ---- operations */

typedef struct rgc_block {
  void *data;                     /* may be NULL when count is 0 */
  size_t count;                   /* elements */
} rgc_block;

/* n is the group's size.
 *   kind            src                        dst                       count           root / peer, tag
 *   BARRIER         -                          -                         -
 *   ALLREDUCE       count                      count                     same on all
 *   REDUCE          count                      count, root only          same on all     root
 *   BROADCAST       count, root only           count, not at root        same on all     root
 *   ALLGATHER       count                      n × count, or dsts        own
 *   REDUCESCATTER   n × count, or srcs         count                     own
 *   GATHER          count                      n × count or dsts, root   own             root
 *   SCATTER         n × count or srcs, root    count                     own             root
 *   ALLTOALL        n × count, or srcs         n × count, or dsts        per pair
 *   SEND            count                      -                         own             peer, tag
 *   RECV            -                          count                     own             peer or RGC_ANY_SOURCE, tag
 * With srcs or dsts (n blocks, one per rank) sizes may differ: block i belongs to rank i, and both sides of a pair name the same count.
 * src and dst may be the same memory where they have the same size, and a rank's own block may be its src or dst. */
typedef struct rgc_call {
  uint32_t kind;                  /* rgc_kind */
  uint32_t dtype;                 /* rgc_dtype */
  uint32_t op;                    /* rgc_op */
  int32_t root;                   /* root or peer */
  uint32_t tag;
  uint32_t reserved;
  size_t count;
  const void *src;
  void *dst;
  const rgc_block *srcs, *dsts;   /* NULL: src and dst */
} rgc_call;

/* Runs the call and returns when this rank's part is done.  source, which may be NULL, is set by RECV. */
int rgc_run(rgc_group *group, const rgc_call *call, const rgc_wait *wait, int *source, rgc_error *err);

/* Queues the call; the memory that it names (not the call itself nor its arrays of blocks) must stay until it is done.  Waits while 1024 calls are queued.
 * done, which may be NULL, is called once from a thread of the group's when the call has ended, before waits for it return.  It may start calls (as many again
 * as fit into the queue, since it cannot wait for room), abort and close the group; what would wait for its own thread fails with RAYGO_EDEADLOCK.
 * *out, which may be NULL, is given back with rgc_work_free. */
int rgc_start(rgc_group *group, const rgc_call *call, const rgc_wait *wait, void (*done)(void *arg, const rgc_error *err), void *arg, rgc_work **out,
              rgc_error *err);

int rgc_work_wait(rgc_work *work, const rgc_wait *wait, int *source, rgc_error *err);   /* how the call ended; ETIMEDOUT of the wait itself breaks nothing */
bool rgc_work_done(const rgc_work *work);
/* 1: the call ends with RAYGO_ECANCELED.  A receive or send that has not met its other side is just forgotten; a collective that has not begun breaks the group,
 * as the other ranks need it.  0: it had begun, or has ended. */
int rgc_work_cancel(rgc_work *work);
void rgc_work_free(rgc_work *work);  /* the call goes on */

/* A folder that all ranks can write to as a store.  The store is given back when no group uses it any more. */
int rgc_folder_store(const char *folder, rgc_store *out, rgc_error *err);
void rgc_folder_store_free(rgc_store *store);

/* All of it, for code that is linked apart. */
struct rgc_api {
  int (*open)(const rgc_options *, const rgc_wait *, rgc_group **, rgc_error *);
  void (*close)(rgc_group *);
  void (*drop)(rgc_group *);
  void (*hold)(rgc_group *);
  int (*abort)(rgc_group *, const char *, rgc_error *);
  int (*split)(rgc_group *, int, int, const rgc_wait *, rgc_group **, rgc_error *);
  int (*rank)(const rgc_group *);
  int (*size)(const rgc_group *);
  int (*local_size)(const rgc_group *);
  int (*node_count)(const rgc_group *);
  int (*alloc)(rgc_group *, size_t, void **, rgc_error *);
  void (*free)(rgc_group *, void *);
  int (*run)(rgc_group *, const rgc_call *, const rgc_wait *, int *, rgc_error *);
  int (*start)(rgc_group *, const rgc_call *, const rgc_wait *, void (*)(void *, const rgc_error *), void *, rgc_work **, rgc_error *);
  int (*work_wait)(rgc_work *, const rgc_wait *, int *, rgc_error *);
  bool (*work_done)(const rgc_work *);
  int (*work_cancel)(rgc_work *);
  void (*work_free)(rgc_work *);
  int (*folder_store)(const char *, rgc_store *, rgc_error *);
  void (*folder_store_free)(rgc_store *);
};
const struct rgc_api *rgc_functions(void);

size_t rgc_dtype_size(uint32_t dtype);                /* 0: there is no such type */
const char *rgc_dtype_name(uint32_t dtype);
const char *rgc_kind_name(uint32_t kind);
const char *rgc_op_name(uint32_t op);

#ifdef __cplusplus
}
#endif
#endif
