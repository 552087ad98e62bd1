// raygo.h through koffi, as far as this package uses it. What the functions promise is said there.
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import koffi from 'koffi'

const here = path.dirname(fileURLToPath(import.meta.url))
const folder = process.env.RAYGO_LIB_DIR || path.resolve(here, '../../../python/raygo')
const library = koffi.load(path.join(folder, 'libraygo.so'))

const View = koffi.struct('raygo_view', { data: 'void *', len: 'size_t' })
koffi.struct('raygo_runtime', { h: 'uint64_t' })
koffi.struct('raygo_object', { h: 'uint64_t' })
koffi.struct('raygo_token', { h: 'uint64_t' })
koffi.struct('raygo_args', { packed: View, refs: 'void *', nrefs: 'size_t' })
export const Options = koffi.struct('raygo_options', {
  struct_size: 'size_t',
  name_space: View,
  job_name: View,
  python: View,
  sys_path: View,
  working_dir: View,
  env: View,
  runtime_env: View,
  log_to_driver: 'uint32_t',
  reserved: 'uint32_t',
  timeout_ns: 'int64_t',
  num_cpus: 'double',
  num_gpus: 'double',
  resources: View,
  object_store_memory: 'uint64_t',
  engine_options: View,
})

// What functions fill is memory of ours, so that it can be handed to raygo_error_clear and raygo_buf_release as it is.
const declared = {
  version: library.func('const char *raygo_version()'),
  abiVersion: library.func('uint32_t raygo_abi_version()'),
  statusName: library.func('const char *raygo_status_name(int32_t status)'),
  errorClear: library.func('void raygo_error_clear(void *err)'),
  bufRelease: library.func('void raygo_buf_release(void *buf)'),
  start: library.func('int32_t raygo_start(const raygo_options *options, void *out, void *err)'),
  connect: library.func('int32_t raygo_connect(raygo_view address, const raygo_options *options, void *out, void *err)'),
  runtimeRelease: library.func('int32_t raygo_runtime_release(raygo_runtime rt, void *err)'),
  put: library.func('int32_t raygo_put(raygo_runtime rt, uint32_t format, raygo_view body, int64_t timeout, raygo_token token, void *out, void *err)'),
  get: library.func('int32_t raygo_get(raygo_runtime rt, void *objects, size_t n, int64_t timeout, raygo_token token, void *out, void *err)'),
  release: library.func('int32_t raygo_release(void *objects, size_t n, void *err)'),
  call: library.func('int32_t raygo_call(raygo_runtime rt, raygo_view name, const raygo_args *args, int64_t timeout, raygo_token token, void *out, void *err)'),
  arrowStream: library.func('int32_t raygo_arrow_stream(void *buf, void *out, void *err)'),
  putArrowStream: library.func('int32_t raygo_put_arrow_stream(raygo_runtime rt, void *in, int64_t timeout, raygo_token token, void *out, void *err)'),
}
export default declared

export const ABI_VERSION = 1
export const NO_TOKEN = { h: 0 }
export const EMPTY = { data: null, len: 0 }
export const SIZE = { error: 56, buf: 32, stream: 40 } // bytes of struct raygo_error, raygo_buf and ArrowArrayStream

/** A failure of raygo: `code` is as in "ETIMEDOUT", `status` its number, the message says what happened and what to do. */
export class RaygoError extends Error {
  constructor(status, message) {
    super(message)
    this.name = 'RaygoError'
    this.status = status
    this.code = declared.statusName(status)
  }
}

function begin() {
  const err = Buffer.alloc(SIZE.error)
  err.writeBigUInt64LE(BigInt(SIZE.error))
  return err
}

function end(status, err) {
  if (status === 0) return
  const text = err.readBigUInt64LE(16)
  const failure = new RaygoError(status, text ? koffi.decode.string(text) : declared.statusName(status))
  declared.errorClear(err)
  throw failure
}

/** Call a function that does not wait. */
export function check(fn, ...args) {
  const err = begin()
  end(fn(...args, err), err)
}

const running = new Set() // what calls under way point into

/** Call a function that may wait, on a thread of koffi's. The arguments are kept until it returns. */
export async function wait(fn, ...args) {
  const err = begin()
  running.add(args)
  try {
    end(await new Promise((resolve, reject) => fn.async(...args, err, (failure, result) => (failure ? reject(failure) : resolve(result)))), err)
  } finally {
    running.delete(args)
  }
}

/** Borrow bytes or text for a call. */
export function view(bytes) {
  if (typeof bytes === 'string') bytes = Buffer.from(bytes)
  return bytes.byteLength ? { data: bytes, len: bytes.byteLength } : EMPTY
}

const buffers = new FinalizationRegistry((buf) => declared.bufRelease(buf))

/** The bytes of a filled raygo_buf, in place. They go back when the last view of them has been collected. */
export function take(buf) {
  const at = buf.readBigUInt64LE(0)
  const len = Number(buf.readBigUInt64LE(8))
  const format = buf.readUInt32LE(24)
  if (!at || !len) {
    declared.bufRelease(buf)
    return { format, bytes: new Uint8Array(0) }
  }
  const memory = koffi.view(at, len)
  buffers.register(memory, buf)
  return { format, bytes: new Uint8Array(memory) }
}
