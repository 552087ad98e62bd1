/* raygo.h: what a producer of C arrays gives, as an Arrow IPC stream.
 *
 * The stream is gathered as a list of pieces, heads made here and buffers that stay the producer's, so that its size is known before memory is asked
 * for and each byte is copied once.  Slices give their rows only: offsets and bitmaps that do not begin with their buffer are made anew. */
#include "abi_arrow.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

struct node { int64_t length, nulls; };
struct span { int64_t at, length; };

struct writer {
  struct rga_gathered *g;
  struct rga_piece *body;      /* buffers of the batch that is written */
  struct node *nodes;
  int64_t *variadic;
  size_t n_body, cap_body, n_nodes, cap_nodes, n_variadic, cap_variadic;
  const struct ArrowArray **dictionaries;   /* by id: what was written last, which its batch holds */
  size_t n_dictionaries;
  int64_t ids;                 /* of dictionaries, in the order of the schema */
  bool no_memory;
  char error[300];
};

static bool no(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool no(struct writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(w->error, sizeof w->error, format, args);
  va_end(args);
  return false;
}

static bool full(struct writer *w) {
  w->no_memory = true;
  return false;
}

/* One item more in an array that grows. */
static void *more(void *array, size_t *n, size_t *cap, size_t item) {
  void **p = array;
  if (*n == *cap) {
    size_t c = *cap * 2 + 16;
    void *bigger = realloc(*p, c * item);
    if (!bigger) return NULL;
    *p = bigger;
    *cap = c;
  }
  return memset((char *)*p + (*n)++ * item, 0, item);
}

static bool buffer(struct writer *w, const void *p, int64_t n, void *own) {
  if (!p && n) return no(w, "a buffer of %lld bytes is missing", (long long)n);
  struct rga_piece *piece = more(&w->body, &w->n_body, &w->cap_body, sizeof *piece);
  if (!piece) {
    free(own);
    return full(w);
  }
  *piece = (struct rga_piece){p, own, (size_t)n};
  return true;
}

/* A place in a buffer, which a producer may leave out: buffer() says so if bytes of it are needed. */
static const void *in_buffer(const void *p, int64_t at) { return p ? (const char *)p + at : NULL; }

/* ------------------------------------------------------------------------------------------------ arrays */

static bool bits(struct writer *w, const uint8_t *p, struct span s) {
  int64_t n = (s.length + 7) / 8;
  int shift = (int)(s.at % 8);
  if (!p) return buffer(w, NULL, 0, NULL);
  if (!shift) return buffer(w, p + s.at / 8, n, NULL);
  uint8_t *own = malloc((size_t)n + 1);
  if (!own) return full(w);
  const uint8_t *first = p + s.at / 8;
  int64_t last = (shift + s.length + 7) / 8;   /* bytes that there are to read */
  for (int64_t i = 0; i < n; i++) own[i] = (uint8_t)(first[i] >> shift | (i + 1 < last ? first[i + 1] << (8 - shift) : 0));
  return buffer(w, own, n, own);
}

static int64_t count_nulls(const uint8_t *p, struct span s) {
  int64_t set = 0, i = s.at, end = s.at + s.length;
  for (; i < end && i % 8; i++) set += p[i / 8] >> (i % 8) & 1;
  for (; i + 64 <= end; i += 64) {
    uint64_t word;
    memcpy(&word, p + i / 8, 8);
    set += __builtin_popcountll(word);
  }
  for (; i < end; i++) set += p[i / 8] >> (i % 8) & 1;
  return s.length - set;
}

static int64_t offset_at(const void *p, int wide, int64_t i) { return wide == 8 ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i]; }

/* Offsets of some elements, from 0 on; *data: what they are offsets into. */
static bool offsets(struct writer *w, const void *p, int wide, struct span s, struct span *data) {
  int64_t n = (s.length + 1) * wide;
  *data = (struct span){0, 0};
  if (!p || !s.length) {
    void *zero = calloc(1, 8);
    return zero ? buffer(w, zero, wide, zero) : full(w);
  }
  int64_t first = offset_at(p, wide, s.at), end = offset_at(p, wide, s.at + s.length);
  if (first < 0 || end < first) return no(w, "an array's offsets go from %lld to %lld", (long long)first, (long long)end);
  *data = (struct span){first, end - first};
  if (!first) return buffer(w, (const char *)p + s.at * wide, n, NULL);
  void *own = malloc((size_t)n);
  if (!own) return full(w);
  if (wide == 8)
    for (int64_t i = 0; i <= s.length; i++) ((int64_t *)own)[i] = ((const int64_t *)p)[s.at + i] - first;
  else
    for (int64_t i = 0; i <= s.length; i++) ((int32_t *)own)[i] = ((const int32_t *)p)[s.at + i] - (int32_t)first;
  return buffer(w, own, n, own);
}

static bool views(struct writer *w, const struct ArrowArray *a, struct span s) {
  int64_t n = a->n_buffers - 3;
  int64_t *v = more(&w->variadic, &w->n_variadic, &w->cap_variadic, sizeof *v);
  if (!v) return full(w);
  *v = n;
  const int64_t *sizes = a->buffers[2 + n];
  if (!buffer(w, in_buffer(a->buffers[1], s.at * 16), s.length * 16, NULL)) return false;
  for (int64_t i = 0; i < n; i++)
    if (!buffer(w, a->buffers[2 + i], sizes[i], NULL)) return false;
  return true;
}

static struct span whole(const struct ArrowArray *a) { return (struct span){a->offset, a->length}; }

/* Part of an array, counted from its buffers' beginning. */
static bool array(struct writer *w, const struct ArrowSchema *s, const struct ArrowArray *a, struct span part, int depth) {
  static const int8_t count[] = {[RGA_NULLS] = 0, [RGA_FIXED] = 2, [RGA_TEXT] = 3, [RGA_VIEWS] = 3, [RGA_LIST] = 2, [RGA_LISTVIEW] = 3,
                                 [RGA_FIXEDLIST] = 1, [RGA_STRUCT] = 1, [RGA_SPARSE] = 1, [RGA_DENSE] = 2, [RGA_RUNS] = 0};
  struct rga_layout l;
  struct span of = {0, 0};   /* the children's part */
  if (!rga_arrow_layout(s->format, s->n_children, &l) || depth > RGA_ARROW_DEPTH) return no(w, "type '%s' is not known here, or is nested too deep", s->format);
  if (a->n_children != s->n_children || (l.shape == RGA_VIEWS ? a->n_buffers < 3 : a->n_buffers != count[l.shape]) || !a->dictionary != !s->dictionary)
    return no(w, "an array of type '%s' has %lld buffers and %lld children", s->format, (long long)a->n_buffers, (long long)a->n_children);
  struct node *node = more(&w->nodes, &w->n_nodes, &w->cap_nodes, sizeof *node);
  if (!node) return full(w);
  node->length = part.length;
  bool own_rows = part.at == a->offset && part.length == a->length, ok = true;
  if (l.shape == RGA_NULLS) node->nulls = part.length;
  else if (l.shape != RGA_SPARSE && l.shape != RGA_DENSE && l.shape != RGA_RUNS) {
    const uint8_t *valid = a->null_count == 0 ? NULL : a->buffers[0];
    node->nulls = !valid ? 0 : own_rows && a->null_count > 0 ? a->null_count : count_nulls(valid, part);
    ok = bits(w, node->nulls ? valid : NULL, part);
  }
  switch (l.shape) {
  case RGA_NULLS: break;
  case RGA_FIXED:
    if (l.n == 1) ok = ok && (a->buffers[1] || !part.length || no(w, "the bits of a column are missing")) && bits(w, a->buffers[1], part);
    else ok = ok && buffer(w, in_buffer(a->buffers[1], part.at * (l.n / 8)), part.length * (l.n / 8), NULL);
    break;
  case RGA_TEXT:
    ok = ok && offsets(w, a->buffers[1], l.wide, part, &of) && buffer(w, in_buffer(a->buffers[2], of.at), of.length, NULL);
    break;
  case RGA_VIEWS: ok = ok && views(w, a, part); break;
  case RGA_LIST: ok = ok && offsets(w, a->buffers[1], l.wide, part, &of); break;
  case RGA_LISTVIEW:
    for (int i = 1; i < 3; i++) ok = ok && buffer(w, in_buffer(a->buffers[i], part.at * l.wide), part.length * l.wide, NULL);
    break;
  case RGA_FIXEDLIST: of = (struct span){part.at * l.n, part.length * l.n}; break;
  case RGA_STRUCT: of = part; break;
  case RGA_SPARSE:
    of = part;
    ok = buffer(w, in_buffer(a->buffers[0], part.at), part.length, NULL);
    break;
  case RGA_DENSE:
    ok = buffer(w, in_buffer(a->buffers[0], part.at), part.length, NULL) && buffer(w, in_buffer(a->buffers[1], part.at * 4), part.length * 4, NULL);
    break;
  case RGA_RUNS:
    if (!own_rows || a->offset) return no(w, "a slice of a run-end encoded array cannot be stored: decode it, or take its rows");
    break;
  }
  bool all = l.shape == RGA_LISTVIEW || l.shape == RGA_DENSE || l.shape == RGA_RUNS;
  for (int64_t i = 0; i < a->n_children && ok; i++) {
    const struct ArrowArray *c = a->children[i];
    if (!all && of.at + of.length > c->length) return no(w, "an array of type '%s' has %lld elements and needs %lld", s->children[i]->format, (long long)c->length, (long long)(of.at + of.length));
    ok = array(w, s->children[i], c, all ? whole(c) : (struct span){c->offset + of.at, of.length}, depth + 1);
  }
  return ok;
}

/* ------------------------------------------------------------------------------------------------ messages */

static bool add(struct writer *w, struct rga_piece piece) {
  struct rga_piece *p = more(&w->g->pieces, &w->g->n, &w->g->cap, sizeof *p);
  if (!p) {
    free(piece.own);
    return full(w);
  }
  *p = piece;
  w->g->size = rga_arrow_padded(w->g->size) + piece.n;
  return true;
}

/* A message's head, which takes over what is written of it. */
static bool head(struct writer *w, struct rga_out *o) {
  size_t n = rga_arrow_padded(8 + o->n);
  uint8_t *own = o->bad ? NULL : malloc(n);
  uint32_t prefix[2] = {0xffffffff, (uint32_t)(n - 8)};
  if (own) {
    memset(own + 8 + o->n, 0, n - 8 - o->n);
    memcpy(own, prefix, 8);
    memcpy(own + 8, o->p, o->n);
  }
  free(o->p);
  return own ? add(w, (struct rga_piece){own, own, n}) : full(w);
}

/* The beginning of a head; where the header is to be linked from. */
static size_t message(struct rga_out *o, enum rga_arrow_message kind, size_t body) {
  struct rga_cell c[] = {{2, 4, 0}, {1, kind, 0}, {4, 0, 0}, {8, (int64_t)body, 0}};
  rga_out_vector(o, 0, 1, 4);   /* the root's offset, at 0 */
  rga_out_link(o, 0, rga_out_table(o, c, 4));
  return c[2].at;
}

static void metadata(struct rga_out *o, size_t from, const char *m) {
  int32_t n, len[2];
  memcpy(&n, m, 4);
  size_t v = rga_out_vector(o, n > 0 ? (size_t)n : 0, 4, 4);
  rga_out_link(o, from, v);
  m += 4;
  for (int32_t i = 0; i < n && !o->bad; i++) {
    struct rga_cell c[] = {{4, 0, 0}, {4, 0, 0}};
    rga_out_link(o, v + 4 + 4 * (size_t)i, rga_out_table(o, c, 2));
    for (int k = 0; k < 2; k++) {
      memcpy(&len[k], m, 4);
      rga_out_link(o, c[k].at, rga_out_string(o, m + 4, len[k] > 0 ? (size_t)len[k] : 0));
      m += 4 + len[k];
    }
  }
}

static bool fields(struct writer *w, struct rga_out *o, size_t from, const struct ArrowSchema *s, int depth);

static bool field(struct writer *w, struct rga_out *o, size_t from, const struct ArrowSchema *s, int depth) {
  enum { NAME, NULLABLE, KIND, TYPE, DICTIONARY, CHILDREN, METADATA };
  const struct ArrowSchema *values = s->dictionary ? s->dictionary : s;
  struct rga_layout l;
  int64_t kind;
  size_t type;
  if (!rga_arrow_layout(values->format, values->n_children, &l) || depth > RGA_ARROW_DEPTH)
    return no(w, "column '%s' is of type '%s', which is not known here or nested too deep", s->name ? s->name : "", values->format);
  if (values->dictionary) return no(w, "column '%s' is a dictionary of dictionaries, which has no form in a stream: decode it", s->name ? s->name : "");
  struct rga_cell c[] = {{4, 0, 0}, {1, !!(s->flags & ARROW_FLAG_NULLABLE), 0}, {1, 0, 0}, {4, 0, 0}, {s->dictionary ? 4 : 0, 0, 0}, {4, 0, 0}, {s->metadata ? 4 : 0, 0, 0}};
  rga_out_link(o, from, rga_out_table(o, c, 7));
  rga_out_link(o, c[NAME].at, rga_out_string(o, s->name ? s->name : "", s->name ? strlen(s->name) : 0));
  if (!rga_arrow_type(o, values->format, values->flags, &kind, &type)) return no(w, "column '%s' is of type '%s', which is not known here", s->name ? s->name : "", values->format);
  if (!o->bad) o->p[c[KIND].at] = (uint8_t)kind;
  rga_out_link(o, c[TYPE].at, type);
  if (s->dictionary) {
    struct rga_cell e[] = {{8, w->ids++, 0}, {4, 0, 0}, {1, !!(s->flags & ARROW_FLAG_DICTIONARY_ORDERED), 0}};
    rga_out_link(o, c[DICTIONARY].at, rga_out_table(o, e, 3));
    if (!rga_arrow_type(o, s->format, 0, &kind, &type) || !strchr("cCsSiIlL", *s->format)) return no(w, "a dictionary's indices are of type '%s'", s->format);
    rga_out_link(o, e[1].at, type);
  }
  if (s->metadata) metadata(o, c[METADATA].at, s->metadata);
  return fields(w, o, c[CHILDREN].at, values, depth + 1);
}

static bool fields(struct writer *w, struct rga_out *o, size_t from, const struct ArrowSchema *s, int depth) {
  size_t v = rga_out_vector(o, (size_t)s->n_children, 4, 4);
  rga_out_link(o, from, v);
  for (int64_t i = 0; i < s->n_children; i++)
    if (!field(w, o, v + 4 + 4 * (size_t)i, s->children[i], depth)) return false;
  return true;
}

static bool write_schema(struct writer *w, const struct ArrowSchema *s) {
  struct rga_out o = {0};
  struct rga_cell c[] = {{0, 0, 0}, {4, 0, 0}, {s->metadata ? 4 : 0, 0, 0}};
  size_t from = message(&o, RGA_ARROW_SCHEMA, 0);
  rga_out_link(&o, from, rga_out_table(&o, c, 3));
  if (s->metadata) metadata(&o, c[2].at, s->metadata);
  if (fields(w, &o, c[1].at, s, 0)) return head(w, &o);
  free(o.p);
  return false;
}

/* A RecordBatch of what was collected; *from is where it is to be linked from. */
static void batch_table(struct writer *w, struct rga_out *o, size_t from, int64_t length) {
  struct rga_cell c[] = {{8, length, 0}, {4, 0, 0}, {4, 0, 0}, {0, 0, 0}, {w->n_variadic ? 4 : 0, 0, 0}};
  rga_out_link(o, from, rga_out_table(o, c, 5));
  size_t v = rga_out_vector(o, w->n_nodes, 16, 8), at = 0;
  rga_out_link(o, c[1].at, v);
  for (size_t i = 0; i < w->n_nodes; i++) {
    rga_out_i64(o, v + 4 + 16 * i, w->nodes[i].length);
    rga_out_i64(o, v + 12 + 16 * i, w->nodes[i].nulls);
  }
  v = rga_out_vector(o, w->n_body, 16, 8);
  rga_out_link(o, c[2].at, v);
  for (size_t i = 0; i < w->n_body; i++) {
    rga_out_i64(o, v + 4 + 16 * i, (int64_t)at);
    rga_out_i64(o, v + 12 + 16 * i, (int64_t)w->body[i].n);
    at += rga_arrow_padded(w->body[i].n);
  }
  if (!w->n_variadic) return;
  v = rga_out_vector(o, w->n_variadic, 8, 8);
  rga_out_link(o, c[4].at, v);
  for (size_t i = 0; i < w->n_variadic; i++) rga_out_i64(o, v + 4 + 8 * i, w->variadic[i]);
}

/* Writes what was collected. The body's end is padded, as its length says. */
static bool flush(struct writer *w, enum rga_arrow_message kind, int64_t length, int64_t id) {
  struct rga_out o = {0};
  size_t body = 0;
  for (size_t i = 0; i < w->n_body; i++) body += rga_arrow_padded(w->body[i].n);
  size_t from = message(&o, kind, body);
  if (kind == RGA_ARROW_DICTIONARY) {
    struct rga_cell c[] = {{8, id, 0}, {4, 0, 0}};
    rga_out_link(&o, from, rga_out_table(&o, c, 2));
    from = c[1].at;
  }
  batch_table(w, &o, from, length);
  bool ok = head(w, &o);
  for (size_t i = 0; i < w->n_body; i++)
    if (!ok || !w->body[i].n) free(w->body[i].own);
    else ok = add(w, w->body[i]);
  w->n_body = w->n_nodes = w->n_variadic = 0;
  return ok;
}

static bool same(const struct ArrowArray *a, const struct ArrowArray *b) {
  if (!a || !b || a->length != b->length || a->offset != b->offset || a->n_buffers != b->n_buffers || a->n_children != b->n_children) return a == b;
  for (int64_t i = 0; i < a->n_buffers; i++)
    if (a->buffers[i] != b->buffers[i]) return false;
  for (int64_t i = 0; i < a->n_children; i++)
    if (!same(a->children[i], b->children[i])) return false;
  return same(a->dictionary, b->dictionary);
}

/* Writes the dictionaries of an array that were not written yet, those of their values before them. */
static bool dictionaries(struct writer *w, const struct ArrowSchema *s, const struct ArrowArray *a, int depth) {
  if (!a->dictionary != !s->dictionary || a->n_children != s->n_children || depth > RGA_ARROW_DEPTH)
    return no(w, "an array has %lld children and its type '%s' has %lld", (long long)a->n_children, s->format, (long long)s->n_children);
  if (s->dictionary) {
    size_t id = (size_t)w->ids++;
    bool written = same(w->dictionaries[id], a->dictionary);
    if (!dictionaries(w, s->dictionary, a->dictionary, depth + 1)) return false;
    if (!written) {
      w->dictionaries[id] = a->dictionary;
      if (!array(w, s->dictionary, a->dictionary, whole(a->dictionary), depth + 1) || !flush(w, RGA_ARROW_DICTIONARY, a->dictionary->length, (int64_t)id)) return false;
    }
  }
  for (int64_t i = 0; i < a->n_children; i++)
    if (!dictionaries(w, s->children[i], a->children[i], depth + 1)) return false;
  return true;
}

static bool write_batch(struct writer *w, const struct ArrowSchema *s, const struct ArrowArray *a) {
  if (a->n_children != s->n_children) return no(w, "a batch has %lld columns and its schema %lld", (long long)a->n_children, (long long)s->n_children);
  if (a->n_buffers > 0 && a->null_count != 0 && a->buffers[0] && count_nulls(a->buffers[0], whole(a))) return no(w, "rows are missing as a whole, which tables have no place for");
  w->ids = 0;
  if (!dictionaries(w, s, a, 0)) return false;
  for (int64_t i = 0; i < a->n_children; i++) {
    const struct ArrowArray *c = a->children[i];
    if (a->offset + a->length > c->length) return no(w, "column '%s' has %lld rows of %lld", s->children[i]->name ? s->children[i]->name : "", (long long)c->length, (long long)(a->offset + a->length));
    if (!array(w, s->children[i], c, (struct span){c->offset + a->offset, a->length}, 0)) return false;
  }
  return flush(w, RGA_ARROW_RECORDS, a->length, 0);
}

/* ------------------------------------------------------------------------------------------------ streams */

static bool failed(struct writer *w, struct ArrowArrayStream *in, int r) {
  const char *said = in->get_last_error(in);
  return no(w, "the stream failed after %zu batches: %s", w->g->n_batches, said ? said : strerror(r));
}

static bool gather(struct writer *w, struct ArrowArrayStream *in) {
  static const uint8_t end[] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
  struct rga_gathered *g = w->g;
  int r = in->get_schema(in, &g->schema);
  if (r) {
    g->schema.release = NULL;
    return failed(w, in, r);
  }
  if (strcmp(g->schema.format, "+s")) return no(w, "the stream has arrays of type '%s', and tables are made of struct arrays ('+s')", g->schema.format);
  for (;;) {
    struct ArrowArray *a = more(&g->batches, &g->n_batches, &g->cap_batches, sizeof *a);
    if (!a) return full(w);
    if ((r = in->get_next(in, a))) a->release = NULL;
    if (r || !a->release) g->n_batches--;
    if (r) return failed(w, in, r);
    if (!a->release) break;
  }
  if (!write_schema(w, &g->schema)) return false;
  if (w->ids && !(w->dictionaries = calloc((size_t)w->ids, sizeof *w->dictionaries))) return full(w);
  for (size_t i = 0; i < g->n_batches; i++)
    if (!write_batch(w, &g->schema, &g->batches[i])) return false;
  return add(w, (struct rga_piece){end, NULL, sizeof end});
}

raygo_status rga_arrow_gather(const char *function, struct ArrowArrayStream *in, struct rga_gathered *out, raygo_error *err) {
  struct writer w = {.g = out};
  memset(out, 0, sizeof *out);
  if (!in || !in->release) return rga_fail(err, RAYGO_EINVAL, "%s: `in` is NULL or was released.", function);
  bool ok = gather(&w, in);
  if (in->release) in->release(in);
  for (size_t i = 0; i < w.n_body; i++) free(w.body[i].own);
  free(w.body);
  free(w.nodes);
  free(w.variadic);
  free(w.dictionaries);
  if (ok) return RAYGO_OK;
  rga_arrow_drop(out);
  if (w.no_memory) return rga_code(err, RAYGO_ENOMEM, "The Arrow data was not taken");
  return rga_fail(err, RAYGO_EINVAL, "%s: the Arrow data was not taken: %s.", function, w.error);
}

void rga_arrow_write(const struct rga_gathered *g, uint8_t *to) {
  size_t at = 0;
  for (size_t i = 0; i < g->n; i++) {
    size_t end = at + g->pieces[i].n, next = rga_arrow_padded(end);
    rg_copy(to + at, g->pieces[i].p, g->pieces[i].n);
    at = next < g->size ? next : g->size;
    memset(to + end, 0, at - end);
  }
}

void rga_arrow_drop(struct rga_gathered *g) {
  for (size_t i = 0; i < g->n; i++) free(g->pieces[i].own);
  for (size_t i = 0; i < g->n_batches; i++)
    if (g->batches[i].release) g->batches[i].release(&g->batches[i]);
  if (g->schema.release) g->schema.release(&g->schema);
  free(g->pieces);
  free(g->batches);
  memset(g, 0, sizeof *g);
}
