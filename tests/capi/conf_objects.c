/* Objects, references, the completion queue. */
#include <poll.h>
#include "check.h"

static void expect(raygo_runtime rt, raygo_object o, uint32_t format, const void *data, size_t len) {
  raygo_buf b;
  OK(raygo_get(rt, &o, 1, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.format == format && b.len == len && (!len || !memcmp(b.data, data, len)));
  CHECK(((uintptr_t)b.data & 7) == 0);
  raygo_buf_release(&b);
  CHECK(!b.data && !b.owner);
  raygo_buf_release(&b);
}

static void put_and_get(raygo_runtime rt) {
  static const size_t sizes[] = {0, 1, 15, 100, 1023, 1024, 4096, 65519, 65520, 65521, 1 << 20, 9 << 20};
  uint8_t *data = malloc(9 << 20);
  for (size_t i = 0; i < 9u << 20; i++) data[i] = (uint8_t)(i * 2654435761u >> 13);
  raygo_object o;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    OK(raygo_put(rt, RAYGO_BYTES, raygo_bytes(data, sizes[i]), FOREVER, NONE, &o, &err));
    expect(rt, o, RAYGO_BYTES, data, sizes[i]);
    expect(rt, o, RAYGO_BYTES, data, sizes[i]);
    OK(raygo_release(&o, 1, &err));
  }
  OK(raygo_put(rt, RAYGO_NONE, raygo_bytes(NULL, 0), FOREVER, NONE, &o, &err));
  expect(rt, o, RAYGO_NONE, NULL, 0);
  OK(raygo_release(&o, 1, &err));
  OK(raygo_put(rt, RAYGO_MSGPACK, raygo_str("\x93\x01\xa1x\xc0"), FOREVER, NONE, &o, &err));
  expect(rt, o, RAYGO_MSGPACK, "\x93\x01\xa1x\xc0", 5);
  OK(raygo_release(&o, 1, &err));

  SAYS(RAYGO_EINVAL, "format 16", raygo_put(rt, 16, raygo_str("x"), 0, NONE, &o, &err));
  SAYS(RAYGO_EINVAL, "RAYGO_NONE", raygo_put(rt, RAYGO_NONE, raygo_str("x"), 0, NONE, &o, &err));
  SAYS(RAYGO_EINVAL, "NULL", raygo_put(rt, RAYGO_BYTES, raygo_bytes(NULL, 5), 0, NONE, &o, &err));
  SAYS(RAYGO_EINVAL, "`out`", raygo_put(rt, RAYGO_BYTES, raygo_str("x"), 0, NONE, NULL, &err));
  SAYS(RAYGO_EINVAL, "timeout", raygo_put(rt, RAYGO_BYTES, raygo_str("x"), -2, NONE, &o, &err));
  CHECK(!o.h);
  free(data);
}

static void in_steps(raygo_runtime rt) {
  raygo_object o, gone;
  raygo_buf b;
  void *p;
  OK(raygo_create(rt, RAYGO_BYTES, 300000, FOREVER, NONE, &o, &p, &err));
  CHECK(p && ((uintptr_t)p & 15) == 0);
  memset(p, 'a', 300000);
  SAYS(RAYGO_EINVAL, "seal", raygo_get(rt, &o, 1, 0, NONE, &b, &err));
  uint8_t id[28];
  SAYS(RAYGO_EINVAL, "raygo_seal", raygo_object_id(o, id, &err));
  OK(raygo_seal(o, &err));
  SAYS(RAYGO_EINVAL, "sealed before", raygo_seal(o, &err));
  SAYS(RAYGO_EINVAL, "sealed before", raygo_abort(o, &err));
  OK(raygo_get(rt, &o, 1, FOREVER, NONE, &b, &err));
  CHECK(b.len == 300000 && b.data[0] == 'a' && b.data[299999] == 'a');
  OK(raygo_release(&o, 1, &err));
  CHECK(b.data[150000] == 'a');   /* the buffer outlives the reference */
  raygo_buf_release(&b);

  OK(raygo_create(rt, RAYGO_BYTES, 100, FOREVER, NONE, &gone, &p, &err));
  OK(raygo_abort(gone, &err));
  IS(RAYGO_ESTALE, raygo_abort(gone, &err));
  OK(raygo_create(rt, RAYGO_BYTES, 100, FOREVER, NONE, &gone, &p, &err));
  OK(raygo_release(&gone, 1, &err));
  IS(RAYGO_ESTALE, raygo_seal(gone, &err));
  SAYS(RAYGO_EINVAL, "NULL", raygo_create(rt, RAYGO_BYTES, 1, 0, NONE, &gone, NULL, &err));
  SAYS(RAYGO_ESTOREFULL, "1099511627776", raygo_create(rt, RAYGO_BYTES, (size_t)1 << 40, 5 * RAYGO_SECOND, NONE, &gone, &p, &err));
}

static void many(raygo_runtime rt) {
  enum { N = 200 };
  raygo_object o[N];
  raygo_buf b[N];
  uint8_t ready[N];
  size_t n;
  char text[32];
  for (int i = 0; i < N; i++) {
    snprintf(text, sizeof text, "value %d", i);
    o[i] = put_text(rt, text);
  }
  OK(raygo_wait(rt, o, N, N, 0, NONE, ready, &n, &err));
  CHECK(n == N && ready[0] && ready[N - 1]);
  OK(raygo_wait(rt, o, N, 0, 0, NONE, NULL, NULL, &err));
  OK(raygo_get(rt, o, N, FOREVER, NONE, b, &err));
  for (int i = 0; i < N; i++) {
    snprintf(text, sizeof text, "value %d", i);
    CHECK(b[i].len == strlen(text) && !memcmp(b[i].data, text, b[i].len));
    raygo_buf_release(&b[i]);
  }
  OK(raygo_get(rt, NULL, 0, 0, NONE, NULL, &err));
  SAYS(RAYGO_EINVAL, "cannot be waited for", raygo_wait(rt, o, N, N + 1, 0, NONE, NULL, NULL, &err));
  SAYS(RAYGO_EINVAL, "`objects`", raygo_get(rt, NULL, 1, 0, NONE, b, &err));
  SAYS(RAYGO_EINVAL, "`out`", raygo_get(rt, o, 1, 0, NONE, NULL, &err));

  /* Counting: what was retained twice goes with the third release. */
  OK(raygo_retain(o, N, &err));
  OK(raygo_retain(o, N, &err));
  OK(raygo_release(o, N, &err));
  OK(raygo_release(o, N, &err));
  OK(raygo_get(rt, o, 1, FOREVER, NONE, b, &err));
  raygo_buf_release(b);
  raygo_object last = o[N - 1];
  OK(raygo_release(&last, 1, &err));
  IS(RAYGO_ESTALE, raygo_release(o, N, &err));   /* the others went all the same */
  IS(RAYGO_ESTALE, raygo_retain(o, 1, &err));
  SAYS(RAYGO_ESTALE, "Object 0 of 2", raygo_get(rt, o, 2, 0, NONE, b, &err));
}

static void identity(raygo_runtime rt) {
  raygo_object o = put_text(rt, "me"), again;
  uint8_t id[28];
  OK(raygo_object_id(o, id, &err));
  OK(raygo_object_from_id(rt, id, &again, &err));
  CHECK(again.h != o.h);
  OK(raygo_release(&o, 1, &err));
  expect(rt, again, RAYGO_BYTES, "me", 2);
  id[9] ^= 1;
  SAYS(RAYGO_ESTALE, "another session", raygo_object_from_id(rt, id, &o, &err));
  SAYS(RAYGO_EINVAL, "NULL", raygo_object_from_id(rt, NULL, &o, &err));
  OK(raygo_release(&again, 1, &err));
}

/* 10,000 small and 1,000 large ones come and go, and the store is as it was. */
static void no_leaks(raygo_runtime rt) {
  static uint8_t data[100000];
  int64_t before = store_bytes(rt);
  raygo_object o[100];
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < 100; i++) OK(raygo_put(rt, RAYGO_BYTES, raygo_bytes(data, (size_t)i * 10), FOREVER, NONE, &o[i], &err));
    OK(raygo_release(o, 100, &err));
    for (int i = 0; i < 10; i++) OK(raygo_put(rt, RAYGO_BYTES, raygo_bytes(data, sizeof data), FOREVER, NONE, &o[i], &err));
    OK(raygo_release(o, 10, &err));
  }
  int64_t until = now_ns() + 10 * RAYGO_SECOND, used;
  while ((used = store_bytes(rt)) != before && now_ns() < until) usleep(2000);
  if (used != before) fprintf(stderr, "the store holds %lld bytes, %lld before\n", (long long)used, (long long)before);
  CHECK(used == before);
}

static void *retain_and_release(void *arg) {
  raygo_object *o = arg;
  for (int i = 0; i < 5000; i++) {
    if (raygo_retain(o, 1, NULL) == RAYGO_OK) raygo_release(o, 1, NULL);
    uint8_t id[28];
    raygo_object_id(*o, id, NULL);
  }
  return NULL;
}

static void shared_handles(raygo_runtime rt) {
  for (int round = 0; round < 5; round++) {
    raygo_object o = put_text(rt, "shared");
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, retain_and_release, &o);
    raygo_object mine = o;
    OK(raygo_release(&mine, 1, &err));   /* in the middle of it: the rest is refused */
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    IS(RAYGO_ESTALE, raygo_retain(&o, 1, &err));
  }
}

void test_objects(raygo_runtime rt) {
  int64_t before = store_bytes(rt);
  put_and_get(rt);
  in_steps(rt);
  many(rt);
  identity(rt);
  shared_handles(rt);
  no_leaks(rt);
  CHECK(store_bytes(rt) <= before);
}

void test_queue(raygo_runtime rt) {
  raygo_object there = put_text(rt, "there");
  int32_t ready;
  uint64_t tags[4];
  size_t n;
  int fd;
  OK(raygo_cq_fd(rt, &fd, &err));
  OK(raygo_cq_watch(rt, there, 1, &ready, &err));
  CHECK(ready == 1);
  OK(raygo_cq_poll(rt, tags, 4, &n, &err));
  CHECK(n == 0);
  SAYS(RAYGO_EINVAL, "`tag`", raygo_cq_watch(rt, there, 0, &ready, &err));
  SAYS(RAYGO_EINVAL, "`ready`", raygo_cq_watch(rt, there, 1, NULL, &err));
  SAYS(RAYGO_EINVAL, "`fd`", raygo_cq_fd(rt, NULL, &err));
  SAYS(RAYGO_EINVAL, "`n`", raygo_cq_poll(rt, tags, 1, NULL, &err));
  OK(raygo_release(&there, 1, &err));

  /* Served below by this very thread, so that the order is certain. */
  raygo_template t;
  raygo_object later;
  raygo_task task;
  raygo_result value = {raygo_str("\x01"), RAYGO_MSGPACK, 0};
  OK(raygo_serve(rt, raygo_str("queue"), 1, FOREVER, NONE, &err));
  OK(raygo_template_new(rt, RAYGO_NAMED, raygo_str("queue"), NULL, &t, &err));
  OK(raygo_submit(rt, t, NULL, &later, &err));
  OK(raygo_cq_watch(rt, later, 42, &ready, &err));
  CHECK(!ready);
  struct pollfd p = {fd, POLLIN, 0};
  CHECK(poll(&p, 1, 0) == 0);
  OK(raygo_task_next(rt, 10 * RAYGO_SECOND, NONE, &task, NULL, &err));
  OK(raygo_task_reply(task, &value, 1, FOREVER, NONE, &err));
  CHECK(poll(&p, 1, 10000) == 1);
  OK(raygo_cq_poll(rt, tags, 4, &n, &err));
  CHECK(n == 1 && tags[0] == 42);
  CHECK(poll(&p, 1, 0) == 0);
  OK(raygo_release(&later, 1, &err));

  /* What waits for a served function keeps its place when the function is served anew, now two at a time. */
  raygo_object both[2];
  raygo_task second;
  for (int i = 0; i < 2; i++) OK(raygo_submit(rt, t, NULL, &both[i], &err));
  OK(raygo_task_next(rt, 10 * RAYGO_SECOND, NONE, &task, NULL, &err));
  IS(RAYGO_ETIMEDOUT, raygo_task_next(rt, 20 * MS, NONE, &second, NULL, &err));
  OK(raygo_serve(rt, raygo_str("queue"), 2, FOREVER, NONE, &err));
  OK(raygo_task_next(rt, 10 * RAYGO_SECOND, NONE, &second, NULL, &err));
  OK(raygo_task_reply(second, &value, 1, FOREVER, NONE, &err));
  OK(raygo_task_reply(task, &value, 1, FOREVER, NONE, &err));
  OK(raygo_wait(rt, both, 2, 2, 10 * RAYGO_SECOND, NONE, NULL, NULL, &err));
  OK(raygo_release(both, 2, &err));
  OK(raygo_template_release(t, &err));
  OK(raygo_unserve(rt, raygo_str("queue"), FOREVER, NONE, &err));
}
