// Figures, times and commands as people read them.

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 1 })
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })

export function count(value: number): string {
  return value < 100 ? number.format(value) : whole.format(value)
}

export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let unit = 0
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit += 1
  }
  return `${number.format(value)} ${units[unit]}`
}

export function micros(value: number): string {
  if (value === 0) return 'not measured'
  return value < 1000 ? `${whole.format(value)} µs` : `${number.format(value / 1000)} ms`
}

export function seconds(value: number): string {
  if (value === 4294967295) return 'for ever'
  if (value < 120) return `${whole.format(value)} s`
  if (value < 7200) return `${whole.format(value / 60)} min`
  if (value < 172800) return `${whole.format(value / 3600)} h`
  return `${whole.format(value / 86400)} days`
}

export function time(ms: number): string {
  return new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' })
}

export function date(ms: number): string {
  return new Date(ms).toLocaleString([], { dateStyle: 'short', timeStyle: 'medium' })
}

/** The beginning of a node's id. */
export const short = (node: string) => node.slice(0, 6)

/** A word as a shell takes it for one. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`
}

/** The command of `sedge` that does the same as a button of this page. */
export function command(words: string[], withToken: boolean): string {
  const api = location.origin === 'http://127.0.0.1:8080' ? [] : ['--api', location.origin]
  const token = withToken ? ['--token-file', 'FILE'] : []
  return ['sedge', ...words, ...api, ...token].map(quoted).join(' ')
}
