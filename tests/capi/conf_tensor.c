/* Arrays: stored from C with any strides, read back without a copy, and exchanged with NumPy. */
#include "check.h"

static raygo_tensor rows(const void *data, uint64_t n, uint64_t m) {
  raygo_tensor t;
  memset(&t, 0, sizeof t);
  t.kind = 'i';
  t.itemsize = 4;
  t.ndim = 2;
  t.data = data;
  t.shape[0] = n;
  t.shape[1] = m;
  t.strides[0] = (int64_t)m * 4;
  t.strides[1] = 4;
  return t;
}

static raygo_buf fetch(raygo_runtime rt, raygo_object o) {
  raygo_buf b;
  OK(raygo_get(rt, &o, 1, 30 * RAYGO_SECOND, NONE, &b, &err));
  OK(raygo_release(&o, 1, &err));
  return b;
}

static void strides(raygo_runtime rt) {
  int32_t data[3][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
  raygo_object o;
  raygo_tensor t = rows(data, 3, 4), got;
  OK(raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  raygo_buf b = fetch(rt, o);
  OK(raygo_tensor_view(&b, &got, &err));
  CHECK(b.format == RAYGO_TENSOR && got.kind == 'i' && got.itemsize == 4 && got.ndim == 2 && got.shape[0] == 3 && got.shape[1] == 4);
  CHECK(got.strides[0] == 16 && got.strides[1] == 4 && !memcmp(got.data, data, sizeof data));
  CHECK((uintptr_t)got.data % 8 == 0);

  /* What was got can be put as it is. */
  OK(raygo_put(rt, RAYGO_TENSOR, raygo_bytes(b.data, b.len), FOREVER, NONE, &o, &err));
  SAYS(RAYGO_EINVAL, "needs 48 bytes of elements, not 44", raygo_put(rt, RAYGO_TENSOR, raygo_bytes(b.data, b.len - 4), FOREVER, NONE, &o, &err));
  raygo_buf_release(&b);

  /* Columns of the last two rows, the last column first. */
  t = rows(&data[1][3], 4, 2);
  t.strides[0] = -4;
  t.strides[1] = 16;
  OK(raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  b = fetch(rt, o);
  OK(raygo_tensor_view(&b, &got, &err));
  static const int32_t want[] = {7, 11, 6, 10, 5, 9, 4, 8};
  CHECK(!memcmp(got.data, want, sizeof want));
  raygo_buf_release(&b);

  t.ndim = 0;
  OK(raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  b = fetch(rt, o);
  OK(raygo_tensor_view(&b, &got, &err));
  CHECK(got.ndim == 0 && *(const int32_t *)got.data == 7);
  raygo_buf_release(&b);

  t = rows(NULL, 0, 1000);
  OK(raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  b = fetch(rt, o);
  OK(raygo_tensor_view(&b, &got, &err));
  CHECK(got.shape[0] == 0 && got.shape[1] == 1000);
  raygo_buf_release(&b);
}

static void large(raygo_runtime rt) {
  int64_t before = store_bytes(rt);
  raygo_tensor t = rows(NULL, 1000, 500), got;
  raygo_object o;
  void *to;
  OK(raygo_create_tensor(rt, &t, FOREVER, NONE, &o, &to, &err));
  CHECK((uintptr_t)to % 64 == 0);
  for (int32_t i = 0; i < 500000; i++) ((int32_t *)to)[i] = i;
  OK(raygo_seal(o, &err));
  raygo_buf b = fetch(rt, o);
  OK(raygo_tensor_view(&b, &got, &err));
  CHECK((uintptr_t)got.data % 64 == 0 && ((const int32_t *)got.data)[499999] == 499999);
  raygo_buf_release(&b);
  int64_t until = now_ns() + 10 * RAYGO_SECOND;
  while (store_bytes(rt) > before && now_ns() < until) usleep(2000);
  CHECK(store_bytes(rt) <= before);   /* less when groups before this one let go meanwhile */
}

static void refusals(raygo_runtime rt) {
  int32_t one = 1;
  raygo_tensor t = rows(&one, 1, 1), got;
  raygo_object o;
  raygo_buf b;
  void *to;
  t.kind = 'x';
  SAYS(RAYGO_EINVAL, "kind 120", raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  t = rows(&one, 1, 1);
  t.ndim = 17;
  SAYS(RAYGO_EINVAL, "17 dimensions", raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  t = rows(&one, UINT64_MAX / 8, 3);
  SAYS(RAYGO_EINVAL, "larger than any store", raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  t = rows(NULL, 2, 2);
  SAYS(RAYGO_EINVAL, "NULL address", raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  CHECK(o.h == 0);
  SAYS(RAYGO_EINVAL, "raygo_create_tensor", raygo_create(rt, RAYGO_TENSOR, 100, FOREVER, NONE, &o, &to, &err));
  b = fetch(rt, put_text(rt, "text"));
  SAYS(RAYGO_EINVAL, "no array", raygo_tensor_view(&b, &got, &err));
  raygo_buf_release(&b);
  SAYS(RAYGO_EINVAL, "not whole", raygo_put(rt, RAYGO_TENSOR, raygo_str("i\4\1 and some"), FOREVER, NONE, &o, &err));
}

static void numpy(raygo_runtime rt) {
  int32_t data[] = {1, -2, 3, -4, 5, -6};
  raygo_tensor t = rows(data, 2, 3), got;
  raygo_object o;
  raygo_buf b;
  OK(raygo_put_tensor(rt, &t, FOREVER, NONE, &o, &err));
  static const uint8_t packed[] = {0x91, 0xd6, 1, 0, 0, 0, 0};   /* [the value of reference 0] */
  raygo_args a = {raygo_bytes(packed, sizeof packed), &o, 1};
  raygo_status r = raygo_call(rt, raygo_str("numpy:negative"), &a, 60 * RAYGO_SECOND, NONE, &b, &err);
  OK(raygo_release(&o, 1, &err));
  if (r == RAYGO_ETASK && strstr(err.message, "No module named")) return;
  IS(RAYGO_OK, r);
  OK(raygo_tensor_view(&b, &got, &err));
  CHECK(got.kind == 'i' && got.itemsize == 4 && got.shape[0] == 2 && got.shape[1] == 3);
  for (int i = 0; i < 6; i++) CHECK(((const int32_t *)got.data)[i] == -data[i]);
  raygo_buf_release(&b);
}

void test_tensor(raygo_runtime rt) {
  strides(rt);
  large(rt);
  refusals(rt);
  if (python) numpy(rt);
}
