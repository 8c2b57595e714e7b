// Sessions of the cluster: sorted, searched and paged by the nodes themselves.
import { useState } from 'preact/hooks'
import type { Session, Sessions, Status } from '../api'
import { bytes, count, date, seconds } from '../format'
import { usePoll } from '../live'
import { Badge, Command, Confirm, Problem, Silent, Table, useSettled, type Change } from '../parts'
import { May } from '../role'

const PAGE = 50
const COLUMNS = [
  { key: 'client', name: 'Client' },
  { key: 'away', name: 'Connection' },
  { key: 'node', name: 'Node' },
  { key: 'subscriptions', name: 'Subscriptions' },
  { key: 'queued', name: 'Waiting' },
  { key: 'bytes', name: 'Bytes' },
  { key: 'inflight', name: 'In flight' },
] as const
/** Nodes answer a question for all of them more slowly than one for themselves. */
const EVERY = 5000
type Key = Exclude<(typeof COLUMNS)[number]['key'], 'node'>

function kick({ client }: { client: string }): Change {
  return {
    title: 'End the connection',
    what: `Client ${client} gets DISCONNECT with 0x98. It may connect again and finds its session.`,
    words: ['kick', client],
    method: 'DELETE',
    path: `/api/v1/sessions/${encodeURIComponent(client)}/connection`,
    done: `The connection of ${client} was ended.`,
  }
}

function end(session: Session): Change {
  return {
    title: 'End the session',
    what: `The subscriptions of ${session.client} and the messages that wait for it are gone then.`,
    words: ['kick', session.client, '--session'],
    method: 'DELETE',
    path: `/api/v1/sessions/${encodeURIComponent(session.client)}`,
    done: `The session of ${session.client} was ended.`,
  }
}

function Details({ session, ask }: { session: Session; ask: (change: Change) => void }) {
  const rows: [string, string][] = [
    ['Address', session.peer ?? '–'],
    ['User', session.user ?? '–'],
    ['Protocol', `MQTT ${session.protocol}`],
    ['Node', session.name ?? '–'],
    ...(session.broker ? [['Broker', session.broker] as [string, string]] : []),
    ['Shard', String(session.shard)],
    ['Keep alive', session.keep_alive_seconds === 0 ? 'none' : seconds(session.keep_alive_seconds)],
    ['Session outlives its connection', session.clean ? 'no' : seconds(session.expiry_seconds)],
    ['Away since', session.disconnected_at_ms === null ? '–' : date(session.disconnected_at_ms)],
    ['QoS 2 publications of its own, not completed', count(session.incoming_qos2)],
    ['Will', session.will ? 'yes' : 'no'],
  ]
  return (
    <section class="card" aria-labelledby="details">
      <h2 id="details" class="break">{session.client}</h2>
      <dl class="pairs">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <h3>Subscriptions</h3>
      {session.subscriptions.length === 0 && <p class="quiet">None.</p>}
      <ul class="list">
        {session.subscriptions.map((subscription) => (
          <li key={subscription.filter}>
            <code>{subscription.filter}</code> QoS {subscription.qos}
            {subscription.id !== null && `, identifier ${subscription.id}`}
          </li>
        ))}
      </ul>
      <p class="row">
        <May role="operate">
          <button type="button" disabled={!session.connected} onClick={() => ask(kick(session))}>
            End the connection …
          </button>
        </May>
        <May role="admin">
          <button type="button" onClick={() => ask(end(session))}>
            End the session …
          </button>
        </May>
      </p>
      <Command words={['sessions', '--client', session.client]} />
    </section>
  )
}

export function Clients() {
  const [typed, setTyped] = useState('')
  const search = useSettled(typed.trim())
  const [connected, setConnected] = useState('')
  const [node, setNode] = useState('*')
  const [sort, setSort] = useState<Key>('client')
  const [down, setDown] = useState(false)
  const [cursors, setCursors] = useState<string[]>([])
  const [chosen, setChosen] = useState<string>()
  const [change, setChange] = useState<Change>()
  const query = new URLSearchParams({ limit: String(PAGE), sort, order: down ? 'desc' : 'asc' })
  if (search) query.set('search', search)
  if (connected) query.set('connected', connected)
  if (node) query.set('node', node)
  const cursor = cursors.at(-1)
  if (cursor !== undefined) query.set('cursor', cursor)
  const page = usePoll<Sessions>(`/api/v1/sessions?${query}`, EVERY)
  const here = usePoll<Status>('/api/v1/status', 60_000)
  const first = cursors.length * PAGE
  const session = page.data?.sessions.find((one) => one.client === chosen)
  const sortBy = (key: Key) => {
    setDown(key === sort ? !down : key !== 'client')
    setSort(key)
    setCursors([])
  }
  return (
    <>
      <p class="quiet">Sessions of the whole cluster, each as the node has it where it is.</p>
      <div class="row filters">
        <label>
          Search
          <input
            type="search"
            value={typed}
            placeholder="client, address or user"
            onInput={(event) => {
              setTyped(event.currentTarget.value)
              setCursors([])
            }}
          />
        </label>
        <label>
          Show
          <select
            value={connected}
            onChange={(event) => {
              setConnected(event.currentTarget.value)
              setCursors([])
            }}
          >
            <option value="">all sessions</option>
            <option value="true">connected</option>
            <option value="false">away</option>
          </select>
        </label>
        <label>
          At
          <select
            value={node}
            onChange={(event) => {
              setNode(event.currentTarget.value)
              setCursors([])
            }}
          >
            <option value="*">all nodes</option>
            <option value="">this node</option>
          </select>
        </label>
      </div>
      <Problem text={page.error} />
      <Silent names={page.data?.silent} />
      <Table
        name="Sessions"
        head={COLUMNS.map((column) => column.key === 'node' ? <th scope="col" key={column.key}>{column.name}</th> : (
          <th scope="col" class={column.key === 'client' || column.key === 'away' ? '' : 'number'} key={column.key} aria-sort={sort === column.key ? (down ? 'descending' : 'ascending') : 'none'}>
            <button type="button" class="sort" onClick={() => sortBy(column.key)}>
              {column.name} <span aria-hidden="true">{sort === column.key ? (down ? '▼' : '▲') : ''}</span>
            </button>
          </th>
        ))}
      >
        {page.data?.sessions.map((one) => (
          <tr key={one.client} class={one.client === chosen ? 'chosen' : ''}>
            <th scope="row">
              <button type="button" class="link-button" aria-expanded={one.client === chosen} onClick={() => setChosen(one.client === chosen ? undefined : one.client)}>
                {one.client || '(empty)'}
              </button>
            </th>
            <td>
              <Badge kind={one.connected ? 'good' : 'plain'}>{one.connected ? 'connected' : 'away'}</Badge> {one.peer ?? (one.disconnected_at_ms && date(one.disconnected_at_ms))}
            </td>
            <td>{one.name}</td>
            <td class="number">{count(one.subscriptions.length)}</td>
            <td class="number">{count(one.queued_messages)}</td>
            <td class="number">{bytes(one.queued_bytes)}</td>
            <td class="number">{count(one.inflight)}</td>
          </tr>
        ))}
      </Table>
      <p class="row between">
        <span role="status">
          {page.data ? (page.data.sessions.length === 0 ? 'No session matches.' : `${first + 1} to ${first + page.data.sessions.length} of ${count(page.data.total)}`) : 'Asking the node …'}
        </span>
        <span class="row">
          <button type="button" disabled={cursors.length === 0} onClick={() => setCursors(cursors.slice(0, -1))}>
            Back
          </button>
          <button type="button" disabled={!page.data?.next} onClick={() => page.data?.next && setCursors([...cursors, page.data.next])}>
            Next
          </button>
        </span>
      </p>
      <Command words={['sessions', ...(node === '' ? ['--node', here.data?.name ?? ''] : []), ...(search ? ['--search', search] : []), '--sort', sort, ...(down === (sort === 'client') ? ['--reverse'] : [])]} />
      {session && <Details session={session} ask={setChange} />}
      {change && (
        <Confirm
          change={change}
          close={() => {
            setChange(undefined)
            page.reload()
          }}
        />
      )}
    </>
  )
}
