// What the overview and the commands say, without a browser: `npm test`.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import test from 'node:test'
import { load } from './load.mjs'

// What a page has and Node.js has not.
globalThis.location = { origin: 'http://127.0.0.1:8080', hash: '' }
globalThis.sessionStorage = { getItem: () => null }
const { alarms } = await load('src/alarms.ts')
const { command, bytes, seconds, micros } = await load('src/format.ts')

const well = {
  not_ready: [],
  journal: { full: false },
  copies: 2,
  copies_wanted: 2,
  orphaned: 0,
  strays: 0,
  unreached_seeds: [],
  refused_nodes: [],
  drain: { state: 'off', sessions: 0, sessions_left: 0, gave_up: null },
}
const cluster = { members: [], dead: [], discovery: [] }

test('a node that is well has no alarm', () => {
  assert.deepEqual(alarms(well, cluster, 0), [])
  assert.deepEqual(alarms({ ...well, journal: null }, undefined, null), [])
})

test('each trouble is an alarm that says what it is', () => {
  const cases = [
    [{ not_ready: ['it waits'] }, {}, 0, true, /Not ready for clients: it waits/],
    [{ journal: { full: true } }, {}, 0, true, /journal is full/],
    [{ copies: 1 }, {}, 0, true, /Too few copies: 1 of 2/],
    [{ orphaned: 1, strays: 7 }, {}, 0, true, /7 publications/],
    [{}, { dead: [{ node: 'abcdef0123', address: '10.0.0.1:7883', seconds: 5 }] }, 0, true, /abcdef at 10.0.0.1:7883 is gone/],
    [{}, {}, 3, true, /3 messages are dropped each second/],
    [{}, { members: [{ node: 'abcdef0123', link: { via: '987654321' } }] }, 0, false, /987654 carries the link/],
    [{ unreached_seeds: ['gw-9:7883'] }, {}, 0, false, /gw-9:7883 does not answer/],
    [{ refused_nodes: ['too old'] }, {}, 0, false, /too old/],
    [{}, { discovery: [{ source: 'etcd', failure: 'no route' }] }, 0, false, /etcd fails: no route/],
    [{ drain: { state: 'draining', sessions: 9, sessions_left: 4, gave_up: null } }, {}, 0, false, /4 of 9 sessions/],
    [{ drain: { state: 'off', sessions: 9, sessions_left: 4, gave_up: 'nobody' } }, {}, 0, false, /serves on although/],
  ]
  for (const [status, view, dropping, bad, text] of cases) {
    const found = alarms({ ...well, ...status }, { ...cluster, ...view }, dropping)
    assert.equal(found.length, 1, JSON.stringify(found))
    assert.equal(found[0].bad, bad)
    assert.match(found[0].text, text)
  }
})

test('a bridge that is down is an alarm', () => {
  const bridge = { name: 'cloud', kind: 'mqtt', state: 'down', lag: 1200, last_error: 'refused' }
  const found = alarms(well, cluster, 0, [bridge, { ...bridge, state: 'running' }, { ...bridge, state: 'elsewhere' }])
  assert.deepEqual(found, [{ bad: true, text: 'Bridge cloud does not reach the other end, and 1,200 messages wait: refused.' }])
})

test('a command is what a shell takes for these words', () => {
  for (const words of [['kick', 'a b'], ['kick', "it's; rm -rf $HOME `x` \\ \"y\""], ['retained', '--clear', 'ü/#'], ['kick', '']]) {
    const line = command(words, true)
    const taken = execFileSync('sh', ['-c', `sedge() { printf '%s\\0' "$@"; }; ${line}`], { encoding: 'utf8' })
    assert.deepEqual(taken.split('\0').slice(0, -1), [...words, '--token-file', 'FILE'])
  }
  globalThis.location.origin = 'http://10.0.0.1:9000'
  assert.equal(command(['status'], false), 'sedge status --api http://10.0.0.1:9000')
})

test('figures are short', () => {
  assert.deepEqual([bytes(0), bytes(1536), bytes(3 * 1024 ** 3)], ['0 B', '1.5 KiB', '3 GiB'])
  assert.deepEqual([seconds(59), seconds(600), seconds(4294967295)], ['59 s', '10 min', 'for ever'])
  assert.deepEqual([micros(0), micros(350), micros(12_345)], ['not measured', '350 µs', '12.3 ms'])
})
