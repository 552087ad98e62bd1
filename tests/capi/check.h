/* Small means for the conformance host: every check names its place and what the library said. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "raygo.h"
#include "raygo_msgpack.h"

extern raygo_error err;   /* of the main thread */

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s is not so (last error: %s)\n", __FILE__, __LINE__, #condition, err.message ? err.message : "none"); \
      _exit(1); \
    } \
  } while (0)

#define IS(status, call) \
  do { \
    raygo_status got_ = (call); \
    if (got_ != (status)) { \
      fprintf(stderr, "%s:%d: %s gave %s, not %s: %s\n", __FILE__, __LINE__, #call, raygo_status_name(got_), raygo_status_name(status), \
              err.message ? err.message : "no message"); \
      _exit(1); \
    } \
  } while (0)
#define OK(call) IS(RAYGO_OK, call)

/* Fails with this status, and says this. */
#define SAYS(status, text, call) \
  do { \
    raygo_error_clear(&err); \
    IS(status, call); \
    CHECK(err.code == (status) && err.message && strstr(err.message, text)); \
    raygo_error_clear(&err); \
  } while (0)

#define FOREVER ((int64_t)-1)
#define MS INT64_C(1000000)
#define NONE RAYGO_NO_TOKEN

static inline int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

extern const char *python;            /* interpreter with raygo, or NULL: groups that need Python are left out */
raygo_runtime begin(void);            /* a small engine */
void end(raygo_runtime rt);
raygo_object put_text(raygo_runtime rt, const char *text);
int64_t store_bytes(raygo_runtime rt);   /* used by objects now */

void test_basics(void);
void test_objects(raygo_runtime rt);
void test_queue(raygo_runtime rt);
void test_state(raygo_runtime rt);
void test_serve(raygo_runtime rt);
void test_waits(raygo_runtime rt);
void test_python(raygo_runtime rt);
void test_tensor(raygo_runtime rt);
void test_arrow(raygo_runtime rt);
void test_life(void);
void test_group(void);
#endif
