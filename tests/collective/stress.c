/* The core under a sanitizer: ranks are threads, all calls, started ones and messages at once, groups that break and close in the middle. */
#include <stdio.h>
#include <unistd.h>
#include "core.h"

#define RANKS 3
#define N 70000

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s is not so: %s\n", __FILE__, __LINE__, #condition, e.message); \
      abort(); \
    } \
  } while (0)

static struct { pthread_mutex_t mu; pthread_cond_t cv; int n; struct { char key[64]; void *value; size_t len; } at[4096]; } keys = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, {{{0}, 0, 0}}};

static int set(void *arg, const char *key, const void *data, size_t len, rgc_error *err) {
  (void)arg, (void)err;
  pthread_mutex_lock(&keys.mu);
  int i = keys.n++;
  snprintf(keys.at[i].key, sizeof keys.at[i].key, "%s", key);
  keys.at[i].value = memcpy(malloc(len), data, len);
  keys.at[i].len = len;
  pthread_cond_broadcast(&keys.cv);
  pthread_mutex_unlock(&keys.mu);
  return 0;
}

static int get(void *arg, const char *key, int64_t timeout, void **data, size_t *len, rgc_error *err) {
  (void)arg, (void)timeout, (void)err;
  pthread_mutex_lock(&keys.mu);
  for (;;) {
    for (int i = 0; i < keys.n; i++) {
      if (strcmp(keys.at[i].key, key)) continue;
      *len = keys.at[i].len;
      *data = memcpy(malloc(*len), keys.at[i].value, *len);
      pthread_mutex_unlock(&keys.mu);
      return 0;
    }
    pthread_cond_wait(&keys.cv, &keys.mu);
  }
}

static rgc_group *make(const char *name, int number, int rank) {
  char full[64];
  rgc_error e = {0};
  rgc_group *g;
  snprintf(full, sizeof full, "%s%d", name, number);
  rgc_options o = {.struct_size = sizeof o, .name = full, .rank = rank, .size = RANKS, .timeout_ns = 60000000000, .store = {NULL, set, get}, .arena_bytes = 64u << 20};
  CHECK(!rgc_open(&o, NULL, &g, &e));
  return g;
}

static void everything(rgc_group *g, int rank, int round) {
  rgc_error e = {0};
  int32_t *x = malloc(4 * N), *all = malloc(4 * N * RANKS), *crossed = malloc(4 * N * RANKS);
  for (int pass = 0; pass < 2; pass++) {
    size_t n = pass ? N : 100;
    for (uint32_t kind = RGC_BARRIER; kind <= RGC_ALLTOALL; kind++) {
      for (size_t i = 0; i < n; i++) x[i] = rank;
      for (size_t i = 0; i < n * RANKS; i++) all[i] = rank;
      bool many = kind == RGC_REDUCESCATTER || kind == RGC_SCATTER || kind == RGC_ALLTOALL;
      rgc_call c = {.kind = kind, .dtype = RGC_INT32, .root = round % RANKS, .count = n, .src = many ? all : x, .dst = kind == RGC_BROADCAST ? x : kind == RGC_SCATTER ? x : crossed};
      if (pass) {
        rgc_work *w;
        CHECK(!rgc_start(g, &c, NULL, NULL, NULL, &w, &e) && !rgc_work_wait(w, NULL, NULL, &e));
        rgc_work_free(w);
      } else {
        CHECK(!rgc_run(g, &c, NULL, NULL, &e));
      }
      if (kind == RGC_ALLREDUCE || kind == RGC_REDUCESCATTER) CHECK(crossed[n - 1] == RANKS * (RANKS - 1) / 2);
      if (kind == RGC_ALLTOALL || kind == RGC_ALLGATHER)
        for (int r = 0; r < RANKS; r++) CHECK(crossed[(size_t)r * n + n - 1] == r);
      if (kind == RGC_BROADCAST || kind == RGC_SCATTER) CHECK(x[n - 1] == round % RANKS);
    }
    rgc_work *w[2];
    rgc_call send = {.kind = RGC_SEND, .dtype = RGC_INT32, .root = (rank + 1) % RANKS, .tag = 3, .count = n, .src = x}, recv = send;
    recv.kind = RGC_RECV;
    recv.root = round % 2 ? RGC_ANY_SOURCE : (rank + RANKS - 1) % RANKS;
    recv.dst = crossed;
    CHECK(!rgc_start(g, &send, NULL, NULL, NULL, &w[0], &e) && !rgc_start(g, &recv, NULL, NULL, NULL, &w[1], &e));
    for (int i = 0; i < 2; i++) {
      CHECK(!rgc_work_wait(w[i], NULL, NULL, &e));
      rgc_work_free(w[i]);
    }
    void *p;
    CHECK(!rgc_alloc(g, 4 * N, &p, &e));
    rgc_call direct = {.kind = RGC_ALLREDUCE, .dtype = RGC_INT32, .op = RGC_MAX, .count = N, .src = p, .dst = p};
    ((int32_t *)p)[N - 1] = rank;
    CHECK(!rgc_run(g, &direct, NULL, NULL, &e) && ((int32_t *)p)[N - 1] == RANKS - 1);
    rgc_free(g, p);
  }
  free(x);
  free(all);
  free(crossed);
}

static void *repeat(void *arg) {
  rgc_call c = {.kind = RGC_BARRIER};
  rgc_error e;
  while (!rgc_run(arg, &c, NULL, NULL, &e)) {}
  rgc_drop(arg);
  return NULL;
}

static void *rank_main(void *arg) {
  int rank = (int)(intptr_t)arg;
  for (int round = 0; round < 6; round++) {
    rgc_group *g = make("whole", round, rank);
    everything(g, rank, round);
    rgc_close(g);
    /* Another thread is in a call while the group breaks, or is closed. */
    g = make("broken", round, rank);
    pthread_t t;
    rgc_hold(g);
    rgc_error e = {0};
    CHECK(!pthread_create(&t, NULL, repeat, g));
    usleep(20000);
    if (rank == round % RANKS && round % 2) CHECK(!rgc_abort(g, "enough", &e));
    if (rank == round % RANKS || round % 2 == 0) rgc_close(g);
    pthread_join(t, NULL);
    if (rank != round % RANKS && round % 2) rgc_close(g);
  }
  return NULL;
}

/* Numbers of ranks that the type cannot hold: as uint8, 256 would be 0. */
static void divides(void) {
  rgc_error e = {0};
  uint8_t u = 255;
  int8_t i = 100;
  rgc_divide(&u, 1, RGC_UINT8, 256);
  rgc_divide(&i, 1, RGC_INT8, 200);
  CHECK(u == 0 && i == 0);
}

int main(void) {
  pthread_t t[RANKS];
  rgc_error e = {0};
  divides();
  for (intptr_t i = 0; i < RANKS; i++) CHECK(!pthread_create(&t[i], NULL, rank_main, (void *)i));
  for (int i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < keys.n; i++) free(keys.at[i].value);
  puts("ok");
  return 0;
}
