/* Collectives: ranks are threads here; processes are tests/collective's affair. */
#include "check.h"

#define RANKS 3
#define N 100000

static char folder[64];
static struct { pthread_mutex_t mu; pthread_cond_t cv; char key[16][64]; void *value[16]; size_t len[16]; int n; } keys = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{0}}, {0}, {0}, 0};

static raygo_status set(void *store, raygo_view key, raygo_view value) {
  CHECK(store == &keys && key.len < 64);
  pthread_mutex_lock(&keys.mu);
  int i = keys.n++;
  memcpy(keys.key[i], key.data, key.len);
  keys.value[i] = memcpy(malloc(value.len), value.data, value.len);
  keys.len[i] = value.len;
  pthread_cond_broadcast(&keys.cv);
  pthread_mutex_unlock(&keys.mu);
  return RAYGO_OK;
}

static raygo_status get(void *store, raygo_view key, int64_t timeout_ns, void **value, size_t *len) {
  CHECK(store == &keys && timeout_ns > 0);
  pthread_mutex_lock(&keys.mu);
  for (;;) {
    for (int i = 0; i < keys.n; i++) {
      if (strlen(keys.key[i]) != key.len || memcmp(keys.key[i], key.data, key.len)) continue;
      *value = memcpy(malloc(keys.len[i]), keys.value[i], keys.len[i]);
      *len = keys.len[i];
      pthread_mutex_unlock(&keys.mu);
      return RAYGO_OK;
    }
    pthread_cond_wait(&keys.cv, &keys.mu);
  }
}

static raygo_collective call(uint32_t kind, const void *src, void *dst, size_t count) {
  raygo_collective c = raygo_collective_init();
  c.kind = kind;
  c.dtype = RAYGO_FLOAT32;
  c.src = src;
  c.dst = dst;
  c.count = count;
  return c;
}

static void *rank_main(void *arg) {
  int32_t rank = (int32_t)(intptr_t)arg, source, done, ended;
  raygo_error e = RAYGO_ERROR_INIT;
  raygo_group_options o = raygo_group_options_init();
  raygo_group g, part;
  raygo_work work;
  raygo_group_facts facts = {sizeof facts, 0, 0};
  o.name = raygo_str("conformance");
  o.rank = rank;
  o.size = RANKS;
  o.timeout_ns = 60 * RAYGO_SECOND;
  o.store = &keys;
  o.store_set = set;
  o.store_get = get;
  CHECK(raygo_group_open(&o, NONE, &g, &e) == RAYGO_OK);
  CHECK(raygo_group_info(g, &facts, NULL) == RAYGO_OK && facts.rank == rank && facts.size == RANKS);
  float *x = malloc(N * sizeof *x), *all = malloc(RANKS * N * sizeof *all);
  for (int i = 0; i < N; i++) x[i] = (float)rank;
  raygo_collective c = call(RAYGO_ALLREDUCE, x, x, N);
  CHECK(raygo_group_run(g, &c, 0, NONE, NULL, &e) == RAYGO_OK && x[0] == 3 && x[N - 1] == 3);
  x[5] = (float)rank;
  c = call(RAYGO_ALLGATHER, x, all, N);
  CHECK(raygo_group_start(g, &c, 0, &work, &e) == RAYGO_OK);
  CHECK(raygo_work_wait(work, -1, NONE, NULL, &ended, &e) == RAYGO_OK && ended == 1);
  CHECK(raygo_work_cancel(work, &done, &e) == RAYGO_OK && !done);
  CHECK(raygo_work_release(work, &e) == RAYGO_OK && raygo_work_release(work, &e) == RAYGO_ESTALE);
  for (int r = 0; r < RANKS; r++) CHECK(all[r * N + 5] == (float)r && all[r * N + 6] == 3);
  /* Blocks of different sizes. */
  raygo_block blocks[RANKS] = {{all, 1}, {all + 10, 0}, {all + 20, 7}};
  c = call(RAYGO_ALLGATHER, x, NULL, blocks[rank].count);
  c.dsts = blocks;
  CHECK(raygo_group_run(g, &c, 0, NONE, NULL, &e) == RAYGO_OK && all[0] == 3 && all[25] == 2);
  /* Messages. */
  c = call(rank ? RAYGO_SEND : RAYGO_RECV, x, x, 10);
  c.tag = 5;
  c.root = rank ? 0 : RAYGO_ANY_SOURCE;
  for (int i = 0; i < (rank ? 1 : RANKS - 1); i++) CHECK(raygo_group_run(g, &c, 0, NONE, &source, &e) == RAYGO_OK && (rank || (source > 0 && x[5] == (float)source)));
  /* In shared memory. */
  void *p;
  CHECK(raygo_group_alloc(g, N * sizeof *x, &p, &e) == RAYGO_OK && (uintptr_t)p % 64 == 0 && ((float *)p)[7] == 0);
  ((float *)p)[7] = 1;
  c = call(RAYGO_ALLREDUCE, p, p, N);
  c.reduction = RAYGO_AVG;
  CHECK(raygo_group_run(g, &c, 0, NONE, NULL, &e) == RAYGO_OK && ((float *)p)[7] == 1);
  CHECK(raygo_group_free(g, p, &e) == RAYGO_OK);
  /* Parts. */
  CHECK(raygo_group_split(g, rank == 1 ? -1 : 0, -rank, 0, NONE, &part, &e) == RAYGO_OK && (part.h != 0) == (rank != 1));
  if (part.h) {
    CHECK(raygo_group_info(part, &facts, NULL) == RAYGO_OK && facts.size == 2 && facts.rank == (rank == 0));
    CHECK(raygo_group_close(part, &e) == RAYGO_OK);
  }
  /* What is refused changes nothing. */
  c = call(RAYGO_BROADCAST, x, x, 10);
  c.root = 9;
  CHECK(raygo_group_run(g, &c, 0, NONE, NULL, &e) == RAYGO_EINVAL && strstr(e.message, "there is no rank 9"));
  c = call(RAYGO_BARRIER, NULL, NULL, 0);
  CHECK(raygo_group_run(g, &c, 0, NONE, NULL, &e) == RAYGO_OK);
  /* Broken, by one of them. */
  if (rank == 2) {
    CHECK(raygo_group_abort(g, raygo_str("for the test"), &e) == RAYGO_OK);
  }
  CHECK(raygo_group_run(g, &c, 0, NONE, NULL, &e) == RAYGO_EGROUP && strstr(e.message, "for the test"));
  raygo_mp_value v;
  CHECK(raygo_mp_find(raygo_bytes(e.detail.data, e.detail.len), "rank", &v) && v.type == RAYGO_MP_INT && v.i == 2);
  CHECK(raygo_group_close(g, &e) == RAYGO_OK && raygo_group_close(g, &e) == RAYGO_ESTALE);
  CHECK(raygo_group_run(g, &c, 0, NONE, NULL, &e) == RAYGO_ESTALE);
  free(x);
  free(all);
  raygo_error_clear(&e);
  return NULL;
}

static void *fire(void *token) {
  usleep(100000);
  OK(raygo_token_fire(*(raygo_token *)token, NULL));
  return NULL;
}

static void alone(void) {
  raygo_group_options o = raygo_group_options_init();
  raygo_group g;
  SAYS(RAYGO_EINVAL, "1 to 200 bytes", (o.size = 1, raygo_group_open(&o, NONE, &g, &err)));
  o.name = raygo_str("alone");
  SAYS(RAYGO_EINVAL, "no store", (o.size = 2, raygo_group_open(&o, NONE, &g, &err)));
  o.folder = raygo_str("/nonexistent");
  SAYS(RAYGO_EINVAL, "/nonexistent", raygo_group_open(&o, NONE, &g, &err));
  o.folder = raygo_str(folder);
  o.timeout_ns = 50 * MS;
  SAYS(RAYGO_ETIMEDOUT, "1 did not come in time (1)", raygo_group_open(&o, NONE, &g, &err));
  o.struct_size = 8;
  SAYS(RAYGO_EINVAL, "raygo_group_options_init", raygo_group_open(&o, NONE, &g, &err));
  o.struct_size = sizeof o;
  o.size = 1;
  OK(raygo_group_open(&o, NONE, &g, &err));
  int64_t x = 5, y = 0;
  raygo_collective c = call(RAYGO_ALLREDUCE, &x, &y, 1);
  c.dtype = RAYGO_INT64;
  OK(raygo_group_run(g, &c, 0, NONE, NULL, &err));
  CHECK(y == 5);
  OK(raygo_group_close(g, &err));
  SAYS(RAYGO_ESTALE, "group handle", raygo_group_run(g, &c, 0, NONE, NULL, &err));
}

static void *partner(void *arg) {
  raygo_group_options o = raygo_group_options_init();
  o.name = raygo_str("token");
  o.rank = 1;
  o.size = 2;
  o.folder = raygo_str(folder);
  OK(raygo_group_open(&o, NONE, arg, NULL));
  return NULL;
}

static void token(void) {
  raygo_token t;
  raygo_group g, other;
  pthread_t p, f;
  raygo_group_options o = raygo_group_options_init();
  o.name = raygo_str("token");
  o.size = 2;
  o.folder = raygo_str(folder);
  CHECK(!pthread_create(&p, NULL, partner, &other));
  OK(raygo_group_open(&o, NONE, &g, &err));
  pthread_join(p, NULL);
  OK(raygo_token_new(&t, &err));
  CHECK(!pthread_create(&f, NULL, fire, &t));
  raygo_collective c = call(RAYGO_BARRIER, NULL, NULL, 0);
  SAYS(RAYGO_EINTERRUPTED, "interrupted in barrier", raygo_group_run(g, &c, 0, t, NULL, &err));
  pthread_join(f, NULL);
  SAYS(RAYGO_EGROUP, "interrupted in barrier", raygo_group_run(other, &c, 0, NONE, NULL, &err));
  OK(raygo_token_release(t, &err));
  OK(raygo_group_close(g, &err));
  OK(raygo_group_close(other, &err));
}

void test_group(void) {
  pthread_t t[RANKS];
  strcpy(folder, "/tmp/raygo-conformance-XXXXXX");
  CHECK(mkdtemp(folder));
  for (intptr_t i = 0; i < RANKS; i++) CHECK(!pthread_create(&t[i], NULL, rank_main, (void *)i));
  for (int i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < keys.n; i++) free(keys.value[i]);
  alone();
  token();
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(!system(command));
}
