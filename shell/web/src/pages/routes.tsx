// Which node wants what.
import { useState } from 'preact/hooks'
import type { Routes } from '../api'
import { count, short } from '../format'
import { usePoll } from '../live'
import { Command, Problem, Table } from '../parts'

const PAGE = 100

export function Subscriptions() {
  const [offset, setOffset] = useState(0)
  const [local, setLocal] = useState(false)
  const page = usePoll<Routes>(`/api/v1/routes?offset=${offset}&limit=${PAGE}&local=${local}`, 3000)
  const routes = page.data?.routes ?? []
  return (
    <>
      <p class="quiet">What clients of this node want, then what other nodes want: where a publication goes that enters here.</p>
      <p>
        <label class="check">
          <input
            type="checkbox"
            checked={local}
            onChange={(event) => {
              setLocal(event.currentTarget.checked)
              setOffset(0)
            }}
          />
          Only clients of this node
        </label>
      </p>
      <Problem text={page.error} />
      <Table name="Subscriptions" head={['Filter', 'Client', 'Node'].map((name) => <th scope="col" key={name}>{name}</th>)}>
        {routes.map((route, index) => (
          <tr key={`${index} ${route.filter}`}>
            <th scope="row">
              <code>{route.filter}</code>
            </th>
            <td>{route.client ?? '–'}</td>
            <td>{short(route.node)}</td>
          </tr>
        ))}
      </Table>
      <p class="row between">
        <span role="status">{page.data ? (routes.length === 0 ? 'None.' : `${offset + 1} to ${offset + routes.length} of ${count(page.data.total)}`) : 'Asking the node …'}</span>
        <span class="row">
          <button type="button" disabled={offset === 0} onClick={() => setOffset(Math.max(0, offset - PAGE))}>
            Back
          </button>
          <button type="button" disabled={!page.data || offset + routes.length >= page.data.total} onClick={() => setOffset(offset + PAGE)}>
            Next
          </button>
        </span>
      </p>
      <Command words={['routes', ...(offset > 0 ? ['--offset', String(offset)] : [])]} />
    </>
  )
}
