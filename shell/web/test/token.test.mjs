// Which commands have to be told a token, without a browser: `npm test`.
import assert from 'node:assert/strict'
import test from 'node:test'
import { load } from './load.mjs'

const kept = new Map()
globalThis.sessionStorage = {
  getItem: (key) => kept.get(key) ?? null,
  setItem: (key, value) => kept.set(key, value),
  removeItem: (key) => kept.delete(key),
}
globalThis.history = { replaceState: () => {} }
globalThis.location = { origin: 'http://127.0.0.1:8080', hostname: '127.0.0.1', hash: '#token=abc' }
const { commandsNeedToken, keepToken, takeToken } = await load('src/api.ts')

test('commands on this machine find the token of sedge up', () => {
  assert.equal(commandsNeedToken(), false, 'there is none')
  takeToken()
  assert.equal(commandsNeedToken(), false)
  location.hostname = 'gw-1'
  assert.equal(commandsNeedToken(), true, 'the node is on another machine')
  location.hostname = '127.0.0.1'
  keepToken('typed')
  assert.equal(commandsNeedToken(), true, 'that of a file')
  keepToken(null)
  assert.equal(commandsNeedToken(), false)
})
