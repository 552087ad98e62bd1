/* Making a group from Python: the store, the transport between nodes, and errors. */
#include <dlfcn.h>
#include <stdlib.h>
#include "group.h"

static PyObject *group_error_type;

static const char group_error_source[] =
    "class GroupError(RuntimeError):\n"
    "    'A group is broken, or a call does not fit.'\n"
    "    __module__ = 'raygo._binding'\n"
    "    def __init__(self, message, code=36, rank=-1):\n"
    "        super().__init__(message, code, rank)\n"
    "        self.code = code\n"
    "        self.rank = rank\n"
    "    def __str__(self):\n"
    "        return str(self.args[0])\n";

int rb_group_error_ready(PyObject *module) {
  PyObject *globals = PyDict_New(), *code = globals ? Py_CompileString(group_error_source, "raygo._binding", Py_file_input) : NULL, *done = NULL;
  if (code && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0) done = PyEval_EvalCode(code, globals, globals);
  if (done) group_error_type = Py_XNewRef(PyDict_GetItemString(globals, "GroupError"));
  Py_XDECREF(done);
  Py_XDECREF(code);
  Py_XDECREF(globals);
  return group_error_type ? PyModule_AddObjectRef(module, "GroupError", group_error_type) : -1;
}

PyObject *rb_group_error(const rgc_error *err) {
  PyObject *text = PyUnicode_DecodeUTF8(err->message, (Py_ssize_t)strlen(err->message), "replace");
  PyObject *e = text ? PyObject_CallFunction(group_error_type, "Oii", text, err->code, err->rank) : NULL;
  Py_XDECREF(text);
  return e;
}

PyObject *rb_group_raise(const rgc_error *err, int code) {
  if (PyErr_Occurred()) return NULL;   /* the check function's, or the store's */
  switch (code) {
  case RAYGO_EINTERRUPTED: PyErr_SetNone(PyExc_KeyboardInterrupt); return NULL;
  case RAYGO_EINVAL: PyErr_SetString(PyExc_ValueError, err->message); return NULL;
  case RAYGO_ENOMEM: PyErr_SetString(PyExc_MemoryError, err->message); return NULL;
  default: break;
  }
  PyObject *e = rb_group_error(err);
  if (e) PyErr_SetObject(group_error_type, e);
  Py_XDECREF(e);
  return NULL;
}

int rb_group_timeout(PyObject *o, int64_t *ns) {
  *ns = 0;
  if (!o || o == Py_None) return 0;
  double s = PyFloat_AsDouble(o);
  if (s == -1.0 && PyErr_Occurred()) return -1;
  if (!(s > 0)) {
    PyErr_Format(PyExc_ValueError, "a timeout is a number of seconds above 0, or None for the group's, not %R", o);
    return -1;
  }
  *ns = s < 9e9 ? (int64_t)(s * 1e9) + 1 : -1;
  return 0;
}

/* ------------------------------------------------------------------------------------------------ the store */

/* An exception of the store's ends the making of the group, and is raised in the end as it is.  The transport's threads use the store too; what it raises
 * there can only be told in words. */
struct opening { PyObject *store; unsigned long thread; PyObject *type, *value, *trace; };

static __thread struct opening *opening __attribute__((tls_model("initial-exec")));

static int store_failed(rgc_error *err, const char *what, const char *key) {
  int code = PyErr_ExceptionMatches(PyExc_TimeoutError) ? RAYGO_ETIMEDOUT : RAYGO_EGROUP;
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyErr_NormalizeException(&t, &v, &tb);
  PyObject *text = v ? PyObject_Str(v) : NULL;
  if (!text) PyErr_Clear();
  const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  if (!s) PyErr_Clear();
  err->code = code;
  err->rank = -1;
  PyOS_snprintf(err->message, sizeof err->message, "The store failed to %s %s: %.600s", what, key, s ? s : "it raised an exception");
  Py_XDECREF(text);
  if (opening && code != RAYGO_ETIMEDOUT && !opening->type) {
    opening->type = t;
    opening->value = v;
    opening->trace = tb;
    return code;
  }
  Py_XDECREF(t);
  Py_XDECREF(v);
  Py_XDECREF(tb);
  return code;
}

static int store_set(void *arg, const char *key, const void *data, size_t len, rgc_error *err) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *r = PyObject_CallMethod((PyObject *)arg, "set", "sy#", key, data, (Py_ssize_t)len);
  int code = r ? 0 : store_failed(err, "set", key);
  Py_XDECREF(r);
  PyGILState_Release(state);
  return code;
}

static int store_get(void *arg, const char *key, int64_t timeout_ns, void **data, size_t *len, rgc_error *err) {
  *data = NULL;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *r = PyObject_CallMethod((PyObject *)arg, "get", "sd", key, timeout_ns < 0 ? 1e9 : (double)timeout_ns / 1e9);
  Py_buffer b;
  int code = 0;
  if (r && !PyObject_GetBuffer(r, &b, PyBUF_SIMPLE)) {
    *data = malloc(b.len ? (size_t)b.len : 1);
    *len = (size_t)b.len;
    if (*data) memcpy(*data, b.buf, *len);
    else code = RAYGO_ENOMEM;
    PyBuffer_Release(&b);
  } else {
    code = store_failed(err, "get", key);
  }
  Py_XDECREF(r);
  PyGILState_Release(state);
  return code;
}

/* ------------------------------------------------------------------------------------------------ the transport */

static int net_open(void *arg, const rgc_net_spec *spec, rgc_net *out, rgc_error *err) {
  void *lib = dlopen(arg, RTLD_NOW | RTLD_LOCAL);
  int (*open)(const rgc_net_spec *, rgc_net *, rgc_error *) = NULL;
  if (lib) *(void **)&open = dlsym(lib, "raygo_net_open");
  if (open) return open(spec, out, err);
  const char *why = dlerror();
  err->code = RAYGO_EINTERNAL;
  err->rank = -1;
  PyOS_snprintf(err->message, sizeof err->message, "The transport between nodes could not be loaded from %s: %s", (char *)arg, why ? why : "no reason given");
  return RAYGO_EINTERNAL;
}

/* ------------------------------------------------------------------------------------------------ opening */

int rb_group_open(rb_group *self, const char *name, int rank, int size, PyObject *store, PyObject *timeout, const char *node, unsigned long long arena, PyObject *library) {
  rgc_options o = {.struct_size = sizeof o, .name = name, .rank = rank, .size = size, .node = node, .arena_bytes = (size_t)arena};
  rgc_error err = {.rank = -1};
  struct opening now = {.store = store};
  PyObject *path = NULL;
  if (rb_group_timeout(timeout, &o.timeout_ns)) return -1;
  if (store != Py_None) o.store = (rgc_store){store, store_set, store_get};
  if (library != Py_None) {
    if (!PyUnicode_FSConverter(library, &path)) return -1;
    o.net_open = net_open;
    o.net_arg = PyBytes_AsString(path);
  }
  self->store = Py_NewRef(store);
  self->library = path;             /* the group, and groups split from it, point into it */
  struct opening *outer = opening;
  opening = &now;
  PyThreadState *ts = PyEval_SaveThread();
  rgc_wait wait = {0, rb_check, &ts};
  rgc_group *g;
  int r = rgc_open(&o, &wait, &g, &err);
  PyEval_RestoreThread(ts);
  opening = outer;
  if (r && now.type) {
    PyErr_Restore(now.type, now.value, now.trace);
    return -1;
  }
  Py_XDECREF(now.type);
  Py_XDECREF(now.value);
  Py_XDECREF(now.trace);
  if (r) {
    rb_group_raise(&err, r);
    return -1;
  }
  self->g = g;
  return 0;
}
