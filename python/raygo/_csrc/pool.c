/* Actors whose calls run on several threads, in one or more concurrency groups.
 *
 * One idle thread at a time, the taker, waits in rg_task_next; whoever takes a task runs it itself, so a lone call costs no thread switch and a burst is
 * worked off without giving up the GIL.  Another thread is woken, or started, when work waits while the taker runs user code: seen when it leaves
 * (more stands in the queue), or told by the client, whose monitor reads meanwhile (rb_on_tasks).  At most one is on its way at a time. */
#include <stdlib.h>
#include "worker.h"
#include "client_int.h"

#define W rb_worker

struct group {
  int limit, nthreads, idle;
  rg_task *head, *tail;          /* taken by a thread of another group */
  pthread_cond_t work;
};

static struct {
  pthread_mutex_t mu;            /* guards what follows; never held with the GIL being waited for */
  pthread_cond_t done;
  struct group *groups;
  int n;
  bool taker, coming, stop;
  int sorting;                   /* threads that hold a task and do not know yet whose it is */
  int threads;                   /* besides the main one */
} P = {.mu = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static void *thread_main(void *group);

static void start_thread(struct group *g) {   /* mu */
  pthread_t thread;
  pthread_attr_t a;
  pthread_attr_init(&a);
  pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &a, thread_main, g) == 0) {
    g->nthreads++;
    P.threads++;
    P.coming = true;
  }
  pthread_attr_destroy(&a);
}

static bool call_up(struct group *g) {   /* mu: one more thread of this group */
  if (g->idle > 0) {
    P.coming = true;
    pthread_cond_signal(&g->work);
  } else if (g->nthreads < g->limit) {
    start_thread(g);
  } else {
    return false;
  }
  return true;
}

/* Any thread, without the GIL: tasks stand in the client's queue and nobody waits for them. */
void rb_on_tasks(void *arg) {
  (void)arg;
  rb_wake_loop();
  pthread_mutex_lock(&P.mu);
  if (!P.coming && !P.taker) {
    /* Whose they are is not known yet; any thread can take them and hand them on.  If all are busy, the first that ends its task looks. */
    bool found = false;
    for (int i = 0; i < P.n && !found; i++) found = P.groups[i].idle > 0 && call_up(&P.groups[i]);
    for (int i = 0; i < P.n && !found; i++) found = call_up(&P.groups[i]);
  }
  pthread_mutex_unlock(&P.mu);
}

static rg_task *own(struct group *g) {   /* mu */
  rg_task *t = g->head;
  if (!t) return NULL;
  g->head = t->next;
  if (!g->head) g->tail = NULL;
  t->next = NULL;
  return t;
}

static void hand_on(struct group *g, rg_task *t) {   /* mu */
  t->next = NULL;
  if (g->tail) g->tail->next = t;
  else g->head = t;
  g->tail = t;
  if (g->idle > 0) pthread_cond_signal(&g->work);
  else if (g->nthreads < g->limit) start_thread(g);
}

/* GIL.  The task, if it is this group's; else it is handed on. */
static rg_task *mine(struct group *g, rg_task *t) {
  if (P.n == 1 || !t) return t;
  struct rb_tmpl *m = rb_tmpl_of(t->x.template_no);
  if (!m) {
    PyErr_Clear();   /* it will fail again where it runs, and be told */
    return t;
  }
  struct group *its = &P.groups[m->group >= 0 && m->group < P.n ? m->group : 0];
  if (its == g) return t;
  pthread_mutex_lock(&P.mu);
  hand_on(its, t);
  pthread_mutex_unlock(&P.mu);
  return NULL;
}

/* No thread becomes the taker meanwhile, since what is handed on could not wake it. */
static void sorted(void) {
  pthread_mutex_lock(&P.mu);
  if (--P.sorting == 0 && P.n > 1 && !P.taker)
    for (int i = 0; i < P.n; i++)
      if (P.groups[i].idle > 0) pthread_cond_signal(&P.groups[i].work);
  pthread_mutex_unlock(&P.mu);
}

/* GIL; gives it up only when nothing is there.  NULL: the worker ends. */
static rg_task *next_task(struct group *g, bool main) {
  rg_task *t;
  for (;;) {
    pthread_mutex_lock(&P.mu);
    P.coming = false;
    t = own(g);
    bool look = !t && (P.n == 1 || !P.taker);
    if (look) P.sorting++;
    pthread_mutex_unlock(&P.mu);
    if (t) return t;
    if (look) {
      while ((t = rg_task_try(W.ses->c)) && !(t = mine(g, t))) {
      }
      sorted();
    }
    if (t) return t;
    bool again = false;
    PyThreadState *ts = PyEval_SaveThread();
    pthread_mutex_lock(&P.mu);
    g->idle++;
    while (!again && !P.stop && !(t = own(g))) {
      if (P.taker || (P.sorting && P.n > 1)) {
        P.coming = false;   /* called up, but another was faster */
        pthread_cond_wait(&g->work, &P.mu);
        continue;
      }
      int status;
      P.taker = true;
      P.coming = false;
      pthread_mutex_unlock(&P.mu);
      /* Signals are the main thread's; the others need not look. */
      t = rg_task_next(W.ses->c, -1, main ? rb_idle_check : NULL, &ts, &status);
      pthread_mutex_lock(&P.mu);
      P.taker = false;
      if (t) P.sorting++;
      if (!t && status != RAYGO_EINTERRUPTED) {
        P.stop = true;
        for (int i = 0; i < P.n; i++) pthread_cond_broadcast(&P.groups[i].work);
      }
      again = true;
    }
    g->idle--;
    bool stop = P.stop && !t;
    pthread_mutex_unlock(&P.mu);
    PyEval_RestoreThread(ts);
    if (stop) return NULL;
    if (again && t) {
      t = mine(g, t);
      sorted();
    }
    if (t) return t;
  }
}

static void work(struct group *g, struct rb_runner *me) {
  for (rg_task *t; (t = next_task(g, me->main));) {
    bool more = __atomic_load_n(&W.ses->c->ntask, __ATOMIC_RELAXED) > 0;
    if (more) {
      pthread_mutex_lock(&P.mu);
      if (!P.coming && !P.taker && !call_up(g))
        for (int i = 0; i < P.n; i++)
          if (&P.groups[i] != g && call_up(&P.groups[i])) break;
      pthread_mutex_unlock(&P.mu);
    }
    rb_run_one(me, t, NULL);
    if (W.exit_asked) {
      if (me->main) return;
      /* The actor ends here and now, whatever its other threads do: as when its only thread asks. */
      PyObject *r = PyObject_CallMethod(PyImport_AddModule("raygo._worker"), "finish", "i", 0);
      Py_XDECREF(r);
      _exit(0);
    }
  }
}

static void *thread_main(void *group) {
  PyGILState_STATE s = PyGILState_Ensure();
  struct rb_runner me;
  rb_runner_enter(&me, false);
  work(group, &me);
  rb_runner_leave(&me);
  PyGILState_Release(s);
  pthread_mutex_lock(&P.mu);
  P.threads--;
  pthread_cond_signal(&P.done);
  pthread_mutex_unlock(&P.mu);
  return NULL;
}

int rb_pool_main(PyObject *limits, struct rb_runner *me) {
  if (!PyList_Check(limits) || PyList_Size(limits) < 1) return 1;
  int n = (int)PyList_Size(limits);
  struct group *g = calloc((size_t)n, sizeof *g);
  if (!g) return 1;
  for (int i = 0; i < n; i++) {
    g[i].limit = (int)PyLong_AsLong(PyList_GetItem(limits, i));
    if (g[i].limit < 1) g[i].limit = 1;
    pthread_cond_init(&g[i].work, NULL);
  }
  PyErr_Clear();
  g[0].nthreads = 1;
  pthread_mutex_lock(&P.mu);
  P.groups = g;
  P.n = n;
  pthread_mutex_unlock(&P.mu);
  work(&g[0], me);
  if (W.exit_asked) return 0;
  Py_BEGIN_ALLOW_THREADS
  pthread_mutex_lock(&P.mu);
  while (P.threads > 0) pthread_cond_wait(&P.done, &P.mu);   /* what runs now may end */
  pthread_mutex_unlock(&P.mu);
  Py_END_ALLOW_THREADS
  return 0;
}
