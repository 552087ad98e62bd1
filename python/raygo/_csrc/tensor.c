/* Arrays as tensors: kind, size, shape and the elements, which any language can read, and no pickle.
 *
 * Pickling an array costs 10 µs, most of it in NumPy's own Python.  What is taken here: an exact ndarray, C-contiguous, of native numbers or
 * bools.  All else is pickled. */
#include <stdlib.h>
#include "binding.h"

#define MAX_NDIM 16

static const struct { char code; char kind; } codes[] = {{'?', 'b'}, {'b', 'i'}, {'h', 'i'}, {'i', 'i'}, {'l', 'i'}, {'q', 'i'}, {'B', 'u'}, {'H', 'u'},
                                                          {'I', 'u'}, {'L', 'u'}, {'Q', 'u'}, {'e', 'f'}, {'f', 'f'}, {'d', 'f'}};

static char kind_of(const char *format) {
  if (!format) return 0;
  if (format[0] == 'Z' && (format[1] == 'f' || format[1] == 'd') && !format[2]) return 'c';
  for (size_t i = 0; i < sizeof codes / sizeof *codes && !format[1]; i++)
    if (codes[i].code == format[0]) return codes[i].kind;
  return 0;
}

/* 1: s holds v, but its size must be measured; 0: not an array for us */
int rb_tensor_take(struct rb_ser *s, PyObject *v) {
  Py_buffer view;
  if (!rb_is_ndarray(v)) return 0;
  if (PyObject_GetBuffer(v, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)) {   /* another layout, or a type that has no format */
    PyErr_Clear();
    return 0;
  }
  char kind = kind_of(view.format);
  if (!kind || view.ndim > MAX_NDIM || view.itemsize > 255 || view.len == 0 || !(s->bufs = malloc(sizeof *s->bufs))) {
    PyBuffer_Release(&view);
    return 0;
  }
  struct rg_tensor t = {(uint8_t)kind, (uint8_t)view.itemsize, (uint8_t)view.ndim, {0}};
  uint8_t *to = s->small;
  memcpy(to, &t, sizeof t);
  for (int i = 0; i < view.ndim; i++) {
    uint64_t n = (uint64_t)view.shape[i];
    memcpy(to + sizeof t + (size_t)i * sizeof n, &n, sizeof n);
  }
  s->format = RG_B_TENSOR;
  s->body = s->small;
  s->body_len = sizeof t + (uint64_t)view.ndim * sizeof(uint64_t);
  s->bufs[0] = view;
  s->nbuf = 1;
  return 1;
}

/* Borrowed: numpy.dtype of a kind and size; made once. */
static PyObject *dtype_of(uint8_t kind, uint8_t size) {
  static PyObject *known[5][17];
  static const char kinds[] = "biufc";
  const char *at = kind ? strchr(kinds, kind) : NULL;
  if (!at || size == 0 || size > 16) {
    PyErr_Format(PyExc_ValueError, "a stored array has elements of the unknown kind %d of %d bytes", (int)kind, (int)size);
    return NULL;
  }
  PyObject **slot = &known[at - kinds][size];
  if (!*slot) {
    PyObject *numpy = PyImport_ImportModule("numpy"), *made = NULL;
    char name[] = {(char)kind, 0, 0, 0};
    if (size > 9) name[1] = '1', name[2] = (char)('0' + size - 10);
    else name[1] = (char)('0' + size);
    if (numpy) made = PyObject_CallMethod(numpy, "dtype", "s", name);
    Py_XDECREF(numpy);
    if (!made) return NULL;
    if (*slot) Py_DECREF(made);   /* another thread was faster while numpy was imported */
    else *slot = made;
  }
  return *slot;
}

/* Borrowed: what numpy has under a name; looked up once. */
static PyObject *of_numpy(PyObject **slot, const char *name) {
  if (!*slot) {
    PyObject *numpy = PyImport_ImportModule("numpy"), *found = numpy ? PyObject_GetAttrString(numpy, name) : NULL;
    Py_XDECREF(numpy);
    if (*slot) Py_XDECREF(found);   /* another thread was faster while numpy was imported */
    else *slot = found;
  }
  return *slot;
}

/* New array over data, which it keeps.  data: stolen, may be NULL (an error is set). */
PyObject *rb_tensor_load(const uint8_t *body, uint64_t len, PyObject *data) {
  struct rg_tensor t;
  if (data && (len < sizeof t || (memcpy(&t, body, sizeof t), t.ndim > MAX_NDIM || len < sizeof t + t.ndim * sizeof(uint64_t)))) {
    PyErr_SetString(PyExc_ValueError, "a stored array is not whole");
    Py_CLEAR(data);
  }
  if (!data) return NULL;
  static PyObject *frombuffer, *ndarray;
  PyObject *dtype = dtype_of(t.kind, t.itemsize), *out = NULL;
  if (t.ndim == 1) {   /* half the time of what follows, which matters when the caches have just seen a gigabyte */
    uint64_t n;
    memcpy(&n, body + sizeof t, sizeof n);
    PyObject *make = dtype ? of_numpy(&frombuffer, "frombuffer") : NULL;
    if (make) out = PyObject_CallFunctionObjArgs(make, data, dtype, NULL);
    if (out && PyObject_Size(out) != (Py_ssize_t)n) {
      PyErr_SetString(PyExc_ValueError, "a stored array is not whole: it has another length than its shape says");
      Py_CLEAR(out);
    }
    Py_DECREF(data);
    return out;
  }
  PyObject *type = dtype ? of_numpy(&ndarray, "ndarray") : NULL, *shape = type ? PyTuple_New(t.ndim) : NULL;
  for (int i = 0; shape && i < t.ndim; i++) {
    uint64_t n;
    memcpy(&n, body + sizeof t + (size_t)i * sizeof n, sizeof n);
    PyObject *v = PyLong_FromUnsignedLongLong(n);
    if (!v || PyTuple_SetItem(shape, i, v)) Py_CLEAR(shape);
  }
  /* It looks itself whether data is long enough. */
  if (shape) out = PyObject_CallFunctionObjArgs(type, shape, dtype, data, NULL);
  Py_XDECREF(shape);
  Py_DECREF(data);
  return out;
}
