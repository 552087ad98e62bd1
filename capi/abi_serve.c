/* raygo.h: functions that this process serves. */
#include "abi_int.h"

/* A question whose answer does not matter. */
static raygo_status tell(raygo_runtime h, const char *method, raygo_mp *argument, int64_t timeout_ns, raygo_token token, raygo_error *err) {
  raygo_buf ignored;
  if (argument->failed) return rga_code(err, RAYGO_ENOMEM, method);
  raygo_status r = raygo_query(h, raygo_str(method), raygo_mp_view(argument), timeout_ns, token, &ignored, err);
  raygo_buf_release(&ignored);
  return r;
}

raygo_status raygo_serve(raygo_runtime h, raygo_view name, uint32_t concurrency, int64_t timeout_ns, raygo_token token, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  RGA_ENTER(err);
  RGA_NEED(err, name.len && name.data, "raygo_serve: the function has no name.");
  if (memchr(name.data, ':', name.len))
    return rga_fail(err, RAYGO_EINVAL, "\"%.*s\" cannot be served: a name with a colon is a Python function's.", (int)name.len, (const char *)name.data);
  raygo_mp_map(&q, 2);
  rga_key_view(&q, "name", name);
  rga_key_uint(&q, "concurrency", concurrency ? concurrency : 1);
  raygo_status r = tell(h, "serve.register", &q, timeout_ns, token, err);
  raygo_mp_free(&q);
  return r;
}

raygo_status raygo_unserve(raygo_runtime h, raygo_view name, int64_t timeout_ns, raygo_token token, raygo_error *err) {
  raygo_mp q = RAYGO_MP_INIT;
  RGA_ENTER(err);
  RGA_NEED(err, name.len && name.data, "raygo_unserve: the function has no name.");
  raygo_mp_map(&q, 1);
  rga_key_view(&q, "name", name);
  raygo_status r = tell(h, "serve.unregister", &q, timeout_ns, token, err);
  raygo_mp_free(&q);
  return r;
}

/* ------------------------------------------------------------------------------------------------ taking tasks */

static struct rga_def *def_of(struct rga_rt *rt, uint64_t number) {
  pthread_mutex_lock(&rt->mu);
  struct rga_def *d = rt->defs;
  while (d && d->number != number) d = d->next;
  pthread_mutex_unlock(&rt->mu);
  return d;
}

/* An error of another language travels as the engine's own do: as a map that everybody can read. */
static int answer_error(rg_client *c, const rg_task *t, const char *name, int64_t began, raygo_view type, raygo_view message) {
  raygo_mp text = RAYGO_MP_INIT, w = RAYGO_MP_INIT;
  raygo_mp_raw(&text, type.data, type.len);
  if (type.len) raygo_mp_raw(&text, ": ", 2);
  raygo_mp_raw(&text, message.data, message.len);
  raygo_mp_map(&w, 4);
  rga_key_uint(&w, "code", RAYGO_ETASK);
  rga_key_view(&w, "type", type);
  rga_key_view(&w, "message", raygo_mp_view(&text));
  rga_key_view(&w, "task_name", raygo_str(name));
  struct rg_out v = {.index = 1, .kind = RG_V_SYSERR, .is_error = 1, .data = w.p, .len = w.n};
  int r = w.failed || text.failed ? RAYGO_ENOMEM : rg_result(c, t->id, t->x.attempt, RG_R_ERROR, (uint64_t)(rga_now() - began), &v, 1, 0);
  raygo_mp_free(&text);
  raygo_mp_free(&w);
  return r;
}

void rga_task_ended(struct rga_task *t) {
  pthread_mutex_lock(&t->rt->mu);
  if (t->prev) t->prev->next = t->next;
  else t->rt->running = t->next;
  if (t->next) t->next->prev = t->prev;
  pthread_mutex_unlock(&t->rt->mu);
  rg_task_free(t->rt->c, t->t);
  free(t);
}

/* Takes over the client's task; what cannot be served is answered here. */
static raygo_status begin(struct rga_rt *rt, rg_task *x, raygo_task *out, struct rga_task **made, raygo_error *err) {
  struct rga_def *d = def_of(rt, x->x.template_no);
  struct rga_task *t = d && d->plain ? calloc(1, sizeof *t) : NULL;
  *made = NULL;
  if (!t) {
    if (!d || d->plain) answer_error(rt->c, x, d ? d->name : "", rga_now(), raygo_str("SystemError"),
                                     raygo_str("the program that serves the function ran out of memory"));
    else
      answer_error(rt->c, x, d->name, rga_now(), raygo_str("TypeError"),
                   raygo_str("the function is served by a program of another language and takes plain values: call it through raygo.cross_language"));
    rg_task_free(rt->c, x);
    return RAYGO_OK;
  }
  t->t = x;
  t->def = d;
  t->rt = rt;
  t->began = rga_now();
  pthread_mutex_lock(&rt->mu);
  t->next = rt->running;
  if (t->next) t->next->prev = t;
  rt->running = t;
  pthread_mutex_unlock(&rt->mu);
  out->h = rga_new(RGA_TASK, t, rt);
  if (!out->h) {
    answer_error(rt->c, x, d->name, t->began, raygo_str("SystemError"), raygo_str("the program that serves the function ran out of memory"));
    rga_task_ended(t);
    return rga_code(err, RAYGO_ENOMEM, "A task came and was refused");
  }
  *made = t;
  return RAYGO_OK;
}

raygo_status raygo_task_next(raygo_runtime h, int64_t timeout_ns, raygo_token token, raygo_task *out, raygo_task_info *info, raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  struct rga_task *t = NULL;
  if (out) out->h = 0;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  struct rga_rt *rt = e->rt;
  if (!out) r = rga_fail(err, RAYGO_EINVAL, "raygo_task_next: `out` is NULL.");
  else if (info && info->struct_size < sizeof *info)
    r = rga_fail(err, RAYGO_EINVAL, "raygo_task_info.struct_size is too small: make it with RAYGO_TASK_INFO_INIT.");
  if (r || (r = rga_wait_begin(&w, timeout_ns, token, err))) goto done;
  while (!r && !t) {
    int k = rga_turn_take(&rt->task_turn, &w);   /* the client lets one thread wait for tasks */
    rg_task *x = NULL;
    if (!k) {
      if (!w.deadline) rg_pump(rt->c);
      do x = rg_task_next(rt->c, w.deadline, w.check, w.arg, &k);
      while (!x && k == RAYGO_EINTERRUPTED && !(w.check && w.check(w.arg)));   /* woken for nothing */
      rga_turn_give(&rt->task_turn);
    }
    if (!x) {
      r = rga_code(err, k, "No task came");
    } else {
      rg_busy(rt->c);
      r = begin(rt, x, out, &t, err);
    }
  }
  if (t && info)
    *info = (raygo_task_info){.struct_size = info->struct_size, .number = t->t->id, .attempt = t->t->x.attempt, .num_returns = t->t->x.nreturns,
                              .nrefs = t->t->x.ntop, .name = {t->def->name, t->def->name_len}, .args = {t->t->args, t->t->x.args_len}};
  rga_wait_end(&w);
done:
  rga_unuse(e);
  return r;
}

static raygo_status use_task(raygo_task task, struct rga_entry **e, struct rga_task **t, raygo_error *err) {
  RGA_ENTER(err);
  *e = rga_use(task.h, RGA_TASK);
  if (!*e) return rga_fail(err, RAYGO_ESTALE, "This task handle is no handle, or its task was answered.");
  *t = (*e)->ptr;
  return RAYGO_OK;
}

raygo_status raygo_task_arg(raygo_task task, uint32_t i, raygo_buf *out, raygo_error *err) {
  struct rga_entry *e;
  struct rga_task *t;
  uint32_t format;
  const uint8_t *body;
  size_t n;
  if (out) memset(out, 0, sizeof *out);
  raygo_status r = use_task(task, &e, &t, err);
  if (r) return r;
  if (!out || i >= t->t->x.ntop) {
    r = out ? rga_fail(err, RAYGO_EINVAL, "raygo_task_arg: the task has %u referenced arguments, number %u is not among them.", t->t->x.ntop, i)
            : rga_fail(err, RAYGO_EINVAL, "raygo_task_arg: `out` is NULL.");
  } else {
    const struct rg_arg *a = &t->t->top[i];
    if (!rga_blob(a->data, (size_t)a->len, &format, &body, &n))
      r = rga_fail(err, RAYGO_EINTERNAL, "Argument %u of task %llx is not whole.", i, (unsigned long long)t->t->id);
    else if (!(a->pin ? rga_buf_pin(out, a->pin, body, n, format) : rga_buf_copy(out, body, n, format)))
      r = rga_code(err, RAYGO_ENOMEM, "The argument could not be handed over");
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_task_cancelled(raygo_task task, int32_t *cancelled, raygo_error *err) {
  struct rga_entry *e;
  struct rga_task *t;
  if (cancelled) *cancelled = 0;
  raygo_status r = use_task(task, &e, &t, err);
  if (r) return r;
  if (!cancelled) r = rga_fail(err, RAYGO_EINVAL, "raygo_task_cancelled: `cancelled` is NULL.");
  else *cancelled = atomic_load(&t->cancelled) != 0;
  rga_unuse(e);
  return r;
}

/* ------------------------------------------------------------------------------------------------ answering */

/* One value as a blob: small ones in memory (*heap to free), large ones in the arena under the result's own number. */
static raygo_status value_out(struct rga_task *t, uint32_t index, const raygo_result *v, const struct rga_wait *w, struct rg_out *o, uint8_t **heap,
                              raygo_error *err) {
  size_t head = rga_head(v->format);
  uint8_t *to;
  *o = (struct rg_out){.index = index, .kind = RG_V_INLINE, .len = head + v->body.len};
  if (o->len > RG_INLINE_MAX) {
    o->kind = RG_V_ARENA;
    raygo_status r = rga_store(t->rt, (struct rg_oid){t->t->id, index, 0}, v->format, v->body.len, v->body.data, w, &to, err);
    if (!r) rg_fill(t->rt->c, to, v->body.data, v->body.len);
    return r;
  }
  *heap = to = malloc(o->len);
  if (!to) return rga_code(err, RAYGO_ENOMEM, "The task was not answered");
  rga_head_write(to, v->format, v->body.data, v->body.len);
  if (v->body.len) memcpy(to + head, v->body.data, v->body.len);
  o->data = to;
  return RAYGO_OK;
}

static raygo_status check_results(const struct rga_task *t, const raygo_result *v, size_t n, raygo_error *err) {
  if (n != t->t->x.nreturns) return rga_fail(err, RAYGO_EINVAL, "The caller of %s expects %u values, not %zu.", t->def->name, t->t->x.nreturns, n);
  if (n && !v) return rga_fail(err, RAYGO_EINVAL, "raygo_task_reply: `values` is NULL.");
  raygo_status r = RAYGO_OK;
  for (size_t i = 0; i < n && !r; i++) r = rga_check_value(v[i].format, v[i].body, err);
  return r;
}

raygo_status raygo_task_reply(raygo_task task, const raygo_result *values, size_t n, int64_t timeout_ns, raygo_token token, raygo_error *err) {
  struct rga_entry *e;
  struct rga_task *t;
  struct rga_wait w;
  raygo_status r = use_task(task, &e, &t, err);
  if (r) return r;
  if (atomic_exchange(&t->answering, 1)) {
    r = rga_fail(err, RAYGO_ESTALE, "The task is being answered by another thread.");
    goto done;
  }
  if ((r = check_results(t, values, n, err)) || (r = rga_wait_begin(&w, timeout_ns, token, err))) {
    atomic_store(&t->answering, 0);
    goto done;
  }
  struct rg_out *o = calloc(n + 1, sizeof *o);
  uint8_t **heap = calloc(n + 1, sizeof *heap);
  size_t i = 0;
  if (!o || !heap) r = rga_code(err, RAYGO_ENOMEM, "The task was not answered");
  for (; i < n && !r; i++) r = value_out(t, (uint32_t)i + 1, &values[i], &w, &o[i], &heap[i], err);
  size_t stored = r && i ? i - 1 : i;
  bool unsent = r;
  if (!r) {
    int k = rg_result(t->rt->c, t->t->id, t->t->x.attempt, RG_R_OK, (uint64_t)(rga_now() - t->began), o, (uint32_t)n, 0);
    if (k) r = rga_code(err, k, "The task's values did not reach the engine");
    unsent = k == RAYGO_EINVAL || k == RAYGO_ENOMEM;   /* too much for a frame, or for the memory; else the engine is gone, and with it all */
    if (!unsent) rga_drop(e);
  }
  if (unsent) {
    for (size_t j = 0; o && j < stored; j++)
      if (o[j].kind == RG_V_ARENA) rg_abort(t->rt->c, (struct rg_oid){t->t->id, (uint32_t)j + 1, 0});
    atomic_store(&t->answering, 0);
  }
  for (size_t j = 0; heap && j < n; j++) free(heap[j]);
  free(o);
  free(heap);
  rga_wait_end(&w);
done:
  rga_unuse(e);
  return r;
}

raygo_status raygo_task_fail(raygo_task task, raygo_view type, raygo_view message, raygo_error *err) {
  struct rga_entry *e;
  struct rga_task *t;
  raygo_status r = use_task(task, &e, &t, err);
  if (r) return r;
  if (atomic_exchange(&t->answering, 1)) {
    r = rga_fail(err, RAYGO_ESTALE, "The task is being answered by another thread.");
  } else {
    rga_drop(e);
    int k = atomic_load(&t->cancelled) ? rg_result(t->rt->c, t->t->id, t->t->x.attempt, RG_R_CANCELED, (uint64_t)(rga_now() - t->began), NULL, 0, 0)
                                       : answer_error(t->rt->c, t->t, t->def->name, t->began, type, message);
    if (k) r = rga_code(err, k, "The task's error did not reach the engine");
  }
  rga_unuse(e);
  return r;
}
