/* Key-value store, cluster state, placement, metrics. */
#include "check.h"

#define ASK 10 * RAYGO_SECOND, NONE

static void kv(raygo_runtime rt) {
  raygo_view ns = raygo_str("conf"), key = raygo_bytes("k\0ey", 4);
  int32_t flag;
  uint64_t count;
  raygo_buf b;
  raygo_mp_value v;
  OK(raygo_kv_exists(rt, ns, key, ASK, &flag, &err));
  CHECK(!flag);
  SAYS(RAYGO_ENOTFOUND, "conf", raygo_kv_get(rt, ns, key, ASK, &b, &err));
  OK(raygo_kv_put(rt, ns, key, raygo_str("one"), 0, ASK, &flag, &err));
  CHECK(flag);
  OK(raygo_kv_put(rt, ns, key, raygo_str("two"), 0, ASK, &flag, &err));
  CHECK(!flag);
  OK(raygo_kv_get(rt, ns, key, ASK, &b, &err));
  CHECK(b.format == RAYGO_BYTES && b.len == 3 && !memcmp(b.data, "one", 3));
  raygo_buf_release(&b);
  OK(raygo_kv_put(rt, ns, key, raygo_str("two"), 1, ASK, NULL, &err));
  OK(raygo_kv_get(rt, ns, key, ASK, &b, &err));
  CHECK(b.len == 3 && !memcmp(b.data, "two", 3));
  raygo_buf_release(&b);
  OK(raygo_kv_put(rt, ns, raygo_str("other"), raygo_bytes(NULL, 0), 1, ASK, NULL, &err));
  OK(raygo_kv_get(rt, ns, raygo_str("other"), ASK, &b, &err));
  CHECK(b.len == 0);
  raygo_buf_release(&b);
  OK(raygo_kv_keys(rt, ns, raygo_str("k"), ASK, &b, &err));
  raygo_mp_reader r = raygo_mp_read(b.data, b.len);
  CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_ARRAY && v.n == 1 && raygo_mp_next(&r, &v) && v.s.len == 4 && !memcmp(v.s.data, "k\0ey", 4));
  raygo_buf_release(&b);
  OK(raygo_kv_exists(rt, ns, key, ASK, &flag, &err));
  CHECK(flag);
  OK(raygo_kv_del(rt, ns, raygo_bytes(NULL, 0), 1, ASK, &count, &err));
  CHECK(count == 2);
  OK(raygo_kv_del(rt, ns, key, 0, ASK, &count, &err));
  CHECK(!count);
  SAYS(RAYGO_EINVAL, "`out`", raygo_kv_get(rt, ns, key, ASK, NULL, &err));
  SAYS(RAYGO_EINVAL, "`exists`", raygo_kv_exists(rt, ns, key, ASK, NULL, &err));
}

static void cluster(raygo_runtime rt) {
  raygo_buf b;
  raygo_mp_value v;
  OK(raygo_info(rt, &b, &err));
  raygo_view m = raygo_bytes(b.data, b.len);
  CHECK(raygo_mp_find(m, "namespace", &v) && v.s.len == 11 && !memcmp(v.s.data, "conformance", 11));
  CHECK(raygo_mp_find(m, "version", &v) && v.s.len == strlen(raygo_version()));
  CHECK(raygo_mp_find(m, "node_id", &v) && v.s.len == 56);
  raygo_buf_release(&b);
  SAYS(RAYGO_EINVAL, "`out`", raygo_info(rt, NULL, &err));
  OK(raygo_resources(rt, 0, ASK, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(b.data, b.len), "CPU", &v) && (int)(v.f + 0.5) == 2);
  raygo_buf_release(&b);
  OK(raygo_resources(rt, 1, ASK, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(b.data, b.len), "CPU", &v) && (int)(v.f + 0.5) == 2);
  raygo_buf_release(&b);
  OK(raygo_query(rt, raygo_str("nodes"), raygo_bytes(NULL, 0), ASK, &b, &err));
  raygo_mp_reader r = raygo_mp_read(b.data, b.len);
  CHECK(raygo_mp_next(&r, &v) && v.type == RAYGO_MP_ARRAY && v.n == 1);
  raygo_buf_release(&b);
  SAYS(RAYGO_EINVAL, "no.such.method", raygo_query(rt, raygo_str("no.such.method"), raygo_bytes(NULL, 0), ASK, &b, &err));
  SAYS(RAYGO_EINVAL, "msgpack", raygo_query(rt, raygo_str("nodes"), raygo_str("\x92\x01"), ASK, &b, &err));
  SAYS(RAYGO_EINVAL, "empty", raygo_query(rt, raygo_str(""), raygo_bytes(NULL, 0), ASK, &b, &err));
}

static void placement(raygo_runtime rt) {
  raygo_placement_options o = raygo_placement_options_init();
  raygo_mp w = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint64_t group;
  raygo_object placed;
  raygo_buf b;
  SAYS(RAYGO_EINVAL, "bundles", raygo_placement_new(rt, &o, ASK, &group, &placed, &err));
  raygo_mp_array(&w, 2);
  for (int i = 0; i < 2; i++) {
    raygo_mp_map(&w, 1);
    raygo_mp_str(&w, "CPU");
    raygo_mp_float(&w, 0.5);
  }
  o.bundles = raygo_mp_view(&w);
  OK(raygo_placement_new(rt, &o, ASK, &group, &placed, &err));
  CHECK(group && placed.h);
  OK(raygo_get(rt, &placed, 1, 10 * RAYGO_SECOND, NONE, &b, &err));
  raygo_buf_release(&b);
  OK(raygo_resources(rt, 1, ASK, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(b.data, b.len), "CPU", &v) && (int)(v.f + 0.5) == 1);
  raygo_buf_release(&b);
  OK(raygo_placement_remove(rt, group, ASK, &err));
  OK(raygo_resources(rt, 1, ASK, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(b.data, b.len), "CPU", &v) && (int)(v.f + 0.5) == 2);
  raygo_buf_release(&b);
  OK(raygo_release(&placed, 1, &err));
  SAYS(RAYGO_EINVAL, "`group`", raygo_placement_new(rt, &o, ASK, NULL, NULL, &err));
  SAYS(RAYGO_EINVAL, "NULL", raygo_placement_new(rt, NULL, ASK, &group, NULL, &err));
  raygo_mp_free(&w);
}

static void metrics(raygo_runtime rt) {
  raygo_mp tags = RAYGO_MP_INIT;
  raygo_view nothing = raygo_bytes(NULL, 0);
  raygo_buf b;
  raygo_mp_map(&tags, 1);
  raygo_mp_str(&tags, "where");
  raygo_mp_str(&tags, "here");
  OK(raygo_metric_record(rt, RAYGO_COUNTER, raygo_str("conf_calls"), raygo_str("Calls made."), raygo_mp_view(&tags), nothing, 2, ASK, &err));
  OK(raygo_metric_record(rt, RAYGO_COUNTER, raygo_str("conf_calls"), raygo_str("Calls made."), raygo_mp_view(&tags), nothing, 3, ASK, &err));
  OK(raygo_metrics_text(rt, ASK, &b, &err));
  char *text = strndup((const char *)b.data, b.len);
  CHECK(strstr(text, "conf_calls") && strstr(text, "where=\"here\"") && strstr(text, "} 5"));
  free(text);
  raygo_buf_release(&b);
  SAYS(RAYGO_EINVAL, "type", raygo_metric_record(rt, 7, raygo_str("x"), nothing, nothing, nothing, 1, ASK, &err));
  SAYS(RAYGO_EINVAL, "tags", raygo_metric_record(rt, RAYGO_GAUGE, raygo_str("x"), nothing, raygo_str("\x90"), nothing, 1, ASK, &err));
  SAYS(RAYGO_EINVAL, "name", raygo_metric_record(rt, RAYGO_GAUGE, nothing, nothing, nothing, nothing, 1, ASK, &err));
  raygo_mp_free(&tags);
}

void test_state(raygo_runtime rt) {
  kv(rt);
  cluster(rt);
  placement(rt);
  metrics(rt);
}
