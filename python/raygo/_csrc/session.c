/* Beginning and end of a session; what the package handed over; errors. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include "binding.h"
#include "engine.h"

struct rb_session *rb_ses;
struct rb_py rb_py;
static uint32_t generation;

__thread uint64_t rb_thread_task __attribute__((tls_model("initial-exec")));
__thread int rb_thread_loop __attribute__((tls_model("initial-exec")));
uint64_t rb_main_task;
bool (*rb_thread_stop)(void);

int64_t rb_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------ errors */

/* Prefers the package's exception for the engine's own errors; without the package (tests of the binding alone) a CallError. */
PyObject *rb_raise_map(const uint8_t *map, size_t len) {
  if (rb_py.raise_syserr) {
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)map, (Py_ssize_t)len);
    PyObject *exc = bytes ? PyObject_CallFunctionObjArgs(rb_py.raise_syserr, bytes, NULL) : NULL;
    Py_XDECREF(bytes);
    if (!exc) return NULL;
    if (PyExceptionInstance_Check(exc)) PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
    else PyErr_Format(PyExc_SystemError, "raise_syserr returned a %R in place of an exception", (PyObject *)Py_TYPE(exc));
    Py_DECREF(exc);
    return NULL;
  }
  PyObject *d = rb_unpack(map, len);
  if (!d) return NULL;
  PyObject *code = PyDict_Check(d) ? PyDict_GetItemString(d, "code") : NULL, *text = PyDict_Check(d) ? PyDict_GetItemString(d, "message") : NULL;
  PyObject *exc = PyObject_CallFunction(rb_py.call_error, "OO", code ? code : Py_None, text ? text : Py_None);
  Py_DECREF(d);
  if (exc) PyErr_SetObject(rb_py.call_error, exc);
  Py_XDECREF(exc);
  return NULL;
}

static const char *words(int code) {
  switch (code) {
  case RAYGO_EFORKED:
    return "raygo was called in a forked child of the process that started it. A forked child cannot use its parent's session: "
           "start the child with the 'spawn' method, or call raygo in the parent.";
  case RAYGO_ESHUTDOWN: return "raygo was shut down while this call ran, or before it. Call raygo.init() to start a new session.";
  case RAYGO_ECONNECTION: return "The connection to the node engine is gone: the engine's process ended, or closed it. Start a new session with raygo.init().";
  case RAYGO_ESTALE: return "This ObjectRef is of a session that has ended. Objects do not outlive raygo.shutdown(): make it again in the present session.";
  case RAYGO_ENOMEM: return "There was not enough memory for a message to the node engine.";
  case RAYGO_EINVAL: return "The node engine's client refused a message: it is longer than 256 MiB. Put large parts by raygo.put() and pass their references.";
  default: return "A call to the node engine failed.";
  }
}

PyObject *rb_raise(int code, const char *message) {
  if (!message) message = words(code);
  if (PyErr_Occurred()) return NULL;   /* the check function's, after EINTERRUPTED */
  switch (code) {
  case RAYGO_ETIMEDOUT: PyErr_SetString(PyExc_TimeoutError, message); return NULL;
  case RAYGO_EFORKED: PyErr_SetString(PyExc_RuntimeError, message); return NULL;
  case RAYGO_ENOMEM: PyErr_SetString(PyExc_MemoryError, message); return NULL;
  case RAYGO_EINVAL: PyErr_SetString(PyExc_ValueError, message); return NULL;
  case RAYGO_EINTERRUPTED: PyErr_SetNone(PyExc_KeyboardInterrupt); return NULL;
  default: break;
  }
  struct rb_bytes b = {0};
  PyObject *map = Py_BuildValue("{s:i,s:s}", "code", code, "message", message);
  if (map && rb_pack(&b, map, 0) == 0) rb_raise_map(b.p, b.n);
  else if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, message);
  Py_XDECREF(map);
  free(b.p);
  return NULL;
}

/* Runs without the GIL, on the thread that waits. */
int rb_check(void *slot) {
  PyThreadState **ts = slot;
  PyEval_RestoreThread(*ts);
  int r = PyErr_CheckSignals();
  if (!r && rb_thread_stop && rb_thread_stop()) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    r = -1;
  }
  *ts = PyEval_SaveThread();
  return r;
}

int rb_deadline(PyObject *timeout, int64_t *deadline) {
  *deadline = -1;
  if (timeout == NULL || timeout == Py_None) return 0;
  double s = PyFloat_AsDouble(timeout);
  bool number = s != -1.0 || !PyErr_Occurred();
  if (!number && PyErr_ExceptionMatches(PyExc_OverflowError) && PyLong_Check(timeout)) {   /* an int that no double holds */
    PyErr_Clear();
    PyObject *zero = PyLong_FromLong(0);
    int negative = zero ? PyObject_RichCompareBool(timeout, zero, Py_LT) : -1;
    Py_XDECREF(zero);
    if (negative <= 0) return negative;
    s = -1;
    number = true;
  } else if (!number) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;   /* what its __float__ raised */
    PyErr_Clear();
  }
  if (!number || !(s >= 0)) {
    PyErr_Format(number ? PyExc_ValueError : PyExc_TypeError, "a timeout is a number of seconds from 0 on, or None to wait without end, not %R", timeout);
    return -1;
  }
  if (s == 0) *deadline = 0;
  else if (s < 9e9) *deadline = rb_now() + (int64_t)(s * 1e9);
  return 0;
}

/* ------------------------------------------------------------------------------------------------ session */

/* The anchor keeps the client's memory while a thread may still be inside one of its functions. */
void rb_unuse(struct rb_session *s) {
  if (--s->users != 0 || !s->closed) return;
  rg_slot_decref(s->c, s->anchor);
  free(s);
}

struct rb_session *rb_need(void) {
  if (RB_UNLIKELY(atomic_load_explicit(&rg_forked, memory_order_relaxed))) return rb_raise(RAYGO_EFORKED, NULL), NULL;
  if (RB_LIKELY(rb_ses != NULL)) return rb_ses;
  PyObject *h = rb_py.auto_init;
  if (h) {
    PyObject *r = PyObject_CallFunctionObjArgs(h, NULL);
    if (!r) return NULL;
    Py_DECREF(r);
    if (rb_ses) return rb_ses;
  }
  if (rb_py.not_initialized) {
    PyObject *exc = PyObject_CallFunctionObjArgs(rb_py.not_initialized, NULL);
    if (exc && PyExceptionInstance_Check(exc)) PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
    Py_XDECREF(exc);
    if (PyErr_Occurred()) return NULL;
  }
  PyErr_SetString(PyExc_RuntimeError, "raygo has no session in this process: call raygo.init() first.");
  return NULL;
}

int rb_call(struct rb_session *s, const void *payload, size_t len, int64_t timeout_ns, PyObject **reply) {
  uint8_t *p = NULL;
  size_t n = 0;
  s->users++;
  PyThreadState *ts = PyEval_SaveThread();
  int r = rg_call(s->c, payload, len, timeout_ns, rb_check, &ts, &p, &n);
  PyEval_RestoreThread(ts);
  rb_unuse(s);
  *reply = NULL;
  if (!r) {
    *reply = PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)n);
  } else if (p) {
    /* The engine's answer: a msgpack str. */
    PyObject *text = rb_unpack(p, n);
    if (!text) PyErr_Clear();
    PyObject *exc = PyObject_CallFunction(rb_py.call_error, "iO", r, text ? text : Py_None);
    if (exc) PyErr_SetObject(rb_py.call_error, exc);
    Py_XDECREF(exc);
    Py_XDECREF(text);
  } else {
    rb_raise(r, NULL);
  }
  free(p);
  return *reply ? 0 : -1;
}

uint64_t rb_number(struct rb_session *s) {
  uint64_t n = rg_next_number(s->c);
  if (RB_LIKELY(n)) return n;
  static const uint8_t ask[] = "\x92\xabprefix.next\xc0";
  PyObject *reply;
  if (rb_call(s, ask, sizeof ask - 1, -1, &reply)) return 0;
  PyObject *v = rb_unpack((const uint8_t *)PyBytes_AsString(reply), (size_t)PyBytes_Size(reply));
  Py_DECREF(reply);
  unsigned long prefix = v ? PyLong_AsUnsignedLong(v) : 0;
  Py_XDECREF(v);
  if (PyErr_Occurred()) return 0;
  rg_client_set_prefix(s->c, (uint32_t)prefix);
  n = rg_next_number(s->c);
  if (!n) rb_raise(RAYGO_EINTERNAL, "The node engine gave no usable number prefix.");
  return n;
}

uint64_t rb_current(void) {
  if (rb_thread_task) return rb_thread_task;
  if (rb_thread_loop && rb_py.current_task) {
    PyObject *v = PyObject_CallFunctionObjArgs(rb_py.current_task, NULL);
    uint64_t n = v ? PyLong_AsUnsignedLongLong(v) : 0;
    Py_XDECREF(v);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      n = 0;
    }
    return n;
  }
  return rb_main_task;
}

static uint64_t field(PyObject *map, const char *name, uint64_t missing) {
  PyObject *v = PyDict_GetItemString(map, name);
  if (!v || !PyLong_Check(v)) return missing;
  int overflow;
  long long n = PyLong_AsLongLongAndOverflow(v, &overflow);
  return overflow ? PyLong_AsUnsignedLongLongMask(v) : (uint64_t)n;
}

/* Takes over the client.  Reads WELCOME, maps the arena, makes the session the process's.  New bytes: the map. */
PyObject *rb_session_begin(rg_client *c, bool worker, uint64_t engine, uint64_t conn) {
  size_t n;
  const uint8_t *p = rg_client_welcome(c, &n);
  PyObject *map = p ? rb_unpack(p, n) : NULL;
  if (!map || !PyDict_Check(map)) {
    Py_XDECREF(map);
    if (!PyErr_Occurred()) rb_raise(RAYGO_ECONNECTION, "The node engine closed the connection before it said who it is.");
    rg_client_close(c);
    return NULL;
  }
  struct rb_session *s = calloc(1, sizeof *s);
  if (!s) {
    Py_DECREF(map);
    rg_client_close(c);
    return PyErr_NoMemory();
  }
  s->c = c;
  s->anchor = rg_slot_new(c, 0, UINT32_MAX, 1);
  s->worker = worker;
  s->generation = ++generation;
  s->incarnation = field(map, "incarnation", 0);
  s->job = (uint32_t)field(map, "job", 0);
  s->engine = engine;
  s->conn = conn;
  rg_client_set_prefix(c, (uint32_t)field(map, "prefix", 0));
  uint64_t size = field(map, "arena_size", 0);
  int r = size ? rg_client_arena(c, (int)(int64_t)field(map, "arena_fd", (uint64_t)-1), size) : 0;
  Py_DECREF(map);
  if (r) {
    rg_client_close(c);
    free(s);
    return rb_raise(r, "The shared memory of the object store could not be mapped.");
  }
  rb_ses = s;
  return PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)n);
}

/* ------------------------------------------------------------------------------------------------ the library that holds the engine */

static struct {
  void *handle;
  const char *(*version)(void);
  int32_t (*start)(const void *, size_t, raygo_fd_fn, uint64_t *, char **);
  int32_t (*attach)(uint64_t, raygo_deliver_fn, void *, const void *, size_t, uint64_t *, char **);
  int32_t (*input)(uint64_t, const void *, size_t);
  int32_t (*detach)(uint64_t);
  int32_t (*stop)(uint64_t, int64_t, char **);
} lib;

static int find(void *out, const char *name) {
  void *p = dlsym(lib.handle, name);
  memcpy(out, &p, sizeof p);
  return p ? 0 : -1;
}

static int open_library(const char *path) {
  if (lib.handle) return 0;
  lib.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib.handle) {
    PyErr_Format(PyExc_ImportError, "raygo's engine could not be loaded: %s", dlerror());
    return -1;
  }
  if (find(&lib.version, "raygo_version") || find(&lib.start, "raygo_engine_start") || find(&lib.attach, "raygo_engine_attach") ||
      find(&lib.input, "raygo_engine_input") || find(&lib.detach, "raygo_engine_detach") || find(&lib.stop, "raygo_engine_stop")) {
    PyErr_Format(PyExc_ImportError, "%s is not raygo's engine: it lacks functions that this package calls. Install raygo again.", path);
    lib.version = NULL;
    return -1;
  }
  return 0;
}

static PyObject *engine_start(PyObject *self, PyObject *args) {
  (void)self;
  const char *path;
  Py_buffer options, hello;
  if (!PyArg_ParseTuple(args, "sy*y*", &path, &options, &hello)) return NULL;
  PyObject *welcome = NULL;
  rg_client *c = NULL;
  char *message = NULL;
  uint64_t engine = 0, conn = 0;
  if (atomic_load(&rg_forked)) {
    rb_raise(RAYGO_EFORKED, NULL);
    goto done;
  }
  if (rb_ses) {
    PyErr_SetString(PyExc_RuntimeError, "raygo has a session in this process already: call raygo.shutdown() first.");
    goto done;
  }
  if (open_library(path)) goto done;
  if (!lib.version || strcmp(lib.version(), RAYGO_VERSION) != 0) {
    PyErr_Format(PyExc_RuntimeError, "the engine %s is version %s, the binding is version %s: they must be the same. Install raygo again.", path,
                 lib.version ? lib.version() : "unknown", RAYGO_VERSION);
    goto done;
  }
  c = rg_client_new(NULL);
  if (!c) {
    PyErr_NoMemory();
    goto done;
  }
  int r;
  Py_BEGIN_ALLOW_THREADS
  r = lib.start(options.buf, (size_t)options.len, rg_fork_register_fd, &engine, &message);
  if (!r) {
    r = lib.attach(engine, rg_client_deliver, c, hello.buf, (size_t)hello.len, &conn, &message);
    if (!r) r = rg_client_embed(c, lib.input, conn);
    if (r) {
      char *ignored = NULL;
      lib.stop(engine, 1000000000, &ignored);
      free(ignored);
    }
  }
  Py_END_ALLOW_THREADS
  if (r) {
    rg_client_close(c);
    rb_raise(r, message ? message : "The engine could not be started.");
    goto done;
  }
  welcome = rb_session_begin(c, false, engine, conn);
  if (!welcome) {
    Py_BEGIN_ALLOW_THREADS
    lib.stop(engine, 1000000000, &message);
    Py_END_ALLOW_THREADS
  }
done:
  free(message);
  PyBuffer_Release(&options);
  PyBuffer_Release(&hello);
  return welcome;
}

static PyObject *connect_(PyObject *self, PyObject *args) {
  (void)self;
  const char *path;
  Py_buffer hello;
  double timeout;
  if (!PyArg_ParseTuple(args, "sy*d", &path, &hello, &timeout)) return NULL;
  PyObject *welcome = NULL;
  rg_client *c;
  if (atomic_load(&rg_forked)) {
    rb_raise(RAYGO_EFORKED, NULL);
  } else if (rb_ses) {
    PyErr_SetString(PyExc_RuntimeError, "raygo has a session in this process already: call raygo.shutdown() first.");
  } else if (!(c = rg_client_new(NULL))) {
    PyErr_NoMemory();
  } else {
    int r;
    Py_BEGIN_ALLOW_THREADS
    r = rg_client_connect(c, path, hello.buf, (size_t)hello.len, timeout < 0 ? -1 : (int64_t)(timeout * 1e9));
    Py_END_ALLOW_THREADS
    if (r) {
      const char *why = rg_client_refusal(c);
      PyObject *text = why ? rb_unpack((const uint8_t *)why, strlen(why)) : NULL;
      PyErr_Clear();
      PyObject *said = text ? PyObject_Str(text) : PyUnicode_FromFormat("No node engine answered on the socket %s. Is it still running?", path);
      const char *utf8 = said ? PyUnicode_AsUTF8AndSize(said, NULL) : NULL;
      rb_raise(r, utf8);
      Py_XDECREF(said);
      Py_XDECREF(text);
      rg_client_close(c);
    } else {
      welcome = rb_session_begin(c, false, 0, 0);
    }
  }
  PyBuffer_Release(&hello);
  return welcome;
}

static PyObject *shutdown_(PyObject *self, PyObject *arg) {
  (void)self;
  double timeout = PyFloat_AsDouble(arg);
  if (PyErr_Occurred()) return NULL;
  struct rb_session *s = rb_ses;
  if (!s) Py_RETURN_NONE;
  rb_ses = NULL;   /* from here on calls find no session */
  char *message = NULL;
  int r = 0;
  s->users++;
  Py_BEGIN_ALLOW_THREADS
  if (!atomic_load(&rg_forked)) {
    rg_give_back(s->c);
    if (!s->engine) rg_send(s->c, RG_GOODBYE, 0, 0, NULL, 0, NULL, 0);
    else r = lib.stop(s->engine, timeout < 0 ? -1 : (int64_t)(timeout * 1e9), &message);
  }
  rg_client_close(s->c);
  Py_END_ALLOW_THREADS
  s->closed = true;
  rb_unuse(s);
  if (r) rb_raise(r, message ? message : "The engine did not stop as it should.");
  free(message);
  if (r) return NULL;
  Py_RETURN_NONE;
}

static PyObject *connected(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  return PyBool_FromLong(rb_ses && !atomic_load(&rg_forked) && rg_client_alive(rb_ses->c));
}

static PyObject *is_worker(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  return PyBool_FromLong(rb_ses && rb_ses->worker);
}

static PyObject *generation_(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  return PyLong_FromUnsignedLong(generation);
}

static PyObject *client_pid(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  /* The pid cannot change under a session but by fork, after which every call is refused. */
  return PyLong_FromLong(rb_ses && !atomic_load(&rg_forked) ? (long)getpid() : 0);
}

static PyObject *call(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self;
  if (n < 1 || n > 2) return PyErr_Format(PyExc_TypeError, "call takes a payload and a timeout, not %zd arguments", n);
  struct rb_session *s = rb_need();
  int64_t deadline;
  Py_buffer b;
  if (!s || rb_deadline(n > 1 ? argv[1] : NULL, &deadline) || PyObject_GetBuffer(argv[0], &b, PyBUF_SIMPLE)) return NULL;
  PyObject *reply;
  int64_t left = deadline > 0 ? deadline - rb_now() : deadline;
  rb_call(s, b.buf, (size_t)b.len, deadline > 0 && left < 0 ? 0 : left, &reply);
  PyBuffer_Release(&b);
  return reply;
}

static PyObject *next_log(PyObject *self, PyObject *timeout) {
  (void)self;
  struct rb_session *s = rb_ses;
  int64_t deadline;
  if (rb_deadline(timeout, &deadline)) return NULL;
  if (!s || atomic_load(&rg_forked)) Py_RETURN_NONE;
  int64_t left = deadline > 0 ? deadline - rb_now() : deadline;
  uint8_t *p = NULL;
  size_t len = 0;
  s->users++;
  PyThreadState *ts = PyEval_SaveThread();
  /* Without a check: a thread of the package's waits here, which signals do not concern, and an idle driver should never wake. */
  int r = rg_logs(s->c, deadline > 0 && left < 0 ? 0 : left, NULL, NULL, &p, &len);
  PyEval_RestoreThread(ts);
  rb_unuse(s);
  PyObject *out = NULL;
  if (!r) out = PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)len);
  else if (r == RAYGO_ETIMEDOUT) out = PyBytes_FromStringAndSize(NULL, 0);
  else if (r == RAYGO_ESHUTDOWN || r == RAYGO_ECONNECTION || r == RAYGO_EFORKED) out = Py_NewRef(Py_None);
  else rb_raise(r, NULL);
  free(p);
  return out;
}

/* ------------------------------------------------------------------------------------------------ set_types */

static void rb_set(PyObject **to, PyObject *value) {
  PyObject *old = *to;
  *to = value;
  Py_XDECREF(old);
}

static PyObject *set_types(PyObject *self, PyObject *args, PyObject *kw) {
  (void)self;
  if (PyTuple_Size(args) != 0) return PyErr_Format(PyExc_TypeError, "set_types takes names only");
  PyObject *key, *value;
  Py_ssize_t at = 0;
  static const struct { const char *name; PyObject **to; } known[] = {
      {"serialize", &rb_py.serialize}, {"deserialize", &rb_py.deserialize}, {"make_error", &rb_py.make_error}, {"raise_syserr", &rb_py.raise_syserr},
      {"auto_init", &rb_py.auto_init}, {"not_initialized", &rb_py.not_initialized}, {"current_task", &rb_py.current_task}, {"call_site", &rb_py.call_site}};
  while (kw && PyDict_Next(kw, &at, &key, &value)) {
    if (PyUnicode_CompareWithASCIIString(key, "ObjectRef") == 0) {
      if (!PyType_Check(value) || !PyType_IsSubtype((PyTypeObject *)value, rb_ref_base))
        return PyErr_Format(PyExc_TypeError, "set_types: ObjectRef must subclass raygo._binding.ObjectRef, not be %R", value);
      rb_set((PyObject **)&rb_py.ref_type, Py_NewRef(value));
      continue;
    }
    if (PyUnicode_CompareWithASCIIString(key, "array_path") == 0) {
      rb_py.no_array_path = !PyObject_IsTrue(value);
      continue;
    }
    size_t i = 0, n = sizeof known / sizeof *known;
    while (i < n && PyUnicode_CompareWithASCIIString(key, known[i].name) != 0) i++;
    if (i == n) return PyErr_Format(PyExc_TypeError, "set_types knows no %R", key);
    rb_set(known[i].to, value == Py_None ? NULL : Py_NewRef(value));
  }
  Py_RETURN_NONE;
}

PyMethodDef rb_session_methods[] = {
    {"set_types", (PyCFunction)(void (*)(void))set_types, METH_VARARGS | METH_KEYWORDS, "Hands over what the binding needs from the package."},
    {"engine_start", engine_start, METH_VARARGS, "Starts the node engine in this process and a session on it."},
    {"connect", connect_, METH_VARARGS, "Starts a session on the engine behind a socket."},
    {"shutdown", shutdown_, METH_O, "Ends the session, and the engine when it is this process's."},
    {"connected", connected, METH_NOARGS, "Whether there is a session and its engine answers."},
    {"is_worker", is_worker, METH_NOARGS, "Whether this process runs tasks."},
    {"generation", generation_, METH_NOARGS, "The number of sessions so far."},
    {"client_pid", client_pid, METH_NOARGS, "The process whose session this is; 0 without one, and in its forks."},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, "One question to the engine."},
    {"next_log", next_log, METH_O, "The next LOG map; b'' after the timeout, None when the session is over."},
    {NULL, NULL, 0, NULL}};
