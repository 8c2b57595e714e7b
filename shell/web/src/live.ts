// What the node tells while it happens (GET /api/v1/events), for all pages.
import { useEffect, useReducer } from 'preact/hooks'
import { get, request, watchToken, wantsToken, type Happened, type Totals } from './api'

const EVENTS_MAX = 500
/** Five minutes. */
const TOTALS_MAX = 150

export interface Live {
  state: 'connecting' | 'open' | 'lost'
  why: string
  totals: Totals[]
  events: Happened[]
  missed: number
}

export const live: Live = { state: 'connecting', why: '', totals: [], events: [], missed: 0 }
const watchers = new Set<() => void>()
let last = 0

const tell = () => watchers.forEach((watcher) => watcher())

function take(kind: string, data: string) {
  const value: unknown = JSON.parse(data)
  if (kind === 'totals') {
    const totals = value as Totals
    // Counters that have gone back are those of another life of the node.
    if (totals.publishes_in < (live.totals.at(-1)?.publishes_in ?? 0)) live.totals = []
    live.totals = [...live.totals, totals].slice(-TOTALS_MAX)
  } else if (kind === 'missed') {
    live.missed += value as number
  } else if (kind === 'happened') {
    const event = value as Happened
    last = event.id
    live.events = [event, ...live.events].slice(0, EVENTS_MAX)
  }
}

/** Takes a stream of server-sent events apart. */
async function read(body: ReadableStream<Uint8Array>, alive: () => void) {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader()
  let rest = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    alive()
    const blocks = (rest + value).split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) {
      const field = (name: string) => block.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2)
      const [kind, data] = [field('event'), field('data')]
      if (kind !== undefined && data !== undefined) take(kind, data)
    }
    tell()
  }
}

/** Totals come every two seconds: a stream that is silent for longer is dead. */
const SILENCE = 10_000

async function once() {
  const stop = new AbortController()
  let timer = setTimeout(() => stop.abort(), SILENCE)
  const alive = () => {
    clearTimeout(timer)
    timer = setTimeout(() => stop.abort(), SILENCE)
  }
  try {
    const answer = await request(`/api/v1/events?after=${last}`, { signal: stop.signal })
    if (answer.body === null) return
    live.state = 'open'
    tell()
    await read(answer.body, alive)
    live.why = 'the node has ended the stream'
  } catch (error) {
    live.why = error instanceof Error && error.name !== 'AbortError' ? error.message : 'the node is silent'
  } finally {
    clearTimeout(timer)
  }
}

/** Watches the node as long as the page is open. */
export async function watch() {
  for (;;) {
    if (!wantsToken()) await once()
    live.state = 'lost'
    tell()
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, 2000)
      const forget = watchToken(done)
      function done() {
        clearTimeout(timer)
        forget()
        resolve()
      }
    })
  }
}

/** What is known, rendered anew with each piece of news. */
export function useLive(): Live {
  const [, render] = useReducer((n: number) => n + 1, 0)
  useEffect(() => {
    const watcher = () => render(undefined)
    watchers.add(watcher)
    return () => void watchers.delete(watcher)
  }, [])
  return live
}

/** How fast a counter grows, from the last two totals. */
export function rate(field: (totals: Totals) => number): number | null {
  const [then, now] = live.totals.slice(-2)
  if (!then || !now || now.at_ms <= then.at_ms) return null
  return Math.max(0, ((field(now) - field(then)) * 1000) / (now.at_ms - then.at_ms))
}

export interface Polled<T> {
  data: T | undefined
  /** What was known before, for rates. */
  before: { data: T; at: number } | undefined
  at: number
  error: string | undefined
  reload: () => void
}

/** Asks for `path` now and every `every` milliseconds while the page can be seen; null: not now. */
export function usePoll<T>(path: string | null, every: number): Polled<T> {
  const [state, set] = useReducer((_: Omit<Polled<T>, 'reload'>, next: Omit<Polled<T>, 'reload'>) => next, {
    data: undefined,
    before: undefined,
    at: 0,
    error: undefined,
  })
  const [turn, reload] = useReducer((n: number) => n + 1, 0)
  useEffect(() => {
    if (path === null) return
    const stop = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    let known: { data: T; at: number } | undefined
    const ask = async () => {
      if (!document.hidden && !wantsToken()) {
        try {
          const data = await get<T>(path, stop.signal)
          const at = performance.now()
          set({ data, before: known, at, error: undefined })
          known = { data, at }
        } catch (error) {
          if (stop.signal.aborted) return
          const why = error instanceof Error ? error.message : String(error)
          set({ data: known?.data, before: undefined, at: known?.at ?? 0, error: why })
        }
      }
      if (!stop.signal.aborted && every > 0) timer = setTimeout(() => void ask(), every)
    }
    void ask()
    const shown = () => {
      if (!document.hidden) {
        clearTimeout(timer)
        void ask()
      }
    }
    const forget = watchToken(shown)
    return () => {
      stop.abort()
      clearTimeout(timer)
      forget()
    }
  }, [path, every, turn])
  return { ...state, reload: () => reload(undefined) }
}
