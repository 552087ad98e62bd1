/* The conformance host: a C program that uses raygo.h and nothing else, and holds it to what its manual says.
 *
 *     conformance [python]       python: an interpreter with raygo installed; without it what needs Python is left out
 *
 * tests/capi/test_conformance.py builds and runs it: against libraygo.so, under AddressSanitizer and under Go's race detector. */
#include "check.h"

raygo_error err = RAYGO_ERROR_INIT;
const char *python;

raygo_runtime begin(void) {
  raygo_options o = raygo_options_init();
  raygo_runtime rt;
  o.num_cpus = 2;
  o.object_store_memory = 64u << 20;
  o.python = raygo_str(python ? python : "/nonexistent/python");
  o.name_space = raygo_str("conformance");
  o.log_to_driver = 1;
  raygo_mp settings = RAYGO_MP_INIT;
  raygo_mp_map(&settings, 1);
  raygo_mp_str(&settings, "prestart");
  raygo_mp_int(&settings, 0);
  o.engine_options = raygo_mp_view(&settings);
  OK(raygo_start(&o, &rt, &err));
  raygo_mp_free(&settings);
  return rt;
}

void end(raygo_runtime rt) {
  OK(raygo_shutdown(rt, 10 * RAYGO_SECOND, &err));
  OK(raygo_runtime_release(rt, &err));
}

raygo_object put_text(raygo_runtime rt, const char *text) {
  raygo_object o;
  OK(raygo_put(rt, RAYGO_BYTES, raygo_str(text), FOREVER, NONE, &o, &err));
  return o;
}

int64_t store_bytes(raygo_runtime rt) {
  raygo_buf b;
  raygo_mp_value v;
  OK(raygo_query(rt, raygo_str("store.stats"), raygo_bytes(NULL, 0), 10 * RAYGO_SECOND, NONE, &b, &err));
  CHECK(raygo_mp_find(raygo_bytes(b.data, b.len), "used", &v));
  raygo_buf_release(&b);
  return v.i;
}

int main(int argc, char **argv) {
  python = argc > 1 && *argv[1] ? argv[1] : NULL;
  alarm(240);
  setvbuf(stdout, NULL, _IOLBF, 0);
  test_basics();
  puts("basics");
  test_group();
  puts("groups");
  raygo_runtime rt = begin();
  test_objects(rt);
  puts("objects");
  test_queue(rt);
  puts("completion queue");
  test_state(rt);
  puts("state");
  test_serve(rt);
  puts("serving");
  test_waits(rt);
  puts("waits");
  test_tensor(rt);
  puts("tensors");
  test_arrow(rt);
  puts("arrow");
  if (python) {
    test_python(rt);
    puts("python");
  }
  end(rt);
  test_life();
  puts("life");
  raygo_error_clear(&err);
  puts("ok");
  return 0;
}
