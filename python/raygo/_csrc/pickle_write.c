/* Writes the pickles that calls are mostly made of: small plain values and shallow containers of them.
 *
 * Going through _pickle.dumps costs 0.3 µs before the first byte: an object, a memo table, a frame.  What is written here is ordinary protocol 5
 * that any unpickler reads.  There is no memo, so a value where a list or dict stands twice is left to the real pickler, which keeps that. */
#include "binding.h"

static inline bool room(struct rb_enc *e, size_t n) { return (size_t)(e->end - e->p) >= n; }

static inline int put1(struct rb_enc *e, uint8_t op) {
  if (!room(e, 1)) return 1;
  *e->p++ = op;
  return 0;
}

static int put_run(struct rb_enc *e, uint8_t short_op, uint8_t long_op, const void *data, Py_ssize_t n) {
  if (!room(e, (size_t)n + 5)) return 1;
  if (n < 256) {
    *e->p++ = short_op;
    *e->p++ = (uint8_t)n;
  } else {
    uint32_t k = (uint32_t)n;
    *e->p++ = long_op;
    memcpy(e->p, &k, 4);
    e->p += 4;
  }
  memcpy(e->p, data, (size_t)n);
  e->p += n;
  return 0;
}

static int put_int(struct rb_enc *e, PyObject *v) {
  int overflow;
  long long n = PyLong_AsLongLongAndOverflow(v, &overflow);
  if (overflow || !room(e, 11)) return 1;
  if (n >= 0 && n < 256) {
    *e->p++ = 'K';
    *e->p++ = (uint8_t)n;
  } else if (n >= INT32_MIN && n <= INT32_MAX) {
    int32_t k = (int32_t)n;
    *e->p++ = 'J';
    memcpy(e->p, &k, 4);
    e->p += 4;
  } else {
    *e->p++ = 0x8a;   /* LONG1 */
    *e->p++ = 8;
    memcpy(e->p, &n, 8);
    e->p += 8;
  }
  return 0;
}

static int put_float(struct rb_enc *e, PyObject *v) {
  double d = PyFloat_AsDouble(v);
  uint64_t bits;
  if (!room(e, 9)) return 1;
  memcpy(&bits, &d, 8);
  bits = __builtin_bswap64(bits);
  *e->p++ = 'G';
  memcpy(e->p, &bits, 8);
  e->p += 8;
  return 0;
}

static int put_ref(struct rb_enc *e, PyObject *v) {
  static const char head[] = "\x8c\x0eraygo._binding\x8c\x08_restore\x93" "C\x1c";
  if (!room(e, sizeof head + 30)) return 1;
  if (rb_collect((rb_ref *)v)) return -1;
  memcpy(e->p, head, sizeof head - 1);
  e->p += sizeof head - 1;
  rb_ref_id((rb_ref *)v, e->p);
  e->p += 28;
  *e->p++ = 0x85;   /* TUPLE1 */
  *e->p++ = 'R';
  return 0;
}

static int first_time(struct rb_enc *e, PyObject *v) {
  for (int i = 0; i < e->nseen; i++)
    if (e->seen[i] == v) return 1;
  if (e->nseen == (int)(sizeof e->seen / sizeof *e->seen)) return 1;
  e->seen[e->nseen++] = v;
  return 0;
}

static int put_tuple(struct rb_enc *e, PyObject *v, int depth) {
  Py_ssize_t n = PyTuple_Size(v);
  int r = n > 3 ? put1(e, '(') : 0;
  for (Py_ssize_t i = 0; i < n && !r; i++) r = rb_enc_value(e, PyTuple_GetItem(v, i), depth + 1);
  static const uint8_t ops[] = {')', 0x85, 0x86, 0x87};
  return r ? r : put1(e, n > 3 ? 't' : ops[n]);
}

static int put_list(struct rb_enc *e, PyObject *v, int depth) {
  Py_ssize_t n = PyList_Size(v);
  int r = first_time(e, v);
  if (!r) r = put1(e, ']');
  if (!n || r) return r;
  r = put1(e, '(');
  for (Py_ssize_t i = 0; i < n && !r; i++) r = rb_enc_value(e, PyList_GetItem(v, i), depth + 1);
  return r ? r : put1(e, 'e');
}

static int put_dict(struct rb_enc *e, PyObject *v, int depth) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  int r = first_time(e, v);
  if (!r) r = put1(e, '}');
  if (!PyDict_Size(v) || r) return r;
  r = put1(e, '(');
  while (!r && PyDict_Next(v, &at, &key, &value)) {
    r = rb_enc_value(e, key, depth + 1);
    if (!r) r = rb_enc_value(e, value, depth + 1);
  }
  return r ? r : put1(e, 'u');
}

int rb_enc_value(struct rb_enc *e, PyObject *v, int depth) {
  PyTypeObject *t = Py_TYPE(v);
  if (--e->budget < 0 || depth > 3) return 1;
  if (t == &PyUnicode_Type) {
    Py_ssize_t n;
    const char *p = PyUnicode_AsUTF8AndSize(v, &n);
    if (!p) {   /* lone surrogates: the real pickler has a way */
      PyErr_Clear();
      return 1;
    }
    return put_run(e, 0x8c, 'X', p, n);
  }
  if (t == &PyLong_Type) return put_int(e, v);
  if (v == Py_None) return put1(e, 'N');
  if (t == &PyFloat_Type) return put_float(e, v);
  if (t == &PyBool_Type) return put1(e, v == Py_True ? 0x88 : 0x89);
  if (t == &PyTuple_Type) return put_tuple(e, v, depth);
  if (t == &PyDict_Type) return put_dict(e, v, depth);
  if (t == &PyList_Type) return put_list(e, v, depth);
  if (t == &PyBytes_Type) return put_run(e, 'C', 'B', PyBytes_AsString(v), PyBytes_Size(v));
  if (t == rb_py.ref_type) return put_ref(e, v);
  return 1;
}

/* A long list of references, the one large plain value whose pickling by the general way is slow (a call of __reduce__ each).  The constructor
 * is named once and then taken from the memo.  New bytes; NULL without an exception: not such a list. */
PyObject *rb_enc_refs(PyObject *v) {
  if (Py_TYPE(v) != &PyList_Type || !rb_py.ref_type) return NULL;
  Py_ssize_t n = PyList_Size(v);
  for (Py_ssize_t i = 0; i < n; i++)
    if (Py_TYPE(PyList_GetItem(v, i)) != rb_py.ref_type) return NULL;
  if (n < 2) return NULL;
  size_t head = sizeof RB_REFS_HEAD - 1, each = RB_REF_BYTES;   /* what each needs: the first lacks the memo, the last has the end */
  PyObject *out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(head + (size_t)n * each));
  if (!out) return NULL;
  uint8_t *p = (uint8_t *)PyBytes_AsString(out);
  memcpy(p, RB_REFS_HEAD, head);
  p += head;
  for (Py_ssize_t i = 0; i < n; i++) {
    rb_ref *r = (rb_ref *)PyList_GetItem(v, i);
    if (!r->slot || rb_collect(r)) {
      Py_DECREF(out);
      return NULL;
    }
    if (i) {   /* the first follows the constructor itself */
      *p++ = 'h';
      *p++ = 0;
    }
    *p++ = 'C';
    *p++ = 28;
    rb_ref_id(r, p);
    p += 28;
    *p++ = 0x85;
    *p++ = 'R';
  }
  *p++ = 'e';
  *p++ = '.';
  return out;
}

/* ------------------------------------------------------------------------------------------------ what needs no cloudpickle */

/* numpy's classes, looked up only when somebody has imported it: ndarray, number, bool_. */
static PyTypeObject *const *numpy_types(void) {
  static PyTypeObject *t[3];
  static const char *const names[] = {"ndarray", "number", "bool_"};
  if (t[2]) return t;
  PyObject *m = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
  for (int i = 0; m && i < 3; i++) {
    PyObject *c = PyObject_GetAttrString(m, names[i]);
    if (!c || !PyType_Check(c)) {   /* still being imported */
      Py_XDECREF(c);
      break;
    }
    if (t[i]) Py_DECREF(c);
    else t[i] = (PyTypeObject *)c;
  }
  PyErr_Clear();
  return t[2] ? t : NULL;
}

bool rb_is_ndarray(PyObject *v) {
  PyTypeObject *const *t = rb_py.no_array_path ? NULL : numpy_types();
  return t && Py_TYPE(v) == t[0];
}

static int plain_numpy(PyObject *v, struct rb_plain *seen) {
  PyTypeObject *const *t = rb_py.no_array_path ? NULL : numpy_types();
  if (!t) return 0;
  if (Py_TYPE(v) != t[0]) {   /* scalars of numpy's own classes, which no user has made */
    if (PyType_GetFlags(Py_TYPE(v)) & Py_TPFLAGS_HEAPTYPE) return 0;
    return PyObject_TypeCheck(v, t[1]) || PyObject_TypeCheck(v, t[2]);
  }
  PyObject *dtype = PyObject_GetAttrString(v, "dtype"), *has = dtype ? PyObject_GetAttrString(dtype, "hasobject") : NULL;
  int r = has ? PyObject_IsTrue(has) == 0 : 0;
  Py_XDECREF(dtype);
  Py_XDECREF(has);
  PyErr_Clear();
  seen->arrays |= r;
  return r;
}

static int plain_items(PyObject *v, int depth, struct rb_plain *seen) {
  PyObject *it = PyObject_GetIter(v), *item;
  int r = 1;
  while (it && r == 1 && (item = PyIter_Next(it))) {
    r = rb_is_plain(item, depth, seen);
    Py_DECREF(item);
  }
  Py_XDECREF(it);
  if (PyErr_Occurred()) {   /* changed by another thread meanwhile: the slow path will say so */
    PyErr_Clear();
    return 0;
  }
  return r;
}

int rb_is_plain(PyObject *v, int depth, struct rb_plain *seen) {
  PyTypeObject *t = Py_TYPE(v);
  if (t == &PyLong_Type || t == &PyUnicode_Type || t == &PyFloat_Type || v == Py_None || t == &PyBool_Type || t == &PyBytes_Type || t == &PyComplex_Type ||
      t == rb_py.ref_type || t == &PyByteArray_Type)
    return 1;
  if (depth > 16) return 0;
  if (t == &PyList_Type || t == &PyTuple_Type) {
    bool list = t == &PyList_Type;
    Py_ssize_t n = list ? PyList_Size(v) : PyTuple_Size(v);
    if ((seen->budget -= n) < 0) return 0;
    for (Py_ssize_t i = 0; i < n; i++) {
      PyObject *item = list ? PyList_GetItem(v, i) : PyTuple_GetItem(v, i);
      if (!item || !rb_is_plain(item, depth + 1, seen)) {
        PyErr_Clear();
        return 0;
      }
    }
    return 1;
  }
  if (t == &PyDict_Type) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if ((seen->budget -= PyDict_Size(v)) < 0) return 0;
    while (PyDict_Next(v, &at, &key, &value))
      if (!rb_is_plain(key, depth + 1, seen) || !rb_is_plain(value, depth + 1, seen)) return 0;
    return 1;
  }
  if (t == &PySet_Type || t == &PyFrozenSet_Type) return (seen->budget -= PySet_Size(v)) < 0 ? 0 : plain_items(v, depth + 1, seen);
  return plain_numpy(v, seen);
}
