// What the node runs with, and who may connect: shown to everybody who may look, changed by whoever has the role.
import { useRef, useState } from 'preact/hooks'
import { type Accounts, change, hasToken, type LogLevels, type Reloaded, send, type Settings } from '../api'
import { count, quoted } from '../format'
import { usePoll } from '../live'
import { Badge, Command, Confirm, Problem, Table, type Change } from '../parts'
import { May, useRole } from '../role'
import { say } from '../toast'

const LEVELS = ['error', 'warn', 'info', 'debug', 'trace']

const head = (names: string[]) => names.map((name) => <th scope="col" key={name}>{name}</th>)

function Keys() {
  const [search, setSearch] = useState('')
  const [all, setAll] = useState(false)
  const settings = usePoll<Settings>('/api/v1/settings', 0)
  const rows = settings.data?.settings ?? []
  const shown = rows.filter((row) => (all || row.from !== 'default') && row.key.includes(search.trim().toLowerCase()))
  const waiting = rows.filter((row) => row.waits_for !== null)
  return (
    <section aria-labelledby="keys">
      <h2 id="keys">Settings</h2>
      <p class="quiet">As files, environment and flags of this node have them now; docs/configuration.md says what each is for.</p>
      <div class="row filters">
        <label>
          Search
          <input type="search" value={search} placeholder="mqtt.port" spellcheck={false} autocapitalize="off" onInput={(event) => setSearch(event.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> Those at their defaults, too
        </label>
      </div>
      <Problem text={settings.error} />
      <p role="status">
        {!settings.data ? 'Asking the node …' : `${count(shown.length)} of ${count(rows.length)} keys are shown.`}
        {waiting.length > 0 && ` ${count(waiting.length)} have changed and do not count yet.`}
      </p>
      {shown.length > 0 && (
        <Table name="Settings" head={head(['Key', 'Value', 'From'])}>
          {shown.map((row) => (
            <tr key={row.key}>
              <th scope="row">
                <code>{row.key}</code> {row.waits_for && <Badge kind="warn">counts from the next {row.waits_for === 'reload' ? 'reload' : 'start'}</Badge>}
              </th>
              <td class="break">{row.value === null ? <em>{row.words}</em> : <code>{row.value}</code>}</td>
              <td class="break">{row.from}</td>
            </tr>
          ))}
        </Table>
      )}
      <Command text="sedge config show -c FILE" />
      <May role="admin">
        <Reload done={settings.reload} />
      </May>
    </section>
  )
}

function Reload({ done }: { done: () => void }) {
  const [found, setFound] = useState<Reloaded>()
  const [problem, setProblem] = useState<string>()
  const [busy, setBusy] = useState(false)
  const run = async () => {
    setBusy(true)
    try {
      setFound(await change<Reloaded>('POST', '/api/v1/reload', 422))
      setProblem(undefined)
      done()
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
    setBusy(false)
  }
  const failed = found?.reloaded.filter((part) => part.problem !== null) ?? []
  return (
    <>
      <p class="row">
        <button type="button" disabled={busy} onClick={() => void run()}>
          Reload
        </button>
        <span>Certificates, tokens, accounts, access rules, bridges, rules and the level of the log are read again.</span>
      </p>
      <Command words={['reload']} />
      <Problem text={problem} />
      {found && (
        <p role="status">
          {failed.length === 0 ? 'Everything was read again.' : 'What could not be used stays as it was.'}
          {found.applied.length > 0 && ` Counts now: ${found.applied.join(', ')}.`}
          {found.restart.length > 0 && ` Takes a restart: ${found.restart.join(', ')}.`}
        </p>
      )}
      {failed.map((part) => (
        <p class="problem break" key={part.what}>
          {part.what}: {part.problem}
        </p>
      ))}
    </>
  )
}

function LogLevel() {
  const levels = usePoll<LogLevels>('/api/v1/log', 10_000)
  const [wanted, setWanted] = useState('info')
  const [problem, setProblem] = useState<string>()
  const now = levels.data?.nodes[0]
  const set = async (event: Event) => {
    event.preventDefault()
    try {
      await change<LogLevels>('PUT', `/api/v1/log?level=${wanted}`)
      say(`The log has the level ${wanted}.`)
      setProblem(undefined)
      levels.reload()
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <section aria-labelledby="log">
      <h2 id="log">Log</h2>
      <Problem text={levels.error ?? problem} />
      {now && (
        <p>
          This node writes <code>{now.level}</code>
          {now.level !== now.configured && (
            <>
              , until its next reload or start: its configuration says <code>{now.configured}</code>
            </>
          )}
          .
        </p>
      )}
      <May role="operate">
        <form class="row filters" onSubmit={(event) => void set(event)}>
          <label>
            Level
            <select value={wanted} onChange={(event) => setWanted(event.currentTarget.value)}>
              {LEVELS.map((level) => (
                <option key={level}>{level}</option>
              ))}
            </select>
          </label>
          <button type="submit">Write this</button>
        </form>
        <Command words={['log-level', wanted, '--node', now?.name ?? 'NAME']} />
      </May>
    </section>
  )
}

/** What other nodes say against a change that the asked node has made. */
const refusals = ({ elsewhere = [] }: Accounts) => {
  const against = elsewhere.filter((one) => one.problem !== null).map((one) => `${one.node}: ${one.problem}`)
  return against.length > 0 ? `This node has changed its file, others have not. ${against.join('; ')}` : undefined
}

const accountPath = (user: string, all: boolean) => `/api/v1/accounts/${encodeURIComponent(user)}${all ? '?node=*' : ''}`

function Password({ file, accounts, all, done }: { file: string; accounts: Accounts['accounts']; all: boolean; done: () => void }) {
  const [user, setUser] = useState('')
  const [problem, setProblem] = useState<string>()
  const password = useRef<HTMLInputElement>(null)
  const again = useRef<HTMLInputElement>(null)
  const known = accounts.find((one) => one.user === user)
  const scram = known?.scram ? [`--scram=${known.scram}`] : []
  const set = async (event: Event) => {
    event.preventDefault()
    if (password.current?.value !== again.current?.value) return setProblem('The passwords differ.')
    try {
      const against = refusals(await send<Accounts>('PUT', accountPath(user, all), { password: password.current?.value }))
      if (against) return setProblem(against)
      say(known ? `${user} has another password.` : `${user} was added.`)
      done()
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <form class="card" onSubmit={(event) => void set(event)}>
      <h3>Add an account, or give one another password</h3>
      <div class="columns">
        <label>
          User
          <input type="text" required value={user} autocomplete="off" spellcheck={false} autocapitalize="off" onInput={(event) => setUser(event.currentTarget.value)} />
        </label>
        <label>
          Password
          <input ref={password} type="password" autocomplete="new-password" required />
        </label>
        <label>
          Password again
          <input ref={again} type="password" autocomplete="new-password" required />
        </label>
      </div>
      <p class="row end">
        <button type="submit" class="primary">
          {known ? 'Change the password' : 'Add the account'}
        </button>
      </p>
      <Command text={['sedge', 'passwd', ...scram, file, user || 'USER'].map(quoted).join(' ')} />
      <Problem text={problem} />
    </form>
  )
}

function AccountList() {
  const found = usePoll<Accounts>('/api/v1/accounts', 0)
  const [turn, setTurn] = useState(0)
  const [all, setAll] = useState(true)
  const [wanted, setWanted] = useState<Change>()
  const { file, accounts } = found.data ?? { file: null, accounts: [] }
  const remove = (user: string): Change => ({
    title: 'Remove the account',
    what: `${user} cannot connect any more, and its connections ${all ? 'at all nodes' : 'at this node'} end. Its sessions stay until they expire.`,
    words: ['passwd', '-D', file ?? '', user],
    method: 'DELETE',
    path: accountPath(user, all),
    done: `The account of ${user} was removed.`,
    refused: (answer) => refusals(answer as Accounts),
  })
  return (
    <>
      <Problem text={found.error} />
      {found.data && file === null && <p>This node has no password file: auth.password_file.</p>}
      {file !== null && (
        <>
          <p>
            {count(accounts.length)} {accounts.length === 1 ? 'account' : 'accounts'} in <code>{file}</code>. Each node has a file of its own.
          </p>
          <label class="check">
            <input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> Change the files of all nodes
          </label>
          {accounts.length > 0 && (
            <Table name="Accounts" head={head(['User', 'Password', 'Change'])}>
              {accounts.map((one) => (
                <tr key={one.user}>
                  <th scope="row" class="break">
                    {one.user}
                  </th>
                  <td>{one.scram ? `SCRAM ${one.scram}` : 'hashed'}</td>
                  <td>
                    <button type="button" class="small" aria-label={`Remove ${one.user}`} onClick={() => setWanted(remove(one.user))}>
                      Remove …
                    </button>
                  </td>
                </tr>
              ))}
            </Table>
          )}
          <Password
            key={turn}
            file={file}
            accounts={accounts}
            all={all}
            done={() => {
              setTurn(turn + 1)
              found.reload()
            }}
          />
        </>
      )}
      {wanted && (
        <Confirm
          change={wanted}
          text={`sedge ${wanted.words.map(quoted).join(' ')}`}
          close={() => {
            setWanted(undefined)
            found.reload()
          }}
        />
      )}
    </>
  )
}

export function NodeSettings() {
  const { may, role } = useRole()
  return (
    <>
      <Keys />
      <LogLevel />
      <section aria-labelledby="accounts">
        <h2 id="accounts">Accounts</h2>
        {may('admin') && hasToken() ? <AccountList /> : role !== undefined && <p>Accounts take the token of the role admin.</p>}
      </section>
    </>
  )
}
