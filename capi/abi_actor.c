/* raygo.h: actors, from the side that calls. */
#include "abi_int.h"

static raygo_status actor_handle(struct rga_rt *rt, uint64_t number, raygo_actor *out, raygo_error *err) {
  rg_slot *s = rg_slot_ref(rt->c, (struct rg_oid){number, 0, 0});
  if (s) rg_refs_flush(rt->c);
  if (s && (out->h = rga_new(RGA_ACTOR, s, rt))) return RAYGO_OK;
  if (s) rg_slot_decref(rt->c, s);
  return rga_code(err, RAYGO_ENOMEM, "A handle for the actor could not be made");
}

/* Reserves the template's name for this number.  *taken: the number of the actor that has it, 0: none. */
static raygo_status reserve(struct rga_rt *rt, const struct rga_template *t, uint64_t number, const struct rga_wait *w, uint64_t *taken, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  size_t len;
  *taken = 0;
  raygo_mp_map(&q, 3);
  rga_key_view(&q, "name", t->actor_name);
  rga_key_view(&q, "namespace", t->name_space);
  rga_key_uint(&q, "actor", number);
  raygo_status r = q.failed ? rga_code(err, RAYGO_ENOMEM, "actor.reserve") : rga_ask(rt, "actor.reserve", raygo_mp_view(&q), w, &reply, &len, err);
  raygo_mp_free(&q);
  if (r) return r;
  if (raygo_mp_find(raygo_bytes(reply, len), "exists", &v) && v.type == RAYGO_MP_BOOL && v.i && raygo_mp_find(raygo_bytes(reply, len), "actor",
      &v)) *taken = rga_uint(&v);
  free(reply);
  if (!*taken || t->get_if_exists) return RAYGO_OK;
  return rga_fail(err, RAYGO_EEXISTS,
                  "There is an actor named \"%.*s\" already in the name space \"%.*s\": choose another name, or set get_if_exists.", (int)t->actor_name.len,
                  (const char *)t->actor_name.data, (int)t->name_space.len, (const char *)t->name_space.data);
}

raygo_status raygo_actor_new(raygo_runtime h, raygo_template tmpl, const raygo_args *args, int64_t timeout_ns, raygo_token token, raygo_actor *out,
                             raygo_error *err) {
  struct rga_call k;
  struct rga_wait w;
  uint64_t number, taken = 0;
  rg_slot *slot;
  if (out) out->h = 0;
  raygo_status r = rga_call_begin(&k, h, tmpl, err);
  if (r) return r;
  struct rga_rt *rt = k.rt->rt;
  if (!out) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_new: `out` is NULL.");
  else if (k.t->kind != RAYGO_ACTOR) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_new: the template is not of kind RAYGO_ACTOR.");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  r = rga_number(rt, &w, &number, err);
  if (!r && k.t->actor_name.len) r = reserve(rt, k.t, number, &w, &taken, err);
  if (!r && taken) r = actor_handle(rt, taken, out, err);
  else if (!r && !(r = rga_submit(rt, number, RG_F_ACTOR_CREATE, k.t->number, 0, 0, args, &slot, err)) && !(out->h = rga_new(RGA_ACTOR, slot, rt))) {
    rg_slot_decref(rt->c, slot);
    r = rga_code(err, RAYGO_ENOMEM, "A handle for the actor could not be made");
  }
  rga_wait_end(&w);
done:
  rga_call_end(&k);
  return r;
}

static raygo_status use_actor(struct rga_rt *rt, raygo_actor actor, struct rga_entry **e, raygo_error *err) {
  *e = rga_use(actor.h, RGA_ACTOR);
  if (!*e) return rga_stale(err, "actor");
  if ((*e)->rt == rt) return RAYGO_OK;
  rga_unuse(*e);
  return rga_fail(err, RAYGO_EINVAL, "The actor belongs to another runtime.");
}

raygo_status raygo_actor_call(raygo_runtime h, raygo_actor actor, raygo_template method, const raygo_args *args, raygo_object *returns, raygo_error *err) {
  struct rga_call k;
  struct rga_entry *a;
  raygo_status r = rga_call_begin(&k, h, method, err);
  if (r) return r;
  if (k.t->kind != RAYGO_METHOD) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_call: the template is not of kind RAYGO_METHOD.");
  if (!r && !(r = rga_need_returns(&k, returns, err)) && !(r = use_actor(k.rt->rt, actor, &a, err))) {
    r = rga_submit_one(&k, ((rg_slot *)a->ptr)->oid.task, args, returns, err);
    rga_unuse(a);
  }
  rga_call_end(&k);
  return r;
}

raygo_status raygo_actor_kill(raygo_runtime h, raygo_actor actor, int32_t no_restart, raygo_error *err) {
  struct rga_entry *e, *a;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!(r = use_actor(e->rt, actor, &a, err))) {
    int k = rg_kill(e->rt->c, ((rg_slot *)a->ptr)->oid.task, no_restart);
    if (k) r = rga_code(err, k, "The actor was not killed");
    rga_unuse(a);
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_actor_lookup(raygo_runtime h, raygo_view name, raygo_view name_space, int64_t timeout_ns, raygo_token token, raygo_actor *out,
                                raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  raygo_mp q = RAYGO_MP_INIT;
  raygo_mp_value v;
  uint8_t *reply;
  size_t len;
  if (out) out->h = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!out || !name.len) r = rga_fail(err, RAYGO_EINVAL, "raygo_actor_lookup: %s.", out ? "the name is empty" : "`out` is NULL");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  raygo_mp_map(&q, 2);
  rga_key_view(&q, "name", name);
  rga_key_view(&q, "namespace", name_space.len ? name_space : raygo_str(e->rt->name_space));
  r = q.failed ? rga_code(err, RAYGO_ENOMEM, "actor.lookup") : rga_ask(e->rt, "actor.lookup", raygo_mp_view(&q), &w, &reply, &len, err);
  if (!r) {
    if (raygo_mp_find(raygo_bytes(reply, len), "actor", &v) && rga_uint(&v)) r = actor_handle(e->rt, rga_uint(&v), out, err);
    else r = rga_fail(err, RAYGO_ENOTFOUND, "There is no living actor named \"%.*s\".", (int)name.len, (const char *)name.data);
    free(reply);
  }
  raygo_mp_free(&q);
  rga_wait_end(&w);
done:
  rga_unuse(e);
  return r;
}

raygo_status raygo_actor_id(raygo_actor actor, uint8_t id[16], raygo_error *err) {
  RGA_ENTER(err);
  RGA_NEED(err, id, "raygo_actor_id: `id` is NULL.");
  memset(id, 0, 16);
  struct rga_entry *a = rga_use(actor.h, RGA_ACTOR);
  if (!a) return rga_stale(err, "actor");
  uint64_t number = ((rg_slot *)a->ptr)->oid.task;
  uint32_t low = (uint32_t)a->rt->incarnation, job = a->rt->job;
  for (int i = 0; i < 8; i++) id[i] = (uint8_t)(number >> (8 * i));
  for (int i = 0; i < 4; i++) {
    id[8 + i] = (uint8_t)(low >> (8 * i));
    id[12 + i] = (uint8_t)(job >> (8 * i));
  }
  rga_unuse(a);
  return RAYGO_OK;
}

raygo_status raygo_actor_release(raygo_actor actor, raygo_error *err) { return rga_release(actor.h, RGA_ACTOR, "actor", err); }
