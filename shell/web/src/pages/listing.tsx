// Parts of a node that not every node has: bridges and rules, each with everything that the API says of it.
import { count } from '../format'
import { usePoll } from '../live'
import { Badge, Command, Problem } from '../parts'

type Row = Record<string, unknown>

const GOOD = ['running', 'connected', 'up', 'active']
const CALM = ['waiting', 'elsewhere', 'off', 'disabled', 'paused']

const words = (key: string) => key.replaceAll('_', ' ')

function show(value: unknown): string {
  if (value === null || value === undefined || value === '') return '–'
  if (typeof value === 'number') return count(value)
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function Item({ row }: { row: Row }) {
  const { name, state, last_error: error, ...rest } = row
  const kind = GOOD.includes(String(state)) ? 'good' : CALM.includes(String(state)) ? 'plain' : 'bad'
  return (
    <li class="card">
      <h2 class="row">
        <span class="break">{show(name)}</span> {state !== undefined && <Badge kind={kind}>{show(state)}</Badge>}
      </h2>
      {typeof error === 'string' && error !== '' && <p class="problem">{error}</p>}
      <dl class="pairs">
        {Object.entries(rest).map(([key, value]) => (
          <div key={key}>
            <dt>{words(key)}</dt>
            <dd>{show(value)}</dd>
          </div>
        ))}
      </dl>
    </li>
  )
}

function Listing({ part, command }: { part: string; command: string[] }) {
  const list = usePoll<Record<string, unknown>>(`/api/v1/${part}`, 3000)
  const found = Object.values(list.data ?? {}).find((value) => Array.isArray(value))
  const rows = (found ?? []) as Row[]
  return (
    <>
      <Problem text={list.error} />
      {list.data && rows.length === 0 && <p role="status">This node has none.</p>}
      <ul class="list">
        {rows.map((row, index) => (
          <Item key={String(row['name'] ?? index)} row={row} />
        ))}
      </ul>
      <Command words={command} />
    </>
  )
}

export const Bridges = () => <Listing part="bridges" command={['bridges']} />
export const Rules = () => <Listing part="rules" command={['rules']} />
