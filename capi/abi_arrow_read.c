/* raygo.h: Arrow IPC streams in shared memory, handed out as C arrays over that memory.
 *
 * Every schema and array that is handed out is a block of its own, so that consumers may move parts away.  Each array holds its source.  What the
 * metadata says is checked against the bytes that there are: places, lengths, and where offsets end; the offsets between and dictionary indices are not. */
#include "abi_arrow.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum { VERSION = 0, KIND, HEADER, BODY };   /* fields of Message */

struct source {
  _Atomic int64_t refs;        /* one of the stream's, one of every array's */
  raygo_buf buf;
  uint8_t *copy;               /* where a value came unaligned, as small ones may */
  const uint8_t *p;
  size_t n;
};

struct message { struct rga_fb head; size_t table; int64_t kind; const uint8_t *body; size_t body_len; };
struct dictionary { int64_t id; struct message m; };

struct reader {
  struct source *src;
  size_t at;                   /* the next message */
  struct message schema_message;
  struct ArrowSchema schema;
  struct dictionary *dictionaries;   /* the last of each id */
  size_t n_dictionaries;
  char error[240];
};

static void source_let_go(struct source *s) {
  if (atomic_fetch_sub(&s->refs, 1) != 1) return;
  raygo_buf_release(&s->buf);
  free(s->copy);
  free(s);
}

static int broken(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int broken(struct reader *r, const char *format, ...) {
  va_list args;
  size_t n = (size_t)snprintf(r->error, sizeof r->error, "malformed Arrow stream: ");
  va_start(args, format);
  vsnprintf(r->error + n, sizeof r->error - n, format, args);
  va_end(args);
  return EINVAL;
}

static int no_memory(struct reader *r) {
  snprintf(r->error, sizeof r->error, "there is no memory for the Arrow stream's metadata");
  return ENOMEM;
}

/* ------------------------------------------------------------------------------------------------ messages */

/* 0 and m->kind 0: the end, whose mark may be missing. */
static int next_message(struct reader *r, struct message *m) {
  const uint8_t *p = r->src->p + r->at;
  size_t left = r->src->n - r->at;
  uint32_t mark, n;
  memset(m, 0, sizeof *m);
  if (left < 8) return 0;
  memcpy(&mark, p, 4);
  memcpy(&n, p + 4, 4);
  if (mark != 0xffffffff) return broken(r, "no message begins %zu bytes before its end", left);
  if (!n) return 0;
  if (n > left - 8) return broken(r, "a message's head has %u bytes where %zu are left", n, left - 8);
  m->head = (struct rga_fb){p + 8, n};
  m->table = rga_fb_follow(m->head, 0);
  m->kind = rga_fb_int(m->head, m->table, KIND, 1, 0);
  int64_t version = rga_fb_int(m->head, m->table, VERSION, 2, 0), body = rga_fb_int(m->head, m->table, BODY, 8, 0);
  if (!m->kind || body < 0 || (uint64_t)body > left - 8 - n) return broken(r, "a message's body has %lld bytes where %zu are left", (long long)body, left - 8 - n);
  if (n % 8 || body % 8) return broken(r, "a message's parts are not of multiples of 8 bytes");
  if (version != 3 && version != 4) return broken(r, "its metadata is of version %lld, and 4 and 5 are known", (long long)version + 1);
  m->body = p + 8 + n;
  m->body_len = (size_t)body;
  r->at += 8 + n + (size_t)body;
  return 0;
}

/* ------------------------------------------------------------------------------------------------ schemas */

struct named {                 /* behind a schema */
  char *format, *name, *metadata;
  int64_t dictionary;          /* its id */
};

static void schema_release(struct ArrowSchema *s) {
  struct named *of = s->private_data;
  for (int64_t i = 0; i < s->n_children; i++) {
    if (s->children[i] && s->children[i]->release) s->children[i]->release(s->children[i]);
    free(s->children[i]);
  }
  free(s->children);
  if (s->dictionary && s->dictionary->release) s->dictionary->release(s->dictionary);
  free(s->dictionary);
  free(of->format);
  free(of->name);
  free(of->metadata);
  free(of);
  s->release = NULL;
}

struct parse { struct reader *r; struct rga_fb f; size_t budget; };   /* bytes that may be made of metadata, which may refer to one part many times */

static int spend(struct parse *p, size_t n) {
  if (n > p->budget) return broken(p->r, "its schema unfolds to many times its size");
  p->budget -= n;
  return 0;
}

/* A vector of KeyValue, as the C interface spells it. */
static int metadata(struct parse *p, size_t table, int field, char **out) {
  size_t n, at = rga_fb_vector(p->f, table, field, 4, &n), size = 4, len[2];
  if (!n) return 0;
  for (size_t i = 0; i < n; i++) {
    size_t pair = rga_fb_follow(p->f, at + 4 * i);
    rga_fb_string(p->f, pair, 0, &len[0]);
    rga_fb_string(p->f, pair, 1, &len[1]);
    size += 8 + len[0] + len[1];
    if (size > INT32_MAX) return broken(p->r, "its metadata is too large");
    int r = spend(p, 8 + len[0] + len[1]);
    if (r) return r;
  }
  char *w = *out = malloc(size);
  if (!w) return no_memory(p->r);
  int32_t count = (int32_t)n;
  memcpy(w, &count, 4);
  w += 4;
  for (size_t i = 0; i < n; i++)
    for (int k = 0; k < 2; k++) {
      const char *s = rga_fb_string(p->f, rga_fb_follow(p->f, at + 4 * i), k, &len[k]);
      int32_t l = (int32_t)len[k];
      memcpy(w, &l, 4);
      if (l) memcpy(w + 4, s, len[k]);
      w += 4 + l;
    }
  return 0;
}

static struct named *schema_begin(struct ArrowSchema *s) {
  memset(s, 0, sizeof *s);
  struct named *of = s->private_data = calloc(1, sizeof *of);
  if (of) s->release = schema_release;
  return of;
}

static int schema_children(struct parse *p, size_t table, int field, int depth, struct ArrowSchema *s);

enum { NAME, NULLABLE, TYPE_KIND, TYPE, DICTIONARY, CHILDREN, METADATA };   /* of Field */

static int field_type(struct parse *p, size_t field, int depth, struct ArrowSchema *s) {
  struct named *of = s->private_data;
  size_t type = rga_fb_table(p->f, field, TYPE);
  int64_t kind = rga_fb_int(p->f, field, TYPE_KIND, 1, 0);
  int r = schema_children(p, field, CHILDREN, depth, s);
  if (r) return r;
  if (!rga_arrow_format(p->f, kind, type, s->n_children, &of->format)) return broken(p->r, "a field of type %lld with %lld children is not known", (long long)kind, (long long)s->n_children);
  if (!(s->format = of->format)) return no_memory(p->r);
  if (!strcmp(s->format, "+m") && rga_fb_int(p->f, type, 0, 1, 0)) s->flags |= ARROW_FLAG_MAP_KEYS_SORTED;
  return spend(p, strlen(s->format));
}

/* A field; on failure what there is of it is released with its parent. */
static int schema_field(struct parse *p, size_t field, int depth, struct ArrowSchema *s) {
  struct named *of = schema_begin(s);
  size_t len;
  if (!of) return no_memory(p->r);
  const char *name = rga_fb_string(p->f, field, NAME, &len);
  if (!field || depth > RGA_ARROW_DEPTH) return broken(p->r, "a field is missing or nested too deep");
  int r = spend(p, 16 + len);
  if (r) return r;
  if (!(s->name = of->name = strndup(name ? name : "", len))) return no_memory(p->r);
  if (rga_fb_int(p->f, field, NULLABLE, 1, 0)) s->flags |= ARROW_FLAG_NULLABLE;
  if ((r = metadata(p, field, METADATA, &of->metadata))) return r;
  s->metadata = of->metadata;
  size_t encoding = rga_fb_table(p->f, field, DICTIONARY);
  if (!encoding) return field_type(p, field, depth, s);

  /* The field's type is that of its values; the indices' stands in the encoding. */
  size_t index = rga_fb_table(p->f, encoding, 1);
  of->dictionary = rga_fb_int(p->f, encoding, 0, 8, 0);
  if (rga_fb_int(p->f, encoding, 2, 1, 0)) s->flags |= ARROW_FLAG_DICTIONARY_ORDERED;
  if (!index) of->format = strdup("i");
  else if (!rga_arrow_format(p->f, 2, index, 0, &of->format)) return broken(p->r, "a dictionary has indices of an unknown type");
  s->dictionary = calloc(1, sizeof *s->dictionary);
  if (!(s->format = of->format) || !s->dictionary) return no_memory(p->r);
  struct named *values = schema_begin(s->dictionary);
  if (!values) return no_memory(p->r);
  s->dictionary->flags = ARROW_FLAG_NULLABLE;
  if (!(s->dictionary->name = values->name = strdup(""))) return no_memory(p->r);
  return field_type(p, field, depth, s->dictionary);
}

static int schema_children(struct parse *p, size_t table, int field, int depth, struct ArrowSchema *s) {
  size_t n, at = rga_fb_vector(p->f, table, field, 4, &n);
  if (n && !(s->children = calloc(n, sizeof *s->children))) return no_memory(p->r);
  for (size_t i = 0; i < n; i++) {
    if (!(s->children[i] = calloc(1, sizeof **s->children))) return no_memory(p->r);
    s->n_children++;
    int r = schema_field(p, rga_fb_follow(p->f, at + 4 * i), depth + 1, s->children[i]);
    if (r) return r;
  }
  return 0;
}

static int read_schema(struct reader *r, struct ArrowSchema *out) {
  struct parse p = {r, r->schema_message.head, 4096 + 8 * r->schema_message.head.n};
  size_t schema = rga_fb_table(p.f, r->schema_message.table, HEADER);
  struct named *of = schema_begin(out);
  if (!of) return no_memory(r);
  int status = 0;
  if (!schema) status = broken(r, "its schema is missing");
  else if (rga_fb_int(p.f, schema, 0, 2, 0)) status = broken(r, "its numbers are big-endian");
  else if (!(out->format = of->format = strdup("+s")) || !(out->name = of->name = strdup(""))) status = no_memory(r);
  else status = metadata(&p, schema, 2, &of->metadata);
  out->metadata = of->metadata;
  if (!status) status = schema_children(&p, schema, 1, 0, out);
  if (status) schema_release(out);
  return status;
}

/* ------------------------------------------------------------------------------------------------ arrays */

struct batch {                 /* a RecordBatch that is read */
  struct rga_fb f;
  size_t nodes, n_nodes, buffers, n_buffers, variadic, n_variadic;   /* places of what comes next, and how many are left */
  int64_t version, length;
  const uint8_t *body;
  size_t body_len;
};

struct held {                  /* behind an array */
  struct source *src;
  int64_t *sizes;              /* of views' buffers */
  const void *buffers[];
};

static void array_release(struct ArrowArray *a) {
  struct held *h = a->private_data;
  for (int64_t i = 0; i < a->n_children; i++) {
    if (a->children[i] && a->children[i]->release) a->children[i]->release(a->children[i]);
    free(a->children[i]);
  }
  free(a->children);
  if (a->dictionary && a->dictionary->release) a->dictionary->release(a->dictionary);
  free(a->dictionary);
  source_let_go(h->src);
  free(h->sizes);
  free(h);
  a->release = NULL;
}

static struct held *array_begin(struct reader *r, struct ArrowArray *a, int64_t length, size_t buffers, size_t children) {
  memset(a, 0, sizeof *a);
  struct held *h = calloc(1, sizeof *h + (buffers + 1) * sizeof *h->buffers);
  if (children) a->children = calloc(children, sizeof *a->children);
  if (!h || (children && !a->children)) {
    free(h);
    free(a->children);
    return NULL;
  }
  h->src = r->src;
  atomic_fetch_add(&r->src->refs, 1);
  a->length = length;
  a->n_buffers = (int64_t)buffers;
  a->buffers = h->buffers;
  a->private_data = h;
  a->release = array_release;
  return h;
}

static int open_batch(struct reader *r, const struct message *m, struct batch *b) {
  size_t table = rga_fb_table(m->head, m->table, HEADER);
  if (m->kind == RGA_ARROW_DICTIONARY) table = rga_fb_table(m->head, table, 1);
  memset(b, 0, sizeof *b);
  b->f = m->head;
  b->version = rga_fb_int(m->head, m->table, VERSION, 2, 0);
  b->body = m->body;
  b->body_len = m->body_len;
  b->length = rga_fb_int(b->f, table, 0, 8, 0);
  b->nodes = rga_fb_vector(b->f, table, 1, 16, &b->n_nodes);
  b->buffers = rga_fb_vector(b->f, table, 2, 16, &b->n_buffers);
  b->variadic = rga_fb_vector(b->f, table, 4, 8, &b->n_variadic);
  if (!table || b->length < 0) return broken(r, "a batch has no header or no length");
  if (rga_fb_table(b->f, table, 3)) {
    snprintf(r->error, sizeof r->error, "the Arrow stream's buffers are compressed, and values in memory are to be as they are: write it without compression");
    return EINVAL;
  }
  return 0;
}

/* The next buffer, of at least `least` bytes; NULL for an empty one. */
static int take(struct reader *r, struct batch *b, int64_t least, const void **out, int64_t *len) {
  static const int64_t nothing[2];   /* the only offset of an empty array */
  if (!b->n_buffers) return broken(r, "a batch has too few buffers");
  int64_t at = rga_fb_i64(b->f, b->buffers), n = rga_fb_i64(b->f, b->buffers + 8);
  b->buffers += 16;
  b->n_buffers--;
  if (at < 0 || n < 0 || (uint64_t)at > b->body_len || (uint64_t)n > b->body_len - (uint64_t)at || at % 8)
    return broken(r, "a buffer of %lld bytes at %lld does not lie in its body of %zu bytes", (long long)n, (long long)at, b->body_len);
  if (n < least) return broken(r, "a buffer has %lld bytes where %lld are needed", (long long)n, (long long)least);
  *out = n ? b->body + at : (const void *)nothing;
  *len = n;
  return 0;
}

static int64_t offset_at(const void *p, int wide, int64_t i) { return wide == 8 ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i]; }

/* Offsets of n elements; *end: where the last one ends. */
static int take_offsets(struct reader *r, struct batch *b, int wide, int64_t n, const void **out, int64_t *end) {
  int64_t len;
  *end = 0;
  int status = take(r, b, n ? (n + 1) * wide : 0, out, &len);
  if (status || !n) return status;
  *end = offset_at(*out, wide, n);
  if (*end < 0 || offset_at(*out, wide, 0) < 0 || offset_at(*out, wide, 0) > *end) return broken(r, "offsets end at %lld", (long long)*end);
  return 0;
}

static int read_array(struct reader *r, struct batch *b, const struct ArrowSchema *s, struct ArrowArray *a);

static int read_dictionary(struct reader *r, const struct ArrowSchema *s, struct ArrowArray *a) {
  int64_t id = ((struct named *)s->private_data)->dictionary;
  if (!(a->dictionary = calloc(1, sizeof *a->dictionary))) return no_memory(r);
  for (size_t i = 0; i < r->n_dictionaries; i++)
    if (r->dictionaries[i].id == id) {
      struct batch b;
      int status = open_batch(r, &r->dictionaries[i].m, &b);
      return status ? status : read_array(r, &b, s->dictionary, a->dictionary);
    }
  return broken(r, "dictionary %lld is missing", (long long)id);
}

/* A place for what is n elements of the given bits, which never says too little. */
static int64_t bytes_of(int64_t n, int64_t bits) {
  int64_t total;
  if (__builtin_mul_overflow(n, bits, &total)) return INT64_MAX;
  return total / 8 + (total % 8 != 0);
}

static int read_views(struct reader *r, struct batch *b, struct ArrowArray *a, size_t data) {
  struct held *h = a->private_data;
  int64_t len;
  int status = take(r, b, bytes_of(a->length, 128), &h->buffers[1], &len);
  if (!(h->sizes = calloc(data + 1, sizeof *h->sizes))) return no_memory(r);
  for (size_t i = 0; i < data && !status; i++) status = take(r, b, 0, &h->buffers[2 + i], &h->sizes[i]);
  h->buffers[2 + data] = h->sizes;
  return status;
}

/* A field's array; on failure what there is of it is released with its parent. */
static int read_array(struct reader *r, struct batch *b, const struct ArrowSchema *s, struct ArrowArray *a) {
  static const uint8_t count[] = {[RGA_NULLS] = 0, [RGA_FIXED] = 2, [RGA_TEXT] = 3, [RGA_VIEWS] = 3, [RGA_LIST] = 2, [RGA_LISTVIEW] = 3,
                                  [RGA_FIXEDLIST] = 1, [RGA_STRUCT] = 1, [RGA_SPARSE] = 1, [RGA_DENSE] = 2, [RGA_RUNS] = 0};
  struct rga_layout l;
  int64_t len, end = 0, least = 0;   /* of the children */
  int status = 0;
  if (!rga_arrow_layout(s->format, s->n_children, &l) || !b->n_nodes) return broken(r, "a batch has fewer fields than its schema");
  int64_t n = rga_fb_i64(b->f, b->nodes), nulls = rga_fb_i64(b->f, b->nodes + 8);
  b->nodes += 16;
  b->n_nodes--;
  if (n < 0 || n > INT64_MAX / 16 - 1 || nulls < -1 || nulls > n) return broken(r, "a field has %lld elements, %lld of them missing", (long long)n, (long long)nulls);
  size_t data = 0;
  if (l.shape == RGA_VIEWS) {
    int64_t v = b->n_variadic ? rga_fb_i64(b->f, b->variadic) : -1;
    if (v < 0 || (uint64_t)v > b->n_buffers) return broken(r, "a batch does not say how many buffers a field has");
    data = (size_t)v;
    b->variadic += 8;
    b->n_variadic--;
  }
  struct held *h = array_begin(r, a, n, count[l.shape] + data, (size_t)s->n_children);
  if (!h) return no_memory(r);
  a->null_count = nulls;
  bool validity = l.shape != RGA_NULLS && l.shape != RGA_SPARSE && l.shape != RGA_DENSE && l.shape != RGA_RUNS;
  if (!validity && l.shape != RGA_NULLS && b->version < 4) return broken(r, "unions and runs are read of metadata of version 5 only");
  if (validity) {
    if ((status = take(r, b, nulls ? bytes_of(n, 1) : 0, &h->buffers[0], &len))) return status;
    if (!nulls || !len) h->buffers[0] = NULL;
  }
  switch (l.shape) {
  case RGA_NULLS: a->null_count = n; break;
  case RGA_FIXED: status = take(r, b, bytes_of(n, l.n), &h->buffers[1], &len); break;
  case RGA_TEXT:
    if (!(status = take_offsets(r, b, l.wide, n, &h->buffers[1], &end))) status = take(r, b, end, &h->buffers[2], &len);
    break;
  case RGA_VIEWS: status = read_views(r, b, a, data); break;
  case RGA_LIST:
    status = take_offsets(r, b, l.wide, n, &h->buffers[1], &end);
    least = end;
    break;
  case RGA_LISTVIEW:
    if (!(status = take(r, b, n * l.wide, &h->buffers[1], &len))) status = take(r, b, n * l.wide, &h->buffers[2], &len);
    break;
  case RGA_FIXEDLIST:
    if (__builtin_mul_overflow(n, l.n, &least)) least = INT64_MAX;
    break;
  case RGA_STRUCT: least = n; break;
  case RGA_SPARSE:
    status = take(r, b, n, &h->buffers[0], &len);
    least = n;
    break;
  case RGA_DENSE:
    if (!(status = take(r, b, n, &h->buffers[0], &len))) status = take(r, b, n * 4, &h->buffers[1], &len);
    break;
  case RGA_RUNS: break;
  }
  for (int64_t i = 0; i < s->n_children && !status; i++) {
    if (!(a->children[i] = calloc(1, sizeof **a->children))) return no_memory(r);
    a->n_children++;
    status = read_array(r, b, s->children[i], a->children[i]);
    if (!status && a->children[i]->length < least) status = broken(r, "a field has %lld elements where %lld are needed", (long long)a->children[i]->length, (long long)least);
  }
  if (!status && s->dictionary) status = read_dictionary(r, s, a);
  return status;
}

static int read_records(struct reader *r, const struct message *m, struct ArrowArray *out) {
  struct batch b;
  int status = open_batch(r, m, &b);
  if (status) return status;
  struct held *h = array_begin(r, out, b.length, 1, (size_t)r->schema.n_children);
  if (!h) return no_memory(r);
  for (int64_t i = 0; i < r->schema.n_children && !status; i++) {
    if (!(out->children[i] = calloc(1, sizeof **out->children))) status = no_memory(r);
    else {
      out->n_children++;
      status = read_array(r, &b, r->schema.children[i], out->children[i]);
      if (!status && out->children[i]->length != b.length) status = broken(r, "columns of a batch differ in length");
    }
  }
  if (status) array_release(out);
  return status;
}

static int keep_dictionary(struct reader *r, const struct message *m) {
  size_t table = rga_fb_table(m->head, m->table, HEADER);
  struct dictionary d = {rga_fb_int(m->head, table, 0, 8, 0), *m};
  if (rga_fb_int(m->head, table, 2, 1, 0)) {
    snprintf(r->error, sizeof r->error, "the Arrow stream adds to a dictionary, which one in shared memory cannot: write it with whole dictionaries");
    return EINVAL;
  }
  for (size_t i = 0; i < r->n_dictionaries; i++)
    if (r->dictionaries[i].id == d.id) {
      r->dictionaries[i] = d;
      return 0;
    }
  struct dictionary *more = realloc(r->dictionaries, (r->n_dictionaries + 1) * sizeof *more);
  if (!more) return no_memory(r);
  r->dictionaries = more;
  more[r->n_dictionaries++] = d;
  return 0;
}

/* ------------------------------------------------------------------------------------------------ the stream */

static int stream_schema(struct ArrowArrayStream *s, struct ArrowSchema *out) { return read_schema(s->private_data, out); }

static int stream_next(struct ArrowArrayStream *s, struct ArrowArray *out) {
  struct reader *r = s->private_data;
  struct message m;
  memset(out, 0, sizeof *out);
  for (;;) {
    int status = next_message(r, &m);
    if (!status && m.kind == RGA_ARROW_DICTIONARY) status = keep_dictionary(r, &m);
    else if (!status && m.kind == RGA_ARROW_RECORDS) return read_records(r, &m, out);
    else if (!status && m.kind) status = broken(r, "a message of kind %lld is not known", (long long)m.kind);
    if (status || !m.kind) return status;
  }
}

static const char *stream_error(struct ArrowArrayStream *s) {
  struct reader *r = s->private_data;
  return *r->error ? r->error : NULL;
}

static void reader_free(struct reader *r) {
  if (r->schema.release) r->schema.release(&r->schema);
  source_let_go(r->src);
  free(r->dictionaries);
  free(r);
}

static void stream_release(struct ArrowArrayStream *s) {
  reader_free(s->private_data);
  s->release = NULL;
}

/* Reads the schema and sees that the messages are whole. */
static int begin(struct reader *r) {
  struct message m;
  int status = next_message(r, &r->schema_message);
  if (!status && r->schema_message.kind != RGA_ARROW_SCHEMA) status = broken(r, "it does not begin with a schema");
  if (!status) status = read_schema(r, &r->schema);
  size_t first = r->at;
  do {
    if (!status) status = next_message(r, &m);
  } while (!status && m.kind);
  r->at = first;
  return status;
}

raygo_status rga_arrow_open(raygo_buf *buf, struct ArrowArrayStream *out, raygo_error *err) {
  struct reader *r = calloc(1, sizeof *r);
  struct source *src = calloc(1, sizeof *src);
  if (!r || !src) {
    free(r);
    free(src);
    raygo_buf_release(buf);
    return rga_code(err, RAYGO_ENOMEM, "The Arrow stream was not opened");
  }
  *src = (struct source){.refs = 1, .buf = *buf, .p = buf->data, .n = buf->len};
  memset(buf, 0, sizeof *buf);
  r->src = src;
  int status = 0;
  if ((uintptr_t)src->p % RGA_ARROW_ALIGN && src->n) {
    void *copy = NULL;
    if (posix_memalign(&copy, RGA_ARROW_ALIGN, src->n)) status = no_memory(r);
    else {
      src->p = src->copy = memcpy(copy, src->p, src->n);
      raygo_buf_release(&src->buf);
    }
  }
  if (!status) status = begin(r);
  if (!status) {
    *out = (struct ArrowArrayStream){stream_schema, stream_next, stream_error, stream_release, r};
    return RAYGO_OK;
  }
  status = rga_fail(err, status == ENOMEM ? RAYGO_ENOMEM : RAYGO_EINVAL, "The Arrow stream was not opened: %s.", r->error);
  reader_free(r);
  return status;
}
