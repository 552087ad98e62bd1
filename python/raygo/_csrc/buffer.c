/* Buffer: the bytes of one object.  Views keep it, it keeps the pin.
 *
 * Shared bytes are read-only: the arena is mapped so.  For libraries whose arrays are always writable, private() maps the same pages
 * copy-on-write: reading copies nothing, writing stays in this process. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "binding.h"
#include "client_int.h"

typedef struct {
  PyObject_HEAD
  const uint8_t *data;
  uint64_t len;
  rg_pin *pin;          /* one reference; NULL: the memory is ours */
  void *map;            /* a private mapping, or what malloc gave when map_len is 0 */
  size_t map_len;
  bool writable;
} buffer;

static PyTypeObject *buffer_type;

PyObject *rb_buffer_new(const uint8_t *data, uint64_t len, rg_pin *pin) {
  buffer *b = (buffer *)PyType_GenericAlloc(buffer_type, 0);
  if (!b) return NULL;
  rg_pin_incref(pin);
  b->data = data;
  b->len = len;
  b->pin = pin;
  return (PyObject *)b;
}

static void buffer_dealloc(PyObject *self) {
  buffer *b = (buffer *)self;
  PyTypeObject *t = Py_TYPE(self);
  if (b->map_len) munmap(b->map, b->map_len);
  else free(b->map);
  if (b->pin) rg_pin_decref(b->pin);
  freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);
  release(self);
  Py_DECREF(t);
}

static int buffer_get(PyObject *self, Py_buffer *view, int flags) {
  buffer *b = (buffer *)self;
  return PyBuffer_FillInfo(view, self, (void *)(uintptr_t)b->data, (Py_ssize_t)b->len, !b->writable, flags);
}

static Py_ssize_t buffer_len(PyObject *self) { return (Py_ssize_t)((buffer *)self)->len; }

static PyObject *buffer_private(PyObject *self, PyObject *unused) {
  (void)unused;
  buffer *b = (buffer *)self, *out = (buffer *)PyType_GenericAlloc(buffer_type, 0);
  if (!out) return NULL;
  out->len = b->len;
  out->writable = true;
  rg_client *c = b->pin ? b->pin->c : NULL;
  /* Small ones are copied: a mapping costs more, and the kernel limits how many there are. */
  if (c && b->len >= 256 << 10 && c->arena_fd >= 0 && b->data >= c->arena_ro && b->data < c->arena_ro + c->arena_size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), at = (size_t)(b->data - c->arena_ro), from = at & ~(page - 1);
    size_t n = (at + b->len - from + page - 1) & ~(page - 1);
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, c->arena_fd, (off_t)from);
    if (p != MAP_FAILED) {
      rg_pin_incref(b->pin);
      out->pin = b->pin;
      out->map = p;
      out->map_len = n;
      out->data = (uint8_t *)p + (at - from);
      return (PyObject *)out;
    }
  }
  if (posix_memalign(&out->map, 64, b->len ? b->len : 1)) {
    out->map = NULL;
    Py_DECREF(out);
    return PyErr_NoMemory();
  }
  rg_copy(out->map, b->data, b->len);
  out->data = out->map;
  return (PyObject *)out;
}

static PyObject *buffer_address(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)((buffer *)self)->data);
}

static PyObject *buffer_repr(PyObject *self) {
  buffer *b = (buffer *)self;
  return PyUnicode_FromFormat("<raygo._binding.Buffer of %zd bytes, %s>", (Py_ssize_t)b->len, b->writable ? "private" : "read-only");
}

static PyMethodDef buffer_methods[] = {{"private", buffer_private, METH_NOARGS, "The same bytes, writable, for this process alone: copied page by page as they are written."},
                                       {NULL, NULL, 0, NULL}};
static PyGetSetDef buffer_fields[] = {{"address", buffer_address, NULL, "Where the bytes are.", NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot buffer_slots[] = {{Py_tp_doc, "Bytes of one object."}, {Py_tp_dealloc, buffer_dealloc}, {Py_bf_getbuffer, buffer_get}, {Py_sq_length, buffer_len},
                                     {Py_tp_repr, buffer_repr}, {Py_tp_methods, buffer_methods}, {Py_tp_getset, buffer_fields}, {0, NULL}};
static PyType_Spec buffer_spec = {"raygo._binding.Buffer", sizeof(buffer), 0, Py_TPFLAGS_DEFAULT, buffer_slots};

int rb_buffer_ready(PyObject *module) { return rb_add_type(module, "Buffer", &buffer_spec, &buffer_type); }
