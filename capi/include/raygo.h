/* raygo.h: raygo for C, and for every language that can call C.  This file is the reference manual.
 *
 * A program starts a node engine in its own process (raygo_start) or connects to one that runs (raygo_connect).  Then it stores values,
 * runs Python functions and actors, and serves functions of its own that Python programs call.  Link with -lraygo, or dlopen libraygo.so
 * and compare raygo_abi_version() with RAYGO_ABI_VERSION.
 *
 *     raygo_error err = RAYGO_ERROR_INIT;
 *     raygo_runtime rt;
 *     raygo_buf sum = RAYGO_BUF_INIT;
 *     if (raygo_start(NULL, &rt, &err)) …                                        err.message says what went wrong and what to do
 *     raygo_call(rt, raygo_str("operator:add"), args, 5 * RAYGO_SECOND, RAYGO_NO_TOKEN, &sum, &err);
 *     raygo_buf_release(&sum);
 *     raygo_shutdown(rt, -1, NULL);
 *     raygo_runtime_release(rt, NULL);
 *
 * RULES THAT HOLD FOR EVERY FUNCTION
 *
 * Status    What can fail returns a raygo_status: RAYGO_OK (0) or a code of raygo_status.h, whose numbers are never reused.  The last
 *           parameter, `err`, may be NULL; otherwise it was made by RAYGO_ERROR_INIT.  A failure replaces what it held; success leaves it
 *           alone.  Each function below lists the codes of its own.  In addition all of them may return
 *             RAYGO_EINVAL       an argument is not acceptable: a NULL output, a struct_size that is too small, an unknown format
 *             RAYGO_ESTALE       a handle is 0, was released, or is of another kind than the parameter
 *             RAYGO_EFORKED      the process is a forked child; see below
 *             RAYGO_ENOMEM       memory ran out; nothing has happened
 *             RAYGO_ESHUTDOWN    the runtime was shut down before or during the call
 *             RAYGO_ECONNECTION  the engine's process ended or closed the connection
 *             RAYGO_EINTERNAL    a fault of raygo itself
 * Handles   raygo_runtime, raygo_object, … are structs around a number that means something to this process only.  0 is no handle.  One that
 *           was released gives RAYGO_ESTALE, for ever and from any thread, never a crash.  Copies of the struct are the same handle.
 * Inputs    raygo_view and arrays are borrowed for the length of the call.  Text is UTF-8 and need not end with a zero byte.
 * Outputs   A raygo_buf is the caller's until raygo_buf_release.  Its memory is C's or read-only shared memory; it stays valid after
 *           raygo_shutdown.  On failure outputs are zeroed (raygo_wait excepted), so that releasing them is always right.
 * Options   Option structs begin with struct_size (use the …_init functions); zero means the default; later versions only append fields.  A larger
 *           struct than this library knows is accepted while its unknown part is zero.
 * Threads   Every function may be called from any thread at any time, also while another call uses or releases the same handle.
 * Time      timeout_ns is in nanoseconds: -1 waits for ever, 0 does not wait.  A token (raygo_token) ends waits early with RAYGO_EINTERRUPTED; a
 *           waiting call notices within 100 ms.  RAYGO_NO_TOKEN: none.  Signals end no wait.
 * Fork      After fork(), the child cannot use what its parent had: every call returns RAYGO_EFORKED at once, and the descriptors are closed.  Only
 *           raygo_error_clear, raygo_buf_release and the functions that return text or a number still work.  exec, or posix_spawn, is the way.
 * Plain     Values between languages are msgpack: nil, bool, int (64 bits), float, str, bin, array, map.  raygo_msgpack.h, beside this file,
 * values    reads and writes them in C.  Bytes alone need no msgpack: RAYGO_BYTES. */
#ifndef RAYGO_H
#define RAYGO_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "raygo_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================================ basic types */

#define RAYGO_ABI_VERSION 1u
#define RAYGO_SECOND INT64_C(1000000000)

typedef int32_t raygo_status; /* enum raygo_status_code */

typedef struct raygo_runtime { uint64_t h; } raygo_runtime;   /* a session on a node engine */
typedef struct raygo_template { uint64_t h; } raygo_template; /* a function, class or method with its options, prepared once */
typedef struct raygo_object { uint64_t h; } raygo_object;     /* a reference to a value, there or to come; it keeps the value alive */
typedef struct raygo_actor { uint64_t h; } raygo_actor;       /* a reference to an actor; keeps it alive unless it is detached */
typedef struct raygo_task { uint64_t h; } raygo_task;         /* a task that this process was given to run */
typedef struct raygo_token { uint64_t h; } raygo_token;       /* ends waits early */

typedef struct raygo_view { /* borrowed bytes or text */
  const void *data;
  size_t len;
} raygo_view;

typedef struct raygo_buf { /* bytes that belong to the caller */
  const uint8_t *data;     /* 8-aligned; NULL when empty */
  size_t len;
  void *owner;             /* raygo's */
  uint32_t format;         /* enum raygo_format */
  uint32_t reserved;
} raygo_buf;

typedef struct raygo_error {
  size_t struct_size;
  int32_t code;            /* the status that was returned */
  int32_t retryable;       /* 1: the same call may go well later */
  char *message;           /* what happened, to what, and what to do; ends with a zero byte; NULL when memory ran out */
  raygo_buf detail;        /* what is known beyond the text as a msgpack map, or nothing: "code", "message", "type" (of what the task's code raised),
                              "task_name", "pid", "exit_code", "signal", "stderr", …, each only where it applies */
} raygo_error;

enum raygo_format {        /* how a value is encoded */
  RAYGO_NONE = 0,          /* Python's None; no bytes */
  RAYGO_PICKLE = 1,        /* Python's own; opaque here, but may be passed on by reference */
  RAYGO_BYTES = 2,         /* the bytes as they are: Python's bytes */
  RAYGO_MSGPACK = 3,       /* one plain value */
  RAYGO_ARROW = 4,         /* an Arrow IPC stream */
  RAYGO_TENSOR = 5         /* an array: kind, item size, number of dimensions in a byte each, 5 zero bytes, the shape as uint64, zero bytes up to
                              raygo_tensor_offset(dimensions), the elements row by row; raygo_tensor_view and raygo_put_tensor know it */
};

#define RAYGO_ERROR_INIT { sizeof(raygo_error), 0, 0, NULL, { NULL, 0, NULL, 0, 0 } }
#define RAYGO_BUF_INIT { NULL, 0, NULL, 0, 0 }

static inline raygo_view raygo_bytes(const void *data, size_t len) {
  raygo_view v;
  v.data = data;
  v.len = len;
  return v;
}
static inline raygo_view raygo_str(const char *text) { return raygo_bytes(text, text ? strlen(text) : 0); }
static inline raygo_token raygo_no_token(void) {
  raygo_token t;
  t.h = 0;
  return t;
}
#define RAYGO_NO_TOKEN (raygo_no_token())

/* ================================================================================================ version */

/* The library's version, as in "0.1.0".  Engine, library and Python package work together only when it is the same.  Static text. */
const char *raygo_version(void);

/* RAYGO_ABI_VERSION of the library.  It grows when a function or struct changes in a way that old callers would notice. */
uint32_t raygo_abi_version(void);

/* ================================================================================================ errors and buffers */

/* "ETIMEDOUT" and "the deadline passed first".  Static text; for a number that is none, "UNKNOWN" and the like. */
const char *raygo_status_name(raygo_status status);
const char *raygo_status_text(raygo_status status);

/* Frees what the error holds and makes it ready for the next call.  NULL is fine. */
void raygo_error_clear(raygo_error *err);

/* Gives the bytes back and zeroes *buf, so that a second release does nothing.  NULL is fine.  Takes no lock that is held while waiting. */
void raygo_buf_release(raygo_buf *buf);

/* ================================================================================================ cancel tokens */

/* A token is made, given to any number of calls, fired once from any thread, and released.  Firing ends the waits that have it and every
 * later one at once.  Released while calls have it, it goes when they return. */
raygo_status raygo_token_new(raygo_token *out, raygo_error *err);
raygo_status raygo_token_fire(raygo_token token, raygo_error *err);
raygo_status raygo_token_release(raygo_token token, raygo_error *err);

/* ================================================================================================ runtime */

typedef struct raygo_options {
  size_t struct_size;
  /* both ways to begin */
  raygo_view name_space;          /* where actor names are looked up; default: one of this session's own */
  raygo_view job_name;            /* shown in listings; default: the program's name */
  raygo_view python;              /* interpreter for this job's workers, with raygo installed; default: $RAYGO_PYTHON, else python3 on the PATH */
  raygo_view sys_path;            /* msgpack array of str: folders that workers import from, before their own */
  raygo_view working_dir;         /* the workers' current folder; default: this process's */
  raygo_view env;                 /* msgpack map str → str: variables for workers on top of the engine's */
  raygo_view runtime_env;         /* JSON text, as Ray's runtime_env */
  uint32_t log_to_driver;         /* 1: workers' output comes by raygo_log_next (someone must then read it) */
  uint32_t reserved;
  int64_t timeout_ns;             /* for the beginning itself; 0: 30 s */
  /* raygo_start only */
  double num_cpus;                /* 0: what the machine has; negative: none */
  double num_gpus;                /* likewise */
  raygo_view resources;           /* msgpack map str → number: further resources */
  uint64_t object_store_memory;   /* bytes; 0: 30 % of the machine's memory */
  raygo_view engine_options;      /* msgpack map: options of the engine by name, for those without a field here; they win over fields */
} raygo_options;
static inline raygo_options raygo_options_init(void) {
  raygo_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/* Starts a node engine inside this process and a session on it.  It opens no network port.  options may be NULL.  A process may have
 * several. EVERSION: the parts of the library are not of one version. */
raygo_status raygo_start(const raygo_options *options, raygo_runtime *out, raygo_error *err);

/* Begins a session on an engine that runs.  address: the path of its socket or of its session's folder; empty: $RAYGO_ADDRESS, else this
 * user's newest session.  ENOTFOUND: nothing runs there.  EVERSION: the engine has another version.  ETIMEDOUT. */
raygo_status raygo_connect(raygo_view address, const raygo_options *options, raygo_runtime *out, raygo_error *err);

/* Ends the session: its tasks are cancelled, its actors that are not detached are killed, waits return ESHUTDOWN, and an engine of this
 * process stops with its workers.  Buffers stay valid; the handle too, so that the last records can still be read with raygo_log_next.
 * ETIMEDOUT: workers did not end in time and were killed.  ESHUTDOWN: it was shut down before. */
raygo_status raygo_shutdown(raygo_runtime rt, int64_t timeout_ns, raygo_error *err);

/* Gives the handle back, after raygo_shutdown (or instead of it; then it shuts down, waiting up to 10 s). */
raygo_status raygo_runtime_release(raygo_runtime rt, raygo_error *err);

/* What the engine said of itself when the session began, as a msgpack map: version, node_id, job, namespace, session_dir, socket, … */
raygo_status raygo_info(raygo_runtime rt, raygo_buf *out, raygo_error *err);

/* ================================================================================================ objects */

/* Stores a copy of `body`, whose bytes are encoded as `format` says (RAYGO_NONE takes an empty body).  Up to 64 KiB it travels in a
 * message, larger values are written straight into shared memory; only for those the call may wait, for room.  ESTOREFULL, EOUTOFDISK,
 * ETIMEDOUT, EINTERRUPTED. */
raygo_status raygo_put(raygo_runtime rt, uint32_t format, raygo_view body, int64_t timeout_ns, raygo_token token, raygo_object *out,
                       raygo_error *err);

/* The same in steps, without the copy: space for `len` bytes in shared memory, writable at *data (16-aligned; 64-aligned for RAYGO_ARROW) until
 * raygo_seal or raygo_abort.  Until it is sealed the object has no value for anybody.  Releasing the last reference before that is an abort.  Errors as
 * raygo_put. */
raygo_status raygo_create(raygo_runtime rt, uint32_t format, size_t len, int64_t timeout_ns, raygo_token token, raygo_object *out,
                          void **data, raygo_error *err);
/* The value is whole and will not change.  EINVAL: it does not come from raygo_create, or was sealed before. */
raygo_status raygo_seal(raygo_object object, raygo_error *err);
/* The space goes back and the handle is released.  EINVAL as raygo_seal. */
raygo_status raygo_abort(raygo_object object, raygo_error *err);

#define RAYGO_MAX_NDIM 16

/* An array of numbers, as NumPy has them: element i, j, … is at data + i * strides[0] + j * strides[1] + … */
typedef struct raygo_tensor {
  uint8_t kind;            /* 'b' bool, 'i' and 'u' integers, 'f' floats, 'c' complex numbers; little-endian */
  uint8_t itemsize;        /* bytes of an element */
  uint8_t ndim;            /* up to RAYGO_MAX_NDIM; 0: a single number */
  uint8_t zero[5];
  const void *data;        /* the first element; when raygo gives it 64-aligned in shared memory, 8-aligned where the value is small */
  uint64_t shape[RAYGO_MAX_NDIM];
  int64_t strides[RAYGO_MAX_NDIM];   /* in bytes; may be negative or 0 */
} raygo_tensor;

/* Where the elements of an array of format RAYGO_TENSOR begin. */
static inline size_t raygo_tensor_offset(uint32_t ndim) { return ((40u + 8u * (size_t)ndim + 63u) & ~(size_t)63u) - 32u; }

/* What a buffer of format RAYGO_TENSOR holds: Python's NumPy arrays, or what raygo_put_tensor stored.  Nothing is copied: out->data points into
 * the buffer and is valid as long as that.  EINVAL: it is no array. */
raygo_status raygo_tensor_view(const raygo_buf *buf, raygo_tensor *out, raygo_error *err);

/* Stores a copy of an array; Python gets a NumPy array.  Errors as raygo_put. */
raygo_status raygo_put_tensor(raygo_runtime rt, const raygo_tensor *tensor, int64_t timeout_ns, raygo_token token, raygo_object *out, raygo_error *err);

/* As raygo_create, for an array: kind, itemsize, ndim and shape are read, and *data (64-aligned) is where the elements go, row by row. */
raygo_status raygo_create_tensor(raygo_runtime rt, const raygo_tensor *tensor, int64_t timeout_ns, raygo_token token, raygo_object *out, void **data,
                                 raygo_error *err);

/* Waits for n values.  On success out[0..n) hold them: body in data and len, encoding in format.  Values in shared memory are not copied:
 * the buffer keeps them in place until it is released.  If one of them is an error the call fails with that (the first in order) and no
 * buffer is filled. ETIMEDOUT (the message says what it waited for), EINTERRUPTED, EDEADLOCK, and the errors of tasks: ETASK: the task's
 * code raised; message and detail have type, text and traceback.  ECANCELED, EWORKERDIED, EACTORDIED, EACTORUNAVAILABLE, EUNSCHEDULABLE,
 * EOBJECTLOST, EOWNERDIED, EOUTOFMEMORY, ERUNTIMEENV, EREFFREED, ETASKEXIT, EPGREMOVED and other codes from 3 to 32 as raygo_status.h
 * says. */
raygo_status raygo_get(raygo_runtime rt, const raygo_object *objects, size_t n, int64_t timeout_ns, raygo_token token, raygo_buf *out,
                       raygo_error *err);

/* Waits until at least `need` of n objects have a value or an error.  ready[i] is set to 1 or 0 for each and *nready to their number,
 * also on ETIMEDOUT and EINTERRUPTED.  ready and nready may be NULL.  need = 0 only looks. */
raygo_status raygo_wait(raygo_runtime rt, const raygo_object *objects, size_t n, size_t need, int64_t timeout_ns, raygo_token token,
                        uint8_t *ready, size_t *nready, raygo_error *err);

/* A handle begins with one reference.  retain adds one to each of n handles, release takes one; with the last the handle becomes stale,
 * and the value goes when nobody else refers to it.  All n are tried; the status is that of the first that failed.  Works after
 * raygo_shutdown too. */
raygo_status raygo_retain(const raygo_object *objects, size_t n, raygo_error *err);
raygo_status raygo_release(const raygo_object *objects, size_t n, raygo_error *err);

/* The 28 bytes by which Python knows the object (ObjectRef.binary()), and back.  A new handle holds the object from then on: whoever gave
 * the bytes must keep theirs until it has been made.  Connections do not wait for each other: before bytes leave a runtime made by
 * raygo_connect, ask the engine something (raygo_kv_exists, say), so that it has heard of the object.  EINVAL: it is not sealed.  ESTALE:
 * the bytes belong to another session. */
raygo_status raygo_object_id(raygo_object object, uint8_t id[28], raygo_error *err);
raygo_status raygo_object_from_id(raygo_runtime rt, const uint8_t id[28], raygo_object *out, raygo_error *err);

/* ================================================================================================ Arrow */

/* The structs of the Arrow C data and stream interfaces, as https://arrow.apache.org/docs/format/CDataInterface.html has them. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

#endif

/* Waits for Arrow data (of Python: a pyarrow.Table, RecordBatch, Array or ChunkedArray, or a pandas frame of Arrow columns) and gives its
 * batches.  They are not copied, but for values so small that they came in a message: the arrays stand in shared memory, read-only, and keep it
 * until the stream and the last of them are released, also after raygo_shutdown.  Buffers begin at multiples of 64, as raygo writes them.  Streams are
 * for one thread at a time; arrays may be released on any.  EINVAL: it is no Arrow data.  Other errors as raygo_get. */
raygo_status raygo_get_arrow_stream(raygo_runtime rt, raygo_object object, int64_t timeout_ns, raygo_token token, struct ArrowArrayStream *out,
                                    raygo_error *err);

/* The same of a buffer of format RAYGO_ARROW, as raygo_get, raygo_call and raygo_task_arg give them.  The buffer is the stream's from then on
 * and zeroed here.  Lengths and places are checked against the bytes that there are; offsets between an array's first and last and a dictionary's
 * indices are believed.  EINVAL: it is no Arrow data (the buffer stays the caller's), or the stream is not whole, compressed or big-endian. */
raygo_status raygo_arrow_stream(raygo_buf *buf, struct ArrowArrayStream *out, raygo_error *err);

/* Stores what a stream of struct arrays gives, in one copy and for slices their rows only; Python gets a pyarrow.Table.  The stream is
 * read to its end and released, also on failure.  EINVAL: it failed, with its own words; or it has what a stream cannot: rows that are missing as a
 * whole, slices of run-end encoded arrays.  Other errors as raygo_put. */
raygo_status raygo_put_arrow_stream(raygo_runtime rt, struct ArrowArrayStream *in, int64_t timeout_ns, raygo_token token, raygo_object *out,
                                    raygo_error *err);

/* The same into a buffer of format RAYGO_ARROW, which raygo_task_reply takes. */
raygo_status raygo_arrow_bytes(struct ArrowArrayStream *in, raygo_buf *out, raygo_error *err);

/* ================================================================================================ templates */

enum raygo_template_kind {
  RAYGO_FUNCTION = 1,  /* a Python function */
  RAYGO_ACTOR = 2,     /* a Python class, to be made an actor of */
  RAYGO_METHOD = 3,    /* a method of an actor, by name */
  RAYGO_NAMED = 4      /* a function that some program serves (raygo_serve), by name */
};

typedef struct raygo_template_options {
  size_t struct_size;
  raygo_view name;               /* shown in listings and errors; default: `function` */
  uint32_t num_returns;          /* 0: 1; UINT32_MAX: none.  How many objects a submit returns */
  int32_t max_retries;           /* when the worker dies.  0: default (3 for functions, the actor's for methods); -1: without end; -2: none */
  uint32_t retry_exceptions;     /* 1: also when the code raises */
  uint32_t max_calls;            /* a worker ends after so many; 0: no limit */
  double num_cpus;               /* 0: default (1; an actor: 1 to be placed, none afterwards; named: none); negative: none */
  double num_gpus;               /* 0 or negative: none */
  uint64_t memory;               /* bytes */
  raygo_view resources;          /* msgpack map str → number */
  raygo_view runtime_env;        /* JSON text; default: the job's */
  /* actors */
  raygo_view actor_name;         /* default: no name */
  raygo_view name_space;         /* default: the session's */
  uint32_t detached;             /* 1: lives on when nobody refers to it */
  uint32_t get_if_exists;        /* 1: raygo_actor_new gives the actor that has the name */
  int32_t max_restarts;          /* 0: none; -1: without end */
  int32_t max_task_retries;      /* 0: none; -1: without end */
  uint32_t max_concurrency;      /* 0: 1, or 1000 for classes with async methods */
  uint32_t reserved;
  raygo_view extra;              /* msgpack map: further keys of a template as engine/wire/PROTOCOL.md lists them; they win over fields */
} raygo_template_options;
static inline raygo_template_options raygo_template_options_init(void) {
  raygo_template_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/* Prepares a function for many submits.  function: "module:qualname" of a Python function or class that workers can import, the method's
 * name, or the name that was served.  A wrong name shows when a task runs, as its error.  options may be NULL.  EINVAL: no such kind, or no
 * ':' where one belongs. */
raygo_status raygo_template_new(raygo_runtime rt, uint32_t kind, raygo_view function, const raygo_template_options *options,
                                raygo_template *out, raygo_error *err);
raygo_status raygo_template_release(raygo_template tmpl, raygo_error *err);

/* ================================================================================================ tasks */

typedef struct raygo_args {
  raygo_view packed;             /* msgpack array of the positional arguments; empty: no arguments.  Extension type 1 with a little-endian
                                    uint32 i as its data stands for the value of refs[i] */
  const raygo_object *refs;      /* the task starts when they have values; an error among them becomes the task's error */
  size_t nrefs;
} raygo_args;

/* Hands a task to the engine and returns at once.  returns: room for as many objects as the template's num_returns.  EINVAL: a template of
 * an actor or method, arguments that are no msgpack array or do not fit a message of 256 MiB (raygo_put them). */
raygo_status raygo_submit(raygo_runtime rt, raygo_template tmpl, const raygo_args *args, raygo_object *returns, raygo_error *err);

/* n tasks of one template: task i has args[i] and its objects from returns[i * num_returns].  Either all are handed over or, on failure,
 * the first *done are (done may be NULL) and the other handles are zero. */
raygo_status raygo_submit_batch(raygo_runtime rt, raygo_template tmpl, const raygo_args *args, size_t n, raygo_object *returns, size_t *done,
                                raygo_error *err);

enum raygo_cancel_flags {
  RAYGO_CANCEL_FORCE = 1,    /* kill the worker if it must be */
  RAYGO_CANCEL_RECURSIVE = 2 /* the tasks that it submitted too */
};

/* Cancels the task that makes this object.  A task that waits is gone at once; one that runs is asked to stop.  Its objects become
 * ECANCELED unless it ends first.  Returns without waiting, and does nothing to a task that has ended or to an object of raygo_put. */
raygo_status raygo_cancel(raygo_runtime rt, raygo_object object, uint32_t flags, raygo_error *err);

/* Calls one function and waits for its value: `name` with a ':' is a Python function "module:qualname", else a served one.  args may be
 * NULL.  The template is made once per name and runtime.  After ETIMEDOUT or EINTERRUPTED the task is cancelled.  Errors as raygo_get. */
raygo_status raygo_call(raygo_runtime rt, raygo_view name, const raygo_args *args, int64_t timeout_ns, raygo_token token, raygo_buf *out,
                        raygo_error *err);

/* ================================================================================================ actors */

/* Makes an actor of a RAYGO_ACTOR template; args go to its constructor.  Returns before that has run: its failure is the error of later
 * calls (EACTORDIED).  Waits only to reserve a name.  EEXISTS: the name is taken.  ETIMEDOUT, EINTERRUPTED. */
raygo_status raygo_actor_new(raygo_runtime rt, raygo_template tmpl, const raygo_args *args, int64_t timeout_ns, raygo_token token,
                             raygo_actor *out, raygo_error *err);

/* Calls a method (a RAYGO_METHOD template); as raygo_submit otherwise.  Calls from one runtime run in the order in which they were made. */
raygo_status raygo_actor_call(raygo_runtime rt, raygo_actor actor, raygo_template method, const raygo_args *args, raygo_object *returns,
                              raygo_error *err);

/* Ends the actor's process without waiting; calls that have not ended become EACTORDIED.  no_restart = 0 leaves it its restarts. */
raygo_status raygo_actor_kill(raygo_runtime rt, raygo_actor actor, int32_t no_restart, raygo_error *err);

/* A handle on a living actor by name.  name_space empty: the session's.  ENOTFOUND, ETIMEDOUT, EINTERRUPTED. */
raygo_status raygo_actor_lookup(raygo_runtime rt, raygo_view name, raygo_view name_space, int64_t timeout_ns, raygo_token token,
                                raygo_actor *out, raygo_error *err);

/* The 16 bytes by which Python knows it (ActorID.binary()). */
raygo_status raygo_actor_id(raygo_actor actor, uint8_t id[16], raygo_error *err);

/* With the last handle anywhere, an actor that is not detached ends after the calls it has. */
raygo_status raygo_actor_release(raygo_actor actor, raygo_error *err);

/* ================================================================================================ completion queue */

/* For event loops.  *fd is an eventfd that is readable while tokens wait in the runtime's queue or the engine is gone.  It stays raygo's:
 * do not read or close it. */
raygo_status raygo_cq_fd(raygo_runtime rt, int *fd, raygo_error *err);

/* Puts `tag` (not 0) into the queue when the object has its value.  *ready = 1: it is there already and nothing will come.  An object has
 * one tag at a time: a second watch replaces the first. */
raygo_status raygo_cq_watch(raygo_runtime rt, raygo_object object, uint64_t tag, int32_t *ready, raygo_error *err);

/* Takes up to max tags out; *n of them.  Never waits. */
raygo_status raygo_cq_poll(raygo_runtime rt, uint64_t *tags, size_t max, size_t *n, raygo_error *err);

/* ================================================================================================ worker loop */

/* Serves a function under a name without ':', for raygo_call from C and raygo.cross_language from Python.  concurrency: how many of its
 * tasks this process takes at a time (0: 1); call raygo_task_next from as many threads.  Serving a name again changes that
 * number.  EEXISTS: another runtime serves it.  ETIMEDOUT, EINTERRUPTED. */
raygo_status raygo_serve(raygo_runtime rt, raygo_view name, uint32_t concurrency, int64_t timeout_ns, raygo_token token, raygo_error *err);

/* No new tasks; those taken may still be answered.  ENOTFOUND: it is not served here. */
raygo_status raygo_unserve(raygo_runtime rt, raygo_view name, int64_t timeout_ns, raygo_token token, raygo_error *err);

typedef struct raygo_task_info {
  size_t struct_size;
  uint64_t number;         /* of the task, within the session */
  uint32_t attempt;        /* 0 for the first run */
  uint32_t num_returns;    /* how many values raygo_task_reply must give */
  uint32_t nrefs;          /* arguments that were references: raygo_task_arg(0 … nrefs-1) */
  uint32_t reserved;
  raygo_view name;         /* as given to raygo_serve; a zero byte follows */
  raygo_view args;         /* msgpack array; extension type 1 as in raygo_args */
} raygo_task_info;
#define RAYGO_TASK_INFO_INIT { sizeof(raygo_task_info), 0, 0, 0, 0, 0, { NULL, 0 }, { NULL, 0 } }

/* The next task of any function that this runtime serves.  The views in *info are valid until the task is answered.  Each task must be
 * answered once. ETIMEDOUT, EINTERRUPTED. */
raygo_status raygo_task_next(raygo_runtime rt, int64_t timeout_ns, raygo_token token, raygo_task *out, raygo_task_info *info,
                             raygo_error *err);

/* The value of a referenced argument. */
raygo_status raygo_task_arg(raygo_task task, uint32_t i, raygo_buf *out, raygo_error *err);

/* *cancelled = 1: whoever called it no longer wants it.  Answer with raygo_task_fail, whose text is then not used. */
raygo_status raygo_task_cancelled(raygo_task task, int32_t *cancelled, raygo_error *err);

typedef struct raygo_result {
  raygo_view body;
  uint32_t format;         /* enum raygo_format */
  uint32_t reserved;
} raygo_result;

/* Answers with n = num_returns values (none: n = 0) and makes the handle stale.  Values over 64 KiB go into shared memory, for which it
 * may wait.  EINVAL: the wrong number, an unknown format, or more than 256 MiB of values that are each too small for shared memory; the
 * task is then still to be answered.  After ENOMEM, ESTOREFULL, EOUTOFDISK, ETIMEDOUT or EINTERRUPTED too. */
raygo_status raygo_task_reply(raygo_task task, const raygo_result *values, size_t n, int64_t timeout_ns, raygo_token token,
                              raygo_error *err);

/* Answers with an error: the caller sees ETASK (Python: RayTaskError) with type and message.  Makes the handle stale. */
raygo_status raygo_task_fail(raygo_task task, raygo_view type, raygo_view message, raygo_error *err);

/* ================================================================================================ key-value store */

/* Small values by key, per name space, for the whole session.  Each call asks the engine and waits: ETIMEDOUT, EINTERRUPTED. */

/* *added (may be NULL) = 1: the key was new.  overwrite = 0 leaves a value that is there. */
raygo_status raygo_kv_put(raygo_runtime rt, raygo_view name_space, raygo_view key, raygo_view value, int32_t overwrite, int64_t timeout_ns,
                          raygo_token token, int32_t *added, raygo_error *err);
/* ENOTFOUND: no such key. */
raygo_status raygo_kv_get(raygo_runtime rt, raygo_view name_space, raygo_view key, int64_t timeout_ns, raygo_token token, raygo_buf *out,
                          raygo_error *err);
/* prefix = 1: all keys that begin so.  *deleted (may be NULL): how many were there. */
raygo_status raygo_kv_del(raygo_runtime rt, raygo_view name_space, raygo_view key, int32_t prefix, int64_t timeout_ns, raygo_token token,
                          uint64_t *deleted, raygo_error *err);
raygo_status raygo_kv_exists(raygo_runtime rt, raygo_view name_space, raygo_view key, int64_t timeout_ns, raygo_token token, int32_t *exists,
                             raygo_error *err);
/* The keys that begin with prefix, as a msgpack array of bin. */
raygo_status raygo_kv_keys(raygo_runtime rt, raygo_view name_space, raygo_view prefix, int64_t timeout_ns, raygo_token token, raygo_buf *out,
                           raygo_error *err);

/* ================================================================================================ placement and cluster state */

/* Any method of the engine ("CALL methods" in engine/wire/PROTOCOL.md) by name: "nodes", "state.tasks", "timeline", "store.stats",
 * ….  argument: one msgpack value; empty: nil. The answer is one msgpack value.  EINVAL: no such method; other codes as the method
 * says.  ETIMEDOUT, EINTERRUPTED. */
raygo_status raygo_query(raygo_runtime rt, raygo_view method, raygo_view argument, int64_t timeout_ns, raygo_token token, raygo_buf *out,
                         raygo_error *err);

/* msgpack map str → float: all there is, or what is free now. */
raygo_status raygo_resources(raygo_runtime rt, int32_t available, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err);

typedef struct raygo_placement_options {
  size_t struct_size;
  raygo_view bundles;      /* msgpack array of maps str → number */
  raygo_view strategy;     /* "PACK" (default), "SPREAD", "STRICT_PACK", "STRICT_SPREAD" */
  raygo_view name;         /* default: none */
  uint32_t detached;
  uint32_t reserved;
} raygo_placement_options;
static inline raygo_placement_options raygo_placement_options_init(void) {
  raygo_placement_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/* Asks for a placement group.  *group is its number, for templates: extra {"strategy": {"type": "pg", "pg": number, "bundle":
 * i}}.  *placed (may be NULL) gets its value when all bundles are reserved. */
raygo_status raygo_placement_new(raygo_runtime rt, const raygo_placement_options *options, int64_t timeout_ns, raygo_token token,
                                 uint64_t *group, raygo_object *placed, raygo_error *err);
/* Frees the bundles; tasks and actors in them end with EPGREMOVED.  ENOTFOUND. */
raygo_status raygo_placement_remove(raygo_runtime rt, uint64_t group, int64_t timeout_ns, raygo_token token, raygo_error *err);

/* ================================================================================================ collectives
 *
 * A group of processes that reduce, gather and exchange arrays.  It needs no runtime: ranks find each other through a store, and meet in shared memory when they
 * are on one node, which they must be here.  (Python's groups may be on several.)  All ranks of a group make the same collective calls in the same order.  What fails
 * in the middle of one, as a rank that died or did not come in time, breaks the group: every call then fails with the same message, and the remedy is a new
 * group.  err.detail is a map with "rank", whom the failure is about, where it is known. */

typedef struct raygo_group { uint64_t h; } raygo_group; /* one rank of a group */
typedef struct raygo_work { uint64_t h; } raygo_work;   /* a call that was started */

enum raygo_dtype {
  RAYGO_INT8 = 0,
  RAYGO_UINT8 = 1,
  RAYGO_INT16 = 2,
  RAYGO_UINT16 = 3,
  RAYGO_INT32 = 4,
  RAYGO_UINT32 = 5,
  RAYGO_INT64 = 6,
  RAYGO_UINT64 = 7,
  RAYGO_FLOAT16 = 8,
  RAYGO_BFLOAT16 = 9,
  RAYGO_FLOAT32 = 10,
  RAYGO_FLOAT64 = 11,
  RAYGO_BOOL = 12          /* a byte */
};

/* Elements are reduced in the order of ranks, so that all get the same bits; 16-bit floats in float32, rounded once.  Integers wrap around.  min and max of floats
 * give NaN where any rank has one.  Of bool, sum, max and bor are "or", product, min and band "and".  bool has no avg, floats have no bitwise operations. */
enum raygo_reduction {
  RAYGO_SUM = 0,
  RAYGO_AVG = 1,
  RAYGO_PRODUCT = 2,
  RAYGO_MIN = 3,
  RAYGO_MAX = 4,
  RAYGO_BAND = 5,
  RAYGO_BOR = 6,
  RAYGO_BXOR = 7
};

enum raygo_collective_kind {  /* what src, dst and count are; n is the group's size */
  RAYGO_BARRIER = 0,
  RAYGO_ALLREDUCE = 1,        /* src and dst: count */
  RAYGO_REDUCE = 2,           /* the same; dst at root only */
  RAYGO_BROADCAST = 3,        /* src at root, dst elsewhere */
  RAYGO_ALLGATHER = 4,        /* src: count; dst: n * count, or dsts */
  RAYGO_REDUCESCATTER = 5,    /* src: n * count, or srcs; dst: count */
  RAYGO_GATHER = 6,           /* src: count; at root dst: n * count, or dsts */
  RAYGO_SCATTER = 7,          /* at root src: n * count, or srcs; dst: count */
  RAYGO_ALLTOALL = 8,         /* src: n * count, or srcs; dst: n * count, or dsts */
  RAYGO_SEND = 9,             /* src: count; root: to whom */
  RAYGO_RECV = 10             /* dst: count; root: from whom, or RAYGO_ANY_SOURCE */
};
#define RAYGO_ANY_SOURCE (-1)

typedef struct raygo_block {
  void *data;
  size_t count;            /* elements */
} raygo_block;

typedef struct raygo_collective {
  size_t struct_size;
  uint32_t kind;           /* enum raygo_collective_kind */
  uint32_t dtype;          /* enum raygo_dtype */
  uint32_t reduction;      /* enum raygo_reduction */
  int32_t root;            /* or the peer of a message */
  uint32_t tag;            /* of a message, up to 4294901759: a receive takes the first that has its tag */
  uint32_t reserved;
  size_t count;
  const void *src;         /* may be dst, where both have the same size */
  void *dst;
  const raygo_block *srcs; /* n blocks, one for each rank, in place of src; counts may differ */
  const raygo_block *dsts;
} raygo_collective;
static inline raygo_collective raygo_collective_init(void) {
  raygo_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = sizeof c;
  return c;
}

typedef struct raygo_group_options {
  size_t struct_size;
  raygo_view name;         /* 1 to 200 bytes; a store has it once */
  int32_t rank;
  int32_t size;            /* up to 64 */
  int64_t timeout_ns;      /* of the meeting and of each call; 0: 30 minutes; -1: none */
  raygo_view folder;       /* the store: a folder that all ranks can write to, or … */
  void *store;             /* … what these two are called with, from any thread, until the group is closed */
  raygo_status (*store_set)(void *store, raygo_view key, raygo_view value);
  raygo_status (*store_get)(void *store, raygo_view key, int64_t timeout_ns, void **value, size_t *len); /* waits; *value is malloc'd; RAYGO_ETIMEDOUT */
  raygo_view node;         /* name of this node in messages; default: the host's */
  uint64_t arena_bytes;    /* what raygo_group_alloc can hand out; default: 16 GiB of address space */
} raygo_group_options;
static inline raygo_group_options raygo_group_options_init(void) {
  raygo_group_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

typedef struct raygo_group_facts {
  size_t struct_size;
  int32_t rank;
  int32_t size;
} raygo_group_facts;

/* Meets the other ranks; returns when all are there.  ETIMEDOUT: says who is missing.  EEXISTS: the store has had the name before. */
raygo_status raygo_group_open(const raygo_group_options *options, raygo_token token, raygo_group *out, raygo_error *err);

/* Leaves the group.  Calls of this process that are under way end with an error; what other ranks still want of this one fails there. */
raygo_status raygo_group_close(raygo_group group, raygo_error *err);

/* Breaks the group on all ranks, saying why. */
raygo_status raygo_group_abort(raygo_group group, raygo_view why, raygo_error *err);

/* Parts the group: ranks that name the same color form a new one, ordered by key, then by rank.  All ranks call it.  color < 0: into none (out->h is 0). */
raygo_status raygo_group_split(raygo_group group, int32_t color, int32_t key, int64_t timeout_ns, raygo_token token, raygo_group *out, raygo_error *err);

/* facts->struct_size is set by the caller. */
raygo_status raygo_group_info(raygo_group group, raygo_group_facts *facts, raygo_error *err);

/* Memory that all ranks see, 64-aligned, zeroed: arrays in it are reduced without copies.  raygo_group_free before raygo_group_close.  ENOMEM. */
raygo_status raygo_group_alloc(raygo_group group, size_t len, void **out, raygo_error *err);
raygo_status raygo_group_free(raygo_group group, void *data, raygo_error *err);

/* Makes a call and returns when this rank's part is done.  timeout_ns 0: the group's.  source (may be NULL): who sent what was received.  EGROUP: the group is
 * broken.  ETIMEDOUT, EINTERRUPTED: by this call, and the group is broken now, unless it was a message that had not begun. */
raygo_status raygo_group_run(raygo_group group, const raygo_collective *call, int64_t timeout_ns, raygo_token token, int32_t *source, raygo_error *err);

/* Starts a call; the arrays stay the call's until it has ended, the struct and lists of blocks do not.  Started calls and others take effect in the order in which
 * they were made; messages hold up nobody.  Waits while 1024 are queued. */
raygo_status raygo_group_start(raygo_group group, const raygo_collective *call, int64_t timeout_ns, raygo_work *out, raygo_error *err);

/* How the call ended.  -1 waits for ever.  ETIMEDOUT and EINTERRUPTED of the wait itself leave the call as it is; *ended (may be NULL) says whether it has ended. */
raygo_status raygo_work_wait(raygo_work work, int64_t timeout_ns, raygo_token token, int32_t *source, int32_t *ended, raygo_error *err);
/* *cancelled is 1: the call ends with ECANCELED.  0: it had begun.  A collective that is cancelled breaks the group. */
raygo_status raygo_work_cancel(raygo_work work, int32_t *cancelled, raygo_error *err);
/* The call goes on. */
raygo_status raygo_work_release(raygo_work work, raygo_error *err);

/* ================================================================================================ metrics and logs */

enum raygo_metric_type {
  RAYGO_COUNTER = 1,       /* the value is added */
  RAYGO_GAUGE = 2,         /* it replaces the one before */
  RAYGO_HISTOGRAM = 3      /* it is counted in its bucket */
};

/* tags: msgpack map str → str, or empty.  buckets: msgpack array of upper bounds, histograms only. */
raygo_status raygo_metric_record(raygo_runtime rt, uint32_t type, raygo_view name, raygo_view description, raygo_view tags,
                                 raygo_view buckets, double value, int64_t timeout_ns, raygo_token token, raygo_error *err);
/* All metrics of the node as Prometheus text. */
raygo_status raygo_metrics_text(raygo_runtime rt, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err);

/* The next record for the driver's user, in order, as a msgpack map: kind ("out", "err", "warning", "error", "info"), text (whole
 * lines), name, pid, …  Every record goes to one reader. ETIMEDOUT, EINTERRUPTED; ESHUTDOWN when none is left after raygo_shutdown. */
raygo_status raygo_log_next(raygo_runtime rt, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err);

#ifdef __cplusplus
}
#endif
#endif
