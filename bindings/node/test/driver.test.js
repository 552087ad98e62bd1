// Against the engine of a running Python driver, whose address is in RAYGO_TEST_ADDRESS (tests/capi/test_bindings.py starts one).
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Table, tableFromArrays, tableFromIPC, tableToIPC, vectorFromArray } from 'apache-arrow'
import { ObjectRef, RaygoError, Runtime, version } from '../lib/index.js'

const within = { timeout: 60 }
let rt

before(async () => {
  assert.ok(process.env.RAYGO_TEST_ADDRESS, 'RAYGO_TEST_ADDRESS names no session of a Python driver')
  rt = await Runtime.connect(process.env.RAYGO_TEST_ADDRESS)
})
after(() => rt?.shutdown())

test('version', () => assert.match(version, /^\d+\.\d+/))

test('bytes come back, large ones in place', async () => {
  for (const size of [0, 1, 1000, 70_000, 3 << 20]) {
    const bytes = Uint8Array.from({ length: size }, (_, i) => i)
    const ref = await rt.put(bytes)
    const [one, two] = [await rt.get(ref, within), await rt.get(ref, within)]
    ref.release() // the bytes outlive the reference
    assert.deepEqual(Buffer.from(one), Buffer.from(bytes))
    assert.deepEqual(Buffer.from(two), Buffer.from(bytes))
  }
})

test('plain values', async () => {
  for (const value of [null, true, -5, 0.25, 'grüße', [1, [2]], { a: { b: [] } }]) assert.deepEqual(await rt.get(await rt.put(value), within), value)
})

test('Python functions', async () => {
  assert.equal(await rt.call('operator:add', [40, 2], within), 42)
  const bytes = await rt.put(Uint8Array.of(1, 2))
  assert.deepEqual([...(await rt.call('operator:mul', [bytes, 2], within))], [1, 2, 1, 2])
  await assert.rejects(rt.call('operator:truediv', [1, 0], within), (e) => e instanceof RaygoError && e.code === 'ETASK' && /ZeroDivisionError/.test(e.message))
  await assert.rejects(rt.call('no_such_name', [], within), { code: 'ENOTFOUND', message: /no_such_name/ })
})

test('calls do not wait for each other', async () => {
  const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => rt.call('operator:mul', [i, 2], within)))
  assert.deepEqual(answers, Array.from({ length: 50 }, (_, i) => 2 * i))
})

test('references', async () => {
  const ref = await rt.put('x')
  await assert.rejects(rt.put([ref]), /argument of a call/)
  ref.release()
  ref.release()
  await assert.rejects(rt.get(ref), /was released/)
  await assert.rejects(rt.get('x'), TypeError)
  assert.ok(ref instanceof ObjectRef)
})

const numbers = Int32Array.from({ length: 100_000 }, (_, i) => i)

function table() {
  return new Table({
    n: vectorFromArray(numbers),
    s: vectorFromArray(Array.from(numbers, (i) => (i % 7 ? `text ${i}` : null))),
  })
}

test('a table goes to Python and comes back in place', async () => {
  const ref = await rt.put(table())
  assert.equal(await rt.call('builtins:len', [ref], within), 100_000)
  const [here, again, from] = [await rt.get(ref, within), await rt.get(ref, within), await rt.call('copy:copy', [ref], within)]
  for (const got of [here, again, from]) {
    assert.equal(got.numRows, 100_000)
    const column = got.getChild('n').data[0].values
    assert.deepEqual(column.slice(-3), numbers.slice(-3))
    assert.equal(got.getChild('s').get(8), 'text 8')
    assert.equal(got.getChild('s').get(7), null)
    assert.ok(column.buffer.byteLength > 1_000_000, 'the column was copied out of its stream')
    assert.equal(column.byteOffset % 64, 0)
  }
  assert.equal(here.getChild('n').nullCount + here.getChild('s').nullCount, Math.ceil(100_000 / 7))
})

test('a table that Python makes', async () => {
  const got = await rt.call('pyarrow:table', [{ a: [1, 2, null], b: ['x', 'y', 'z'] }], within)
  assert.deepEqual(got.toArray().map((row) => [row.a === null ? null : Number(row.a), row.b]), [[1, 'x'], [2, 'y'], [null, 'z']])
})

test('empty, and of several batches', async () => {
  const small = tableFromArrays({ x: Float64Array.of(1, 2) })
  const many = small.concat(small)
  assert.equal((await rt.get(await rt.put(many), within)).numRows, 4)
  assert.equal((await rt.get(await rt.put(tableFromIPC(tableToIPC(small.slice(0, 0)))), within)).numRows, 0)
})

test('memory goes back when nobody looks at it any more', { skip: !globalThis.gc && 'needs --expose-gc' }, async () => {
  const size = 64 << 20
  for (let i = 0; i < 8; i++) {
    // Twice the store in all: without the release the puts would fail or spill.
    const ref = await rt.put(new Uint8Array(size))
    assert.equal((await rt.get(ref, within)).length, size)
    ref.release()
    globalThis.gc()
    await new Promise((resolve) => setImmediate(resolve))
  }
})
