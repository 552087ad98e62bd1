/* Templates, submitting, and Submitter: the callable behind f.remote. */
#include <stdlib.h>
#include "binding.h"

#define MAX_RETURNS 65536

/* What a submit answers with, before wrap. */
static PyObject *results(struct rb_session *s, rg_slot **slots, uint32_t n, bool list) {
  if (n == 1 && !list) return rb_ref_new(s, slots[0]);
  PyObject *out = PyList_New((Py_ssize_t)n);
  for (uint32_t i = 0; i < n; i++) {
    PyObject *r = out ? rb_ref_new(s, slots[i]) : NULL;
    if (!out) rg_slot_decref(s->c, slots[i]);
    else if (!r || PyList_SetItem(out, (Py_ssize_t)i, r)) Py_CLEAR(out);
  }
  return out;
}

struct submission {
  uint32_t template_no, nreturns;
  uint16_t flags;
  uint64_t actor, number;
  rg_counter *counter;
  bool msgpack, list;
};

static PyObject *submit_one(struct rb_session *s, const struct submission *what, PyObject *args, PyObject *kwargs) {
  struct rb_args a;
  if (rb_args_begin(s, &a, args, kwargs, what->msgpack)) return NULL;
  PyObject *out = NULL;
  rg_slot *few[8], **slots = few;
  uint32_t n = what->flags & (RG_F_STREAMING | RG_F_ACTOR_CREATE) ? 1 : what->nreturns;
  uint64_t number = what->number;
  /* Pickling and putting may have let other threads run. */
  if (RB_UNLIKELY(s != rb_ses)) {
    rb_raise(RAYGO_ESHUTDOWN, NULL);
  } else if (n > 8 && !(slots = malloc(n * sizeof *slots))) {
    PyErr_NoMemory();
  } else if (number || (number = rb_number(s))) {
    struct rg_submit h = {what->template_no, what->flags & RG_F_STREAMING ? 0 : what->nreturns, what->actor, rb_current(), a.ntop, a.ser.refs.n, (uint32_t)a.len, 0};
    int r;
    s->users++;
    RB_SENDING(a.len + (a.ntop + a.ser.refs.n) * sizeof(struct rg_oid), r = rg_submit(s->c, number, what->flags, &h, a.top, a.ser.refs.oids, a.block, what->counter, slots));
    if (!r) {
      bool create = what->flags & RG_F_ACTOR_CREATE;
      RB_NOTE_SITE(s, number, create ? 0 : 1, n, create || what->flags & RG_F_ACTOR_CALL ? "(actor call)" : "(task call)");
    }
    out = r ? rb_raise(r, NULL) : results(s, slots, n, what->list);
    rb_unuse(s);
  }
  if (slots != few) free(slots);
  rb_args_end(&a);
  return out;
}

/* ------------------------------------------------------------------------------------------------ functions */

static const char counter_name[] = "raygo.counter";

static void counter_free(PyObject *capsule) { rg_counter_decref(PyCapsule_GetPointer(capsule, counter_name)); }

static PyObject *counter(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  rg_counter *k = calloc(1, sizeof *k);
  if (!k) return PyErr_NoMemory();
  atomic_store(&k->refs, 1);
  PyObject *out = PyCapsule_New(k, counter_name, counter_free);
  if (!out) free(k);
  return out;
}

static uint64_t next_template;

static PyObject *template_(PyObject *self, PyObject *map) {
  (void)self;
  struct rb_session *s = rb_need();
  Py_buffer b;
  if (!s || PyObject_GetBuffer(map, &b, PyBUF_SIMPLE)) return NULL;
  uint64_t n = ++next_template;
  int r;
  RB_SENDING((size_t)b.len, r = rg_template(s->c, n, b.buf, (size_t)b.len));
  PyBuffer_Release(&b);
  return r ? rb_raise(r, NULL) : PyLong_FromUnsignedLongLong(n);
}

/* The number in a reference.  The next session gives the same numbers to others, so a reference from before is refused. */
static int number_of(PyObject *ref, uint64_t *number) {
  if (!rb_is_ref(ref)) {
    PyErr_Format(PyExc_TypeError, "an ObjectRef is needed here, not a %R", (PyObject *)Py_TYPE(ref));
    return -1;
  }
  if (rb_ref_usable((rb_ref *)ref, rb_ses)) return -1;
  *number = ((rb_ref *)ref)->slot->oid.task;
  return 0;
}

static int actor_number(PyObject *actor, uint64_t *number) {
  *number = 0;
  return !actor || actor == Py_None ? 0 : number_of(actor, number);
}

static PyObject *submit(PyObject *self, PyObject *args, PyObject *kw) {
  (void)self;
  static char *names[] = {"template", "flags", "nreturns", "args", "kwargs", "actor", "number", "msgpack", NULL};
  unsigned int template_no, flags, nreturns;
  PyObject *pos, *by_name = Py_None, *actor = NULL;
  unsigned long long number = 0;
  int msgpack = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "IIIO!|OOKp", names, &template_no, &flags, &nreturns, &PyTuple_Type, &pos, &by_name, &actor, &number, &msgpack)) return NULL;
  struct rb_session *s = rb_need();
  struct submission what = {template_no, nreturns, (uint16_t)flags, 0, number, NULL, msgpack != 0, true};
  if (!s || actor_number(actor, &what.actor)) return NULL;
  if (nreturns > MAX_RETURNS) return PyErr_Format(PyExc_ValueError, "a task has at most %d return values, not %u", MAX_RETURNS, nreturns);
  if (by_name != Py_None && !PyDict_Check(by_name)) return PyErr_Format(PyExc_TypeError, "kwargs is a dict or None");
  return submit_one(s, &what, pos, by_name == Py_None ? NULL : by_name);
}

static PyObject *cancel(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *ref;
  uint64_t task;
  int force, recursive;
  if (!PyArg_ParseTuple(args, "Opp", &ref, &force, &recursive)) return NULL;
  struct rb_session *s = rb_need();
  if (s && number_of(ref, &task)) return NULL;
  int r = s ? rg_cancel(s->c, task, force, recursive) : 0;
  if (!s || r) return s ? rb_raise(r, NULL) : NULL;
  Py_RETURN_NONE;
}

static PyObject *kill_(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *ref;
  uint64_t actor;
  int no_restart;
  if (!PyArg_ParseTuple(args, "Op", &ref, &no_restart)) return NULL;
  struct rb_session *s = rb_need();
  if (s && number_of(ref, &actor)) return NULL;
  int r = s ? rg_kill(s->c, actor, no_restart) : 0;
  if (!s || r) return s ? rb_raise(r, NULL) : NULL;
  Py_RETURN_NONE;
}

static PyObject *consumed(PyObject *self, PyObject *args) {
  (void)self;
  unsigned long long task;
  long long count;
  if (!PyArg_ParseTuple(args, "KL", &task, &count)) return NULL;
  /* Also called by finalizers, for which no session is no fault. */
  if (rb_ses && !atomic_load(&rg_forked)) rg_consumed(rb_ses->c, task, (uint64_t)count);
  Py_RETURN_NONE;
}

PyMethodDef rb_submit_methods[] = {
    {"template", template_, METH_O, "Prepares a function with its options; the number to submit by."},
    {"submit", (PyCFunction)(void (*)(void))submit, METH_VARARGS | METH_KEYWORDS, "Submits one task; a list of its references."},
    {"cancel", cancel, METH_VARARGS, "Asks for a task to end."},
    {"kill", kill_, METH_VARARGS, "Ends an actor."},
    {"counter", counter, METH_NOARGS, "Counts unfinished calls for the Submitters that share it."},
    {"consumed", consumed, METH_VARARGS, "Tells how many items of a generator were taken; -1: nobody wants more."},
    {NULL, NULL, 0, NULL}};

/* ------------------------------------------------------------------------------------------------ Submitter */

typedef struct {
  PyObject_HEAD
  PyObject *prepare, *bind, *wrap, *actor, *raise_pending;   /* owned; may be NULL but the first two */
  Py_ssize_t at_least, at_most;   /* positional arguments; -1: no limit */
  bool any, kwargs_ok;            /* any: no signature, every call fits */
  long max_pending;
  rg_counter *counter;
  /* of the last prepare() */
  PyObject *check;                /* owned tuple of (dict, name, value) */
  struct rb_session *ses;         /* compared only, by generation too: the memory may be another session's by now */
  uint32_t generation, template_no, nreturns;
  uint16_t flags;
  bool msgpack;
} submitter;

static PyTypeObject *submitter_type;

static int submitter_init(PyObject *self, PyObject *args, PyObject *kw) {
  static char *names[] = {"prepare", "signature", "bind", "wrap", "actor", "max_pending", "counter", "raise_pending", NULL};
  submitter *u = (submitter *)self;
  PyObject *prepare, *signature = Py_None, *bind = Py_None, *wrap = Py_None, *actor = Py_None, *count = Py_None, *raise_pending = Py_None;
  long max_pending = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "O|$OOOOlOO", names, &prepare, &signature, &bind, &wrap, &actor, &max_pending, &count, &raise_pending)) return -1;
  if (u->prepare) {
    PyErr_SetString(PyExc_TypeError, "a Submitter is made once");
    return -1;
  }
  u->any = signature == Py_None;
  if (!u->any) {
    int kwargs_ok;
    if (!PyArg_ParseTuple(signature, "nnp", &u->at_least, &u->at_most, &kwargs_ok)) return -1;
    u->kwargs_ok = kwargs_ok != 0;
    if (bind == Py_None) {
      PyErr_SetString(PyExc_TypeError, "a Submitter with a signature needs bind");
      return -1;
    }
  }
  if (actor != Py_None && !rb_is_ref(actor)) {
    PyErr_SetString(PyExc_TypeError, "actor is the actor's ObjectRef");
    return -1;
  }
  if (max_pending > 0) {
    if (!(u->counter = PyCapsule_GetPointer(count, counter_name))) return -1;
    atomic_fetch_add(&u->counter->refs, 1);
  }
  u->prepare = Py_NewRef(prepare);
  u->bind = Py_NewRef(bind);
  u->wrap = wrap == Py_None ? NULL : Py_NewRef(wrap);
  u->actor = actor == Py_None ? NULL : Py_NewRef(actor);
  u->raise_pending = raise_pending == Py_None ? NULL : Py_NewRef(raise_pending);
  u->max_pending = max_pending;
  return 0;
}

static int submitter_traverse(PyObject *self, visitproc visit, void *arg) {
  submitter *u = (submitter *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(u->prepare);
  Py_VISIT(u->bind);
  Py_VISIT(u->wrap);
  Py_VISIT(u->actor);
  Py_VISIT(u->raise_pending);
  Py_VISIT(u->check);
  return 0;
}

static int submitter_clear(PyObject *self) {
  submitter *u = (submitter *)self;
  Py_CLEAR(u->prepare);
  Py_CLEAR(u->bind);
  Py_CLEAR(u->wrap);
  Py_CLEAR(u->actor);
  Py_CLEAR(u->raise_pending);
  Py_CLEAR(u->check);
  return 0;
}

static void submitter_dealloc(PyObject *self) {
  submitter *u = (submitter *)self;
  PyTypeObject *t = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  submitter_clear(self);
  if (u->counter) rg_counter_decref(u->counter);
  freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);
  release(self);
  Py_DECREF(t);
}

static int prepare_again(submitter *u) {
  PyObject *out = PyObject_CallFunctionObjArgs(u->prepare, NULL), *check;
  if (!out) return -1;
  unsigned int template_no, nreturns, flags;
  int msgpack = 0, r = -1;
  if (!PyTuple_Check(out)) {
    PyErr_SetString(PyExc_TypeError, "prepare returns (template, nreturns, flags, check)");
  } else if (PyArg_ParseTuple(out, "IIIO|p", &template_no, &nreturns, &flags, &check, &msgpack)) {
    if (nreturns > MAX_RETURNS) {
      PyErr_Format(PyExc_ValueError, "a task has at most %d return values, not %u", MAX_RETURNS, nreturns);
    } else if (!rb_ses) {
      rb_raise(RAYGO_ESHUTDOWN, NULL);
    } else {
      PyObject *old = u->check;
      u->check = PyTuple_Check(check) && PyTuple_Size(check) ? Py_NewRef(check) : NULL;
      u->ses = rb_ses;
      u->generation = rb_ses->generation;
      u->template_no = template_no;
      u->nreturns = nreturns;
      u->flags = (uint16_t)flags;
      u->msgpack = msgpack != 0;
      Py_XDECREF(old);
      r = 0;
    }
  }
  Py_DECREF(out);
  return r;
}

/* Whether every captured global is still bound to what it was. */
static bool unchanged(PyObject *check) {
  Py_ssize_t n = PyTuple_Size(check);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *row = PyTuple_GetItem(check, i);
    if (!PyTuple_Check(row) || PyTuple_Size(row) != 3) return false;
    if (PyDict_GetItemWithError(PyTuple_GetItem(row, 0), PyTuple_GetItem(row, 1)) != PyTuple_GetItem(row, 2)) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

static PyObject *submitter_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  submitter *u = (submitter *)self;
  struct rb_session *s = rb_need();
  if (RB_UNLIKELY(!s)) return NULL;
  if (RB_UNLIKELY(u->ses != s || u->generation != s->generation || (u->check && !unchanged(u->check)))) {
    if (prepare_again(u)) return NULL;
    s = rb_ses;
  }
  PyObject *bound = NULL;
  if (!u->any) {
    Py_ssize_t n = PyTuple_Size(args);
    if (RB_UNLIKELY(n < u->at_least || (u->at_most >= 0 && n > u->at_most) || (kwargs && !u->kwargs_ok && PyDict_Size(kwargs)))) {
      bound = PyObject_CallFunctionObjArgs(u->bind, args, kwargs ? kwargs : Py_None, NULL);
      if (!bound) return NULL;
      if (!PyArg_ParseTuple(bound, "O!O", &PyTuple_Type, &args, &kwargs) || (kwargs != Py_None && !PyDict_Check(kwargs))) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "bind returns (args, kwargs)");
        Py_DECREF(bound);
        return NULL;
      }
      if (kwargs == Py_None) kwargs = NULL;
    }
  }
  PyObject *out = NULL;
  if (RB_UNLIKELY(u->counter && atomic_load(&u->counter->n) >= u->max_pending)) {
    PyObject *r = u->raise_pending ? PyObject_CallFunctionObjArgs(u->raise_pending, NULL) : NULL;
    Py_XDECREF(r);
    if (!PyErr_Occurred()) rb_raise(RAYGO_EPENDINGCALLS, "The actor has as many unfinished calls as max_pending_calls allows.");
  } else {
    struct submission what = {u->template_no, u->nreturns, u->flags, 0, 0, u->counter, u->msgpack, false};
    if (!u->actor || actor_number(u->actor, &what.actor) == 0) out = submit_one(s, &what, args, kwargs);
  }
  Py_XDECREF(bound);
  if (!u->wrap || !out) return out;
  PyObject *wrapped = PyObject_CallFunctionObjArgs(u->wrap, out, NULL);
  Py_DECREF(out);
  return wrapped;
}

static PyType_Slot submitter_slots[] = {{Py_tp_doc, "The callable behind f.remote and actor.method.remote."}, {Py_tp_init, submitter_init}, {Py_tp_new, PyType_GenericNew},
                                        {Py_tp_dealloc, submitter_dealloc}, {Py_tp_traverse, submitter_traverse}, {Py_tp_clear, submitter_clear}, {Py_tp_call, submitter_call},
                                        {0, NULL}};
static PyType_Spec submitter_spec = {"raygo._binding.Submitter", sizeof(submitter), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, submitter_slots};

int rb_submit_ready(PyObject *module) { return rb_add_type(module, "Submitter", &submitter_spec, &submitter_type); }
