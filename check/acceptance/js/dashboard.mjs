// Looks at the dashboard with Chromium, as a person would.
//   dashboard.mjs SCENARIO JSON    the scenario's settings; prints one line of JSON with what it has seen, or fails and says why
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const PATIENCE = 20_000
const PAGES = ['overview', 'clients', 'busy', 'topics', 'retained', 'subscriptions', 'topology', 'bridges', 'explain', 'trace', 'events', 'settings', 'try']
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync']

const [scenario, text] = process.argv.slice(2)
const settings = JSON.parse(text)
const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

function check(holds, what) {
  if (!holds) throw new Error(what)
}

/** Tells the test that the page has come so far, and waits until the test has done its part. */
async function tell(what) {
  console.log(JSON.stringify({ at: what }))
  await stdin.next()
}

/** A page that notes whatever should not happen. */
async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options })
  context.setDefaultTimeout(PATIENCE)
  const page = await context.newPage()
  const seen = { problems: [], foreign: [], requests: [], violations: [] }
  const own = new URL(settings.url)
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') seen.problems.push(message.text())
  })
  page.on('pageerror', (error) => seen.problems.push(String(error)))
  const note = (url) => {
    seen.requests.push(url)
    const { hostname, port } = new URL(url)
    if (hostname !== own.hostname || ![own.port, String(settings.ws)].includes(port)) seen.foreign.push(url)
  }
  page.on('request', (request) => note(request.url()))
  page.on('websocket', (socket) => note(socket.url()))
  await page.exposeFunction('noteViolation', (what) => seen.violations.push(what))
  await page.addInitScript(() => addEventListener('securitypolicyviolation', (event) => window.noteViolation(`${event.violatedDirective} ${event.blockedURI}`)))
  return { page, seen }
}

function clean(seen) {
  check(seen.problems.length === 0, `console: ${seen.problems.join(' | ')}`)
  check(seen.violations.length === 0, `content security policy: ${seen.violations.join(' | ')}`)
  check(seen.foreign.length === 0, `requests to elsewhere: ${seen.foreign.join(' ')}`)
}

async function goTo(page, path) {
  await page.goto(`${settings.url}/#/${path}`)
  await page.getByRole('heading', { level: 1 }).waitFor()
}

async function accessible(page, where) {
  await page.evaluate(AXE)
  const { violations } = await page.evaluate(() => window.axe.run())
  const told = violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`)
  check(told.length === 0, `${where}: ${told.join('\n')}`)
}

/** What each page has to show before it is looked at. */
async function filled(page, path) {
  const wanted = {
    overview: () => page.getByRole('row', { name: /up/ }).nth(settings.nodes - 2).waitFor(),
    clients: () => page.getByRole('button', { name: settings.client, exact: true }).first().waitFor(),
    busy: () => page.getByText('No connected client has messages waiting').waitFor(),
    topics: () => page.getByText('names are shown').waitFor(),
    retained: () => page.getByText('messages are shown').waitFor(),
    subscriptions: () => page.getByRole('cell', { name: settings.client, exact: true }).first().waitFor(),
    topology: () => page.getByRole('heading', { name: /^Overlay/ }).waitFor(),
    bridges: () => page.getByText('0 bridges and 0 rules.').waitFor(),
    explain: () => page.getByLabel('Client', { exact: true }).waitFor(),
    trace: () => page.getByRole('button', { name: 'Start' }).waitFor(),
    events: () => page.getByRole('cell', { name: settings.client, exact: true }).first().waitFor(),
    settings: () => page.getByText('keys are shown').waitFor(),
    try: () => page.getByLabel('Client identifier').waitFor(),
  }
  await wanted[path]()
}

const scenarios = {
  /** Each page, wide and light, narrow and dark. */
  async pages(browser) {
    for (const [width, colorScheme] of [[1200, 'light'], [360, 'dark']]) {
      const { page, seen } = await open(browser, { viewport: { width, height: 740 }, colorScheme })
      for (const path of PAGES) {
        await goTo(page, path)
        await filled(page, path)
        if (path === 'overview') {
          await page.getByText('Load of all nodes').click()
          for (let node = 1; node <= settings.nodes; node += 1) await page.getByRole('rowheader', { name: `node-${node}`, exact: true }).last().waitFor()
        }
        await accessible(page, `${path} at ${width}`)
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
        check(wider <= 0, `${path} is ${wider} pixels wider than a screen of ${width}`)
      }
      clean(seen)
      await page.context().close()
    }
  },

  /** Trees and tables of an overlay. */
  async topology(browser) {
    for (const [width, colorScheme] of [[1200, 'dark'], [360, 'light']]) {
      const { page, seen } = await open(browser, { viewport: { width, height: 740 }, colorScheme })
      await goTo(page, 'topology')
      await page.getByRole('heading', { name: `Overlay ${settings.overlay}` }).waitFor()
      if (settings.overlay === 'topic-tree') {
        await page.getByLabel('Draw').selectOption({ label: `the tree of ${settings.topic}` })
        await page.getByText('from the root').or(page.getByText('capability')).first().waitFor()
        await page.getByRole('heading', { name: `Tree of ${settings.topic}` }).waitFor()
      } else await page.getByText('membership vector').waitFor()
      await accessible(page, `${settings.overlay} at ${width}`)
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      check(wider <= 0, `the topology is ${wider} pixels wider than a screen of ${width}`)
      clean(seen)
      await page.context().close()
    }
  },

  /** What a first visit costs. */
  async size(browser) {
    const { page, seen } = await open(browser)
    const session = await page.context().newCDPSession(page)
    await session.send('Network.enable')
    let bytes = 0
    const files = new Set()
    const encodings = []
    session.on('Network.responseReceived', ({ requestId, response }) => {
      if (!response.url.includes('/api/')) files.add(requestId)
      if (!response.url.includes('/api/')) encodings.push(response.headers['content-encoding'])
    })
    session.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
      if (files.has(requestId)) bytes += encodedDataLength
    })
    await page.goto(settings.url, { waitUntil: 'commit' })
    await page.getByRole('heading', { level: 1 }).waitFor()
    const painted = await page.evaluate(
      () =>
        new Promise((resolve) => {
          // The browser may report `first-paint` in a list of its own, before there is any content.
          new PerformanceObserver((list) => {
            const [painted] = list.getEntriesByName('first-contentful-paint')
            if (painted) resolve(painted.startTime)
          }).observe({ type: 'paint', buffered: true })
        }),
    )
    const early = await page.evaluate((at) => performance.getEntriesByType('resource').filter((one) => one.startTime < at).map((one) => one.name), painted)
    await page.waitForLoadState('load')
    clean(seen)
    return { bytes, encodings: [...new Set(encodings)], requests: 1 + early.length, early, painted }
  },

  /** A node before a broker: make, version and state of it, those behind other nodes, and that of a client's node. */
  async broker(browser) {
    const { page, seen } = await open(browser)
    await goTo(page, 'overview')
    const broker = page.getByRole('region', { name: 'The broker behind this node' })
    await broker.getByText(settings.version).waitFor()
    await broker.getByText('up', { exact: true }).waitFor()
    const nodes = page.getByRole('region', { name: 'Nodes, table' })
    await nodes.getByRole('columnheader', { name: 'Broker' }).waitFor()
    // One node has a broker behind it, the other serves by itself.
    check((await nodes.getByRole('cell', { name: settings.version }).count()) === 1, 'one node has that broker')
    await accessible(page, 'overview with a broker')
    await goTo(page, 'clients')
    await page.getByRole('button', { name: settings.client, exact: true }).click()
    await page.getByRole('definition').filter({ hasText: settings.version }).waitFor()
    await goTo(page, 'overview')
    await broker.getByText('up', { exact: true }).waitFor()
    await tell('up')
    await broker.getByText('away', { exact: true }).waitFor()
    await page.getByRole('status').getByText('Not ready for clients: the broker behind the node').waitFor()
    await tell('away')
    await broker.getByText('up', { exact: true }).waitFor()
    clean(seen)
    return {}
  },

  /** As many sessions as a site has at most: each page, order and search comes at once, also on a phone and after the death of a node. */
  async many(browser) {
    const { page, seen } = await open(browser)
    const times = {}
    const timed = async (what, act, until) => {
      const began = Date.now()
      await act()
      await until()
      times[what] = Math.max(times[what] ?? 0, Date.now() - began)
    }
    const range = (first, last) => () => page.getByText(`${first} to ${last} of ${settings.sessions}`).waitFor()
    await timed('first', () => goTo(page, 'clients'), range(1, 50))
    for (const at of [51, 101, 151]) await timed('page', () => page.getByRole('button', { name: 'Next' }).click(), range(at, at + 49))
    check((await page.getByRole('row').count()) === 51, 'a page has 50 rows')
    for (const column of ['Waiting', 'Client'])
      await timed('order', () => page.getByRole('columnheader', { name: column }).getByRole('button').click(), range(1, 50))
    await timed('search', () => page.getByLabel('Search').fill(settings.one.toUpperCase()), () => page.getByText('1 to 1 of 1').waitFor())
    await timed('one', () => page.getByRole('button', { name: settings.one, exact: true }).click(), () => page.getByRole('heading', { name: settings.one }).waitFor())
    await accessible(page, 'clients, one of many')
    await tell('before the death')
    await timed('after the death', () => goTo(page, 'overview').then(() => goTo(page, 'clients')), range(1, 50))
    await page.setViewportSize({ width: 360, height: 640 })
    await timed('phone', () => page.reload(), range(1, 50))
    await accessible(page, 'clients on a phone')
    check(seen.problems.length === 0, seen.problems.join(' | '))
    return { times }
  },

  /** Sorting, searching, paging, ending a connection by mouse and a session by keyboard; a retained message; a drain. */
  async actions(browser) {
    const { page, seen } = await open(browser)
    // The link that `sedge up` prints: the token is taken out of the address.
    await page.goto(`${settings.url}/#token=${settings.token}`)
    await page.waitForURL(`${settings.url}/#/overview`)
    await goTo(page, 'clients')
    await page.getByText(`1 to 50 of ${settings.sessions}`).waitFor()
    await page.getByRole('button', { name: 'Next' }).click()
    await page.getByText(`51 to ${Math.min(100, settings.sessions)} of ${settings.sessions}`).waitFor()
    await page.getByRole('button', { name: 'Back' }).click()
    await page.getByText(`1 to 50 of ${settings.sessions}`).waitFor()
    await page.getByRole('columnheader', { name: 'Waiting' }).getByRole('button').click()
    // The rows stand in their old order until the node has answered.
    await page.getByRole('row').nth(1).getByRole('rowheader', { name: settings.busy, exact: true }).waitFor()
    await page.getByLabel('Search').fill(settings.client.toUpperCase())
    await page.getByText('1 to 1 of 1').waitFor()
    await page.getByRole('button', { name: settings.client, exact: true }).click()
    await page.getByRole('button', { name: 'End the connection …' }).click()
    const dialog = page.getByRole('dialog')
    const shown = await dialog.locator('code').textContent()
    check(shown === `sedge kick ${settings.client} --api ${settings.url}`, shown)
    await accessible(page, 'the question before a change')
    await dialog.getByRole('button', { name: 'End the connection' }).click()
    await page.getByText(`The connection of ${settings.client} was ended.`).waitFor()
    await tell('kicked')
    await page.getByLabel('Search').fill(settings.elsewhere)
    await page.getByText('1 to 1 of 1').waitFor()
    await page.getByRole('button', { name: settings.elsewhere, exact: true }).click()
    await page.getByRole('button', { name: 'End the connection …' }).click()
    await dialog.getByRole('button', { name: 'End the connection' }).click()
    await page.getByText(`The connection of ${settings.elsewhere} was ended.`).waitFor()
    await tell('kicked elsewhere')
    await page.getByLabel('Search').fill(settings.away)
    await page.getByText('1 to 1 of 1').waitFor()
    // From here on without a mouse.
    await page.getByRole('button', { name: settings.away, exact: true }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: settings.away }).waitFor()
    for (let steps = 0; (await page.evaluate(() => document.activeElement?.textContent)) !== 'End the session …'; steps += 1) {
      check(steps < 20, 'the keyboard does not reach the button')
      await page.keyboard.press('Tab')
    }
    await page.keyboard.press('Enter')
    await dialog.waitFor()
    for (let steps = 0; (await page.evaluate(() => document.activeElement?.textContent)) !== 'End the session'; steps += 1) {
      check(steps < 20, 'the keyboard does not reach the button of the question')
      await page.keyboard.press('Tab')
    }
    await page.keyboard.press('Enter')
    await page.getByText('No session matches.').waitFor()
    await goTo(page, 'retained')
    await page.getByLabel('Topic filter').fill(`${settings.topic.split('/')[0]}/#`)
    const levels = settings.topic.split('/')
    for (const level of levels.slice(1)) await page.locator('summary', { hasText: level }).first().click()
    await page.getByText('"on": true').waitFor()
    await page.getByRole('button', { name: `Clear ${settings.topic}` }).click()
    const clear = await dialog.locator('code').textContent()
    check(clear === `sedge retained --clear ${settings.topic} --api ${settings.url}`, clear)
    await dialog.getByRole('button', { name: 'Clear the message' }).click()
    await page.getByText('No retained message matches.').waitFor()
    await tell('cleared')
    await goTo(page, 'overview')
    await page.getByRole('button', { name: 'Empty the node …' }).click()
    await dialog.getByRole('button', { name: 'Empty the node' }).click()
    await page.getByText('not ready', { exact: true }).waitFor()
    await tell('draining')
    await page.getByRole('button', { name: 'Serve on …' }).click()
    await dialog.getByRole('button', { name: 'Serve on' }).click()
    await page.getByText('ready', { exact: true }).waitFor()
    await goTo(page, 'events')
    await page.getByLabel('Show').selectOption('operator')
    for (const what of ['the node is to be emptied', 'the node is to serve on', 'connection ended by request']) await page.getByRole('cell', { name: what }).first().waitFor()
    await goTo(page, 'overview')
    await page.getByRole('button', { name: '1 hour' }).click()
    await page.locator('.legend li', { hasText: /connections: \d/ }).waitFor()
    await page.getByText('The first sample comes').waitFor({ state: 'detached' })
    await page.locator('.legend li', { hasText: /of one core: [\d.]+ %/ }).waitFor()
    clean(seen)
  },

  /** Why a client gets a publication or not, and the way of one through the nodes; on a phone. */
  async why(browser) {
    const { page, seen } = await open(browser, { viewport: { width: 360, height: 740 } })
    const narrow = async (where) => {
      await accessible(page, where)
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      check(wider <= 0, `${where} is ${wider} pixels wider than the screen`)
    }
    const command = async (words) => {
      const shown = await page.locator('main > .command code').textContent()
      check(shown === `sedge ${words} --api ${settings.url}`, shown)
    }
    await page.goto(`${settings.url}/#token=${settings.token}`)
    await page.waitForURL(`${settings.url}/#/overview`)
    await goTo(page, 'explain')
    const ask = async (topic) => {
      await page.getByLabel('Topic', { exact: true }).fill(topic)
      await page.getByRole('button', { name: 'Explain' }).click()
    }
    await page.getByLabel('Client', { exact: true }).fill(settings.client)
    await ask('hall/7/light')
    await page.getByText('gets it now').waitFor()
    await page.getByText('hall/7/#').waitFor()
    await command(`explain --client ${settings.client} --topic hall/7/light`)
    await narrow('an answer')
    await ask('Hall/7/light')
    await page.getByText('does not get it').waitFor()
    await page.getByText('letter_case').waitFor()
    await page.getByLabel('Published by').fill('switch')
    await page.getByLabel('QoS').selectOption('2')
    await page.getByLabel('Bytes of payload').fill('9')
    await page.getByLabel('The retained message, with a SUBSCRIBE').check()
    await command(`explain --client ${settings.client} --topic Hall/7/light --qos 2 --bytes 9 --from switch --retained`)
    await ask('a/#')
    await page.getByRole('alert').getByText('a/#').waitFor()
    await goTo(page, 'trace')
    await page.getByLabel('Topic filter').fill('hall/#')
    await command('trace --topic hall/#'.replace('hall/#', "'hall/#'"))
    await page.getByRole('button', { name: 'Start' }).click()
    await page.getByText('Following.').waitFor()
    await tell('following')
    const row = (text) => page.getByRole('row').filter({ hasText: text }).first().waitFor()
    for (const text of [/node-3.*came from switch at QoS 1/, /node-1.*came from node-3/, `acknowledged by ${settings.client}`, 'switch has its acknowledgement', 'does not get it; no_local']) await row(text)
    await narrow('a trace')
    await page.getByRole('button', { name: 'Stop' }).click()
    await page.getByText(/^Ended\. /).waitFor()
    await tell('ended')
    // The browser itself notes answers with 400.
    seen.problems = seen.problems.filter((one) => !one.includes('400'))
    clean(seen)
  },

  /** MQTT 5.0 from the page to a client of another node and back. */
  async tryit(browser) {
    const { page, seen } = await open(browser)
    await goTo(page, 'try')
    await page.getByLabel('Client identifier').fill('from-the-page')
    await page.getByRole('button', { name: 'Connect' }).click()
    await page.getByText('Connected as from-the-page.').waitFor()
    await page.getByLabel('Topic filter').fill('tried/#')
    await page.getByRole('button', { name: 'Subscribe', exact: true }).click()
    await page.getByText('granted QoS 1').waitFor()
    await accessible(page, 'a connected client')
    await page.getByLabel('Topic', { exact: true }).fill('tried/out')
    const form = page.getByRole('region', { name: 'Publish' })
    await form.getByLabel('Payload').fill('{"from":"page"}')
    await form.getByLabel('QoS').selectOption('2')
    await form.getByText('Properties', { exact: true }).click()
    await form.getByLabel('Content type').fill('application/json')
    await form.getByLabel('Message expiry in seconds').fill('60')
    await form.getByLabel('User properties').fill('unit=K\nwhere=hall 7')
    const line = await form.locator('.command code').textContent()
    check(line.includes("-D publish user-property where 'hall 7'") && line.includes('-q 2'), line)
    await form.getByRole('button', { name: 'Publish' }).click()
    await page.getByText('Published: success').waitFor()
    await page.getByText('"from": "page"').waitFor()
    for (const what of ['application/json', 'hall 7', 'expires in']) await page.locator('li.card').getByText(what).first().waitFor()
    await tell(line)
    await page.getByText('sent by another').waitFor()
    await page.getByRole('button', { name: 'Disconnect' }).click()
    await page.getByText('Not connected: you have disconnected.').waitFor()
    clean(seen)
  },

  /** A neighbour dies, then the node that served the page. */
  async killed(browser) {
    const { page, seen } = await open(browser)
    await goTo(page, 'overview')
    await filled(page, 'overview')
    await page.getByText('None.').waitFor()
    await tell('watching')
    await page.locator('.alarms').getByText(/is gone since/).waitFor()
    await page.locator('.events').getByText(/does not answer any more/).first().waitFor()
    await accessible(page, 'with an alarm')
    clean(seen)
    await tell('alarmed')
    await page.getByText(/No news/).waitFor()
    await accessible(page, 'without a node')
    for (const path of [...PAGES.slice(1), 'overview']) {
      await page.evaluate((to) => (location.hash = `#/${to}`), path)
      await page.getByRole('heading', { level: 1, name: new RegExp(path.replace('try', 'try it'), 'i') }).waitFor()
      await page.getByText(/No news/).waitFor()
    }
    // The browser itself notes requests that nobody answers.
    seen.problems = seen.problems.filter((one) => !one.includes('net::ERR_'))
    clean(seen)
    await tell('lost')
    await page.getByText(/No news/).waitFor({ state: 'detached' })
    await page.locator('.alarms, .quiet').first().waitFor()
    seen.problems = seen.problems.filter((one) => !one.includes('net::ERR_'))
    clean(seen)
  },

  /** Bridges that work and that do not. */
  async bridges(browser) {
    const { page, seen } = await open(browser, { viewport: { width: 360, height: 740 } })
    await goTo(page, 'overview')
    await page.locator('.alarms').getByText('Bridge broken does not reach the other end').waitFor()
    await page.getByRole('link', { name: 'Bridges and rules' }).click()
    await page.getByRole('listitem').filter({ hasText: 'works' }).getByText('running').waitFor()
    const broken = page.getByRole('listitem').filter({ hasText: 'broken' })
    await broken.getByText('down', { exact: true }).waitFor()
    await broken.locator('.problem').waitFor()
    await page.getByRole('listitem').filter({ hasText: 'mean' }).getByText('running').waitFor()
    await accessible(page, 'bridges and rules')
    clean(seen)
  },

  /** A bridge of the cluster that falls behind and catches up, seen from another node, and a rule; on a phone. */
  async behind(browser) {
    const { page, seen } = await open(browser, { viewport: { width: 360, height: 740 } })
    const narrow = async (where) => {
      await accessible(page, where)
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      check(wider <= 0, `${where} is ${wider} pixels wider than the screen`)
    }
    await goTo(page, 'bridges')
    const bridge = page.getByRole('region', { name: 'Bridges' }).getByRole('listitem')
    const rule = page.getByRole('region', { name: 'Rules' }).getByRole('listitem')
    await page.getByText('1 bridge and 1 rule.').waitFor()
    await bridge.getByText('down', { exact: true }).waitFor()
    await bridge.getByText(settings.node, { exact: true }).waitFor()
    await bridge.locator('.problem').waitFor()
    await bridge.getByText('Nothing waits.').waitFor()
    for (const words of ['bridges', 'rules']) await page.getByText(`sedge ${words} --api ${settings.url}`, { exact: true }).waitFor()
    await tell('down')
    await bridge.getByText(new RegExp(`^${settings.messages} messages wait, .*; the oldest since .*, for \\d+ s\\.$`)).waitFor()
    await rule.locator('div', { hasText: /^Seen3$/ }).waitFor()
    await rule.locator('div', { hasText: /^Put out[12]$/ }).waitFor()
    await narrow('a bridge that is behind')
    await tell('waiting')
    await bridge.getByText(`Catching up: ${settings.taken} of ${settings.messages}`).waitFor()
    const bar = bridge.getByRole('progressbar', { name: 'cloud catches up' })
    check((await bar.getAttribute('value')) === String(settings.taken), 'the bar shows something else')
    await bridge.getByText('running', { exact: true }).waitFor()
    await narrow('a bridge that catches up')
    await tell('catching up')
    await bridge.getByText('Nothing waits.').waitFor()
    await bar.waitFor({ state: 'detached' })
    await bridge.locator('div', { hasText: new RegExp(`^Sent${settings.messages} \\(`) }).waitFor()
    // By keyboard from the list of pages, and back to it.
    await page.getByRole('link', { name: 'Overview' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
    await page.getByRole('link', { name: 'Bridges and rules' }).focus()
    await page.keyboard.press('Enter')
    await bridge.getByText('Nothing waits.').waitFor()
    await page.setViewportSize({ width: 1200, height: 800 })
    await narrow('bridges and rules at 1200')
    clean(seen)
  },

  /** The busiest topics and the slow subscribers of all nodes. */
  async busy(browser) {
    const { page, seen } = await open(browser)
    await goTo(page, 'busy')
    const topics = page.getByRole('region', { name: 'Busiest topics, table' }).getByRole('row')
    await topics.filter({ hasText: settings.topic }).first().waitFor()
    await page.getByRole('region', { name: 'Slow subscribers, table' }).getByRole('row').filter({ hasText: settings.slow }).getByText('node-3').waitFor()
    await page.getByText('sedge top --once').waitFor()
    for (const width of [1200, 360]) {
      await page.setViewportSize({ width, height: 740 })
      await accessible(page, `busy at ${width}`)
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      check(wider <= 0, `busy is ${wider} pixels wider than a screen of ${width}`)
    }
    clean(seen)
  },

  /** The tree of topics: a level at a time, by keyboard, with a live value of another node and long values in full. */
  async topics(browser) {
    const { page, seen } = await open(browser)
    await goTo(page, 'topics')
    // A keyboard opens a level.
    const level = page.locator('summary', { hasText: 'plant/' })
    await level.waitFor()
    await level.focus()
    await page.keyboard.press('Enter')
    await page.locator('summary', { hasText: 'hall-000/' }).click()
    const leaf = page.locator('summary', { hasText: 'sensor-0007' })
    await leaf.getByText('value 7 of 0').waitFor()
    await leaf.getByText('retained', { exact: true }).waitFor()
    check((await page.locator('summary', { hasText: 'sensor-' }).count()) === 100, 'a level is not paged')
    await page.getByRole('button', { name: 'More of plant/hall-000/' }).click()
    await page.locator('summary', { hasText: 'sensor-0199' }).waitFor()
    await page.getByText('sedge retained').waitFor()
    await accessible(page, 'an open level')
    // A topic that nobody retains, published at another node.
    await page.getByLabel('Begin below').fill('live')
    await page.keyboard.press('Enter')
    await tell('looking')
    const live = page.locator('summary', { hasText: 'line' })
    await live.getByText(/\d a second/).waitFor()
    await live.click()
    await page.locator('pre', { hasText: 'said by another node' }).waitFor()
    await page.getByText('by live-speaker').waitFor()
    // A long value is shown in full.
    await page.locator('summary', { hasText: 'long' }).click()
    await page.getByRole('button', { name: 'Show all' }).click()
    await page.locator('pre', { hasText: 'the end' }).waitFor()
    for (const width of [1200, 360]) {
      await page.setViewportSize({ width, height: 740 })
      await accessible(page, `topics at ${width}`)
      const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
      check(wider <= 0, `topics is ${wider} pixels wider than a screen of ${width}`)
    }
    clean(seen)
  },

  /** What a controller has told the node; and it is asked to pause. */
  async scaling(browser) {
    const { page, seen } = await open(browser)
    await page.goto(`${settings.url}/#token=${settings.token}`)
    await page.getByRole('link', { name: 'Scaling' }).click()
    await page.getByText('No controller has told this node anything').waitFor()
    await accessible(page, 'scaling without a controller')
    await tell('empty')
    await page.getByRole('heading', { name: 'Group brokers: 2 of 3 nodes' }).waitFor()
    const decision = page.getByRole('region', { name: 'Decisions, table' }).getByRole('row').nth(1)
    check((await decision.innerText()).includes(settings.reason), 'the newest decision is not the first')
    await page.getByRole('row', { name: /brokers-2/ }).getByText('connections 1,200').waitFor()
    await page.getByText('sedge scale status', { exact: true }).waitFor()
    await accessible(page, 'scaling')
    await page.setViewportSize({ width: 360, height: 740 })
    const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
    check(wider <= 0, `scaling is ${wider} pixels wider than a screen of 360`)
    await page.getByRole('button', { name: 'Pause scaling …' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('sedge scale pause', { exact: true }).waitFor()
    await accessible(page, 'the question before scaling pauses')
    await dialog.getByRole('button', { name: 'Pause scaling' }).click()
    await page.getByText('It was asked to pause.').waitFor()
    await tell('asked')
    await page.getByText('paused', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Let scaling go on …' }).waitFor()
    clean(seen)
  },

  /** What each role is offered: view, operate, admin. */
  async roles(browser) {
    for (const [role, token] of Object.entries(settings.tokens)) {
      const { page, seen } = await open(browser, { viewport: { width: 360, height: 740 } })
      await page.goto(`${settings.url}/#token=${token}`)
      await page.getByText(`Role: ${role}`, { exact: true }).waitFor()
      const offered = async (name, wanted, where) => {
        const button = page.getByRole('button', { name, exact: true })
        if (wanted) await button.waitFor()
        check((await button.count()) === (wanted ? 1 : 0), `${name} with the role ${role}`)
        await accessible(page, `${where} with the role ${role}`)
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
        check(wider <= 0, `${where} is ${wider} pixels wider than the screen`)
      }
      await page.getByRole('heading', { name: 'Maintenance' }).waitFor()
      await offered('Empty the node …', role !== 'view', 'the overview')
      await goTo(page, 'clients')
      await page.getByRole('button', { name: settings.client, exact: true }).click()
      await page.getByRole('heading', { name: settings.client }).waitFor()
      await offered('End the connection …', role !== 'view', 'a client')
      await offered('End the session …', role === 'admin', 'a client')
      await goTo(page, 'retained')
      await page.locator('summary', { hasText: settings.topic.split('/')[1] }).first().click()
      await page.getByText('QoS 1').waitFor()
      await offered(`Clear ${settings.topic}`, role === 'admin', 'a retained message')
      await goTo(page, 'trace')
      if (role === 'view') await page.getByText('A trace takes the role operate.').waitFor()
      await offered('Start', role !== 'view', 'traces')
      clean(seen)
      await page.context().close()
    }
  },

  /** Settings, the level of the log and accounts, with each role; on a phone. */
  async settings(browser) {
    for (const [role, token] of Object.entries(settings.tokens)) {
      const { page, seen } = await open(browser, { viewport: { width: 360, height: 740 } })
      const narrow = async (where) => {
        await accessible(page, `${where} with the role ${role}`)
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth)
        check(wider <= 0, `${where} is ${wider} pixels wider than the screen`)
      }
      const has = async (name, wanted) => check(((await page.getByRole('button', { name, exact: true }).count()) === 1) === wanted, `${name} with the role ${role}`)
      await page.goto(`${settings.url}/#token=${token}`)
      await page.getByText(`Role: ${role}`, { exact: true }).waitFor()
      await page.getByRole('link', { name: 'Settings' }).click()
      const keys = page.getByRole('region', { name: 'Settings, table' })
      await keys.getByRole('row').filter({ hasText: 'auth.password_file' }).getByText(settings.file).waitFor()
      await keys.getByRole('row').filter({ hasText: 'cluster.key' }).getByText('(secret)').waitFor()
      check(!(await page.evaluate(() => document.body.innerText)).includes(settings.secret), 'a secret is shown')
      await page.getByLabel('Those at their defaults, too').check()
      await page.getByLabel('Search').fill('http.max_body')
      await keys.getByRole('row').filter({ hasText: 'http.max_body_bytes' }).getByText('64KiB').waitFor()
      await page.getByText('This node writes').waitFor()
      await has('Write this', role !== 'view')
      await has('Reload', role === 'admin')
      if (role !== 'admin') await page.getByText('Accounts take the token of the role admin.').waitFor()
      await narrow('settings')
      if (role === 'operate') {
        await page.getByLabel('Level').selectOption('debug')
        await page.getByText('sedge log-level debug').waitFor()
        await page.getByRole('button', { name: 'Write this' }).click()
        await page.getByText('until its next reload or start').waitFor()
        await tell('level')
      }
      if (role === 'admin') {
        await page.getByRole('button', { name: 'Reload', exact: true }).click()
        await page.getByText('Everything was read again.').waitFor()
        const accounts = page.getByRole('region', { name: 'Accounts, table' }).getByRole('row')
        await accounts.filter({ hasText: 'anna-scram' }).getByText('SCRAM sha-256').waitFor()
        // Without a mouse.
        await page.getByLabel('User').focus()
        await page.keyboard.type('carol')
        await page.keyboard.press('Tab')
        await page.keyboard.type('her password')
        await page.keyboard.press('Tab')
        await page.keyboard.type('not her password')
        await page.keyboard.press('Enter')
        await page.getByText('The passwords differ.').waitFor()
        await page.getByLabel('Password again').fill('her password')
        await page.getByText(`sedge passwd ${settings.file} carol`).waitFor()
        await page.keyboard.press('Enter')
        await page.getByText('carol was added.').waitFor()
        await accounts.filter({ hasText: 'carol' }).waitFor()
        await narrow('accounts')
        await tell('added')
        await page.getByRole('button', { name: 'Remove carol' }).click()
        const dialog = page.getByRole('dialog')
        await dialog.getByText(`sedge passwd -D ${settings.file} carol`).waitFor()
        await dialog.getByRole('button', { name: 'Remove the account' }).click()
        await accounts.filter({ hasText: 'carol' }).waitFor({ state: 'detached' })
        await tell('removed')
      }
      clean(seen)
      await page.context().close()
    }
  },

  /** A node that wants a token. */
  async token(browser) {
    const { page, seen } = await open(browser)
    await goTo(page, 'overview')
    const enter = async (token) => {
      await page.getByLabel('Token').fill(token)
      await page.getByRole('button', { name: 'Enter' }).click()
    }
    await page.getByLabel('Token').waitFor()
    await accessible(page, 'the question for a token')
    await enter('0000000000000000')
    await page.getByText('the token is not one of this node').waitFor()
    await enter(settings.token)
    await page.getByText('Over time').waitFor()
    await page.getByText('--token-file FILE').first().waitFor()
    const kept = await page.evaluate(() => ({ local: localStorage.length, session: sessionStorage.length, cookie: document.cookie }))
    check(kept.local === 0 && kept.session === 1 && kept.cookie === '', JSON.stringify(kept))
    check(!seen.requests.some((url) => url.includes(settings.token)), 'the token is in an address')
    await page.getByRole('button', { name: 'Forget the token' }).click()
    await page.getByLabel('Token').waitFor()
    // The browser itself notes answers with 401.
    seen.problems = seen.problems.filter((one) => !one.includes('401'))
    clean(seen)
  },

  /** A page of another site tries what it can. */
  async foreign(browser) {
    const context = await browser.newContext()
    const page = await context.newPage()
    const statuses = []
    page.on('response', (answer) => {
      if (answer.url().startsWith(settings.url)) statuses.push([answer.request().method(), new URL(answer.url()).pathname, answer.status()])
    })
    await page.goto(settings.evil)
    const drain = `${settings.url}/api/v1/drain`
    const attempts = await page.evaluate(async (url) => {
      const attempt = (options) =>
        fetch(url, options).then(
          (answer) => `answered ${answer.type} ${answer.status}`,
          () => 'refused',
        )
      const text = await attempt({ method: 'POST', mode: 'no-cors', body: 'x', headers: { 'Content-Type': 'text/plain' } })
      const plain = await attempt({ method: 'POST', mode: 'no-cors' })
      const json = await attempt({ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' })
      const own = await attempt({ method: 'POST', headers: { 'X-Sedge': '1' } })
      const remove = await attempt({ method: 'DELETE' })
      const read = await attempt({ mode: 'cors' })
      navigator.sendBeacon(url, 'x')
      return { text, plain, json, own, remove, read }
    }, drain)
    const socket = await page.evaluate(
      (port) =>
        new Promise((resolve) => {
          const socket = new WebSocket(`ws://127.0.0.1:${port}/mqtt`, 'mqtt')
          socket.onopen = () => resolve('open')
          socket.onerror = () => resolve('refused')
        }),
      settings.ws,
    )
    // A form that sends the whole page there.
    await page.evaluate((url) => {
      const form = document.createElement('form')
      Object.assign(form, { method: 'POST', action: url, enctype: 'text/plain' })
      document.body.append(form)
      form.submit()
    }, drain)
    await page.waitForURL(drain)
    const body = await page.textContent('body')
    // In a frame, with a click that the user did not mean.
    await page.goto(settings.evil)
    const framed = await page.evaluate(
      (url) =>
        new Promise((resolve) => {
          const frame = document.createElement('iframe')
          frame.onload = () => resolve(frame.contentDocument === null ? 'closed' : 'open')
          frame.src = url
          document.body.append(frame)
        }),
      settings.url,
    )
    const inside = page.frames().find((one) => one !== page.mainFrame())
    const shown = await inside.locator('#app').count()
    return { attempts, socket, statuses, body, framed, shown }
  },
}

const browser = await chromium.launch({ executablePath: settings.chromium, args: FLAGS })
try {
  const found = await scenarios[scenario](browser)
  console.log(JSON.stringify({ done: scenario, ...found }))
} catch (error) {
  console.error(error)
  // What the page shows instead tells why.
  for (const page of browser.contexts().flatMap((context) => context.pages())) {
    console.error(page.url(), await page.evaluate(() => document.body.innerText.slice(0, 2000)).catch(String))
  }
  process.exitCode = 1
} finally {
  await browser.close()
  process.stdin.destroy()
}
