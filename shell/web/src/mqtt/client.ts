// A small MQTT 5.0 client over a WebSocket, for the try-it page.
import * as codec from './codec'

const KEEP_ALIVE = 30
/** Longest wait for an answer of the broker. */
const PATIENCE = 10_000

const REASONS: Record<number, string> = {
  0x00: 'success',
  0x04: 'disconnected with will',
  0x10: 'no matching subscribers',
  0x11: 'no subscription existed',
  0x80: 'unspecified error',
  0x81: 'malformed packet',
  0x82: 'protocol error',
  0x83: 'implementation specific error',
  0x84: 'unsupported protocol version',
  0x85: 'client identifier not valid',
  0x86: 'bad user name or password',
  0x87: 'not authorized',
  0x88: 'server unavailable',
  0x89: 'server busy',
  0x8b: 'server shutting down',
  0x8d: 'keep alive timeout',
  0x8e: 'session taken over',
  0x8f: 'topic filter invalid',
  0x90: 'topic name invalid',
  0x93: 'receive maximum exceeded',
  0x95: 'packet too large',
  0x97: 'quota exceeded',
  0x98: 'administrative action',
  0x9c: 'use another server',
  0x9d: 'server moved',
  0x9e: 'shared subscriptions not supported',
}

export function reason(code: number, text?: string): string {
  const hex = `0x${code.toString(16).padStart(2, '0')}`
  return `${REASONS[code] ?? 'reason'} (${hex})${text ? `: ${text}` : ''}`
}

export class Client {
  private readonly socket: WebSocket
  private rest: Uint8Array = new Uint8Array(0)
  private nextId = 0
  private readonly waiting = new Map<number, (answer: codec.Packet) => void>()
  /** QoS 2 publications that have come and are not completed. */
  private readonly received = new Set<number>()
  private timer: ReturnType<typeof setInterval> | undefined
  private over = false
  onMessage: (message: codec.Message) => void = () => {}
  onEnd: (why: string) => void = () => {}

  private constructor(url: string) {
    this.socket = new WebSocket(url, 'mqtt')
    this.socket.binaryType = 'arraybuffer'
  }

  /** Connects; says whether there was a session. */
  static connect(url: string, options: Omit<codec.ConnectOptions, 'keepAlive'>): Promise<{ client: Client; present: boolean }> {
    return new Promise((resolve, reject) => {
      const client = new Client(url)
      const { socket } = client
      const late = setTimeout(() => fail('the broker does not answer'), PATIENCE)
      const fail = (why: string) => {
        clearTimeout(late)
        client.over = true
        socket.close()
        reject(new Error(why))
      }
      socket.onopen = () => socket.send(codec.connect({ ...options, keepAlive: KEEP_ALIVE }))
      socket.onerror = () => fail(`no WebSocket at ${url}`)
      socket.onclose = () => fail('the broker has closed the connection')
      client.first = (packet) => {
        if (packet.kind !== 'connack') return fail('the broker did not say CONNACK')
        if (packet.code >= 0x80) return fail(reason(packet.code, packet.reason))
        clearTimeout(late)
        client.begin()
        resolve({ client, present: packet.present })
      }
      socket.onmessage = (event: MessageEvent<ArrayBuffer>) => {
        try {
          client.read(new Uint8Array(event.data))
        } catch (error) {
          client.end(error instanceof Error ? error.message : String(error))
          fail('the broker sends what is no MQTT')
        }
      }
    })
  }

  private first: ((packet: codec.Packet) => void) | undefined

  private begin() {
    this.socket.onerror = null
    this.socket.onclose = () => this.end('the connection has ended')
    this.timer = setInterval(() => this.send(codec.ping()), KEEP_ALIVE * 500)
  }

  private send(bytes: Uint8Array<ArrayBuffer>) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(bytes)
  }

  private end(why: string) {
    if (this.over) return
    this.over = true
    clearInterval(this.timer)
    this.socket.close()
    this.waiting.clear()
    this.onEnd(why)
  }

  private read(bytes: Uint8Array) {
    const all = new Uint8Array(this.rest.length + bytes.length)
    all.set(this.rest)
    all.set(bytes, this.rest.length)
    this.rest = codec.packets(all, (packet) => this.take(packet))
  }

  private take(packet: codec.Packet) {
    const { first } = this
    if (first) {
      this.first = undefined
      first(packet)
    } else if (packet.kind === 'publish') this.takeMessage(packet.message)
    else if (packet.kind === 'disconnect') this.end(`the broker says: ${reason(packet.code, packet.reason)}`)
    else if (packet.kind === 'ack' && packet.type === 6) {
      this.received.delete(packet.id)
      this.send(codec.acknowledge(7, packet.id))
    } else if (packet.kind === 'ack' && packet.type === 5 && packet.code < 0x80) this.send(codec.acknowledge(6, packet.id))
    else if (packet.kind === 'ack' || packet.kind === 'suback') {
      this.waiting.get(packet.id)?.(packet)
      this.waiting.delete(packet.id)
    }
  }

  private takeMessage(message: codec.Message) {
    if (message.qos === 1) this.send(codec.acknowledge(4, message.id))
    if (message.qos === 2) {
      this.send(codec.acknowledge(5, message.id))
      if (this.received.has(message.id)) return
      this.received.add(message.id)
    }
    this.onMessage(message)
  }

  private ask(make: (id: number) => Uint8Array<ArrayBuffer>): Promise<codec.Packet> {
    return new Promise((resolve, reject) => {
      do this.nextId = (this.nextId % 65535) + 1
      while (this.waiting.has(this.nextId))
      const id = this.nextId
      const late = setTimeout(() => {
        this.waiting.delete(id)
        reject(new Error('the broker does not answer'))
      }, PATIENCE)
      this.waiting.set(id, (packet) => {
        clearTimeout(late)
        resolve(packet)
      })
      this.send(make(id))
    })
  }

  async subscribe(filter: string, options: codec.SubscribeOptions): Promise<string> {
    return this.judge(await this.ask((id) => codec.subscribe(id, filter, options)))
  }

  async unsubscribe(filter: string): Promise<string> {
    return this.judge(await this.ask((id) => codec.unsubscribe(id, filter)))
  }

  /** Returns what the broker has said. */
  async publish(message: Omit<codec.Message, 'id' | 'dup'>): Promise<string> {
    if (message.qos === 0) {
      this.send(codec.publish({ ...message, id: 0, dup: false }))
      return 'sent'
    }
    return this.judge(await this.ask((id) => codec.publish({ ...message, id, dup: false })))
  }

  private judge(packet: codec.Packet): string {
    const code = packet.kind === 'suback' ? (packet.codes[0] ?? 0x80) : packet.kind === 'ack' ? packet.code : 0x80
    const text = packet.kind === 'suback' || packet.kind === 'ack' ? packet.reason : undefined
    if (code >= 0x80) throw new Error(reason(code, text))
    return packet.kind === 'suback' && code <= 2 ? `granted QoS ${code}` : reason(code, text)
  }

  close() {
    this.send(codec.disconnect())
    this.end('you have disconnected')
  }
}
