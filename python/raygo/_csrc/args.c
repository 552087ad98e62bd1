/* Arguments to the block that travels with a task, and back.  The layout stands in binding.h. */
#include <stdlib.h>
#include "binding.h"

#define PAD8(n) (((size_t)(n) + 7) & ~(size_t)7)
#define QUICK_TOP 32   /* more references than this take the general way */

/* ------------------------------------------------------------------------------------------------ to a block */

static int add_top(struct rb_args *a, uint32_t *places, uint32_t place, PyObject *ref) {
  rb_ref *r = (rb_ref *)ref;
  if (rb_ref_usable(r, rb_ses)) return -1;
  a->top[a->ntop] = r->slot->oid;
  if (places) places[a->ntop] = place;
  a->ntop++;
  return 0;
}

/* What is certainly larger than a frame may carry; said without pickling. */
static bool is_large(PyObject *v) {
  PyTypeObject *t = Py_TYPE(v);
  if (t == &PyBytes_Type) return PyBytes_Size(v) > (Py_ssize_t)RG_INLINE_MAX;
  if (t == &PyUnicode_Type) return PyUnicode_GetLength(v) > (Py_ssize_t)RG_INLINE_MAX;
  return false;
}

static bool is_top(PyObject *v) { return Py_TYPE(v) == rb_py.ref_type || rb_is_ref(v); }

/* 0, -1, or 1: not for this way. */
static int quick(struct rb_args *a, PyObject *args, PyObject *kwargs, uint32_t ntop) {
  Py_ssize_t n = PyTuple_Size(args), at = 0;
  struct rg_args h = {RB_A_VERSION, kwargs ? RB_A_KW : 0, 0, ntop, 0, 0};
  uint32_t *places = (uint32_t *)(a->small + sizeof h);
  uint8_t *body = a->small + sizeof h + PAD8(ntop * 4);
  struct rb_enc e;
  e.p = body;
  e.end = a->small + sizeof a->small - 4;
  e.budget = 64;
  e.nseen = 0;
  if (ntop & 1) places[ntop] = 0;
  *e.p++ = 0x80;
  *e.p++ = 5;
  if (n > 3) *e.p++ = '(';
  int r = 0;
  for (Py_ssize_t i = 0; i < n && !r; i++) {
    PyObject *v = PyTuple_GetItem(args, i);
    if (is_top(v)) {
      if (e.p >= e.end) return 1;
      *e.p++ = 'N';
      r = add_top(a, places, (uint32_t)i, v);
    } else {
      r = rb_enc_value(&e, v, 0);
    }
  }
  if (r || e.end - e.p < 8) return r ? r : 1;
  static const uint8_t ops[] = {')', 0x85, 0x86, 0x87};
  *e.p++ = n > 3 ? 't' : ops[n];
  if (kwargs) {
    PyObject *key, *v;
    uint32_t k = 0;
    *e.p++ = '}';
    *e.p++ = '(';
    while (!r && PyDict_Next(kwargs, &at, &key, &v)) {
      r = rb_enc_value(&e, key, 0);
      if (!r && is_top(v)) {
        if (e.p >= e.end) return 1;
        *e.p++ = 'N';
        r = add_top(a, places, RB_A_BYNAME | k, v);
      } else if (!r) {
        r = rb_enc_value(&e, v, 0);
      }
      k++;
    }
    if (r || e.end - e.p < 4) return r ? r : 1;
    *e.p++ = 'u';
    *e.p++ = 0x86;
  }
  *e.p++ = '.';
  h.body_len = (uint32_t)(e.p - body);
  memcpy(a->small, &h, sizeof h);
  a->block = a->small;
  a->len = (size_t)(e.p - a->small);
  return 0;
}

/* Borrowed: v itself, or the reference that now stands for it. */
static PyObject *by_reference(struct rb_session *s, struct rb_args *a, PyObject *v) {
  struct rb_ser ser;
  if (rb_ser_begin(&ser, v)) return NULL;
  PyObject *ref = ser.size > RG_INLINE_MAX ? rb_put(s, &ser) : Py_NewRef(v);
  rb_ser_end(&ser);
  if (!ref) return NULL;
  if (!a->keep && !(a->keep = PyList_New(0))) {
    Py_DECREF(ref);
    return NULL;
  }
  int r = PyList_Append(a->keep, ref);
  Py_DECREF(ref);
  return r ? NULL : ref;
}

/* One pass over everything: large ones become references, references become None and a place. */
static int substitute(struct rb_session *s, struct rb_args *a, PyObject *args, PyObject *kwargs, bool measure, uint32_t *places, PyObject **out) {
  Py_ssize_t n = PyTuple_Size(args), at = 0;
  PyObject *t = PyTuple_New(n), *d = kwargs ? PyDict_New() : NULL, *key, *v;
  a->ntop = 0;
  if (!t || (kwargs && !d)) goto fail;
  for (Py_ssize_t i = 0; i < n; i++) {
    v = PyTuple_GetItem(args, i);
    if ((measure || is_large(v)) && !is_top(v) && !(v = by_reference(s, a, v))) goto fail;
    if (is_top(v)) {
      if (add_top(a, places, (uint32_t)i, v)) goto fail;
      v = Py_None;
    }
    PyTuple_SetItem(t, i, Py_NewRef(v));
  }
  uint32_t k = 0;
  while (kwargs && PyDict_Next(kwargs, &at, &key, &v)) {
    if ((measure || is_large(v)) && !is_top(v) && !(v = by_reference(s, a, v))) goto fail;
    if (is_top(v)) {
      if (add_top(a, places, RB_A_BYNAME | k, v)) goto fail;
      v = Py_None;
    }
    if (PyDict_SetItem(d, key, v)) goto fail;
    k++;
  }
  *out = kwargs ? PyTuple_Pack(2, t, d) : Py_NewRef(t);
  Py_DECREF(t);
  Py_XDECREF(d);
  return *out ? 0 : -1;
fail:
  Py_XDECREF(t);
  Py_XDECREF(d);
  return -1;
}

static int general(struct rb_session *s, struct rb_args *a, PyObject *args, PyObject *kwargs) {
  size_t most = (size_t)PyTuple_Size(args) + (kwargs ? (size_t)PyDict_Size(kwargs) : 0);
  uint32_t *places = malloc((most + 2) * sizeof *places);
  PyObject *whole = NULL;
  int r = -1;
  if (!places || (most > sizeof a->small_top / sizeof *a->small_top && !(a->top = malloc(most * sizeof *a->top)))) {
    a->top = a->small_top;
    free(places);
    PyErr_NoMemory();
    return -1;
  }
  if (substitute(s, a, args, kwargs, false, places, &whole) || rb_ser_begin_as(&a->ser, whole, kwargs ? RB_ARGUMENTS_KW : RB_ARGUMENTS)) goto done;
  if (a->ser.size > RG_INLINE_MAX) {   /* one of them must be large, or many are not small: whatever is large alone is put */
    rb_ser_end(&a->ser);
    a->ser.owner = NULL;
    Py_CLEAR(whole);
    if (substitute(s, a, args, kwargs, true, places, &whole) || rb_ser_begin_as(&a->ser, whole, kwargs ? RB_ARGUMENTS_KW : RB_ARGUMENTS)) goto done;
  }
  struct rb_ser *v = &a->ser;
  size_t head = sizeof(struct rg_args) + v->nbuf * sizeof(struct rg_bufent) + PAD8(a->ntop * 4);
  a->len = head + v->body_len;
  for (uint32_t i = 0; i < v->nbuf; i++) a->len = PAD8(a->len) + (size_t)v->bufs[i].len;
  if (a->len > RG_MAX_FRAME / 2 || !(a->block = calloc(1, a->len))) {
    rb_ser_end(v);
    if (a->len > RG_MAX_FRAME / 2) PyErr_Format(PyExc_ValueError, "the arguments of one call take %zu bytes, too many: put them with raygo.put() and pass the references", a->len);
    else PyErr_NoMemory();
    goto done;
  }
  a->heap = true;
  struct rg_args h = {RB_A_VERSION, kwargs ? RB_A_KW : 0, (uint16_t)v->nbuf, a->ntop, (uint32_t)v->body_len, 0};
  struct rg_bufent *ent = (struct rg_bufent *)(a->block + sizeof h);
  memcpy(a->block, &h, sizeof h);
  if (a->ntop) memcpy(ent + v->nbuf, places, a->ntop * sizeof *places);
  memcpy(a->block + head, v->body, v->body_len);
  size_t at = head + v->body_len;
  for (uint32_t i = 0; i < v->nbuf; i++) {
    at = PAD8(at);
    ent[i] = (struct rg_bufent){at, (uint64_t)v->bufs[i].len};
    if (v->bufs[i].len) memcpy(a->block + at, v->bufs[i].buf, (size_t)v->bufs[i].len);
    at += (size_t)v->bufs[i].len;
  }
  r = 0;
done:
  free(places);
  Py_XDECREF(whole);
  return r;
}

/* Plain values only, each argument by itself. */
static int as_msgpack(struct rb_args *a, PyObject *args, PyObject *kwargs) {
  if (kwargs) {
    PyErr_SetString(PyExc_TypeError, "a function of another language takes positional arguments only");
    return -1;
  }
  Py_ssize_t n = PyTuple_Size(args);
  struct rb_bytes b = {0};
  uint8_t head[3] = {0xdc, (uint8_t)(n >> 8), (uint8_t)n};
  if (n > QUICK_TOP * 8 || (n > (Py_ssize_t)(sizeof a->small_top / sizeof *a->small_top) && !(a->top = malloc((size_t)n * sizeof *a->top)))) {
    a->top = a->small_top;
    PyErr_Format(PyExc_ValueError, "a function of another language takes at most %d arguments", QUICK_TOP * 8);
    return -1;
  }
  int r = rb_bytes_add(&b, head, sizeof head);
  for (Py_ssize_t i = 0; i < n && !r; i++) {
    PyObject *v = PyTuple_GetItem(args, i);
    if (is_top(v)) {
      uint8_t ext[6] = {0xd6, 1};   /* fixext 4 */
      memcpy(ext + 2, &a->ntop, 4);
      r = add_top(a, NULL, 0, v) ? -1 : rb_bytes_add(&b, ext, sizeof ext);
    } else {
      r = rb_pack(&b, v, 0);
    }
  }
  a->block = b.p;
  a->len = b.n;
  a->heap = true;
  return r;
}

int rb_args_begin(struct rb_session *s, struct rb_args *a, PyObject *args, PyObject *kwargs, bool msgpack) {
  a->ntop = 0;
  a->top = a->small_top;
  a->keep = NULL;
  a->block = NULL;
  a->len = 0;
  a->heap = false;
  a->ser.owner = NULL;
  a->ser.bufs = NULL;
  a->ser.nbuf = 0;
  a->ser.refs.n = 0;
  a->ser.refs.ses = NULL;
  a->ser.refs.oids = a->ser.refs.small_oids;
  Py_ssize_t n = PyTuple_Size(args);
  if (kwargs && PyDict_Size(kwargs) == 0) kwargs = NULL;
  if (msgpack) {
    int r = as_msgpack(a, args, kwargs);
    if (r) rb_args_end(a);
    return r;
  }
  if (n == 0 && !kwargs) return 0;
  uint32_t ntop = 0;
  for (Py_ssize_t i = 0; i < n; i++) ntop += is_top(PyTuple_GetItem(args, i));
  PyObject *key, *v;
  Py_ssize_t at = 0;
  while (kwargs && PyDict_Next(kwargs, &at, &key, &v)) ntop += is_top(v);
  int r = 1;
  if (ntop <= sizeof a->small_top / sizeof *a->small_top) {
    rb_collector_begin(&a->ser.refs);
    r = quick(a, args, kwargs, ntop);
    rb_collector_close(&a->ser.refs);
    if (r) rb_collector_end(&a->ser.refs);
  }
  if (r > 0) r = general(s, a, args, kwargs);
  if (r) {
    a->ser.owner = NULL;   /* rb_ser_begin cleans up after itself */
    a->ser.bufs = NULL;
    a->ser.nbuf = 0;
    rb_args_end(a);
  }
  return r;
}

void rb_args_end(struct rb_args *a) {
  rb_ser_end(&a->ser);
  if (a->heap) free(a->block);
  if (a->top != a->small_top) free(a->top);
  Py_XDECREF(a->keep);
}

/* ------------------------------------------------------------------------------------------------ from a block */

static PyObject *resolved(const struct rg_arg *g) { return rb_load(g->data, g->len, g->pin, g->is_error); }

struct ext_arg { rg_task *t; };

static PyObject *reference_ext(void *arg, int8_t type, const uint8_t *p, size_t n) {
  struct ext_arg *e = arg;
  uint32_t i;
  if (type != 1 || n != sizeof i || (memcpy(&i, p, sizeof i), i >= e->t->x.ntop)) return PyErr_Format(PyExc_ValueError, "the task's arguments name a reference that did not come");
  return resolved(&e->t->top[i]);
}

static int load_msgpack(rg_task *t, PyObject **args) {
  struct ext_arg e = {t};
  PyObject *list = t->x.args_len ? rb_unpack_with(t->args, t->x.args_len, reference_ext, &e) : PyList_New(0);
  if (list && !PyList_Check(list)) PyErr_SetString(PyExc_ValueError, "the task's arguments are not a msgpack array");
  else if (list) *args = PyList_AsTuple(list);
  Py_XDECREF(list);
  return *args ? 0 : -1;
}

static PyObject *own_tuple(PyObject *t) {   /* steals t; a tuple that nobody else has seen */
  if (!t || Py_REFCNT(t) == 1) return t;
  Py_ssize_t n = PyTuple_Size(t);
  PyObject *copy = PyTuple_New(n);
  for (Py_ssize_t i = 0; copy && i < n; i++) PyTuple_SetItem(copy, i, Py_NewRef(PyTuple_GetItem(t, i)));
  Py_DECREF(t);
  return copy;
}

static int place(PyObject *args, PyObject *kwargs, uint32_t at, PyObject *v) {   /* steals v */
  if (!(at & RB_A_BYNAME)) {
    if ((Py_ssize_t)at < PyTuple_Size(args)) return PyTuple_SetItem(args, (Py_ssize_t)at, v);
  } else if (kwargs) {
    PyObject *key, *old;
    Py_ssize_t pos = 0;
    at &= ~(uint32_t)RB_A_BYNAME;
    while (PyDict_Next(kwargs, &pos, &key, &old))
      if (at-- == 0) {
        int r = PyDict_SetItem(kwargs, key, v);
        Py_DECREF(v);
        return r;
      }
  }
  Py_DECREF(v);
  PyErr_SetString(PyExc_ValueError, "the task's arguments have no place for a reference that came");
  return -1;
}

int rb_args_load(rg_task *t, bool msgpack, PyObject **args, PyObject **kwargs) {
  *args = *kwargs = NULL;
  if (msgpack) return load_msgpack(t, args);
  if (!t->x.args_len) {
    *args = Py_NewRef(rb_py.empty_tuple);
    return 0;
  }
  struct rg_args h;
  if (t->x.args_len < sizeof h) goto malformed;
  memcpy(&h, t->args, sizeof h);
  size_t head = sizeof h + h.nbuf * sizeof(struct rg_bufent) + PAD8((size_t)h.ntop * 4);
  if (h.version != RB_A_VERSION || head > t->x.args_len || h.body_len > t->x.args_len - head || h.ntop != t->x.ntop) goto malformed;
  const struct rg_bufent *ent = (const struct rg_bufent *)(t->args + sizeof h);
  PyObject *whole = rb_load_args(t->args + head, h.body_len, ent, h.nbuf, t->args, t->x.args_len);
  if (!whole) return -1;
  if (!PyTuple_Check(whole) || ((h.flags & RB_A_KW) && PyTuple_Size(whole) != 2)) {
    Py_DECREF(whole);
    goto malformed;
  }
  if (h.flags & RB_A_KW) {
    *args = Py_NewRef(PyTuple_GetItem(whole, 0));
    *kwargs = Py_NewRef(PyTuple_GetItem(whole, 1));
    Py_DECREF(whole);
  } else {
    *args = whole;
  }
  const uint32_t *places = (const uint32_t *)(ent + h.nbuf);
  if (h.ntop) *args = own_tuple(*args);
  for (uint32_t i = 0; i < h.ntop && *args; i++) {
    PyObject *v = resolved(&t->top[i]);
    if (!v || place(*args, *kwargs, places[i], v)) Py_CLEAR(*args);
  }
  if (*args) return 0;
  Py_CLEAR(*kwargs);
  return -1;
malformed:
  PyErr_SetString(PyExc_ValueError, "the task's arguments are not whole, or come from another version of raygo");
  return -1;
}
