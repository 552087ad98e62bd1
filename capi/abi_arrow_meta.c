/* raygo.h: flatbuffers, as far as Arrow's metadata needs them.  Everything is little-endian, as this library's machines are. */
#include "abi_arrow.h"

/* ------------------------------------------------------------------------------------------------ reading */

static bool has(struct rga_fb f, size_t at, size_t n) { return at <= f.n && n <= f.n - at; }

static uint32_t u32(struct rga_fb f, size_t at) {
  uint32_t v;
  memcpy(&v, f.p + at, 4);
  return v;
}

static uint16_t u16(struct rga_fb f, size_t at) {
  uint16_t v;
  memcpy(&v, f.p + at, 2);
  return v;
}

int64_t rga_fb_i64(struct rga_fb f, size_t at) {
  int64_t v;
  memcpy(&v, f.p + at, 8);
  return v;
}

size_t rga_fb_follow(struct rga_fb f, size_t at) {
  if (!has(f, at, 4)) return 0;
  size_t to = at + u32(f, at);
  return has(f, to, 4) ? to : 0;
}

/* The place of a table's field of n bytes. */
static size_t place(struct rga_fb f, size_t table, int field, size_t n) {
  if (!table || !has(f, table, 4)) return 0;
  int64_t vtable = (int64_t)table - (int32_t)u32(f, table);
  size_t slot = 4 + 2 * (size_t)field;
  if (vtable < 0 || !has(f, (size_t)vtable, 4)) return 0;
  if (slot + 2 > u16(f, (size_t)vtable) || !has(f, (size_t)vtable, slot + 2)) return 0;
  size_t offset = u16(f, (size_t)vtable + slot);
  return offset && has(f, table + offset, n) ? table + offset : 0;
}

size_t rga_fb_table(struct rga_fb f, size_t table, int field) {
  size_t at = place(f, table, field, 4);
  return at ? rga_fb_follow(f, at) : 0;
}

int64_t rga_fb_int(struct rga_fb f, size_t table, int field, int size, int64_t missing) {
  size_t at = place(f, table, field, (size_t)size);
  if (!at) return missing;
  switch (size) {
  case 1: return f.p[at];
  case 2: return (int16_t)u16(f, at);
  case 4: return (int32_t)u32(f, at);
  default: return rga_fb_i64(f, at);
  }
}

size_t rga_fb_vector(struct rga_fb f, size_t table, int field, size_t item, size_t *count) {
  size_t at = rga_fb_table(f, table, field);
  *count = at ? u32(f, at) : 0;
  if (*count > (f.n - at) / item || !has(f, at, 4 + *count * item)) *count = 0;
  return at + 4;
}

const char *rga_fb_string(struct rga_fb f, size_t table, int field, size_t *len) {
  size_t at = rga_fb_table(f, table, field);
  *len = 0;
  if (!at || !has(f, at + 4, u32(f, at))) return NULL;
  *len = u32(f, at);
  return (const char *)f.p + at + 4;
}

/* ------------------------------------------------------------------------------------------------ writing */

/* Room for n zeroed bytes at a place that is `skew` more than a multiple of `align`. */
static size_t room(struct rga_out *o, size_t n, size_t align, size_t skew) {
  size_t at = o->n;
  while (at % align != skew) at++;
  if (o->bad || n > INT32_MAX || at + n > INT32_MAX) {
    o->bad = true;
    return 0;
  }
  if (at + n > o->cap) {
    size_t cap = (at + n) * 2 + 256;
    uint8_t *p = realloc(o->p, cap);
    if (!p) {
      o->bad = true;
      return 0;
    }
    memset(p + o->n, 0, cap - o->n);
    o->p = p;
    o->cap = cap;
  }
  o->n = at + n;
  return at;
}

static void put(struct rga_out *o, size_t at, int64_t v, size_t n) {
  if (!o->bad) memcpy(o->p + at, &v, n);
}

void rga_out_i64(struct rga_out *o, size_t at, int64_t v) { put(o, at, v, 8); }

size_t rga_out_table(struct rga_out *o, struct rga_cell *cells, int n) {
  size_t size = 4, slots = 4 + 2 * (size_t)n;
  for (int i = 0; i < n; i++) size += (size_t)cells[i].size;
  size_t vtable = room(o, slots, 4, 0), table = room(o, size, 8, 4), at = table + 4;
  put(o, vtable, (int64_t)slots, 2);
  put(o, vtable + 2, (int64_t)size, 2);
  put(o, table, (int64_t)(table - vtable), 4);
  for (int width = 8; width; width /= 2)   /* the widest first: each is aligned then */
    for (int i = 0; i < n; i++)
      if (cells[i].size == width) {
        put(o, vtable + 4 + 2 * (size_t)i, (int64_t)(at - table), 2);
        put(o, at, cells[i].value, (size_t)width);
        cells[i].at = at;
        at += (size_t)width;
      }
  return table;
}

size_t rga_out_vector(struct rga_out *o, size_t count, size_t item, size_t align) {
  if (count > INT32_MAX / item) {
    o->bad = true;
    return 0;
  }
  size_t at = room(o, 4 + count * item, align, align - 4);
  put(o, at, (int64_t)count, 4);
  return at;
}

size_t rga_out_string(struct rga_out *o, const char *s, size_t n) {
  size_t at = room(o, 4 + n + 1, 4, 0);
  put(o, at, (int64_t)n, 4);
  if (!o->bad && n) memcpy(o->p + at + 4, s, n);
  return at;
}

void rga_out_link(struct rga_out *o, size_t from, size_t to) { put(o, from, (int64_t)(to - from), 4); }
