// The node and its cluster at a glance.
import { useState } from 'preact/hooks'
import { alarms } from '../alarms'
import type { BridgeList, Cluster, History, Member, Members, Status } from '../api'
import { Broker } from '../broker'
import { Chart } from '../chart'
import { bytes, count, micros, seconds, short, time } from '../format'
import { Graph, type GraphLink, type GraphNode } from '../graph'
import { live, rate, useLive, usePoll, type Polled } from '../live'
import { AllNodes } from '../nodes'
import { Badge, Command, Confirm, Problem, Table, Tile, type Change } from '../parts'
import { May } from '../role'

/** Bytes a second over a link, both ways. */
function load(member: Member, cluster: Polled<Cluster>): number | null {
  const then = cluster.before?.data.members.find((one) => one.node === member.node)?.link
  const span = cluster.before ? (cluster.at - cluster.before.at) / 1000 : 0
  if (!then || !member.link || span <= 0) return null
  return Math.max(0, (member.link.bytes_sent + member.link.bytes_received - then.bytes_sent - then.bytes_received) / span)
}

function picture(status: Status, cluster: Polled<Cluster>): { nodes: GraphNode[]; links: GraphLink[] } {
  const nodes: GraphNode[] = []
  const links: GraphLink[] = []
  for (const member of cluster.data?.members ?? []) {
    if (member.this) {
      nodes.push({ id: member.node, label: status.name, note: `${count(status.connections)} clients`, kind: 'this' })
      continue
    }
    const kind = member.link ? (member.link.via ? 'carried' : 'up') : 'dead'
    nodes.push({ id: member.node, label: short(member.node), note: member.address, kind })
    if (!member.link) continue
    const bytesPerSecond = load(member, cluster)
    const label = `${micros(member.link.rtt_micros)}${bytesPerSecond === null ? '' : `, ${bytes(bytesPerSecond)}/s`}`
    links.push({ from: member.link.via ?? status.node, to: member.node, label, weight: Math.log10(1 + (bytesPerSecond ?? 0) / 1000), kind: member.link.via ? 'carried' : 'up' })
  }
  for (const dead of cluster.data?.dead ?? []) nodes.push({ id: dead.node, label: short(dead.node), note: `gone, ${seconds(dead.seconds)}`, kind: 'dead' })
  return { nodes, links }
}

const SPANS = [
  { name: '5 min', minutes: 0 },
  { name: '1 hour', minutes: 60 },
  { name: '6 hours', minutes: 360 },
  { name: '24 hours', minutes: 1440 },
]

const perSecond = (value: number) => `${count(value)}/s`
const bytesPerSecond = (value: number) => `${bytes(value)}/s`

function Curves() {
  const [minutes, setMinutes] = useState(0)
  const history = usePoll<History>(minutes === 0 ? null : `/api/v1/history?minutes=${minutes}&points=300`, 10_000)
  const { totals } = live
  const recent = (value: (index: number) => number | null) => totals.map((_, index) => value(index))
  const speed = (field: 'publishes_in' | 'publishes_out' | 'bytes_in' | 'bytes_out' | 'link_bytes' | 'cpu_millis', index: number) => {
    const [now, then] = [totals[index], totals[index - 1]]
    return now && then && now.at_ms > then.at_ms ? Math.max(0, ((now[field] - then[field]) * 1000) / (now.at_ms - then.at_ms)) : null
  }
  const past = (name: string) => history.data?.series.find((series) => series.name === name)?.values ?? []
  const old = minutes > 0
  const times = old ? (history.data?.times ?? []) : totals.map((one) => one.at_ms / 1000)
  const pick = (name: string, value: (index: number) => number | null) => (old ? past(name) : recent(value))
  return (
    <section aria-labelledby="curves">
      <div class="row between">
        <h2 id="curves">Over time</h2>
        <div class="segments" role="group" aria-label="Time span">
          {SPANS.map((span) => (
            <button type="button" key={span.name} aria-pressed={span.minutes === minutes} onClick={() => setMinutes(span.minutes)}>
              {span.name}
            </button>
          ))}
        </div>
      </div>
      <Problem text={history.error} />
      {old && history.data?.times.length === 0 && <p class="quiet">The first sample comes 20 seconds after the start of the node.</p>}
      <div class="charts">
        <Chart
          title="Messages"
          times={times}
          curves={[
            { label: 'from clients', values: pick('publishes_in', (i) => speed('publishes_in', i)), show: perSecond },
            { label: 'to clients', values: pick('publishes_out', (i) => speed('publishes_out', i)), show: perSecond },
          ]}
        />
        <Chart
          title="Bytes"
          times={times}
          curves={[
            { label: 'from clients', values: pick('bytes_in', (i) => speed('bytes_in', i)), show: bytesPerSecond },
            { label: 'to clients', values: pick('bytes_out', (i) => speed('bytes_out', i)), show: bytesPerSecond },
            { label: 'links', values: pick('link_bytes', (i) => speed('link_bytes', i)), show: bytesPerSecond },
          ]}
        />
        <Chart
          title="Clients and queues"
          times={times}
          curves={[
            { label: 'connections', values: pick('connections', (i) => totals[i]?.connections ?? null), show: count },
            { label: 'waiting messages', values: pick('queued', (i) => totals[i]?.queued_messages ?? null), show: count },
          ]}
        />
        <Chart
          title="Processor"
          times={times}
          curves={[{ label: 'of one core', values: pick('cpu', (i) => (speed('cpu_millis', i) ?? 0) / 10), show: (value) => `${count(value)} %` }]}
        />
      </div>
    </section>
  )
}

export function Overview() {
  useLive()
  const status = usePoll<Status>('/api/v1/status', 2000)
  const cluster = usePoll<Cluster>('/api/v1/cluster', 2000)
  const bridges = usePoll<BridgeList>(live.state === 'open' ? '/api/v1/bridges?node=*' : null, 10_000)
  const members = usePoll<Members>(live.state === 'open' ? '/api/v1/members' : null, 10_000)
  const [change, setChange] = useState<Change>()
  const now = status.data
  if (!now) return status.error ? <Problem text={status.error} /> : <p class="quiet">Asking the node …</p>
  const last = live.totals.at(-1)
  const found = alarms(now, cluster.data, rate((totals) => totals.dropped), bridges.data?.bridges)
  const [into, out, cpu] = [rate((totals) => totals.publishes_in), rate((totals) => totals.publishes_out), rate((totals) => totals.cpu_millis)]
  const drawing = picture(now, cluster)
  const brokers = new Map(members.data?.members.map((member) => [member.node, member.broker]))
  const hasBrokers = [...brokers.values()].some(Boolean)
  const draining = now.drain.state !== 'off'
  const drain: Change = draining
    ? { title: 'Serve on', what: 'The node takes clients again. What has moved stays where it is.', words: ['drain', '--cancel'], method: 'DELETE', path: '/api/v1/drain', done: 'The node serves on.' }
    : {
        title: 'Empty the node',
        what: 'It takes no more clients, and its sessions move to other nodes. The process goes on.',
        words: ['drain'],
        method: 'POST',
        path: '/api/v1/drain',
        done: 'The node is being emptied.',
      }
  return (
    <>
      <Problem text={status.error ?? cluster.error} />
      <p class="row">
        <Badge kind={now.ready ? 'good' : 'bad'}>{now.ready ? 'ready' : 'not ready'}</Badge>
        <span>
          {now.name} of cluster {now.cluster}, {now.state}, overlay {now.overlay}, version {now.version}, up {seconds(now.uptime_seconds)}
        </span>
      </p>
      <section aria-labelledby="alarms">
        <h2 id="alarms">Alarms</h2>
        <div role="status">
          {found.length === 0 ? (
            <p class="quiet">None.</p>
          ) : (
            <ul class="alarms">
              {found.map((alarm) => (
                <li key={alarm.text} class={alarm.bad ? 'bad' : 'warn'}>
                  <Badge kind={alarm.bad ? 'bad' : 'warn'}>{alarm.bad ? 'alarm' : 'note'}</Badge> {alarm.text}
                </li>
              ))}
            </ul>
          )}
        </div>
      </section>
      <section aria-labelledby="figures">
        <h2 id="figures">This node</h2>
        <dl class="tiles">
          <Tile name="Clients" value={count(now.connections)} hint={`${count(now.sessions)} sessions`} />
          <Tile name="Subscriptions" value={count(now.subscriptions)} hint={`${count(now.routes)} routes to others`} />
          <Tile name="Messages in" value={into === null ? '–' : perSecond(into)} />
          <Tile name="Messages out" value={out === null ? '–' : perSecond(out)} />
          <Tile name="Waiting" value={count(now.queued_messages)} hint={`${count(now.unacknowledged)} unacknowledged on links`} />
          <Tile name="Retained" value={count(now.retained)} hint={bytes(now.retained_bytes)} />
          <Tile name="Copies" value={`${now.copies} of ${now.copies_wanted}`} hint={`keeps those of ${now.replicas} nodes`} />
          <Tile name="Processor" value={cpu === null ? '–' : `${count(cpu / 10)} %`} hint={`${now.shards} shards`} />
          <Tile name="Memory" value={bytes(last?.resident_bytes ?? now.resident_bytes)} />
          <Tile name="Journal" value={now.journal ? bytes(now.journal.bytes) : 'none'} hint={now.durability} />
        </dl>
      </section>
      {now.upstream && <Broker upstream={now.upstream} />}
      <section aria-labelledby="cluster">
        <h2 id="cluster">Nodes and links</h2>
        <Graph name={`${now.members} nodes, ${now.links} links of this node; the table below says the same`} nodes={drawing.nodes} links={drawing.links} />
        <Table name="Nodes" head={['Node', 'Address', 'Link', 'Round trip', 'Load', 'Unacknowledged', 'Publications out', 'in', ...(hasBrokers ? ['Broker'] : [])].map((name, index) => <th scope="col" class={index > 2 && name !== 'Broker' ? 'number' : ''} key={name}>{name}</th>)}>
          {cluster.data?.members.map((member) => {
            const speed = load(member, cluster)
            return (
              <tr key={member.node}>
                <th scope="row">
                  {member.this ? now.name : short(member.node)} {member.this && <small>this node</small>}
                </th>
                <td>{member.address}</td>
                <td>{member.this ? '–' : member.link ? (member.link.via ? `over ${short(member.link.via)}` : member.link.synced ? 'up' : 'learning') : 'down'}</td>
                <td class="number">{member.link ? micros(member.link.rtt_micros) : '–'}</td>
                <td class="number">{speed === null ? '–' : bytesPerSecond(speed)}</td>
                <td class="number">{member.link ? count(member.link.unacknowledged) : '–'}</td>
                <td class="number">{member.link ? count(member.link.publications_sent) : '–'}</td>
                <td class="number">{member.link ? count(member.link.publications_received) : '–'}</td>
                {hasBrokers && <td>{brokers.get(member.node) ?? '–'}</td>}
              </tr>
            )
          })}
          {cluster.data?.dead.map((dead) => (
            <tr key={dead.node}>
              <th scope="row">{short(dead.node)}</th>
              <td>{dead.address}</td>
              <td colSpan={6}>gone since {seconds(dead.seconds)}</td>
            </tr>
          ))}
        </Table>
        <AllNodes status={now} />
      </section>
      <Curves />
      <section aria-labelledby="lately">
        <h2 id="lately">Lately</h2>
        <ul class="events">
          {live.events.slice(0, 8).map((event) => (
            <li key={event.id}>
              <time dateTime={new Date(event.at_ms).toISOString()}>{time(event.at_ms)}</time> {event.client && <strong>{event.client}</strong>} {event.text}
            </li>
          ))}
        </ul>
        <p>
          <a href="#/events">All events</a>
        </p>
      </section>
      <section aria-labelledby="steer">
        <h2 id="steer">Maintenance</h2>
        <p>{draining ? 'The node takes no clients.' : 'Before a node is stopped for long, its clients and sessions can go to other nodes.'}</p>
        <May role="operate">
          <p>
            <button type="button" onClick={() => setChange(drain)}>
              {drain.title} …
            </button>
          </p>
        </May>
        <Command words={['status']} />
      </section>
      {change && (
        <Confirm
          change={change}
          close={() => {
            setChange(undefined)
            status.reload()
          }}
        />
      )}
    </>
  )
}
