/* msgpack for plain values: null, bool, int, float, str, bytes, list, map. */
#include <stdlib.h>
#include "binding.h"

#define MAX_DEPTH 128

int rb_bytes_add(struct rb_bytes *b, const void *p, size_t n) {
  if (b->cap - b->n < n) {
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->n < n) cap *= 2;
    uint8_t *q = realloc(b->p, cap);
    if (!q) {
      PyErr_NoMemory();
      return -1;
    }
    b->p = q;
    b->cap = cap;
  }
  if (n) memcpy(b->p + b->n, p, n);
  b->n += n;
  return 0;
}

/* A head byte and `size` bytes of v, big-endian. */
static int head(struct rb_bytes *b, uint8_t tag, uint64_t v, int size) {
  uint8_t h[9] = {tag};
  for (int i = 0; i < size; i++) h[1 + i] = (uint8_t)(v >> (8 * (size - 1 - i)));
  return rb_bytes_add(b, h, 1 + (size_t)size);
}

static int sized(struct rb_bytes *b, size_t n, uint8_t fix, size_t fix_max, uint8_t t8, uint8_t t16, uint8_t t32) {
  if (n <= fix_max && fix) return head(b, (uint8_t)(fix | n), 0, 0);
  if (n <= 0xff && t8) return head(b, t8, n, 1);
  if (n <= 0xffff) return head(b, t16, n, 2);
  if (n <= 0xffffffffu) return head(b, t32, n, 4);
  PyErr_SetString(PyExc_OverflowError, "a msgpack value is at most 4 GiB long");
  return -1;
}

static int pack_int(struct rb_bytes *b, PyObject *v) {
  int overflow;
  long long n = PyLong_AsLongLongAndOverflow(v, &overflow);
  if (n == -1 && !overflow && PyErr_Occurred()) return -1;
  if (overflow > 0) {
    unsigned long long u = PyLong_AsUnsignedLongLong(v);
    if (u == (unsigned long long)-1 && PyErr_Occurred()) return -1;
    return head(b, 0xcf, u, 8);
  }
  if (overflow < 0) {
    PyErr_SetString(PyExc_OverflowError, "a msgpack int has at most 64 bits");
    return -1;
  }
  if (n >= 0) return n < 128 ? head(b, (uint8_t)n, 0, 0) : n <= 0xff ? head(b, 0xcc, (uint64_t)n, 1) : n <= 0xffff ? head(b, 0xcd, (uint64_t)n, 2) : n <= 0xffffffff ? head(b, 0xce, (uint64_t)n, 4) : head(b, 0xcf, (uint64_t)n, 8);
  return n >= -32 ? head(b, (uint8_t)n, 0, 0) : n >= INT8_MIN ? head(b, 0xd0, (uint64_t)n, 1) : n >= INT16_MIN ? head(b, 0xd1, (uint64_t)n, 2) : n >= INT32_MIN ? head(b, 0xd2, (uint64_t)n, 4) : head(b, 0xd3, (uint64_t)n, 8);
}

static int pack_mapping(struct rb_bytes *b, PyObject *v, int depth) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  if (sized(b, (size_t)PyDict_Size(v), 0x80, 15, 0, 0xde, 0xdf)) return -1;
  while (PyDict_Next(v, &at, &key, &value))
    if (rb_pack(b, key, depth + 1) || rb_pack(b, value, depth + 1)) return -1;
  return 0;
}

int rb_pack(struct rb_bytes *b, PyObject *v, int depth) {
  if (depth > MAX_DEPTH) {
    PyErr_Format(PyExc_ValueError, "the value is nested more than %d deep, or contains itself", MAX_DEPTH);
    return -1;
  }
  if (v == Py_None) return head(b, 0xc0, 0, 0);
  if (PyBool_Check(v)) return head(b, v == Py_True ? 0xc3 : 0xc2, 0, 0);
  if (PyLong_Check(v)) return pack_int(b, v);
  if (PyFloat_Check(v)) {
    double d = PyFloat_AsDouble(v);
    uint64_t bits;
    memcpy(&bits, &d, 8);
    return head(b, 0xcb, bits, 8);
  }
  if (PyUnicode_Check(v)) {
    Py_ssize_t n;
    const char *p = PyUnicode_AsUTF8AndSize(v, &n);
    return !p || sized(b, (size_t)n, 0xa0, 31, 0xd9, 0xda, 0xdb) ? -1 : rb_bytes_add(b, p, (size_t)n);
  }
  if (PyBytes_Check(v)) {
    Py_ssize_t n = PyBytes_Size(v);
    return sized(b, (size_t)n, 0, 0, 0xc4, 0xc5, 0xc6) ? -1 : rb_bytes_add(b, PyBytes_AsString(v), (size_t)n);
  }
  if (PyList_Check(v) || PyTuple_Check(v)) {
    bool list = PyList_Check(v);
    Py_ssize_t n = list ? PyList_Size(v) : PyTuple_Size(v);
    if (sized(b, (size_t)n, 0x90, 15, 0, 0xdc, 0xdd)) return -1;
    for (Py_ssize_t i = 0; i < n; i++)
      if (rb_pack(b, list ? PyList_GetItem(v, i) : PyTuple_GetItem(v, i), depth + 1)) return -1;
    return 0;
  }
  if (PyDict_Check(v)) return pack_mapping(b, v, depth);
  if (PyByteArray_Check(v) || PyMemoryView_Check(v)) {
    Py_buffer view;
    if (PyObject_GetBuffer(v, &view, PyBUF_SIMPLE)) return -1;
    int r = sized(b, (size_t)view.len, 0, 0, 0xc4, 0xc5, 0xc6) ? -1 : rb_bytes_add(b, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return r;
  }
  PyErr_Format(PyExc_TypeError, "a %R cannot go to another language: it takes None, bool, int, float, str, bytes, lists and dicts of them, and as a whole value a NumPy array or an Arrow table", (PyObject *)Py_TYPE(v));
  return -1;
}

struct in {
  const uint8_t *p, *end;
  PyObject *(*ext)(void *, int8_t, const uint8_t *, size_t);
  void *arg;
};

static PyObject *cut(void) {
  PyErr_SetString(PyExc_ValueError, "the msgpack data ends too early");
  return NULL;
}

static bool number(struct in *in, int size, uint64_t *v) {
  if (in->end - in->p < size) return false;
  *v = 0;
  for (int i = 0; i < size; i++) *v = *v << 8 | *in->p++;
  return true;
}

static PyObject *value(struct in *in, int depth);

static PyObject *list(struct in *in, uint64_t n, int depth) {
  if (n > (uint64_t)(in->end - in->p)) return cut();
  PyObject *out = PyList_New((Py_ssize_t)n);
  for (uint64_t i = 0; out && i < n; i++) {
    PyObject *v = value(in, depth + 1);
    if (!v || PyList_SetItem(out, (Py_ssize_t)i, v)) Py_CLEAR(out);
  }
  return out;
}

static PyObject *map(struct in *in, uint64_t n, int depth) {
  if (n > (uint64_t)(in->end - in->p)) return cut();
  PyObject *out = PyDict_New();
  for (uint64_t i = 0; out && i < n; i++) {
    PyObject *k = value(in, depth + 1), *v = k ? value(in, depth + 1) : NULL;
    if (!v || PyDict_SetItem(out, k, v)) Py_CLEAR(out);
    Py_XDECREF(k);
    Py_XDECREF(v);
  }
  return out;
}

static PyObject *text(struct in *in, uint64_t n) {
  if (n > (uint64_t)(in->end - in->p)) return cut();
  const char *p = (const char *)in->p;
  in->p += n;
  return PyUnicode_DecodeUTF8(p, (Py_ssize_t)n, "surrogateescape");
}

static PyObject *bytes(struct in *in, uint64_t n) {
  if (n > (uint64_t)(in->end - in->p)) return cut();
  const char *p = (const char *)in->p;
  in->p += n;
  return PyBytes_FromStringAndSize(p, (Py_ssize_t)n);
}

static PyObject *extension(struct in *in, uint64_t n) {
  if (n >= (uint64_t)(in->end - in->p)) return cut();
  int8_t type = (int8_t)*in->p++;
  const uint8_t *p = in->p;
  in->p += n;
  if (in->ext) return in->ext(in->arg, type, p, n);
  return PyErr_Format(PyExc_ValueError, "the msgpack data holds an extension of type %d, which has no meaning here", type);
}

static PyObject *value(struct in *in, int depth) {
  uint64_t n = 0;
  if (depth > MAX_DEPTH) return PyErr_Format(PyExc_ValueError, "the msgpack data is nested more than %d deep", MAX_DEPTH);
  if (in->p == in->end) return cut();
  uint8_t t = *in->p++;
  if (t < 0x80) return PyLong_FromLong(t);
  if (t >= 0xe0) return PyLong_FromLong((int8_t)t);
  if (t < 0x90) return map(in, t & 15, depth);
  if (t < 0xa0) return list(in, t & 15, depth);
  if (t < 0xc0) return text(in, t & 31);
  static const uint8_t size_of[32] = {0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4};
  if (!number(in, size_of[t - 0xc0], &n)) return cut();
  switch (t) {
  case 0xc0: Py_RETURN_NONE;
  case 0xc2: Py_RETURN_FALSE;
  case 0xc3: Py_RETURN_TRUE;
  case 0xc4: case 0xc5: case 0xc6: return bytes(in, n);
  case 0xc7: case 0xc8: case 0xc9: return extension(in, n);
  case 0xca: {
    uint32_t bits = (uint32_t)n;
    float f;
    memcpy(&f, &bits, 4);
    return PyFloat_FromDouble(f);
  }
  case 0xcb: {
    double d;
    memcpy(&d, &n, 8);
    return PyFloat_FromDouble(d);
  }
  case 0xcc: case 0xcd: case 0xce: case 0xcf: return PyLong_FromUnsignedLongLong(n);
  case 0xd0: return PyLong_FromLong((int8_t)n);
  case 0xd1: return PyLong_FromLong((int16_t)n);
  case 0xd2: return PyLong_FromLong((int32_t)n);
  case 0xd3: return PyLong_FromLongLong((int64_t)n);
  case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return extension(in, 1u << (t - 0xd4));
  case 0xd9: case 0xda: case 0xdb: return text(in, n);
  case 0xdc: case 0xdd: return list(in, n, depth);
  case 0xde: case 0xdf: return map(in, n, depth);
  default: return PyErr_Format(PyExc_ValueError, "the msgpack data holds an unknown byte 0x%x", t);
  }
}

PyObject *rb_unpack_with(const uint8_t *p, size_t n, PyObject *(*ext)(void *, int8_t, const uint8_t *, size_t), void *arg) {
  struct in in = {p, p + n, ext, arg};
  return value(&in, 0);   /* padding may follow */
}

PyObject *rb_unpack(const uint8_t *p, size_t n) { return rb_unpack_with(p, n, NULL, NULL); }

static PyObject *pack_(PyObject *self, PyObject *v) {
  (void)self;
  struct rb_bytes b = {0};
  PyObject *out = rb_pack(&b, v, 0) ? NULL : PyBytes_FromStringAndSize((const char *)b.p, (Py_ssize_t)b.n);
  free(b.p);
  return out;
}

static PyObject *unpack_(PyObject *self, PyObject *data) {
  (void)self;
  Py_buffer b;
  if (PyObject_GetBuffer(data, &b, PyBUF_SIMPLE)) return NULL;
  PyObject *out = rb_unpack(b.buf, (size_t)b.len);
  PyBuffer_Release(&b);
  return out;
}

PyMethodDef rb_msgpack_methods[] = {{"pack", pack_, METH_O, "A plain value as msgpack."},
                                    {"unpack", unpack_, METH_O, "The plain value that begins the msgpack data."},
                                    {NULL, NULL, 0, NULL}};
