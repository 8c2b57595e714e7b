// The page's MQTT client without a browser: `npm test`.
import assert from 'node:assert/strict'
import test from 'node:test'
import { load } from './load.mjs'

const codec = await load('src/mqtt/codec.ts')

function all(bytes) {
  const found = []
  const rest = codec.packets(bytes, (packet) => found.push(packet))
  return { found, rest }
}

/** A PUBLISH as the broker sends it is one as a client sends it, too. */
test('a publication comes back with its properties', () => {
  const properties = {
    payloadIsText: true,
    messageExpiry: 4_000_000_000,
    contentType: 'application/json',
    responseTopic: 'answers/ü',
    correlation: new Uint8Array([0, 255, 1]),
    user: [['unit', 'K'], ['unit', '°C'], ['', '']],
  }
  for (const qos of [0, 1, 2]) {
    for (const length of [0, 1, 100, 20_000]) {
      const message = { topic: 'hall/7', payload: new Uint8Array(length).fill(65), qos, retain: qos === 1, dup: false, id: qos && 513, properties }
      const { found, rest } = all(codec.publish(message))
      assert.deepEqual(found, [{ kind: 'publish', message }])
      assert.equal(rest.length, 0)
    }
  }
})

test('packets may come in pieces and several at once', () => {
  const one = codec.publish({ topic: 'a', payload: new Uint8Array(300), qos: 1, retain: false, dup: false, id: 1, properties: {} })
  const two = codec.acknowledge(6, 7)
  const bytes = new Uint8Array([...one, ...two])
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    const first = all(bytes.slice(0, cut))
    const second = all(new Uint8Array([...first.rest, ...bytes.slice(cut)]))
    const kinds = [...first.found, ...second.found].map((packet) => packet.kind)
    assert.deepEqual([kinds, second.rest.length], [['publish', 'ack'], 0], `cut at ${cut}`)
  }
})

/** MQTT 5.0 sections 3.2, 3.9 and 3.14: bytes as the standard draws them. */
test('answers of the broker are understood', () => {
  const cases = [
    [[0x20, 3, 1, 0, 0], { kind: 'connack', present: true, code: 0, reason: undefined }],
    [[0x20, 10, 0, 0x87, 7, 0x1f, 0, 2, 110, 111, 0x24, 1], { kind: 'connack', present: false, code: 0x87, reason: 'no' }],
    [[0x90, 4, 0, 9, 0, 2], { kind: 'suback', id: 9, codes: [2], reason: undefined }],
    [[0x40, 2, 1, 2], { kind: 'ack', type: 4, id: 258, code: 0, reason: undefined }],
    [[0x40, 3, 1, 2, 0x10], { kind: 'ack', type: 4, id: 258, code: 0x10, reason: undefined }],
    [[0xd0, 0], { kind: 'pong' }],
    [[0xe0, 1, 0x98], { kind: 'disconnect', code: 0x98, reason: undefined }],
    [[0xe0, 0], { kind: 'disconnect', code: 0, reason: undefined }],
  ]
  for (const [bytes, packet] of cases) assert.deepEqual(all(new Uint8Array(bytes)).found, [packet])
})

test('what is no MQTT is refused and never read beyond its end', () => {
  for (const bytes of [[0x30, 2, 0, 9], [0x20, 1, 0], [0x00, 0], [0xf0, 0], [0x20, 0xff, 0xff, 0xff, 0xff, 1], [0x30, 5, 0, 1, 97, 1, 0x7f], [0x30, 5, 0, 1, 97, 9, 1]]) {
    assert.throws(() => all(new Uint8Array(bytes)), codec.Malformed, String(bytes))
  }
  let seed = 1
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647
  for (let turn = 0; turn < 20_000; turn += 1) {
    const bytes = Uint8Array.from({ length: Math.floor(random() * 40) }, () => random() * 256)
    try {
      all(bytes)
    } catch (error) {
      assert.ok(error instanceof codec.Malformed, `${error} of ${bytes}`)
    }
  }
})

test('a text that no packet can carry is refused', () => {
  const message = { topic: 'x'.repeat(65_536), payload: new Uint8Array(0), qos: 0, retain: false, dup: false, id: 0, properties: {} }
  assert.throws(() => codec.publish(message), /65,535/)
})
