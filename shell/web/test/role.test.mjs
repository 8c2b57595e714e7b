// What a role is offered, without a browser: `npm test`.
import assert from 'node:assert/strict'
import test from 'node:test'
import { load } from './load.mjs'

globalThis.sessionStorage = { getItem: () => null }
globalThis.location = { origin: 'http://127.0.0.1:8080', hostname: '127.0.0.1', hash: '' }
const { allows } = await load('src/role.tsx')

test('a role is offered what it may do, and what a token that is asked for may', () => {
  const offered = (role, asks) => ['view', 'operate', 'admin'].filter((needed) => allows({ role, asks }, needed))
  assert.deepEqual(offered('view', false), ['view'])
  assert.deepEqual(offered('operate', false), ['view', 'operate'])
  assert.deepEqual(offered('admin', false), ['view', 'operate', 'admin'])
  assert.deepEqual(offered('view', true), ['view', 'operate', 'admin'])
  assert.equal(allows(undefined, 'view'), false, 'the node has not said yet')
})
