// The load of all nodes, from what each tells in $SYS/brokers/NAME/... (docs/operations.md).
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Status } from './api'
import { bytes, count } from './format'
import { Client } from './mqtt/client'
import { Problem, Table } from './parts'
import { addresses } from './websocket'

const FIGURES = [
  { topic: 'clients/connected', name: 'Clients', show: (value: number) => count(value) },
  { topic: 'load/publish/received/1min', name: 'Messages in', show: (value: number) => `${count(value / 60)}/s` },
  { topic: 'load/publish/sent/1min', name: 'Messages out', show: (value: number) => `${count(value / 60)}/s` },
  { topic: 'load/bytes/sent/1min', name: 'Bytes out', show: (value: number) => `${bytes(value / 60)}/s` },
  { topic: 'load/publish/dropped/1min', name: 'Dropped', show: (value: number) => `${count(value / 60)}/s` },
  { topic: 'store/messages/count', name: 'Stored', show: (value: number) => count(value) },
]
const ROOT = '$SYS/brokers/'
/** Most nodes that are listed. */
const NODES_MAX = 1_000

/** Asks every node through the cluster itself, while the list is open. */
export function AllNodes({ status }: { status: Status }) {
  const [open, setOpen] = useState(false)
  const [nodes, setNodes] = useState<ReadonlyMap<string, Record<string, number>>>(new Map())
  const [problem, setProblem] = useState<string>()
  const [user, setUser] = useState('')
  const password = useRef<HTMLInputElement>(null)
  const [asked, setAsked] = useState(0)
  const url = addresses(status)[0]
  useEffect(() => {
    if (!open || url === undefined) return
    let over = false
    let client: Client | undefined
    const ask = async () => {
      try {
        const options = { client: '', user, password: password.current?.value ?? '', clean: true, expiry: 0 }
        client = (await Client.connect(url, options)).client
        if (over) return client.close()
        client.onEnd = (why) => over || setProblem(why)
        client.onMessage = ({ topic, payload }) => {
          const [name = '', ...rest] = topic.slice(ROOT.length).split('/')
          const value = Number(new TextDecoder().decode(payload))
          setNodes((known) => {
            // What a node that is gone has told is forgotten with an empty message.
            if (payload.length === 0) return new Map([...known].filter(([one]) => one !== name))
            if (!known.has(name) && known.size >= NODES_MAX) return known
            return new Map(known).set(name, { ...known.get(name), [rest.join('/')]: value })
          })
        }
        for (const { topic } of FIGURES) await client.subscribe(`${ROOT}+/${topic}`, { qos: 0, noLocal: false, asPublished: false })
        setProblem(undefined)
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error))
      }
    }
    setNodes(new Map())
    void ask()
    return () => {
      over = true
      client?.close()
    }
  }, [open, url, asked])
  if (url === undefined) return null
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Load of all nodes</summary>
      <p class="quiet">An MQTT client of this page asks for it while this is open; each node tells once in its sys.interval (10 s).</p>
      {problem && (
        <form
          class="row filters"
          onSubmit={(event) => {
            event.preventDefault()
            setAsked(asked + 1)
          }}
        >
          <Problem text={problem} />
          <label>
            User
            <input type="text" value={user} autocomplete="off" onInput={(event) => setUser(event.currentTarget.value)} />
          </label>
          <label>
            Password
            <input ref={password} type="password" autocomplete="off" />
          </label>
          <button type="submit">Ask again</button>
        </form>
      )}
      <Table name="Load" head={['Node', ...FIGURES.map((figure) => figure.name)].map((name, index) => <th scope="col" class={index > 0 ? 'number' : ''} key={name}>{name}</th>)}>
        {[...nodes].sort(([one], [other]) => one.localeCompare(other, 'en', { numeric: true })).map(([name, values]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            {FIGURES.map(({ topic, show }) => {
              const value = values[topic]
              return (
                <td class="number" key={topic}>
                  {value === undefined ? '–' : show(value)}
                </td>
              )
            })}
          </tr>
        ))}
      </Table>
    </details>
  )
}
