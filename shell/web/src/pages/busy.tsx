// What `sedge top` shows: the topics that clients of all nodes publish to most, and the clients that take their messages too slowly.
import type { HotTopics, Sessions } from '../api'
import { bytes, count } from '../format'
import { usePoll } from '../live'
import { Command, Problem, Silent, Table } from '../parts'

const head = (names: string[]) => names.map((name) => <th scope="col" key={name}>{name}</th>)

export function Busy() {
  const hot = usePoll<HotTopics>('/api/v1/topics/hot?node=*&limit=50', 3000)
  const slow = usePoll<Sessions>('/api/v1/sessions?node=*&connected=true&sort=queued&order=desc&limit=20', 3000)
  const topics = hot.data?.topics ?? []
  const waiting = (slow.data?.sessions ?? []).filter((session) => session.queued_messages > 0)
  const most = topics[0]?.rate ?? 0
  return (
    <>
      <p class="quiet">All nodes together. Topics are counted while somebody looks, over the last 5 to 10 seconds.</p>
      <section aria-labelledby="hot">
        <h2 id="hot">Busiest topics</h2>
        <Problem text={hot.error} />
        <Silent names={hot.data?.silent} />
        <p role="status">
          {!hot.data ? 'Asking the nodes …' : topics.length > 0 ? `${count(topics.length)} topics are shown.` : hot.data.seconds > 0 ? 'Nobody publishes.' : 'Counting begins.'}
        </p>
        {topics.length > 0 && (
          <Table name="Busiest topics" head={head(['Topic', 'Messages a second', 'Share of the first'])}>
            {topics.map((topic) => (
              <tr key={topic.topic}>
                <th scope="row">
                  <code>{topic.topic}</code>
                </th>
                <td>
                  {count(topic.rate)}
                  {topic.error >= 0.05 && <small> at most, at least {count(topic.rate - topic.error)}</small>}
                </td>
                <td>
                  <meter min={0} max={most} value={topic.rate} aria-label={`Share of ${topic.topic}`} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </section>
      <section aria-labelledby="slow">
        <h2 id="slow">Slow subscribers</h2>
        <Problem text={slow.error} />
        <Silent names={slow.data?.silent} />
        {slow.data && waiting.length === 0 && <p role="status">No connected client has messages waiting.</p>}
        {waiting.length > 0 && (
          <Table name="Slow subscribers" head={head(['Client', 'Node', 'Waiting', 'Bytes', 'Unacknowledged'])}>
            {waiting.map((session) => (
              <tr key={session.client}>
                <th scope="row">{session.client}</th>
                <td>{session.name ?? '–'}</td>
                <td>{count(session.queued_messages)}</td>
                <td>{bytes(session.queued_bytes)}</td>
                <td>{count(session.inflight)}</td>
              </tr>
            ))}
          </Table>
        )}
      </section>
      <Command words={['top', '--once']} />
    </>
  )
}
