/* Internal to group*.c: collectives for Python. */
#ifndef RAYGO_BINDING_GROUP_H
#define RAYGO_BINDING_GROUP_H
#include "binding.h"
#include "collective.h"

typedef struct rb_group {
  PyObject_HEAD
  rgc_group *g;                  /* NULL: not made.  Held until the object goes, so that threads may call while another closes it */
  bool closed;
  PyObject *store, *library;
  struct rb_group *prev, *next;  /* those that are open */
  int rank, size, local_size, nodes;
} rb_group;

extern PyTypeObject *rb_group_type;
PyObject *rb_group_raise(const rgc_error *err, int code);   /* an exception that is set already stays */
PyObject *rb_group_error(const rgc_error *err);             /* new: the exception itself */
int rb_group_timeout(PyObject *o, int64_t *ns);             /* None: 0, the group's */
int rb_group_open(rb_group *self, const char *name, int rank, int size, PyObject *store, PyObject *timeout, const char *node, unsigned long long arena, PyObject *library);

PyObject *rb_group_call(rb_group *self, const char *name, uint32_t kind, const char *form, PyObject *const *argv, Py_ssize_t n, PyObject *names, bool start);
int rb_work_ready(PyObject *module);
int rb_group_error_ready(PyObject *module);
PyObject *rb_work_start(rb_group *self, const rgc_call *call, PyObject *keep, PyObject *done, int64_t timeout_ns);
#endif
