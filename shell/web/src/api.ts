// The HTTP API of the node that served the page, and what it says (docs: /api/v1/openapi.json).

export interface Link {
  via?: string
  rtt_micros: number
  synced: boolean
  unacknowledged: number
  publications_sent: number
  publications_received: number
  bytes_sent: number
  bytes_received: number
}
export interface Member { node: string; address: string; this: boolean; link: Link | null }
export interface Cluster {
  node: string
  members: Member[]
  dead: { node: string; address: string; seconds: number }[]
  discovery: { source: string; failure: string | null }[]
}
export interface Drain { state: string; sessions: number; sessions_left: number; gave_up: string | null; stop: boolean }
export interface Listener { name: string; protocol: string; address: string }
export interface Status {
  node: string
  name: string
  version: string
  cluster: string
  state: string
  ready: boolean
  not_ready: string[]
  overlay: string
  uptime_seconds: number
  addresses: { listeners: Listener[]; http: string | null }
  shards: number
  members: number
  links: number
  unreached_seeds: string[]
  refused_nodes: string[]
  connections: number
  sessions: number
  subscriptions: number
  queued_messages: number
  routes: number
  retained: number
  retained_bytes: number
  unacknowledged: number
  copies: number
  copies_wanted: number
  moving: number
  replicas: number
  orphaned: number
  strays: number
  drain: Drain
  durability: string
  journal: { bytes: number; segments: number; full: boolean } | null
  resident_bytes: number
  upstream: Upstream | null
}
/** The broker behind or beside a node. */
export interface Upstream {
  address: string
  mode: string
  up: boolean
  since_seconds: number
  version: string | null
  protocol: string
  last_error: string | null
  conversations: number
  unacknowledged: number
  expected: number
  published: number
  refused: number
  dropped: number
  delivered: number
  covered: number
}
/** Each member as it describes itself. */
export interface Members { members: { node: string; name: string; broker: string | null }[] }
export interface Session {
  client: string
  /** Name of its node. */
  name?: string
  /** Make and version of the broker behind that node. */
  broker?: string | null
  connected: boolean
  peer: string | null
  user: string | null
  protocol: string
  shard: number
  clean: boolean
  expiry_seconds: number
  keep_alive_seconds: number
  disconnected_at_ms: number | null
  subscriptions: { filter: string; qos: number; id: number | null }[]
  queued_messages: number
  queued_bytes: number
  inflight: number
  incoming_qos2: number
  will: boolean
}
export interface Sessions { total: number; sessions: Session[]; next: string | null; silent?: string[] }
export interface HotTopics { seconds: number; topics: { topic: string; rate: number; error: number }[]; silent?: string[] }
export interface TopicLine {
  name: string
  below: boolean
  topics: number
  more: boolean
  rate: number
  retained: boolean
  at_ms: number
  bytes: number
  qos: number
  preview: string | null
  publisher: string | null
}
export interface TopicLevel { seconds: number; lines: TopicLine[]; next: string | null; left_out: number; silent?: string[] }
export interface Retained {
  topic: string
  qos: number
  bytes: number
  payload: string | null
  publisher: string | null
  set_at_ms: number
  expires_at_ms: number | null
}
export interface RetainedPage { total: number; messages: Retained[]; next: number | null }
export interface Routes { total: number; routes: { node: string; client: string | null; filter: string }[] }
export interface TreeNode { node: string; parent: string | null; cost_micros: number | null; capability: number }
export interface Tree { topic: string | null; epoch: number; complete: boolean; root: string; nodes: TreeNode[] }
export interface Topology {
  node: string
  nodes: { node: string; address: string }[]
  links: ({ from: string; to: string } & Link)[]
  overlay: string
  trees: Tree[]
  adverts: { topic: string; origin: string; next: string }[]
  adverts_total: number
  interest: { filter: string; node: string; next: string }[]
  interest_total: number
  suspended: string[]
  suspended_total: number
  graph: { vector: string; virtual_nodes_total: number } | null
  counters: Record<string, number>
}
interface Worker {
  name: string
  state: string
  node: string | null
  node_name: string | null
  lag: number
  lag_bytes: number
  lag_most: number
  waits_seconds: number
  last_error: string | null
}
export interface Bridge extends Worker {
  kind: string
  direction: string
  address: string | null
  messages_out: number
  bytes_out: number
  messages_in: number
  bytes_in: number
  dropped: number
  refused: number
  kept: number
  repeats: number
  forgotten: number
  connects: number
  failures: number
}
export interface BridgeList { bridges: Bridge[]; silent?: string[] }
export interface Rule extends Worker {
  groups: number
  windows: number
  state_bytes: number
  seen: number
  selected: number
  outputs: number
  held_back: number
  late: number
  bad_time: number
  loops: number
  too_large: number
  over_limit: number
  closed_early: number
  undecodable: number
  unknown_metrics: number
  rebirths: number
  births: number
  births_forgotten: number
  jq_failed: number
  jq_over_budget: number
  failed: number
}
export interface RuleList { rules: Rule[]; silent?: string[] }
export interface LogLevels { nodes: { node: string; name: string; level: string; configured: string }[]; silent: string[] }
export interface Settings { settings: { key: string; value: string | null; words: string | null; from: string; waits_for: 'reload' | 'restart' | null }[] }
export interface Reloaded { reloaded: { what: string; problem: string | null }[]; applied: string[]; restart: string[] }
export interface Accounts { file: string | null; accounts: { user: string; scram: string | null }[]; elsewhere?: { node: string; problem: string | null }[] }
export interface Totals {
  at_ms: number
  connections: number
  sessions: number
  queued_messages: number
  publishes_in: number
  publishes_out: number
  bytes_in: number
  bytes_out: number
  link_bytes: number
  dropped: number
  cpu_millis: number
  resident_bytes: number
}
export interface Happened {
  id: number
  at_ms: number
  kind: string
  warning: boolean
  client: string | null
  peer: string | null
  text: string
}
export interface Explanation {
  client: string
  topic: string
  gets: boolean
  outcome: 'sent' | 'waits' | 'not'
  cause: string
  detail: string
  qos: number | null
  filter: string | null
  node: string | null
  name: string | null
}
export interface ScaleReport {
  site: string
  driver: string
  paused: boolean
  converged: boolean
  groups: Record<string, {
    min: number
    max: number
    wanted: number
    hold: string | null
    nodes: { name: string; state: string; seconds: number; mqtt: string; samples: Record<string, number> }[]
  }>
  balancers: Record<string, { port: number; algorithm: string; nodes: string[]; connections: Record<string, number> }>
  alarms: Record<string, { state: string; seconds: number; value: number | null }>
  pending: string[]
  actions_left: number
  decisions: { at_ms: number; group: string; from: number; to: number; reason: string }[]
  events: { at_ms: number; kind: string; subject: string; text: string }[]
}
export interface Scaling { heard_seconds: number | null; asked_to_pause: boolean | null; report: ScaleReport | null }
export interface Trace { id: number; client: string | null; topics: string[]; one_in: number; silent?: string[] }
export interface TraceNote {
  publication: string
  topic: string
  at_us: number
  node: string
  name: string
  step: string
  client?: string
  outcome?: string
  cause?: string
  detail?: string
  filter?: string
  qos?: number
  bytes?: number
  nodes?: string[]
}
export interface TraceNotes { notes: TraceNote[]; next: string; dropped: number; silent?: string[] }
export interface History {
  interval_seconds: number
  times: number[]
  series: { name: string; unit: string; values: number[] }[]
}

/** Why there is no answer. */
export class ApiFailure extends Error {
  constructor(readonly status: number, detail: string) {
    super(detail)
  }
}

const TOKEN = 'sedge-token'
/** That a link has brought the token. */
const BY_LINK = 'sedge-token-by-link'
let wanted = false
const watchers = new Set<() => void>()

/** Whether the node wants a token that the page does not have. */
export const wantsToken = () => wanted
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null
export function watchToken(watcher: () => void): () => void {
  watchers.add(watcher)
  return () => watchers.delete(watcher)
}
function setWanted(value: boolean) {
  if (wanted !== value) {
    wanted = value
    watchers.forEach((watcher) => watcher())
  }
}
/**
 * Whether commands have to be told the token. On this machine they find that of `sedge up` by themselves, and nobody else prints links with a
 * token.
 */
export const commandsNeedToken = () =>
  hasToken() && !(sessionStorage.getItem(BY_LINK) !== null && ['127.0.0.1', 'localhost', '[::1]'].includes(location.hostname))
/** Keeps the token until the tab is closed; null forgets it. */
export function keepToken(token: string | null) {
  sessionStorage.removeItem(BY_LINK)
  if (token === null) sessionStorage.removeItem(TOKEN)
  else sessionStorage.setItem(TOKEN, token)
  setWanted(token === null)
}

/** Takes the token that a link has brought behind #, and out of the address, so that it is neither shown nor kept in the history. */
export function takeToken() {
  const brought = /^#token=([A-Za-z0-9._~+/=-]+)$/.exec(location.hash)?.[1]
  if (brought === undefined) return
  keepToken(brought)
  sessionStorage.setItem(BY_LINK, 'yes')
  history.replaceState(null, '', '#/overview')
}

/** A request with what the node wants to see: its token, and the header that no foreign page can send. `also`: a status that is an answer, too. */
export async function request(path: string, init: RequestInit = {}, also?: number): Promise<Response> {
  const headers = new Headers(init.headers)
  const token = sessionStorage.getItem(TOKEN)
  if (token !== null) headers.set('Authorization', `Bearer ${token}`)
  if (init.method !== undefined && init.method !== 'GET') headers.set('X-Sedge', '1')
  let answer: Response
  try {
    answer = await fetch(path, { ...init, headers, cache: 'no-store' })
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiFailure(0, 'the node does not answer')
  }
  if (answer.status === 401) setWanted(true)
  if (!answer.ok && answer.status !== also) {
    const body = (await answer.json().catch(() => ({}))) as { detail?: string }
    throw new ApiFailure(answer.status, body.detail ?? `status ${answer.status}`)
  }
  return answer
}

/** Whether the node takes this token; throws why it does not. */
export async function tryToken(token: string): Promise<void> {
  const answer = await fetch('/api/v1/drain', { headers: { Authorization: `Bearer ${token}` }, cache: 'no-store' }).catch(() => null)
  if (answer === null) throw new ApiFailure(0, 'the node does not answer')
  if (!answer.ok) throw new ApiFailure(answer.status, ((await answer.json()) as { detail: string }).detail)
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, signal ? { signal } : {})).json() as Promise<T>
}

export async function change<T>(method: 'POST' | 'PUT' | 'DELETE', path: string, also?: number): Promise<T> {
  return (await request(path, { method }, also)).json() as Promise<T>
}

/** A request with a body. */
export async function send<T>(method: 'PUT', path: string, body: unknown): Promise<T> {
  return (await request(path, { method, body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })).json() as Promise<T>
}
