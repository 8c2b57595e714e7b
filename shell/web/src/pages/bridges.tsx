// Bridges to other services and rules in the cluster: each as the node that runs it sees it, with what all nodes have counted.
import type { ComponentChildren } from 'preact'
import type { Bridge, BridgeList, Rule, RuleList } from '../api'
import { bytes, count, seconds, time } from '../format'
import { usePoll, type Polled } from '../live'
import { Badge, Command, Problem, Silent } from '../parts'

const EVERY = 3_000
/** What waits for less than this is on its way, and nothing has fallen behind. */
const FRESH = 2

const KINDS = { running: 'good', down: 'bad' } as const

const STATES: Record<string, string> = {
  running: 'It runs at',
  down: 'It cannot run; messages wait at',
  elsewhere: 'It runs at a node that does not answer,',
  waiting: 'No node has begun to run it yet.',
}

type Worker = Pick<Bridge, 'name' | 'state' | 'node' | 'node_name' | 'lag' | 'lag_bytes' | 'lag_most' | 'waits_seconds' | 'last_error'>

/** Seconds until nothing waits, as fast as it became less since the last answer. */
function left(lag: number, before: { lag: number; at: number } | undefined, at: number): number | null {
  if (!before || before.lag <= lag || at <= before.at) return null
  return (lag * (at - before.at)) / 1000 / (before.lag - lag)
}

function Waiting({ one, before, at }: { one: Worker; before: { lag: number; at: number } | undefined; at: number }) {
  if (one.lag === 0) return <p>Nothing waits.</p>
  const isBehind = one.waits_seconds >= FRESH
  const done = one.lag_most - one.lag
  const rest = left(one.lag, before, at)
  return (
    <>
      <p>
        {count(one.lag)} {one.lag === 1 ? 'message waits' : 'messages wait'}, {bytes(one.lag_bytes)}
        {isBehind ? `; the oldest since ${time(Date.now() - one.waits_seconds * 1000)}, for ${seconds(one.waits_seconds)}.` : '.'}
      </p>
      {isBehind && one.state === 'running' && (
        <p class="row">
          <progress max={one.lag_most} value={done} aria-label={`${one.name} catches up`} />
          <span>
            Catching up: {count(done)} of {count(one.lag_most)}
            {rest !== null && `, ${seconds(Math.max(1, rest))} left`}
          </span>
        </p>
      )}
    </>
  )
}

function Item({ one, about, before, at, children }: { one: Worker; about: string; before: { lag: number; at: number } | undefined; at: number; children: ComponentChildren }) {
  return (
    <li class="card">
      <h3 class="row">
        <span class="break">{one.name}</span> <Badge kind={KINDS[one.state as keyof typeof KINDS] ?? 'plain'}>{one.state}</Badge>
      </h3>
      <p>
        {STATES[one.state] ?? one.state} {one.node && <strong class="break">{one.node_name ?? one.node}</strong>} {about}
      </p>
      {one.last_error !== null && (one.state === 'running' ? <p class="quiet break">Last failure: {one.last_error}</p> : <p class="problem break">{one.last_error}</p>)}
      <Waiting one={one} before={before} at={at} />
      {children}
    </li>
  )
}

function Pairs({ rows }: { rows: [string, string][] }) {
  return (
    <dl class="pairs">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

const WAYS: Record<string, string> = { out: 'to', in: 'from', both: 'to and from' }

function bridgeRows(one: Bridge): [string, string][] {
  return [
    ['Sent', `${count(one.messages_out)} (${bytes(one.bytes_out)})`],
    ['Received', `${count(one.messages_in)} (${bytes(one.bytes_in)})`],
    ['Kept by a rule', count(one.kept)],
    ['Not sent: hops, name or size', count(one.dropped)],
    ['Refused by the receiver', count(one.refused)],
    ['Not repeated, was there', count(one.repeats)],
    ['Handshakes the other end forgot', count(one.forgotten)],
    ['Connections made', count(one.connects)],
    ['Failures', count(one.failures)],
  ]
}

function ruleRows(one: Rule): [string, string][] {
  return [
    ['Seen', count(one.seen)],
    ['Selected', count(one.selected)],
    ['Put out', count(one.outputs)],
    ['Held back: no change', count(one.held_back)],
    ['Failed: no topic', count(one.failed)],
    ['Open windows', `${count(one.windows)} in ${count(one.groups)} groups (${bytes(one.state_bytes)})`],
    ['Too late for its window', count(one.late)],
    ['Groups closed early', count(one.closed_early)],
    ['Without a usable time', count(one.bad_time)],
    ['Over a limit', count(one.over_limit)],
    ['Too large', count(one.too_large)],
    ['Its own output', count(one.loops)],
    ['Failed in jq', count(one.jq_failed)],
    ['Too much for jq', count(one.jq_over_budget)],
    ...(one.births + one.undecodable + one.unknown_metrics + one.rebirths + one.births_forgotten > 0
      ? ([
          ['Sparkplug nodes known', count(one.births)],
          ['Sparkplug nodes forgotten', count(one.births_forgotten)],
          ['No Sparkplug', count(one.undecodable)],
          ['Metrics without a birth', count(one.unknown_metrics)],
          ['Births asked for', count(one.rebirths)],
        ] as [string, string][])
      : []),
  ]
}

function Part<T extends Worker>({ id, title, list, found, none, show }: {
  id: string
  title: string
  list: Polled<{ silent?: string[] }>
  found: { now: T[] | undefined; then: T[] | undefined }
  none: string
  show: (one: T) => { about: string; rows: [string, string][] }
}) {
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <Problem text={list.error} />
      <Silent names={list.data?.silent} />
      {found.now?.length === 0 && <p>{none}</p>}
      <ul class="list">
        {found.now?.map((one) => {
          const { about, rows } = show(one)
          const then = found.then?.find((other) => other.name === one.name)
          return (
            <Item key={one.name} one={one} about={about} before={then && list.before && { lag: then.lag, at: list.before.at }} at={list.at}>
              <Pairs rows={rows} />
            </Item>
          )
        })}
      </ul>
    </section>
  )
}

export function Bridges() {
  const bridges = usePoll<BridgeList>('/api/v1/bridges?node=*', EVERY)
  const rules = usePoll<RuleList>('/api/v1/rules?node=*', EVERY)
  const [all, many] = [bridges.data?.bridges.length, rules.data?.rules.length]
  return (
    <>
      <p class="quiet">The whole cluster: each as the node that runs it sees it; counters of all nodes together, since each has started.</p>
      <p role="status">{all === undefined || many === undefined ? 'Asking the nodes …' : `${count(all)} ${all === 1 ? 'bridge' : 'bridges'} and ${count(many)} ${many === 1 ? 'rule' : 'rules'}.`}</p>
      <Part<Bridge>
        id="bridges"
        title="Bridges"
        list={bridges}
        found={{ now: bridges.data?.bridges, then: bridges.before?.data.bridges }}
        none="The configuration has no bridge."
        show={(one) => ({ about: `${one.kind}, ${WAYS[one.direction] ?? one.direction} ${one.address ?? 'the other end'}`, rows: bridgeRows(one) })}
      />
      <Command words={['bridges']} />
      <Part<Rule>
        id="rules"
        title="Rules"
        list={rules}
        found={{ now: rules.data?.rules, then: rules.before?.data.rules }}
        none="The configuration has no rule that runs in the cluster."
        show={(one) => ({ about: '', rows: ruleRows(one) })}
      />
      <Command words={['rules']} />
    </>
  )
}
