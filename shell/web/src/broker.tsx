// The broker behind or beside this node (docs/own-broker.md).
import type { Upstream } from './api'
import { count, seconds } from './format'
import { Badge, Tile } from './parts'

export function Broker({ upstream }: { upstream: Upstream }) {
  const serves = upstream.mode === 'proxy'
  return (
    <section aria-labelledby="broker">
      <h2 id="broker">The broker {serves ? 'behind' : 'beside'} this node</h2>
      <p class="row">
        <Badge kind={upstream.up ? 'good' : 'bad'}>{upstream.up ? 'up' : 'away'}</Badge>
        <span>
          {upstream.version ?? 'Of unknown make'} at {upstream.address}, MQTT {upstream.protocol}, {upstream.mode}, {upstream.up ? 'up' : 'away'} for {seconds(upstream.since_seconds)}
        </span>
      </p>
      {!upstream.up && upstream.last_error && <p class="quiet">{upstream.last_error}</p>}
      {serves && (
        <dl class="tiles">
          <Tile name="Conversations" value={count(upstream.conversations)} hint="those of this node included" />
          <Tile name="Publications to it" value={count(upstream.published)} hint={`${count(upstream.unacknowledged)} not acknowledged`} />
          <Tile name="Deliveries by it" value={count(upstream.delivered)} hint={`${count(upstream.expected)} outstanding`} />
          <Tile name="Delivered from copies" value={count(upstream.covered)} hint="the broker could not" />
          <Tile name="Refused by it" value={count(upstream.refused)} hint={`${count(upstream.dropped)} dropped while it was away`} />
        </dl>
      )}
    </section>
  )
}
