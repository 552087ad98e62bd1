/* Internal to the worker's side: worker.c, task.c, pool.c, cancel.c. */
#ifndef RAYGO_WORKER_H
#define RAYGO_WORKER_H
#include <pthread.h>
#include "binding.h"

struct rb_tmpl {                 /* a template that the engine sent */
  PyObject *map;                 /* owned bytes, until loaded */
  PyObject *info;                /* owned: the package's object for it */
  PyObject *callable;            /* owned; NULL: only the package can run it */
  PyObject *name;                /* owned str */
  bool fast;                     /* a plain function or method: C runs it alone */
  bool msgpack;
  int group;                     /* index of the concurrency group */
};

struct rb_runner {               /* a thread that runs tasks; on its stack, in the list while it lives */
  struct rb_runner *next;
  uint64_t task;                 /* worker.mu: what it runs; 0: nothing */
  bool canceled;                 /* worker.mu: CANCEL_EXEC came for it */
  bool stops;                    /* worker.mu: that interrupts it; not an actor's call, which would leave the actor half changed */
  bool main;
  pthread_t thread;
  unsigned long ident;           /* Python's */
  struct rb_tmpl *tmpl;          /* GIL: of the running task */
  rg_task *t;                    /* GIL: the running task, until its answer */
};

struct rb_notice { struct rb_notice *next; int kind; uint64_t id, value; };
enum { RB_N_CANCEL = 1, RB_N_RESUME = 2, RB_N_EXIT = 3 };

extern struct rb_worker {
  struct rb_session *ses;
  struct rb_runner *main_runner; /* GIL */
  bool exit_asked;               /* GIL: the actor ended itself */
  int wrote;                     /* GIL: something was printed since the last flush */
  Py_ssize_t nmodules;
  /* GIL; owned */
  PyObject *load, *run, *error, *flush, *modules;
  struct rb_tmpl **tmpls;        /* GIL: by the engine's number */
  size_t ntmpls;

  pthread_mutex_t mu;            /* guards what follows; innermost, held for moments, never with Python or the client inside */
  pthread_cond_t changed;        /* a RESUME came, or the end */
  struct rb_def { struct rb_def *next; uint64_t number; size_t len; uint8_t map[]; } *defs;
  struct rb_runner *runners;
  uint64_t canceled[64];         /* of tasks taken from the queue that no thread has begun; oldest are overwritten */
  uint32_t ncanceled;
  struct rb_gen { struct rb_gen *next; uint64_t task, taken; } *gens;
  struct rb_notice *notices, **notices_tail;   /* for the event loop */
  int wake_fd;                   /* eventfd of the event loop; -1: there is none */
  bool stopping;
} rb_worker;

/* What took this long to make is sent alone: a write is cheap beside it, and what comes next may bring the process down. */
#define ALONE_NS 100000

/* worker.c */
struct rb_tmpl *rb_tmpl_of(uint64_t number);             /* loaded; NULL with an exception */
void rb_run_one(struct rb_runner *r, rg_task *t, rg_task **next);   /* runs and answers, frees t; *next: a task it took along, if next is not NULL */
PyObject *rb_after_create(void);                         /* what the package said about the actor's way of running; borrowed, may be NULL */
int rb_idle_check(void *tstate_slot);                    /* rb_check for a thread that runs nothing: exceptions of signal handlers are shown, not raised */
void rb_end_process(void);                               /* the engine is gone */

/* cancel.c */
void rb_runner_enter(struct rb_runner *r, bool main);
void rb_runner_leave(struct rb_runner *r);
bool rb_begin(struct rb_runner *r, rg_task *t, struct rb_tmpl *m);   /* false: it was cancelled before */
bool rb_finish(struct rb_runner *r);                     /* whether it was cancelled meanwhile */
void rb_on_cancel(void *arg, uint64_t task, int force);
void rb_on_resume(void *arg, uint64_t task, uint64_t taken);
void rb_on_exit(void *arg, int force);
void rb_notify(int kind, uint64_t id, uint64_t value);   /* to the event loop */
void rb_wake_loop(void);
RB_THREAD_EXTERN struct rb_runner *rb_me;                /* the runner of this thread; NULL */
extern PyMethodDef rb_cancel_methods[];

/* task.c */
typedef struct {
  PyObject_HEAD
  rg_task *t;                    /* owned; NULL once answered */
  uint64_t id;
  struct rb_tmpl *m;
  int64_t started, sent;         /* sent: the last item that left at once */
  struct rb_gen gen;
  bool generating;
} rb_task;
PyObject *rb_task_new(rg_task *t, struct rb_tmpl *m, int64_t started);   /* takes over t */
int rb_answer(rg_task *t, uint32_t status, PyObject *const *values, uint32_t n, bool error, int64_t started, bool more);   /* error: the last of them is one */
int rb_send_ser(rg_task *t, uint32_t status, struct rb_ser *sers, uint32_t n, int64_t started, bool more);

/* pool.c */
int rb_pool_main(PyObject *spec, struct rb_runner *me);  /* the calling thread joins; returns when the worker ends */
void rb_on_tasks(void *arg);
#endif
