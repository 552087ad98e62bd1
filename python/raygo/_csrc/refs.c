/* ObjectRef, and the collecting of references while values are pickled. */
#include <stdlib.h>
#include "binding.h"

PyTypeObject *rb_ref_base;
RB_THREAD struct rb_collector *collector;
static PyObject *restore_function;   /* owned: what a pickled reference calls */

/* ------------------------------------------------------------------------------------------------ collectors */

void rb_collector_begin(struct rb_collector *k) {
  k->up = collector;
  k->ses = NULL;
  k->n = 0;
  k->cap = sizeof k->small_oids / sizeof *k->small_oids;
  k->oids = k->small_oids;
  k->slots = k->small_slots;
  collector = k;
}

void rb_collector_close(struct rb_collector *k) { collector = k->up; }

void rb_collector_end(struct rb_collector *k) {
  if (!k->ses) return;
  for (uint32_t i = 0; i < k->n; i++) rg_slot_decref(k->ses->c, k->slots[i]);
  rb_unuse(k->ses);
  k->ses = NULL;
  if (k->oids != k->small_oids) {
    free(k->oids);
    free(k->slots);
  }
  k->n = 0;
}

static int collector_grow(struct rb_collector *k) {
  uint32_t cap = k->cap * 4;
  struct rg_oid *oids = malloc(cap * sizeof *oids);
  rg_slot **slots = malloc(cap * sizeof *slots);
  if (!oids || !slots) {
    free(oids);
    free(slots);
    PyErr_NoMemory();
    return -1;
  }
  memcpy(oids, k->oids, k->n * sizeof *oids);
  memcpy(slots, k->slots, k->n * sizeof *slots);
  if (k->oids != k->small_oids) {
    free(k->oids);
    free(k->slots);
  }
  k->oids = oids;
  k->slots = slots;
  k->cap = cap;
  return 0;
}

int rb_collect(rb_ref *r) {
  struct rb_collector *k = collector;
  if (RB_UNLIKELY(!k)) {
    /* Pickled by the user's own means: nobody knows where the bytes go, so the object stays as long as this process. */
    if (!r->slot->call_site) {
      r->slot->call_site = 1;
      rg_slot_incref(r->slot);
    }
    return 0;
  }
  if (!k->ses) {
    if (rb_ref_usable(r, rb_ses)) return -1;
    k->ses = r->ses;
    k->ses->users++;
  }
  if (rb_ref_usable(r, k->ses)) return -1;
  if (k->n == k->cap && collector_grow(k)) return -1;
  rg_slot_incref(r->slot);
  k->slots[k->n] = r->slot;
  k->oids[k->n++] = r->slot->oid;
  return 0;
}

/* ------------------------------------------------------------------------------------------------ ObjectRef */

PyObject *rb_ref_new(struct rb_session *s, rg_slot *slot) {
  if (!slot) return PyErr_NoMemory();
  PyTypeObject *t = rb_py.ref_type ? rb_py.ref_type : rb_ref_base;
  rb_ref *r = (rb_ref *)PyType_GenericAlloc(t, 0);
  if (!r) {
    rg_slot_decref(s->c, slot);
    return NULL;
  }
  r->slot = slot;
  r->ses = s;
  s->users++;
  return (PyObject *)r;
}

/* Tells the engine where references come from, after the frame that made it know them.  What fails here fails no call. */
void rb_note_site(struct rb_session *s, uint64_t task, uint32_t index, uint32_t n, const char *what) {
  PyObject *text = PyObject_CallFunction(rb_py.call_site, "s", what);
  Py_ssize_t len = 0;
  const char *p = text ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;
  if (!p) {
    PyErr_WriteUnraisable(rb_py.call_site);
  } else if (s == rb_ses) {
    struct rg_site site = {index, n, (uint32_t)(len > RG_MAX_SITE ? RG_MAX_SITE : len), 0};
    uint8_t bytes[RG_MAX_SITE] = {0};
    memcpy(bytes, p, site.len);
    rg_send(s->c, RG_SITE, 0, task, &site, sizeof site, bytes, RG_PAD8(site.len));
  }
  Py_XDECREF(text);
}

static int made(rb_ref *r) {
  if (RB_LIKELY(r->slot != NULL)) return 0;
  PyErr_SetString(PyExc_ValueError, "this ObjectRef is nil: it stands for no object");
  return -1;
}

int rb_ref_usable(rb_ref *r, struct rb_session *s) {
  if (RB_LIKELY(s && r->ses == s)) return 0;
  if (made(r) == 0) rb_raise(RAYGO_ESTALE, NULL);
  return -1;
}

/* One without a slot is nil: it stands for no object, in any session. */
void rb_ref_id(rb_ref *r, uint8_t out[28]) {
  if (!r->slot) {
    memset(out, 0xff, 28);
    return;
  }
  uint32_t zero = 0, job = r->ses->job;
  memcpy(out, &r->slot->oid.task, 8);
  memcpy(out + 8, &r->ses->incarnation, 8);
  memcpy(out + 16, &zero, 4);
  memcpy(out + 20, &job, 4);
  memcpy(out + 24, &r->slot->oid.index, 4);
}

static bool is_nil(const uint8_t id[28]) {
  int i = 0;
  while (i < 28 && id[i] == 0xff) i++;
  return i == 28;
}

static rg_slot *slot_of_id(struct rb_session *s, const uint8_t id[28]) {
  struct rg_oid oid = {0};
  uint64_t incarnation;
  memcpy(&oid.task, id, 8);
  memcpy(&incarnation, id + 8, 8);
  memcpy(&oid.index, id + 24, 4);
  if (RB_UNLIKELY(incarnation != s->incarnation)) return rb_raise(RAYGO_ESTALE, NULL), NULL;
  rg_slot *slot = rg_slot_ref(s->c, oid);
  if (!slot) PyErr_NoMemory();
  return slot;
}

PyObject *rb_restore(const uint8_t id[28]) {
  if (RB_UNLIKELY(is_nil(id))) return PyType_GenericAlloc(rb_py.ref_type ? rb_py.ref_type : rb_ref_base, 0);
  struct rb_session *s = rb_need();
  rg_slot *slot = s ? slot_of_id(s, id) : NULL;
  PyObject *ref = slot ? rb_ref_new(s, slot) : NULL;
  if (ref) RB_NOTE_SITE(s, slot->oid.task, slot->oid.index, 1, "(deserialize task arg)");
  return ref;
}

static PyObject *restore(PyObject *self, PyObject *id) {
  (void)self;
  if (!PyBytes_Check(id) || PyBytes_Size(id) != 28) return PyErr_Format(PyExc_ValueError, "an ObjectRef is made from 28 bytes, not from %R", id);
  return rb_restore((const uint8_t *)PyBytes_AsString(id));
}

static int ref_init(PyObject *self, PyObject *args, PyObject *kw) {
  static char *names[] = {"id", NULL};
  rb_ref *r = (rb_ref *)self;
  const char *id;
  Py_ssize_t n;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "y#", names, &id, &n)) return -1;
  if (n != 28) {
    PyErr_Format(PyExc_ValueError, "an ObjectRef is made from 28 bytes, not from %zd", n);
    return -1;
  }
  if (r->slot) {
    PyErr_SetString(PyExc_TypeError, "an ObjectRef never changes: it was made already");
    return -1;
  }
  if (is_nil((const uint8_t *)id)) return 0;
  struct rb_session *s = rb_need();
  rg_slot *slot = s ? slot_of_id(s, (const uint8_t *)id) : NULL;
  if (!slot) return -1;
  r->slot = slot;
  r->ses = s;
  s->users++;
  return 0;
}

/* Any thread, any moment: takes no lock and calls no Python. */
static void ref_dealloc(PyObject *self) {
  rb_ref *r = (rb_ref *)self;
  PyTypeObject *t = Py_TYPE(self);
  if (r->slot) {
    rg_slot_decref(r->ses->c, r->slot);
    rb_unuse(r->ses);
  }
  freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);
  release(self);
  Py_DECREF(t);
}

static PyObject *ref_binary(PyObject *self, PyObject *unused) {
  (void)unused;
  uint8_t id[28];
  rb_ref_id((rb_ref *)self, id);
  return PyBytes_FromStringAndSize((const char *)id, 28);
}

static PyObject *ref_task_id(PyObject *self, PyObject *unused) {
  (void)unused;
  uint8_t id[28];
  rb_ref_id((rb_ref *)self, id);
  return PyBytes_FromStringAndSize((const char *)id, 24);
}

static PyObject *ref_hex(PyObject *self, PyObject *unused) {
  (void)unused;
  static const char digits[] = "0123456789abcdef";
  uint8_t id[28];
  char text[57];
  rb_ref_id((rb_ref *)self, id);
  for (int i = 0; i < 28; i++) {
    text[2 * i] = digits[id[i] >> 4];
    text[2 * i + 1] = digits[id[i] & 15];
  }
  return PyUnicode_FromStringAndSize(text, 56);
}

static PyObject *ref_repr(PyObject *self) {
  PyObject *hex = ref_hex(self, NULL);
  PyObject *text = hex ? PyUnicode_FromFormat("ObjectRef(%U)", hex) : NULL;
  Py_XDECREF(hex);
  return text;
}

static Py_hash_t ref_hash(PyObject *self) {
  rb_ref *r = (rb_ref *)self;
  if (!r->slot) return 0;
  uint64_t h = (r->slot->oid.task ^ ((uint64_t)r->slot->oid.index << 48)) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  return (Py_hash_t)h == -1 ? -2 : (Py_hash_t)h;
}

static PyObject *ref_compare(PyObject *a, PyObject *b, int op) {
  if (!rb_is_ref(b)) Py_RETURN_NOTIMPLEMENTED;
  rb_ref *x = (rb_ref *)a, *y = (rb_ref *)b;
  if (op != Py_EQ && op != Py_NE) {
    uint8_t one[28], other[28];
    rb_ref_id(x, one);
    rb_ref_id(y, other);
    int order = memcmp(one, other, 28);
    return PyBool_FromLong(op == Py_LT ? order < 0 : op == Py_LE ? order <= 0 : op == Py_GT ? order > 0 : order >= 0);
  }
  bool same = x->slot == y->slot || (x->slot && y->slot && x->slot->oid.task == y->slot->oid.task && x->slot->oid.index == y->slot->oid.index && x->ses->incarnation == y->ses->incarnation);
  return PyBool_FromLong(same == (op == Py_EQ));
}

static PyObject *ref_reduce(PyObject *self, PyObject *unused) {
  (void)unused;
  rb_ref *r = (rb_ref *)self;
  if (r->slot && rb_collect(r)) return NULL;
  uint8_t id[28];
  rb_ref_id(r, id);
  PyObject *bytes = PyBytes_FromStringAndSize((const char *)id, 28), *args = bytes ? PyTuple_New(1) : NULL, *out = args ? PyTuple_New(2) : NULL;
  if (!out) {
    Py_XDECREF(bytes);
    Py_XDECREF(args);
    return NULL;
  }
  PyTuple_SetItem(args, 0, bytes);
  PyTuple_SetItem(out, 0, Py_NewRef(restore_function));
  PyTuple_SetItem(out, 1, args);
  return out;
}

static PyObject *ref_task(PyObject *self, void *unused) {
  (void)unused;
  return made((rb_ref *)self) ? NULL : PyLong_FromUnsignedLongLong(((rb_ref *)self)->slot->oid.task);
}

static PyObject *ref_index(PyObject *self, void *unused) {
  (void)unused;
  return made((rb_ref *)self) ? NULL : PyLong_FromUnsignedLong(((rb_ref *)self)->slot->oid.index);
}

static PyMethodDef ref_methods[] = {
    {"binary", ref_binary, METH_NOARGS, "The 28 bytes of identity."},
    {"hex", ref_hex, METH_NOARGS, "The identity in hexadecimal."},
    {"task_id_bytes", ref_task_id, METH_NOARGS, "The identity of the task that makes the object: 24 bytes."},
    {"__reduce__", ref_reduce, METH_NOARGS, NULL},
    {"__reduce_ex__", ref_reduce, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef ref_fields[] = {{"_task", ref_task, NULL, "Number of the task within the session.", NULL},
                                   {"_index", ref_index, NULL, "Which of the task's values.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot ref_slots[] = {{Py_tp_doc, "A handle on one object."}, {Py_tp_init, ref_init}, {Py_tp_new, PyType_GenericNew}, {Py_tp_dealloc, ref_dealloc},
                                  {Py_tp_repr, ref_repr}, {Py_tp_hash, ref_hash}, {Py_tp_richcompare, ref_compare}, {Py_tp_methods, ref_methods},
                                  {Py_tp_getset, ref_fields}, {0, NULL}};
static PyType_Spec ref_spec = {"raygo._binding.ObjectRef", sizeof(rb_ref), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, ref_slots};

int rb_refs_ready(PyObject *module) {
  if (rb_add_type(module, "ObjectRef", &ref_spec, &rb_ref_base)) return -1;
  restore_function = PyObject_GetAttrString(module, "_restore");
  return restore_function ? 0 : -1;
}

/* ------------------------------------------------------------------------------------------------ functions */

static PyObject *ref_at(unsigned long long task, unsigned long index, bool owned) {
  struct rb_session *s = rb_need();
  if (!s) return NULL;
  struct rg_oid oid = {task, (uint32_t)index, 0};
  return rb_ref_new(s, owned ? rg_slot_new(s->c, task, (uint32_t)index, 1) : rg_slot_ref(s->c, oid));
}

static PyObject *ref_from(PyObject *self, PyObject *args, PyObject *kw) {
  (void)self;
  static char *names[] = {"task", "index", "owned", NULL};
  unsigned long long task;
  unsigned long index;
  int owned = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "Kk|p", names, &task, &index, &owned)) return NULL;
  return ref_at(task, index, owned);
}

static PyObject *item_ref(PyObject *self, PyObject *args) {
  (void)self;
  unsigned long long task;
  unsigned long k;
  if (!PyArg_ParseTuple(args, "Kk", &task, &k)) return NULL;
  struct rb_session *s = rb_need();
  /* The engine pushes items to whoever submitted the generator, and counts that as held: no ADDREF is due, and none is wrong either. */
  struct rg_oid oid = {task, (uint32_t)(2 + k), 0};
  PyObject *ref = s ? rb_ref_new(s, rg_slot_ref(s->c, oid)) : NULL;
  if (ref) RB_NOTE_SITE(s, oid.task, oid.index, 1, "(generator item)");
  return ref;
}

static PyObject *next_number(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  struct rb_session *s = rb_need();
  uint64_t n = s ? rb_number(s) : 0;
  return n ? PyLong_FromUnsignedLongLong(n) : NULL;
}

PyMethodDef rb_refs_methods[] = {
    {"_restore", restore, METH_O, "The reference that its 28 bytes name: what a pickled ObjectRef calls."},
    {"ref_from", (PyCFunction)(void (*)(void))ref_from, METH_VARARGS | METH_KEYWORDS, "A reference from its numbers; owned: this process's submit made it."},
    {"item_ref", item_ref, METH_VARARGS, "The reference of a generator's item k."},
    {"next_number", next_number, METH_NOARGS, "A new task number."},
    {NULL, NULL, 0, NULL}};
