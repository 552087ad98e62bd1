/* The kernels for one instruction set: included once per set by kernels.c, which defines NAME(x), TARGET and, where the set has it, HALF_F16C.
 *
 * A block of sources is reduced into the last operation's destination, so that dst may be any of the sources: nothing of a block is written before all of it
 * has been read.  Loops are plain, one operation on arrays each, and left to the compiler to vectorise. */

#define BLOCK 2048u                  /* bytes: the running result stays in the first-level cache */

#define VALUE(T, name, expr) \
  TARGET static void NAME(name)(T *d, const T *x, const T *y, size_t n) { \
    SAME_PLACE_ONLY for (size_t i = 0; i < n; i++) { \
      T a = x[i], b = y[i]; \
      d[i] = (T)(expr); \
    } \
  }

#define DRIVER(T, name, op, divide) \
  TARGET static void NAME(name)(void *dst, const void *const *src, int nsrc, size_t count, int ranks) { \
    T acc[BLOCK / sizeof(T)]; \
    T *d = dst; \
    (void)ranks; \
    if (nsrc == 1) { \
      if (dst != src[0]) memmove(dst, src[0], count * sizeof(T)); \
      if (divide && ranks) NAME(op##_div)(d, count, ranks); \
      return; \
    } \
    for (size_t at = 0; at < count;) { \
      size_t n = count - at < BLOCK / sizeof(T) ? count - at : BLOCK / sizeof(T); \
      const T *x = (const T *)src[0] + at; \
      for (int s = 1; s < nsrc; s++) { \
        T *to = s == nsrc - 1 ? d + at : acc; \
        NAME(op)(to, x, (const T *)src[s] + at, n); \
        x = to; \
      } \
      if (divide && ranks) NAME(op##_div)(d + at, n, ranks); \
      at += n; \
    } \
  }

/* Operations without a division never call it, but the name must exist. */
#define NODIV(T, op) \
  TARGET static inline void NAME(op##_div)(T *d, size_t n, int ranks) { (void)d, (void)n, (void)ranks; }
#define DIV(T, op) \
  TARGET static inline void NAME(op##_div)(T *d, size_t n, int ranks) { \
    for (size_t i = 0; i < n; i++) d[i] = (T)(d[i] / ranks);   /* ranks may be more than T can hold */ \
  }

#define ALL(T, t, add, mul, lo, hi) \
  VALUE(T, t##_add, add) VALUE(T, t##_mul, mul) VALUE(T, t##_min, lo) VALUE(T, t##_max, hi) \
  DIV(T, t##_add) NODIV(T, t##_mul) NODIV(T, t##_min) NODIV(T, t##_max) \
  DRIVER(T, t##_sum, t##_add, 1) DRIVER(T, t##_product, t##_mul, 0) DRIVER(T, t##_lo, t##_min, 0) DRIVER(T, t##_hi, t##_max, 0)

/* Signed ones are added as unsigned: overflow wraps, which C promises only so. */
#define INTEGER(T, U, t) ALL(T, t, (U)((U)a + (U)b), (U)((U)a * (U)b), a < b ? a : b, a > b ? a : b)
#define BITS(T, t) \
  VALUE(T, t##_and, a & b) VALUE(T, t##_or, a | b) VALUE(T, t##_xor, a ^ b) NODIV(T, t##_and) NODIV(T, t##_or) NODIV(T, t##_xor) \
  DRIVER(T, t##_band, t##_and, 0) DRIVER(T, t##_bor, t##_or, 0) DRIVER(T, t##_bxor, t##_xor, 0)
/* Where a is NaN it stays; where b is, both comparisons fail and b is taken. */
#define FLOATING(T, t) ALL(T, t, a + b, a * b, a < b || a != a ? a : b, a > b || a != a ? a : b)

INTEGER(k_int8, uint8_t, i8)
INTEGER(k_uint8, uint8_t, u8)
INTEGER(k_int16, uint32_t, i16)
INTEGER(k_uint16, uint32_t, u16)
INTEGER(k_int32, uint32_t, i32)
INTEGER(k_uint32, uint32_t, u32)
INTEGER(k_int64, uint64_t, i64)
INTEGER(k_uint64, uint64_t, u64)
BITS(k_uint8, u8)
BITS(k_uint16, u16)
BITS(k_uint32, u32)
BITS(k_uint64, u64)
FLOATING(k_float, f32)
FLOATING(k_double, f64)

/* Of bool any byte that is not 0 is true; what comes out is 0 or 1. */
VALUE(k_uint8, b_or, (a | b) != 0)
VALUE(k_uint8, b_and, (a != 0) & (b != 0))
VALUE(k_uint8, b_xor, (a != 0) ^ (b != 0))
NODIV(k_uint8, b_or) NODIV(k_uint8, b_and) NODIV(k_uint8, b_xor)
DRIVER(k_uint8, b_any, b_or, 0) DRIVER(k_uint8, b_all, b_and, 0) DRIVER(k_uint8, b_odd, b_xor, 0)

/* ---- 16-bit floats, through float32 */

TARGET static void NAME(bf16_load)(float *d, const k_uint16 *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint32_t u = (uint32_t)s[i] << 16;
    memcpy(&d[i], &u, 4);
  }
}

TARGET static void NAME(bf16_store)(k_uint16 *d, const float *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint32_t u;
    memcpy(&u, &s[i], 4);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
    d[i] = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
}

TARGET static void NAME(f16_load)(float *d, const k_uint16 *s, size_t n) {
  size_t i = 0;
#ifdef HALF_F16C
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
#endif
  for (; i < n; i++) d[i] = half_to_float(s[i]);
}

TARGET static void NAME(f16_store)(k_uint16 *d, const float *s, size_t n) {
  size_t i = 0;
#ifdef HALF_F16C
  for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; i++) d[i] = float_to_half(s[i]);
}

#define HALF(t, name, op, divide) \
  TARGET static void NAME(t##_##name)(void *dst, const void *const *src, int nsrc, size_t count, int ranks) { \
    float acc[BLOCK / 4], b[BLOCK / 4]; \
    k_uint16 *d = dst; \
    if (nsrc == 1 && !(divide && ranks)) { \
      if (dst != src[0]) memmove(dst, src[0], count * 2); \
      return; \
    } \
    for (size_t at = 0; at < count;) { \
      size_t n = count - at < BLOCK / 4 ? count - at : BLOCK / 4; \
      NAME(t##_load)(acc, (const k_uint16 *)src[0] + at, n); \
      for (int s = 1; s < nsrc; s++) { \
        NAME(t##_load)(b, (const k_uint16 *)src[s] + at, n); \
        NAME(f32_##op)(acc, acc, b, n); \
      } \
      if (divide && ranks) NAME(f32_##op##_div)(acc, n, ranks); \
      NAME(t##_store)(d + at, acc, n); \
      at += n; \
    } \
  }
#define HALVES(t) HALF(t, sum, add, 1) HALF(t, product, mul, 0) HALF(t, lo, min, 0) HALF(t, hi, max, 0)
HALVES(f16)
HALVES(bf16)

#define ROW(t, band, bor, bxor) {NAME(t##_sum), NAME(t##_sum), NAME(t##_product), NAME(t##_lo), NAME(t##_hi), band, bor, bxor}
#define INTROW(t, bits) ROW(t, NAME(bits##_band), NAME(bits##_bor), NAME(bits##_bxor))
static const rgc_kernel NAME(table)[RGC_DTYPES][RGC_OPS] = {
    [RGC_INT8] = INTROW(i8, u8),
    [RGC_UINT8] = INTROW(u8, u8),
    [RGC_INT16] = INTROW(i16, u16),
    [RGC_UINT16] = INTROW(u16, u16),
    [RGC_INT32] = INTROW(i32, u32),
    [RGC_UINT32] = INTROW(u32, u32),
    [RGC_INT64] = INTROW(i64, u64),
    [RGC_UINT64] = INTROW(u64, u64),
    [RGC_FLOAT16] = ROW(f16, NULL, NULL, NULL),
    [RGC_BFLOAT16] = ROW(bf16, NULL, NULL, NULL),
    [RGC_FLOAT32] = ROW(f32, NULL, NULL, NULL),
    [RGC_FLOAT64] = ROW(f64, NULL, NULL, NULL),
    [RGC_BOOL] = {NAME(b_any), NULL, NAME(b_all), NAME(b_all), NAME(b_any), NAME(b_all), NAME(b_any), NAME(b_odd)},
};

#undef BLOCK
#undef VALUE
#undef DRIVER
#undef NODIV
#undef DIV
#undef ALL
#undef INTEGER
#undef BITS
#undef FLOATING
#undef HALF
#undef HALVES
#undef ROW
#undef INTROW
