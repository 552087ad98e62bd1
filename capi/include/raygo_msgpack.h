/* raygo_msgpack.h: plain values in C, in one header and without a library.  Writes into memory that grows, reads in place.
 *
 *     raygo_mp w = RAYGO_MP_INIT;
 *     raygo_mp_array(&w, 2);
 *     raygo_mp_int(&w, 40);
 *     raygo_mp_int(&w, 2);
 *     args.packed = raygo_mp_view(&w);            EINVAL from raygo's side if memory ran out while writing
 *     …
 *     raygo_mp_free(&w);
 *
 *     raygo_mp_reader r = raygo_mp_read(buf.data, buf.len);
 *     raygo_mp_value v;
 *     if (raygo_mp_next(&r, &v) && v.type == RAYGO_MP_INT) use(v.i);
 *
 * An array's or map's value is its number of elements or pairs; they follow as values of their own.  Nothing here is thread-safe by itself. */
#ifndef RAYGO_MSGPACK_H
#define RAYGO_MSGPACK_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "raygo.h"

/* ---- writing */

typedef struct raygo_mp {
  uint8_t *p;
  size_t n, cap;
  int failed;              /* memory ran out: the view is empty */
} raygo_mp;
#define RAYGO_MP_INIT { NULL, 0, 0, 0 }

static inline void raygo_mp_free(raygo_mp *w) {
  free(w->p);
  w->p = NULL;
  w->n = w->cap = 0;
  w->failed = 0;
}

static inline raygo_view raygo_mp_view(const raygo_mp *w) { return raygo_bytes(w->failed ? NULL : w->p, w->failed ? 0 : w->n); }

static inline void raygo_mp_raw(raygo_mp *w, const void *p, size_t n) {
  if (w->failed || !n) return;
  if (w->cap - w->n < n) {
    size_t cap = w->cap ? w->cap : 64;
    uint8_t *q;
    while (cap - w->n < n) cap *= 2;
    q = (uint8_t *)realloc(w->p, cap);
    if (!q) {
      w->failed = 1;
      return;
    }
    w->p = q;
    w->cap = cap;
  }
  memcpy(w->p + w->n, p, n);
  w->n += n;
}

/* A type byte and a big-endian number of `width` bytes. */
static inline void raygo_mp_tagged(raygo_mp *w, uint8_t tag, uint64_t v, int width) {
  uint8_t b[9];
  int i;
  b[0] = tag;
  for (i = 0; i < width; i++) b[1 + i] = (uint8_t)(v >> (8 * (width - 1 - i)));
  raygo_mp_raw(w, b, 1 + (size_t)width);
}

static inline void raygo_mp_nil(raygo_mp *w) { raygo_mp_tagged(w, 0xc0, 0, 0); }
static inline void raygo_mp_bool(raygo_mp *w, int v) { raygo_mp_tagged(w, v ? 0xc3 : 0xc2, 0, 0); }

static inline void raygo_mp_uint(raygo_mp *w, uint64_t v) {
  if (v < 0x80) raygo_mp_tagged(w, (uint8_t)v, 0, 0);
  else if (v <= 0xff) raygo_mp_tagged(w, 0xcc, v, 1);
  else if (v <= 0xffff) raygo_mp_tagged(w, 0xcd, v, 2);
  else if (v <= 0xffffffffu) raygo_mp_tagged(w, 0xce, v, 4);
  else raygo_mp_tagged(w, 0xcf, v, 8);
}

static inline void raygo_mp_int(raygo_mp *w, int64_t v) {
  if (v >= 0) raygo_mp_uint(w, (uint64_t)v);
  else if (v >= -32) raygo_mp_tagged(w, (uint8_t)v, 0, 0);
  else if (v >= INT8_MIN) raygo_mp_tagged(w, 0xd0, (uint64_t)v, 1);
  else if (v >= INT16_MIN) raygo_mp_tagged(w, 0xd1, (uint64_t)v, 2);
  else if (v >= INT32_MIN) raygo_mp_tagged(w, 0xd2, (uint64_t)v, 4);
  else raygo_mp_tagged(w, 0xd3, (uint64_t)v, 8);
}

static inline void raygo_mp_float(raygo_mp *w, double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  raygo_mp_tagged(w, 0xcb, bits, 8);
}

static inline void raygo_mp_text(raygo_mp *w, raygo_view v) {
  if (v.len < 32) raygo_mp_tagged(w, (uint8_t)(0xa0 | v.len), 0, 0);
  else if (v.len <= 0xff) raygo_mp_tagged(w, 0xd9, v.len, 1);
  else if (v.len <= 0xffff) raygo_mp_tagged(w, 0xda, v.len, 2);
  else raygo_mp_tagged(w, 0xdb, v.len, 4);
  raygo_mp_raw(w, v.data, v.len);
}
static inline void raygo_mp_str(raygo_mp *w, const char *text) { raygo_mp_text(w, raygo_str(text)); }

static inline void raygo_mp_bin(raygo_mp *w, raygo_view v) {
  if (v.len <= 0xff) raygo_mp_tagged(w, 0xc4, v.len, 1);
  else if (v.len <= 0xffff) raygo_mp_tagged(w, 0xc5, v.len, 2);
  else raygo_mp_tagged(w, 0xc6, v.len, 4);
  raygo_mp_raw(w, v.data, v.len);
}

static inline void raygo_mp_array(raygo_mp *w, uint32_t n) {
  if (n < 16) raygo_mp_tagged(w, (uint8_t)(0x90 | n), 0, 0);
  else if (n <= 0xffff) raygo_mp_tagged(w, 0xdc, n, 2);
  else raygo_mp_tagged(w, 0xdd, n, 4);
}

static inline void raygo_mp_map(raygo_mp *w, uint32_t n) {
  if (n < 16) raygo_mp_tagged(w, (uint8_t)(0x80 | n), 0, 0);
  else if (n <= 0xffff) raygo_mp_tagged(w, 0xde, n, 2);
  else raygo_mp_tagged(w, 0xdf, n, 4);
}

/* In an argument array: the value of refs[i]. */
static inline void raygo_mp_ref(raygo_mp *w, uint32_t i) {
  uint8_t b[6];
  b[0] = 0xd6;
  b[1] = 1;
  b[2] = (uint8_t)i;
  b[3] = (uint8_t)(i >> 8);
  b[4] = (uint8_t)(i >> 16);
  b[5] = (uint8_t)(i >> 24);
  raygo_mp_raw(w, b, sizeof b);
}

/* ---- reading */

enum raygo_mp_type {
  RAYGO_MP_NIL = 0, RAYGO_MP_BOOL, RAYGO_MP_INT, RAYGO_MP_UINT, RAYGO_MP_FLOAT, RAYGO_MP_STR, RAYGO_MP_BIN, RAYGO_MP_ARRAY, RAYGO_MP_MAP, RAYGO_MP_EXT
};

typedef struct raygo_mp_reader {
  const uint8_t *p, *end;
  int failed;              /* the bytes are no msgpack, or end too early */
} raygo_mp_reader;

typedef struct raygo_mp_value {
  int type;                /* enum raygo_mp_type */
  int ext;                 /* the extension's type; 1: a reference, whose number is in i */
  int64_t i;               /* bool, int; also uint up to INT64_MAX is an int */
  uint64_t u;              /* RAYGO_MP_UINT: above INT64_MAX */
  double f;                /* float; an int's value too */
  raygo_view s;            /* str, bin, ext: borrowed from the reader's bytes */
  uint32_t n;              /* array: elements, map: pairs */
} raygo_mp_value;

static inline raygo_mp_reader raygo_mp_read(const void *p, size_t n) {
  raygo_mp_reader r;
  r.p = (const uint8_t *)p;
  r.end = n ? r.p + n : r.p;
  r.failed = 0;
  return r;
}

static inline uint64_t raygo_mp_take(raygo_mp_reader *r, int width) {
  uint64_t v = 0;
  int i;
  if (r->failed || r->end - r->p < width) {
    r->failed = 1;
    return 0;
  }
  for (i = 0; i < width; i++) v = v << 8 | r->p[i];
  r->p += width;
  return v;
}

static inline void raygo_mp_span(raygo_mp_reader *r, raygo_mp_value *v, uint64_t n) {
  if (r->failed || (uint64_t)(r->end - r->p) < n) {
    r->failed = 1;
    return;
  }
  v->s = raygo_bytes(r->p, (size_t)n);
  r->p += n;
}

static inline void raygo_mp_is_int(raygo_mp_value *v, int64_t i) {
  v->type = RAYGO_MP_INT;
  v->i = i;
  v->f = (double)i;
}

static inline void raygo_mp_is_uint(raygo_mp_value *v, uint64_t u) {
  if (u <= (uint64_t)INT64_MAX) {
    raygo_mp_is_int(v, (int64_t)u);
    return;
  }
  v->type = RAYGO_MP_UINT;
  v->u = u;
  v->f = (double)u;
}

static inline void raygo_mp_is_ext(raygo_mp_reader *r, raygo_mp_value *v, uint64_t n) {
  v->type = RAYGO_MP_EXT;
  v->ext = (int8_t)raygo_mp_take(r, 1);
  raygo_mp_span(r, v, n);
  if (!r->failed && v->ext == 1 && n == 4) {
    const uint8_t *b = (const uint8_t *)v->s.data;
    v->i = (int64_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
  }
}

static inline void raygo_mp_is_real(raygo_mp_value *v, uint64_t bits, int width) {
  v->type = RAYGO_MP_FLOAT;
  if (width == 4) {
    uint32_t b = (uint32_t)bits;
    float f;
    memcpy(&f, &b, sizeof f);
    v->f = (double)f;
  } else {
    memcpy(&v->f, &bits, sizeof v->f);
  }
}

/* One value, or the head of an array or map.  0: none left, or not msgpack (then r->failed). */
static inline int raygo_mp_next(raygo_mp_reader *r, raygo_mp_value *v) {
  uint8_t t;
  memset(v, 0, sizeof *v);
  if (r->failed || r->p >= r->end) return 0;
  t = *r->p++;
  if (t < 0x80) raygo_mp_is_int(v, t);
  else if (t >= 0xe0) raygo_mp_is_int(v, (int8_t)t);
  else if (t < 0x90) v->type = RAYGO_MP_MAP, v->n = t & 15u;
  else if (t < 0xa0) v->type = RAYGO_MP_ARRAY, v->n = t & 15u;
  else if (t < 0xc0) v->type = RAYGO_MP_STR, raygo_mp_span(r, v, t & 31u);
  else
    switch (t) {
    case 0xc0: v->type = RAYGO_MP_NIL; break;
    case 0xc2: case 0xc3: v->type = RAYGO_MP_BOOL; v->i = t & 1; break;
    case 0xc4: case 0xc5: case 0xc6: v->type = RAYGO_MP_BIN; raygo_mp_span(r, v, raygo_mp_take(r, 1 << (t - 0xc4))); break;
    case 0xc7: case 0xc8: case 0xc9: raygo_mp_is_ext(r, v, raygo_mp_take(r, 1 << (t - 0xc7))); break;
    case 0xca: raygo_mp_is_real(v, raygo_mp_take(r, 4), 4); break;
    case 0xcb: raygo_mp_is_real(v, raygo_mp_take(r, 8), 8); break;
    case 0xcc: case 0xcd: case 0xce: case 0xcf: raygo_mp_is_uint(v, raygo_mp_take(r, 1 << (t - 0xcc))); break;
    case 0xd0: raygo_mp_is_int(v, (int8_t)raygo_mp_take(r, 1)); break;
    case 0xd1: raygo_mp_is_int(v, (int16_t)raygo_mp_take(r, 2)); break;
    case 0xd2: raygo_mp_is_int(v, (int32_t)raygo_mp_take(r, 4)); break;
    case 0xd3: raygo_mp_is_int(v, (int64_t)raygo_mp_take(r, 8)); break;
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: raygo_mp_is_ext(r, v, (uint64_t)1 << (t - 0xd4)); break;
    case 0xd9: case 0xda: case 0xdb: v->type = RAYGO_MP_STR; raygo_mp_span(r, v, raygo_mp_take(r, 1 << (t - 0xd9))); break;
    case 0xdc: case 0xdd: v->type = RAYGO_MP_ARRAY; v->n = (uint32_t)raygo_mp_take(r, t == 0xdc ? 2 : 4); break;
    case 0xde: case 0xdf: v->type = RAYGO_MP_MAP; v->n = (uint32_t)raygo_mp_take(r, t == 0xde ? 2 : 4); break;
    default: r->failed = 1;
    }
  return !r->failed;
}

/* Steps over one whole value, with what it contains.  0 as above. */
static inline int raygo_mp_skip(raygo_mp_reader *r) {
  uint64_t left = 1;       /* a count in place of recursion: nesting costs no stack */
  raygo_mp_value v;
  while (left) {
    if (!raygo_mp_next(r, &v)) return 0;
    left += v.type == RAYGO_MP_ARRAY ? v.n : v.type == RAYGO_MP_MAP ? 2 * (uint64_t)v.n : 0;
    left--;
  }
  return 1;
}

/* The value of a str key in the map that begins the bytes.  0: no such key. */
static inline int raygo_mp_find(raygo_view map, const char *key, raygo_mp_value *v) {
  raygo_mp_reader r = raygo_mp_read(map.data, map.len);
  size_t len = strlen(key);
  uint32_t i, n;
  if (raygo_mp_next(&r, v) && v->type == RAYGO_MP_MAP)
    for (i = 0, n = v->n; i < n && raygo_mp_next(&r, v); i++) {
      int same = v->type == RAYGO_MP_STR && v->s.len == len && (!len || memcmp(v->s.data, key, len) == 0);
      if (same) return raygo_mp_next(&r, v);
      if (v->type == RAYGO_MP_ARRAY || v->type == RAYGO_MP_MAP || !raygo_mp_skip(&r)) break;
    }
  memset(v, 0, sizeof *v);
  return 0;
}

#endif
