/* Taking values: get, wait, and the completion queue. */
#include <stdlib.h>
#include "binding.h"

#define FEW 32

/* The references of one call.  Holds a handle on every slot, since the caller's list may change while the GIL is away. */
struct batch {
  struct rb_session *ses;
  size_t n;
  rg_slot **slots, *few[FEW];
  PyThreadState *ts;
};

static void batch_end(struct batch *b) {
  for (size_t i = 0; i < b->n; i++) rg_slot_decref(b->ses->c, b->slots[i]);
  if (b->slots != b->few) free(b->slots);
  rb_unuse(b->ses);
}

static int batch_add(struct batch *b, PyObject *o) {
  if (!rb_is_ref(o)) {
    PyErr_Format(PyExc_TypeError, "raygo.get and raygo.wait take ObjectRefs, not a %R", (PyObject *)Py_TYPE(o));
    return -1;
  }
  rb_ref *r = (rb_ref *)o;
  if (rb_ref_usable(r, b->ses)) return -1;
  rg_slot_incref(r->slot);
  b->slots[b->n++] = r->slot;
  return 0;
}

/* refs: a list or tuple */
static int batch_begin(struct batch *b, PyObject *refs) {
  b->ses = rb_need();
  if (!b->ses) return -1;
  bool list = PyList_Check(refs);
  Py_ssize_t n = list ? PyList_Size(refs) : PyTuple_Size(refs);
  if (n < 0) return -1;
  b->n = 0;
  b->slots = n <= FEW ? b->few : malloc((size_t)n * sizeof *b->slots);
  if (!b->slots) {
    PyErr_NoMemory();
    return -1;
  }
  b->ses->users++;
  for (Py_ssize_t i = 0; i < n; i++)
    if (batch_add(b, list ? PyList_GetItem(refs, i) : PyTuple_GetItem(refs, i))) {
      batch_end(b);
      return -1;
    }
  return 0;
}

static inline uint8_t state_of(rg_slot *s) { return atomic_load_explicit(&s->state, memory_order_acquire); }

/* Without the GIL until `need` are there, or with RG_OR_ERROR one of them is an error: get raises it without waiting for the rest.  code: what rg_wait said, 0 or ETIMEDOUT or EINTERRUPTED without an exception; -1 with an exception. */
static int await(struct batch *b, size_t need, int64_t deadline) {
  size_t have = 0;
  for (size_t i = 0; i < b->n && have < (need & ~RG_OR_ERROR); i++) have += state_of(b->slots[i]) != RG_S_PENDING;
  if (have >= (need & ~RG_OR_ERROR)) return 0;
  uint8_t *error = NULL;
  size_t error_len = 0;
  uint64_t task = rb_current();
  if (task && !rb_thread_task && !rb_thread_loop) need |= RG_ASIDE;   /* a thread that the user started */
  b->ts = PyEval_SaveThread();
  int r = rg_wait(b->ses->c, b->slots, b->n, need, task, deadline, rb_check, &b->ts, &error, &error_len);
  PyEval_RestoreThread(b->ts);
  if (r == RAYGO_EDEADLOCK && error) rb_raise_map(error, error_len);
  else if (r && r != RAYGO_ETIMEDOUT && r != RAYGO_EINTERRUPTED) rb_raise(r, NULL);
  free(error);
  return PyErr_Occurred() ? -1 : r;
}

static PyObject *timed_out(struct batch *b) {
  size_t missing = 0;
  for (size_t i = 0; i < b->n; i++) missing += state_of(b->slots[i]) == RG_S_PENDING;
  return PyErr_Format(PyExc_TimeoutError, "%zu of %zu objects were not ready in time", missing, b->n);
}

/* New value of slot i, or raises what it holds.  pin: of its bytes when they are in the arena. */
static PyObject *take(rg_slot *s, rg_pin *pin) {
  if (pin) return rb_load(pin->data, pin->len, pin, pin->is_error);
  uint8_t state = state_of(s);
  if (state == RG_S_INLINE) return rb_load(s->data, s->len, NULL, s->is_error);
  if (state == RG_S_SYSERR) return rb_raise_map(s->data, s->len);
  return rb_raise(RAYGO_EINTERNAL, "The node engine answered for an object without giving its value.");
}

/* Pins for those in the arena.  *pins: NULL when there are none. */
static int pin_all(struct batch *b, int64_t deadline, rg_pin ***pins) {
  size_t k = 0;
  *pins = NULL;
  for (size_t i = 0; i < b->n; i++) k += state_of(b->slots[i]) == RG_S_ARENA;
  if (!k) return 0;
  rg_pin **all = calloc(b->n + k, sizeof *all), **some = all ? all + b->n : NULL;
  rg_slot **slots = malloc(k * sizeof *slots);
  int r = all && slots ? 0 : RAYGO_ENOMEM;
  if (!r) {
    k = 0;
    for (size_t i = 0; i < b->n; i++)
      if (state_of(b->slots[i]) == RG_S_ARENA) slots[k++] = b->slots[i];
    uint64_t task = rb_current();
    b->ts = PyEval_SaveThread();
    r = rg_pin_slots(b->ses->c, slots, k, some, task, deadline, rb_check, &b->ts);
    PyEval_RestoreThread(b->ts);
  }
  if (r) {
    rb_raise(r, r != RAYGO_ENOMEM ? NULL : "A value cannot be mapped from its file on disk, where it lies because the object store has no room for it. Raise the limits on this "
                                           "process's open files (ulimit -n), address space (ulimit -v) and mappings (vm.max_map_count), or let go of other values.");
    free(all);
  } else {
    for (size_t i = 0, j = 0; i < b->n && j < k; i++)
      if (b->slots[i] == slots[j]) all[i] = some[j++];
    *pins = all;
  }
  free(slots);
  return r ? -1 : 0;
}

static void unpin_all(struct batch *b, rg_pin **pins) {
  for (size_t i = 0; pins && i < b->n; i++)
    if (pins[i]) rg_pin_decref(pins[i]);
  free(pins);
}

static PyObject *get_batch(struct batch *b, int64_t deadline) {
  int r = await(b, b->n | RG_OR_ERROR, deadline);
  if (r < 0) return NULL;
  bool whole = !r;
  for (size_t i = 0; whole && i < b->n; i++) whole = state_of(b->slots[i]) != RG_S_PENDING;
  if (!whole) {
    for (size_t i = 0; i < b->n; i++) {
      uint8_t state = state_of(b->slots[i]);
      if (state == RG_S_PENDING || !b->slots[i]->is_error) continue;
      if (state != RG_S_ARENA) return take(b->slots[i], NULL);
      struct batch one = {b->ses, 1, &b->slots[i], {NULL}, NULL};
      rg_pin **pins;
      if (pin_all(&one, deadline, &pins)) return NULL;
      PyObject *v = take(b->slots[i], pins ? pins[0] : NULL);
      Py_XDECREF(v);
      unpin_all(&one, pins);
      return v ? rb_raise(RAYGO_EINTERNAL, "An object marked as an error held a value.") : NULL;
    }
    return r == RAYGO_ETIMEDOUT ? timed_out(b) : rb_raise(r ? r : RAYGO_EINTERNAL, NULL);
  }
  rg_pin **pins;
  if (pin_all(b, deadline, &pins)) return NULL;
  PyObject *list = PyList_New((Py_ssize_t)b->n);
  for (size_t i = 0; list && i < b->n; i++) {
    PyObject *v = take(b->slots[i], pins ? pins[i] : NULL);
    if (!v || PyList_SetItem(list, (Py_ssize_t)i, v)) Py_CLEAR(list);
  }
  unpin_all(b, pins);
  return list;
}

static PyObject *get(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self;
  int64_t deadline;
  if (n < 1 || n > 2) return PyErr_Format(PyExc_TypeError, "get takes references and a timeout, not %zd arguments", n);
  if (rb_deadline(n > 1 ? argv[1] : NULL, &deadline)) return NULL;
  PyObject *refs = PyList_Check(argv[0]) || PyTuple_Check(argv[0]) ? Py_NewRef(argv[0]) : PySequence_List(argv[0]);
  if (!refs) return NULL;
  struct batch b;
  PyObject *list = NULL;
  if (!batch_begin(&b, refs)) {
    list = get_batch(&b, deadline);
    batch_end(&b);
  }
  Py_DECREF(refs);
  return list;
}

static PyObject *get_one(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self;
  int64_t deadline;
  if (n < 1 || n > 2) return PyErr_Format(PyExc_TypeError, "get_one takes a reference and a timeout, not %zd arguments", n);
  struct batch b = {rb_need(), 0, b.few, {NULL}, NULL};
  if (!b.ses || rb_deadline(n > 1 ? argv[1] : NULL, &deadline)) return NULL;
  b.ses->users++;
  PyObject *v = NULL;
  if (!batch_add(&b, argv[0])) {
    int r = await(&b, 1, deadline);
    rg_pin **pins = NULL;
    if (r > 0) r == RAYGO_ETIMEDOUT ? timed_out(&b) : rb_raise(r, NULL);
    else if (!r && !pin_all(&b, deadline, &pins)) v = take(b.slots[0], pins ? pins[0] : NULL);
    unpin_all(&b, pins);
  }
  batch_end(&b);
  return v;
}

/* The value if nobody has to be asked for it, else `later`. */
static PyObject *get_now(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self;
  if (n != 2) return PyErr_Format(PyExc_TypeError, "get_now takes a reference and what to return instead of a value, not %zd arguments", n);
  struct batch b = {rb_need(), 0, b.few, {NULL}, NULL};
  if (!b.ses) return NULL;
  b.ses->users++;
  PyObject *v = NULL;
  if (!batch_add(&b, argv[0])) {
    uint8_t state = state_of(b.slots[0]);
    rg_pin *pin = state == RG_S_ARENA ? rg_pin_own(b.ses->c, b.slots[0]) : NULL;
    v = state == RG_S_PENDING || (state == RG_S_ARENA && !pin) ? Py_NewRef(argv[1]) : take(b.slots[0], pin);
    if (pin) rg_pin_decref(pin);
  }
  batch_end(&b);
  return v;
}

static PyObject *get_blob(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self;
  int64_t deadline;
  if (n < 1 || n > 2) return PyErr_Format(PyExc_TypeError, "get_blob takes a reference and a timeout, not %zd arguments", n);
  struct batch b = {rb_need(), 0, b.few, {NULL}, NULL};
  if (!b.ses || rb_deadline(n > 1 ? argv[1] : NULL, &deadline)) return NULL;
  b.ses->users++;
  PyObject *out = NULL;
  rg_pin **pins = NULL;
  if (!batch_add(&b, argv[0])) {
    int r = await(&b, 1, deadline);
    if (r > 0) r == RAYGO_ETIMEDOUT ? timed_out(&b) : rb_raise(r, NULL);
    if (!r && !pin_all(&b, deadline, &pins)) {
      rg_slot *s = b.slots[0];
      rg_pin *pin = pins ? pins[0] : NULL;
      const uint8_t *p = pin ? pin->data : s->data;
      uint64_t len = pin ? pin->len : s->len;
      struct rg_blob h;
      if (!pin && state_of(s) == RG_S_SYSERR) {
        rb_raise_map(s->data, s->len);
      } else if (len < sizeof h || (memcpy(&h, p, sizeof h), h.body_len > len - sizeof h - h.nbuf * sizeof(struct rg_bufent))) {
        PyErr_SetString(PyExc_ValueError, "a stored value is not whole");
      } else {
        const uint8_t *body = p + sizeof h + h.nbuf * sizeof(struct rg_bufent);
        PyObject *data = pin ? rb_buffer_new(body, h.body_len, pin) : PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)h.body_len);
        PyObject *view = data ? PyMemoryView_FromObject(data) : NULL;
        if (view) out = Py_BuildValue("iOO", (int)h.format, view, s->is_error ? Py_True : Py_False);
        Py_XDECREF(data);
        Py_XDECREF(view);
      }
    }
    unpin_all(&b, pins);
  }
  batch_end(&b);
  return out;
}

static PyObject *wait_(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self;
  int64_t deadline;
  if (n != 3) return PyErr_Format(PyExc_TypeError, "wait takes references, a number and a timeout, not %zd arguments", n);
  Py_ssize_t need = PyLong_AsSsize_t(argv[1]);
  if ((need == -1 && PyErr_Occurred()) || rb_deadline(argv[2], &deadline)) return NULL;
  /* A copy: the answer must have the references that were asked for. */
  PyObject *refs = PySequence_List(argv[0]);
  if (!refs) return NULL;
  struct batch b;
  PyObject *out = NULL, *ready = NULL, *rest = NULL;
  if (batch_begin(&b, refs)) {
    Py_DECREF(refs);
    return NULL;
  }
  if (need > (Py_ssize_t)b.n) need = (Py_ssize_t)b.n;
  int r = await(&b, (size_t)need, deadline);
  if (r == RAYGO_EINTERRUPTED) rb_raise(r, NULL);
  if ((r == 0 || r == RAYGO_ETIMEDOUT) && (ready = PyList_New(0)) && (rest = PyList_New(0))) {
    bool ok = true;
    for (size_t i = 0; ok && i < b.n; i++) {
      PyObject *to = need > 0 && state_of(b.slots[i]) != RG_S_PENDING ? ready : rest;
      need -= to == ready;
      ok = PyList_Append(to, PyList_GetItem(refs, (Py_ssize_t)i)) == 0;
    }
    if (ok) out = PyTuple_Pack(2, ready, rest);
  }
  Py_XDECREF(ready);
  Py_XDECREF(rest);
  batch_end(&b);
  Py_DECREF(refs);
  return out;
}

static rg_slot *slot_arg(PyObject *o, struct rb_session **ses) {
  *ses = rb_need();
  if (!*ses) return NULL;
  if (!rb_is_ref(o)) {
    PyErr_Format(PyExc_TypeError, "an ObjectRef is needed, not a %R", (PyObject *)Py_TYPE(o));
    return NULL;
  }
  return rb_ref_usable((rb_ref *)o, *ses) ? NULL : ((rb_ref *)o)->slot;
}

static PyObject *is_ready(PyObject *self, PyObject *ref) {
  (void)self;
  struct rb_session *ses;
  rg_slot *s = slot_arg(ref, &ses);
  if (!s) return NULL;
  if (state_of(s) == RG_S_PENDING) {
    struct batch b = {ses, 1, &s, {NULL}, NULL};
    if (await(&b, 1, 0) < 0) return NULL;
  }
  return PyBool_FromLong(state_of(s) != RG_S_PENDING);
}

static PyObject *cq_fd(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  struct rb_session *ses = rb_need();
  return ses ? PyLong_FromLong(rg_cq_fd(ses->c)) : NULL;
}

static PyObject *cq_watch(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self;
  if (n != 2) return PyErr_Format(PyExc_TypeError, "cq_watch takes a reference and a token, not %zd arguments", n);
  struct rb_session *ses;
  rg_slot *s = slot_arg(argv[0], &ses);
  uint64_t token = s ? PyLong_AsUnsignedLongLong(argv[1]) : 0;
  if (!s || PyErr_Occurred()) return NULL;
  return PyBool_FromLong(rg_cq_watch(ses->c, s, token));
}

static PyObject *cq_poll(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  struct rb_session *ses = rb_need();
  uint64_t tokens[256];
  PyObject *list = ses ? PyList_New(0) : NULL;
  size_t n;
  do {
    n = list ? rg_cq_poll(ses->c, tokens, 256) : 0;
    for (size_t i = 0; list && i < n; i++) {
      PyObject *v = PyLong_FromUnsignedLongLong(tokens[i]);
      if (!v || PyList_Append(list, v)) Py_CLEAR(list);
      Py_XDECREF(v);
    }
  } while (n == 256);
  return list;
}

PyMethodDef rb_get_methods[] = {{"get", (PyCFunction)(void (*)(void))get, METH_FASTCALL, "The values of several references."},
                                {"get_one", (PyCFunction)(void (*)(void))get_one, METH_FASTCALL, "The value of one reference."},
                                {"get_now", (PyCFunction)(void (*)(void))get_now, METH_FASTCALL, "The value of one reference if it is here."},
                              {"get_blob", (PyCFunction)(void (*)(void))get_blob, METH_FASTCALL, "The value's bytes: format, body, is_error."},
                                {"wait", (PyCFunction)(void (*)(void))wait_, METH_FASTCALL, "Parts references into ready and not."},
                                {"is_ready", is_ready, METH_O, "Whether the value is there."},
                                {"cq_fd", cq_fd, METH_NOARGS, "A descriptor that is readable when a watched value is there."},
                                {"cq_watch", (PyCFunction)(void (*)(void))cq_watch, METH_FASTCALL, "Watches a value; True: it is there already."},
                                {"cq_poll", cq_poll, METH_NOARGS, "The tokens of watched values that came."},
                                {NULL, NULL, 0, NULL}};
