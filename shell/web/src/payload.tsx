// What is in a message.
import { useState } from 'preact/hooks'
import { bytes as size } from './format'

/** Most bytes that are shown. */
const SHOWN_MAX = 4096

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join(' ')
}

function pretty(text: string): string | null {
  if (!/^\s*[[{]/.test(text)) return null
  try {
    return JSON.stringify(JSON.parse(text), null, 2)
  } catch {
    return null
  }
}

/** As text, JSON or hexadecimal; `text` null: not known as text. Says when it is cut, unless all of it is known and wanted. */
export function Payload({ text, bytes, raw, whole }: { text: string | null; bytes: number; raw?: Uint8Array; whole?: boolean }) {
  const json = text === null ? null : pretty(text)
  const [view, setView] = useState('')
  const [most, setMost] = useState(SHOWN_MAX)
  const chosen = view || (json === null ? (text === null ? 'hex' : 'text') : 'json')
  const all = chosen === 'json' ? (json ?? '') : chosen === 'text' ? (text ?? '') : raw ? hex(raw.subarray(0, most)) : ''
  const shown = all.slice(0, most)
  const isCut = shown.length < all.length || (chosen === 'hex' && raw !== undefined && raw.length > most)
  const views = [text !== null && 'text', json !== null && 'json', raw && 'hex'].filter((one): one is string => typeof one === 'string')
  return (
    <div class="payload">
      {bytes === 0 ? (
        <p class="quiet">Empty.</p>
      ) : shown === '' && chosen === 'hex' ? (
        <p class="quiet">No text, or longer than {size(SHOWN_MAX)}: subscribe on the try-it page to see it.</p>
      ) : (
        <pre tabIndex={0} role="group" aria-label="Payload">
          {shown}
        </pre>
      )}
      {isCut && <small>Cut after {size(SHOWN_MAX)}.</small>}
      {isCut && whole && (
        <button type="button" class="small" onClick={() => setMost(Number.POSITIVE_INFINITY)}>
          Show all
        </button>
      )}
      {views.length > 1 && (
        <span class="segments" role="group" aria-label="Show payload as">
          {views.map((one) => (
            <button type="button" key={one} aria-pressed={one === chosen} onClick={() => setView(one)}>
              {one}
            </button>
          ))}
        </span>
      )}
    </div>
  )
}
