/* raygo from C: values there and back, a Python function called by its name, and a C function that Python calls.
 *
 *     example                    starts an engine of its own, does all three and ends
 *     example ADDRESS [CALLS]    joins the engine of a running program (its socket or session folder) and serves until CALLS calls have come
 *
 * In Python:  raygo.cross_language.named_function("c.dot").remote([1.0, 2.0], [3.0, 4.0])  */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raygo.h"
#include "raygo_msgpack.h"

#define WITHIN (60 * RAYGO_SECOND), RAYGO_NO_TOKEN

static raygo_error err = RAYGO_ERROR_INIT;

static void check(raygo_status status) {
  if (status == RAYGO_OK) return;
  fprintf(stderr, "example: %s: %s\n", raygo_status_name(status), err.message ? err.message : raygo_status_text(status));
  exit(1);
}

/* ---- 1: bytes */

static void put_and_get(raygo_runtime rt) {
  static unsigned char image[1 << 20];
  raygo_object object;
  raygo_buf back;
  memset(image, 200, sizeof image);
  check(raygo_put(rt, RAYGO_BYTES, raygo_bytes(image, sizeof image), WITHIN, &object, &err));
  check(raygo_get(rt, &object, 1, WITHIN, &back, &err));   /* shared memory: nothing is copied */
  printf("put and got %zu bytes, the last is %d\n", back.len, back.data[back.len - 1]);
  raygo_buf_release(&back);
  check(raygo_release(&object, 1, &err));
}

/* ---- 2: a Python function */

static void call_python(raygo_runtime rt) {
  raygo_mp args = RAYGO_MP_INIT;
  raygo_mp_array(&args, 1);      /* one positional argument, */
  raygo_mp_array(&args, 4);      /* a list */
  for (int i = 1; i <= 4; i++) raygo_mp_float(&args, i * i);
  raygo_args a = {raygo_mp_view(&args), NULL, 0};
  raygo_buf result;
  check(raygo_call(rt, raygo_str("statistics:median"), &a, WITHIN, &result, &err));
  raygo_mp_reader r = raygo_mp_read(result.data, result.len);
  raygo_mp_value v;
  if (raygo_mp_next(&r, &v)) printf("Python says the median is %g\n", v.f);
  raygo_buf_release(&result);
  raygo_mp_free(&args);
}

/* ---- 3: a C function, dot(list, list) -> float */

/* The list of numbers that comes next; -1: there is none. */
static int read_list(raygo_mp_reader *r, double *out, uint32_t max) {
  raygo_mp_value v;
  if (!raygo_mp_next(r, &v) || v.type != RAYGO_MP_ARRAY || v.n > max) return -1;
  int n = (int)v.n;
  for (int i = 0; i < n; i++) {
    if (!raygo_mp_next(r, &v) || (v.type != RAYGO_MP_INT && v.type != RAYGO_MP_FLOAT)) return -1;
    out[i] = v.f;
  }
  return n;
}

static void dot(raygo_task task, const raygo_task_info *info) {
  double a[1000], b[1000], sum = 0;
  raygo_mp_value head;
  raygo_mp_reader r = raygo_mp_read(info->args.data, info->args.len);
  int two = raygo_mp_next(&r, &head) && head.type == RAYGO_MP_ARRAY && head.n == 2;
  int n = two ? read_list(&r, a, 1000) : -1, m = two ? read_list(&r, b, 1000) : -1;
  if (n < 0 || n != m) {
    check(raygo_task_fail(task, raygo_str("TypeError"), raygo_str("c.dot takes two lists of numbers of one length, at most 1000"), &err));
    return;
  }
  for (int i = 0; i < n; i++) sum += a[i] * b[i];
  raygo_mp out = RAYGO_MP_INIT;
  raygo_mp_float(&out, sum);
  raygo_result value = {raygo_mp_view(&out), RAYGO_MSGPACK, 0};
  check(raygo_task_reply(task, &value, 1, WITHIN, &err));
  raygo_mp_free(&out);
}

static void serve(raygo_runtime rt, long calls) {
  check(raygo_serve(rt, raygo_str("c.dot"), 1, WITHIN, &err));
  printf("serving c.dot\n");
  fflush(stdout);
  for (long i = 0; calls < 0 || i < calls; i++) {
    raygo_task task;
    raygo_task_info info = RAYGO_TASK_INFO_INIT;
    raygo_status status = raygo_task_next(rt, -1, RAYGO_NO_TOKEN, &task, &info, &err);
    if (status == RAYGO_ECONNECTION || status == RAYGO_ESHUTDOWN) return;   /* the program that we joined has ended */
    check(status);
    dot(task, &info);
  }
}

/* Without a Python program at hand, this one submits the call itself and then serves it. */
static void serve_ourselves(raygo_runtime rt) {
  raygo_template tmpl;
  raygo_object result;
  raygo_buf out;
  raygo_mp args = RAYGO_MP_INIT;
  raygo_mp_array(&args, 2);
  for (int list = 0; list < 2; list++) {
    raygo_mp_array(&args, 2);
    raygo_mp_int(&args, 1 + 2 * list);
    raygo_mp_int(&args, 2 + 2 * list);
  }
  raygo_args a = {raygo_mp_view(&args), NULL, 0};
  check(raygo_serve(rt, raygo_str("c.dot"), 1, WITHIN, &err));
  check(raygo_template_new(rt, RAYGO_NAMED, raygo_str("c.dot"), NULL, &tmpl, &err));
  check(raygo_submit(rt, tmpl, &a, &result, &err));
  serve(rt, 1);
  check(raygo_get(rt, &result, 1, WITHIN, &out, &err));
  raygo_mp_reader r = raygo_mp_read(out.data, out.len);
  raygo_mp_value v;
  if (raygo_mp_next(&r, &v)) printf("c.dot([1, 2], [3, 4]) is %g\n", v.f);
  raygo_buf_release(&out);
  check(raygo_release(&result, 1, &err));
  check(raygo_template_release(tmpl, &err));
  raygo_mp_free(&args);
}

int main(int argc, char **argv) {
  raygo_runtime rt;
  if (argc > 1) check(raygo_connect(raygo_str(argv[1]), NULL, &rt, &err));
  else check(raygo_start(NULL, &rt, &err));
  put_and_get(rt);
  call_python(rt);
  if (argc > 1) serve(rt, argc > 2 ? atol(argv[2]) : -1);
  else serve_ourselves(rt);
  check(raygo_shutdown(rt, 10 * RAYGO_SECOND, &err));
  check(raygo_runtime_release(rt, &err));
  raygo_error_clear(&err);
  return 0;
}
