/* Group: one rank of a group, for Python.  Arrays are addresses; who calls keeps them. */
#include "group.h"
#include <stdlib.h>

#define FEW 16

PyTypeObject *rb_group_type;
static PyTypeObject *space_type;
static rb_group *groups;           /* the GIL guards it */

/* ------------------------------------------------------------------------------------------------ arguments */

static int address(PyObject *o, void **out) {
  *out = o == Py_None ? NULL : PyLong_AsVoidPtr(o);
  return *out == NULL && PyErr_Occurred() ? -1 : 0;
}

static int count_of(PyObject *o, size_t *out) {
  *out = PyLong_AsSize_t(o);
  return *out == (size_t)-1 && PyErr_Occurred() ? -1 : 0;
}

/* A list of (address, count), one for each rank. */
static rgc_block *blocks_of(rb_group *self, PyObject *o, rgc_block *few) {
  PyObject *list = PySequence_List(o);
  if (!list) return NULL;
  Py_ssize_t n = PyList_Size(list);
  rgc_block *b = n <= FEW ? few : malloc((size_t)n * sizeof *b);
  bool ok = b != NULL && n == self->size;
  if (!b) PyErr_NoMemory();
  else if (!ok) PyErr_Format(PyExc_ValueError, "a list of blocks has one for each of the group's %d ranks, not %zd", self->size, n);
  for (Py_ssize_t i = 0; ok && i < n; i++) {
    PyObject *pair = PyList_GetItem(list, i);
    ok = PyTuple_Check(pair) && PyTuple_Size(pair) == 2;
    if (!ok) PyErr_Format(PyExc_TypeError, "a block is a pair of an address and a count, not %R", pair);
    ok = ok && !address(PyTuple_GetItem(pair, 0), &b[i].data) && !count_of(PyTuple_GetItem(pair, 1), &b[i].count);
  }
  Py_DECREF(list);
  if (ok) return b;
  if (b != few) free(b);
  return NULL;
}

/* What a call takes, letter by letter: s and d are src and dst, S and D may be lists, b is both, c count, t dtype, o op, r root or peer.  `tag`, `keep`, `done` and
 * `timeout` follow and may be named. */
struct arguments {
  rgc_call call;
  rgc_block few[2][FEW], *src, *dst;
  PyObject *keep, *done, *timeout;
};

static int take(rb_group *self, struct arguments *a, char letter, PyObject *o) {
  rgc_call *c = &a->call;
  void *p;
  long v;
  switch (letter) {
  case 's': case 'd': case 'b': case 'S': case 'D':
    if ((letter == 'S' || letter == 'D') && !PyLong_Check(o) && o != Py_None) {
      rgc_block **to = letter == 'S' ? &a->src : &a->dst;
      *to = blocks_of(self, o, a->few[letter == 'D']);
      if (letter == 'S') c->srcs = a->src;
      else c->dsts = a->dst;
      return *to ? 0 : -1;
    }
    if (address(o, &p)) return -1;
    if (letter != 'd' && letter != 'D') c->src = p;
    if (letter != 's' && letter != 'S') c->dst = p;
    return 0;
  case 'c': return count_of(o, &c->count);
  default: break;
  }
  v = PyLong_AsLong(o);
  if (v == -1 && PyErr_Occurred()) return -1;
  if (letter == 't') c->dtype = (uint32_t)v;
  else if (letter == 'o') c->op = (uint32_t)v;
  else c->root = v < INT32_MIN || v > INT32_MAX ? INT32_MIN : (int32_t)v;
  return 0;
}

static int set_tag(struct arguments *a, PyObject *o) {
  unsigned long v = PyLong_AsUnsignedLong(o);
  if (v == (unsigned long)-1 && PyErr_Occurred()) return -1;
  if (v > UINT32_MAX) {
    PyErr_SetString(PyExc_ValueError, "a tag is a number from 0 to 4294967295");
    return -1;
  }
  a->call.tag = (uint32_t)v;
  return 0;
}

static int parse(rb_group *self, struct arguments *a, const char *name, const char *form, PyObject *const *argv, Py_ssize_t n, PyObject *names, bool start) {
  Py_ssize_t fixed = (Py_ssize_t)strlen(form);
  const char *more[4];
  int nmore = 0;
  if (a->call.kind >= RGC_SEND) more[nmore++] = "tag";
  if (start) more[nmore++] = "keep", more[nmore++] = "done";
  more[nmore++] = "timeout";
  if (n < fixed || n > fixed + nmore) {
    PyErr_Format(PyExc_TypeError, "%s takes %zd to %zd arguments, not %zd", name, fixed, fixed + nmore, n);
    return -1;
  }
  for (Py_ssize_t i = 0; i < fixed; i++)
    if (take(self, a, form[i], argv[i])) return -1;
  Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = fixed; i < n + named; i++) {
    const char *what = i < n ? more[i - fixed] : PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i - n), NULL);
    int k = 0;
    while (what && k < nmore && strcmp(what, more[k])) k++;
    if (!what || k == nmore) {
      if (what) PyErr_Format(PyExc_TypeError, "%s has no argument %s", name, what);
      return -1;
    }
    if (!strcmp(what, "tag") && set_tag(a, argv[i])) return -1;
    if (!strcmp(what, "keep")) a->keep = argv[i];
    if (!strcmp(what, "done")) a->done = argv[i];
    if (!strcmp(what, "timeout")) a->timeout = argv[i];
  }
  return 0;
}

static int usable(rb_group *self) {
  if (self->g && !self->closed) return 0;
  rgc_error err = {RAYGO_ESTALE, self->rank, "The group was closed: it cannot be used any more."};
  rb_group_raise(&err, RAYGO_ESTALE);
  return -1;
}

PyObject *rb_group_call(rb_group *self, const char *name, uint32_t kind, const char *form, PyObject *const *argv, Py_ssize_t n, PyObject *names, bool start) {
  struct arguments a;
  memset(&a.call, 0, sizeof a.call);
  a.src = a.dst = NULL;
  a.keep = a.done = a.timeout = NULL;
  a.call.kind = kind;
  int64_t ns;
  PyObject *out = NULL;
  if (usable(self)) return NULL;
  if (parse(self, &a, name, form, argv, n, names, start) || rb_group_timeout(a.timeout, &ns)) goto end;
  if (start) {
    out = rb_work_start(self, &a.call, a.keep, a.done, ns);
    goto end;
  }
  rgc_error err;
  int source = -1;
  rgc_group *g = self->g;
  PyThreadState *ts = PyEval_SaveThread();
  rgc_wait wait = {ns, rb_check, &ts};
  int r = rgc_run(g, &a.call, &wait, &source, &err);
  PyEval_RestoreThread(ts);
  if (r) rb_group_raise(&err, r);
  else out = kind == RGC_RECV ? PyLong_FromLong(source) : Py_NewRef(Py_None);
end:
  if (a.src != a.few[0]) free(a.src);
  if (a.dst != a.few[1]) free(a.dst);
  return out;
}

#define CALL(name, kind, form) \
  static PyObject *group_##name(PyObject *self, PyObject *const *argv, Py_ssize_t n, PyObject *names) { \
    return rb_group_call((rb_group *)self, #name, kind, form, argv, n, names, false); \
  } \
  static PyObject *group_i##name(PyObject *self, PyObject *const *argv, Py_ssize_t n, PyObject *names) { \
    return rb_group_call((rb_group *)self, "i" #name, kind, form, argv, n, names, true); \
  }
CALL(barrier, RGC_BARRIER, "")
CALL(allreduce, RGC_ALLREDUCE, "sdcto")
CALL(reduce, RGC_REDUCE, "sdctor")
CALL(broadcast, RGC_BROADCAST, "bctr")
CALL(allgather, RGC_ALLGATHER, "sDct")
CALL(reducescatter, RGC_REDUCESCATTER, "Sdcto")
CALL(gather, RGC_GATHER, "sDctr")
CALL(scatter, RGC_SCATTER, "Sdctr")
CALL(alltoall, RGC_ALLTOALL, "SDct")
CALL(send, RGC_SEND, "sctr")
CALL(recv, RGC_RECV, "dctr")

/* ------------------------------------------------------------------------------------------------ beginning and end */

static void listed(rb_group *self, bool on) {
  if (on) {
    self->next = groups;
    self->prev = NULL;
    if (groups) groups->prev = self;
    groups = self;
    return;
  }
  if (self->prev) self->prev->next = self->next;
  else if (groups == self) groups = self->next;
  if (self->next) self->next->prev = self->prev;
  self->prev = self->next = NULL;
}

static void close_group(rb_group *self) {
  rgc_group *g = self->g;
  if (!g || self->closed) return;
  self->closed = true;
  listed(self, false);
  PyThreadState *ts = PyEval_SaveThread();
  rgc_close(g);
  PyEval_RestoreThread(ts);
}

/* Before the interpreter ends: later, threads of the groups could not tell Python any more that a call has ended. */
static PyObject *close_all(PyObject *unused, PyObject *unused_too) {
  (void)unused, (void)unused_too;
  while (groups) {
    PyObject *g = Py_NewRef((PyObject *)groups);
    close_group((rb_group *)g);
    Py_DECREF(g);
  }
  Py_RETURN_NONE;
}

static PyMethodDef close_all_def = {"_close_groups", close_all, METH_NOARGS, "Leaves all groups of this process."};

static int close_at_exit(void) {
  static bool done;
  if (done) return 0;
  PyObject *atexit = PyImport_ImportModule("atexit"), *f = atexit ? PyCFunction_NewEx(&close_all_def, NULL, NULL) : NULL;
  PyObject *r = f ? PyObject_CallMethod(atexit, "register", "O", f) : NULL;
  done = r != NULL;
  Py_XDECREF(atexit);
  Py_XDECREF(f);
  Py_XDECREF(r);
  return done ? 0 : -1;
}

static void note(rb_group *self) {
  rgc_hold(self->g);
  self->rank = rgc_rank(self->g);
  self->size = rgc_size(self->g);
  self->local_size = rgc_local_size(self->g);
  self->nodes = rgc_node_count(self->g);
  listed(self, true);
}

static int group_init(PyObject *o, PyObject *args, PyObject *kw) {
  static char *names[] = {"name", "rank", "size", "store", "timeout", "node", "arena_bytes", "library", NULL};
  rb_group *self = (rb_group *)o;
  const char *name, *node = NULL;
  int rank, size;
  PyObject *store, *timeout = Py_None, *library = Py_None;
  unsigned long long arena = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "siiO|$OzKO", names, &name, &rank, &size, &store, &timeout, &node, &arena, &library)) return -1;
  if (self->store) {
    PyErr_SetString(PyExc_TypeError, "a Group is initialised once");
    return -1;
  }
  if (close_at_exit() || rb_group_open(self, name, rank, size, store, timeout, node, arena, library)) return -1;
  note(self);
  return 0;
}

static void group_dealloc(PyObject *o) {
  rb_group *self = (rb_group *)o;
  PyTypeObject *t = Py_TYPE(o);
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  close_group(self);
  if (self->g) rgc_drop(self->g);
  PyErr_Restore(type, value, trace);
  Py_XDECREF(self->store);
  Py_XDECREF(self->library);
  freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);
  release(o);
  Py_DECREF(t);
}

static PyObject *group_close(PyObject *self, PyObject *unused) {
  (void)unused;
  close_group((rb_group *)self);
  Py_RETURN_NONE;
}

static PyObject *group_abort(PyObject *o, PyObject *args) {
  rb_group *self = (rb_group *)o;
  const char *why = NULL;
  rgc_error err = {.rank = -1};
  if (!PyArg_ParseTuple(args, "|z", &why) || usable(self)) return NULL;
  int r = rgc_abort(self->g, why, &err);
  if (r) return rb_group_raise(&err, r);
  Py_RETURN_NONE;
}

static PyObject *group_broken(PyObject *o, PyObject *unused) {
  (void)unused;
  rb_group *self = (rb_group *)o;
  rgc_error err = {.rank = -1};
  if (usable(self)) return NULL;
  if (!rgc_broken(self->g, &err)) Py_RETURN_NONE;
  return rb_group_error(&err);
}

static PyObject *group_split(PyObject *o, PyObject *args, PyObject *kw) {
  static char *names[] = {"color", "key", "timeout", NULL};
  rb_group *self = (rb_group *)o;
  int color, key;
  PyObject *timeout = Py_None;
  int64_t ns;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "ii|O", names, &color, &key, &timeout) || rb_group_timeout(timeout, &ns) || usable(self)) return NULL;
  rb_group *out = (rb_group *)PyType_GenericAlloc(rb_group_type, 0);
  if (!out) return NULL;
  out->store = Py_NewRef(self->store);
  out->library = Py_XNewRef(self->library);
  rgc_error err = {.rank = -1};
  rgc_group *g = self->g;
  PyThreadState *ts = PyEval_SaveThread();
  rgc_wait wait = {ns, rb_check, &ts};
  int r = rgc_split(g, color, key, &wait, &out->g, &err);
  PyEval_RestoreThread(ts);
  if (!r && out->g) {
    note(out);
    return (PyObject *)out;
  }
  Py_DECREF(out);
  if (r) return rb_group_raise(&err, r);
  Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------ memory in the arena */

typedef struct {
  PyObject_HEAD
  rgc_group *g;
  void *p;
  Py_ssize_t len;
} space;

static void space_dealloc(PyObject *o) {
  space *s = (space *)o;
  PyTypeObject *t = Py_TYPE(o);
  rgc_free(s->g, s->p);            /* the piece keeps what it needs of the group, closed or not */
  freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);
  release(o);
  Py_DECREF(t);
}

static int space_get(PyObject *o, Py_buffer *view, int flags) { return PyBuffer_FillInfo(view, o, ((space *)o)->p, ((space *)o)->len, 0, flags); }

static PyObject *group_alloc(PyObject *o, PyObject *arg) {
  rb_group *self = (rb_group *)o;
  size_t n;
  if (count_of(arg, &n) || usable(self)) return NULL;
  space *s = (space *)PyType_GenericAlloc(space_type, 0);
  if (!s) return NULL;
  rgc_error err = {.rank = -1};
  s->g = self->g;
  s->len = (Py_ssize_t)n;
  PyThreadState *ts = PyEval_SaveThread();
  int r = rgc_alloc(s->g, n, &s->p, &err);
  PyEval_RestoreThread(ts);
  PyObject *view = r ? rb_group_raise(&err, r) : PyMemoryView_FromObject((PyObject *)s);
  Py_DECREF(s);
  return view;
}

static PyObject *group_name(PyObject *o, void *unused) {
  (void)unused;
  rb_group *self = (rb_group *)o;
  return usable(self) ? NULL : PyUnicode_FromString(rgc_name(self->g));
}

#define METHOD(name, doc) \
  {#name, (PyCFunction)(void (*)(void))group_##name, METH_FASTCALL | METH_KEYWORDS, doc}, \
  {"i" #name, (PyCFunction)(void (*)(void))group_i##name, METH_FASTCALL | METH_KEYWORDS, "Starts the call and returns its Work."}
static PyMethodDef methods[] = {METHOD(barrier, "Waits until all ranks are here."),
                                METHOD(allreduce, "Reduces arrays; all ranks get the result."),
                                METHOD(reduce, "Reduces arrays to one rank."),
                                METHOD(broadcast, "One rank's array to all."),
                                METHOD(allgather, "All arrays to all ranks."),
                                METHOD(reducescatter, "Reduces arrays; each rank gets its block."),
                                METHOD(gather, "All arrays to one rank."),
                                METHOD(scatter, "One rank's blocks to each."),
                                METHOD(alltoall, "A block of each rank to each."),
                                METHOD(send, "Sends an array to a rank."),
                                METHOD(recv, "Receives an array; returns from whom."),
                                {"split", (PyCFunction)(void (*)(void))group_split, METH_VARARGS | METH_KEYWORDS, "A group of the ranks that name the same color."},
                                {"alloc", group_alloc, METH_O, "Memory that all ranks of the node see."},
                                {"abort", group_abort, METH_VARARGS, "Breaks the group on all ranks."},
                                {"broken", group_broken, METH_NOARGS, "Why calls fail from now on, or None."},
                                {"close", group_close, METH_NOARGS, "Leaves the group."},
                                {NULL, NULL, 0, NULL}};
static PyMemberDef members[] = {{"rank", T_INT, offsetof(rb_group, rank), READONLY, "This rank."},
                                {"size", T_INT, offsetof(rb_group, size), READONLY, "How many ranks there are."},
                                {"local_size", T_INT, offsetof(rb_group, local_size), READONLY, "How many of them are on this node."},
                                {"nodes", T_INT, offsetof(rb_group, nodes), READONLY, "How many nodes there are."},
                                {NULL, 0, 0, 0, NULL}};
static PyGetSetDef fields[] = {{"name", group_name, NULL, "The group's name.", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_doc, "One rank of a group."}, {Py_tp_init, group_init},     {Py_tp_dealloc, group_dealloc}, {Py_tp_methods, methods},
                              {Py_tp_members, members},           {Py_tp_getset, fields},        {0, NULL}};
static PyType_Spec spec = {"raygo._binding.Group", sizeof(rb_group), 0, Py_TPFLAGS_DEFAULT, slots};
static PyType_Slot space_slots[] = {{Py_tp_doc, "Memory of a group's arena."}, {Py_tp_dealloc, space_dealloc}, {Py_bf_getbuffer, space_get}, {0, NULL}};
static PyType_Spec space_spec = {"raygo._binding._Space", sizeof(space), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, space_slots};

int rb_group_ready(PyObject *module) {
  return rb_add_type(module, "Group", &spec, &rb_group_type) || rb_add_type(module, "_Space", &space_spec, &space_type) || rb_work_ready(module) || rb_group_error_ready(module) ? -1 : 0;
}
