/* Values to blobs and back. */
#include <stdlib.h>
#include "binding.h"

#define ALIGN64(n) (((uint64_t)(n) + 63) & ~(uint64_t)63)

/* ------------------------------------------------------------------------------------------------ writing */

/* How many buffers the blob names: the first `joined` ones stand in a row and are one. */
static uint32_t listed(const struct rb_ser *s) { return s->joined ? s->nbuf - s->joined + 1 : s->nbuf; }

static void measure(struct rb_ser *s) {
  uint64_t at = sizeof(struct rg_blob) + listed(s) * sizeof(struct rg_bufent) + s->body_len;
  for (uint32_t i = 0; i < s->nbuf; i++) at = ALIGN64(at) + (uint64_t)s->bufs[i].len;
  s->size = at;
}

static void in_small(struct rb_ser *s, uint8_t format, size_t body_len) {
  struct rg_blob h = {format, 0, 0, 0, body_len};
  memcpy(s->small, &h, sizeof h);
  s->format = format;
  s->body = s->small + sizeof h;
  s->body_len = body_len;
  s->size = sizeof h + body_len;
  s->contiguous = true;
}

static void drop_buffers(struct rb_ser *s) {
  for (uint32_t i = 0; i < s->nbuf; i++) PyBuffer_Release(&s->bufs[i]);
  free(s->bufs);
  s->bufs = NULL;
  s->nbuf = 0;
}

/* body: stolen. buffers: borrowed list, may be NULL. */
static int take(struct rb_ser *s, uint8_t format, PyObject *body, PyObject *buffers) {
  Py_buffer view;
  s->owner = body;
  s->format = format;
  if (PyBytes_Check(body)) {
    s->body = (const uint8_t *)PyBytes_AsString(body);
    s->body_len = (uint64_t)PyBytes_Size(body);
  } else {   /* held as the last buffer, but not counted as one */
    if (PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)) return -1;
    s->body = view.buf;
    s->body_len = (uint64_t)view.len;
    PyObject *keep = PyMemoryView_FromObject(body);
    PyBuffer_Release(&view);
    if (!keep) return -1;
    s->owner = keep;
    Py_DECREF(body);
  }
  Py_ssize_t n = buffers ? PyList_Size(buffers) : 0;
  if (n > 0) {
    s->bufs = malloc((size_t)n * sizeof *s->bufs);
    if (!s->bufs) {
      PyErr_NoMemory();
      return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
      if (PyObject_GetBuffer(PyList_GetItem(buffers, i), &s->bufs[i], PyBUF_ANY_CONTIGUOUS)) return -1;
      s->nbuf++;
    }
  }
  measure(s);
  return 0;
}

static PyObject *append_of(PyObject *list) { return PyObject_GetAttrString(list, "append"); }

static int by_pickler(struct rb_ser *s, PyObject *v, bool arrays) {
  PyObject *body, *buffers = NULL;
  if (!arrays) {
    body = PyObject_CallFunctionObjArgs(rb_py.pickle_dumps, v, rb_py.proto5, NULL);
  } else {
    buffers = PyList_New(0);
    PyObject *callback = buffers ? append_of(buffers) : NULL, *args = callback ? PyTuple_Pack(2, v, rb_py.proto5) : NULL, *kw = args ? PyDict_New() : NULL;
    body = kw && PyDict_SetItem(kw, rb_py.kw_buffer_callback, callback) == 0 ? PyObject_Call(rb_py.pickle_dumps, args, kw) : NULL;
    Py_XDECREF(callback);
    Py_XDECREF(args);
    Py_XDECREF(kw);
    if (body && PyList_Size(buffers) > UINT16_MAX) {   /* more than a blob can list: in the pickle itself then */
      Py_CLEAR(buffers);
      Py_DECREF(body);
      body = PyObject_CallFunctionObjArgs(rb_py.pickle_dumps, v, rb_py.proto5, NULL);
    }
  }
  int r = body ? take(s, RG_B_PICKLE, body, buffers) : -1;
  Py_XDECREF(buffers);
  return r;
}

/* The package's serializer: (format, bytes, list of buffers, how many of these are parts of the first). */
static int by_package(struct rb_ser *s, PyObject *v, enum rb_ser_what what) {
  if (!rb_py.serialize) {
    PyErr_SetString(PyExc_RuntimeError, "raygo._serialization was not loaded: import raygo before using its binding");
    return -1;
  }
  PyObject *out = what ? PyObject_CallFunction(rb_py.serialize, "Oi", v, (int)what) : PyObject_CallFunctionObjArgs(rb_py.serialize, v, NULL);
  if (!out) return -1;
  int r = -1;
  PyObject *body, *buffers;
  int format, joined;
  if (!PyTuple_Check(out) || !PyArg_ParseTuple(out, "iOO!i", &format, &body, &PyList_Type, &buffers, &joined) || joined > PyList_Size(buffers)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a serializer returns (format, body, buffers, joined)");
  } else {
    s->joined = (uint32_t)joined;
    r = take(s, (uint8_t)format, Py_NewRef(body), buffers);
  }
  Py_DECREF(out);
  return r;
}

static void start(struct rb_ser *s) {
  s->owner = NULL;
  s->bufs = NULL;
  s->nbuf = s->joined = 0;
  s->contiguous = false;
  rb_collector_begin(&s->refs);
}

static int finish(struct rb_ser *s, int r) {
  rb_collector_close(&s->refs);
  if (r) {
    drop_buffers(s);
    Py_CLEAR(s->owner);
    rb_collector_end(&s->refs);
  }
  return r;
}

int rb_ser_begin_as(struct rb_ser *s, PyObject *v, enum rb_ser_what what) {
  start(s);
  PyTypeObject *t = Py_TYPE(v);
  if (v == Py_None) {
    in_small(s, RG_B_NONE, 0);
    return finish(s, 0);
  }
  if (t == &PyBytes_Type) {
    Py_ssize_t n = PyBytes_Size(v);
    if (n <= (Py_ssize_t)(RB_SMALL - sizeof(struct rg_blob))) {
      memcpy(s->small + sizeof(struct rg_blob), PyBytes_AsString(v), (size_t)n);
      in_small(s, RG_B_BYTES, (size_t)n);
      return finish(s, 0);
    }
    return finish(s, take(s, RG_B_BYTES, Py_NewRef(v), NULL));
  }
  if (what == RB_VALUE && rb_tensor_take(s, v)) {
    measure(s);
    return finish(s, 0);
  }
  struct rb_enc e;
  e.p = s->small + sizeof(struct rg_blob);
  e.end = s->small + RB_SMALL - 1;
  e.budget = 64;
  e.nseen = 0;
  *e.p++ = 0x80;
  *e.p++ = 5;
  int r = rb_enc_value(&e, v, 0);
  if (r == 0) {
    *e.p++ = '.';
    in_small(s, RG_B_PICKLE, (size_t)(e.p - s->small) - sizeof(struct rg_blob));
    return finish(s, 0);
  }
  if (r < 0) return finish(s, -1);
  if (s->refs.n) {   /* the second attempt meets them again */
    finish(s, -1);
    start(s);
  }
  PyObject *refs = rb_enc_refs(v);
  if (refs) return finish(s, take(s, RG_B_PICKLE, refs, NULL));
  if (PyErr_Occurred()) return finish(s, -1);
  struct rb_plain seen = {1 << 20, false};
  return finish(s, rb_is_plain(v, 0, &seen) ? by_pickler(s, v, seen.arrays) : by_package(s, v, what));
}

int rb_ser_begin(struct rb_ser *s, PyObject *v) { return rb_ser_begin_as(s, v, RB_VALUE); }

int rb_ser_error(struct rb_ser *s, PyObject *v) {
  start(s);
  int r = by_package(s, v, RB_VALUE);
  s->format = RG_B_ERROR;
  return finish(s, r);
}

int rb_ser_raw(struct rb_ser *s, uint8_t format, PyObject *body) {
  start(s);
  return finish(s, take(s, format, body, NULL));
}

void rb_ser_write(struct rb_ser *s, uint8_t *to, rg_client *arena) {
  if (s->contiguous) {
    memcpy(to, s->small, s->size);
    return;
  }
  struct rg_blob h = {s->format, 0, (uint16_t)listed(s), 0, s->body_len};
  memcpy(to, &h, sizeof h);
  struct rg_bufent *ent = (struct rg_bufent *)(to + sizeof h), b = {0, 0};
  uint64_t at = sizeof h + h.nbuf * sizeof *ent;
  if (arena) rg_fill(arena, to + at, s->body, s->body_len);
  else memcpy(to + at, s->body, s->body_len);
  at += s->body_len;
  for (uint32_t i = 0; i < s->nbuf; i++) {
    uint64_t from = ALIGN64(at), n = (uint64_t)s->bufs[i].len;
    memset(to + at, 0, from - at);
    if (!i || i >= s->joined) b.off = from;
    b.len = from + n - b.off;
    memcpy(&ent[i < s->joined ? 0 : s->joined ? i - s->joined + 1 : i], &b, sizeof b);
    if (arena) rg_fill(arena, to + from, s->bufs[i].buf, n);
    else if (n) memcpy(to + from, s->bufs[i].buf, n);
    at = from + n;
  }
}

void rb_ser_end(struct rb_ser *s) {
  drop_buffers(s);
  Py_XDECREF(s->owner);
  rb_collector_end(&s->refs);
}

const uint8_t *rb_ser_inline(struct rb_ser *s, uint8_t **heap) {
  *heap = NULL;
  if (s->contiguous) return s->small;
  *heap = malloc(s->size ? s->size : 1);
  if (!*heap) return (const uint8_t *)PyErr_NoMemory();
  rb_ser_write(s, *heap, NULL);
  return *heap;
}

int rb_ser_to_arena(struct rb_session *ses, struct rb_ser *s, struct rg_oid oid, struct rg_lease **lease) {
  uint8_t *to = NULL;
  char *message = NULL;
  ses->users++;
  PyThreadState *ts = PyEval_SaveThread();
  int r = rg_create(ses->c, oid, s->size, -1, rb_check, &ts, &to, lease, &message);
  if (!r) rb_ser_write(s, to, ses->c);   /* the buffers are held, nobody can move them */
  PyEval_RestoreThread(ts);
  rb_unuse(ses);
  if (r) rb_raise(r, message);
  free(message);
  return r ? -1 : 0;
}

static PyObject *put_value(struct rb_session *ses, struct rb_ser *s) {
  rg_slot *slot = NULL;
  uint64_t n = rb_number(ses);
  if (!n) return NULL;
  if (s->size <= RG_INLINE_MAX) {
    uint8_t *heap;
    const uint8_t *blob = rb_ser_inline(s, &heap);
    if (!blob) return NULL;
    int r;
    RB_SENDING(s->size + s->refs.n * sizeof(struct rg_oid), r = rg_put(ses->c, n, blob, s->size, s->format == RG_B_ERROR, s->refs.oids, s->refs.n, &slot));
    free(heap);
    return r ? rb_raise(r, NULL) : rb_ref_new(ses, slot);
  }
  struct rg_oid oid = {n, 0, 0};
  struct rg_lease *lease;
  if (rb_ser_to_arena(ses, s, oid, &lease)) return NULL;
  slot = rg_slot_new(ses->c, n, 0, 1);
  if (!slot) {
    free(lease);
    rg_abort(ses->c, oid);
    return PyErr_NoMemory();
  }
  rg_slot_stored(slot, s->size, s->format == RG_B_ERROR, lease);
  int r;
  RB_SENDING(s->refs.n * sizeof(struct rg_oid), r = rg_seal(ses->c, oid, s->size, s->format == RG_B_ERROR, s->refs.oids, s->refs.n));
  PyObject *ref = rb_ref_new(ses, slot);
  if (r) {
    Py_XDECREF(ref);
    return rb_raise(r, NULL);
  }
  return ref;
}

PyObject *rb_put(struct rb_session *ses, struct rb_ser *s) {
  ses->users++;
  PyObject *ref = put_value(ses, s);
  if (ref) RB_NOTE_SITE(ses, ((rb_ref *)ref)->slot->oid.task, 0, 1, "(put object)");
  rb_unuse(ses);
  return ref;
}

/* ------------------------------------------------------------------------------------------------ reading */

static PyObject *malformed(void) {
  PyErr_SetString(PyExc_ValueError, "a stored value is not whole: its header names more bytes than there are");
  return NULL;
}

/* New: bytes, or a Buffer where the pin keeps the memory and copying would cost. */
static PyObject *part(const uint8_t *p, uint64_t n, rg_pin *pin) {
  return pin ? rb_buffer_new(p, n, pin) : PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)n);
}

/* New list of the nbuf buffers of a blob or argument block that begins at base. */
static PyObject *parts(const uint8_t *base, uint64_t len, const struct rg_bufent *ent, uint32_t nbuf, rg_pin *pin) {
  PyObject *list = PyList_New((Py_ssize_t)nbuf);
  for (uint32_t i = 0; list && i < nbuf; i++) {
    struct rg_bufent b;
    memcpy(&b, &ent[i], sizeof b);
    PyObject *v = b.off > len || b.len > len - b.off ? malformed() : part(base + b.off, b.len, pin);
    if (!v || PyList_SetItem(list, (Py_ssize_t)i, v)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *unpickle(const uint8_t *body, uint64_t n, PyObject *buffers, rg_pin *pin) {
  PyObject *data = part(body, n, n > 4096 ? pin : NULL), *out = NULL;
  if (data && !buffers) {
    out = PyObject_CallFunctionObjArgs(rb_py.pickle_loads, data, NULL);
  } else if (data) {
    PyObject *args = PyTuple_Pack(1, data), *kw = args ? PyDict_New() : NULL;
    if (kw && PyDict_SetItem(kw, rb_py.kw_buffers, buffers) == 0) out = PyObject_Call(rb_py.pickle_loads, args, kw);
    Py_XDECREF(args);
    Py_XDECREF(kw);
  }
  Py_XDECREF(data);
  return out;
}

PyObject *rb_load_args(const uint8_t *body, uint64_t body_len, const struct rg_bufent *ent, uint32_t nbuf, const uint8_t *base, uint64_t len) {
  bool foreign;
  if (!nbuf) {
    PyObject *v = rb_dec_value(body, body_len, &foreign);
    return foreign ? unpickle(body, body_len, NULL, NULL) : v;
  }
  PyObject *buffers = parts(base, len, ent, nbuf, NULL);
  PyObject *v = buffers ? unpickle(body, body_len, buffers, NULL) : NULL;
  Py_XDECREF(buffers);
  return v;
}

static PyObject *raise_value(PyObject *v) {   /* steals v */
  PyObject *exc = v;
  if (v && rb_py.make_error) {
    exc = PyObject_CallFunctionObjArgs(rb_py.make_error, v, NULL);
    Py_DECREF(v);
  }
  if (exc && PyExceptionInstance_Check(exc)) PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
  else if (exc) PyErr_Format(PyExc_RuntimeError, "an object holds an error that is no exception: %R", exc);
  Py_XDECREF(exc);
  return NULL;
}

PyObject *rb_load(const uint8_t *data, uint64_t len, rg_pin *pin, bool is_error) {
  struct rg_blob h;
  if (len < sizeof h) return len ? malformed() : Py_NewRef(Py_None);
  memcpy(&h, data, sizeof h);
  uint64_t at = sizeof h + h.nbuf * sizeof(struct rg_bufent);
  if (at > len || h.body_len > len - at) return malformed();
  const struct rg_bufent *ent = (const struct rg_bufent *)(data + sizeof h);
  const uint8_t *body = data + at;
  PyObject *v, *buffers = NULL;
  bool foreign = true;
  switch (h.format) {
  case RG_B_NONE: return Py_NewRef(Py_None);
  case RG_B_BYTES:
    v = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)h.body_len);
    if (v) memcpy(PyBytes_AsString(v), body, h.body_len);
    break;
  case RG_B_TENSOR: {
    struct rg_bufent b = {0, 0};
    if (h.nbuf) memcpy(&b, ent, sizeof b);
    if (h.nbuf != 1 || b.off > len || b.len > len - b.off) return malformed();
    v = rb_tensor_load(body, h.body_len, part(data + b.off, b.len, pin));
    break;
  }
  case RG_B_MSGPACK: v = rb_unpack(body, h.body_len); break;
  case RG_B_PICKLE:
  case RG_B_ERROR:
    if (!h.nbuf) {
      v = rb_dec_value(body, h.body_len, &foreign);
      if (!foreign) break;
    } else if (!(buffers = parts(data, len, ent, h.nbuf, pin))) {
      return NULL;
    }
    v = unpickle(body, h.body_len, buffers, pin);
    break;
  default: {
    if (!rb_py.deserialize) return PyErr_Format(PyExc_ValueError, "a stored value has the unknown format %d", (int)h.format);
    PyObject *format = PyLong_FromLong(h.format), *whole = part(body, h.body_len, pin);
    buffers = parts(data, len, ent, h.nbuf, pin);
    v = format && whole && buffers ? PyObject_CallFunctionObjArgs(rb_py.deserialize, format, whole, buffers, NULL) : NULL;
    Py_XDECREF(format);
    Py_XDECREF(whole);
  }
  }
  Py_XDECREF(buffers);
  return h.format == RG_B_ERROR || is_error ? raise_value(v) : v;
}

/* ------------------------------------------------------------------------------------------------ functions */

static PyObject *put(PyObject *self, PyObject *value) {
  (void)self;
  struct rb_session *ses = rb_need();
  struct rb_ser s;
  if (!ses || rb_ser_begin(&s, value)) return NULL;
  /* Pickling may have run code that ended the session. */
  PyObject *ref = RB_LIKELY(ses == rb_ses) ? rb_put(ses, &s) : rb_raise(RAYGO_ESHUTDOWN, NULL);
  rb_ser_end(&s);
  return ref;
}

static PyObject *put_blob(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *data;
  int format;
  if (!PyArg_ParseTuple(args, "Oi", &data, &format)) return NULL;
  struct rb_session *ses = rb_need();
  if (!ses) return NULL;
  struct rb_ser s;
  if (rb_ser_raw(&s, (uint8_t)format, Py_NewRef(data))) return NULL;
  PyObject *ref = rb_put(ses, &s);
  rb_ser_end(&s);
  return ref;
}

static PyObject *dumps(PyObject *self, PyObject *value) {
  (void)self;
  struct rb_ser s;
  if (rb_ser_begin(&s, value)) return NULL;
  PyObject *out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)s.size);
  if (out) rb_ser_write(&s, (uint8_t *)PyBytes_AsString(out), NULL);
  rb_ser_end(&s);
  return out;
}

static PyObject *loads(PyObject *self, PyObject *blob) {
  (void)self;
  Py_buffer b;
  if (PyObject_GetBuffer(blob, &b, PyBUF_SIMPLE)) return NULL;
  PyObject *v = rb_load(b.buf, (uint64_t)b.len, NULL, false);
  PyBuffer_Release(&b);
  return v;
}

static PyObject *serialize(PyObject *self, PyObject *value) {
  (void)self;
  struct rb_ser s;
  if (rb_ser_begin(&s, value)) return NULL;
  PyObject *buffers = PyList_New(s.nbuf), *refs = PyList_New((Py_ssize_t)s.refs.n), *body = PyBytes_FromStringAndSize((const char *)s.body, (Py_ssize_t)s.body_len), *out = NULL;
  bool ok = buffers && refs && body;
  for (uint32_t i = 0; ok && i < s.nbuf; i++) {
    PyObject *v = PyBytes_FromStringAndSize(s.bufs[i].buf, s.bufs[i].len);
    ok = v && PyList_SetItem(buffers, (Py_ssize_t)i, v) == 0;
  }
  for (uint32_t i = 0; ok && i < s.refs.n; i++) {
    rg_slot_incref(s.refs.slots[i]);
    PyObject *v = rb_ref_new(rb_ses, s.refs.slots[i]);
    ok = v && PyList_SetItem(refs, (Py_ssize_t)i, v) == 0;
  }
  if (ok) out = Py_BuildValue("iOOO", (int)s.format, body, buffers, refs);
  Py_XDECREF(body);
  Py_XDECREF(buffers);
  Py_XDECREF(refs);
  rb_ser_end(&s);
  return out;
}

PyMethodDef rb_serialize_methods[] = {{"put", put, METH_O, "Stores a value and returns its reference."},
                                      {"put_blob", put_blob, METH_VARARGS, "Stores bytes under a format number."},
                                      {"dumps", dumps, METH_O, "A value as a whole blob."},
                                      {"loads", loads, METH_O, "The value of a whole blob."},
                                      {"serialize", serialize, METH_O, "A value's parts: format, body, buffers, references."},
                                      {NULL, NULL, 0, NULL}};
