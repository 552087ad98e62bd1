/* Serving functions and calling them through the engine, and waits that end early. */
#include "check.h"

/* ---- a server: "echo" answers with its arguments, "sum" adds numbers and the bytes of references, "fail" fails, "big" answers with
 * shared memory, "two" with two values, "vast" with more than a frame takes, "slow" when it is told to */

static struct { raygo_runtime rt; raygo_token stop; pthread_t thread[2]; _Atomic int served, hold; } server;

static void answer(raygo_task task, uint32_t format, const void *data, size_t len) {
  raygo_result v = {raygo_bytes(data, len), format, 0};
  raygo_status r = raygo_task_reply(task, &v, 1, 10 * RAYGO_SECOND, NONE, NULL);
  if (r) fprintf(stderr, "reply: %s\n", raygo_status_name(r));
}

static void sum(raygo_task task, const raygo_task_info *info) {
  raygo_mp_reader r = raygo_mp_read(info->args.data, info->args.len);
  raygo_mp_value v;
  int64_t total = 0;
  raygo_mp_next(&r, &v);
  for (uint32_t left = v.n; left && raygo_mp_next(&r, &v); left--) {
    if (v.type == RAYGO_MP_INT) total += v.i;
    if (v.type == RAYGO_MP_EXT && v.ext == 1) {
      raygo_buf b;
      if (raygo_task_arg(task, (uint32_t)v.i, &b, NULL)) total = -1000000;
      for (size_t i = 0; i < b.len; i++) total += b.data[i];
      raygo_buf_release(&b);
    }
  }
  raygo_mp w = RAYGO_MP_INIT;
  raygo_mp_int(&w, total);
  answer(task, RAYGO_MSGPACK, w.p, w.n);
  raygo_mp_free(&w);
}

#define VAST 4200   /* values that travel inside the frame, one but the first; together more than 256 MiB */

static void run(raygo_task task, const raygo_task_info *info) {
  static uint8_t big[2 << 20];
  raygo_error mine = RAYGO_ERROR_INIT;
  const char *name = info->name.data;
  if (!strcmp(name, "echo")) {
    answer(task, RAYGO_MSGPACK, info->args.data, info->args.len);
  } else if (!strcmp(name, "sum")) {
    sum(task, info);
  } else if (!strcmp(name, "fail")) {
    if (raygo_task_fail(task, raygo_str("TypeError"), raygo_str("no such luck"), &mine)) fprintf(stderr, "fail: %s\n", mine.message);
    if (raygo_task_fail(task, raygo_str("TypeError"), raygo_str("again"), NULL) != RAYGO_ESTALE) abort();
  } else if (!strcmp(name, "big")) {
    memset(big, 'b', sizeof big);
    answer(task, RAYGO_BYTES, big, sizeof big);
  } else if (!strcmp(name, "two")) {
    raygo_result v[2] = {{raygo_str("\x01"), RAYGO_MSGPACK, 0}, {raygo_str("second"), RAYGO_BYTES, 0}};
    if (raygo_task_reply(task, v, 1, 0, NONE, &mine) != RAYGO_EINVAL || !strstr(mine.message, "expects 2 values")) abort();   /* still to be answered */
    v[0].format = 99;
    if (raygo_task_reply(task, v, 2, 0, NONE, NULL) != RAYGO_EINVAL) abort();
    v[0].format = RAYGO_MSGPACK;
    if (raygo_task_reply(task, v, 2, RAYGO_SECOND, NONE, NULL) || raygo_task_reply(task, v, 2, 0, NONE, NULL) != RAYGO_ESTALE) abort();
  } else if (!strcmp(name, "vast")) {
    raygo_result *v = calloc(VAST, sizeof *v);
    for (int i = 0; i < VAST; i++) v[i] = (raygo_result){raygo_bytes(big, i ? 65000 : sizeof big), RAYGO_BYTES, 0};
    if (raygo_task_reply(task, v, VAST, 10 * RAYGO_SECOND, NONE, &mine) != RAYGO_EINVAL) abort();
    if (raygo_task_fail(task, raygo_str("ValueError"), raygo_str("too much"), NULL)) abort();   /* still to be answered */
    free(v);
  } else {
    int32_t cancelled = 0;
    struct timespec ms = {0, 1000000};
    while (atomic_load(&server.hold) && !cancelled && raygo_task_cancelled(task, &cancelled, NULL) == RAYGO_OK) nanosleep(&ms, NULL);
    if (cancelled) raygo_task_fail(task, raygo_str(""), raygo_str(""), NULL);
    else answer(task, RAYGO_MSGPACK, "\xc3", 1);
  }
  raygo_error_clear(&mine);
}

static void *serve(void *arg) {
  (void)arg;
  raygo_task task;
  raygo_task_info info = RAYGO_TASK_INFO_INIT;
  raygo_status r;
  while (!(r = raygo_task_next(server.rt, FOREVER, server.stop, &task, &info, NULL))) {
    atomic_fetch_add(&server.served, 1);
    run(task, &info);
  }
  return (void *)(intptr_t)r;
}

static const char *const names[] = {"echo", "sum", "fail", "big", "two", "vast", "slow"};

static void start(raygo_runtime rt) {
  server.rt = rt;
  atomic_store(&server.hold, 1);
  OK(raygo_token_new(&server.stop, &err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) OK(raygo_serve(rt, raygo_str(names[i]), 2, 10 * RAYGO_SECOND, NONE, &err));
  for (int i = 0; i < 2; i++) pthread_create(&server.thread[i], NULL, serve, NULL);
}

static void stop(raygo_runtime rt) {
  OK(raygo_token_fire(server.stop, &err));
  for (int i = 0; i < 2; i++) {
    void *r;
    pthread_join(server.thread[i], &r);
    CHECK((intptr_t)r == RAYGO_EINTERRUPTED);
  }
  OK(raygo_token_release(server.stop, &err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) OK(raygo_unserve(rt, raygo_str(names[i]), 10 * RAYGO_SECOND, NONE, &err));
}

/* ---- calls */

static void values(raygo_runtime rt) {
  raygo_mp w = RAYGO_MP_INIT;
  raygo_buf b;
  raygo_args a = {{NULL, 0}, NULL, 0};
  OK(raygo_call(rt, raygo_str("echo"), NULL, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.format == RAYGO_MSGPACK && b.len == 1 && b.data[0] == 0x90);
  raygo_buf_release(&b);
  raygo_mp_array(&w, 8);
  raygo_mp_nil(&w);
  raygo_mp_bool(&w, 1);
  raygo_mp_int(&w, INT64_MIN);
  raygo_mp_float(&w, 2.5);
  raygo_mp_str(&w, "grüße");
  raygo_mp_bin(&w, raygo_bytes("\0\xff", 2));
  raygo_mp_array(&w, 1);
  raygo_mp_int(&w, 1);
  raygo_mp_map(&w, 1);
  raygo_mp_str(&w, "k");
  raygo_mp_nil(&w);
  a.packed = raygo_mp_view(&w);
  OK(raygo_call(rt, raygo_str("echo"), &a, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.len == w.n && !memcmp(b.data, w.p, w.n));
  raygo_buf_release(&b);
  raygo_mp_free(&w);

  raygo_object refs[2] = {put_text(rt, "\x01\x02"), put_text(rt, "\x0a")};
  raygo_mp_array(&w, 3);
  raygo_mp_ref(&w, 1);
  raygo_mp_int(&w, 100);
  raygo_mp_ref(&w, 0);
  a = (raygo_args){raygo_mp_view(&w), refs, 2};
  OK(raygo_call(rt, raygo_str("sum"), &a, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.len == 1 && b.data[0] == 113);
  raygo_buf_release(&b);
  a.nrefs = 1;   /* a reference without its object */
  SAYS(RAYGO_EINVAL, "extension type 1", raygo_call(rt, raygo_str("sum"), &a, 0, NONE, &b, &err));
  a = (raygo_args){raygo_str("\x01"), NULL, 0};
  SAYS(RAYGO_EINVAL, "msgpack array", raygo_call(rt, raygo_str("sum"), &a, 0, NONE, &b, &err));
  a = (raygo_args){raygo_str("\x92\x01"), NULL, 0};
  SAYS(RAYGO_EINVAL, "msgpack array", raygo_call(rt, raygo_str("sum"), &a, 0, NONE, &b, &err));
  OK(raygo_release(refs, 2, &err));
  a = (raygo_args){raygo_mp_view(&w), refs, 2};
  SAYS(RAYGO_ESTALE, "Object 0 of 2", raygo_call(rt, raygo_str("sum"), &a, 0, NONE, &b, &err));
  raygo_mp_free(&w);

  OK(raygo_call(rt, raygo_str("big"), NULL, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.format == RAYGO_BYTES && b.len == 2 << 20 && b.data[0] == 'b' && b.data[b.len - 1] == 'b');
  raygo_buf_release(&b);
}

static void failures(raygo_runtime rt) {
  raygo_buf b;
  raygo_mp_value v;
  SAYS(RAYGO_ETASK, "TypeError: no such luck", raygo_call(rt, raygo_str("fail"), NULL, 10 * RAYGO_SECOND, NONE, &b, &err));
  IS(RAYGO_ETASK, raygo_call(rt, raygo_str("fail"), NULL, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(err.detail.data, err.detail.len), "type", &v) && v.s.len == 9 && !memcmp(v.s.data, "TypeError", 9));
  raygo_error_clear(&err);
  SAYS(RAYGO_ENOTFOUND, "nobody", raygo_call(rt, raygo_str("nobody"), NULL, 10 * RAYGO_SECOND, NONE, &b, &err));
  SAYS(RAYGO_EINVAL, "no name", raygo_call(rt, raygo_str(""), NULL, 0, NONE, &b, &err));
  SAYS(RAYGO_EINVAL, "module:qualname", raygo_call(rt, raygo_str(":x"), NULL, 0, NONE, &b, &err));
  SAYS(RAYGO_EINVAL, "`out`", raygo_call(rt, raygo_str("echo"), NULL, 0, NONE, NULL, &err));
  SAYS(RAYGO_EINVAL, "colon", raygo_serve(rt, raygo_str("a:b"), 1, 0, NONE, &err));
  SAYS(RAYGO_EINVAL, "no name", raygo_serve(rt, raygo_str(""), 1, 0, NONE, &err));

  /* An error among the arguments is the task's error. */
  raygo_template fails, sums;
  raygo_object bad, out;
  raygo_mp w = RAYGO_MP_INIT;
  OK(raygo_template_new(rt, RAYGO_NAMED, raygo_str("fail"), NULL, &fails, &err));
  OK(raygo_template_new(rt, RAYGO_NAMED, raygo_str("sum"), NULL, &sums, &err));
  OK(raygo_submit(rt, fails, NULL, &bad, &err));
  raygo_mp_array(&w, 1);
  raygo_mp_ref(&w, 0);
  raygo_args a = {raygo_mp_view(&w), &bad, 1};
  OK(raygo_submit(rt, sums, &a, &out, &err));
  SAYS(RAYGO_ETASK, "no such luck", raygo_get(rt, &out, 1, 10 * RAYGO_SECOND, NONE, &b, &err));
  OK(raygo_release(&bad, 1, &err));
  OK(raygo_release(&out, 1, &err));
  OK(raygo_template_release(fails, &err));
  OK(raygo_template_release(sums, &err));
  raygo_mp_free(&w);
}

static void templates(raygo_runtime rt) {
  raygo_template_options o = raygo_template_options_init();
  raygo_template t, wrong;
  raygo_object two[2], many[20];
  raygo_buf b[2];
  size_t done;
  o.num_returns = 2;
  o.name = raygo_str("pair");
  OK(raygo_template_new(rt, RAYGO_NAMED, raygo_str("two"), &o, &t, &err));
  OK(raygo_submit(rt, t, NULL, two, &err));
  OK(raygo_get(rt, two, 2, 10 * RAYGO_SECOND, NONE, b, &err));
  CHECK(b[0].data[0] == 1 && b[1].len == 6 && b[1].format == RAYGO_BYTES);
  raygo_buf_release(&b[0]);
  raygo_buf_release(&b[1]);
  OK(raygo_release(two, 2, &err));
  raygo_args none[10];
  memset(none, 0, sizeof none);
  OK(raygo_submit_batch(rt, t, none, 10, many, &done, &err));
  CHECK(done == 10);
  OK(raygo_wait(rt, many, 20, 20, 10 * RAYGO_SECOND, NONE, NULL, NULL, &err));
  OK(raygo_release(many, 20, &err));
  none[7].packed = raygo_str("\xc0");
  IS(RAYGO_EINVAL, raygo_submit_batch(rt, t, none, 10, many, &done, &err));
  CHECK(done == 7 && many[13].h && !many[14].h && !many[19].h);
  OK(raygo_release(many, 14, &err));
  SAYS(RAYGO_EINVAL, "`returns`", raygo_submit(rt, t, NULL, NULL, &err));
  SAYS(RAYGO_EINVAL, "`args`", raygo_submit_batch(rt, t, NULL, 1, many, &done, &err));

  SAYS(RAYGO_EINVAL, "no kind", raygo_template_new(rt, 9, raygo_str("a:b"), NULL, &wrong, &err));
  SAYS(RAYGO_EINVAL, "module:qualname", raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("plain"), NULL, &wrong, &err));
  SAYS(RAYGO_EINVAL, "colon", raygo_template_new(rt, RAYGO_NAMED, raygo_str("a:b"), NULL, &wrong, &err));
  SAYS(RAYGO_EINVAL, "`out`", raygo_template_new(rt, RAYGO_NAMED, raygo_str("b"), NULL, NULL, &err));
  o = raygo_template_options_init();
  o.resources = raygo_str("\x81\xa1x\xff");
  SAYS(RAYGO_EINVAL, "resources", raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("a:b"), &o, &wrong, &err));
  o = raygo_template_options_init();
  o.extra = raygo_str("\x01");
  SAYS(RAYGO_EINVAL, "extra", raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("a:b"), &o, &wrong, &err));
  o = raygo_template_options_init();
  o.detached = 1;
  SAYS(RAYGO_EINVAL, "RAYGO_ACTOR", raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("a:b"), &o, &wrong, &err));
  o.struct_size = 4;
  SAYS(RAYGO_EINVAL, "struct_size", raygo_template_new(rt, RAYGO_ACTOR, raygo_str("a:b"), &o, &wrong, &err));
  raygo_actor actor;
  SAYS(RAYGO_EINVAL, "RAYGO_ACTOR", raygo_actor_new(rt, t, NULL, 0, NONE, &actor, &err));
  OK(raygo_template_release(t, &err));
  IS(RAYGO_ESTALE, raygo_template_release(t, &err));
  IS(RAYGO_ESTALE, raygo_submit(rt, t, NULL, two, &err));
  OK(raygo_template_new(rt, RAYGO_METHOD, raygo_str("append"), NULL, &t, &err));
  SAYS(RAYGO_EINVAL, "raygo_actor_call", raygo_submit(rt, t, NULL, two, &err));
  IS(RAYGO_ESTALE, raygo_actor_call(rt, actor, t, NULL, two, &err));
  OK(raygo_template_release(t, &err));
}

/* A value in shared memory whose frame cannot be sent is taken back. */
static void vast(raygo_runtime rt) {
  raygo_template_options o = raygo_template_options_init();
  raygo_template t;
  raygo_object *out = calloc(VAST, sizeof *out);
  raygo_buf b;
  int64_t before = store_bytes(rt);
  o.num_returns = VAST;
  OK(raygo_template_new(rt, RAYGO_NAMED, raygo_str("vast"), &o, &t, &err));
  OK(raygo_submit(rt, t, NULL, out, &err));
  SAYS(RAYGO_ETASK, "ValueError: too much", raygo_get(rt, out, 1, 60 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(store_bytes(rt) == before);
  OK(raygo_release(out, VAST, &err));
  OK(raygo_template_release(t, &err));
  free(out);
}

/* Many callers at once, on many threads. */
static void *caller(void *arg) {
  raygo_runtime *rt = arg;
  for (int i = 0; i < 100; i++) {
    raygo_mp w = RAYGO_MP_INIT;
    raygo_buf b;
    raygo_mp_array(&w, 2);
    raygo_mp_int(&w, i);
    raygo_mp_int(&w, 20);
    raygo_args a = {raygo_mp_view(&w), NULL, 0};
    raygo_status r = raygo_call(*rt, raygo_str("sum"), &a, 20 * RAYGO_SECOND, NONE, &b, NULL);
    raygo_mp_value v;
    raygo_mp_reader reader = raygo_mp_read(b.data, b.len);
    if (r || !raygo_mp_next(&reader, &v) || v.i != i + 20) return (void *)1;
    raygo_buf_release(&b);
    raygo_mp_free(&w);
  }
  return NULL;
}

void test_serve(raygo_runtime rt) {
  start(rt);
  values(rt);
  failures(rt);
  templates(rt);
  vast(rt);
  pthread_t t[4];
  for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, caller, &rt);
  for (int i = 0; i < 4; i++) {
    void *failed;
    pthread_join(t[i], &failed);
    CHECK(!failed);
  }
  CHECK(atomic_load(&server.served) > 400);
  stop(rt);
}

/* ---- timeouts, tokens, cancelling */

static void *fire_later(void *arg) {
  struct timespec t = {0, 50 * 1000000};
  nanosleep(&t, NULL);
  raygo_token_fire(*(raygo_token *)arg, NULL);
  return NULL;
}

#define INTERRUPTED(call) \
  do { \
    raygo_token token; \
    pthread_t thread; \
    int64_t from = now_ns(); \
    OK(raygo_token_new(&token, &err)); \
    pthread_create(&thread, NULL, fire_later, &token); \
    IS(RAYGO_EINTERRUPTED, call); \
    CHECK(now_ns() - from < 2 * RAYGO_SECOND); \
    IS(RAYGO_EINTERRUPTED, call); \
    pthread_join(thread, NULL); \
    OK(raygo_token_release(token, &err)); \
  } while (0)

void test_waits(raygo_runtime rt) {
  raygo_template t;
  raygo_object o[2];
  raygo_buf b;
  raygo_task task;
  uint8_t ready[2];
  size_t n;
  start(rt);
  OK(raygo_template_new(rt, RAYGO_NAMED, raygo_str("slow"), NULL, &t, &err));
  OK(raygo_submit(rt, t, NULL, &o[0], &err));
  o[1] = put_text(rt, "x");

  int64_t from = now_ns();
  SAYS(RAYGO_ETIMEDOUT, "1 of 1 objects", raygo_get(rt, o, 1, 30 * MS, NONE, &b, &err));
  CHECK(now_ns() - from >= 30 * MS && !b.data);
  IS(RAYGO_ETIMEDOUT, raygo_get(rt, o, 1, 0, NONE, &b, &err));
  CHECK(err.retryable);
  IS(RAYGO_ETIMEDOUT, raygo_wait(rt, o, 2, 2, 30 * MS, NONE, ready, &n, &err));
  CHECK(n == 1 && !ready[0] && ready[1]);
  OK(raygo_wait(rt, o, 2, 1, FOREVER, NONE, ready, &n, &err));
  CHECK(n == 1);
  INTERRUPTED(raygo_get(rt, o, 1, FOREVER, token, &b, &err));
  INTERRUPTED(raygo_wait(rt, o, 2, 2, FOREVER, token, ready, &n, &err));
  INTERRUPTED(raygo_call(rt, raygo_str("slow"), NULL, FOREVER, token, &b, &err));
  raygo_token bad = {12345};
  SAYS(RAYGO_ESTALE, "token", raygo_get(rt, o, 1, 0, bad, &b, &err));
  IS(RAYGO_ETIMEDOUT, raygo_call(rt, raygo_str("slow"), NULL, 30 * MS, NONE, &b, &err));

  OK(raygo_cancel(rt, o[0], RAYGO_CANCEL_RECURSIVE, &err));
  IS(RAYGO_ECANCELED, raygo_get(rt, o, 1, 10 * RAYGO_SECOND, NONE, &b, &err));
  OK(raygo_cancel(rt, o[1], 0, &err));   /* a put is not a task */
  SAYS(RAYGO_EINVAL, "flags", raygo_cancel(rt, o[0], 64, &err));
  OK(raygo_release(o, 2, &err));
  atomic_store(&server.hold, 0);
  OK(raygo_call(rt, raygo_str("slow"), NULL, 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(b.len == 1 && b.data[0] == 0xc3);
  raygo_buf_release(&b);
  OK(raygo_template_release(t, &err));
  stop(rt);

  IS(RAYGO_ETIMEDOUT, raygo_task_next(rt, 20 * MS, NONE, &task, NULL, &err));
  IS(RAYGO_ETIMEDOUT, raygo_task_next(rt, 0, NONE, &task, NULL, &err));
  INTERRUPTED(raygo_task_next(rt, FOREVER, token, &task, NULL, &err));
  raygo_status r;
  while (!(r = raygo_log_next(rt, 20 * MS, NONE, &b, &err))) raygo_buf_release(&b);   /* what the engine had to say so far */
  CHECK(r == RAYGO_ETIMEDOUT);
  INTERRUPTED(raygo_log_next(rt, FOREVER, token, &b, &err));
}
