/* Reads what pickle_write.c writes.  On any other opcode it gives up without a trace, and the real unpickler reads the same bytes. */
#include "binding.h"

#define STACK 192

struct dec {
  const uint8_t *p, *end;
  PyObject *stack[STACK];   /* owned; two entries for each global */
  int n;
  int marks[16], nmarks;
};

static const char module_name[] = "raygo._binding", function_name[] = "_restore";

static inline bool has(struct dec *d, size_t n) { return (size_t)(d->end - d->p) >= n; }

static inline bool push(struct dec *d, PyObject *v) {
  if (!v || d->n == STACK) {
    Py_XDECREF(v);
    return false;
  }
  d->stack[d->n++] = v;
  return true;
}

static bool tuple(struct dec *d, int n) {
  if (n < 0 || d->n < n) return false;
  PyObject *t = PyTuple_New(n);
  if (!t) return false;
  d->n -= n;
  for (int i = 0; i < n; i++) PyTuple_SetItem(t, i, d->stack[d->n + i]);
  return push(d, t);
}

static bool append(struct dec *d, int from) {
  PyObject *l = from > 0 ? d->stack[from - 1] : NULL;
  if (!l || !PyList_CheckExact(l)) return false;
  bool ok = true;
  for (int i = from; i < d->n && ok; i++) ok = PyList_Append(l, d->stack[i]) == 0;
  while (d->n > from) Py_DECREF(d->stack[--d->n]);
  return ok;
}

static bool set_items(struct dec *d, int from) {
  PyObject *m = from > 0 ? d->stack[from - 1] : NULL;
  if (!m || !PyDict_CheckExact(m) || (d->n - from) % 2) return false;
  bool ok = true;
  for (int i = from; i < d->n && ok; i += 2) ok = PyDict_SetItem(m, d->stack[i], d->stack[i + 1]) == 0;
  while (d->n > from) Py_DECREF(d->stack[--d->n]);
  return ok;
}

/* The only global: the reference's constructor, matched as a whole. */
static bool reference(struct dec *d) {
  size_t n = 2 + sizeof module_name - 1 + 2 + sizeof function_name - 1 + 1 + 2 + 28 + 2;
  const uint8_t *p = d->p - 1;
  if ((size_t)(d->end - p) < n) return false;
  if (p[1] != sizeof module_name - 1 || memcmp(p + 2, module_name, sizeof module_name - 1) != 0) return false;
  p += 2 + sizeof module_name - 1;
  if (p[0] != 0x8c || p[1] != sizeof function_name - 1 || memcmp(p + 2, function_name, sizeof function_name - 1) != 0) return false;
  p += 2 + sizeof function_name - 1;
  if (p[0] != 0x93 || p[1] != 'C' || p[2] != 28 || p[31] != 0x85 || p[32] != 'R') return false;
  d->p = p + 33;
  return push(d, rb_restore(p + 3));
}

static bool run(struct dec *d, uint32_t n, bool text) {
  if (!has(d, n)) return false;
  const char *p = (const char *)d->p;
  d->p += n;
  return push(d, text ? PyUnicode_DecodeUTF8(p, n, "strict") : PyBytes_FromStringAndSize(p, n));
}

static bool four(struct dec *d, uint32_t *v) {
  if (!has(d, 4)) return false;
  memcpy(v, d->p, 4);
  d->p += 4;
  return true;
}

/* 1: go on, 0: not ours or an error, 2: stop */
static int step(struct dec *d) {
  uint32_t k;
  switch (*d->p++) {
  case 'N': return push(d, Py_NewRef(Py_None));
  case 0x88: return push(d, Py_NewRef(Py_True));
  case 0x89: return push(d, Py_NewRef(Py_False));
  case 'K': return has(d, 1) && push(d, PyLong_FromLong(*d->p++));
  case 'J': return four(d, &k) && push(d, PyLong_FromLong((int32_t)k));
  case 0x8a: {
    int64_t v;
    if (!has(d, 9) || *d->p != 8) return 0;
    memcpy(&v, d->p + 1, 8);
    d->p += 9;
    return push(d, PyLong_FromLongLong(v));
  }
  case 'G': {
    uint64_t bits;
    double v;
    if (!has(d, 8)) return 0;
    memcpy(&bits, d->p, 8);
    bits = __builtin_bswap64(bits);
    memcpy(&v, &bits, 8);
    d->p += 8;
    return push(d, PyFloat_FromDouble(v));
  }
  case 0x8c:
    if (!has(d, 1)) return 0;
    if (*d->p == sizeof module_name - 1 && reference(d)) return 1;
    if (PyErr_Occurred()) return 0;
    k = *d->p++;
    return run(d, k, true);
  case 'X': return four(d, &k) && run(d, k, true);
  case 'C':
    if (!has(d, 1)) return 0;
    k = *d->p++;
    return run(d, k, false);
  case 'B': return four(d, &k) && run(d, k, false);
  case ')': return push(d, PyTuple_New(0));
  case 0x85: return tuple(d, 1);
  case 0x86: return tuple(d, 2);
  case 0x87: return tuple(d, 3);
  case ']': return push(d, PyList_New(0));
  case '}': return push(d, PyDict_New());
  case '(':
    if (d->nmarks == (int)(sizeof d->marks / sizeof *d->marks)) return 0;
    d->marks[d->nmarks++] = d->n;
    return 1;
  case 't': return d->nmarks && tuple(d, d->n - d->marks[--d->nmarks]);
  case 'e': return d->nmarks && append(d, d->marks[--d->nmarks]);
  case 'u': return d->nmarks && set_items(d, d->marks[--d->nmarks]);
  case '.': return d->n == 1 && !d->nmarks ? 2 : 0;
  default: return 0;
  }
}

/* The list that rb_enc_refs wrote; NULL without an exception when the bytes are something else. */
static PyObject *list_of_refs(const uint8_t *p, size_t n) {
  size_t head = sizeof RB_REFS_HEAD - 1;
  if (n < head + RB_REF_BYTES || memcmp(p, RB_REFS_HEAD, head) != 0 || (n - head) % RB_REF_BYTES) return NULL;
  size_t count = (n - head) / RB_REF_BYTES;
  for (size_t i = 0; i < count; i++) {
    const uint8_t *q = p + head + i * RB_REF_BYTES;
    bool last = i == count - 1;
    if (q[0] != 'C' || q[1] != 28 || q[30] != 0x85 || q[31] != 'R' || q[32] != (last ? 'e' : 'h') || q[33] != (last ? '.' : 0)) return NULL;
  }
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; i++) {
    PyObject *r = rb_restore(p + head + i * RB_REF_BYTES + 2);
    if (!r || PyList_SetItem(list, (Py_ssize_t)i, r)) Py_CLEAR(list);
  }
  return list;
}

PyObject *rb_dec_value(const uint8_t *p, size_t n, bool *foreign) {
  struct dec d;
  *foreign = true;
  /* FRAME right after the protocol is the mark of the real pickler. */
  if (n < 4 || p[0] != 0x80 || p[1] != 5 || p[2] == 0x95) return NULL;
  PyObject *refs = list_of_refs(p, n);
  if (refs || PyErr_Occurred()) {
    *foreign = false;
    return refs;
  }
  d.p = p + 2;
  d.end = p + n;
  d.n = d.nmarks = 0;
  int r = 1;
  while (r == 1 && d.p < d.end) r = step(&d);
  if (r == 2) {
    *foreign = false;
    return d.stack[0];
  }
  while (d.n) Py_DECREF(d.stack[--d.n]);
  if (PyErr_Occurred()) *foreign = false;
  return NULL;
}
