/* Work: a call of a Group that was started. */
#include <stdlib.h>
#include "group.h"

typedef struct {
  PyObject_HEAD
  rgc_work *w;
  rb_group *group;
  PyObject *keep, *done;           /* until the call has ended */
  PyObject *error;                 /* what it failed with, known before `done` is called: waits return only afterwards */
} work;

static PyTypeObject *work_type;

/* On a thread of the group's.  The reference that the call holds goes here, with the arrays. */
static void ended(void *arg, const rgc_error *err) {
  PyGILState_STATE state = PyGILState_Ensure();
  work *w = arg;
  if (err->code && !(w->error = rb_group_error(err))) PyErr_WriteUnraisable(NULL);
  PyObject *done = w->done, *keep = w->keep;
  w->done = w->keep = NULL;
  if (done) {
    PyObject *r = PyObject_CallFunctionObjArgs(done, NULL);
    if (!r) PyErr_WriteUnraisable(done);
    Py_XDECREF(r);
    Py_DECREF(done);
  }
  Py_XDECREF(keep);
  Py_DECREF(w);
  PyGILState_Release(state);
}

PyObject *rb_work_start(rb_group *self, const rgc_call *call, PyObject *keep, PyObject *done, int64_t timeout_ns) {
  work *w = (work *)PyType_GenericAlloc(work_type, 0);
  if (!w) return NULL;
  w->group = (rb_group *)Py_NewRef((PyObject *)self);
  if (keep && keep != Py_None) w->keep = Py_NewRef(keep);
  if (done && done != Py_None) w->done = Py_NewRef(done);
  bool told = w->keep || w->done;
  rgc_error err = {.rank = -1};
  rgc_group *g = self->g;
  Py_INCREF((PyObject *)w);                    /* the call's; it may end before this function does */
  rgc_work *started = NULL;
  PyThreadState *ts = PyEval_SaveThread();
  rgc_wait wait = {timeout_ns, rb_check, &ts};
  int r = rgc_start(g, call, &wait, told ? ended : NULL, w, &started, &err);
  PyEval_RestoreThread(ts);
  w->w = started;
  if (r || !told) Py_DECREF(w);
  if (!r) return (PyObject *)w;
  Py_DECREF(w);
  return rb_group_raise(&err, r);
}

static void work_dealloc(PyObject *self) {
  work *w = (work *)self;
  PyTypeObject *t = Py_TYPE(self);
  rgc_work_free(w->w);
  Py_XDECREF(w->keep);
  Py_XDECREF(w->done);
  Py_XDECREF(w->error);
  Py_XDECREF((PyObject *)w->group);
  freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);
  release(self);
  Py_DECREF(t);
}

static PyObject *work_wait(PyObject *self, PyObject *const *argv, Py_ssize_t n, PyObject *names) {
  work *w = (work *)self;
  int64_t ns;
  Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  if (n + named > 1) return PyErr_Format(PyExc_TypeError, "wait takes a timeout, not %zd arguments", n + named);
  if (rb_group_timeout(n + named ? argv[0] : NULL, &ns)) return NULL;
  rgc_error err = {.rank = -1};
  int source = -1;
  PyThreadState *ts = PyEval_SaveThread();
  rgc_wait wait = {ns ? ns : -1, rb_check, &ts};
  int r = rgc_work_wait(w->w, &wait, &source, &err);
  PyEval_RestoreThread(ts);
  if (r == RAYGO_ETIMEDOUT) {
    if (!rgc_work_done(w->w)) {
      PyErr_SetString(PyExc_TimeoutError, err.message);
      return NULL;
    }
    r = rgc_work_wait(w->w, NULL, &source, &err);   /* it may have ended just now */
  }
  return r ? rb_group_raise(&err, r) : PyLong_FromLong(source);
}

static PyObject *work_done(PyObject *self, PyObject *unused) {
  (void)unused;
  return PyBool_FromLong(rgc_work_done(((work *)self)->w));
}

static PyObject *work_cancel(PyObject *self, PyObject *unused) {
  (void)unused;
  PyThreadState *ts = PyEval_SaveThread();
  int r = rgc_work_cancel(((work *)self)->w);
  PyEval_RestoreThread(ts);
  return PyBool_FromLong(r);
}

static PyObject *work_exception(PyObject *self, PyObject *unused) {
  (void)unused;
  work *w = (work *)self;
  rgc_error err = {.rank = -1};
  if (w->error) return Py_NewRef(w->error);
  if (!rgc_work_done(w->w) || !rgc_work_wait(w->w, NULL, NULL, &err)) Py_RETURN_NONE;
  return rb_group_error(&err);
}

static PyMethodDef methods[] = {{"wait", (PyCFunction)(void (*)(void))work_wait, METH_FASTCALL | METH_KEYWORDS, "Waits until the call has ended; raises what it failed with."},
                                {"done", work_done, METH_NOARGS, "Whether the call has ended."},
                                {"cancel", work_cancel, METH_NOARGS, "Ends a call that has not begun; whether it did."},
                                {"exception", work_exception, METH_NOARGS, "What an ended call failed with, or None."},
                                {NULL, NULL, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_doc, "A call of a Group that was started."}, {Py_tp_dealloc, work_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
static PyType_Spec spec = {"raygo._binding.Work", sizeof(work), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int rb_work_ready(PyObject *module) { return rb_add_type(module, "Work", &spec, &work_type); }
