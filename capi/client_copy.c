/* Copies at memory speed.  Plain memcpy reads the destination's lines before it writes them; for what is larger than the caches, stores that go
 * around them move a third less data.  One thread cannot fill the memory bus, two nearly can.
 *
 * A large copy is cut into pieces that both threads take from one counter: a thread that is not scheduled takes none, so it holds nothing up.
 * Fresh pages are faulted in piece by piece by whoever is about to write to them, which spreads that work as well. */
#include "client_int.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define STREAM_FROM (8u << 20)
#define SPLIT_FROM (8u << 20)
#define PIECE (2u << 20)          /* a huge page */

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void stream_avx2(uint8_t *d, const uint8_t *s, size_t n) {
  size_t head = (size_t)(-(uintptr_t)d & 63);
  if (head > n) head = n;
  memcpy(d, s, head);
  d += head;
  s += head;
  n -= head;
  size_t blocks = n / 128;
  for (size_t i = 0; i < blocks; i++, d += 128, s += 128) {
    _mm_prefetch((const char *)s + 1024, _MM_HINT_NTA);
    _mm_prefetch((const char *)s + 1088, _MM_HINT_NTA);
    __m256i a = _mm256_loadu_si256((const __m256i *)s), b = _mm256_loadu_si256((const __m256i *)(s + 32));
    __m256i e = _mm256_loadu_si256((const __m256i *)(s + 64)), f = _mm256_loadu_si256((const __m256i *)(s + 96));
    _mm256_stream_si256((__m256i *)d, a);
    _mm256_stream_si256((__m256i *)(d + 32), b);
    _mm256_stream_si256((__m256i *)(d + 64), e);
    _mm256_stream_si256((__m256i *)(d + 96), f);
  }
  _mm_sfence();
  memcpy(d, s, n - blocks * 128);
}
#endif

static bool can_stream(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

static bool in_arena(rg_client *c, const uint8_t *p) { return c->arena_rw && p >= c->arena_rw && p < c->arena_rw + c->arena_size; }

struct job {
  rg_client *c;                   /* whose arena it goes to; NULL: ordinary memory */
  uint8_t *d;
  const uint8_t *s;
  size_t n, lead;                 /* lead: bytes of the first piece before d, so that pieces begin where pages do */
  uint32_t pieces;
  bool stream;
  _Atomic uint32_t next, left;    /* left is a futex */
  _Atomic int refs;
};

static void copy_pieces(struct job *j) {
  for (uint32_t i; (i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->pieces;) {
    size_t from = i ? (size_t)i * PIECE - j->lead : 0, to = (size_t)(i + 1) * PIECE - j->lead, n = (to < j->n ? to : j->n) - from;
    if (j->c) rg_touch(j->c, j->d + from, n);
#if defined(__x86_64__)
    if (j->stream) stream_avx2(j->d + from, j->s + from, n);
    else
#endif
      memcpy(j->d + from, j->s + from, n);
    if (atomic_fetch_sub(&j->left, 1) == 1) rg_futex_wake(&j->left, 1);
  }
}

static void job_done(struct job *j) {
  if (atomic_fetch_sub(&j->refs, 1) == 1) free(j);
}

static void *helper(void *arg) {
  copy_pieces(arg);
  job_done(arg);
  return NULL;
}

/* Lives as long as the copy: milliseconds, against 20 µs to make it.  Nobody joins it: if it comes too late it finds nothing left to do. */
static void call_helper(struct job *j) {
  cpu_set_t set;
  pthread_attr_t a;
  pthread_t t;
  sigset_t all, old;
  if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < 2) return;
  pthread_attr_init(&a);
  pthread_attr_setstacksize(&a, 256 << 10);
  pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);   /* signals are for the user's threads */
  atomic_fetch_add(&j->refs, 1);
  if (pthread_create(&t, &a, helper, j)) job_done(j);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&a);
}

static void copy(rg_client *c, uint8_t *d, const uint8_t *s, size_t n) {
  if (c && !in_arena(c, d)) c = NULL;   /* in a file of its own */
  struct job *j = n < STREAM_FROM ? NULL : malloc(sizeof *j);
  if (!j) {
    if (c) rg_touch(c, d, n);
    if (n) memcpy(d, s, n);
    return;
  }
  *j = (struct job){.c = c, .d = d, .s = s, .n = n, .stream = can_stream()};
  j->lead = (c ? (size_t)(d - c->arena_rw) : (size_t)(uintptr_t)d) & (PIECE - 1);
  j->pieces = (uint32_t)((j->lead + n + PIECE - 1) / PIECE);
  atomic_store(&j->left, j->pieces);
  atomic_store(&j->refs, 1);
  if (n >= SPLIT_FROM) call_helper(j);
  copy_pieces(j);
  for (uint32_t left; (left = atomic_load(&j->left));) rg_futex_wait(&j->left, left, -1);
  job_done(j);
}

void rg_copy(void *dst, const void *src, size_t n) { copy(NULL, dst, src, n); }

void rg_fill(rg_client *c, uint8_t *dst, const void *src, size_t n) { copy(c, dst, src, n); }

void rg_touch(rg_client *c, const uint8_t *p, size_t n) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
  /* Faults one by one cost more than the copy.  Once per chunk: the engine gives freed space out again while it is warm. */
  if (!c->populated || n < RG_REGION || !in_arena(c, p)) return;
  size_t from = (size_t)(p - c->arena_rw);
  for (size_t i = from / RG_REGION, end = (from + n + RG_REGION - 1) / RG_REGION; i < end;) {
    size_t j = i;
    while (j < end && !atomic_exchange_explicit(&c->populated[j], 1, memory_order_relaxed)) j++;
    if (j > i) {
      size_t to = j * RG_REGION < c->arena_size ? j * RG_REGION : c->arena_size;
      madvise(c->arena_rw + i * RG_REGION, to - i * RG_REGION, MADV_POPULATE_WRITE);
    }
    i = j + 1;
  }
}
