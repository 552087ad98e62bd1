/* How fast this machine copies: the bound that puts of large arrays are held against.
 *
 * Both arrays have been touched before.  Each thread copies its share with stores that go around the caches, and the clock runs from the moment that all
 * of them are there, so that nothing but the copy is in the figure. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MOST 64

struct share { pthread_barrier_t *ready; uint8_t *d; const uint8_t *s; size_t n; double begin, end; };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void around_caches(uint8_t *d, const uint8_t *s, size_t n) {
  while (n && (uintptr_t)d & 31) *d++ = *s++, n--;
  for (; n >= 64; n -= 64, d += 64, s += 64) {
    _mm_prefetch((const char *)s + 1024, _MM_HINT_NTA);
    __m256i a = _mm256_loadu_si256((const __m256i *)s), b = _mm256_loadu_si256((const __m256i *)(s + 32));
    _mm256_stream_si256((__m256i *)d, a);
    _mm256_stream_si256((__m256i *)(d + 32), b);
  }
  _mm_sfence();
  memcpy(d, s, n);
}
#endif

static void *run(void *arg) {
  struct share *p = arg;
  pthread_barrier_wait(p->ready);
  p->begin = now();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) around_caches(p->d, p->s, p->n);
  else
#endif
    memcpy(p->d, p->s, p->n);
  p->end = now();
  return NULL;
}

/* Seconds that a copy takes on so many threads; 0 when they could not be made. */
double copy_seconds(uint8_t *dst, const uint8_t *src, size_t n, int threads) {
  struct share share[MOST];
  pthread_t id[MOST];
  pthread_barrier_t ready;
  if (threads < 1 || threads > MOST) return 0;
  pthread_barrier_init(&ready, NULL, (unsigned)threads);
  size_t part = n / (size_t)threads & ~(size_t)4095;
  for (int i = 0; i < threads; i++)
    share[i] = (struct share){&ready, dst + part * (size_t)i, src + part * (size_t)i, i == threads - 1 ? n - part * (size_t)i : part, 0, 0};
  for (int i = 1; i < threads; i++)
    if (pthread_create(&id[i], NULL, run, &share[i])) return 0;
  run(&share[0]);
  double begin = share[0].begin, end = share[0].end;
  for (int i = 1; i < threads; i++) {
    pthread_join(id[i], NULL);
    if (share[i].begin < begin) begin = share[i].begin;
    if (share[i].end > end) end = share[i].end;
  }
  pthread_barrier_destroy(&ready);
  return end - begin;
}
