/* Task: what the package sees of one RG_EXEC, and answering it. */
#include <stdlib.h>
#include "worker.h"

#define W rb_worker

static PyTypeObject *task_type;

/* ------------------------------------------------------------------------------------------------ answers */

/* Values past the inline limit go to the arena under (task, index), then everything leaves in one frame. */
int rb_send_ser(rg_task *t, uint32_t status, struct rb_ser *sers, uint32_t n, int64_t started, bool more) {
  struct rb_session *ses = W.ses;
  struct rg_out few[4], *out = n <= 4 ? few : calloc(n, sizeof *out);
  uint8_t *few_heap[4] = {NULL}, **heap = n <= 4 ? few_heap : calloc(n, sizeof *heap);
  size_t bytes = 0;
  int r = 0;
  uint32_t done = 0;
  if (!out || !heap) {
    PyErr_NoMemory();
    r = -1;
  }
  for (; done < n && !r; done++) {
    struct rb_ser *s = &sers[done];
    uint32_t index = 1 + done;
    bool inl = s->size <= RG_INLINE_MAX;
    out[done] = (struct rg_out){index, inl ? RG_V_INLINE : RG_V_ARENA, s->format == RG_B_ERROR, NULL, s->size, s->refs.oids, s->refs.n};
    if (inl) r = (out[done].data = rb_ser_inline(s, &heap[done])) ? 0 : -1;
    else r = rb_ser_to_arena(ses, s, (struct rg_oid){t->id, index, 0}, NULL);
    bytes += inl ? s->size : 64;
  }
  uint32_t stored = r && done ? done - 1 : done;
  if (!r) {
    uint64_t took = started ? (uint64_t)(rb_now() - started) : 0;
    int code;
    RB_SENDING(bytes, code = rg_result(ses->c, t->id, t->x.attempt, status, took, out, n, more));
    if (code == RAYGO_EINVAL || code == RAYGO_ENOMEM) {
      rb_raise(code, NULL);
      r = -1;
    }
    /* Anything else: the engine is gone, and with it whoever wanted the answer. */
  }
  for (uint32_t i = 0; r && i < stored; i++)   /* an error takes the place of what stands in the arena already */
    if (out[i].kind == RG_V_ARENA) rg_abort(ses->c, (struct rg_oid){t->id, 1 + i, 0});
  for (uint32_t i = 0; heap && i < n; i++) free(heap[i]);
  if (heap != few_heap) free(heap);
  if (out != few) free(out);
  return r;
}

int rb_answer(rg_task *t, uint32_t status, PyObject *const *values, uint32_t n, bool error, int64_t started, bool more) {
  struct rb_ser *sers = n ? malloc(n * sizeof *sers) : NULL;
  uint32_t done = 0;
  int r = 0;
  if (n && !sers) {
    PyErr_NoMemory();
    return -1;
  }
  while (done < n && !r) {
    r = error && done == n - 1 ? rb_ser_error(&sers[done], values[done]) : rb_ser_begin(&sers[done], values[done]);
    if (!r) done++;
  }
  if (!r) r = rb_send_ser(t, status, sers, n, started, more);
  while (done) rb_ser_end(&sers[--done]);
  free(sers);
  return r;
}

/* ------------------------------------------------------------------------------------------------ the type */

PyObject *rb_task_new(rg_task *t, struct rb_tmpl *m, int64_t started) {
  rb_task *k = (rb_task *)PyType_GenericAlloc(task_type, 0);
  if (!k) {
    rg_task_free(W.ses->c, t);
    return NULL;
  }
  k->t = t;
  k->id = t->id;
  k->m = m;
  k->started = started;
  return (PyObject *)k;
}

static void end_generating(rb_task *k) {
  if (!k->generating) return;
  pthread_mutex_lock(&W.mu);
  for (struct rb_gen **at = &W.gens; *at; at = &(*at)->next)
    if (*at == &k->gen) {
      *at = k->gen.next;
      break;
    }
  pthread_mutex_unlock(&W.mu);
  k->generating = false;
}

static void task_dealloc(PyObject *self) {
  rb_task *k = (rb_task *)self;
  PyTypeObject *t = Py_TYPE(self);
  end_generating(k);
  if (k->t) rg_task_free(W.ses->c, k->t);
  freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);
  release(self);
  Py_DECREF(t);
}

static rg_task *open_task(PyObject *self) {
  rg_task *t = ((rb_task *)self)->t;
  if (!t) PyErr_SetString(PyExc_RuntimeError, "this task was answered already");
  return t;
}

static PyObject *task_args(PyObject *self, PyObject *unused) {
  (void)unused;
  rb_task *k = (rb_task *)self;
  PyObject *args, *kwargs;
  if (!open_task(self) || rb_args_load(k->t, k->m && k->m->msgpack, &args, &kwargs)) return NULL;
  if (!kwargs && !(kwargs = PyDict_New())) {
    Py_DECREF(args);
    return NULL;
  }
  PyObject *out = PyTuple_Pack(2, args, kwargs);
  Py_DECREF(args);
  Py_DECREF(kwargs);
  return out;
}

static PyObject *answered(rb_task *k) {
  end_generating(k);
  if (rb_me && rb_me->t == k->t) rb_me->t = NULL;
  rg_task_free(W.ses->c, k->t);
  k->t = NULL;
  Py_RETURN_NONE;
}

static PyObject *answer_tuple(rb_task *k, PyObject *values, unsigned int status, bool error, int more) {
  uint32_t n = (uint32_t)PyTuple_Size(values);
  PyObject *few[8] = {NULL}, **v = n <= 8 ? few : malloc(n * sizeof *v);
  if (!v) return PyErr_NoMemory();
  for (uint32_t i = 0; i < n; i++) v[i] = PyTuple_GetItem(values, (Py_ssize_t)i);
  int r = rb_answer(k->t, status, v, n, error, k->started, more);
  if (v != few) free(v);
  return r ? NULL : answered(k);
}

/* result(values, status=0, more=False): values is a tuple, one for each return */
static PyObject *task_result(PyObject *self, PyObject *args) {
  PyObject *values;
  unsigned int status = RG_R_OK;
  int more = 0;
  if (!PyArg_ParseTuple(args, "O!|Ip", &PyTuple_Type, &values, &status, &more) || !open_task(self)) return NULL;
  return answer_tuple((rb_task *)self, values, status, false, more);
}

/* error(value, status=1, before=()): one error for all returns but the first ones, whose values are given */
static PyObject *task_error(PyObject *self, PyObject *args) {
  PyObject *value, *before = NULL;
  unsigned int status = RG_R_ERROR;
  if (!PyArg_ParseTuple(args, "O|IO!", &value, &status, &PyTuple_Type, &before) || !open_task(self)) return NULL;
  PyObject *last = PyTuple_Pack(1, value), *all = last && before ? PySequence_Concat(before, last) : Py_XNewRef(last);
  Py_XDECREF(last);
  PyObject *r = all ? answer_tuple((rb_task *)self, all, status, true, 0) : NULL;
  Py_XDECREF(all);
  return r;
}

/* bytes, None, arrays and tables have formats of their own, which need no packing */
static int plain_begin(struct rb_ser *s, PyObject *value) {
  if (value == Py_None || Py_TYPE(value) == &PyBytes_Type) return rb_ser_begin(s, value);
  struct rb_bytes b = {0};
  PyObject *body = rb_pack(&b, value, 0) ? NULL : PyBytes_FromStringAndSize((const char *)b.p, (Py_ssize_t)b.n), *type, *error, *trace;
  free(b.p);
  if (body) return rb_ser_raw(s, RG_B_MSGPACK, body);
  PyErr_Fetch(&type, &error, &trace);
  int r = rb_ser_begin(s, value);
  if (!r && s->format != RG_B_TENSOR && s->format != RG_B_ARROW) {
    rb_ser_end(s);
    r = -1;
  }
  if (r) {   /* that it is not plain says more than why it cannot be pickled */
    PyErr_Restore(type, error, trace);
    return r;
  }
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(trace);
  return 0;
}

/* plain(values): a tuple, one for each return, of what every language knows */
static PyObject *task_plain(PyObject *self, PyObject *values) {
  rb_task *k = (rb_task *)self;
  if (!open_task(self)) return NULL;
  if (!PyTuple_Check(values)) return PyErr_Format(PyExc_TypeError, "plain takes a tuple of values, not a %R", (PyObject *)Py_TYPE(values));
  uint32_t n = (uint32_t)PyTuple_Size(values), done = 0;
  struct rb_ser *sers = malloc((n + 1) * sizeof *sers);
  if (!sers) return PyErr_NoMemory();
  int r = 0;
  while (!r && done < n)
    if (!(r = plain_begin(&sers[done], PyTuple_GetItem(values, (Py_ssize_t)done)))) done++;
  if (!r) r = rb_send_ser(k->t, RG_R_OK, sers, n, k->started, false);
  while (done) rb_ser_end(&sers[--done]);
  free(sers);
  return r ? NULL : answered(k);
}

/* fault(map, status=1): an error as the engine's own are, for callers of other languages */
static PyObject *task_fault(PyObject *self, PyObject *args) {
  rb_task *k = (rb_task *)self;
  const char *map;
  Py_ssize_t len;
  unsigned int status = RG_R_ERROR;
  if (!PyArg_ParseTuple(args, "y#|I", &map, &len, &status) || !open_task(self)) return NULL;
  struct rg_out out = {1, RG_V_SYSERR, 1, map, (uint64_t)len, NULL, 0};
  int r;
  RB_SENDING((uint64_t)len, r = rg_result(W.ses->c, k->t->id, k->t->x.attempt, status, (uint64_t)(rb_now() - k->started), &out, 1, 0));
  (void)r;   /* without an engine there is nobody to answer */
  return answered(k);
}

/* item(number, value) */
static PyObject *task_item(PyObject *self, PyObject *args) {
  rb_task *k = (rb_task *)self;
  unsigned long number;
  PyObject *value;
  if (!PyArg_ParseTuple(args, "kO", &number, &value) || !open_task(self)) return NULL;
  struct rb_ser s;
  if (rb_ser_begin(&s, value)) return NULL;
  uint8_t *heap = NULL;
  uint32_t index = (uint32_t)(2 + number);
  struct rg_out out = {index, RG_V_INLINE, 0, NULL, s.size, s.refs.oids, s.refs.n};
  int r = 0;
  if (s.size <= RG_INLINE_MAX) {
    r = (out.data = rb_ser_inline(&s, &heap)) ? 0 : -1;
  } else {
    out.kind = RG_V_ARENA;
    r = rb_ser_to_arena(W.ses, &s, (struct rg_oid){k->t->id, index, 0}, NULL);
  }
  if (!r) {
    int code;
    RB_SENDING(s.size, code = rg_item(W.ses->c, k->t->id, &out));
    if (code) {
      rb_raise(code, NULL);
      r = -1;
    }
  }
  free(heap);
  rb_ser_end(&s);
  if (r) return NULL;
  int64_t now = rb_now();
  if (now - k->sent > ALONE_NS) {
    rg_flush(W.ses->c);   /* without an engine there is nobody to send to */
    k->sent = now;
  }
  Py_RETURN_NONE;
}

/* generate(): from now on RESUME frames for it are kept. */
static PyObject *task_generate(PyObject *self, PyObject *unused) {
  (void)unused;
  rb_task *k = (rb_task *)self;
  if (!open_task(self)) return NULL;
  if (!k->generating) {
    k->gen = (struct rb_gen){NULL, k->t->id, 0};
    k->generating = true;
    pthread_mutex_lock(&W.mu);
    k->gen.next = W.gens;
    W.gens = &k->gen;
    k->gen.taken = rb_me && rb_me->t == k->t && rb_me->canceled ? UINT64_MAX : atomic_load(&k->t->taken);   /* what came while it was queued */
    pthread_mutex_unlock(&W.mu);
  }
  Py_RETURN_NONE;
}

/* taken(at_least=0): how many items the consumer has taken, waiting until there are so many; -1: it wants no more. */
static PyObject *task_taken(PyObject *self, PyObject *args) {
  rb_task *k = (rb_task *)self;
  unsigned long long at_least = 0;
  if (!PyArg_ParseTuple(args, "|K", &at_least) || !open_task(self)) return NULL;
  pthread_mutex_lock(&W.mu);
  uint64_t taken = k->gen.taken;
  pthread_mutex_unlock(&W.mu);
  if (taken < at_least && rg_flush(W.ses->c) == 0) {
    PyThreadState *ts = PyEval_SaveThread();
    int stop = 0;
    pthread_mutex_lock(&W.mu);
    while (!stop && (taken = k->gen.taken) < at_least && rg_client_alive(W.ses->c)) {
      struct timespec until;
      clock_gettime(CLOCK_REALTIME, &until);
      until.tv_nsec += 100000000;   /* signals are looked for in between, as in every wait */
      if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
      }
      pthread_cond_timedwait(&W.changed, &W.mu, &until);
      pthread_mutex_unlock(&W.mu);
      stop = rb_check(&ts);
      pthread_mutex_lock(&W.mu);
    }
    pthread_mutex_unlock(&W.mu);
    PyEval_RestoreThread(ts);
    if (stop) return NULL;
  }
  return taken == UINT64_MAX ? PyLong_FromLong(-1) : PyLong_FromUnsignedLongLong(taken);
}

/* begin(): the loop's thread runs this task's synchronous part until end(). */
static PyObject *task_begin(PyObject *self, PyObject *unused) {
  (void)unused;
  rb_task *k = (rb_task *)self;
  struct rb_runner *r = rb_me;
  if (!open_task(self) || !r) return NULL;
  rg_client_pumped(W.ses->c, 0);   /* the loop does not read meanwhile */
  rg_busy(W.ses->c);
  return PyBool_FromLong(rb_begin(r, k->t, k->m));
}

static PyObject *task_end(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  rg_client_pumped(W.ses->c, 1);
  return PyBool_FromLong(rb_me && rb_finish(rb_me));
}

#define NUMBER(name, expression)                                              \
  static PyObject *get_##name(PyObject *self, void *unused) {                 \
    (void)unused;                                                             \
    rg_task *t = open_task(self);                                             \
    return t ? PyLong_FromUnsignedLongLong(expression) : NULL;                \
  }
static PyObject *get_id(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(((rb_task *)self)->id);
}
NUMBER(flags, t->flags)
NUMBER(actor, t->x.actor)
NUMBER(parent, t->x.parent)
NUMBER(attempt, t->x.attempt)
NUMBER(nreturns, t->x.nreturns)
NUMBER(retries_left, t->x.retries_left)

static PyObject *get_template(PyObject *self, void *unused) {
  (void)unused;
  rb_task *k = (rb_task *)self;
  return Py_NewRef(k->m && k->m->info ? k->m->info : Py_None);
}

static PyObject *get_context(PyObject *self, void *unused) {
  (void)unused;
  rg_task *t = open_task(self);
  if (!t) return NULL;
  return PyBytes_FromStringAndSize((const char *)t->context, t->x.context_len);
}

static PyObject *get_answered(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((rb_task *)self)->t == NULL);
}

static PyMethodDef task_methods[] = {{"args", task_args, METH_NOARGS, "(args, kwargs), references resolved."},
                                     {"result", task_result, METH_VARARGS, "Answers with a tuple of values."},
                                     {"error", task_error, METH_VARARGS, "Answers with an error."},
                                     {"plain", task_plain, METH_O, "Answers with plain values."},
                                     {"fault", task_fault, METH_VARARGS, "Answers with an error as text."},
                                     {"item", task_item, METH_VARARGS, "Sends a generator's item."},
                                     {"generate", task_generate, METH_NOARGS, "Begins to count what the consumer takes."},
                                     {"taken", task_taken, METH_VARARGS, "How many items were taken; waits for a number; -1: dropped."},
                                     {"begin", task_begin, METH_NOARGS, "This thread runs the task now; False: it was cancelled."},
                                     {"end", task_end, METH_NOARGS, "It does no more; whether it was cancelled."},
                                     {NULL, NULL, 0, NULL}};
static PyGetSetDef task_fields[] = {{"id", get_id, NULL, NULL, NULL}, {"flags", get_flags, NULL, NULL, NULL}, {"actor", get_actor, NULL, NULL, NULL},
                                    {"parent", get_parent, NULL, NULL, NULL}, {"attempt", get_attempt, NULL, NULL, NULL}, {"nreturns", get_nreturns, NULL, NULL, NULL},
                                    {"retries_left", get_retries_left, NULL, NULL, NULL}, {"template", get_template, NULL, NULL, NULL},
                                    {"context", get_context, NULL, NULL, NULL}, {"answered", get_answered, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot task_slots[] = {{Py_tp_doc, "One task to run and answer."}, {Py_tp_dealloc, task_dealloc}, {Py_tp_methods, task_methods}, {Py_tp_getset, task_fields}, {0, NULL}};
static PyType_Spec task_spec = {"raygo._binding.Task", sizeof(rb_task), 0, Py_TPFLAGS_DEFAULT, task_slots};

int rb_task_ready(PyObject *module) { return rb_add_type(module, "Task", &task_spec, &task_type); }
