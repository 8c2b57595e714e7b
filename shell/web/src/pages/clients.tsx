// Sessions of this node: sorted, searched and paged by the node itself.
import { useState } from 'preact/hooks'
import type { Session, Sessions } from '../api'
import { bytes, count, date, seconds } from '../format'
import { usePoll } from '../live'
import { Badge, Command, Confirm, Problem, Table, useSettled, type Change } from '../parts'
import { May } from '../role'

const PAGE = 50
const COLUMNS = [
  { key: 'client', name: 'Client' },
  { key: 'away', name: 'Connection' },
  { key: 'subscriptions', name: 'Subscriptions' },
  { key: 'queued', name: 'Waiting' },
  { key: 'bytes', name: 'Bytes' },
  { key: 'inflight', name: 'In flight' },
] as const
type Key = (typeof COLUMNS)[number]['key']

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
  const [sort, setSort] = useState<Key>('client')
  const [down, setDown] = useState(false)
  const [cursors, setCursors] = useState<string[]>([])
  const [chosen, setChosen] = useState<string>()
  const [change, setChange] = useState<Change>()
  const query = new URLSearchParams({ limit: String(PAGE), sort, order: down ? 'desc' : 'asc' })
  if (search) query.set('search', search)
  if (connected) query.set('connected', connected)
  const cursor = cursors.at(-1)
  if (cursor !== undefined) query.set('cursor', cursor)
  const page = usePoll<Sessions>(`/api/v1/sessions?${query}`, 3000)
  const first = cursors.length * PAGE
  const session = page.data?.sessions.find((one) => one.client === chosen)
  const sortBy = (key: Key) => {
    setDown(key === sort ? !down : key !== 'client')
    setSort(key)
    setCursors([])
  }
  return (
    <>
      <p class="quiet">Sessions of this node. Those of other nodes are on their dashboards; ending a connection works for the whole cluster.</p>
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
      </div>
      <Problem text={page.error} />
      <Table
        name="Sessions"
        head={COLUMNS.map((column) => (
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
      {page.data?.total === 0 && search && !connected && (
        <May role="operate">
          <p class="row">
            <span>It may be at another node:</span>
            <button type="button" onClick={() => setChange(kick({ client: search }))}>
              End the connection of {search} anywhere …
            </button>
          </p>
        </May>
      )}
      <Command words={['sessions', ...(search ? ['--search', search] : []), '--sort', sort, ...(down === (sort === 'client') ? ['--reverse'] : [])]} />
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
