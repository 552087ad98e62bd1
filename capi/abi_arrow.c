/* raygo.h: Arrow data through the C stream interface. */
#include "abi_arrow.h"

raygo_status raygo_arrow_stream(raygo_buf *buf, struct ArrowArrayStream *out, raygo_error *err) {
  if (out) memset(out, 0, sizeof *out);
  RGA_ENTER(err);
  RGA_NEED(err, buf && out, "raygo_arrow_stream: `buf` or `out` is NULL.");
  if (buf->format != RAYGO_ARROW) return rga_fail(err, RAYGO_EINVAL, "raygo_arrow_stream: the value has format %u and is no Arrow data.", buf->format);
  return rga_arrow_open(buf, out, err);
}

raygo_status raygo_get_arrow_stream(raygo_runtime rt, raygo_object object, int64_t timeout_ns, raygo_token token, struct ArrowArrayStream *out,
                                    raygo_error *err) {
  raygo_buf buf;
  if (out) memset(out, 0, sizeof *out);
  RGA_NEED(err, out, "raygo_get_arrow_stream: `out` is NULL.");
  raygo_status r = raygo_get(rt, &object, 1, timeout_ns, token, &buf, err);
  if (r) return r;
  r = raygo_arrow_stream(&buf, out, err);
  raygo_buf_release(&buf);   /* empty unless it was refused */
  return r;
}

raygo_status raygo_put_arrow_stream(raygo_runtime rt, struct ArrowArrayStream *in, int64_t timeout_ns, raygo_token token, raygo_object *out,
                                    raygo_error *err) {
  struct rga_gathered g;
  void *to;
  if (out) out->h = 0;
  RGA_ENTER(err);
  if (!out) {
    if (in && in->release) in->release(in);
    return rga_fail(err, RAYGO_EINVAL, "raygo_put_arrow_stream: `out` is NULL.");
  }
  raygo_status r = rga_arrow_gather("raygo_put_arrow_stream", in, &g, err);
  if (r) return r;
  r = raygo_create(rt, RAYGO_ARROW, g.size, timeout_ns, token, out, &to, err);
  if (!r) rga_arrow_write(&g, to);
  rga_arrow_drop(&g);
  if (!r && (r = raygo_seal(*out, err))) {
    raygo_release(out, 1, NULL);
    out->h = 0;
  }
  return r;
}

raygo_status raygo_arrow_bytes(struct ArrowArrayStream *in, raygo_buf *out, raygo_error *err) {
  struct rga_gathered g;
  void *to = NULL;
  if (out) memset(out, 0, sizeof *out);
  RGA_ENTER(err);
  if (!out) {
    if (in && in->release) in->release(in);
    return rga_fail(err, RAYGO_EINVAL, "raygo_arrow_bytes: `out` is NULL.");
  }
  raygo_status r = rga_arrow_gather("raygo_arrow_bytes", in, &g, err);
  if (r) return r;
  size_t size = g.size;
  if (posix_memalign(&to, RGA_ARROW_ALIGN, size)) to = NULL;
  else rga_arrow_write(&g, to);
  rga_arrow_drop(&g);
  if (!to || !rga_buf_take(out, to, size, RAYGO_ARROW)) return rga_code(err, RAYGO_ENOMEM, "The Arrow data was not taken");
  return RAYGO_OK;
}
