// raygo from Node: bytes there and back, a Python function called by its name, and a table for both.
//
//     node example.js [ADDRESS]      joins the engine of a running program; without one, of this user's newest
import { tableFromArrays } from 'apache-arrow'
import { Runtime } from './lib/index.js'

const rt = await Runtime.connect(process.argv[2])

const object = await rt.put(new Uint8Array(1 << 20).fill(200))
const back = await rt.get(object) // shared memory: nothing is copied
console.log(`put and got ${back.length} bytes, the last is ${back.at(-1)}`)

console.log(`Python says the median is ${await rt.call('statistics:median', [[1, 4, 9, 16]], { timeout: 60 })}`)

const table = await rt.put(tableFromArrays({ n: Int32Array.from({ length: 100_000 }, (_, i) => i) }))
console.log(`Python counts ${await rt.call('builtins:len', [table], { timeout: 60 })} rows`)
await rt.shutdown()
