// Whether a client would get a publication now, and what decides.
import { useRef, useState } from 'preact/hooks'
import { get, type Explanation } from '../api'
import { Badge, Command, Problem } from '../parts'

/** What the form asks. */
interface Question {
  client: string
  topic: string
  qos: string
  bytes: string
  from: string
  expiry: string
  retained: boolean
}

const EMPTY: Question = { client: '', topic: '', qos: '1', bytes: '', from: '', expiry: '', retained: false }
const OUTCOMES = { sent: ['good', 'gets it now'], waits: ['warn', 'gets it later'], not: ['bad', 'does not get it'] } as const

const path = ({ client, topic, qos, bytes, from, expiry, retained }: Question) => {
  const query = new URLSearchParams({ client, topic, qos, ...(bytes && { bytes }), ...(from && { from }), ...(expiry && { expiry }), ...(retained && { retained: 'true' }) })
  return `/api/v1/explain?${query}`
}

/** The flags that ask the same; what is left at its default is not among them. */
function words({ client, topic, qos, bytes, from, expiry, retained }: Question): string[] {
  const flag = (name: string, value: string) => (value === '' ? [] : [name, value])
  const more = [...flag('--qos', qos === '1' ? '' : qos), ...flag('--bytes', bytes), ...flag('--from', from), ...flag('--expiry', expiry)]
  return ['explain', '--client', client || 'CLIENT', '--topic', topic || 'TOPIC', ...more, ...(retained ? ['--retained'] : [])]
}

function Answer({ said }: { said: Explanation }) {
  const [kind, text] = OUTCOMES[said.outcome]
  const pairs = [
    ['Cause', said.cause],
    ['Subscription', said.filter],
    ['QoS', said.qos],
    ['Node', said.name ?? said.node],
  ]
  return (
    <section class="card" aria-labelledby="answer">
      <h2 id="answer" class="row">
        <span class="break">{said.client}</span> <Badge kind={kind}>{text}</Badge>
      </h2>
      <p class="break">{said.detail}</p>
      <dl class="pairs">
        {pairs
          .filter(([, value]) => value !== null)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </section>
  )
}

export function Explain() {
  const [question, setQuestion] = useState(EMPTY)
  const [said, setSaid] = useState<Explanation>()
  const [problem, setProblem] = useState<string>()
  // Answers come in any order: only that to the last question counts.
  const last = useRef(0)
  const set = (part: Partial<Question>) => setQuestion({ ...question, ...part })
  const ask = async (event: Event) => {
    event.preventDefault()
    const turn = ++last.current
    try {
      const answer = await get<Explanation>(path(question))
      if (turn !== last.current) return
      setSaid(answer)
      setProblem(undefined)
    } catch (error) {
      if (turn !== last.current) return
      setSaid(undefined)
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  const field = (name: string, key: 'client' | 'topic' | 'from', hint?: string) => (
    <label>
      {name}
      <input type="text" value={question[key]} required={hint === undefined} placeholder={hint} spellcheck={false} autocapitalize="off" autocomplete="off" onInput={(event) => set({ [key]: event.currentTarget.value })} />
    </label>
  )
  const amount = (name: string, key: 'bytes' | 'expiry', most: number) => (
    <label>
      {name}
      <input type="number" min="0" max={most} value={question[key]} onInput={(event) => set({ [key]: event.currentTarget.value })} />
    </label>
  )
  return (
    <>
      <p class="quiet">Would this client get a publication to this topic now, whichever nodes they are at? Nothing is published.</p>
      <form class="card" onSubmit={(event) => void ask(event)}>
        <div class="columns">
          {field('Client', 'client')}
          {field('Topic', 'topic')}
          {field('Published by', 'from', 'any other client')}
        </div>
        <div class="row filters">
          <label>
            QoS
            <select value={question.qos} onChange={(event) => set({ qos: event.currentTarget.value })}>
              {['0', '1', '2'].map((qos) => (
                <option key={qos}>{qos}</option>
              ))}
            </select>
          </label>
          {amount('Bytes of payload', 'bytes', 268_435_455)}
          {amount('Message expiry in seconds', 'expiry', 4_294_967_295)}
          <label class="check">
            <input type="checkbox" checked={question.retained} onChange={(event) => set({ retained: event.currentTarget.checked })} />
            The retained message, with a SUBSCRIBE
          </label>
          <button type="submit" class="primary">
            Explain
          </button>
        </div>
      </form>
      <Problem text={problem} />
      <div role="status">{said && <Answer said={said} />}</div>
      <Command words={words(question)} />
    </>
  )
}
