// MQTT 5.0: what a small client needs (OASIS standard, chapters 2 and 3).

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8')

export interface Properties {
  messageExpiry?: number
  contentType?: string
  responseTopic?: string
  correlation?: Uint8Array
  payloadIsText?: boolean
  user?: [string, string][]
  subscriptions?: number[]
  reason?: string
}

export interface Message {
  topic: string
  payload: Uint8Array
  qos: number
  retain: boolean
  dup: boolean
  id: number
  properties: Properties
}

class Writer {
  private parts: number[] = []
  byte(value: number) {
    this.parts.push(value & 0xff)
    return this
  }
  short(value: number) {
    return this.byte(value >> 8).byte(value)
  }
  long(value: number) {
    return this.short(value >>> 16).short(value & 0xffff)
  }
  variable(value: number) {
    do {
      const rest = value >>> 7
      this.byte((value & 0x7f) | (rest > 0 ? 0x80 : 0))
      value = rest
    } while (value > 0)
    return this
  }
  raw(bytes: Uint8Array | number[]) {
    for (const byte of bytes) this.parts.push(byte)
    return this
  }
  binary(bytes: Uint8Array) {
    if (bytes.length > 0xffff) throw new Error('a text or value is longer than 65,535 bytes')
    return this.short(bytes.length).raw(bytes)
  }
  text(text: string) {
    return this.binary(encoder.encode(text))
  }
  block(inner: Writer) {
    return this.variable(inner.parts.length).raw(inner.parts)
  }
  /** The packet whose first byte is `first`. */
  packet(first: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(new Writer().byte(first).block(this).parts)
  }
}

/** What is wrong with bytes of the broker. */
export class Malformed extends Error {}

class Reader {
  private at = 0
  constructor(private readonly bytes: Uint8Array) {}
  get left() {
    return this.bytes.length - this.at
  }
  byte(): number {
    const value = this.bytes[this.at]
    if (value === undefined) throw new Malformed('a packet of the broker ends too early')
    this.at += 1
    return value
  }
  short() {
    return this.byte() * 256 + this.byte()
  }
  long() {
    return this.short() * 65536 + this.short()
  }
  variable(): number {
    let value = 0
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.byte()
      value += (byte & 0x7f) * 2 ** shift
      if (byte < 0x80) return value
    }
    throw new Malformed('a length is too long')
  }
  take(count: number): Uint8Array {
    if (count > this.left) throw new Malformed('a packet of the broker ends too early')
    this.at += count
    return this.bytes.subarray(this.at - count, this.at)
  }
  text() {
    return decoder.decode(this.take(this.short()))
  }
  binary() {
    return this.take(this.short())
  }
}

/** Lengths of properties by identifier, for those that the page does not show: 1, 2 and 4 bytes, variable, text or binary. */
const BYTES = [0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2a]
const SHORTS = [0x13, 0x21, 0x22, 0x23]
const LONGS = [0x11, 0x18, 0x27]

function properties(reader: Reader): Properties {
  const inner = new Reader(reader.take(reader.variable()))
  const found: Properties = {}
  while (inner.left > 0) {
    const id = inner.variable()
    if (id === 0x01) found.payloadIsText = inner.byte() === 1
    else if (id === 0x02) found.messageExpiry = inner.long()
    else if (id === 0x03) found.contentType = inner.text()
    else if (id === 0x08) found.responseTopic = inner.text()
    else if (id === 0x09) found.correlation = inner.binary().slice()
    else if (id === 0x0b) (found.subscriptions ??= []).push(inner.variable())
    else if (id === 0x1f) found.reason = inner.text()
    else if (id === 0x26) (found.user ??= []).push([inner.text(), inner.text()])
    else if (BYTES.includes(id)) inner.byte()
    else if (SHORTS.includes(id)) inner.short()
    else if (LONGS.includes(id)) inner.long()
    else if ([0x12, 0x15, 0x16, 0x1a, 0x1c].includes(id)) inner.binary()
    else throw new Malformed(`property ${id} is unknown`)
  }
  return found
}

export type Packet =
  | { kind: 'connack'; present: boolean; code: number; reason: string | undefined }
  | { kind: 'publish'; message: Message }
  | { kind: 'ack'; type: number; id: number; code: number; reason: string | undefined }
  | { kind: 'suback'; id: number; codes: number[]; reason: string | undefined }
  | { kind: 'pong' }
  | { kind: 'disconnect'; code: number; reason: string | undefined }

function packet(first: number, body: Uint8Array): Packet {
  const reader = new Reader(body)
  const type = first >> 4
  if (type === 2) {
    const present = (reader.byte() & 1) === 1
    const code = reader.byte()
    return { kind: 'connack', present, code, reason: reader.left > 0 ? properties(reader).reason : undefined }
  }
  if (type === 3) {
    const qos = (first >> 1) & 3
    const topic = reader.text()
    const id = qos > 0 ? reader.short() : 0
    const found = properties(reader)
    const payload = reader.take(reader.left).slice()
    return { kind: 'publish', message: { topic, payload, qos, retain: (first & 1) === 1, dup: (first & 8) !== 0, id, properties: found } }
  }
  if (type >= 4 && type <= 7) {
    const id = reader.short()
    const code = reader.left > 0 ? reader.byte() : 0
    return { kind: 'ack', type, id, code, reason: reader.left > 0 ? properties(reader).reason : undefined }
  }
  if (type === 9 || type === 11) {
    const id = reader.short()
    const { reason } = properties(reader)
    return { kind: 'suback', id, codes: [...reader.take(reader.left)], reason }
  }
  if (type === 13) return { kind: 'pong' }
  if (type === 14) {
    const code = reader.left > 0 ? reader.byte() : 0
    return { kind: 'disconnect', code, reason: reader.left > 0 ? properties(reader).reason : undefined }
  }
  throw new Malformed(`packet type ${type} is not for clients`)
}

/** Takes whole packets out of `bytes`; returns what is left over. */
export function packets(bytes: Uint8Array, take: (packet: Packet) => void): Uint8Array {
  let at = 0
  for (;;) {
    let length = 0
    let end = at + 1
    let shift = 0
    let byte: number | undefined
    do {
      byte = bytes[end]
      if (byte === undefined) return bytes.slice(at)
      length += (byte & 0x7f) * 2 ** shift
      shift += 7
      end += 1
      if (shift > 28) throw new Malformed('a length is too long')
    } while (byte >= 0x80)
    if (bytes.length < end + length) return bytes.slice(at)
    take(packet(bytes[at] ?? 0, bytes.subarray(end, end + length)))
    at = end + length
  }
}

export interface ConnectOptions {
  client: string
  user: string
  password: string
  clean: boolean
  expiry: number
  keepAlive: number
}

export function connect(options: ConnectOptions) {
  const flags = (options.user ? 0x80 : 0) | (options.password ? 0x40 : 0) | (options.clean ? 0x02 : 0)
  const out = new Writer().text('MQTT').byte(5).byte(flags).short(options.keepAlive)
  out.block(options.expiry > 0 ? new Writer().byte(0x11).long(options.expiry) : new Writer())
  out.text(options.client)
  if (options.user) out.text(options.user)
  if (options.password) out.text(options.password)
  return out.packet(0x10)
}

export function publish(message: Message) {
  const { messageExpiry, contentType, responseTopic, correlation, payloadIsText, user } = message.properties
  const properties = new Writer()
  if (payloadIsText) properties.byte(0x01).byte(1)
  if (messageExpiry !== undefined) properties.byte(0x02).long(messageExpiry)
  if (contentType) properties.byte(0x03).text(contentType)
  if (responseTopic) properties.byte(0x08).text(responseTopic)
  if (correlation) properties.byte(0x09).binary(correlation)
  for (const [name, value] of user ?? []) properties.byte(0x26).text(name).text(value)
  const out = new Writer().text(message.topic)
  if (message.qos > 0) out.short(message.id)
  return out.block(properties).raw(message.payload).packet(0x30 | (message.qos << 1) | (message.retain ? 1 : 0))
}

export interface SubscribeOptions { qos: number; noLocal: boolean; asPublished: boolean }

export function subscribe(id: number, filter: string, options: SubscribeOptions) {
  const flags = options.qos | (options.noLocal ? 4 : 0) | (options.asPublished ? 8 : 0)
  return new Writer().short(id).block(new Writer()).text(filter).byte(flags).packet(0x82)
}

export function unsubscribe(id: number, filter: string) {
  return new Writer().short(id).block(new Writer()).text(filter).packet(0xa2)
}

/** PUBACK 4, PUBREC 5, PUBREL 6, PUBCOMP 7. */
export function acknowledge(type: number, id: number) {
  return new Writer().short(id).packet((type << 4) | (type === 6 ? 2 : 0))
}

export const ping = () => new Writer().packet(0xc0)
export const disconnect = () => new Writer().packet(0xe0)
