// What the controller of the site does and why: it tells each node, so that the page asks nobody but its own node.
import { useState } from 'preact/hooks'
import type { Scaling as Told, ScaleReport } from '../api'
import { count, date, seconds, time } from '../format'
import { usePoll } from '../live'
import { Badge, Command, Confirm, Problem, Table, type Change } from '../parts'
import { May } from '../role'

/** A controller that is silent for longer than this is away. */
const SILENCE = 30

const head = (names: string[]) => names.map((name) => <th scope="col" key={name}>{name}</th>)

function order(paused: boolean): Change {
  return paused
    ? {
        title: 'Pause scaling',
        what: 'The controller begins no action any more: no node is added, emptied or ended until scaling goes on. What is under way is finished.',
        words: ['scale', 'pause'],
        method: 'POST',
        path: '/api/v1/scale/pause',
        done: 'The controller is told to pause.',
      }
    : {
        title: 'Let scaling go on',
        what: 'The controller begins actions again.',
        words: ['scale', 'resume'],
        method: 'POST',
        path: '/api/v1/scale/resume',
        done: 'The controller is told to go on.',
      }
}

/** `scale` works on the controller's machine and takes no address of a node. */
const local = (words: string[]) => `sedge ${words.join(' ')}`

function Groups({ report }: { report: ScaleReport }) {
  return (
    <>
      {Object.entries(report.groups).map(([name, group]) => (
        <section key={name} aria-label={`Group ${name}`}>
          <h2>
            Group {name}: {group.nodes.length} of {group.wanted} nodes
          </h2>
          <p class="quiet">
            {group.min} to {group.max} nodes.{group.hold && ` Stays as it is: ${group.hold}.`}
          </p>
          <Table name={`Nodes of ${name}`} head={head(['Node', 'State', 'For', 'Clients reach it at', 'Measured'])}>
            {group.nodes.map((node) => (
              <tr key={node.name}>
                <th scope="row">{node.name}</th>
                <td>
                  <Badge kind={node.state === 'serving' ? 'good' : 'warn'}>{node.state}</Badge>
                </td>
                <td>{seconds(node.seconds)}</td>
                <td>{node.mqtt}</td>
                <td>
                  {Object.entries(node.samples)
                    .map(([metric, value]) => `${metric.replaceAll('_', ' ')} ${count(value)}`)
                    .join(', ') || '–'}
                </td>
              </tr>
            ))}
          </Table>
        </section>
      ))}
    </>
  )
}

function Decisions({ report }: { report: ScaleReport }) {
  const newest = [...report.decisions].reverse()
  return (
    <section aria-labelledby="decisions">
      <h2 id="decisions">Decisions</h2>
      {newest.length === 0 ? (
        <p>None yet.</p>
      ) : (
        <Table name="Decisions" head={head(['When', 'Group', 'Nodes', 'Why'])}>
          {newest.map((decision, index) => (
            <tr key={`${decision.at_ms} ${index}`}>
              <td>{date(decision.at_ms)}</td>
              <td>{decision.group}</td>
              <td>
                {decision.from} → {decision.to}
              </td>
              <td>{decision.reason}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  )
}

function Rest({ report }: { report: ScaleReport }) {
  const alarms = Object.entries(report.alarms)
  const balancers = Object.entries(report.balancers)
  return (
    <>
      {report.pending.length > 0 && (
        <section aria-labelledby="pending">
          <h2 id="pending">Under way</h2>
          <ul>{report.pending.map((action) => <li key={action}>{action}</li>)}</ul>
        </section>
      )}
      {alarms.length > 0 && (
        <section aria-labelledby="alarms">
          <h2 id="alarms">Alarms</h2>
          <Table name="Alarms" head={head(['Alarm', 'State', 'For', 'Last value'])}>
            {alarms.map(([name, alarm]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>
                  <Badge kind={alarm.state === 'ok' ? 'good' : alarm.state === 'alarm' ? 'bad' : 'plain'}>{alarm.state}</Badge>
                </td>
                <td>{seconds(alarm.seconds)}</td>
                <td>{alarm.value === null ? '–' : count(alarm.value)}</td>
              </tr>
            ))}
          </Table>
        </section>
      )}
      {balancers.length > 0 && (
        <section aria-labelledby="balancers">
          <h2 id="balancers">Load balancers</h2>
          <Table name="Load balancers" head={head(['Load balancer', 'Port', 'Chooses by', 'Connections'])}>
            {balancers.map(([name, balancer]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{balancer.port}</td>
                <td>{balancer.algorithm}</td>
                <td>{balancer.nodes.map((node) => `${node} ${count(balancer.connections[node] ?? 0)}`).join(', ') || '–'}</td>
              </tr>
            ))}
          </Table>
        </section>
      )}
      {report.events.length > 0 && (
        <section aria-labelledby="scale-events">
          <h2 id="scale-events">Events</h2>
          <ul>
            {[...report.events].reverse().map((event, index) => (
              <li key={`${event.at_ms} ${index}`}>
                {time(event.at_ms)} {event.kind} {event.subject}: {event.text}
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  )
}

export function Scaling() {
  const told = usePoll<Told>('/api/v1/scale', 2000)
  const [change, setChange] = useState<Change>()
  const { report, heard_seconds: heard, asked_to_pause: asked } = told.data ?? {}
  const away = heard === null || heard === undefined || heard > SILENCE
  return (
    <>
      <Problem text={told.error} />
      {told.data && !report && (
        <p role="status">No controller has told this node anything. One keeps the nodes of a site as its file says: docs/elasticity.md.</p>
      )}
      {report && (
        <>
          <p role="status" class="row">
            <Badge kind={away ? 'bad' : report.paused ? 'warn' : report.converged ? 'good' : 'plain'}>
              {away ? 'silent' : report.paused ? 'paused' : report.converged ? 'as the site says' : 'at work'}
            </Badge>
            <span>
              {report.site}, driver {report.driver}, told {seconds(heard ?? 0)} ago; {count(report.actions_left)} more actions may begin this hour.
              {asked === true && ' It was asked to pause.'}
              {asked === false && ' It was asked to go on.'}
            </span>
          </p>
          <May role="operate">
            <p>
              <button type="button" disabled={away} onClick={() => setChange(order(!report.paused))}>
                {report.paused ? 'Let scaling go on …' : 'Pause scaling …'}
              </button>
            </p>
          </May>
          <Groups report={report} />
          <Decisions report={report} />
          <Rest report={report} />
        </>
      )}
      <Command text={local(['scale', 'status'])} />
      {change && <Confirm change={change} text={local(change.words)} close={() => { setChange(undefined); told.reload() }} />}
    </>
  )
}
