// The tree of topics, level by level: the server lists one level at a time. Values that clients publish are noted while the page is open.
import { useEffect, useState } from 'preact/hooks'
import { get, request, type TopicLevel, type TopicLine } from '../api'
import { bytes, count, date, time } from '../format'
import { Badge, Command, Problem } from '../parts'
import { Payload } from '../payload'

const PAGE = 100
/** Most lines that a level shows. */
const KEPT_MAX = 1_000
const EVERY = 3_000

interface Row { topic: TopicLine | undefined; below: TopicLine | undefined }

/** A level that is a topic and has topics below is one row. */
function rows(lines: TopicLine[]): [string, Row][] {
  const found = new Map<string, Row>()
  for (const line of lines) {
    const row: Row = found.get(line.name) ?? { topic: undefined, below: undefined }
    row[line.below ? 'below' : 'topic'] = line
    found.set(line.name, row)
  }
  return [...found]
}

async function load(below: string, after: string | null, want: number, signal: AbortSignal): Promise<TopicLevel> {
  let found: TopicLevel | undefined
  let next = after
  do {
    const query = new URLSearchParams({ below, limit: String(PAGE), node: '*', ...(next === null ? {} : { after: next }) })
    const page: TopicLevel = await get<TopicLevel>(`/api/v1/topics?${query}`, signal)
    found = found ? { ...page, lines: [...found.lines, ...page.lines] } : page
    next = page.next
    // A page may be empty although others follow.
  } while (next !== null && found.lines.length < want)
  return found
}

/** The value in full. */
function Value({ topic, at }: { topic: string; at: number }) {
  const [raw, setRaw] = useState<Uint8Array>()
  const [problem, setProblem] = useState<string>()
  useEffect(() => {
    const stop = new AbortController()
    const ask = async () => {
      try {
        const answer = await request(`/api/v1/topics/value?${new URLSearchParams({ topic, node: '*' })}`, { signal: stop.signal })
        setRaw(new Uint8Array(await answer.arrayBuffer()))
        setProblem(undefined)
      } catch (error) {
        if (!stop.signal.aborted) setProblem(error instanceof Error ? error.message : String(error))
      }
    }
    void ask()
    return () => stop.abort()
  }, [topic, at])
  if (problem) return <Problem text={problem} />
  if (!raw) return <p class="quiet">Asking for the value …</p>
  let text: string | null = null
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(raw)
  } catch {
    // Not text.
  }
  return <Payload text={text} bytes={raw.length} raw={raw} whole />
}

const rate = (value: number) => (value >= 0.05 ? `${count(value)} a second` : '')

function Leaf({ topic, line }: { topic: string; line: TopicLine }) {
  return (
    <div class="leaf">
      <p class="break">
        <code>{topic}</code>
      </p>
      <Value topic={topic} at={line.at_ms} />
      <small>
        QoS {line.qos}, {bytes(line.bytes)}, {date(line.at_ms)}
        {line.publisher && `, by ${line.publisher}`}
      </small>
    </div>
  )
}

function Entry({ name, row, below, shown, show }: { name: string; row: Row; below: string; shown: string | undefined; show: (below: string) => void }) {
  const [open, setOpen] = useState(false)
  const { topic, below: more } = row
  const path = `${below}${name}/`
  return (
    <li>
      {topic && (
        <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>
            <code>{name || '(empty)'}</code> {topic.retained && <Badge kind="plain">retained</Badge>} <small>{rate(topic.rate)}</small>{' '}
            <span class="preview">{topic.preview ?? `${bytes(topic.bytes)}, no text`}</span> <small>{time(topic.at_ms)}</small>
          </summary>
          {open && <Leaf topic={`${below}${name}`} line={topic} />}
        </details>
      )}
      {more && (
        <details open={shown === path} onToggle={(event) => event.currentTarget.open && show(path)}>
          <summary>
            <code>{name || '(empty)'}/</code>{' '}
            <small>
              {count(more.topics)}
              {more.more && ' or more'} {more.topics === 1 && !more.more ? 'topic' : 'topics'}
              {rate(more.rate) && `, ${more.more ? 'at least ' : ''}${rate(more.rate)}`}
            </small>
          </summary>
          {shown === path && <Level below={path} />}
        </details>
      )}
    </li>
  )
}

/** One level; one level below it is open at a time, so that little is asked for however large the tree is. */
function Level({ below, isFirst }: { below: string; isFirst?: boolean }) {
  const [want, setWant] = useState(PAGE)
  const [level, setLevel] = useState<TopicLevel>()
  const [problem, setProblem] = useState<string>()
  const [shown, setShown] = useState<string>()
  useEffect(() => {
    const stop = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const look = async () => {
      try {
        if (!document.hidden) setLevel(await load(below, null, want, stop.signal))
        setProblem(undefined)
      } catch (error) {
        if (!stop.signal.aborted) setProblem(error instanceof Error ? error.message : String(error))
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void look(), EVERY)
    }
    void look()
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [below, want])
  const found = rows(level?.lines ?? [])
  const silent = level?.silent ?? []
  return (
    <>
      <Problem text={problem} />
      {silent.length > 0 && <p class="problem">No answer in time from {silent.join(', ')}: what is published there is missing here.</p>}
      {isFirst && (
        <p role="status">
          {!level ? 'Asking the nodes …' : found.length === 0 ? 'No topic is known: nothing is retained, and nobody has published since you look.' : `${count(found.length)} names are shown.`}
          {level && level.left_out > 0 && ` ${count(level.left_out)} publications found no room.`}
        </p>
      )}
      <ul class={isFirst ? 'tree top' : 'tree'}>
        {found.map(([name, row]) => (
          <Entry key={name} name={name} row={row} below={below} shown={shown} show={setShown} />
        ))}
      </ul>
      {level && level.next !== null && want < KEPT_MAX && (
        <p>
          <button type="button" class="small" onClick={() => setWant(want + PAGE)} aria-label={`More of ${below || 'the first level'}`}>
            More
          </button>
        </p>
      )}
      {level && level.next !== null && want >= KEPT_MAX && <p class="quiet">The page shows no more than {count(KEPT_MAX)} of a level: begin further below.</p>}
    </>
  )
}

export function TopicTree() {
  const [typed, setTyped] = useState('')
  const [root, setRoot] = useState('')
  const begin = (event: Event) => {
    event.preventDefault()
    setRoot(typed === '' || typed.endsWith('/') ? typed : `${typed}/`)
  }
  return (
    <>
      <p class="quiet">
        All nodes together: retained messages, and what clients publish while you look and for a minute after that. Rates are over the last 5 to 10
        seconds.
      </p>
      <form class="row filters" onSubmit={begin}>
        <label>
          Begin below
          <input type="text" value={typed} placeholder="plant/hall 7" spellcheck={false} autocapitalize="off" onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <button type="submit">Show</button>
      </form>
      <Level key={root} below={root} isFirst />
      <Command words={['retained', `${root}#`]} />
    </>
  )
}
