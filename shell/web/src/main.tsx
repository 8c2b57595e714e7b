// The dashboard: one page for each part of the address behind #.
import 'uplot/dist/uPlot.min.css'
import './style.css'
import { render, type ComponentChildren } from 'preact'
import { useEffect, useReducer, useRef, useState } from 'preact/hooks'
import { get, hasToken, keepToken, takeToken, tryToken, wantsToken, watchToken } from './api'
import { useLive, watch } from './live'
import { Problem } from './parts'
import { Bridges } from './pages/bridges'
import { Busy } from './pages/busy'
import { Clients } from './pages/clients'
import { Events } from './pages/events'
import { Explain } from './pages/explain'
import { Overview } from './pages/overview'
import { RetainedMessages } from './pages/retained'
import { Subscriptions } from './pages/routes'
import { Scaling } from './pages/scaling'
import { NodeSettings } from './pages/settings'
import { Topology } from './pages/topology'
import { TraceIt } from './pages/trace'
import { TopicTree } from './pages/tree'
import { TryIt } from './pages/tryit'
import { learnRole, useRole } from './role'
import { Toasts } from './toast'

interface Entry {
  path: string
  name: string
  page: () => ComponentChildren
  /** Only if the node's API has this. */
  needs?: string
}

const PAGES: Entry[] = [
  { path: 'overview', name: 'Overview', page: Overview },
  { path: 'clients', name: 'Clients', page: Clients },
  { path: 'busy', name: 'Busy', page: Busy, needs: '/api/v1/topics/hot' },
  { path: 'topics', name: 'Topics', page: TopicTree, needs: '/api/v1/topics' },
  { path: 'retained', name: 'Retained', page: RetainedMessages },
  { path: 'subscriptions', name: 'Subscriptions', page: Subscriptions },
  { path: 'topology', name: 'Topology', page: Topology },
  { path: 'bridges', name: 'Bridges and rules', page: Bridges, needs: '/api/v1/bridges' },
  { path: 'scaling', name: 'Scaling', page: Scaling, needs: '/api/v1/scale' },
  { path: 'explain', name: 'Explain', page: Explain, needs: '/api/v1/explain' },
  { path: 'trace', name: 'Trace', page: TraceIt, needs: '/api/v1/traces' },
  { path: 'events', name: 'Events', page: Events },
  { path: 'settings', name: 'Settings', page: NodeSettings, needs: '/api/v1/settings' },
  { path: 'try', name: 'Try it', page: TryIt },
]

const chosen = () => PAGES.find((page) => `#/${page.path}` === location.hash) ?? PAGES[0]

/** Calls `then` when something is painted: nothing that can wait is in its way. */
function afterPaint(then: () => void): () => void {
  const start = () => {
    stop()
    then()
  }
  // A browser that says nothing of it has painted by then.
  const timer = setTimeout(start, 3000)
  const observer = new PerformanceObserver((list) => {
    if (list.getEntriesByName('first-contentful-paint').length > 0) start()
  })
  function stop() {
    clearTimeout(timer)
    observer.disconnect()
  }
  observer.observe({ type: 'paint', buffered: true })
  return stop
}

function Token() {
  const [problem, setProblem] = useState<string>()
  const field = useRef<HTMLInputElement>(null)
  const enter = async (event: Event) => {
    event.preventDefault()
    const token = field.current?.value.trim() ?? ''
    if (!/^[\x21-\x7e]+$/.test(token)) return setProblem('A token is of letters, digits and -._~+/=.')
    try {
      await tryToken(token)
      keepToken(token)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <form class="card" onSubmit={(event) => void enter(event)}>
      <h2>This node wants a token</h2>
      <p>It is in the file that the node's key http.token_file names. The page keeps it until this tab is closed.</p>
      <label>
        Token
        <input ref={field} type="password" autocomplete="off" required />
      </label>
      <button type="submit" class="primary">
        Enter
      </button>
      <Problem text={problem} />
    </form>
  )
}

function Connection() {
  const live = useLive()
  if (live.state === 'open' || wantsToken()) return null
  return (
    <p class="lost" role="alert">
      {live.state === 'lost' ? `No news: ${live.why}. Trying again; what is shown may be old.` : 'Connecting …'}
    </p>
  )
}

function App() {
  const [page, setPage] = useState(chosen)
  const [known, setKnown] = useState<string[]>([])
  const [, anew] = useReducer((n: number) => n + 1, 0)
  const { role, asks } = useRole()
  const title = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    const changed = () => {
      setPage(chosen())
      // Whoever uses the keyboard, or hears the page, is at its beginning then.
      title.current?.focus()
      scrollTo(0, 0)
    }
    addEventListener('hashchange', changed)
    // The address may have changed between the first drawing and now.
    setPage(chosen())
    // An older node has fewer parts.
    const learn = async () => {
      if (wantsToken()) return
      void learnRole()
      const api = await get<{ paths: Record<string, unknown> }>('/api/v1/openapi.json').catch(() => null)
      if (api) setKnown(Object.keys(api.paths))
    }
    const forget = watchToken(() => {
      anew(undefined)
      void learn()
    })
    const forgetPaint = afterPaint(() => {
      void watch()
      void learn()
    })
    return () => {
      forgetPaint()
      removeEventListener('hashchange', changed)
      forget()
    }
  }, [])
  useEffect(() => {
    document.title = `${page?.name ?? 'Sedge'} – Sedge`
  }, [page])
  if (!page) return null
  const Page = page.page
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); title.current?.focus() }}>
        To the content
      </a>
      <header>
        <span class="brand">Sedge</span>
        <nav aria-label="Pages">
          {PAGES.filter((one) => one.needs === undefined || known.includes(one.needs)).map((one) => (
            <a key={one.path} href={`#/${one.path}`} aria-current={one === page ? 'page' : undefined}>
              {one.name}
            </a>
          ))}
        </nav>
        {hasToken() && !wantsToken() && (
          <span class="row">
            {role !== undefined && !asks && <span class="quiet">Role: {role}</span>}
            <button type="button" class="small" onClick={() => keepToken(null)}>
              Forget the token
            </button>
          </span>
        )}
      </header>
      <main id="main">
        <h1 ref={title} tabIndex={-1}>
          {page.name}
        </h1>
        <Connection />
        {wantsToken() ? <Token /> : <Page key={page.path} />}
      </main>
      <footer>
        <a href="/api/v1/openapi.json">API</a> <a href="/metrics">Metrics</a> <a href="/licenses.txt">Licences</a>
      </footer>
      <Toasts />
    </>
  )
}

takeToken()
addEventListener('hashchange', takeToken)
const place = document.getElementById('app')
if (place) render(<App />, place)
