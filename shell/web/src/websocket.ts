// Where the page can speak MQTT with its node.
import type { Status } from './api'

/** The node's WebSocket listeners that this page may use. */
export function addresses(status: Status | undefined): string[] {
  const found = status?.addresses.listeners.filter((one) => one.protocol === 'ws' || one.protocol === 'wss') ?? []
  // A page that came over HTTPS may not use a WebSocket without TLS.
  const usable = found.filter((one) => location.protocol === 'http:' || one.protocol === 'wss')
  return usable.map((one) => `${one.protocol}://${location.hostname}:${one.address.slice(one.address.lastIndexOf(':') + 1)}/mqtt`)
}
