// Retained messages as a tree of topics.
import { useEffect, useState } from 'preact/hooks'
import { get, type Retained, type RetainedPage } from '../api'
import { bytes, count, date } from '../format'
import { Command, Confirm, Problem, useSettled, type Change } from '../parts'
import { Payload } from '../payload'
import { May } from '../role'

const PAGE = 200
/** Most messages that the page holds. */
const KEPT_MAX = 2_000

interface Branch { name: string; message: Retained | undefined; below: Map<string, Branch>; count: number }

function grow(messages: Retained[]): Branch {
  const root: Branch = { name: '', message: undefined, below: new Map(), count: 0 }
  for (const message of messages) {
    let branch = root
    root.count += 1
    for (const level of message.topic.split('/')) {
      let next = branch.below.get(level)
      if (!next) branch.below.set(level, (next = { name: level, message: undefined, below: new Map(), count: 0 }))
      next.count += 1
      branch = next
    }
    branch.message = message
  }
  return root
}

function clear(topic: string): Change {
  return {
    title: 'Clear the message',
    what: `The retained message of ${topic} goes on all nodes, and its subscribers get an empty one.`,
    words: ['retained', '--clear', topic],
    method: 'DELETE',
    path: `/api/v1/retained/${encodeURIComponent(topic)}`,
    done: `The retained message of ${topic} was cleared.`,
  }
}

function Leaf({ message, ask }: { message: Retained; ask: (change: Change) => void }) {
  return (
    <div class="leaf">
      <Payload text={message.payload} bytes={message.bytes} />
      <p class="row between">
        <small>
          QoS {message.qos}, {bytes(message.bytes)}, {date(message.set_at_ms)}
          {message.publisher && `, by ${message.publisher}`}
          {message.expires_at_ms !== null && `, until ${date(message.expires_at_ms)}`}
        </small>
        <May role="admin">
          <button type="button" class="small" aria-label={`Clear ${message.topic}`} onClick={() => ask(clear(message.topic))}>
            Clear …
          </button>
        </May>
      </p>
    </div>
  )
}

/** Levels are rendered when they are opened. */
function Level({ branch, depth, ask }: { branch: Branch; depth: number; ask: (change: Change) => void }) {
  const alone = branch.below.size === 0
  const [open, setOpen] = useState(depth < 1)
  return (
    <li>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <code>{branch.name || '(empty)'}</code> {!alone && <small>{branch.count === 1 ? '1 topic' : `${count(branch.count)} topics`}</small>}
        </summary>
        {open && branch.message && <Leaf message={branch.message} ask={ask} />}
        {open && !alone && (
          <ul class="tree">
            {[...branch.below.values()].map((next) => (
              <Level key={next.name} branch={next} depth={depth + 1} ask={ask} />
            ))}
          </ul>
        )}
      </details>
    </li>
  )
}

export function RetainedMessages() {
  const [typed, setTyped] = useState('#')
  const filter = useSettled(typed)
  const [messages, setMessages] = useState<Retained[]>([])
  const [total, setTotal] = useState(0)
  const [next, setNext] = useState<number | null>(0)
  const [problem, setProblem] = useState<string>()
  const [turn, setTurn] = useState(0)
  const [change, setChange] = useState<Change>()
  const load = async (from: number, known: Retained[], signal?: AbortSignal) => {
    try {
      let cursor: number | null = from
      let found = known
      // A page may be empty although others follow.
      while (cursor !== null && found.length < known.length + PAGE && found.length < KEPT_MAX) {
        const query = new URLSearchParams({ filter: filter || '#', limit: String(PAGE), cursor: String(cursor) })
        const page: RetainedPage = await get<RetainedPage>(`/api/v1/retained?${query}`, signal)
        found = [...found, ...page.messages]
        cursor = page.next
        setTotal(page.total)
      }
      setMessages(found)
      setNext(cursor)
      setProblem(undefined)
    } catch (error) {
      if (!signal?.aborted) setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  useEffect(() => {
    const stop = new AbortController()
    void load(0, [], stop.signal)
    return () => stop.abort()
  }, [filter, turn])
  const root = grow(messages)
  return (
    <>
      <p class="quiet">The same on every node: {count(total)} in all.</p>
      <div class="row filters">
        <label>
          Topic filter
          <input type="text" value={typed} spellcheck={false} autocapitalize="off" onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <button type="button" onClick={() => setTurn(turn + 1)}>
          Load again
        </button>
      </div>
      <Problem text={problem} />
      <p role="status">{messages.length === 0 ? 'No retained message matches.' : `${count(messages.length)} messages are shown.`}</p>
      <ul class="tree top">
        {[...root.below.values()].map((branch) => (
          <Level key={branch.name} branch={branch} depth={0} ask={setChange} />
        ))}
      </ul>
      {next !== null && messages.length < KEPT_MAX && (
        <p>
          <button type="button" onClick={() => void load(next, messages)}>
            More
          </button>
        </p>
      )}
      {messages.length >= KEPT_MAX && <p class="quiet">The page holds no more than {count(KEPT_MAX)}: narrow the filter.</p>}
      <Command words={['retained', filter || '#']} />
      {change && (
        <Confirm
          change={change}
          close={(done) => {
            setChange(undefined)
            if (done) setTimeout(() => setTurn(turn + 1), 300)
          }}
        />
      )}
    </>
  )
}
