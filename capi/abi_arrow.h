/* Internal to abi_arrow*.c: Arrow IPC streams read and written through the C data interface.
 *
 * No Arrow library is linked: the buffers of an IPC message are those of the C interface, so all there is to translate is the metadata, which is
 * flatbuffers.  It costs a program's idle memory nothing, and what is handed out never enters Go. */
#ifndef RAYGO_ABI_ARROW_H
#define RAYGO_ABI_ARROW_H
#include "abi_int.h"

enum { RGA_ARROW_ALIGN = 64, RGA_ARROW_DEPTH = 64 };   /* of buffers; of types within types */
enum rga_arrow_message { RGA_ARROW_SCHEMA = 1, RGA_ARROW_DICTIONARY = 2, RGA_ARROW_RECORDS = 3 };

static inline size_t rga_arrow_padded(size_t n) { return (n + RGA_ARROW_ALIGN - 1) & ~(size_t)(RGA_ARROW_ALIGN - 1); }

/* ------------------------------------------------------------------------------------------------ types (abi_arrow_types.c) */

enum rga_shape { RGA_NULLS, RGA_FIXED, RGA_TEXT, RGA_VIEWS, RGA_LIST, RGA_LISTVIEW, RGA_FIXEDLIST, RGA_STRUCT, RGA_SPARSE, RGA_DENSE, RGA_RUNS };

struct rga_layout {            /* what a format string says of buffers and children */
  enum rga_shape shape;
  int64_t n;                   /* RGA_FIXED: bits of an element; RGA_FIXEDLIST: its length */
  int wide;                    /* bytes of an offset: 4 or 8 */
};
bool rga_arrow_layout(const char *format, int64_t children, struct rga_layout *out);

/* ------------------------------------------------------------------------------------------------ flatbuffers (abi_arrow_meta.c) */

struct rga_fb { const uint8_t *p; size_t n; };   /* read: places are checked, what is not there is place 0 and the default */
size_t rga_fb_follow(struct rga_fb f, size_t at);
size_t rga_fb_table(struct rga_fb f, size_t table, int field);
int64_t rga_fb_int(struct rga_fb f, size_t table, int field, int size, int64_t missing);
size_t rga_fb_vector(struct rga_fb f, size_t table, int field, size_t item, size_t *count);   /* the first item's place */
const char *rga_fb_string(struct rga_fb f, size_t table, int field, size_t *len);             /* not terminated; NULL: missing */
int64_t rga_fb_i64(struct rga_fb f, size_t at);                                               /* of a vector that was found */

struct rga_out { uint8_t *p; size_t n, cap; bool bad; };   /* written from front to back: what a table refers to follows it */
struct rga_cell { int size; int64_t value; size_t at; };   /* a table's field; size 0: left out; `at` is where it went */
size_t rga_out_table(struct rga_out *o, struct rga_cell *cells, int n);
size_t rga_out_vector(struct rga_out *o, size_t count, size_t item, size_t align);   /* the count's place */
size_t rga_out_string(struct rga_out *o, const char *s, size_t n);
void rga_out_link(struct rga_out *o, size_t from, size_t to);
void rga_out_i64(struct rga_out *o, size_t at, int64_t v);

/* Names of types: both give false for what they do not know. */
bool rga_arrow_format(struct rga_fb f, int64_t kind, size_t type, int64_t children, char **format);   /* malloc'd; NULL: no memory */
bool rga_arrow_type(struct rga_out *o, const char *format, int64_t flags, int64_t *kind, size_t *at);

/* ------------------------------------------------------------------------------------------------ streams */

/* Opens what is in a buffer, which is taken over, also on failure (abi_arrow_read.c). */
raygo_status rga_arrow_open(raygo_buf *buf, struct ArrowArrayStream *out, raygo_error *err);

struct rga_piece { const void *p; void *own; size_t n; };
struct rga_gathered {          /* a stream that has not been put together; each piece begins at a multiple of 64 (abi_arrow_write.c) */
  struct rga_piece *pieces;
  size_t n, cap, size;
  struct ArrowSchema schema;
  struct ArrowArray *batches;
  size_t n_batches, cap_batches;
};
/* Reads a producer to its end and releases it, also on failure. */
raygo_status rga_arrow_gather(const char *function, struct ArrowArrayStream *in, struct rga_gathered *out, raygo_error *err);
void rga_arrow_write(const struct rga_gathered *g, uint8_t *to);
void rga_arrow_drop(struct rga_gathered *g);
#endif
