// An edge node of Sparkplug B with one device, by the client library of Eclipse Tahu.
//   sparkplug.mjs URL GROUP NODE     each line of its input is a number: both publish it, by its alias; "birth" once it is born
import readline from 'node:readline'
import sparkplug from 'sparkplug-client'

const [serverUrl, groupId, edgeNode] = process.argv.slice(2)
const client = sparkplug.newClient({ serverUrl, groupId, edgeNode, username: '', password: '', clientId: `edge-${edgeNode}`, version: 'spBv1.0', publishDeath: true })
client.on('error', (error) => { console.error(error); process.exit(1) })

const metric = (alias, name, value) => ({ alias, ...(name && { name }), type: 'Double', value, timestamp: Date.now() })
const birth = () => {
  const rebirth = { name: 'Node Control/Rebirth', type: 'Boolean', value: false, timestamp: Date.now() }
  client.publishNodeBirth({ timestamp: Date.now(), metrics: [rebirth, metric(1, 'Temperature', 0)] })
  client.publishDeviceBirth('device', { timestamp: Date.now(), metrics: [metric(2, 'Pressure', 0)] })
  console.log('birth')
}
client.on('birth', birth)
client.on('ncmd', (payload) => {
  if (payload.metrics.some(({ name, value }) => name === 'Node Control/Rebirth' && value)) birth()
})
for await (const line of readline.createInterface({ input: process.stdin })) {
  client.publishNodeData({ timestamp: Date.now(), metrics: [metric(1, null, Number(line))] })
  client.publishDeviceData('device', { timestamp: Date.now(), metrics: [metric(2, null, -Number(line))] })
}
client.stop()
