/* raygo.h: questions to the engine: key-value store, cluster state, placement, metrics, logs. */
#include "abi_int.h"

raygo_status rga_ask(struct rga_rt *rt, const char *method, raygo_view argument, const struct rga_wait *w, uint8_t **reply, size_t *len, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  *reply = NULL;
  raygo_mp_array(&q, 2);
  raygo_mp_str(&q, method);
  if (argument.len) raygo_mp_raw(&q, argument.data, argument.len);
  else raygo_mp_nil(&q);
  int r = q.failed ? RAYGO_ENOMEM : rg_call(rt->c, q.p, q.n, rga_left(w), w->check, w->arg, reply, len);
  raygo_mp_free(&q);
  if (!r && !*reply) r = RAYGO_ENOMEM;
  if (!r) return RAYGO_OK;
  rga_said(err, r, method, (const char *)*reply, *reply ? *len : 0);
  free(*reply);
  *reply = NULL;
  return r;
}

raygo_status rga_number(struct rga_rt *rt, const struct rga_wait *w, uint64_t *out, raygo_error *err) {
  raygo_status r = RAYGO_OK;
  if ((*out = rg_next_number(rt->c))) return RAYGO_OK;
  struct rga_wait own = *w;
  if (own.deadline == 0) own.deadline = rga_now() + RAYGO_SECOND;   /* once in four thousand million calls: not a wait in the caller's sense */
  pthread_mutex_lock(&rt->number_mu);
  if (!(*out = rg_next_number(rt->c))) {
    uint8_t *reply;
    size_t len;
    r = rga_ask(rt, "prefix.next", raygo_bytes(NULL, 0), &own, &reply, &len, err);
    if (!r) {
      raygo_mp_reader reader = raygo_mp_read(reply, len);
      raygo_mp_value v;
      if (raygo_mp_next(&reader, &v) && v.type == RAYGO_MP_INT) rg_client_set_prefix(rt->c, (uint32_t)v.i);
      free(reply);
      if (!(*out = rg_next_number(rt->c))) r = rga_fail(err, RAYGO_EINTERNAL, "The engine gave no new numbers for tasks.");
    }
  }
  pthread_mutex_unlock(&rt->number_mu);
  return r;
}

/* One question with its runtime, timeout and token.  The reply is malloc'd. */
static raygo_status question(raygo_runtime h, const char *method, raygo_mp *argument, int64_t timeout_ns, raygo_token token, uint8_t **reply,
                             size_t *len, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  *reply = NULL;
  raygo_status r = rga_use_rt(h, &e, err);
  if (!r) {
    if (argument->failed) r = rga_code(err, RAYGO_ENOMEM, method);
    else r = rga_wait_begin(&w, timeout_ns, token, err);
    if (!r) {
      r = rga_ask(e->rt, method, raygo_mp_view(argument), &w, reply, len, err);
      rga_wait_end(&w);
    }
    rga_unuse(e);
  }
  raygo_mp_free(argument);
  return r;
}

/* As question(); the answer's first value only. */
static raygo_status value(raygo_runtime h, const char *method, raygo_mp *argument, int64_t timeout_ns, raygo_token token, uint8_t **reply,
                          raygo_mp_value *v, raygo_error *err) {
  size_t len;
  raygo_status r = question(h, method, argument, timeout_ns, token, reply, &len, err);
  if (r) return r;
  raygo_mp_reader reader = raygo_mp_read(*reply, len);
  if (raygo_mp_next(&reader, v)) return RAYGO_OK;
  free(*reply);
  *reply = NULL;
  return rga_fail(err, RAYGO_EINTERNAL, "%s: the engine's answer is no msgpack.", method);
}

/* As question(); the answer goes to the caller without the frame's padding. */
static raygo_status answer(raygo_runtime h, const char *method, raygo_mp *argument, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  uint8_t *reply;
  size_t len;
  raygo_status r = question(h, method, argument, timeout_ns, token, &reply, &len, err);
  if (r) return r;
  raygo_mp_reader reader = raygo_mp_read(reply, len);
  if (!raygo_mp_skip(&reader)) {
    free(reply);
    return rga_fail(err, RAYGO_EINTERNAL, "%s: the engine's answer is no msgpack.", method);
  }
  return rga_buf_take(out, reply, (size_t)(reader.p - reply), RAYGO_MSGPACK) ? RAYGO_OK : rga_code(err, RAYGO_ENOMEM, method);
}

static raygo_status no_out(raygo_error *err, const char *function) { return rga_fail(err, RAYGO_EINVAL, "%s: `out` is NULL.", function); }

static bool one(raygo_view v, int type) {   /* exactly one value of this type; type -1: any */
  raygo_mp_reader r = raygo_mp_read(v.data, v.len), s = r;
  raygo_mp_value head;
  return raygo_mp_next(&r, &head) && (type < 0 || head.type == type) && raygo_mp_skip(&s) && s.p == s.end;
}

/* ------------------------------------------------------------------------------------------------ key-value store */

static void kv_argument(raygo_mp *w, uint32_t n, raygo_view ns, const char *key_name, raygo_view key) {
  raygo_mp_map(w, n);
  rga_key_view(w, "ns", ns);
  raygo_mp_str(w, key_name);
  raygo_mp_bin(w, key);
}

raygo_status raygo_kv_put(raygo_runtime rt, raygo_view ns, raygo_view key, raygo_view v, int32_t overwrite, int64_t timeout_ns, raygo_token token,
                          int32_t *added, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value answered;
  uint8_t *reply;
  if (added) *added = 0;
  kv_argument(&q, 4, ns, "key", key);
  raygo_mp_str(&q, "value");
  raygo_mp_bin(&q, v);
  raygo_mp_str(&q, "overwrite");
  raygo_mp_bool(&q, overwrite);
  raygo_status r = value(rt, "kv.put", &q, timeout_ns, token, &reply, &answered, err);
  if (r) return r;
  if (added) *added = answered.i != 0;
  free(reply);
  return RAYGO_OK;
}

raygo_status raygo_kv_get(raygo_runtime rt, raygo_view ns, raygo_view key, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  if (!out) return no_out(err, "raygo_kv_get");
  memset(out, 0, sizeof *out);
  kv_argument(&q, 2, ns, "key", key);
  raygo_status r = value(rt, "kv.get", &q, timeout_ns, token, &reply, &v, err);
  if (r) return r;
  if (v.type == RAYGO_MP_NIL)
    r = rga_fail(err, RAYGO_ENOTFOUND, "There is no key %.*s in the name space \"%.*s\".", (int)(key.len < 100 ? key.len : 100),
                 (const char *)key.data, (int)ns.len,
                 ns.len ? (const char *)ns.data : "");
  else if (!rga_buf_copy(out, v.s.data, v.s.len, RAYGO_BYTES)) r = rga_code(err, RAYGO_ENOMEM, "kv.get");
  free(reply);
  return r;
}

raygo_status raygo_kv_del(raygo_runtime rt, raygo_view ns, raygo_view key, int32_t prefix, int64_t timeout_ns, raygo_token token, uint64_t *deleted,
                          raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  if (deleted) *deleted = 0;
  kv_argument(&q, 3, ns, "key", key);
  raygo_mp_str(&q, "prefix");
  raygo_mp_bool(&q, prefix);
  raygo_status r = value(rt, "kv.del", &q, timeout_ns, token, &reply, &v, err);
  if (r) return r;
  if (deleted) *deleted = (uint64_t)v.i;
  free(reply);
  return RAYGO_OK;
}

raygo_status raygo_kv_exists(raygo_runtime rt, raygo_view ns, raygo_view key, int64_t timeout_ns, raygo_token token, int32_t *exists, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  if (!exists) return rga_fail(err, RAYGO_EINVAL, "raygo_kv_exists: `exists` is NULL.");
  *exists = 0;
  kv_argument(&q, 2, ns, "key", key);
  raygo_status r = value(rt, "kv.exists", &q, timeout_ns, token, &reply, &v, err);
  if (r) return r;
  *exists = v.i != 0;
  free(reply);
  return RAYGO_OK;
}

raygo_status raygo_kv_keys(raygo_runtime rt, raygo_view ns, raygo_view prefix, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  if (!out) return no_out(err, "raygo_kv_keys");
  memset(out, 0, sizeof *out);
  kv_argument(&q, 2, ns, "prefix", prefix);
  return answer(rt, "kv.keys", &q, timeout_ns, token, out, err);
}

/* ------------------------------------------------------------------------------------------------ cluster state */

raygo_status raygo_query(raygo_runtime rt, raygo_view method, raygo_view argument, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  char name[128];
  raygo_mp q = RAYGO_MP_INIT;
  if (!out) return no_out(err, "raygo_query");
  memset(out, 0, sizeof *out);
  RGA_NEED(err, method.len && method.len < sizeof name, "raygo_query: the method's name is empty or longer than 127 bytes.");
  RGA_NEED(err, !argument.len || one(argument, -1), "raygo_query: the argument is not one msgpack value.");
  memcpy(name, method.data, method.len);
  name[method.len] = 0;
  raygo_mp_raw(&q, argument.data, argument.len);
  return answer(rt, name, &q, timeout_ns, token, out, err);
}

raygo_status raygo_resources(raygo_runtime rt, int32_t available, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  if (!out) return no_out(err, "raygo_resources");
  memset(out, 0, sizeof *out);
  return answer(rt, available ? "resources.available" : "resources.total", &q, timeout_ns, token, out, err);
}

/* ------------------------------------------------------------------------------------------------ placement groups */

/* Copies an array of maps str → number with the numbers in the engine's units. */
static bool copy_bundles(raygo_mp *to, raygo_view from) {
  raygo_mp_reader r = raygo_mp_read(from.data, from.len);
  raygo_mp_value list, map, key, v;
  if (!raygo_mp_next(&r, &list) || list.type != RAYGO_MP_ARRAY || !list.n) return false;
  raygo_mp_array(to, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    if (!raygo_mp_next(&r, &map) || map.type != RAYGO_MP_MAP || !map.n) return false;
    raygo_mp_map(to, map.n);
    for (uint32_t k = 0; k < map.n; k++) {
      if (!raygo_mp_next(&r, &key) || key.type != RAYGO_MP_STR || !raygo_mp_next(&r, &v) || (v.type != RAYGO_MP_INT && v.type != RAYGO_MP_FLOAT)) return false;
      if (!(v.f >= 0 && v.f < 9e14)) return false;
      raygo_mp_text(to, key.s);
      raygo_mp_int(to, (int64_t)(v.f * 10000 + 0.5));
    }
  }
  return r.p == r.end;
}

raygo_status raygo_placement_new(raygo_runtime h, const raygo_placement_options *options, int64_t timeout_ns, raygo_token token, uint64_t *group,
                                 raygo_object *placed, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  raygo_placement_options o;
  raygo_mp q = RAYGO_MP_INIT, bundles = RAYGO_MP_INIT;
  uint64_t number = 0;
  if (group) *group = 0;
  if (placed) placed->h = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!group || !options || !rga_options(&o, sizeof o, sizeof o, options))
    r = rga_fail(err, RAYGO_EINVAL, "raygo_placement_new: %s.",
                 group ? "the options are NULL, too small or unknown to this version: make them with raygo_placement_options_init()" : "`group` is NULL");
  else if (!copy_bundles(&bundles, o.bundles))
    r = rga_fail(err, RAYGO_EINVAL, "raygo_placement_new: bundles must be a msgpack array of maps of names to amounts, none of them empty or negative.");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  r = rga_number(e->rt, &w, &number, err);
  if (!r) {
    uint8_t *reply;
    size_t len;
    raygo_mp_map(&q, 5);
    rga_key_uint(&q, "pg", number);
    raygo_mp_str(&q, "bundles");
    raygo_mp_raw(&q, bundles.p, bundles.n);
    rga_key_view(&q, "strategy", o.strategy.len ? o.strategy : raygo_str("PACK"));
    rga_key_view(&q, "name", o.name);
    raygo_mp_str(&q, "detached");
    raygo_mp_bool(&q, o.detached != 0);
    r = q.failed || bundles.failed ? rga_code(err, RAYGO_ENOMEM, "pg.create") : rga_ask(e->rt, "pg.create", raygo_mp_view(&q), &w, &reply, &len, err);
    if (!r) {
      free(reply);
      *group = number;
      if (placed) {
        rg_slot *s = rg_slot_ref(e->rt->c, (struct rg_oid){number, 1, 0});
        r = s ? rga_object_new(e->rt, s, placed, err) : rga_code(err, RAYGO_ENOMEM, "A handle for the placement group could not be made");
      }
    }
  }
  rga_wait_end(&w);
done:
  raygo_mp_free(&q);
  raygo_mp_free(&bundles);
  rga_unuse(e);
  return r;
}

raygo_status raygo_placement_remove(raygo_runtime rt, uint64_t group, int64_t timeout_ns, raygo_token token, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  uint8_t *reply;
  size_t len;
  raygo_mp_map(&q, 1);
  rga_key_uint(&q, "pg", group);
  raygo_status r = question(rt, "pg.remove", &q, timeout_ns, token, &reply, &len, err);
  free(reply);
  return r;
}

/* ------------------------------------------------------------------------------------------------ metrics and logs */

raygo_status raygo_metric_record(raygo_runtime rt, uint32_t type, raygo_view name, raygo_view description, raygo_view tags, raygo_view buckets,
                                 double v, int64_t timeout_ns, raygo_token token, raygo_error *err) {
  static const char *const types[] = {NULL, "counter", "gauge", "histogram"};
  raygo_mp q = RAYGO_MP_INIT;
  uint8_t *reply;
  size_t len;
  RGA_NEED(err, type >= RAYGO_COUNTER && type <= RAYGO_HISTOGRAM, "raygo_metric_record: the type is none of enum raygo_metric_type.");
  RGA_NEED(err, name.len, "raygo_metric_record: the metric has no name.");
  RGA_NEED(err, !tags.len || one(tags, RAYGO_MP_MAP), "raygo_metric_record: tags must be one msgpack map.");
  RGA_NEED(err, !buckets.len || one(buckets, RAYGO_MP_ARRAY), "raygo_metric_record: buckets must be one msgpack array.");
  raygo_mp_array(&q, 1);
  raygo_mp_map(&q, 6);
  rga_key_view(&q, "name", name);
  rga_key_view(&q, "type", raygo_str(types[type]));
  rga_key_view(&q, "description", description);
  raygo_mp_str(&q, "tags");
  if (tags.len) raygo_mp_raw(&q, tags.data, tags.len);
  else raygo_mp_map(&q, 0);
  raygo_mp_str(&q, "value");
  raygo_mp_float(&q, v);
  raygo_mp_str(&q, "buckets");
  if (buckets.len) raygo_mp_raw(&q, buckets.data, buckets.len);
  else raygo_mp_array(&q, 0);
  raygo_status r = question(rt, "metrics.record", &q, timeout_ns, token, &reply, &len, err);
  free(reply);
  return r;
}

raygo_status raygo_metrics_text(raygo_runtime rt, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  if (!out) return no_out(err, "raygo_metrics_text");
  memset(out, 0, sizeof *out);
  raygo_status r = value(rt, "metrics.text", &q, timeout_ns, token, &reply, &v, err);
  if (r) return r;
  if (!rga_buf_copy(out, v.s.data, v.s.len, RAYGO_BYTES)) r = rga_code(err, RAYGO_ENOMEM, "metrics.text");
  free(reply);
  return r;
}

raygo_status raygo_log_next(raygo_runtime h, int64_t timeout_ns, raygo_token token, raygo_buf *out, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  uint8_t *map = NULL;
  size_t len = 0;
  if (out) memset(out, 0, sizeof *out);
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out) r = no_out(err, "raygo_log_next");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  int k = rga_turn_take(&e->rt->log_turn, &w);
  if (!k) {
    if (!w.deadline) rg_pump(e->rt->c);   /* what has arrived counts */
    k = rg_logs(e->rt->c, rga_left(&w), w.check, w.arg, &map, &len);
    rga_turn_give(&e->rt->log_turn);
  }
  if (k) {
    r = rga_code(err, k, "No record came");
  } else {
    raygo_mp_reader reader = raygo_mp_read(map, len);
    if (!raygo_mp_skip(&reader)) {
      free(map);
      r = rga_fail(err, RAYGO_EINTERNAL, "The engine sent a record that is no msgpack map.");
    } else if (!rga_buf_take(out, map, (size_t)(reader.p - map), RAYGO_MSGPACK)) {
      r = rga_code(err, RAYGO_ENOMEM, "The record could not be handed over");
    }
  }
  rga_wait_end(&w);
done:
  rga_unuse(e);
  return r;
}
