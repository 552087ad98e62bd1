/* Frames between a process and its node engine.  engine/wire mirrors this file; PROTOCOL.md there says what the frames mean.
 *
 * Everything is little-endian, every struct is packed to its natural 8-byte layout and every variable part is padded with zeros
 * to a multiple of 8, so that structs may be read in place.  RG_PAD8(n) is the padded length. */
#ifndef RAYGO_WIRE_H
#define RAYGO_WIRE_H
#include <stdint.h>

#define RG_PAD8(n) (((uint64_t)(n) + 7u) & ~(uint64_t)7u)
#define RG_MAX_FRAME (256u << 20)   /* bytes after the header; a longer one ends the connection */
#define RG_MAX_SITE (4u << 10)      /* bytes of an rg_site's text */
#define RG_INLINE_MAX (64u << 10)   /* values up to this travel inside frames; larger ones go through the arena */

struct rg_hdr {            /* 16 bytes, before every frame */
  uint32_t len;            /* bytes after this header, padding included */
  uint16_t type;           /* enum rg_type */
  uint16_t flags;          /* RG_F_*, per type */
  uint64_t id;             /* task, template, actor or request number, per type */
};

struct rg_oid {            /* an object: what task made it, and which of its values it is */
  uint64_t task;
  uint32_t index;          /* 0: a put, or an actor's handle; 1..n: return values; generators: item k has index 2+k, 1 is the end */
  uint32_t zero;
};

enum rg_type {
  /* process -> engine */
  RG_HELLO = 1,            /* first frame of a socket connection.  payload: msgpack map */
  RG_TEMPLATE = 2,         /* id: number chosen by the sender.  payload: msgpack map */
  RG_SUBMIT = 3,           /* id: task (or new actor) number.  payload: rg_submit */
  RG_PUT = 4,              /* id: task number of the object.  payload: rg_value, index 0 */
  RG_CREATE = 5,           /* arena space.  id: task number.  payload: rg_create.  answered by RG_CREATED */
  RG_SEAL = 6,             /* id: task number.  payload: rg_value of kind RG_V_ARENA without data: the object is whole */
  RG_ABORT = 7,            /* id: task number.  payload: rg_oid: give created space back */
  RG_ADDREF = 8,           /* payload: rg_oid[]: this process holds these now */
  RG_RELEASE = 9,          /* payload: rg_oid[]: this process no longer holds these */
  RG_SUBSCRIBE = 10,       /* payload: rg_oid[]: send RG_OBJECT for each as soon as it is there */
  RG_PIN = 11,             /* payload: rg_oid[]: as SUBSCRIBE, but arena objects come pinned, with their place */
  RG_UNPIN = 12,           /* payload: rg_oid[]: one pin less for each */
  RG_CALL = 13,            /* id: request number.  payload: msgpack [method, argument]; answered by RG_REPLY */
  RG_CANCEL = 14,          /* id: task number.  flags: RG_F_FORCE, RG_F_RECURSIVE */
  RG_KILL = 15,            /* id: actor number.  flags: RG_F_NO_RESTART */
  RG_RESULT = 16,          /* id: task number.  payload: rg_result: the task ended */
  RG_ITEM = 17,            /* id: task number.  payload: rg_value: one more item of a generator */
  RG_BLOCKED = 18,         /* id: task number (0: none).  payload: rg_oid[] waited for.  flags: RG_F_ANY when one is enough, RG_F_TIMED, RG_F_ASIDE */
  RG_UNBLOCKED = 19,       /* id: as in RG_BLOCKED */
  RG_RETURN = 20,          /* payload: uint64_t[]: tasks sent to this worker and not begun, given back */
  RG_CONSUMED = 21,        /* id: generator task.  payload: uint64_t count of items taken so far; UINT64_MAX: generator dropped */
  RG_GOODBYE = 22,         /* nothing follows: the process ends of its own will */
  RG_SITE = 23,            /* id: task number.  payload: rg_site: where in the program this process made its references */
  RG_CHUNK_ASK = 24,       /* payload: uint64_t bytes: a piece of the arena to cut objects from.  answered by RG_CHUNK */
  RG_CHUNK_BACK = 25,      /* payload: rg_range[]: of such pieces, what no object was made of */
  /* engine -> process */
  RG_WELCOME = 64,         /* first frame.  payload: msgpack map; on a socket the arena's descriptor rides on it unless inherited */
  RG_OBJECT = 65,          /* id: task number.  payload: rg_value */
  RG_CREATED = 66,         /* id: task number.  payload: rg_created */
  RG_REPLY = 67,           /* id: request number.  flags: status (capi/errors.tsv).  payload: msgpack result, or a str message */
  RG_TEMPLATE_DEF = 68,    /* id: engine's template number.  payload: the msgpack map of RG_TEMPLATE.  before its first RG_EXEC */
  RG_EXEC = 69,            /* id: task number.  payload: rg_exec */
  RG_CANCEL_EXEC = 70,     /* id: task number running or queued in this process */
  RG_RECALL = 71,          /* give back tasks that have not begun, by RG_RETURN (also when there are none) */
  RG_RESUME = 72,          /* id: generator task.  payload: uint64_t items taken by the consumer; UINT64_MAX: stop producing */
  RG_LOG = 73,             /* payload: msgpack map: text for the driver's user */
  RG_EXIT = 74,            /* end this process when what it runs now has ended; flags: RG_F_FORCE: at once */
  RG_WAIT_ERROR = 75,      /* id: task number that sent RG_BLOCKED.  payload: rg_value RG_V_SYSERR: its wait cannot end */
  RG_CHUNK = 76,           /* payload: rg_chunk */
  RG_CHUNK_RECALL = 77     /* the store needs room: give unused parts of chunks back */
};

enum rg_flag {
  RG_F_FORCE = 1, RG_F_RECURSIVE = 2, RG_F_NO_RESTART = 4, RG_F_ANY = 8,
  /* RG_SUBMIT, RG_EXEC */
  RG_F_ACTOR_CREATE = 16, /* id is the number of the new actor */
  RG_F_ACTOR_CALL = 32,   /* rg_submit.actor / rg_exec.actor is set */
  RG_F_STREAMING = 64,    /* a generator: RG_ITEM frames, then RG_RESULT */
  RG_F_HAS_CONTEXT = 128, /* RG_EXEC: a msgpack map stands at the end (rg_exec.context_len) */
  RG_F_TIMED = 256,       /* RG_BLOCKED: the wait ends by itself after a while */
  RG_F_LEASE = 512,       /* RG_CREATE: the process would pin the object without asking */
  RG_F_ASIDE = 1024       /* RG_BLOCKED, RG_UNBLOCKED: a thread that the task has started waits, and the task itself may go on */
};

enum rg_kind {             /* how a value is held */
  RG_V_INLINE = 1,         /* data follows */
  RG_V_ARENA = 2,          /* at rg_value.offset in the arena, or in a file (rg_value.file); offset is ~0 where the frame grants no pin.  From a
                              process: where in a chunk it was written, a multiple of 4096; ~0: into the space that RG_CREATE made */
  RG_V_SYSERR = 3          /* data follows: msgpack map {code, message, …}: the engine's own error instead of a value */
};

struct rg_value {          /* 32 bytes; then nrefs rg_oid the value contains; then, if inline or syserr, len bytes padded to 8 */
  uint32_t index;
  uint16_t kind;           /* enum rg_kind */
  uint16_t is_error;       /* the value is an exception to raise (blob format RG_B_ERROR) */
  uint64_t len;            /* bytes of the value */
  uint64_t offset;
  uint32_t nrefs;
  uint32_t file;           /* ARENA, from the engine.  0: in the arena; else 1 + the engine's descriptor of the file to map: /proc/<engine>/fd/<file - 1> */
};

struct rg_submit {         /* 40 bytes; then ntop rg_oid; then nnested rg_oid; then args_len bytes padded to 8 */
  uint32_t template_no;    /* the sender's number */
  uint32_t nreturns;       /* 0 with RG_F_STREAMING */
  uint64_t actor;          /* with RG_F_ACTOR_CALL */
  uint64_t parent;         /* task that submits; 0 for a driver's own code */
  uint32_t ntop;           /* arguments that are references: resolved before the task starts, in this order */
  uint32_t nnested;        /* references inside other arguments: held until the task ends, not resolved */
  uint32_t args_len;       /* argument block, opaque to the engine */
  uint32_t zero;
};

struct rg_exec {           /* 48 bytes; then ntop resolved arguments, each rg_oid + rg_value (with its data); then args; then context */
  uint32_t template_no;    /* the engine's number */
  uint32_t nreturns;
  uint64_t actor;
  uint64_t parent;
  uint32_t ntop;
  uint32_t attempt;        /* 0 for the first run */
  uint32_t args_len;
  uint32_t context_len;
  uint32_t retries_left;   /* whether an exception of a listed kind may still be retried; UINT32_MAX: without end */
  uint32_t zero;
};

enum rg_result_status {
  RG_R_OK = 0,
  RG_R_ERROR = 1,          /* value 1 (or all values) is an error; final */
  RG_R_RETRY = 2,          /* as ERROR, but of a kind that retry_exceptions lists: run again while retries are left */
  RG_R_CANCELED = 3,       /* ended by RG_CANCEL_EXEC */
  RG_R_EXIT_ACTOR = 4      /* the actor asked to end; value 1 may hold an error text */
};

struct rg_result {         /* 24 bytes; then nvalues rg_value each with refs and data */
  uint32_t status;
  uint32_t nvalues;        /* streaming: 1, index 1: the number of items as blob, or the error */
  uint64_t exec_ns;        /* wall time of the run */
  uint32_t attempt;        /* from rg_exec: a late answer of an earlier run is dropped */
  uint32_t zero;
};

struct rg_site {           /* 16 bytes; then len bytes of text, at most RG_MAX_SITE, padded to 8 */
  uint32_t index, n;       /* of so many values from this one on */
  uint32_t len;
  uint32_t zero;
};

struct rg_create { uint32_t index; uint32_t zero; uint64_t size; };
struct rg_created {        /* then, if status is not 0, message_len bytes padded to 8 */
  uint32_t index, status;
  uint64_t offset;
  uint32_t message_len;
  uint32_t file;           /* as in rg_value: where the object is to be written, if not in the arena */
  uint32_t generation;     /* grows when free pages went back to the system: what a process had mapped before, it has to fault in again */
  uint32_t lease;          /* 0: none; else 1 + the index of its word in the file of leases */
  uint32_t lease_gen;      /* the upper half of that word, while the lease lasts */
  uint32_t lease_file;     /* 1 + the engine's descriptor of that file, to be mapped for reading and writing */
};
#define RG_LEASES 4096u            /* words of 8 bytes in the file of leases.  objectstore/lease.go says what they mean */
#define RG_LEASE_CALLED (1u << 31) /* in a word's lower half; the rest of that counts pins */
struct rg_range { uint64_t offset, size; };
struct rg_chunk { struct rg_range at; uint32_t generation, zero; };   /* at.size is 0 when space is scarce */

/* A value's blob, in a frame or in the arena: header, then nbuf rg_bufent, then the body; buffers at 64-byte multiples from the start. */
enum rg_blob_format {
  RG_B_NONE = 0,           /* Python's None, null elsewhere; no body */
  RG_B_PICKLE = 1,         /* pickle protocol 5, out-of-band buffers in rg_bufent */
  RG_B_BYTES = 2,          /* the body is the bytes */
  RG_B_MSGPACK = 3,        /* plain values, for every language */
  RG_B_ARROW = 4,          /* the first buffer is an Arrow IPC stream; the body and further buffers say what its writer's language makes of it, others ignore them */
  RG_B_TENSOR = 5,         /* the body is rg_tensor and ndim uint64_t of shape; the one buffer has the elements, row by row */
  RG_B_ERROR = 16          /* a pickled exception, laid out as RG_B_PICKLE */
};
struct rg_blob { uint8_t format; uint8_t zero; uint16_t nbuf; uint32_t zero2; uint64_t body_len; };   /* 16 bytes */
struct rg_bufent { uint64_t off, len; };
struct rg_tensor { uint8_t kind, itemsize, ndim, zero[5]; };   /* kind: b bool, i, u, f, c as in NumPy; little-endian */
#endif
