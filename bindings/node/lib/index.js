/**
 * raygo for Node: values, Arrow tables, and Python functions called by name. A thin layer on the C interface (capi/include/raygo.h).
 */
import { ExtensionCodec, decode, encode } from '@msgpack/msgpack'
import { Table, tableFromIPC, tableToIPC } from 'apache-arrow'
import native, { ABI_VERSION, EMPTY, NO_TOKEN, Options, RaygoError, SIZE, check, take, view, wait } from './native.js'
import koffi from 'koffi'

export { RaygoError }
export const version = native.version()

const NONE = 0
const BYTES = 2
const MSGPACK = 3
const ARROW = 4
const REFERENCE = 1 // msgpack's extension type for a reference among arguments: its number, as uint32

/** Seconds to nanoseconds; undefined: for ever. */
const nanoseconds = (seconds) => (seconds === undefined ? -1n : BigInt(Math.round(seconds * 1e9)))

const objects = new FinalizationRegistry((handle) => native.release(handle, 1, null))

/** A reference to a value, there or to come; it keeps the value alive until it is released or collected. */
export class ObjectRef {
  constructor(handle) {
    this.handle = handle // memory of one raygo_object
    objects.register(this, handle, this)
  }

  /** Let the value go now. */
  release() {
    if (!this.handle) return
    objects.unregister(this)
    check(native.release, this.handle, 1)
    this.handle = null
  }
}

function handleOf(ref) {
  if (!(ref instanceof ObjectRef)) throw new TypeError('not an ObjectRef of raygo')
  if (!ref.handle) throw new RaygoError(1, 'this ObjectRef was released: its value cannot be used any more')
  return ref.handle
}

const codec = new ExtensionCodec()
codec.register({
  type: REFERENCE,
  encode(value, references) {
    if (!(value instanceof ObjectRef)) return null
    if (!references) throw new TypeError('an ObjectRef cannot be stored inside a value: give it as an argument of a call')
    const index = Buffer.alloc(4)
    index.writeUInt32LE(references.push(handleOf(value)) - 1)
    return index
  },
  decode: () => {
    throw new TypeError('the value has a reference to an object inside, which has no form in Node')
  },
})

function read({ format, bytes }) {
  switch (format) {
    case NONE:
      return null
    case BYTES:
      return bytes
    case MSGPACK:
      return decode(bytes, { extensionCodec: codec })
    case ARROW:
      return tableFromIPC(bytes)
    default:
      throw new TypeError(`the value is of format ${format}, which Node cannot read (1 is Python's pickle, 5 a NumPy array)`)
  }
}

/** A session on an engine. */
export class Runtime {
  constructor(handle) {
    this.handle = handle
  }

  /**
   * Start an engine in this process. Options: `numCpus`, `objectStoreMemory` (bytes), `python` (workers' interpreter; default: $RAYGO_PYTHON, else python3),
   * `namespace`, `sysPath` (folders that workers import from).
   */
  static start(options = {}) {
    return Runtime.#begin((o, out) => wait(native.start, o, out), options)
  }

  /** Join the engine of a running program: the path of its socket or session folder; empty: this user's newest. */
  static connect(address = '', options = {}) {
    return Runtime.#begin((o, out) => wait(native.connect, view(address), o, out), options)
  }

  static async #begin(call, { numCpus, objectStoreMemory = 0, python = '', namespace = '', sysPath = [] }) {
    const found = native.abiVersion()
    if (found !== ABI_VERSION) throw new Error(`libraygo.so has version ${found} of the C interface, this package needs ${ABI_VERSION}: build both from one tree`)
    const options = {
      struct_size: koffi.sizeof(Options),
      name_space: view(namespace),
      job_name: EMPTY,
      python: view(python),
      sys_path: view(encode(sysPath)),
      working_dir: EMPTY,
      env: EMPTY,
      runtime_env: EMPTY,
      log_to_driver: 0,
      reserved: 0,
      timeout_ns: 0,
      num_cpus: numCpus === undefined ? 0 : numCpus || -1,
      num_gpus: 0,
      resources: EMPTY,
      object_store_memory: objectStoreMemory,
      engine_options: EMPTY,
    }
    const out = Buffer.alloc(8)
    await call(options, out)
    return new Runtime({ h: out.readBigUInt64LE() })
  }

  /** End the session; an engine of this process stops with its workers. Values that were read stay valid. */
  async shutdown() {
    await wait(native.runtimeRelease, this.handle)
  }

  /** Store a value: a Uint8Array as Python's bytes, an Arrow table as a pyarrow.Table, anything else as a plain value. */
  async put(value, { timeout } = {}) {
    const out = Buffer.alloc(8)
    if (value instanceof Table) {
      await this.#putTable(tableToIPC(value, 'stream'), nanoseconds(timeout), out)
    } else {
      const bytes = value instanceof Uint8Array
      const body = bytes ? value : encode(value, { extensionCodec: codec })
      await wait(native.put, this.handle, bytes ? BYTES : MSGPACK, view(body), nanoseconds(timeout), NO_TOKEN, out)
    }
    return new ObjectRef(out)
  }

  /** Through the C stream interface, which checks what it is given and stores every buffer at a multiple of 64. */
  async #putTable(ipc, timeout, out) {
    const buf = Buffer.alloc(SIZE.buf) // borrows the bytes: it has no owner
    buf.writeBigUInt64LE(BigInt(koffi.address(ipc)), 0)
    buf.writeBigUInt64LE(BigInt(ipc.byteLength), 8)
    buf.writeUInt32LE(ARROW, 24)
    const stream = Buffer.alloc(SIZE.stream)
    check(native.arrowStream, buf, stream)
    await wait(native.putArrowStream, this.handle, stream, timeout, NO_TOKEN, out)
    return ipc // alive until here
  }

  /**
   * Wait for a value. Bytes and Arrow tables are not copied: they stand in shared memory, are read-only (a write to them ends the process), and keep it until
   * they are collected. `timeout` is in seconds.
   */
  async get(ref, { timeout } = {}) {
    const buf = Buffer.alloc(SIZE.buf)
    await wait(native.get, this.handle, handleOf(ref), 1, nanoseconds(timeout), NO_TOKEN, buf)
    return read(take(buf))
  }

  /** Call "module:qualname" of Python, or a function that another program serves, and wait for its value. ObjectRefs among the arguments stand for their values. */
  async call(name, args = [], { timeout } = {}) {
    const references = []
    const packed = encode(args, { extensionCodec: codec, context: references })
    const refs = Buffer.concat(references)
    const buf = Buffer.alloc(SIZE.buf)
    const given = { packed: view(packed), refs: refs.length ? refs : null, nrefs: references.length }
    await wait(native.call, this.handle, view(name), given, nanoseconds(timeout), NO_TOKEN, buf)
    return read(take(buf))
  }
}
