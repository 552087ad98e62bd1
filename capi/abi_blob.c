/* raygo.h: how values are laid out, and arrays. */
#include "abi_int.h"

enum { BLOB = sizeof(struct rg_blob), ENTRY = sizeof(struct rg_bufent) };

uint32_t rga_known_format(uint32_t format) { return format <= RAYGO_TENSOR; }

/* Arrow wants its stream at a multiple of 64, which is where a blob's buffers are. */
size_t rga_head(uint32_t format) { return format == RAYGO_ARROW ? 64 : format == RAYGO_TENSOR ? BLOB + ENTRY : BLOB; }

void rga_head_write(uint8_t *at, uint32_t format, const void *body, size_t len) {
  struct rg_blob h = {.format = (uint8_t)format, .body_len = len};
  struct rg_bufent b = {64, len};
  memset(at, 0, rga_head(format));
  if (format == RAYGO_ARROW) {
    h.body_len = 0;
  } else if (format == RAYGO_TENSOR) {
    uint32_t ndim = ((const struct rg_tensor *)body)->ndim;
    size_t from = raygo_tensor_offset(ndim);
    h.body_len = sizeof(struct rg_tensor) + ndim * sizeof(uint64_t);
    b = (struct rg_bufent){BLOB + ENTRY + from, len - from};
  }
  h.nbuf = format == RAYGO_ARROW || format == RAYGO_TENSOR;
  memcpy(at, &h, sizeof h);
  if (h.nbuf) memcpy(at + sizeof h, &b, sizeof b);
}

int rga_blob(const uint8_t *p, size_t len, uint32_t *format, const uint8_t **body, size_t *body_len) {
  struct rg_blob h = {0};
  struct rg_bufent b = {0, 0};
  if (len >= sizeof h) memcpy(&h, p, sizeof h);
  size_t at = len ? sizeof h + h.nbuf * sizeof b : 0;
  if (at > len || h.body_len > len - at) return 0;
  *format = h.format;
  *body = p + at;
  *body_len = (size_t)h.body_len;
  if (h.format != RG_B_ARROW && h.format != RG_B_TENSOR) return 1;
  if (!h.nbuf) return 0;
  memcpy(&b, p + sizeof h, sizeof b);
  if (b.off > len || b.len > len - b.off) return 0;
  if (h.format == RG_B_ARROW) {
    *body = p + b.off;
    *body_len = (size_t)b.len;
    return 1;
  }
  /* The elements stand behind the shape: both together are what the caller gets. */
  *body_len = (size_t)(b.off + b.len) - at;
  return h.nbuf == 1 && b.off >= at + h.body_len && rga_check_tensor(raygo_bytes(*body, *body_len), NULL) == RAYGO_OK;
}

/* ------------------------------------------------------------------------------------------------ arrays */

static int known_element(uint32_t kind, uint32_t size) {
  switch (kind) {
  case 'b': return size == 1;
  case 'i':
  case 'u': return size == 1 || size == 2 || size == 4 || size == 8;
  case 'f': return size == 2 || size == 4 || size == 8;
  case 'c': return size == 8 || size == 16;
  }
  return 0;
}

/* Bytes of the elements; what is no array is an error. */
static raygo_status measure(uint32_t kind, uint32_t itemsize, uint32_t ndim, const uint64_t *shape, uint64_t *bytes, raygo_error *err) {
  if (!known_element(kind, itemsize)) return rga_fail(err, RAYGO_EINVAL, "An array cannot have elements of kind %u and %u bytes: see struct raygo_tensor.", kind, itemsize);
  if (ndim > RAYGO_MAX_NDIM) return rga_fail(err, RAYGO_EINVAL, "An array of %u dimensions is not known: %d is the most.", ndim, RAYGO_MAX_NDIM);
  *bytes = itemsize;
  bool empty = false;
  for (uint32_t i = 0; i < ndim; i++) empty |= shape[i] == 0;
  for (uint32_t i = 0; i < ndim && !empty; i++)
    if (shape[i] > RGA_MAX / *bytes) return rga_fail(err, RAYGO_EINVAL, "The array's shape makes it larger than any store.");
    else *bytes *= shape[i];
  if (empty) *bytes = 0;
  return RAYGO_OK;
}

raygo_status rga_check_tensor(raygo_view body, raygo_error *err) {
  struct rg_tensor t;
  uint64_t shape[RAYGO_MAX_NDIM], bytes;
  if (body.len < sizeof t) return rga_fail(err, RAYGO_EINVAL, "An array of %zu bytes is not whole.", body.len);
  memcpy(&t, body.data, sizeof t);
  if (t.ndim > RAYGO_MAX_NDIM || body.len < raygo_tensor_offset(t.ndim)) return rga_fail(err, RAYGO_EINVAL, "An array of %zu bytes is not whole.", body.len);
  memcpy(shape, (const uint8_t *)body.data + sizeof t, t.ndim * sizeof *shape);
  raygo_status r = measure(t.kind, t.itemsize, t.ndim, shape, &bytes, err);
  if (!r && body.len - raygo_tensor_offset(t.ndim) != bytes)
    r = rga_fail(err, RAYGO_EINVAL, "The array's shape needs %llu bytes of elements, not %zu.", (unsigned long long)bytes, body.len - raygo_tensor_offset(t.ndim));
  return r;
}

raygo_status raygo_tensor_view(const raygo_buf *buf, raygo_tensor *out, raygo_error *err) {
  struct rg_tensor t;
  if (out) memset(out, 0, sizeof *out);
  RGA_NEED(err, buf && out, "raygo_tensor_view: `buf` or `out` is NULL.");
  if (buf->format != RAYGO_TENSOR) return rga_fail(err, RAYGO_EINVAL, "raygo_tensor_view: the value has format %u and is no array.", buf->format);
  raygo_status r = rga_check_tensor(raygo_bytes(buf->data, buf->len), err);
  if (r) return r;
  memcpy(&t, buf->data, sizeof t);
  out->kind = t.kind;
  out->itemsize = t.itemsize;
  out->ndim = t.ndim;
  out->data = buf->data + raygo_tensor_offset(t.ndim);
  memcpy(out->shape, buf->data + sizeof t, t.ndim * sizeof *out->shape);
  int64_t stride = t.itemsize;
  for (uint32_t i = t.ndim; i--;) {
    out->strides[i] = stride;
    stride *= (int64_t)(out->shape[i] ? out->shape[i] : 1);
  }
  return RAYGO_OK;
}

/* Copies the elements row by row from wherever the strides say they are. */
static void gather(uint8_t *to, const raygo_tensor *t, uint64_t bytes) {
  if (!bytes) return;
  uint32_t flat = t->ndim;   /* the dimensions from here on lie in one piece */
  uint64_t piece = t->itemsize;
  while (flat && (t->shape[flat - 1] == 1 || t->strides[flat - 1] == (int64_t)piece)) piece *= t->shape[--flat];
  if (!flat) {
    rg_copy(to, t->data, bytes);
    return;
  }
  uint64_t at[RAYGO_MAX_NDIM] = {0};
  const uint8_t *from = t->data;
  for (const uint8_t *end = to + bytes; to < end; to += piece) {
    memcpy(to, from, piece);
    for (uint32_t i = flat; i--;) {
      from += t->strides[i];
      if (++at[i] < t->shape[i]) break;
      from -= t->strides[i] * (int64_t)t->shape[i];
      at[i] = 0;
    }
  }
}

raygo_status raygo_create_tensor(raygo_runtime h, const raygo_tensor *tensor, int64_t timeout_ns, raygo_token token, raygo_object *out, void **data,
                                 raygo_error *err) {
  struct rga_entry *e;
  struct rga_wait w;
  uint64_t bytes;
  if (out) out->h = 0;
  if (data) *data = NULL;
  raygo_status r = rga_use_rt(h, &e, err);
  if (r) return r;
  if (!tensor || !out || !data) r = rga_fail(err, RAYGO_EINVAL, "raygo_create_tensor: `%s` is NULL.", !tensor ? "tensor" : out ? "data" : "out");
  else r = measure(tensor->kind, tensor->itemsize, tensor->ndim, tensor->shape, &bytes, err);
  if (!r && !(r = rga_wait_begin(&w, timeout_ns, token, err))) {
    struct { struct rg_tensor t; uint64_t shape[RAYGO_MAX_NDIM], rest[4]; } head = {0};
    size_t from = raygo_tensor_offset(tensor->ndim);
    head.t = (struct rg_tensor){.kind = (uint8_t)tensor->kind, .itemsize = (uint8_t)tensor->itemsize, .ndim = (uint8_t)tensor->ndim};
    memcpy(head.shape, tensor->shape, tensor->ndim * sizeof *head.shape);
    void *to;
    if (!(r = rga_create(e->rt, RAYGO_TENSOR, from + bytes, &head, &w, out, &to, err))) {
      memcpy(to, &head, from);
      *data = (uint8_t *)to + from;
    }
    rga_wait_end(&w);
  }
  rga_unuse(e);
  return r;
}

raygo_status raygo_put_tensor(raygo_runtime h, const raygo_tensor *tensor, int64_t timeout_ns, raygo_token token, raygo_object *out, raygo_error *err) {
  void *to;
  uint64_t bytes = 0;
  raygo_status r = raygo_create_tensor(h, tensor, timeout_ns, token, out, &to, err);
  if (r) return r;
  measure(tensor->kind, tensor->itemsize, tensor->ndim, tensor->shape, &bytes, NULL);
  if (bytes && !tensor->data) {
    raygo_abort(*out, NULL);
    out->h = 0;
    return rga_fail(err, RAYGO_EINVAL, "raygo_put_tensor: the array has %llu bytes at a NULL address.", (unsigned long long)bytes);
  }
  gather(to, tensor, bytes);
  if ((r = raygo_seal(*out, err))) {
    raygo_release(out, 1, NULL);
    out->h = 0;
  }
  return r;
}
