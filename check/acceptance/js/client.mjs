// An MQTT.js client for the acceptance tests.
//   client.mjs sub URL VERSION TOPIC QOS COUNT   prints "ready" after the SUBACK, then COUNT payloads, one a line
//   client.mjs pub URL VERSION TOPIC QOS COUNT   publishes the numbers from 0, each after the one before is on its way
import mqtt from 'mqtt'

const [job, url, version, topic, qos, count] = process.argv.slice(2)
// "HOST:PORT,HOST:PORT" is a list of WebSocket servers, which MQTT.js asks for the path /.
const servers = url.split(',').map((one) => ({ protocol: 'ws', host: one.split(':')[0], port: Number(one.split(':')[1]) }))
const where = url.includes('://') ? {} : { servers }
const client = await mqtt.connectAsync(url.includes('://') ? url : 'ws://', { ...where, protocolVersion: Number(version), reconnectPeriod: 0 })
client.on('error', (error) => { console.error(error); process.exit(1) })

if (job === 'sub') {
  let left = Number(count)
  client.on('message', (_, payload) => {
    console.log(payload.toString())
    left -= 1
    if (left === 0) client.end(false, {}, () => process.exit(0))
  })
  await client.subscribeAsync(topic, { qos: Number(qos) })
  console.log('ready')
} else {
  const all = []
  for (let number = 0; number < Number(count); number += 1) {
    all.push(client.publishAsync(topic, String(number), { qos: Number(qos) }))
    if (all.length >= 100) await Promise.all(all.splice(0))
  }
  await Promise.all(all)
  await client.endAsync()
}
