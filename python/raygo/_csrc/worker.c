/* The worker's task loop.
 *
 * A plain function or method never leaves C between frame and frame, but for the call itself.  Everything else is the package's:
 * raygo/_worker.py gets a Task and answers it.  What the package returns from a task says how to go on: None: as before; True: the actor asked to
 * end; a tuple: an actor was made that runs its calls in another way, ("loop", function) or ("threads", limits of the groups). */
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include "worker.h"
#include "client_int.h"

#define W rb_worker
#define MAX_TEMPLATES (1u << 22)

static PyObject *after_create;   /* owned: the tuple */

PyObject *rb_after_create(void) { return after_create; }

/* ------------------------------------------------------------------------------------------------ callbacks of the client */

static void on_template(void *arg, uint64_t number, const uint8_t *map, size_t len) {
  (void)arg;
  struct rb_def *d = malloc(sizeof *d + len);
  if (!d) return;   /* its tasks will fail, naming it */
  d->number = number;
  d->len = len;
  memcpy(d->map, map, len);
  pthread_mutex_lock(&W.mu);
  d->next = W.defs;
  W.defs = d;
  pthread_mutex_unlock(&W.mu);
}

/* Also the children that the user's code started go, which are in this process's group: nobody else would end them. */
void rb_end_process(void) {
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  _exit(1);
}

static void on_gone(void *arg) {
  (void)arg;
  rb_end_process();
}

/* ------------------------------------------------------------------------------------------------ templates */

static int take_defs(void) {
  pthread_mutex_lock(&W.mu);
  struct rb_def *d = W.defs;
  W.defs = NULL;
  pthread_mutex_unlock(&W.mu);
  int r = 0;
  for (struct rb_def *next; d; d = next) {
    next = d->next;
    if (!r && d->number >= W.ntmpls) {
      size_t n = (d->number + 64) * 2;
      struct rb_tmpl **p = d->number < MAX_TEMPLATES ? realloc(W.tmpls, n * sizeof *p) : NULL;
      if (p) {
        memset(p + W.ntmpls, 0, (n - W.ntmpls) * sizeof *p);
        W.tmpls = p;
        W.ntmpls = n;
      } else {
        PyErr_NoMemory();
        r = -1;
      }
    }
    if (!r && !W.tmpls[d->number]) {
      struct rb_tmpl *m = calloc(1, sizeof *m);
      if (m) m->map = PyBytes_FromStringAndSize((const char *)d->map, (Py_ssize_t)d->len);
      if (m && m->map) W.tmpls[d->number] = m;
      else r = -1;
    }
    free(d);
  }
  return r;
}

/* Asks the package.  A failure is not kept: what was missing may be there the next time. */
static int load(struct rb_tmpl *m, uint64_t number) {
  PyObject *n = PyLong_FromUnsignedLongLong(number), *out = n ? PyObject_CallFunctionObjArgs(W.load, n, m->map, NULL) : NULL;
  Py_XDECREF(n);
  if (!out) return -1;
  PyObject *info, *callable, *name;
  int fast, msgpack, group, r = -1;
  if (!PyTuple_Check(out)) PyErr_SetString(PyExc_TypeError, "load returns (info, callable, fast, name, msgpack, group)");
  else if (PyArg_ParseTuple(out, "OOpOpi", &info, &callable, &fast, &name, &msgpack, &group)) {
    m->info = Py_NewRef(info);
    m->callable = callable == Py_None ? NULL : Py_NewRef(callable);
    m->name = Py_NewRef(name);
    m->fast = fast && m->callable;
    m->msgpack = msgpack != 0;
    m->group = group;
    Py_CLEAR(m->map);
    r = 0;
  }
  Py_DECREF(out);
  return r;
}

struct rb_tmpl *rb_tmpl_of(uint64_t number) {
  if (RB_UNLIKELY(number >= W.ntmpls || !W.tmpls[number]) && take_defs()) return NULL;
  struct rb_tmpl *m = number < W.ntmpls ? W.tmpls[number] : NULL;
  if (!m) {
    PyErr_Format(PyExc_RuntimeError, "a task came whose function (template %llu) this worker was never told of", (unsigned long long)number);
    return NULL;
  }
  return RB_LIKELY(!m->map) || !load(m, number) ? m : NULL;
}

/* ------------------------------------------------------------------------------------------------ one task */

/* The exception that is set, as an instance with its traceback.  New. */
static PyObject *caught(void) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && trace) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
}

static void go_on_as(PyObject *out) {   /* steals what the package returned */
  if (!out) {
    /* It answers all errors; one of its own means that it can no longer be trusted to. */
    PyErr_Print();
    rg_flush(W.ses->c);
    _exit(1);
  }
  if (PyTuple_Check(out)) {
    Py_XDECREF(after_create);
    after_create = out;
    return;
  }
  if (out == Py_True) W.exit_asked = true;
  Py_DECREF(out);
}

static void flush_output(void) {
  W.wrote = 0;
  PyObject *r = PyObject_CallFunctionObjArgs(W.flush, NULL);
  if (!r) PyErr_WriteUnraisable(W.flush);
  Py_XDECREF(r);
}

static void report_modules(void) {
  Py_ssize_t n = PyDict_Size(PyImport_GetModuleDict());
  if (RB_LIKELY(n <= W.nmodules + 30)) return;
  W.nmodules = n;
  PyObject *r = PyObject_CallFunctionObjArgs(W.modules, NULL);
  if (!r) PyErr_WriteUnraisable(W.modules);
  Py_XDECREF(r);
}

static void canceled_result(rg_task *t, int64_t started) {
  rg_result(W.ses->c, t->id, t->x.attempt, RG_R_CANCELED, (uint64_t)(rb_now() - started), NULL, 0, 0);
  rg_task_free(W.ses->c, t);
}

static void give_to_package(rg_task *t, struct rb_tmpl *m, int64_t started, PyObject *exc) {
  PyObject *task = rb_task_new(t, m, started), *out = NULL;
  if (task) out = exc ? PyObject_CallFunctionObjArgs(W.error, task, exc, NULL) : PyObject_CallFunctionObjArgs(W.run, task, NULL);
  Py_XDECREF(task);
  go_on_as(out);
}

static void run_slow(struct rb_runner *r, rg_task *t, struct rb_tmpl *m, int64_t started) {
  if (!rb_begin(r, t, m)) {
    rb_finish(r);
    canceled_result(t, started);
    return;
  }
  give_to_package(t, m, started, NULL);
  r->t = NULL;
  rb_finish(r);
}

static void run_fast(struct rb_runner *r, rg_task *t, struct rb_tmpl *m, int64_t started, rg_task **next) {
  PyObject *args = NULL, *kwargs = NULL, *out = NULL;
  struct rb_ser s;
  bool ok = false;
  if (rb_begin(r, t, m)) {
    if (rb_args_load(t, m->msgpack, &args, &kwargs) == 0) out = PyObject_Call(m->callable, args, kwargs);
    ok = out && rb_ser_begin(&s, out) == 0;
  }
  bool canceled = rb_finish(r);
  if (RB_UNLIKELY(W.wrote)) flush_output();
  if (RB_LIKELY(ok)) {
    rg_client *c = W.ses->c;
    bool more = next ? (*next = rg_task_try(c)) != NULL : __atomic_load_n(&c->ntask, __ATOMIC_RELAXED) > 0;
    more = more && rb_now() - started < ALONE_NS;
    ok = rb_send_ser(t, RG_R_OK, &s, 1, started, more) == 0;
    rb_ser_end(&s);
  }
  if (RB_LIKELY(ok)) {
    rg_task_free(W.ses->c, t);
  } else if (canceled && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))) {
    PyErr_Clear();
    canceled_result(t, started);
  } else {
    PyObject *exc = caught();
    give_to_package(t, m, started, exc);
    Py_XDECREF(exc);
  }
  /* After the answer is on its way: freeing may take long, and nobody waits for it. */
  Py_XDECREF(out);
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
}

void rb_run_one(struct rb_runner *r, rg_task *t, rg_task **next) {
  int64_t started = rb_now();
  if (next) *next = NULL;
  rg_busy(W.ses->c);
  struct rb_tmpl *m = rb_tmpl_of(t->x.template_no);
  if (RB_UNLIKELY(!m)) {
    PyObject *exc = caught();
    rb_begin(r, t, NULL);
    give_to_package(t, NULL, started, exc);
    rb_finish(r);
    Py_XDECREF(exc);
  } else if (RB_LIKELY(m->fast && !(t->flags & (RG_F_ACTOR_CREATE | RG_F_STREAMING | RG_F_HAS_CONTEXT)) && t->x.nreturns == 1)) {
    run_fast(r, t, m, started, next);
  } else {
    run_slow(r, t, m, started);
    if (W.wrote) flush_output();
  }
  report_modules();
}

/* ------------------------------------------------------------------------------------------------ the loop */

int rb_idle_check(void *slot) {
  PyThreadState **ts = slot;
  PyEval_RestoreThread(*ts);
  if (PyErr_CheckSignals()) PyErr_WriteUnraisable(NULL);   /* the user's handler raised, and there is no user code to raise it into */
  *ts = PyEval_SaveThread();
  return 0;
}

static int hand(PyObject *handlers, const char *name, PyObject **to) { return (*to = PyObject_GetAttrString(handlers, name)) ? 0 : -1; }

static int in_another_way(struct rb_runner *me) {
  PyObject *kind = PyTuple_GetItem(after_create, 0), *what = PyTuple_Size(after_create) > 1 ? PyTuple_GetItem(after_create, 1) : NULL;
  if (!kind || !what || !PyUnicode_Check(kind)) return 1;
  if (PyUnicode_CompareWithASCIIString(kind, "threads") == 0) return rb_pool_main(what, me);
  PyObject *out = PyObject_CallFunctionObjArgs(what, NULL);
  if (!out) PyErr_Print();
  int code = out ? 0 : 1;
  Py_XDECREF(out);
  return code;
}

static PyObject *worker_main(PyObject *self, PyObject *handlers) {
  (void)self;
  if (!rb_ses || !rb_ses->worker) return PyErr_Format(PyExc_RuntimeError, "worker_main needs worker_adopt first");
  if (hand(handlers, "load", &W.load) || hand(handlers, "run", &W.run) || hand(handlers, "error", &W.error) || hand(handlers, "flush", &W.flush) ||
      hand(handlers, "modules", &W.modules))
    return NULL;
  struct rb_runner me;
  rg_client *c = rb_ses->c;
  rg_task *next = NULL;
  int code = 0;
  W.nmodules = PyDict_Size(PyImport_GetModuleDict());
  rb_runner_enter(&me, true);
  W.main_runner = &me;
  for (;;) {
    rg_task *t = next ? next : rg_task_try(c);
    next = NULL;
    if (!t) {
      int status;
      PyThreadState *ts = PyEval_SaveThread();
      t = rg_task_next(c, -1, rb_idle_check, &ts, &status);
      PyEval_RestoreThread(ts);
      if (!t && status == RAYGO_EINTERRUPTED) continue;
      if (!t) {
        code = status == RAYGO_ESHUTDOWN ? 0 : 1;
        break;
      }
    }
    rb_run_one(&me, t, &next);
    if (W.exit_asked) break;
    if (after_create) {
      code = in_another_way(&me);
      break;
    }
  }
  if (next) rg_task_free(c, next);
  rg_flush(c);
  W.main_runner = NULL;
  rb_runner_leave(&me);
  return PyLong_FromLong(code);
}

static bool thread_stop(void) { return rb_me && !rb_me->main && rb_me->canceled; }

static PyObject *worker_adopt(PyObject *self, PyObject *args) {
  (void)self;
  int fd, arena_fd;
  if (!PyArg_ParseTuple(args, "ii", &fd, &arena_fd)) return NULL;
  if (atomic_load(&rg_forked)) return rb_raise(RAYGO_EFORKED, NULL);
  if (rb_ses) return PyErr_Format(PyExc_RuntimeError, "this process has a session already and cannot become a worker");
  static const struct rg_callbacks callbacks = {NULL, on_template, rb_on_cancel, rb_on_resume, rb_on_tasks, rb_on_exit, on_gone};
  rg_client *c = rg_client_new(&callbacks);
  if (!c) return PyErr_NoMemory();
  int r;
  Py_BEGIN_ALLOW_THREADS
  r = rg_client_adopt(c, fd, arena_fd, -1);   /* however busy the machine is; an engine that ends, ends the connection */
  Py_END_ALLOW_THREADS
  if (r) {
    rg_client_close(c);
    return rb_raise(r, "The node engine did not greet its worker.");
  }
  PyObject *welcome = rb_session_begin(c, true, 0, 0);
  if (welcome) {
    W.ses = rb_ses;
    W.ses->users++;
    rb_thread_stop = thread_stop;
  }
  return welcome;
}

/* ------------------------------------------------------------------------------------------------ for an event loop */

static PyObject *loop_begin(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  if (W.wake_fd < 0) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return PyErr_SetFromErrno(PyExc_OSError);
    rg_fork_register_fd(fd, 1);
    pthread_mutex_lock(&W.mu);
    W.wake_fd = fd;
    pthread_mutex_unlock(&W.mu);
  }
  rb_thread_loop = 1;
  rg_client_pumped(W.ses->c, 1);
  return Py_BuildValue("ii", rg_client_fd(W.ses->c), W.wake_fd);
}

static PyObject *notices(void) {
  pthread_mutex_lock(&W.mu);
  struct rb_notice *n = W.notices;
  W.notices = NULL;
  W.notices_tail = &W.notices;
  pthread_mutex_unlock(&W.mu);
  PyObject *list = PyList_New(0);
  for (struct rb_notice *next; n; n = next) {
    next = n->next;
    PyObject *v = list ? Py_BuildValue("iKL", n->kind, (unsigned long long)n->id, (long long)n->value) : NULL;
    if (!v || PyList_Append(list, v)) Py_CLEAR(list);
    Py_XDECREF(v);
    free(n);
  }
  return list;
}

/* (tasks, notices, whether it is over): never blocks */
static PyObject *loop_pump(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  uint64_t junk;
  ssize_t ignored = read(W.wake_fd, &junk, sizeof junk);
  (void)ignored;
  int r = rg_pump(W.ses->c);
  PyObject *tasks = PyList_New(0);
  for (rg_task *t; tasks && (t = rg_task_try(W.ses->c));) {
    struct rb_tmpl *m = rb_tmpl_of(t->x.template_no);
    if (!m) {
      PyObject *exc = caught();
      give_to_package(t, NULL, rb_now(), exc);
      Py_XDECREF(exc);
      continue;
    }
    PyObject *k = rb_task_new(t, m, rb_now());
    if (!k || PyList_Append(tasks, k)) Py_CLEAR(tasks);
    Py_XDECREF(k);
  }
  PyObject *said = tasks ? notices() : NULL, *out = said ? Py_BuildValue("OOO", tasks, said, r < 0 ? Py_True : Py_False) : NULL;
  Py_XDECREF(tasks);
  Py_XDECREF(said);
  return out;
}

static PyObject *worker_flush(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  if (W.wrote) flush_output();
  report_modules();
  if (W.ses) rg_flush(W.ses->c);
  Py_RETURN_NONE;
}

/* Called for every write to stdout and stderr. */
static PyObject *task_name(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  W.wrote = 1;
  struct rb_runner *r = rb_me ? rb_me : W.main_runner;
  if (r && r->tmpl && r->tmpl->name) return Py_NewRef(r->tmpl->name);
  return PyUnicode_FromStringAndSize(NULL, 0);
}

static PyObject *goodbye(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  if (W.ses) rg_send(W.ses->c, RG_GOODBYE, 0, 0, NULL, 0, NULL, 0);
  Py_RETURN_NONE;
}

PyMethodDef rb_worker_methods[] = {{"worker_adopt", worker_adopt, METH_VARARGS, "Makes this process a worker on an open socket; the WELCOME map."},
                                   {"worker_main", worker_main, METH_O, "Runs tasks until the worker ends; the exit code."},
                                   {"worker_loop_begin", loop_begin, METH_NOARGS, "(socket, eventfd) for an event loop that reads by worker_pump from now on."},
                                   {"worker_pump", loop_pump, METH_NOARGS, "(tasks, notices, ended)."},
                                   {"worker_flush", worker_flush, METH_NOARGS, "Sends answers that wait, after what was printed."},
                                   {"worker_goodbye", goodbye, METH_NOARGS, "Tells the engine that this process ends of its own will."},
                                   {"task_name", task_name, METH_NOARGS, "The name of the task that runs on this thread."},
                                   {NULL, NULL, 0, NULL}};
