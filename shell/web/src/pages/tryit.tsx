// Subscribe and publish over the node's own WebSocket.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Status } from '../api'
import { count, date, quoted } from '../format'
import { usePoll } from '../live'
import { Client } from '../mqtt/client'
import type { Message, Properties } from '../mqtt/codec'
import { hex, Payload } from '../payload'
import { Command, Problem } from '../parts'
import { say } from '../toast'
import { addresses } from '../websocket'

/** Most messages that the page shows, and most bytes of them. */
const SHOWN_MAX = 200
const SHOWN_BYTES_MAX = 1024 * 1024

interface Shown { number: number; at: number; message: Message }

/** `name=value` lines. */
function pairs(text: string): [string, string][] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  return lines.map((line) => {
    const at = line.indexOf('=')
    return at < 0 ? [line.trim(), ''] : [line.slice(0, at).trim(), line.slice(at + 1)]
  })
}

function QosField({ value, set }: { value: number; set: (qos: number) => void }) {
  return (
    <label>
      QoS
      <select value={value} onChange={(event) => set(Number(event.currentTarget.value))}>
        <option>0</option>
        <option>1</option>
        <option>2</option>
      </select>
    </label>
  )
}

function PropertyList({ properties }: { properties: Properties }) {
  const rows: [string, string][] = []
  const add = (name: string, value: string | number | undefined) => {
    if (value !== undefined) rows.push([name, String(value)])
  }
  add('content type', properties.contentType)
  add('expires in', properties.messageExpiry === undefined ? undefined : `${properties.messageExpiry} s`)
  add('response topic', properties.responseTopic)
  add('correlation data', properties.correlation && hex(properties.correlation))
  add('payload format', properties.payloadIsText ? 'UTF-8 text' : undefined)
  add('subscription identifiers', properties.subscriptions?.join(', '))
  for (const [name, value] of properties.user ?? []) rows.push([name, value])
  if (rows.length === 0) return null
  return (
    <dl class="pairs">
      {rows.map(([name, value], index) => (
        <div key={index}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

function text(payload: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(payload)
  } catch {
    return null
  }
}

function Publish({ client, port }: { client: Client; port: string[] }) {
  const [topic, setTopic] = useState('hello/world')
  const [payload, setPayload] = useState('hi')
  const [qos, setQos] = useState(0)
  const [retain, setRetain] = useState(false)
  const [expiry, setExpiry] = useState('')
  const [contentType, setContentType] = useState('')
  const [responseTopic, setResponseTopic] = useState('')
  const [correlation, setCorrelation] = useState('')
  const [user, setUser] = useState('')
  const [problem, setProblem] = useState<string>()
  const properties: Properties = { user: pairs(user) }
  if (expiry !== '') properties.messageExpiry = Number(expiry)
  if (contentType) properties.contentType = contentType
  if (responseTopic) properties.responseTopic = responseTopic
  if (correlation) properties.correlation = new TextEncoder().encode(correlation)
  const send = async (event: Event) => {
    event.preventDefault()
    try {
      const answer = await client.publish({ topic, payload: new TextEncoder().encode(payload), qos, retain, properties })
      setProblem(undefined)
      say(`Published: ${answer}.`)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  const words = ['pub', ...port, '-t', topic, '-m', payload, ...(qos > 0 ? ['-q', String(qos)] : []), ...(retain ? ['-r'] : [])]
  const property = (name: string, ...values: string[]) => ['-D', 'publish', name, ...values]
  if (expiry) words.push(...property('message-expiry-interval', expiry))
  if (contentType) words.push(...property('content-type', contentType))
  if (responseTopic) words.push(...property('response-topic', responseTopic))
  if (correlation) words.push(...property('correlation-data', correlation))
  for (const [name, value] of properties.user ?? []) words.push(...property('user-property', name, value))
  const field = (label: string, value: string, set: (value: string) => void) => (
    <label>
      {label}
      <input type="text" value={value} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  )
  return (
    <section class="card" aria-labelledby="publish">
      <h2 id="publish">Publish</h2>
      <form onSubmit={(event) => void send(event)}>
        {field('Topic', topic, setTopic)}
        <label>
          Payload
          <textarea rows={3} value={payload} onInput={(event) => setPayload(event.currentTarget.value)} />
        </label>
        <div class="row">
          <QosField value={qos} set={setQos} />
          <label class="check">
            <input type="checkbox" checked={retain} onChange={(event) => setRetain(event.currentTarget.checked)} /> Retain
          </label>
        </div>
        <details>
          <summary>Properties</summary>
          <label>
            Message expiry in seconds
            <input type="number" min={0} value={expiry} onInput={(event) => setExpiry(event.currentTarget.value)} />
          </label>
          {field('Content type', contentType, setContentType)}
          {field('Response topic', responseTopic, setResponseTopic)}
          {field('Correlation data', correlation, setCorrelation)}
          <label>
            User properties, one name=value a line
            <textarea rows={2} value={user} onInput={(event) => setUser(event.currentTarget.value)} />
          </label>
        </details>
        <button type="submit" class="primary">
          Publish
        </button>
        <Problem text={problem} />
      </form>
      <Command text={['sedge', ...words].map(quoted).join(' ')} />
    </section>
  )
}

function Subscribe({ client, port }: { client: Client; port: string[] }) {
  const [filter, setFilter] = useState('hello/#')
  const [qos, setQos] = useState(1)
  const [noLocal, setNoLocal] = useState(false)
  const [asPublished, setAsPublished] = useState(false)
  const [filters, setFilters] = useState<string[]>([])
  const [problem, setProblem] = useState<string>()
  const attempt = async (action: () => Promise<string>, done: (answer: string) => void) => {
    try {
      const answer = await action()
      setProblem(undefined)
      done(answer)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <section class="card" aria-labelledby="subscribe">
      <h2 id="subscribe">Subscribe</h2>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          void attempt(
            () => client.subscribe(filter, { qos, noLocal, asPublished }),
            (answer) => {
              say(`Subscribed to ${filter}: ${answer}.`)
              setFilters([...filters.filter((one) => one !== filter), filter])
            },
          )
        }}
      >
        <label>
          Topic filter
          <input type="text" value={filter} spellcheck={false} autocapitalize="off" onInput={(event) => setFilter(event.currentTarget.value)} />
        </label>
        <div class="row">
          <QosField value={qos} set={setQos} />
          <label class="check">
            <input type="checkbox" checked={noLocal} onChange={(event) => setNoLocal(event.currentTarget.checked)} /> No local
          </label>
          <label class="check">
            <input type="checkbox" checked={asPublished} onChange={(event) => setAsPublished(event.currentTarget.checked)} /> Retain as published
          </label>
        </div>
        <button type="submit" class="primary">
          Subscribe
        </button>
        <Problem text={problem} />
      </form>
      <ul class="list">
        {filters.map((one) => (
          <li class="row between" key={one}>
            <code>{one}</code>
            <button
              type="button"
              class="small"
              onClick={() => void attempt(() => client.unsubscribe(one), () => setFilters(filters.filter((other) => other !== one)))}
            >
              Unsubscribe
            </button>
          </li>
        ))}
      </ul>
      <Command text={['sedge', 'sub', ...port, '-t', filter, '-q', String(qos), '-v'].map(quoted).join(' ')} />
    </section>
  )
}

export function TryIt() {
  const status = usePoll<Status>('/api/v1/status', 0)
  const known = addresses(status.data)
  const [typed, setTyped] = useState<string>()
  const [id, setId] = useState(() => `dashboard-${Math.random().toString(36).slice(2, 8)}`)
  const [user, setUser] = useState('')
  const [password, setPassword] = useState('')
  const [clean, setClean] = useState(true)
  const [expiry, setExpiry] = useState('0')
  const [client, setClient] = useState<Client>()
  const [note, setNote] = useState('Not connected.')
  const [problem, setProblem] = useState<string>()
  const [busy, setBusy] = useState(false)
  const [shown, setShown] = useState<Shown[]>([])
  const received = useRef(0)
  const url = typed ?? known[0] ?? ''
  useEffect(() => () => client?.close(), [client])
  const connect = async (event: Event) => {
    event.preventDefault()
    setBusy(true)
    setProblem(undefined)
    try {
      const made = await Client.connect(url, { client: id, user, password, clean, expiry: Number(expiry) || 0 })
      made.client.onMessage = (message) => {
        received.current += 1
        const next = { number: received.current, at: Date.now(), message }
        setShown((before) => {
          const kept = [next, ...before].slice(0, SHOWN_MAX)
          let bytes = 0
          return kept.filter((one, index) => (bytes += one.message.payload.length) <= SHOWN_BYTES_MAX || index === 0)
        })
      }
      made.client.onEnd = (why) => {
        setClient(undefined)
        setNote(`Not connected: ${why}.`)
      }
      setClient(made.client)
      setNote(`Connected as ${id}${made.present ? ', and the session was there' : ''}.`)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    } finally {
      setBusy(false)
    }
  }
  const mqtt = status.data?.addresses.listeners.find((one) => one.protocol === 'tcp')?.address
  const mqttPort = mqtt?.slice(mqtt.lastIndexOf(':') + 1)
  const host = ['127.0.0.1', 'localhost'].includes(location.hostname) ? [] : ['-h', location.hostname]
  const port = [...host, ...(mqttPort && mqttPort !== '1883' ? ['-p', mqttPort] : []), ...(user ? ['-u', user, '-P', 'PASSWORD'] : [])]
  return (
    <>
      <p class="quiet">An MQTT 5.0 client in this page, over the node's own WebSocket.</p>
      <Problem text={status.error} />
      {status.data && known.length === 0 && (
        <section class="card">
          <p>
            This node has no WebSocket listener that this page can use. It needs one:
          </p>
          <pre>{'[listener.ws]\nprotocol = "ws"\nport = 8083'}</pre>
        </section>
      )}
      {!client && (known.length > 0 || typed !== undefined) && (
        <form class="card" onSubmit={(event) => void connect(event)}>
          <h2>Connect</h2>
          <label>
            Address
            <input type="text" value={url} spellcheck={false} autocapitalize="off" list="addresses" onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
          <datalist id="addresses">
            {known.map((one) => (
              <option key={one} value={one} />
            ))}
          </datalist>
          <label>
            Client identifier
            <input type="text" value={id} onInput={(event) => setId(event.currentTarget.value)} />
          </label>
          <label>
            User
            <input type="text" value={user} autocomplete="off" onInput={(event) => setUser(event.currentTarget.value)} />
          </label>
          <label>
            Password
            <input type="password" value={password} autocomplete="off" onInput={(event) => setPassword(event.currentTarget.value)} />
          </label>
          <div class="row">
            <label class="check">
              <input type="checkbox" checked={clean} onChange={(event) => setClean(event.currentTarget.checked)} /> Clean start
            </label>
            <label>
              Session expiry in seconds
              <input type="number" min={0} value={expiry} onInput={(event) => setExpiry(event.currentTarget.value)} />
            </label>
          </div>
          <button type="submit" class="primary" disabled={busy}>
            Connect
          </button>
          <Problem text={problem} />
        </form>
      )}
      <p class="row between">
        <span role="status">{note}</span>
        {client && (
          <button type="button" onClick={() => client.close()}>
            Disconnect
          </button>
        )}
      </p>
      {client && (
        <div class="columns">
          <Subscribe client={client} port={port} />
          <Publish client={client} port={port} />
        </div>
      )}
      <section aria-labelledby="messages">
        <div class="row between">
          <h2 id="messages">Messages</h2>
          <button type="button" class="small" disabled={shown.length === 0} onClick={() => setShown([])}>
            Clear the list
          </button>
        </div>
        <p class="quiet">
          {count(received.current)} received; the last {SHOWN_MAX} and at most 1 MiB are shown.
        </p>
        <ul class="list">
          {shown.map(({ number, at, message }) => (
            <li class="card" key={number}>
              <p class="row between">
                <code class="break">{message.topic}</code>
                <small>
                  {date(at)}, QoS {message.qos}
                  {message.retain && ', retained'}
                  {message.dup && ', DUP'}
                </small>
              </p>
              <Payload text={text(message.payload)} bytes={message.payload.length} raw={message.payload} />
              <PropertyList properties={message.properties} />
            </li>
          ))}
        </ul>
      </section>
    </>
  )
}
