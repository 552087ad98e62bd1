/* Words: names of things, and messages. */
#include "core.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static const struct { const char *name; size_t size; } dtypes[RGC_DTYPES] = {
    {"int8", 1},  {"uint8", 1},  {"int16", 2},   {"uint16", 2},   {"int32", 4},   {"uint32", 4}, {"int64", 8},
    {"uint64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"bool", 1}};
static const char *const kinds[RGC_KINDS] = {"barrier",       "allreduce", "reduce",  "broadcast", "allgather", "reducescatter",
                                             "gather",        "scatter",   "alltoall", "send",      "recv"};
static const char *const ops[RGC_OPS] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};

size_t rgc_dtype_size(uint32_t dtype) { return dtype < RGC_DTYPES ? dtypes[dtype].size : 0; }
const char *rgc_dtype_name(uint32_t dtype) { return dtype < RGC_DTYPES ? dtypes[dtype].name : "unknown type"; }
const char *rgc_kind_name(uint32_t kind) { return kind < RGC_KINDS ? kinds[kind] : "unknown call"; }

const char *rgc_op_name(uint32_t op) { return op < RGC_OPS ? ops[op] : "unknown"; }

int64_t rgc_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int rgc_fail(rgc_error *err, int code, int rank, const char *format, ...) {
  if (!err) return code;
  va_list args;
  err->code = code;
  err->rank = rank;
  va_start(args, format);
  vsnprintf(err->message, sizeof err->message, format, args);
  va_end(args);
  return code;
}

void rgc_describe(char *to, size_t n, uint32_t kind, uint32_t dtype, uint32_t op, int root, uint64_t count) {
  char tail[64] = "";
  if (kind == RGC_BARRIER || kind >= RGC_KINDS) {
    snprintf(to, n, "%s", rgc_kind_name(kind));
    return;
  }
  const char *o = rgc_op_name(op);
  switch (kind) {
  case RGC_ALLREDUCE: case RGC_REDUCESCATTER: snprintf(tail, sizeof tail, " (%s)", o); break;
  case RGC_REDUCE: snprintf(tail, sizeof tail, " (%s) to rank %d", o, root); break;
  case RGC_BROADCAST: case RGC_SCATTER: snprintf(tail, sizeof tail, " from rank %d", root); break;
  case RGC_GATHER: case RGC_SEND: snprintf(tail, sizeof tail, " to rank %d", root); break;
  case RGC_RECV: root < 0 ? snprintf(tail, sizeof tail, " from any rank") : snprintf(tail, sizeof tail, " from rank %d", root); break;
  default: break;
  }
  snprintf(to, n, "%s of %llu × %s%s", rgc_kind_name(kind), (unsigned long long)count, rgc_dtype_name(dtype), tail);
}

void rgc_who(rgc_group *g, int local, char *to, size_t n) {
  snprintf(to, n, "rank %d (pid %d on node %s)", g->rank_of[local], g->seg->line[local].pid, g->node_name);
}

void rgc_log(rgc_group *g, const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (g->log) g->log(g->log_arg, line);
  else fprintf(stderr, "raygo: %s\n", line);
}
