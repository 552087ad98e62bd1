/* raygo.h: Arrow's types, as the C data interface's format strings and as tables of the IPC schema. */
#include "abi_arrow.h"
#include <stdarg.h>
#include <stdio.h>

/* Values of the union Type of Arrow's Schema.fbs. */
enum {
  NULLS = 1, INT, FLOAT, BINARY, UTF8, BOOL, DECIMAL, DATE, TIME, TIMESTAMP, INTERVAL, LIST, STRUCT, UNION, FIXED_BINARY, FIXED_LIST, MAP, DURATION,
  LARGE_BINARY, LARGE_UTF8, LARGE_LIST, RUNS, BINARY_VIEW, UTF8_VIEW, LIST_VIEW, LARGE_LIST_VIEW
};

/* Types of fixed width without parameters: their format, and the fields of their table. */
static const struct plain { const char *format; uint8_t kind, bits, size1, value1, size2, value2; } plain[] = {
  {"b", BOOL, 1, 0, 0, 0, 0},
  {"c", INT, 8, 4, 8, 1, 1}, {"C", INT, 8, 4, 8, 1, 0}, {"s", INT, 16, 4, 16, 1, 1}, {"S", INT, 16, 4, 16, 1, 0},
  {"i", INT, 32, 4, 32, 1, 1}, {"I", INT, 32, 4, 32, 1, 0}, {"l", INT, 64, 4, 64, 1, 1}, {"L", INT, 64, 4, 64, 1, 0},
  {"e", FLOAT, 16, 2, 0, 0, 0}, {"f", FLOAT, 32, 2, 1, 0, 0}, {"g", FLOAT, 64, 2, 2, 0, 0},
  {"tdD", DATE, 32, 2, 0, 0, 0}, {"tdm", DATE, 64, 2, 1, 0, 0},
  {"tts", TIME, 32, 2, 0, 4, 32}, {"ttm", TIME, 32, 2, 1, 4, 32}, {"ttu", TIME, 64, 2, 2, 4, 64}, {"ttn", TIME, 64, 2, 3, 4, 64},
  {"tDs", DURATION, 64, 2, 0, 0, 0}, {"tDm", DURATION, 64, 2, 1, 0, 0}, {"tDu", DURATION, 64, 2, 2, 0, 0}, {"tDn", DURATION, 64, 2, 3, 0, 0},
  {"tiM", INTERVAL, 32, 2, 0, 0, 0}, {"tiD", INTERVAL, 64, 2, 1, 0, 0}, {"tin", INTERVAL, 128, 2, 2, 0, 0},
};

/* Types of other layouts without parameters. */
static const struct other { const char *format; uint8_t kind, shape, wide; } other[] = {
  {"n", NULLS, RGA_NULLS, 0}, {"z", BINARY, RGA_TEXT, 4}, {"Z", LARGE_BINARY, RGA_TEXT, 8}, {"u", UTF8, RGA_TEXT, 4}, {"U", LARGE_UTF8, RGA_TEXT, 8},
  {"vz", BINARY_VIEW, RGA_VIEWS, 0}, {"vu", UTF8_VIEW, RGA_VIEWS, 0}, {"+l", LIST, RGA_LIST, 4}, {"+L", LARGE_LIST, RGA_LIST, 8},
  {"+vl", LIST_VIEW, RGA_LISTVIEW, 4}, {"+vL", LARGE_LIST_VIEW, RGA_LISTVIEW, 8}, {"+s", STRUCT, RGA_STRUCT, 0}, {"+m", MAP, RGA_LIST, 4},
  {"+r", RUNS, RGA_RUNS, 0},
};

#define EACH(entry, table) for (const struct table *entry = table; entry < table + sizeof table / sizeof *table; entry++)

static bool number(const char **s, int64_t low, int64_t *out) {
  char *end;
  long long v = strtoll(*s, &end, 10);
  if (end == *s || v < low || v > INT32_MAX) return false;
  *s = end;
  *out = v;
  return true;
}

/* d:precision,scale[,bits] */
static bool decimal(const char *s, int64_t of[3]) {
  of[2] = 128;
  if (!number(&s, 1, &of[0]) || *s++ != ',' || !number(&s, INT32_MIN, &of[1])) return false;
  if (*s == ',') {
    s++;
    if (!number(&s, 1, &of[2])) return false;
  }
  return !*s && (of[2] == 32 || of[2] == 64 || of[2] == 128 || of[2] == 256);
}

static int unit_of(char c) {
  const char *units = "smun", *at = c ? strchr(units, c) : NULL;
  return at ? (int)(at - units) : -1;
}

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

bool rga_arrow_layout(const char *format, int64_t children, struct rga_layout *out) {
  static const int8_t needs[] = {[RGA_LIST] = 1, [RGA_LISTVIEW] = 1, [RGA_FIXEDLIST] = 1, [RGA_STRUCT] = -1, [RGA_SPARSE] = -1, [RGA_DENSE] = -1, [RGA_RUNS] = 2};
  int64_t of[3];
  bool known = false;
  *out = (struct rga_layout){.shape = RGA_FIXED};
  EACH(t, plain) if (!strcmp(t->format, format)) out->n = t->bits, known = true;
  EACH(t, other) if (!strcmp(t->format, format)) *out = (struct rga_layout){t->shape, 0, t->wide}, known = true;
  if (!known) {
    const char *rest = format + 2;
    if (begins(format, "d:")) known = decimal(rest, of), out->n = of[2];
    else if (begins(format, "w:")) known = number(&rest, 0, &out->n) && !*rest, out->n *= 8;
    else if (begins(format, "ts")) known = unit_of(format[2]) >= 0 && format[3] == ':', out->n = 64;
    else if (begins(format, "+w:")) rest++, out->shape = RGA_FIXEDLIST, known = number(&rest, 0, &out->n) && !*rest;
    else if (begins(format, "+us:")) out->shape = RGA_SPARSE, known = true;
    else if (begins(format, "+ud:")) out->shape = RGA_DENSE, known = true;
  }
  int64_t need = out->shape < sizeof needs ? needs[out->shape] : 0;
  return known && (need < 0 ? children >= 0 : children == need);
}

/* ------------------------------------------------------------------------------------------------ reading */

static char *print(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *print(const char *format, ...) {
  char *s = NULL;
  va_list args;
  va_start(args, format);
  if (vasprintf(&s, format, args) < 0) s = NULL;
  va_end(args);
  return s;
}

/* The ids may be left out: then they count up. */
static char *union_format(struct rga_fb f, size_t type, int64_t children) {
  size_t n, at = rga_fb_vector(f, type, 1, 4, &n), used = 4;
  bool listed = rga_fb_table(f, type, 1) != 0;
  if (listed ? n != (size_t)children : children > 128) return strdup("");
  char *s = malloc(5 + (size_t)children * 12);
  if (!s) return NULL;
  strcpy(s, rga_fb_int(f, type, 0, 2, 0) ? "+ud:" : "+us:");
  for (int64_t i = 0; i < children; i++) {
    int32_t id = (int32_t)i;
    if (listed) memcpy(&id, f.p + at + 4 * (size_t)i, 4);
    used += (size_t)sprintf(s + used, "%s%d", i ? "," : "", id);
  }
  return s;
}

static const char *plain_format(int64_t kind, int64_t first, int64_t second) {
  EACH(t, plain) if (t->kind == kind && (!t->size1 || t->value1 == first) && (!t->size2 || t->value2 == second)) return t->format;
  return NULL;
}

bool rga_arrow_format(struct rga_fb f, int64_t kind, size_t type, int64_t children, char **format) {
  struct rga_layout layout;
  const char *found = NULL;
  char *s = NULL;
  size_t len;
  *format = NULL;
  switch (kind) {   /* with what fields are when they are left out */
  case INT: found = plain_format(kind, rga_fb_int(f, type, 0, 4, 0), rga_fb_int(f, type, 1, 1, 0)); break;
  case DATE: case DURATION: found = plain_format(kind, rga_fb_int(f, type, 0, 2, 1), 0); break;
  case TIME: found = plain_format(kind, rga_fb_int(f, type, 0, 2, 1), rga_fb_int(f, type, 1, 4, 32)); break;
  case FLOAT: case INTERVAL: found = plain_format(kind, rga_fb_int(f, type, 0, 2, 0), 0); break;
  case BOOL: found = plain_format(kind, 0, 0); break;
  case DECIMAL: s = print("d:%d,%d,%d", (int)rga_fb_int(f, type, 0, 4, 0), (int)rga_fb_int(f, type, 1, 4, 0), (int)rga_fb_int(f, type, 2, 4, 128)); break;
  case FIXED_BINARY: s = print("w:%d", (int)rga_fb_int(f, type, 0, 4, 0)); break;
  case FIXED_LIST: s = print("+w:%d", (int)rga_fb_int(f, type, 0, 4, 0)); break;
  case UNION: s = union_format(f, type, children); break;
  case TIMESTAMP: {
    int64_t unit = rga_fb_int(f, type, 0, 2, 0);
    const char *zone = rga_fb_string(f, type, 1, &len);
    if (unit < 0 || unit > 3 || len > f.n) return false;
    s = print("ts%c:%.*s", "smun"[unit], (int)len, zone ? zone : "");
    break;
  }
  default:
    EACH(t, other) if (t->kind == kind) found = t->format;
  }
  if (found) s = strdup(found);
  else if (kind != DECIMAL && kind != FIXED_BINARY && kind != FIXED_LIST && kind != UNION && kind != TIMESTAMP) return false;
  if (s && !rga_arrow_layout(s, children, &layout)) {
    free(s);
    return false;
  }
  *format = s;
  return true;
}

/* ------------------------------------------------------------------------------------------------ writing */

static bool write_union(struct rga_out *o, const char *format, size_t *at) {
  struct rga_cell c[2] = {{2, format[2] == 'd', 0}, {4, 0, 0}};
  int64_t ids[128], n = 0;
  for (const char *s = format + 4; *s;) {
    if (n == 128 || !number(&s, 0, &ids[n++]) || (*s && *s++ != ',')) return false;
  }
  *at = rga_out_table(o, c, 2);
  size_t v = rga_out_vector(o, (size_t)n, 4, 4);
  rga_out_link(o, c[1].at, v);
  for (int64_t i = 0; i < n && !o->bad; i++) {
    int32_t id = (int32_t)ids[i];
    memcpy(o->p + v + 4 + 4 * (size_t)i, &id, 4);
  }
  return true;
}

bool rga_arrow_type(struct rga_out *o, const char *format, int64_t flags, int64_t *kind, size_t *at) {
  struct rga_cell c[3] = {{0}};
  int64_t of[3];
  int n = 0;
  *kind = 0;
  EACH(t, plain) if (!strcmp(t->format, format)) {
    *kind = t->kind;
    c[0] = (struct rga_cell){t->size1, t->value1, 0};
    c[1] = (struct rga_cell){t->size2, t->value2, 0};
    n = 2;
  }
  EACH(t, other) if (!strcmp(t->format, format)) *kind = t->kind;
  const char *rest = format + 2;
  if (*kind) {
    if (*kind == MAP && flags & ARROW_FLAG_MAP_KEYS_SORTED) c[n++] = (struct rga_cell){1, 1, 0};
  } else if (begins(format, "d:")) {
    if (!decimal(rest, of)) return false;
    for (*kind = DECIMAL; n < 3; n++) c[n] = (struct rga_cell){4, of[n], 0};
  } else if (begins(format, "w:") || begins(format, "+w:")) {
    rest += *format == '+';
    if (!number(&rest, 0, of)) return false;
    *kind = *format == '+' ? FIXED_LIST : FIXED_BINARY;
    c[n++] = (struct rga_cell){4, of[0], 0};
  } else if (begins(format, "ts")) {
    *kind = TIMESTAMP;
    c[n++] = (struct rga_cell){2, unit_of(format[2]), 0};
    if (format[4]) c[n++] = (struct rga_cell){4, 0, 0};
  } else if (begins(format, "+u")) {
    *kind = UNION;
    return write_union(o, format, at);
  } else {
    return false;
  }
  *at = rga_out_table(o, c, n);
  if (*kind == TIMESTAMP && n == 2) {
    size_t zone = rga_out_string(o, format + 4, strlen(format + 4));
    rga_out_link(o, c[1].at, zone);
  }
  return true;
}
