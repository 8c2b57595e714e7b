// What has happened: clients, nodes, and requests of operators.
import { useState } from 'preact/hooks'
import { count, date } from '../format'
import { useLive } from '../live'
import { Badge, Table } from '../parts'

const KINDS = ['connected', 'disconnected', 'refused', 'denied', 'cluster', 'operator']

export function Events() {
  const live = useLive()
  const [kind, setKind] = useState('')
  const [held, setHeld] = useState<typeof live.events>()
  const events = (held ?? live.events).filter((event) => kind === '' || event.kind === kind)
  return (
    <>
      <p class="quiet">
        The node keeps its last 1,000 events, this page the last 500; more than 100 a second of a kind are only counted
        {live.missed > 0 && `, and ${count(live.missed)} were gone before this page asked`}.
      </p>
      <div class="row filters">
        <label>
          Show
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            <option value="">all events</option>
            {KINDS.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <button type="button" aria-pressed={held !== undefined} onClick={() => setHeld(held ? undefined : live.events)}>
          {held ? 'Go on' : 'Hold'}
        </button>
      </div>
      <Table name="Events" head={['Time', 'Kind', 'Client', 'Address', 'What'].map((name) => <th scope="col" key={name}>{name}</th>)}>
        {events.slice(0, 200).map((event) => (
          <tr key={event.id}>
            <td>
              <time dateTime={new Date(event.at_ms).toISOString()}>{date(event.at_ms)}</time>
            </td>
            <td>
              <Badge kind={event.warning ? 'warn' : 'plain'}>{event.kind}</Badge>
            </td>
            <td>{event.client ?? '–'}</td>
            <td>{event.peer ?? '–'}</td>
            <td>{event.text}</td>
          </tr>
        ))}
      </Table>
      <p role="status">{events.length === 0 ? 'Nothing yet.' : `${count(Math.min(events.length, 200))} of ${count(events.length)} are shown.`}</p>
    </>
  )
}
