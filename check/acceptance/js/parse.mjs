// Reads MQTT packets with the parser of MQTT.js: {connection, from, hex} a line in, the fields of the packet a line out.
import { createInterface } from 'node:readline'
import { parser } from 'mqtt-packet'

const versions = new Map()
const parsers = new Map()
for await (const line of createInterface({ input: process.stdin })) {
  const { connection, from, hex } = JSON.parse(line)
  const stream = `${connection} ${from}`
  if (!parsers.has(stream)) {
    const made = parser({ protocolVersion: versions.get(connection) })
    made.on('packet', (packet) => {
      if (packet.cmd === 'connect') versions.set(connection, packet.protocolVersion)
      console.log(JSON.stringify({ ...packet, payload: packet.payload?.toString('hex') }))
    })
    made.on('error', (error) => { console.error(`${hex}: ${error}`); process.exit(1) })
    parsers.set(stream, made)
  }
  parsers.get(stream).parse(Buffer.from(hex, 'hex'))
}
