// What an operator has to know at once.
import type { Bridge, Cluster, Status } from './api'
import { count, seconds, short } from './format'

/** What somebody should look at, most urgent first. */
export function alarms(status: Status, cluster: Cluster | undefined, dropping: number | null, bridges: Bridge[] = []): { bad: boolean; text: string }[] {
  const found: { bad: boolean; text: string }[] = []
  const add = (bad: boolean, text: string) => found.push({ bad, text })
  for (const reason of status.not_ready) add(true, `Not ready for clients: ${reason}.`)
  if (status.journal?.full) add(true, 'The journal is full: publications with QoS 1 and 2 are refused. Make room on the disk, or raise node.max_journal_bytes.')
  if (status.copies < status.copies_wanted)
    add(true, `Too few copies: ${status.copies} of ${status.copies_wanted} nodes hold this node's sessions. A crash now may lose messages.`)
  for (const dead of cluster?.dead ?? []) add(true, `Node ${short(dead.node)} at ${dead.address} is gone since ${seconds(dead.seconds)}.`)
  if (status.orphaned > 0) add(true, `${status.orphaned} nodes are gone whose sessions are being taken over; ${status.strays} publications are kept for them.`)
  if (dropping !== null && dropping > 0) add(true, `Queues are full: ${count(dropping)} messages are dropped each second. The clients page sorts by queue.`)
  for (const bridge of bridges)
    if (bridge.state === 'down') add(true, `Bridge ${bridge.name} does not reach the other end${bridge.node_name ? ` from ${bridge.node_name}` : ''}, and ${count(bridge.lag)} messages wait: ${bridge.last_error ?? 'no reason is known'}.`)
  for (const member of cluster?.members ?? []) if (member.link?.via) add(false, `Node ${short(member.node)} is not reached directly: ${short(member.link.via)} carries the link.`)
  for (const seed of status.unreached_seeds) add(false, `The seed ${seed} does not answer.`)
  for (const why of status.refused_nodes) add(false, why)
  for (const source of cluster?.discovery ?? []) if (source.failure) add(false, `Discovery by ${source.source} fails: ${source.failure}.`)
  if (status.drain.state !== 'off') add(false, `The node is ${status.drain.state}: ${status.drain.sessions_left} of ${status.drain.sessions} sessions are still here.`)
  if (status.drain.gave_up) add(false, `The node serves on although it was to be emptied: ${status.drain.gave_up}.`)
  return found
}
