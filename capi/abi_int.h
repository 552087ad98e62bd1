/* Internal to abi*.c, which are raygo.h over the client (client.h) and, where this process holds it, the engine (engine.h).
 *
 * A public call looks its handles up (rga_use), works on what they stand for, and lets them go (rga_unuse).  What a handle stands for lives until it
 * was dropped and the last call that uses it has returned.  No call holds a lock of this layer while it waits. */
#ifndef RAYGO_ABI_INT_H
#define RAYGO_ABI_INT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "engine.h"
#include "include/raygo.h"
#include "include/raygo_msgpack.h"

/* ------------------------------------------------------------------------------------------------ handles (abi_handles.c) */

enum rga_kind { RGA_RUNTIME = 1, RGA_OBJECT, RGA_TEMPLATE, RGA_ACTOR, RGA_TASK, RGA_TOKEN, RGA_GROUP, RGA_WORK };

struct rga_rt;

struct rga_entry {
  _Atomic uint64_t state;      /* generation << 32 | RGA_DROPPED | calls that use it now */
  _Atomic int32_t refs;        /* objects: what retain and release count */
  _Atomic uint32_t next_free;  /* number + 1 of the next free entry; 0: none */
  _Atomic int unsealed;        /* objects of raygo_create: 1 until seal, abort or the last release */
  uint32_t number;             /* its own */
  int kind;
  void *ptr;                   /* rg_slot, rga_template, rga_task, rga_token, group, work; owned */
  struct rga_rt *rt;           /* holds one reference; NULL for tokens, groups, works */
};
#define RGA_DROPPED 0x80000000u

void rga_group_free(void *group);                            /* abi_group.c */
void rga_work_free(void *work);

uint64_t rga_new(int kind, void *ptr, struct rga_rt *rt);    /* takes over ptr and a reference on rt made here; 0 without memory (then it has not) */
struct rga_entry *rga_use(uint64_t h, int kind);             /* NULL: stale */
void rga_unuse(struct rga_entry *e);
bool rga_drop(struct rga_entry *e);                          /* in use by the caller; false: somebody else dropped it */

/* ------------------------------------------------------------------------------------------------ errors and buffers (abi.c) */

raygo_status rga_fail(raygo_error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
raygo_status rga_said(raygo_error *err, int status, const char *what, const char *text, size_t len);   /* text: the engine's own words, may be NULL */
raygo_status rga_map_error(raygo_error *err, int status, const uint8_t *map, size_t len);   /* a SYSERR map; status 0: its own */
raygo_status rga_stale(raygo_error *err, const char *what);
raygo_status rga_forked(raygo_error *err);
raygo_status rga_code(raygo_error *err, int status, const char *doing);   /* a code of the client, in words */

#define RGA_ENTER(err) \
  do { \
    if (atomic_load_explicit(&rg_forked, memory_order_relaxed)) return rga_forked(err); \
  } while (0)
#define RGA_NEED(err, condition, text) \
  do { \
    if (!(condition)) return rga_fail(err, RAYGO_EINVAL, "%s", text); \
  } while (0)

bool rga_buf_copy(raygo_buf *out, const void *data, size_t len, uint32_t format);
bool rga_buf_take(raygo_buf *out, uint8_t *data, size_t len, uint32_t format);                 /* malloc'd; freed also on failure */
bool rga_buf_slot(raygo_buf *out, rg_client *c, rg_slot *s, const uint8_t *data, size_t len, uint32_t format);
bool rga_buf_pin(raygo_buf *out, rg_pin *p, const uint8_t *data, size_t len, uint32_t format); /* one pin reference more */

/* Reads a caller's options into a struct of this library's size.  0: the caller's is too small, or says what this library does not know. */
int rga_options(void *to, size_t size, size_t least, const void *from);

/* ------------------------------------------------------------------------------------------------ waiting */

struct rga_wait {              /* a timeout and a token, for the length of one call */
  struct rga_entry *token;
  int64_t deadline;            /* CLOCK_MONOTONIC ns; -1: never; 0: do not wait */
  rg_check_fn check;           /* NULL without a token */
  void *arg;
};
raygo_status rga_wait_begin(struct rga_wait *w, int64_t timeout_ns, raygo_token token, raygo_error *err);
void rga_wait_end(struct rga_wait *w);
int64_t rga_left(const struct rga_wait *w);   /* what remains, as a timeout */
int64_t rga_now(void);

struct rga_turn {              /* one thread at a time; the others wait for it as long as they may */
  pthread_mutex_t mu;
  pthread_cond_t cv;
  bool taken;
};
void rga_turn_init(struct rga_turn *t);
void rga_turn_free(struct rga_turn *t);
int rga_turn_take(struct rga_turn *t, const struct rga_wait *w);
void rga_turn_give(struct rga_turn *t);

/* ------------------------------------------------------------------------------------------------ runtime (abi_runtime.c) */

struct rga_def {               /* a template of the engine's, for tasks that this process serves; lives as long as the runtime */
  struct rga_def *next;
  uint64_t number;
  bool plain;                  /* its arguments are msgpack */
  size_t name_len;
  char name[];
};

struct rga_task {
  rg_task *t;
  struct rga_def *def;
  struct rga_rt *rt;
  struct rga_task *prev, *next;   /* rt->running, under rt->mu */
  _Atomic int cancelled;
  _Atomic int answering;
  int64_t began;
};

struct rga_template {
  uint32_t number;
  uint32_t kind;
  uint32_t num_returns;
  uint32_t get_if_exists;
  raygo_view actor_name, name_space;   /* owned */
};

struct rga_cached { struct rga_cached *next; uint32_t number; size_t len; char name[]; };

struct rga_rt {
  rg_client *c;
  rg_slot *anchor;             /* keeps the client's memory until the last handle and call have gone */
  _Atomic int64_t refs;
  uint64_t engine, conn;       /* 0: connected */
  uint64_t incarnation;
  uint32_t job;
  char *name_space;
  _Atomic uint32_t templates;  /* numbers given to templates so far */
  _Atomic int down;            /* raygo_shutdown has begun */
  pthread_mutex_t mu;          /* defs, cached, running; held for a few steps only */
  struct rga_def *defs;
  struct rga_cached *cached;
  struct rga_task *running;
  pthread_mutex_t number_mu;   /* while a new prefix is fetched */
  struct rga_turn task_turn, log_turn;
};
void rga_rt_unref(struct rga_rt *rt);
raygo_status rga_use_rt(raygo_runtime h, struct rga_entry **e, raygo_error *err);   /* with *e in use on success */
raygo_status rga_number(struct rga_rt *rt, const struct rga_wait *w, uint64_t *out, raygo_error *err);
/* A question to the engine: method, and what `argument` wrote (nothing: nil).  *reply malloc'd. */
raygo_status rga_ask(struct rga_rt *rt, const char *method, raygo_view argument, const struct rga_wait *w, uint8_t **reply, size_t *len, raygo_error *err);
void rga_key_view(raygo_mp *w, const char *key, raygo_view text);
void rga_key_uint(raygo_mp *w, const char *key, uint64_t v);
static inline uint64_t rga_uint(const raygo_mp_value *v) { return v->type == RAYGO_MP_UINT ? v->u : (uint64_t)v->i; }

/* ------------------------------------------------------------------------------------------------ objects and tasks */

#define RGA_MAX (SIZE_MAX / 64)      /* counts and lengths beyond this are mistakes */
uint32_t rga_known_format(uint32_t format);                /* 1: a value may be stored so */
raygo_status rga_take_slots(struct rga_rt *rt, const raygo_object *objects, size_t n, struct rga_entry **e, raygo_error *err);   /* in use, or none */
raygo_status rga_collect(struct rga_rt *rt, rg_slot **slots, size_t n, const struct rga_wait *w, raygo_buf *out, raygo_error *err);   /* what raygo_get does */
raygo_status rga_object_new(struct rga_rt *rt, rg_slot *slot, raygo_object *out, raygo_error *err);   /* takes over one handle of the slot */
raygo_status rga_store(struct rga_rt *rt, struct rg_oid oid, uint32_t format, size_t len, const void *body0, const struct rga_wait *w, uint8_t **body,
                       raygo_error *err);
raygo_status rga_create(struct rga_rt *rt, uint32_t format, size_t len, const void *body0, const struct rga_wait *w, raygo_object *out, void **data,
                        raygo_error *err);
raygo_status rga_check_value(uint32_t format, raygo_view body, raygo_error *err);

/* Blobs (abi_blob.c).  What a caller gives and gets of a value is one piece; in the blob it stands behind rga_head(format) bytes. */
size_t rga_head(uint32_t format);
void rga_head_write(uint8_t *at, uint32_t format, const void *body, size_t len);   /* of a tensor the body's own head is read */
raygo_status rga_check_tensor(raygo_view body, raygo_error *err);
int rga_blob(const uint8_t *p, size_t len, uint32_t *format, const uint8_t **body, size_t *body_len);
raygo_status rga_template_send(struct rga_rt *rt, uint32_t kind, raygo_view function, const raygo_template_options *o, uint32_t *number, raygo_error *err);
raygo_status rga_template_check(uint32_t kind, raygo_view function, const raygo_template_options *o, raygo_error *err);
struct rga_call {              /* a runtime and a template, in use */
  struct rga_entry *rt, *tmpl;
  struct rga_template *t;
};
raygo_status rga_call_begin(struct rga_call *k, raygo_runtime h, raygo_template tmpl, raygo_error *err);
void rga_call_end(struct rga_call *k);
raygo_status rga_need_returns(const struct rga_call *k, const raygo_object *returns, raygo_error *err);
/* slots: room for what the template returns (one, for an actor). */
raygo_status rga_submit(struct rga_rt *rt, uint64_t task, uint16_t flags, uint32_t tmpl, uint32_t nreturns, uint64_t actor, const raygo_args *args,
                        rg_slot **slots, raygo_error *err);
raygo_status rga_submit_one(struct rga_call *k, uint64_t actor, const raygo_args *args, raygo_object *returns, raygo_error *err);   /* objects as handles */
raygo_status rga_release(uint64_t h, int kind, const char *what, raygo_error *err);   /* of what has one owner */
void rga_task_ended(struct rga_task *t);                   /* off the list of running ones; frees it */
void rga_template_free(struct rga_template *t);
void rga_token_free(void *token);

#endif
