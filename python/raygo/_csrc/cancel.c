/* Which thread runs what, and stopping it.
 *
 * An actor's call is not interrupted, as the actor goes on with what it has changed so far: it can ask whether it was cancelled, and a generator ends with
 * its item. A task on the main thread is stopped by SIGINT, which also wakes it from system calls.  The signal is sent under mu and only while the thread's
 * `task` is the one to cancel; Python's part of it, rb_interrupt, runs later and looks again.  So a signal never hits the next task.
 * Other threads get an asynchronous exception, which needs the GIL; it is taken back when the task ends first. */
#include <signal.h>
#include <stdlib.h>
#include "worker.h"

struct rb_worker rb_worker = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .notices_tail = &rb_worker.notices, .wake_fd = -1};
__thread struct rb_runner *rb_me __attribute__((tls_model("initial-exec")));

#define W rb_worker

void rb_runner_enter(struct rb_runner *r, bool main) {
  memset(r, 0, sizeof *r);
  r->main = main;
  r->thread = pthread_self();
  r->ident = PyThread_get_thread_ident();
  rb_me = r;
  pthread_mutex_lock(&W.mu);
  r->next = W.runners;
  W.runners = r;
  pthread_mutex_unlock(&W.mu);
}

void rb_runner_leave(struct rb_runner *r) {
  pthread_mutex_lock(&W.mu);
  for (struct rb_runner **at = &W.runners; *at; at = &(*at)->next)
    if (*at == r) {
      *at = r->next;
      break;
    }
  pthread_mutex_unlock(&W.mu);
  rb_me = NULL;
}

static bool take_noted(uint64_t task) {   /* mu */
  for (uint32_t i = 0; i < W.ncanceled && i < 64; i++)
    if (W.canceled[i] == task) {
      W.canceled[i] = 0;
      return true;
    }
  return false;
}

bool rb_begin(struct rb_runner *r, rg_task *t, struct rb_tmpl *m) {
  uint64_t task = t->id;
  rb_thread_task = task;
  r->tmpl = m;
  r->t = t;
  if (r->main) rb_main_task = task;
  pthread_mutex_lock(&W.mu);
  bool ok = !W.ncanceled || !take_noted(task);
  r->task = task;
  r->canceled = !ok;
  r->stops = !(t->flags & RG_F_ACTOR_CALL);
  pthread_mutex_unlock(&W.mu);
  return ok;
}

bool rb_finish(struct rb_runner *r) {
  pthread_mutex_lock(&W.mu);
  bool canceled = r->canceled;
  r->task = 0;
  r->canceled = false;
  pthread_mutex_unlock(&W.mu);
  if (canceled && r->stops && !r->main) PyThreadState_SetAsyncExc(r->ident, NULL);   /* if it has not come through, it must not */
  rb_thread_task = 0;
  if (r->main) rb_main_task = 0;
  r->tmpl = NULL;
  r->t = NULL;
  return canceled;
}

static struct rb_runner *runner_of(uint64_t task) {   /* mu */
  for (struct rb_runner *r = W.runners; r; r = r->next)
    if (r->task == task) return r;
  return NULL;
}

static void want_no_more(uint64_t task) {   /* mu: a generator that waits for its consumer goes on and ends */
  for (struct rb_gen *g = W.gens; g; g = g->next)
    if (g->task == task) g->taken = UINT64_MAX;
  pthread_cond_broadcast(&W.changed);
}

/* Any thread, usually without the GIL. */
void rb_on_cancel(void *arg, uint64_t task, int force) {
  (void)arg, (void)force;   /* force: the engine kills the process itself */
  bool with_gil = false;
  pthread_mutex_lock(&W.mu);
  struct rb_runner *r = runner_of(task);
  if (r && !r->canceled) {
    r->canceled = true;
    if (!r->stops) want_no_more(task);
    else if (r->main) pthread_kill(r->thread, SIGINT);
    else with_gil = true;
  } else if (!r && W.wake_fd < 0) {
    W.canceled[W.ncanceled % 64] = task;
    if (++W.ncanceled >= 128) W.ncanceled = 64;
  }
  bool loop = !r && W.wake_fd >= 0;
  pthread_mutex_unlock(&W.mu);
  if (loop) rb_notify(RB_N_CANCEL, task, 0);
  if (!with_gil) return;
  PyGILState_STATE g = PyGILState_Ensure();
  pthread_mutex_lock(&W.mu);
  r = runner_of(task);   /* with the GIL held it can neither end nor begin another */
  unsigned long ident = r && r->canceled ? r->ident : 0;
  pthread_mutex_unlock(&W.mu);
  if (ident) PyThreadState_SetAsyncExc(ident, PyExc_KeyboardInterrupt);
  PyGILState_Release(g);
}

void rb_notify(int kind, uint64_t id, uint64_t value) {
  struct rb_notice *n = malloc(sizeof *n);
  if (!n) return;
  *n = (struct rb_notice){NULL, kind, id, value};
  pthread_mutex_lock(&W.mu);
  *W.notices_tail = n;
  W.notices_tail = &n->next;
  pthread_mutex_unlock(&W.mu);
  rb_wake_loop();
}

void rb_wake_loop(void) {
  uint64_t one = 1;
  ssize_t r = W.wake_fd >= 0 ? write(W.wake_fd, &one, sizeof one) : 0;
  (void)r;
}

void rb_on_resume(void *arg, uint64_t task, uint64_t taken) {
  (void)arg;
  pthread_mutex_lock(&W.mu);
  for (struct rb_gen *g = W.gens; g; g = g->next)
    if (g->task == task && (taken == UINT64_MAX || g->taken < taken)) g->taken = taken;
  pthread_cond_broadcast(&W.changed);
  bool loop = W.wake_fd >= 0;
  pthread_mutex_unlock(&W.mu);
  if (loop) rb_notify(RB_N_RESUME, task, taken);
}

void rb_on_exit(void *arg, int force) {
  (void)arg;
  if (force) _exit(0);
  pthread_mutex_lock(&W.mu);
  W.stopping = true;
  pthread_cond_broadcast(&W.changed);
  bool loop = W.wake_fd >= 0;
  pthread_mutex_unlock(&W.mu);
  if (loop) rb_notify(RB_N_EXIT, 0, 0);
  else rb_on_tasks(NULL);
}

/* ------------------------------------------------------------------------------------------------ functions */

/* The handler of SIGINT in a worker.  Ctrl-C at the user's terminal does not reach workers, and what else sends SIGINT is no reason to stop. */
static PyObject *interrupt(PyObject *self, PyObject *const *argv, Py_ssize_t n) {
  (void)self, (void)argv, (void)n;
  pthread_mutex_lock(&W.mu);
  struct rb_runner *r = W.main_runner;
  bool now = r && r->task && r->canceled && r->stops;
  pthread_mutex_unlock(&W.mu);
  if (now) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *is_canceled(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  pthread_mutex_lock(&W.mu);
  struct rb_runner *r = rb_me ? rb_me : W.main_runner;
  bool yes = r && r->canceled;
  pthread_mutex_unlock(&W.mu);
  return PyBool_FromLong(yes);
}

/* (template's info, number, attempt, context): of this thread's task; a thread that the user started counts to the main thread's.  None: no task. */
static PyObject *running(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  struct rb_runner *r = rb_me ? rb_me : W.main_runner;
  if (!r || !r->t) Py_RETURN_NONE;
  PyObject *info = r->tmpl && r->tmpl->info ? r->tmpl->info : Py_None;
  return Py_BuildValue("OKky#", info, (unsigned long long)r->t->id, (unsigned long)r->t->x.attempt, (const char *)r->t->context, (Py_ssize_t)r->t->x.context_len);
}

static PyObject *current_task(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  return PyLong_FromUnsignedLongLong(rb_current());
}

static PyObject *set_current_task(PyObject *self, PyObject *number) {
  (void)self;
  uint64_t n = PyLong_AsUnsignedLongLong(number);
  if (PyErr_Occurred()) return NULL;
  rb_thread_task = n;
  Py_RETURN_NONE;
}

static PyObject *set_loop_thread(PyObject *self, PyObject *on) {
  (void)self;
  rb_thread_loop = PyObject_IsTrue(on);
  Py_RETURN_NONE;
}

PyMethodDef rb_cancel_methods[] = {
    {"_interrupt", (PyCFunction)(void (*)(void))interrupt, METH_FASTCALL, "A worker's SIGINT handler."},
    {"is_canceled", is_canceled, METH_NOARGS, "Whether the task of this thread was cancelled."},
    {"running", running, METH_NOARGS, "(info, number, attempt, context) of the task that runs on this thread, or None."},
    {"current_task", current_task, METH_NOARGS, "The number of the task that runs here; 0: none."},
    {"set_current_task", set_current_task, METH_O, "Sets it for this thread."},
    {"set_loop_thread", set_loop_thread, METH_O, "This thread runs an event loop: set_types' current_task knows the task."},
    {NULL, NULL, 0, NULL}};
