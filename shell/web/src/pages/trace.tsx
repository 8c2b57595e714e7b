// What becomes of publications, step by step, at all nodes.
import { useEffect, useRef, useState } from 'preact/hooks'
import { change, get, type Trace, type TraceNote, type TraceNotes } from '../api'
import { count } from '../format'
import { Badge, Command, Problem, Table } from '../parts'
import { useRole } from '../role'

const EVERY = 500
const SECONDS = 60
/** Most steps that the page holds: the oldest publications go. */
const KEPT_MAX = 1_000

/** A step with what it is shown with. */
interface Step { note: TraceNote; number: number; after: number }

/** Notes of several nodes: those of a publication together, by time, the publications in the order in which they were heard of. */
function inOrder(notes: TraceNote[]): Step[] {
  const publications = new Map<string, TraceNote[]>()
  for (const note of notes) {
    const known = publications.get(note.publication)
    if (known) known.push(note)
    else publications.set(note.publication, [note])
  }
  return [...publications.values()].flatMap((steps, number) => {
    const sorted = steps.toSorted((one, other) => one.at_us - other.at_us)
    const first = sorted[0]?.at_us ?? 0
    return sorted.map((note) => ({ note, number: number + 1, after: note.at_us - first }))
  })
}

/** What happened, in the words of `sedge trace`. */
function words(note: TraceNote): string {
  const client = note.client ?? 'the broker'
  const qos = note.qos === undefined ? '' : ` at QoS ${note.qos}`
  const filter = note.filter === undefined ? '' : `, subscription ${note.filter}`
  const nodes = (note.nodes ?? []).join(', ')
  const cause = note.cause ?? 'unknown'
  const session: Record<string, string> = {
    sent: `${client} gets it${qos}${filter}`,
    waits: `it waits for ${client}${qos}${filter}; ${cause}`,
    not: `${client} does not get it; ${cause}${filter}`,
  }
  const steps: Record<string, string | undefined> = {
    received: `came from ${client}${qos}, ${note.bytes ?? 0} bytes`,
    refused: `publication of ${client} is not taken`,
    routed: nodes === '' ? 'goes to no other node' : `goes to ${nodes}`,
    came: `came from ${nodes}`,
    came_again: `came from ${nodes} once more and is not delivered again`,
    copied: 'is copied to other nodes',
    session: session[note.outcome ?? 'not'],
    sent: `sent to ${client}${qos}`,
    acknowledged: `acknowledged by ${client}`,
    dropped: `dropped for ${client}; ${cause}`,
    answered: `${client} has its acknowledgement`,
  }
  const text = steps[note.step] ?? note.step
  return note.detail === undefined ? text : `${text}: ${note.detail}`
}

const isBad = (note: TraceNote) => ['refused', 'dropped'].includes(note.step) || (note.step === 'session' && note.outcome === 'not')

/** Forgets the oldest publications where there are too many steps. */
function bounded(notes: TraceNote[]): TraceNote[] {
  let kept = notes
  while (kept.length > KEPT_MAX) {
    const oldest = kept[0]?.publication
    kept = kept.filter((note) => note.publication !== oldest)
  }
  return kept
}

/** Follows a trace until it ends or somebody ends it; it ends with the page, too. */
function useTrace() {
  const [trace, setTrace] = useState<Trace>()
  const [notes, setNotes] = useState<TraceNote[]>([])
  const [told, setTold] = useState({ dropped: 0, silent: [] as string[] })
  const [problem, setProblem] = useState<string>()
  const say = (error: unknown) => setProblem(error instanceof Error ? error.message : String(error))
  useEffect(() => {
    if (!trace) return
    const stop = new AbortController()
    const until = performance.now() + SECONDS * 1000
    let timer: ReturnType<typeof setTimeout> | undefined
    let cursor: string | undefined
    const ask = async () => {
      try {
        const query = cursor === undefined ? '' : `?cursor=${encodeURIComponent(cursor)}`
        const page = await get<TraceNotes>(`/api/v1/traces/${trace.id}${query}`, stop.signal)
        cursor = page.next
        if (page.notes.length > 0) setNotes((known) => bounded([...known, ...page.notes]))
        setTold({ dropped: page.dropped, silent: page.silent ?? [] })
        setProblem(undefined)
      } catch (error) {
        if (stop.signal.aborted) return
        say(error)
      }
      if (performance.now() > until) setTrace(undefined)
      else if (!stop.signal.aborted) timer = setTimeout(() => void ask(), EVERY)
    }
    void ask()
    return () => {
      stop.abort()
      clearTimeout(timer)
      // It ends by itself if this is lost.
      void change<unknown>('DELETE', `/api/v1/traces/${trace.id}`).catch(() => undefined)
    }
  }, [trace])
  const begin = async (query: URLSearchParams) => {
    try {
      const begun = await change<Trace>('POST', `/api/v1/traces?${query}`)
      setNotes([])
      setTold({ dropped: 0, silent: begun.silent ?? [] })
      setProblem(undefined)
      setTrace(begun)
    } catch (error) {
      say(error)
    }
  }
  return { trace, notes, told, problem, begin, end: () => setTrace(undefined) }
}

export function TraceIt() {
  const [client, setClient] = useState('')
  const [topic, setTopic] = useState('')
  const [oneIn, setOneIn] = useState('1')
  const { trace, notes, told, problem, begin, end } = useTrace()
  const { role, may } = useRole()
  const field = useRef<HTMLInputElement>(null)
  const start = (event: Event) => {
    event.preventDefault()
    if (client === '' && topic === '') return field.current?.focus()
    void begin(new URLSearchParams({ one_in: oneIn || '1', seconds: String(SECONDS), ...(client && { client }), ...(topic && { topic }) }))
  }
  const steps = inOrder(notes)
  const flags = [...(client ? ['--client', client] : []), ...(topic ? ['--topic', topic] : []), ...(oneIn !== '1' && oneIn !== '' ? ['--one-in', oneIn] : [])]
  if (role !== undefined && !may('operate')) return <p>A trace takes the role operate.</p>
  return (
    <>
      <p class="quiet">Each publication of a client, or to a topic, with its way through all nodes, for {SECONDS} seconds. Other publications cost nothing.</p>
      <form class="card" onSubmit={start}>
        <div class="columns">
          <label>
            Client
            <input ref={field} type="text" value={client} placeholder="any" spellcheck={false} autocapitalize="off" autocomplete="off" onInput={(event) => setClient(event.currentTarget.value)} />
          </label>
          <label>
            Topic filter
            <input type="text" value={topic} placeholder="those of the client's subscriptions" spellcheck={false} autocapitalize="off" onInput={(event) => setTopic(event.currentTarget.value)} />
          </label>
          <label>
            One publication of
            <input type="number" min="1" max="1000000" value={oneIn} onInput={(event) => setOneIn(event.currentTarget.value)} />
          </label>
        </div>
        <p class="row end">
          <button type="button" disabled={!trace} onClick={end}>
            Stop
          </button>
          <button type="submit" class="primary" disabled={client === '' && topic === ''}>
            {trace ? 'Start anew' : 'Start'}
          </button>
        </p>
      </form>
      <Problem text={problem} />
      <p role="status">
        {trace ? 'Following.' : notes.length > 0 ? 'Ended.' : 'Not started.'} {steps.length > 0 && `${count(steps.length)} steps of ${count(steps.at(-1)?.number ?? 0)} publications.`}
        {told.dropped > 0 && ` ${count(told.dropped)} steps are lost: follow fewer.`}
        {told.silent.length > 0 && ` Not at ${told.silent.join(', ')}.`}
      </p>
      <Table name="Steps" head={['No.', 'After', 'Node', 'Topic', 'What'].map((name) => <th scope="col" key={name}>{name}</th>)}>
        {steps.map(({ note, number, after }, index) => (
          <tr key={index}>
            <td class="number">{number}</td>
            <td class="number">{(after / 1000).toFixed(3)} ms</td>
            <td>{note.name}</td>
            <td>
              <code>{note.topic}</code>
            </td>
            <td>
              {isBad(note) && <Badge kind="warn">{note.step === 'session' ? 'not' : note.step}</Badge>} {words(note)}
            </td>
          </tr>
        ))}
      </Table>
      <Command words={['trace', ...(flags.length > 0 ? flags : ['--topic', 'FILTER'])]} />
    </>
  )
}
