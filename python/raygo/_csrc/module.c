/* raygo._binding: puts the parts together. */
#include "binding.h"

/* The package reads the fields; the class needs no more than that. */
static const char call_error_source[] =
    "class CallError(Exception):\n"
    "    'The engine refused a call: a code of errors.tsv and its words.'\n"
    "    __module__ = 'raygo._binding'\n"
    "    def __init__(self, code, message):\n"
    "        super().__init__(code, message)\n"
    "        self.code = code\n"
    "        self.message = message\n"
    "    def __str__(self):\n"
    "        return f'{self.message} (code {self.code})'\n";

int rb_add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **out) {
  *out = (PyTypeObject *)PyType_FromSpec(spec);
  return *out ? PyModule_AddObjectRef(module, name, (PyObject *)*out) : -1;
}

static int add_call_error(PyObject *module) {
  PyObject *globals = PyDict_New(), *code = globals ? Py_CompileString(call_error_source, "raygo._binding", Py_file_input) : NULL, *done = NULL;
  if (code && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0) done = PyEval_EvalCode(code, globals, globals);
  if (done) rb_py.call_error = Py_XNewRef(PyDict_GetItemString(globals, "CallError"));
  Py_XDECREF(done);
  Py_XDECREF(code);
  Py_XDECREF(globals);
  return rb_py.call_error ? PyModule_AddObjectRef(module, "CallError", rb_py.call_error) : -1;
}

static int find_pickle(void) {
  PyObject *m = PyImport_ImportModule("_pickle");
  if (!m) return -1;
  rb_py.pickle_dumps = PyObject_GetAttrString(m, "dumps");
  rb_py.pickle_loads = PyObject_GetAttrString(m, "loads");
  Py_DECREF(m);
  rb_py.proto5 = PyLong_FromLong(5);
  rb_py.kw_buffer_callback = PyUnicode_InternFromString("buffer_callback");
  rb_py.kw_buffers = PyUnicode_InternFromString("buffers");
  rb_py.empty_tuple = PyTuple_New(0);
  return rb_py.pickle_dumps && rb_py.pickle_loads && rb_py.proto5 && rb_py.kw_buffer_callback && rb_py.kw_buffers && rb_py.empty_tuple ? 0 : -1;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_binding", "raygo's client and worker loop: what Python calls and what calls Python.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__binding(void) {
  PyMethodDef *all[] = {rb_session_methods, rb_refs_methods, rb_serialize_methods, rb_get_methods,
                        rb_submit_methods,  rb_msgpack_methods, rb_worker_methods, rb_cancel_methods};
  PyObject *m = PyModule_Create(&definition);
  if (!m) return NULL;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (PyModule_AddFunctions(m, all[i])) goto fail;
  if (PyModule_AddStringConstant(m, "VERSION", RAYGO_VERSION) || add_call_error(m) || find_pickle() || rb_refs_ready(m) || rb_buffer_ready(m) || rb_submit_ready(m) ||
      rb_task_ready(m) || rb_group_ready(m))
    goto fail;
  return m;
fail:
  Py_DECREF(m);
  return NULL;
}
