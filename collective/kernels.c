/* Reductions.  A plain version for every machine and one for AVX2 with F16C, chosen once.  (These loops wait for memory: on arrays that leave the first-level
 * cache, wider vectors bring nothing.) */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")          /* the binding is compiled with O2, which leaves loops alone */
#endif
#include "core.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__aarch64__)
static inline float half_to_float(uint16_t h) {
  __fp16 v;
  memcpy(&v, &h, 2);
  return (float)v;
}
static inline uint16_t float_to_half(float f) {
  __fp16 v = (__fp16)f;
  uint16_t h;
  memcpy(&h, &v, 2);
  return h;
}
#else
static inline float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 0x3ff, u;
  if (exp == 31) u = sign | 0x7f800000 | man << 13 | (man ? 0x400000 : 0);
  else if (exp) u = sign | (exp + 112) << 23 | man << 13;
  else {
    float f = (float)man * 0x1p-24f;   /* exact, zero included */
    memcpy(&u, &f, 4);
    u |= sign;
  }
  float f;
  memcpy(&f, &u, 4);
  return f;
}
/* To nearest, ties to even. */
static inline uint16_t float_to_half(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint32_t sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
  if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
  if (mag >= 0x477ff000) return (uint16_t)(sign | 0x7c00);           /* 65520 and more round to infinity */
  if (mag >= 0x38800000) return (uint16_t)(sign | ((mag - 0x38000000 + 0xfff + (mag >> 13 & 1)) >> 13));
  /* Adding 0.5 lines the bits of a subnormal up with the end of the significand, and the addition itself rounds. */
  float magic, m;
  uint32_t half = 0x3f000000, r;
  memcpy(&magic, &half, 4);
  memcpy(&m, &mag, 4);
  m += magic;
  memcpy(&r, &m, 4);
  return (uint16_t)(sign | (r - half));
}
#endif

/* Arrays may begin anywhere and hold what they like. */
#define ANYWHERE __attribute__((aligned(1), may_alias))
typedef int8_t ANYWHERE k_int8;
typedef uint8_t ANYWHERE k_uint8;
typedef int16_t ANYWHERE k_int16;
typedef uint16_t ANYWHERE k_uint16;
typedef int32_t ANYWHERE k_int32;
typedef uint32_t ANYWHERE k_uint32;
typedef int64_t ANYWHERE k_int64;
typedef uint64_t ANYWHERE k_uint64;
typedef float ANYWHERE k_float;
typedef double ANYWHERE k_double;

/* Arrays overlap only where they are the same. */
#if defined(__clang__)
#define SAME_PLACE_ONLY _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define SAME_PLACE_ONLY _Pragma("GCC ivdep")
#else
#define SAME_PLACE_ONLY
#endif

#define NAME(x) plain_##x
#define TARGET
#include "kernels_impl.h"
#undef NAME
#undef TARGET

#if defined(__x86_64__)
#define NAME(x) avx2_##x
#define TARGET __attribute__((target("avx2,f16c")))
#define HALF_F16C
#include "kernels_impl.h"
#undef NAME
#undef TARGET
#endif

static bool has_avx2(void) {
#if defined(__x86_64__)
  static _Atomic int known;          /* 0: not asked yet; 1: no; 2: yes */
  int k = atomic_load_explicit(&known, memory_order_relaxed);
  if (!k) {
    __builtin_cpu_init();
    k = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") ? 2 : 1;
    atomic_store_explicit(&known, k, memory_order_relaxed);
  }
  return k == 2;
#else
  return false;
#endif
}

rgc_kernel rgc_reducer(uint32_t dtype, uint32_t op) {
  if (dtype >= RGC_DTYPES || op >= RGC_OPS) return NULL;
#if defined(__x86_64__)
  if (has_avx2()) return avx2_table[dtype][op];
#endif
  return plain_table[dtype][op];
}

void rgc_divide(void *p, size_t count, uint32_t dtype, int by) {
  const void *src = p;
  rgc_reducer(dtype, RGC_AVG)(p, &src, 1, count, by);
}

#if defined(__x86_64__)
/* In place of memcpy: for lengths like these it uses "rep movsb", which falls to a sixteenth of its speed where the destination is 16 bytes further into its page
 * than the source, as a large array of malloc's is than a slot that begins a page. */
__attribute__((target("avx2"))) static void through(uint8_t *d, const uint8_t *s, size_t n) {
  size_t blocks = n / 128;
  for (size_t i = 0; i < blocks; i++, d += 128, s += 128) {
    __m256i a = _mm256_loadu_si256((const __m256i *)s), b = _mm256_loadu_si256((const __m256i *)(s + 32));
    __m256i e = _mm256_loadu_si256((const __m256i *)(s + 64)), f = _mm256_loadu_si256((const __m256i *)(s + 96));
    _mm256_storeu_si256((__m256i *)d, a);
    _mm256_storeu_si256((__m256i *)(d + 32), b);
    _mm256_storeu_si256((__m256i *)(d + 64), e);
    _mm256_storeu_si256((__m256i *)(d + 96), f);
  }
  memcpy(d, s, n % 128);
}
#endif

void rgc_copy(void *dst, const void *src, size_t n) {
  if (!n || dst == src) return;
#if defined(__x86_64__)
  bool apart = (uintptr_t)dst - (uintptr_t)src >= n && (uintptr_t)src - (uintptr_t)dst >= n;
  if (n >= 2048 && apart && has_avx2()) {
    through(dst, src, n);
    return;
  }
#endif
  memmove(dst, src, n);
}
