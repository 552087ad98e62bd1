/* Arrow data through the C stream interface, with a producer and a consumer that know nothing of any library. */
#include "check.h"
#include <errno.h>

/* ------------------------------------------------------------------------------------------------ a producer */

struct source {            /* batches of a column n of int32 and a column s of text */
  int batches, rows, sent, fail_at;
};
static int alive;          /* arrays and schemas that were not released */

static void free_schema(struct ArrowSchema *s) {
  for (int64_t i = 0; i < s->n_children; i++) {
    if (s->children[i]->release) s->children[i]->release(s->children[i]);
    free(s->children[i]);
  }
  free(s->children);
  s->release = NULL;
  alive--;
}

static void make_schema(struct ArrowSchema *s, const char *format, const char *name, int children) {
  *s = (struct ArrowSchema){.format = format, .name = name, .flags = ARROW_FLAG_NULLABLE, .n_children = children, .release = free_schema};
  s->children = calloc((size_t)children, sizeof *s->children);
  for (int i = 0; i < children; i++) s->children[i] = calloc(1, sizeof **s->children);
  alive++;
}

static int source_schema(struct ArrowArrayStream *st, struct ArrowSchema *out) {
  (void)st;
  make_schema(out, "+s", "", 2);
  make_schema(out->children[0], "i", "n", 0);
  make_schema(out->children[1], "u", "s", 0);
  return 0;
}

static void free_array(struct ArrowArray *a) {
  for (int64_t i = 0; i < a->n_children; i++) {
    if (a->children[i]->release) a->children[i]->release(a->children[i]);
    free(a->children[i]);
  }
  for (int64_t i = 0; i < a->n_buffers; i++) free((void *)(uintptr_t)a->buffers[i]);
  free(a->children);
  free(a->buffers);
  a->release = NULL;
  alive--;
}

static void make_array(struct ArrowArray *a, int64_t length, int buffers, int children) {
  *a = (struct ArrowArray){.length = length, .n_buffers = buffers, .n_children = children, .release = free_array};
  a->buffers = calloc((size_t)buffers, sizeof *a->buffers);
  a->children = calloc((size_t)children, sizeof *a->children);
  for (int i = 0; i < children; i++) a->children[i] = calloc(1, sizeof **a->children);
  alive++;
}

static int source_next(struct ArrowArrayStream *st, struct ArrowArray *out) {
  struct source *s = st->private_data;
  memset(out, 0, sizeof *out);
  if (s->sent == s->fail_at) return EIO;
  if (s->sent == s->batches) return 0;
  int n = s->rows;
  int32_t *numbers = malloc((size_t)n * 4), *offsets = malloc((size_t)(n + 1) * 4);
  char *text = malloc((size_t)n * 2);
  for (int i = 0; i < n; i++) {
    numbers[i] = s->sent * n + i;
    offsets[i] = 2 * i;
    text[2 * i] = 'a';
    text[2 * i + 1] = (char)('a' + i % 26);
  }
  offsets[n] = 2 * n;
  make_array(out, n, 1, 2);
  make_array(out->children[0], n, 2, 0);
  out->children[0]->buffers[1] = numbers;
  make_array(out->children[1], n, 3, 0);
  out->children[1]->buffers[1] = offsets;
  out->children[1]->buffers[2] = text;
  s->sent++;
  return 0;
}

static const char *source_error(struct ArrowArrayStream *st) {
  (void)st;
  return "the disk is on fire";
}

static void source_release(struct ArrowArrayStream *st) { st->release = NULL; }

static struct ArrowArrayStream produce(struct source *s, int batches, int rows, int fail_at) {
  *s = (struct source){batches, rows, 0, fail_at};
  return (struct ArrowArrayStream){source_schema, source_next, source_error, source_release, s};
}

/* A slice of a union whose producer has forgotten which of its members the elements are. */
static int lame_schema(struct ArrowArrayStream *st, struct ArrowSchema *out) {
  const struct source *s = st->private_data;
  make_schema(out, "+s", "", 1);
  make_schema(out->children[0], s->rows ? "+ud:0" : "+us:0", "u", 1);
  make_schema(out->children[0]->children[0], "i", "n", 0);
  return 0;
}

static int lame_next(struct ArrowArrayStream *st, struct ArrowArray *out) {
  struct source *s = st->private_data;
  memset(out, 0, sizeof *out);
  if (s->sent++ == s->batches) return 0;
  make_array(out, 2, 1, 1);
  make_array(out->children[0], 3, s->rows ? 2 : 1, 1);
  out->offset = 1;
  make_array(out->children[0]->children[0], 3, 2, 0);
  out->children[0]->children[0]->buffers[1] = calloc(3, 4);
  return 0;
}

/* ------------------------------------------------------------------------------------------------ a consumer */

/* Reads what produce() gave; keeps the first batch in *first when that is not NULL. */
static void consume(struct ArrowArrayStream *st, int batches, int rows, struct ArrowArray *first) {
  struct ArrowSchema schema;
  struct ArrowArray a;
  CHECK(st->get_schema(st, &schema) == 0);
  CHECK(!strcmp(schema.format, "+s") && schema.n_children == 2);
  CHECK(!strcmp(schema.children[0]->format, "i") && !strcmp(schema.children[0]->name, "n") && !strcmp(schema.children[1]->format, "u"));
  schema.release(&schema);
  CHECK(!schema.release);
  for (int b = 0; b < batches; b++) {
    CHECK(st->get_next(st, &a) == 0 && a.release);
    CHECK(a.length == rows && a.n_children == 2 && a.offset == 0);
    const int32_t *numbers = a.children[0]->buffers[1], *offsets = a.children[1]->buffers[1];
    const char *text = a.children[1]->buffers[2];
    for (int i = 0; i < rows; i++) CHECK(numbers[i] == b * rows + i && offsets[i + 1] == 2 * i + 2 && text[2 * i + 1] == 'a' + i % 26);
    if (rows > 20000) CHECK((uintptr_t)numbers % 64 == 0 && (uintptr_t)text % 64 == 0);
    if (b == 0 && first) *first = a;
    else a.release(&a);
  }
  CHECK(st->get_next(st, &a) == 0 && !a.release);
  st->release(st);
  CHECK(!st->release);
}

static raygo_object put(raygo_runtime rt, int batches, int rows) {
  struct source s;
  struct ArrowArrayStream st = produce(&s, batches, rows, -1);
  raygo_object o;
  OK(raygo_put_arrow_stream(rt, &st, FOREVER, NONE, &o, &err));
  CHECK(!st.release && alive == 0);
  return o;
}

static void there_and_back(raygo_runtime rt) {
  static const int shapes[][2] = {{0, 1}, {1, 0}, {1, 1}, {3, 1000}, {2, 50000}};
  int64_t before = store_bytes(rt);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    struct ArrowArrayStream one, two;
    struct ArrowArray first = {0}, again = {0};
    int batches = shapes[i][0], rows = shapes[i][1];
    raygo_object o = put(rt, batches, rows);
    OK(raygo_get_arrow_stream(rt, o, 30 * RAYGO_SECOND, NONE, &one, &err));
    OK(raygo_get_arrow_stream(rt, o, 30 * RAYGO_SECOND, NONE, &two, &err));
    OK(raygo_release(&o, 1, &err));
    consume(&one, batches, rows, &first);
    consume(&two, batches, rows, &again);
    if (batches) {
      const int32_t *n = first.children[0]->buffers[1];
      if (rows > 20000) CHECK(n == again.children[0]->buffers[1]);   /* the same memory, not two copies */
      again.release(&again);
      CHECK(rows == 0 || n[rows - 1] == rows - 1);                   /* which the array alone keeps */
      first.release(&first);
    }
  }
  int64_t until = now_ns() + 10 * RAYGO_SECOND;
  while (store_bytes(rt) > before && now_ns() < until) usleep(2000);
  CHECK(store_bytes(rt) <= before);
}

static void bytes(void) {
  struct source s;
  struct ArrowArrayStream st = produce(&s, 2, 10, -1);
  raygo_buf b;
  OK(raygo_arrow_bytes(&st, &b, &err));
  CHECK(b.format == RAYGO_ARROW && b.len > 100 && !st.release && alive == 0);
  OK(raygo_arrow_stream(&b, &st, &err));
  CHECK(!b.data && !b.owner);
  consume(&st, 2, 10, NULL);
}

static void refusals(raygo_runtime rt) {
  struct source s;
  struct ArrowArrayStream st = produce(&s, 3, 5, 1);
  raygo_object o;
  SAYS(RAYGO_EINVAL, "the disk is on fire", raygo_put_arrow_stream(rt, &st, FOREVER, NONE, &o, &err));
  CHECK(!st.release && !o.h && alive == 0);
  SAYS(RAYGO_EINVAL, "was released", raygo_put_arrow_stream(rt, &st, FOREVER, NONE, &o, &err));
  for (int dense = 0; dense < 2; dense++) {
    s = (struct source){1, dense, 0, -1};
    st = (struct ArrowArrayStream){lame_schema, lame_next, source_error, source_release, &s};
    SAYS(RAYGO_EINVAL, "a buffer of 2 bytes is missing", raygo_put_arrow_stream(rt, &st, FOREVER, NONE, &o, &err));
    CHECK(!st.release && alive == 0);
  }
  st = produce(&s, 1, 5, -1);
  SAYS(RAYGO_EINVAL, "`out` is NULL", raygo_put_arrow_stream(rt, &st, FOREVER, NONE, NULL, &err));
  CHECK(!st.release && alive == 0);
  st = produce(&s, 1, 5, -1);
  SAYS(RAYGO_EINVAL, "`out` is NULL", raygo_arrow_bytes(&st, NULL, &err));
  CHECK(!st.release && alive == 0);
  o = put_text(rt, "text");
  SAYS(RAYGO_EINVAL, "no Arrow data", raygo_get_arrow_stream(rt, o, FOREVER, NONE, &st, &err));
  CHECK(!st.release);
  OK(raygo_release(&o, 1, &err));
  OK(raygo_put(rt, RAYGO_ARROW, raygo_str("this is no Arrow stream"), FOREVER, NONE, &o, &err));
  SAYS(RAYGO_EINVAL, "malformed", raygo_get_arrow_stream(rt, o, FOREVER, NONE, &st, &err));
  OK(raygo_release(&o, 1, &err));
}

/* A table from here to Python and back. */
static void with_python(raygo_runtime rt) {
  static const uint8_t packed[] = {0x91, 0xd6, 1, 0, 0, 0, 0};   /* [the value of reference 0] */
  raygo_object o = put(rt, 2, 30000);
  raygo_args a = {raygo_bytes(packed, sizeof packed), &o, 1};
  raygo_buf b;
  raygo_status r = raygo_call(rt, raygo_str("builtins:len"), &a, 60 * RAYGO_SECOND, NONE, &b, &err);
  if (r == RAYGO_ETASK && strstr(err.message, "No module named")) {
    OK(raygo_release(&o, 1, &err));
    return;
  }
  IS(RAYGO_OK, r);
  raygo_mp_reader p = raygo_mp_read(b.data, b.len);
  raygo_mp_value v;
  CHECK(raygo_mp_next(&p, &v) && v.i == 60000);
  raygo_buf_release(&b);
  OK(raygo_call(rt, raygo_str("copy:copy"), &a, 60 * RAYGO_SECOND, NONE, &b, &err));
  OK(raygo_release(&o, 1, &err));
  struct ArrowArrayStream st;
  OK(raygo_arrow_stream(&b, &st, &err));
  consume(&st, 2, 30000, NULL);
}

void test_arrow(raygo_runtime rt) {
  there_and_back(rt);
  bytes();
  refusals(rt);
  if (python) with_python(rt);
}
