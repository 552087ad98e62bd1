/* Internal to the binding.  One process, one session at a time; old sessions live on until their last reference is gone.
 *
 * The GIL guards every static below unless its comment says otherwise.  Functions return what their CPython model returns: NULL or -1 with an
 * exception set.  "New" and "borrowed" in comments speak of PyObject references. */
#ifndef RAYGO_BINDING_H
#define RAYGO_BINDING_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* as pyconfig.h of Python 3.10 says it */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "client.h"
#include "raygo_status.h"

#define RB_LIKELY(x) __builtin_expect(!!(x), 1)
#define RB_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* The extension is always opened after start; these few bytes fit into what the loader keeps for that. */
#define RB_THREAD static __thread __attribute__((tls_model("initial-exec")))
#define RB_THREAD_EXTERN extern __thread __attribute__((tls_model("initial-exec")))

/* ---- session.c */
struct rb_session {
  rg_client *c;
  rg_slot *anchor;
  uint32_t generation;
  bool closed, worker;
  Py_ssize_t users;              /* ObjectRefs and running calls that point here */
  uint64_t incarnation;
  uint32_t job;
  uint64_t engine, conn;         /* when this process holds the engine */
};
extern struct rb_session *rb_ses;  /* NULL: none */

/* What set_types handed over, and what was looked up once.  All owned, all may be NULL. */
extern struct rb_py {
  PyTypeObject *ref_type;          /* the package's subclass of ObjectRef */
  PyObject *serialize, *deserialize, *make_error, *raise_syserr, *auto_init, *not_initialized, *current_task;
  PyObject *call_site;             /* says where the program is; NULL: places are not recorded */
  PyObject *pickle_dumps, *pickle_loads, *proto5, *kw_buffer_callback, *kw_buffers;
  PyObject *call_error;
  PyObject *empty_tuple;
  bool no_array_path;              /* a serializer was registered for arrays: they take the slow path */
} rb_py;

struct rb_session *rb_need(void);                  /* the session, starting one if the package knows how; NULL with an exception */
void rb_unuse(struct rb_session *s);
uint64_t rb_number(struct rb_session *s);          /* a new task number; 0 with an exception */
PyObject *rb_session_begin(rg_client *c, bool worker, uint64_t engine, uint64_t conn);   /* new bytes: WELCOME */
PyObject *rb_raise(int code, const char *message); /* always NULL */
PyObject *rb_raise_map(const uint8_t *map, size_t len);
int rb_check(void *tstate_slot);                   /* an rg_check_fn; the argument is the PyThreadState* that PyEval_SaveThread gave */
int rb_deadline(PyObject *timeout, int64_t *deadline);  /* None: -1 */
int64_t rb_now(void);
int rb_call(struct rb_session *s, const void *payload, size_t len, int64_t timeout_ns, PyObject **reply);
extern PyMethodDef rb_session_methods[];

/* Around a send: a long one may have to wait for the engine to read, during which other threads should run. */
#define RB_LONG_SEND (16u << 10)
#define RB_SENDING(bytes, call)                                            \
  do {                                                                     \
    PyThreadState *sending_ = (bytes) > RB_LONG_SEND ? PyEval_SaveThread() : NULL; \
    call;                                                                  \
    if (sending_) PyEval_RestoreThread(sending_);                          \
  } while (0)

/* ---- task context: which task this thread runs */
RB_THREAD_EXTERN uint64_t rb_thread_task;          /* 0: none of its own */
RB_THREAD_EXTERN int rb_thread_loop;               /* this thread runs an event loop: the package's context variable knows */
extern uint64_t rb_main_task;                      /* what a worker's main thread runs: threads that it starts count to it */
uint64_t rb_current(void);
extern bool (*rb_thread_stop)(void);               /* workers: whether this thread's task was cancelled and no signal will say so; NULL */

/* ---- refs.c */
typedef struct {
  PyObject_HEAD
  rg_slot *slot;
  struct rb_session *ses;
} rb_ref;
extern PyTypeObject *rb_ref_base;
static inline bool rb_is_ref(PyObject *o) { return Py_TYPE(o) == rb_py.ref_type || PyObject_TypeCheck(o, rb_ref_base); }
PyObject *rb_ref_new(struct rb_session *s, rg_slot *slot);   /* takes over one handle, also on failure */
void rb_note_site(struct rb_session *s, uint64_t task, uint32_t index, uint32_t n, const char *what);
#define RB_NOTE_SITE(s, task, index, n, what) \
  do {                                        \
    if (RB_UNLIKELY(rb_py.call_site != NULL)) rb_note_site(s, task, index, n, what); \
  } while (0)
void rb_ref_id(rb_ref *r, uint8_t out[28]);
int rb_ref_usable(rb_ref *r, struct rb_session *s);           /* -1: of a session that has ended */
PyObject *rb_restore(const uint8_t id[28]);                   /* the reference that an id in a value names */
int rb_refs_ready(PyObject *module);
extern PyMethodDef rb_refs_methods[];

/* The references met while a value is pickled on this thread.  Collectors nest: pickling may run code that submits. */
struct rb_collector {
  struct rb_collector *up;
  struct rb_session *ses;        /* whose references these are; NULL: none yet */
  uint32_t n, cap;
  struct rg_oid *oids;
  rg_slot **slots;               /* one handle each, until rb_collector_end */
  struct rg_oid small_oids[8];
  rg_slot *small_slots[8];
};
void rb_collector_begin(struct rb_collector *k);   /* becomes the thread's */
void rb_collector_close(struct rb_collector *k);   /* no longer the thread's; what it collected stays */
void rb_collector_end(struct rb_collector *k);
int rb_collect(rb_ref *r);                         /* to the innermost collector; with none the object is kept for the process's life */

/* ---- buffer.c */
int rb_buffer_ready(PyObject *module);
PyObject *rb_buffer_new(const uint8_t *data, uint64_t len, rg_pin *pin);   /* one pin reference more */

/* ---- msgpack.c */
struct rb_bytes { uint8_t *p; size_t n, cap; };
int rb_bytes_add(struct rb_bytes *b, const void *p, size_t n);
int rb_pack(struct rb_bytes *b, PyObject *v, int depth);      /* -1: not a plain value */
PyObject *rb_unpack(const uint8_t *p, size_t n);
PyObject *rb_unpack_with(const uint8_t *p, size_t n, PyObject *(*ext)(void *arg, int8_t type, const uint8_t *p, size_t n), void *arg);
extern PyMethodDef rb_msgpack_methods[];

/* ---- pickle_write.c, pickle_read.c: the part of pickle that calls are made of */
struct rb_enc { uint8_t *p, *end; int budget; int nseen; PyObject *seen[16]; };
int rb_enc_value(struct rb_enc *e, PyObject *v, int depth);   /* 0; 1: not for this path (nothing set); -1 */
/* A pickled list of references: this head, then 28 bytes and few opcodes for each. */
#define RB_REFS_HEAD "\x80\x05](\x8c\x0eraygo._binding\x8c\x08_restore\x93\x94"
#define RB_REF_BYTES 34
PyObject *rb_enc_refs(PyObject *list);
struct rb_plain { Py_ssize_t budget; bool arrays; };   /* items that may still be looked at; whether there were arrays, whose data goes out of band */
bool rb_is_ndarray(PyObject *v);   /* exactly, and no serializer of the user's wants them */
int rb_is_plain(PyObject *v, int depth, struct rb_plain *seen);   /* 1: the C pickler alone is right for it */
PyObject *rb_dec_value(const uint8_t *p, size_t n, bool *foreign);   /* foreign: some other opcode; NULL without an exception */

/* ---- serialize.c */
#define RB_SMALL 2048
struct rb_ser {                  /* a value on its way out; made on the stack, ended by rb_ser_end */
  uint8_t format;
  const uint8_t *body;
  uint64_t body_len, size;       /* size: of the whole blob */
  PyObject *owner;               /* owned: keeps body */
  Py_buffer *bufs;
  uint32_t nbuf, joined;         /* joined: how many of the first are parts of one buffer */
  bool contiguous;               /* the blob stands in small already */
  struct rb_collector refs;
  _Alignas(8) uint8_t small[RB_SMALL];
};
enum rb_ser_what { RB_VALUE, RB_ARGUMENTS, RB_ARGUMENTS_KW };   /* what is pickled, for messages: a call's arguments, or (arguments, keywords) */
int rb_ser_begin_as(struct rb_ser *s, PyObject *value, enum rb_ser_what what);
int rb_ser_begin(struct rb_ser *s, PyObject *value);
int rb_ser_error(struct rb_ser *s, PyObject *value);          /* as a blob of format RG_B_ERROR */
int rb_ser_raw(struct rb_ser *s, uint8_t format, PyObject *body);   /* a body that is encoded already; steals it */
void rb_ser_write(struct rb_ser *s, uint8_t *to, rg_client *arena); /* size bytes; arena: of whose arena the space is, or NULL */
void rb_ser_end(struct rb_ser *s);
const uint8_t *rb_ser_inline(struct rb_ser *s, uint8_t **heap);   /* the blob in one piece; *heap to free */
int rb_ser_to_arena(struct rb_session *ses, struct rb_ser *s, struct rg_oid oid, struct rg_lease **lease);   /* creates and writes; the caller seals */
PyObject *rb_put(struct rb_session *ses, struct rb_ser *s);   /* a new ObjectRef */
PyObject *rb_load(const uint8_t *data, uint64_t len, rg_pin *pin, bool is_error);   /* raises what an error value holds */
PyObject *rb_load_args(const uint8_t *body, uint64_t body_len, const struct rg_bufent *ent, uint32_t nbuf, const uint8_t *base, uint64_t len);
extern PyMethodDef rb_serialize_methods[];

/* ---- tensor.c */
int rb_tensor_take(struct rb_ser *s, PyObject *v);
PyObject *rb_tensor_load(const uint8_t *body, uint64_t len, PyObject *data);

/* ---- get.c */
extern PyMethodDef rb_get_methods[];

/* ---- args.c: the argument block of a task.
 *
 * Codec pickle: rg_args, nbuf rg_bufent, ntop uint32 places padded to 8, the body, the buffers (each at a multiple of 8; offsets from the
 * start of the block).  The body is the pickle of the args tuple, or of (args, kwargs) with RB_A_KW; where a top-level reference stood is None,
 * and places[i] says where argument i of rg_exec belongs: a position, or RB_A_BYNAME | the number of the keyword.  No bytes at all: no arguments.
 * Codec msgpack and import: one array of positional arguments; a reference is extension type 1, whose data is its number as uint32. */
struct rg_args { uint8_t version, flags; uint16_t nbuf; uint32_t ntop, body_len, zero; };
enum { RB_A_VERSION = 1, RB_A_KW = 1, RB_A_BYNAME = 1u << 31 };
#define RB_MAX_TOP 4096

struct rb_args {                 /* made on the stack, ended by rb_args_end */
  uint32_t ntop;
  struct rg_oid *top, small_top[8];
  PyObject *keep;                /* owned list of references made for large arguments; NULL: none */
  uint8_t *block;
  size_t len, cap;
  bool heap;
  struct rb_ser ser;
  _Alignas(8) uint8_t small[RB_SMALL + 256];
};
int rb_args_begin(struct rb_session *s, struct rb_args *a, PyObject *args, PyObject *kwargs, bool msgpack);
void rb_args_end(struct rb_args *a);
int rb_args_load(rg_task *t, bool msgpack, PyObject **args, PyObject **kwargs);   /* new; *kwargs may be NULL */

/* ---- submit.c */
int rb_submit_ready(PyObject *module);
extern PyMethodDef rb_submit_methods[];

/* ---- worker.c, task.c, threads.c, cancel.c */
int rb_task_ready(PyObject *module);
extern PyMethodDef rb_worker_methods[], rb_cancel_methods[];

/* ---- group.c */
int rb_group_ready(PyObject *module);

int rb_add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **out);
#endif
