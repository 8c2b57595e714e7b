// Pieces that several pages use.
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { change, commandsNeedToken } from './api'
import { command } from './format'
import { say } from './toast'

/** The command that does the same. */
export function Command({ words, text }: { words?: string[]; text?: string }) {
  const line = text ?? command(words ?? [], commandsNeedToken())
  const copy = async () => {
    // Only on HTTPS and on this machine; elsewhere the line can be marked and copied.
    await navigator.clipboard?.writeText(line)
    say('Copied.')
  }
  return (
    <p class="command">
      <code>{line}</code>
      {navigator.clipboard && (
        <button type="button" class="small" onClick={() => void copy()}>
          Copy
        </button>
      )}
    </p>
  )
}

export interface Change {
  title: string
  what: string
  words: string[]
  method: 'POST' | 'DELETE'
  path: string
  done: string
  /** Whatever the answer says against it although it was carried out. */
  refused?: (answer: unknown) => string | undefined
}

/** Asks before something is changed, and shows the command that does the same. */
export function Confirm({ change: wanted, text, close }: { change: Change; text?: string; close: (done: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [problem, setProblem] = useState('')
  const [busy, setBusy] = useState(false)
  useEffect(() => {
    dialog.current?.showModal()
  }, [])
  const run = async () => {
    setBusy(true)
    try {
      const answer = await change<unknown>(wanted.method, wanted.path)
      const refused = wanted.refused?.(answer)
      if (refused) {
        setProblem(refused)
        return setBusy(false)
      }
      say(wanted.done)
      close(true)
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error))
      setBusy(false)
    }
  }
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onClose={() => close(false)}>
      <h2 id="confirm-title">{wanted.title}</h2>
      <p>{wanted.what}</p>
      <p>The same as a command:</p>
      <Command words={wanted.words} {...(text === undefined ? {} : { text })} />
      {problem && <p class="problem" role="alert">{problem}</p>}
      <div class="row end">
        <button type="button" onClick={() => close(false)}>
          Cancel
        </button>
        <button type="button" class="danger" disabled={busy} onClick={() => void run()}>
          {wanted.title}
        </button>
      </div>
    </dialog>
  )
}

export function Problem({ text }: { text: string | undefined }) {
  return text ? <p class="problem" role="alert">{text}</p> : null
}

/** Members that did not answer. */
export function Silent({ names }: { names: string[] | undefined }) {
  return names && names.length > 0 ? <p class="problem">No answer in time from {names.join(', ')}: what is known there is missing here.</p> : null
}

/** A table that scrolls by itself where the screen is narrow. */
export function Table({ name, head, children }: { name: string; head: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={`${name}, table`}>
      <table>
        <caption class="hidden">{name}</caption>
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}

export function Tile({ name, value, hint }: { name: string; value: string; hint?: string }) {
  return (
    <div class="tile">
      <dt>{name}</dt>
      <dd>
        {value}
        {hint && <small>{hint}</small>}
      </dd>
    </div>
  )
}

export function Badge({ kind, children }: { kind: 'good' | 'warn' | 'bad' | 'plain'; children: ComponentChildren }) {
  return <span class={`badge ${kind}`}>{children}</span>
}

/** A value that follows what is typed after a moment. */
export function useSettled<T>(value: T, delay = 300): T {
  const [settled, set] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => set(value), delay)
    return () => clearTimeout(timer)
  }, [value, delay])
  return settled
}
