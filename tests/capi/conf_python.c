/* Python functions and actors, called with plain values.  Only what Python's own library has is used, so that nothing needs to be importable. */
#include "check.h"

#define CALL 60 * RAYGO_SECOND, NONE

static raygo_args pack(raygo_mp *w, int64_t a, int64_t b) {
  raygo_mp_free(w);
  raygo_mp_array(w, 2);
  raygo_mp_int(w, a);
  raygo_mp_int(w, b);
  return (raygo_args){raygo_mp_view(w), NULL, 0};
}

static raygo_args pack_str(raygo_mp *w, const char *text) {
  raygo_mp_free(w);
  raygo_mp_array(w, 1);
  raygo_mp_str(w, text);
  return (raygo_args){raygo_mp_view(w), NULL, 0};
}

static int64_t take_int(raygo_buf *b) {
  raygo_mp_reader r = raygo_mp_read(b->data, b->len);
  raygo_mp_value v;
  CHECK(b->format == RAYGO_MSGPACK && raygo_mp_next(&r, &v) && v.type == RAYGO_MP_INT);
  raygo_buf_release(b);
  return v.i;
}

static void functions(raygo_runtime rt) {
  raygo_mp w = RAYGO_MP_INIT;
  raygo_buf b;
  raygo_args a = pack(&w, 40, 2);
  OK(raygo_call(rt, raygo_str("operator:add"), &a, CALL, &b, &err));
  CHECK(take_int(&b) == 42);
  a = pack(&w, 1, 0);
  IS(RAYGO_ETASK, raygo_call(rt, raygo_str("operator:truediv"), &a, CALL, &b, &err));
  CHECK(strstr(err.message, "ZeroDivisionError") && strstr(err.message, "division by zero"));
  raygo_error_clear(&err);
  IS(RAYGO_ETASK, raygo_call(rt, raygo_str("no_such_module:f"), NULL, CALL, &b, &err));
  CHECK(strstr(err.message, "no_such_module"));
  raygo_error_clear(&err);

  /* Each plain kind there and back. */
  raygo_mp_free(&w);
  raygo_mp_array(&w, 1);
  size_t from = w.n;
  raygo_mp_array(&w, 9);
  raygo_mp_nil(&w);
  raygo_mp_bool(&w, 0);
  raygo_mp_int(&w, INT64_MIN);
  raygo_mp_uint(&w, UINT64_MAX);
  raygo_mp_float(&w, 0.1);
  raygo_mp_str(&w, "grüße");
  raygo_mp_bin(&w, raygo_bytes("\0\xff", 2));
  raygo_mp_array(&w, 0);
  raygo_mp_map(&w, 1);
  raygo_mp_str(&w, "k");
  raygo_mp_array(&w, 1);
  raygo_mp_int(&w, 1);
  a = (raygo_args){raygo_mp_view(&w), NULL, 0};
  OK(raygo_call(rt, raygo_str("copy:copy"), &a, CALL, &b, &err));
  CHECK(b.format == RAYGO_MSGPACK && b.len == w.n - from && !memcmp(b.data, w.p + from, b.len));
  raygo_buf_release(&b);

  /* Bytes stay bytes, also large ones, and references are resolved. */
  static uint8_t data[300000];
  memset(data, 5, sizeof data);
  raygo_object o;
  OK(raygo_put(rt, RAYGO_BYTES, raygo_bytes(data, sizeof data), FOREVER, NONE, &o, &err));
  raygo_mp_free(&w);
  raygo_mp_array(&w, 2);
  raygo_mp_ref(&w, 0);
  raygo_mp_ref(&w, 0);
  a = (raygo_args){raygo_mp_view(&w), &o, 1};
  OK(raygo_call(rt, raygo_str("operator:concat"), &a, CALL, &b, &err));
  if (b.format == RAYGO_MSGPACK) {
    raygo_mp_reader r = raygo_mp_read(b.data, b.len);
    raygo_mp_value v;
    CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_BIN && v.s.len == 2 * sizeof data);
  } else {
    CHECK(b.format == RAYGO_BYTES && b.len == 2 * sizeof data && b.data[b.len - 1] == 5);
  }
  raygo_buf_release(&b);
  OK(raygo_release(&o, 1, &err));
  raygo_mp_free(&w);
}

static void batches(raygo_runtime rt) {
  enum { N = 300 };
  raygo_template t;
  raygo_template_options options = raygo_template_options_init();
  raygo_object o[N];
  raygo_args a[N];
  raygo_mp w[N];
  raygo_buf b[N];
  memset(w, 0, sizeof w);
  options.num_cpus = 0.5;
  OK(raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("operator:mul"), &options, &t, &err));
  for (int i = 0; i < N; i++) a[i] = pack(&w[i], i, 3);
  OK(raygo_submit_batch(rt, t, a, N, o, NULL, &err));
  OK(raygo_get(rt, o, N, CALL, b, &err));
  for (int i = 0; i < N; i++) {
    CHECK(take_int(&b[i]) == 3 * i);
    raygo_mp_free(&w[i]);
  }
  OK(raygo_release(o, N, &err));
  OK(raygo_template_release(t, &err));
}

/* Two values, and none. */
static void returns(raygo_runtime rt) {
  raygo_template_options o = raygo_template_options_init();
  raygo_template t;
  raygo_object out[2];
  raygo_buf b[2];
  raygo_mp w = RAYGO_MP_INIT;
  raygo_args a = pack(&w, 17, 5);
  o.num_returns = 2;
  OK(raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("builtins:divmod"), &o, &t, &err));
  OK(raygo_submit(rt, t, &a, out, &err));
  OK(raygo_get(rt, out, 2, CALL, b, &err));
  CHECK(take_int(&b[0]) == 3 && take_int(&b[1]) == 2);
  OK(raygo_release(out, 2, &err));
  OK(raygo_template_release(t, &err));
  o.num_returns = 3;
  OK(raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("builtins:divmod"), &o, &t, &err));
  raygo_object three[3];
  OK(raygo_submit(rt, t, &a, three, &err));
  SAYS(RAYGO_ETASK, "num_returns=3", raygo_get(rt, &three[2], 1, CALL, b, &err));
  OK(raygo_release(three, 3, &err));
  OK(raygo_template_release(t, &err));
  o.num_returns = UINT32_MAX;
  OK(raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("builtins:divmod"), &o, &t, &err));
  OK(raygo_submit(rt, t, &a, NULL, &err));
  OK(raygo_template_release(t, &err));
  raygo_mp_free(&w);
}

static void actors(raygo_runtime rt) {
  raygo_template_options o = raygo_template_options_init();
  raygo_template cls, append, popleft, length;
  raygo_actor actor, found, second;
  raygo_object out[3];
  raygo_buf b[3];
  raygo_mp w = RAYGO_MP_INIT;
  uint8_t id[16], same[16];
  o.actor_name = raygo_str("queue");
  OK(raygo_template_new(rt, RAYGO_ACTOR, raygo_str("collections:deque"), &o, &cls, &err));
  OK(raygo_template_new(rt, RAYGO_METHOD, raygo_str("append"), NULL, &append, &err));
  OK(raygo_template_new(rt, RAYGO_METHOD, raygo_str("popleft"), NULL, &popleft, &err));
  OK(raygo_template_new(rt, RAYGO_METHOD, raygo_str("__len__"), NULL, &length, &err));
  SAYS(RAYGO_EINVAL, "raygo_actor_new", raygo_submit(rt, cls, NULL, out, &err));
  SAYS(RAYGO_ENOTFOUND, "queue", raygo_actor_lookup(rt, raygo_str("queue"), raygo_bytes(NULL, 0), CALL, &found, &err));
  OK(raygo_actor_new(rt, cls, NULL, CALL, &actor, &err));
  SAYS(RAYGO_EEXISTS, "queue", raygo_actor_new(rt, cls, NULL, CALL, &second, &err));
  raygo_args a = pack_str(&w, "first");
  OK(raygo_actor_call(rt, actor, append, &a, &out[0], &err));
  OK(raygo_actor_call(rt, actor, length, NULL, &out[1], &err));
  OK(raygo_actor_call(rt, actor, popleft, NULL, &out[2], &err));
  OK(raygo_get(rt, out, 3, CALL, b, &err));
  CHECK(take_int(&b[1]) == 1);
  CHECK(b[2].len == 6 && !memcmp(b[2].data, "\xa5" "first", 6));
  raygo_buf_release(&b[0]);
  raygo_buf_release(&b[2]);
  OK(raygo_release(out, 3, &err));

  OK(raygo_actor_lookup(rt, raygo_str("queue"), raygo_bytes(NULL, 0), CALL, &found, &err));
  OK(raygo_actor_id(actor, id, &err));
  OK(raygo_actor_id(found, same, &err));
  CHECK(!memcmp(id, same, 16));
  OK(raygo_actor_call(rt, found, popleft, NULL, &out[0], &err));
  IS(RAYGO_ETASK, raygo_get(rt, out, 1, CALL, b, &err));
  CHECK(strstr(err.message, "IndexError"));
  raygo_error_clear(&err);
  OK(raygo_release(out, 1, &err));

  OK(raygo_actor_kill(rt, found, 1, &err));
  OK(raygo_actor_call(rt, actor, length, NULL, &out[0], &err));
  IS(RAYGO_EACTORDIED, raygo_get(rt, out, 1, CALL, b, &err));
  OK(raygo_release(out, 1, &err));
  IS(RAYGO_ENOTFOUND, raygo_actor_lookup(rt, raygo_str("queue"), raygo_bytes(NULL, 0), CALL, &second, &err));
  OK(raygo_actor_release(actor, &err));
  OK(raygo_actor_release(found, &err));
  IS(RAYGO_ESTALE, raygo_actor_release(found, &err));
  OK(raygo_actor_new(rt, cls, NULL, CALL, &actor, &err));   /* the name is free again */
  OK(raygo_actor_release(actor, &err));
  raygo_template all[] = {cls, append, popleft, length};
  for (int i = 0; i < 4; i++) OK(raygo_template_release(all[i], &err));
  raygo_mp_free(&w);
}

static void logs(raygo_runtime rt) {
  raygo_mp w = RAYGO_MP_INIT;
  raygo_buf b;
  raygo_mp_value v;
  raygo_args a = pack_str(&w, "a line from a worker");
  OK(raygo_call(rt, raygo_str("builtins:print"), &a, CALL, &b, &err));
  CHECK(b.format == RAYGO_NONE || (b.len == 1 && b.data[0] == 0xc0));
  raygo_buf_release(&b);
  bool seen = false;
  int64_t until = now_ns() + 20 * RAYGO_SECOND;
  while (!seen && now_ns() < until && !raygo_log_next(rt, RAYGO_SECOND, NONE, &b, &err)) {
    seen = raygo_mp_find(raygo_bytes(b.data, b.len), "text", &v) && v.s.len >= 20 && memmem(v.s.data, v.s.len, "a line from a worker", 20);
    raygo_buf_release(&b);
  }
  CHECK(seen);
  raygo_mp_free(&w);
}

void test_python(raygo_runtime rt) {
  functions(rt);
  batches(rt);
  returns(rt);
  actors(rt);
  logs(rt);
}
