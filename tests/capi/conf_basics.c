/* Versions, errors, buffers, tokens, handles that are none, options, and msgpack. */
#include <math.h>
#include "check.h"

static void versions(void) {
  CHECK(raygo_version() && strchr(raygo_version(), '.'));
  CHECK(raygo_abi_version() == RAYGO_ABI_VERSION);
  CHECK(!strcmp(raygo_status_name(RAYGO_OK), "OK") && !strcmp(raygo_status_name(RAYGO_ETIMEDOUT), "ETIMEDOUT"));
  CHECK(!strcmp(raygo_status_name(-1), "UNKNOWN") && raygo_status_text(1 << 20) && strstr(raygo_status_text(RAYGO_ETIMEDOUT), "deadline"));
}

static void errors(void) {
  raygo_error mine = RAYGO_ERROR_INIT, tiny = RAYGO_ERROR_INIT;
  raygo_token t = {77};
  CHECK(raygo_token_fire(t, NULL) == RAYGO_ESTALE);
  CHECK(raygo_token_fire(t, &mine) == RAYGO_ESTALE && mine.code == RAYGO_ESTALE && !mine.retryable && strstr(mine.message, "token"));
  CHECK(raygo_token_new(NULL, &mine) == RAYGO_EINVAL && strstr(mine.message, "`out`"));   /* replaces the first, without a leak */
  raygo_error_clear(&mine);
  CHECK(!mine.message && !mine.code && !mine.detail.data);
  raygo_error_clear(&mine);
  raygo_error_clear(NULL);
  tiny.struct_size = 8;   /* of a caller that never set it up: not touched */
  CHECK(raygo_token_fire(t, &tiny) == RAYGO_ESTALE && !tiny.message);
  raygo_buf none = RAYGO_BUF_INIT;
  raygo_buf_release(&none);
  raygo_buf_release(NULL);
}

static void tokens(void) {
  raygo_token t, again;
  OK(raygo_token_new(&t, &err));
  OK(raygo_token_fire(t, &err));
  OK(raygo_token_fire(t, &err));
  OK(raygo_token_release(t, &err));
  IS(RAYGO_ESTALE, raygo_token_release(t, &err));
  IS(RAYGO_ESTALE, raygo_token_fire(t, &err));
  OK(raygo_token_new(&again, &err));
  CHECK(again.h != t.h);                     /* the same place in the table, another generation */
  IS(RAYGO_ESTALE, raygo_token_fire(t, &err));
  OK(raygo_token_release(again, &err));
}

/* Every function refuses what is no handle. */
static void stale(void) {
  static const uint64_t bad[] = {0, 1, UINT64_MAX, (uint64_t)1 << 32, (uint64_t)7 << 32 | 5000000, 0x123456789abcdef0u};
  raygo_view v = raygo_str("x");
  raygo_buf b;
  uint8_t id[28] = {0}, flag;
  size_t n;
  int fd;
  int32_t i32;
  uint64_t u;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    raygo_runtime rt = {bad[i]};
    raygo_object o = {bad[i]}, out;
    raygo_template t = {bad[i]}, tout;
    raygo_actor a = {bad[i]}, aout;
    raygo_task k = {bad[i]}, kout;
    raygo_task_info info = RAYGO_TASK_INFO_INIT;
    raygo_placement_options po = raygo_placement_options_init();
    void *p;
    IS(RAYGO_ESTALE, raygo_shutdown(rt, 0, &err));
    IS(RAYGO_ESTALE, raygo_runtime_release(rt, &err));
    IS(RAYGO_ESTALE, raygo_info(rt, &b, &err));
    IS(RAYGO_ESTALE, raygo_put(rt, RAYGO_BYTES, v, 0, NONE, &out, &err));
    IS(RAYGO_ESTALE, raygo_create(rt, RAYGO_BYTES, 1, 0, NONE, &out, &p, &err));
    IS(RAYGO_ESTALE, raygo_seal(o, &err));
    IS(RAYGO_ESTALE, raygo_abort(o, &err));
    IS(RAYGO_ESTALE, raygo_get(rt, &o, 1, 0, NONE, &b, &err));
    IS(RAYGO_ESTALE, raygo_wait(rt, &o, 1, 1, 0, NONE, &flag, &n, &err));
    IS(RAYGO_ESTALE, raygo_retain(&o, 1, &err));
    IS(RAYGO_ESTALE, raygo_release(&o, 1, &err));
    IS(RAYGO_ESTALE, raygo_object_id(o, id, &err));
    IS(RAYGO_ESTALE, raygo_object_from_id(rt, id, &out, &err));
    IS(RAYGO_ESTALE, raygo_template_new(rt, RAYGO_FUNCTION, raygo_str("a:b"), NULL, &tout, &err));
    IS(RAYGO_ESTALE, raygo_template_release(t, &err));
    IS(RAYGO_ESTALE, raygo_submit(rt, t, NULL, &out, &err));
    IS(RAYGO_ESTALE, raygo_submit_batch(rt, t, NULL, 0, &out, &n, &err));
    IS(RAYGO_ESTALE, raygo_cancel(rt, o, 0, &err));
    IS(RAYGO_ESTALE, raygo_call(rt, v, NULL, 0, NONE, &b, &err));
    IS(RAYGO_ESTALE, raygo_actor_new(rt, t, NULL, 0, NONE, &aout, &err));
    IS(RAYGO_ESTALE, raygo_actor_call(rt, a, t, NULL, &out, &err));
    IS(RAYGO_ESTALE, raygo_actor_kill(rt, a, 1, &err));
    IS(RAYGO_ESTALE, raygo_actor_lookup(rt, v, v, 0, NONE, &aout, &err));
    IS(RAYGO_ESTALE, raygo_actor_id(a, id, &err));
    IS(RAYGO_ESTALE, raygo_actor_release(a, &err));
    IS(RAYGO_ESTALE, raygo_cq_fd(rt, &fd, &err));
    IS(RAYGO_ESTALE, raygo_cq_watch(rt, o, 1, &i32, &err));
    IS(RAYGO_ESTALE, raygo_cq_poll(rt, &u, 1, &n, &err));
    IS(RAYGO_ESTALE, raygo_serve(rt, v, 1, 0, NONE, &err));
    IS(RAYGO_ESTALE, raygo_unserve(rt, v, 0, NONE, &err));
    IS(RAYGO_ESTALE, raygo_task_next(rt, 0, NONE, &kout, &info, &err));
    IS(RAYGO_ESTALE, raygo_task_arg(k, 0, &b, &err));
    IS(RAYGO_ESTALE, raygo_task_cancelled(k, &i32, &err));
    IS(RAYGO_ESTALE, raygo_task_reply(k, NULL, 0, 0, NONE, &err));
    IS(RAYGO_ESTALE, raygo_task_fail(k, v, v, &err));
    IS(RAYGO_ESTALE, raygo_kv_put(rt, v, v, v, 1, 0, NONE, &i32, &err));
    IS(RAYGO_ESTALE, raygo_kv_get(rt, v, v, 0, NONE, &b, &err));
    IS(RAYGO_ESTALE, raygo_kv_del(rt, v, v, 0, 0, NONE, &u, &err));
    IS(RAYGO_ESTALE, raygo_kv_exists(rt, v, v, 0, NONE, &i32, &err));
    IS(RAYGO_ESTALE, raygo_kv_keys(rt, v, v, 0, NONE, &b, &err));
    IS(RAYGO_ESTALE, raygo_query(rt, v, raygo_bytes(NULL, 0), 0, NONE, &b, &err));
    IS(RAYGO_ESTALE, raygo_resources(rt, 0, 0, NONE, &b, &err));
    IS(RAYGO_ESTALE, raygo_placement_new(rt, &po, 0, NONE, &u, &out, &err));
    IS(RAYGO_ESTALE, raygo_placement_remove(rt, 1, 0, NONE, &err));
    IS(RAYGO_ESTALE, raygo_metric_record(rt, RAYGO_GAUGE, v, v, raygo_bytes(NULL, 0), raygo_bytes(NULL, 0), 1, 0, NONE, &err));
    IS(RAYGO_ESTALE, raygo_metrics_text(rt, 0, NONE, &b, &err));
    IS(RAYGO_ESTALE, raygo_log_next(rt, 0, NONE, &b, &err));
    CHECK(!out.h && !tout.h && !aout.h && !kout.h && !b.data && !n && !u);
  }
}

static void options(void) {
  struct { raygo_options o; uint64_t later; } big = {raygo_options_init(), 0};
  raygo_options o = raygo_options_init();
  raygo_runtime rt;
  SAYS(RAYGO_EINVAL, "`out`", raygo_start(NULL, NULL, &err));
  o.struct_size = 8;
  SAYS(RAYGO_EINVAL, "raygo_options_init", raygo_start(&o, &rt, &err));
  big.o.struct_size = sizeof big;
  big.later = 1;   /* a field of a later version, in use */
  SAYS(RAYGO_EINVAL, "does not know", raygo_start(&big.o, &rt, &err));
  o = raygo_options_init();
  o.sys_path = raygo_str("\x81");
  SAYS(RAYGO_EINVAL, "sys_path", raygo_start(&o, &rt, &err));
  o = raygo_options_init();
  o.resources = raygo_str("\x90");
  SAYS(RAYGO_EINVAL, "resources", raygo_start(&o, &rt, &err));
  CHECK(!rt.h);
  SAYS(RAYGO_ENOTFOUND, "/nonexistent/socket", raygo_connect(raygo_str("/nonexistent/socket"), NULL, &rt, &err));
  SAYS(RAYGO_ENOTFOUND, "session.json", raygo_connect(raygo_str("/"), NULL, &rt, &err));
}

static void msgpack(void) {
  static const int64_t ints[] = {0, 1, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296, INT64_MAX, -1, -32, -33, -128, -129, -32768, -32769,
                                 INT32_MIN, (int64_t)INT32_MIN - 1, INT64_MIN};
  static const size_t lengths[] = {0, 1, 31, 32, 255, 256, 65535, 65536};
  enum { NINTS = sizeof ints / sizeof *ints, NLENGTHS = sizeof lengths / sizeof *lengths };
  static char text[65536];
  raygo_mp w = RAYGO_MP_INIT;
  raygo_mp_value v;
  memset(text, 'x', sizeof text);
  raygo_mp_nil(&w);
  raygo_mp_bool(&w, 1);
  raygo_mp_float(&w, -0.5);
  raygo_mp_uint(&w, UINT64_MAX);
  raygo_mp_ref(&w, 0x01020304);
  for (size_t i = 0; i < NINTS; i++) raygo_mp_int(&w, ints[i]);
  for (size_t i = 0; i < NLENGTHS; i++) {
    raygo_mp_text(&w, raygo_bytes(text, lengths[i]));
    raygo_mp_bin(&w, raygo_bytes(text, lengths[i]));
    raygo_mp_array(&w, (uint32_t)lengths[i]);
    raygo_mp_map(&w, (uint32_t)lengths[i]);
  }
  raygo_mp_reader r = raygo_mp_read(w.p, w.n);
  CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_NIL);
  CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_BOOL && v.i == 1);
  CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_FLOAT && fabs(v.f + 0.5) < 1e-9);
  CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_UINT && v.u == UINT64_MAX);
  CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_EXT && v.ext == 1 && v.i == 0x01020304);
  for (size_t i = 0; i < NINTS; i++) CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_INT && v.i == ints[i]);
  for (size_t i = 0; i < NLENGTHS; i++) {
    CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_STR && v.s.len == lengths[i]);
    CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_BIN && v.s.len == lengths[i]);
    CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_ARRAY && v.n == lengths[i]);
    CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_MAP && v.n == lengths[i]);
  }
  CHECK(!raygo_mp_next(&r, &v) && !r.failed);
  /* Every shorter piece ends in an orderly way. */
  for (size_t n = 0; n < 300 && n < w.n; n++) {
    uint8_t *piece = malloc(n + 1);
    memcpy(piece, w.p, n);
    r = raygo_mp_read(piece, n);
    while (raygo_mp_next(&r, &v)) {
    }
    CHECK(!raygo_mp_find(raygo_bytes(piece, n), "key", &v));
    free(piece);
  }
  raygo_mp_free(&w);
  raygo_mp_map(&w, 3);
  raygo_mp_str(&w, "list");
  raygo_mp_array(&w, 2);
  raygo_mp_map(&w, 1);
  raygo_mp_str(&w, "key");
  raygo_mp_int(&w, 1);
  raygo_mp_nil(&w);
  raygo_mp_int(&w, 5);
  raygo_mp_int(&w, 6);
  raygo_mp_str(&w, "key");
  raygo_mp_int(&w, 7);
  CHECK(raygo_mp_find(raygo_mp_view(&w), "key", &v) && v.i == 7);
  CHECK(raygo_mp_find(raygo_mp_view(&w), "list", &v) && v.type == RAYGO_MP_ARRAY && v.n == 2);
  CHECK(!raygo_mp_find(raygo_mp_view(&w), "ke", &v));
  r = raygo_mp_read(w.p, w.n);
  CHECK(raygo_mp_skip(&r) && r.p == r.end && !raygo_mp_skip(&r));
  raygo_mp_free(&w);
}

void test_basics(void) {
  versions();
  errors();
  tokens();
  stale();
  options();
  msgpack();
}
