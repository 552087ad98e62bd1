/* Stress of the client against a small engine in this file, embedded and over a socket; meant for the sanitizers.
 * cc -fsanitize=thread|address -Icapi tests/capi/client_stress.c capi/client*.c -lpthread */
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "client.h"

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- an engine that answers every SUBMIT by its argument bytes and counts RELEASE */
struct item { struct item *next; struct rg_hdr h; size_t n; uint8_t p[]; };
static struct { pthread_mutex_t mu; pthread_cond_t cv; struct item *head, **tail; bool stop; rg_client *c; _Atomic long held, put; } eng = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &eng.head, false, NULL, 0, 0};

static int32_t input(uint64_t conn, const void *frames, size_t len) {
  (void)conn;
  const uint8_t *p = frames;
  for (size_t at = 0; at < len;) {
    struct rg_hdr h;
    memcpy(&h, p + at, sizeof h);
    at += sizeof h;
    if (h.type == RG_SUBMIT) {
      struct item *i = malloc(sizeof *i + h.len);
      i->next = NULL;
      i->h = h;
      i->n = h.len;
      memcpy(i->p, p + at, h.len);
      atomic_fetch_add(&eng.held, 1);
      pthread_mutex_lock(&eng.mu);
      *eng.tail = i;
      eng.tail = &i->next;
      pthread_cond_signal(&eng.cv);
      pthread_mutex_unlock(&eng.mu);
    } else if (h.type == RG_PUT) {
      atomic_fetch_add(&eng.held, 1);
    } else if (h.type == RG_RELEASE) {
      atomic_fetch_sub(&eng.held, (long)(h.len / sizeof(struct rg_oid)));
    } else if (h.type == RG_ADDREF) {
      atomic_fetch_add(&eng.held, (long)(h.len / sizeof(struct rg_oid)));
    }
    at += h.len;
  }
  assert(len % 8 == 0);
  return 0;
}

static void *engine_main(void *arg) {
  (void)arg;
  for (;;) {
    pthread_mutex_lock(&eng.mu);
    while (!eng.head && !eng.stop) pthread_cond_wait(&eng.cv, &eng.mu);
    struct item *i = eng.head;
    if (!i) {
      pthread_mutex_unlock(&eng.mu);
      return NULL;
    }
    eng.head = i->next;
    if (!eng.head) eng.tail = &eng.head;
    pthread_mutex_unlock(&eng.mu);
    struct rg_submit s;
    memcpy(&s, i->p, sizeof s);
    uint8_t buf[256] = {0};
    struct rg_value v = {1, RG_V_INLINE, 0, s.args_len, 0, 0, 0};
    struct rg_hdr h = {(uint32_t)(sizeof v + RG_PAD8(s.args_len)), RG_OBJECT, 0, i->h.id};
    memcpy(buf, &h, sizeof h);
    memcpy(buf + sizeof h, &v, sizeof v);
    memcpy(buf + sizeof h + sizeof v, i->p + sizeof s, s.args_len);
    rg_client_deliver(eng.c, buf, sizeof h + h.len);
    free(i);
  }
}

static void *user(void *arg) {
  rg_client *c = eng.c;
  unsigned seed = (unsigned)(size_t)arg;
  for (int round = 0; round < 60; round++) {
    enum { N = 50 };
    rg_slot *s[N];
    uint64_t id[N];
    for (int i = 0; i < N; i++) {
      id[i] = rg_next_number(c);
      struct rg_submit b = {.nreturns = 1, .args_len = 8};
      assert(rg_submit(c, id[i], 0, &b, NULL, NULL, &id[i], NULL, &s[i]) == 0);
    }
    size_t need = 1 + rand_r(&seed) % N;
    assert(rg_wait(c, s, N, need, 0, now() + 5000000000, NULL, NULL, NULL, NULL) == 0);
    assert(rg_wait(c, s, N, N, 0, -1, NULL, NULL, NULL, NULL) == 0);
    for (int i = 0; i < N; i++) {
      assert(atomic_load(&s[i]->state) == RG_S_INLINE && s[i]->len == 8 && !memcmp(s[i]->data, &id[i], 8));
      /* a second handle on the same object, met again while it goes */
      if (i % 3 == 0) {
        rg_slot_decref(c, s[i]);
        rg_slot *again = rg_slot_ref(c, (struct rg_oid){id[i], 1, 0});
        rg_slot_decref(c, again);
      } else {
        rg_slot_decref(c, s[i]);
      }
      rg_slot *p;
      assert(rg_put(c, rg_next_number(c), "12345678", 8, 0, NULL, 0, &p) == 0);
      rg_slot_decref(c, p);
    }
  }
  return NULL;
}

static void embedded(void) {
  rg_client *c = rg_client_new(NULL);
  eng.c = c;
  rg_client_set_prefix(c, 7);
  assert(rg_client_embed(c, input, 1) == 0);
  pthread_t e, u[4];
  pthread_create(&e, NULL, engine_main, NULL);
  for (size_t i = 0; i < 4; i++) pthread_create(&u[i], NULL, user, (void *)(i + 1));
  for (int i = 0; i < 4; i++) pthread_join(u[i], NULL);
  for (int i = 0; i < 400 && atomic_load(&eng.held); i++) usleep(5000);
  assert(atomic_load(&eng.held) == 0);   /* every handle was announced as gone, by the monitor if by nobody else */
  rg_slot *late[1];
  struct rg_submit b = {.nreturns = 1};
  pthread_mutex_lock(&eng.mu);
  eng.stop = true;
  pthread_cond_signal(&eng.cv);
  pthread_mutex_unlock(&eng.mu);
  pthread_join(e, NULL);
  rg_counter *k = calloc(1, sizeof *k);   /* a call that cannot leave is no pending call */
  atomic_store(&k->refs, 1);
  assert(rg_submit(c, rg_next_number(c), 0, &(struct rg_submit){.nreturns = 1, .args_len = RG_MAX_FRAME}, NULL, NULL, NULL, k, late) == 1);
  assert(atomic_load(&k->n) == 0 && atomic_load(&k->refs) == 1);
  rg_counter_decref(k);
  assert(rg_submit(c, rg_next_number(c), 0, &b, NULL, NULL, NULL, NULL, late) == 0);
  assert(rg_wait(c, late, 1, 1, 0, now() + 20000000, NULL, NULL, NULL, NULL) == 2);
  assert(rg_wait(c, late, 1, 1, 0, 0, NULL, NULL, NULL, NULL) == 2);
  rg_client_close(c);
  assert(rg_wait(c, late, 1, 1, 0, -1, NULL, NULL, NULL, NULL) == 25);
  rg_slot_decref(c, late[0]);
}

/* ---- over a socket: a worker that adds one, with a nested wait now and then */
static int sock[2];
static void raw(const void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t k = send(sock[0], (const char *)p + at, n - at, 0);
    assert(k > 0);
    at += (size_t)k;
  }
}

static void *worker(void *arg) {
  rg_client *c = arg;
  int status;
  rg_task *t;
  while ((t = rg_task_next(c, -1, NULL, NULL, &status))) {
    rg_busy(c);
    uint64_t x;
    assert(t->x.args_len == 8);
    memcpy(&x, t->args, 8);
    if (x % 50 == 7) usleep(3000);   /* long: the monitor takes over */
    x++;
    struct rg_out o = {1, RG_V_INLINE, 0, &x, 8, NULL, 0};
    assert(rg_result(c, t->id, t->x.attempt, RG_R_OK, 1, &o, 1, x % 2) == 0);
    rg_task_free(c, t);
  }
  assert(status == 25);
  return NULL;
}

static void over_socket(void) {
  assert(socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0);
  struct rg_hdr w = {8, RG_WELCOME, 0, 0};
  raw(&w, sizeof w);
  raw("welcome!", 8);
  rg_client *c = rg_client_new(NULL);
  assert(rg_client_adopt(c, sock[1], -1, 1000000000) == 0);
  pthread_t t;
  pthread_create(&t, NULL, worker, c);
  uint64_t sent = 0, got = 0, sum = 0;
  for (int burst = 1; burst < 200; burst = burst * 3 / 2 + 1) {
    for (int round = 0; round < 20; round++) {
      for (int i = 0; i < burst; i++) {
        struct { struct rg_hdr h; struct rg_exec x; uint64_t arg; } f = {{sizeof f.x + 8, RG_EXEC, 0, ++sent}, {.args_len = 8, .nreturns = 1}, sent};
        raw(&f, sizeof f);
      }
      while (got < sent) {
        struct { struct rg_hdr h; struct rg_result r; struct rg_value v; uint64_t x; } a;
        size_t at = 0;
        while (at < sizeof a.h) at += (size_t)recv(sock[0], (char *)&a + at, sizeof a.h - at, 0);
        while (at < sizeof a.h + a.h.len) at += (size_t)recv(sock[0], (char *)&a + at, sizeof a.h + a.h.len - at, 0);
        assert(a.h.type == RG_RESULT && a.h.len == sizeof a - sizeof a.h);
        assert(a.x == a.h.id + 1);
        got++;
        sum += a.x;
      }
    }
  }
  assert(sum == sent * (sent + 1) / 2 + sent);
  struct rg_hdr x = {0, RG_EXIT, 0, 0};
  raw(&x, sizeof x);
  pthread_join(t, NULL);
  rg_client_close(c);
  close(sock[0]);
  printf("%llu tasks over the socket\n", (unsigned long long)sent);
}

/* What a generator's consumer has taken may be told before the generator begins, and must not be lost. */
static void resumed_early(void) {
  assert(socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0);
  struct rg_hdr w = {0, RG_WELCOME, 0, 0};
  raw(&w, sizeof w);
  rg_client *c = rg_client_new(NULL);
  assert(rg_client_adopt(c, sock[1], -1, 1000000000) == 0);
  for (uint64_t id = 1; id <= 3; id++) {
    struct { struct rg_hdr h; struct rg_exec x; } f = {{sizeof f.x, RG_EXEC, RG_F_STREAMING, id}, {.nreturns = 1}};
    raw(&f, sizeof f);
  }
  struct { struct rg_hdr h; uint64_t n; } told[] = {{{8, RG_RESUME, 0, 2}, 5}, {{8, RG_RESUME, 0, 1}, UINT64_MAX}, {{8, RG_RESUME, 0, 2}, 4}, {{8, RG_RESUME, 0, 9}, 1}};
  raw(told, sizeof told);
  int status;
  rg_task *t[3];
  for (int i = 0; i < 3; i++) assert((t[i] = rg_task_next(c, -1, NULL, NULL, &status)));
  while (rg_pump(c) < 0 || atomic_load(&t[1]->taken) < 5) usleep(1000);
  assert(atomic_load(&t[0]->taken) == UINT64_MAX && atomic_load(&t[1]->taken) == 5 && atomic_load(&t[2]->taken) == 0);
  for (int i = 0; i < 3; i++) rg_task_free(c, t[i]);
  raw(told, sizeof told);   /* to nobody */
  rg_pump(c);
  rg_client_close(c);
  close(sock[0]);
}

/* ---- copies, from several threads at once, of sizes and alignments around what makes them split and stream */
static void *copies(void *arg) {
  size_t seed = (size_t)(uintptr_t)arg, most = (20u << 20) + 4096;
  uint8_t *from = malloc(most), *to = malloc(most);
  for (size_t i = 0; i < most; i++) from[i] = (uint8_t)(i * 2654435761u >> 13 ^ seed);
  static const size_t sizes[] = {0, 1, 63, 4096, (8u << 20) - 1, 8u << 20, (8u << 20) + 1, (10u << 20) + 77, 20u << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t n = sizes[i], a = (i * 7 + seed) % 129, b = (i * 31 + seed) % 67;
    memset(to, 0xa5, most);
    rg_copy(to + a, from + b, n);
    assert(memcmp(to + a, from + b, n) == 0);
    for (size_t k = 0; k < a; k++) assert(to[k] == 0xa5);
    for (size_t k = a + n; k < a + n + 200; k++) assert(to[k] == 0xa5);
  }
  free(from);
  free(to);
  return NULL;
}

static void copying(void) {
  pthread_t t[3];
  for (size_t i = 0; i < 3; i++) pthread_create(&t[i], NULL, copies, (void *)(uintptr_t)(i + 1));
  for (size_t i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

int main(void) {
  alarm(100);
  copying();
  embedded();
  over_socket();
  resumed_early();
  puts("ok");
  return 0;
}
