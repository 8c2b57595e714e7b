// What the page may do with the token that it shows: what it may not do is not offered.
import type { ComponentChildren } from 'preact'
import { useEffect, useReducer } from 'preact/hooks'
import { ApiFailure, get } from './api'

export type Role = 'view' | 'operate' | 'admin'
interface Standing { role: Role; asks: boolean }

const ORDER: Role[] = ['view', 'operate', 'admin']
let standing: Standing | undefined
const watchers = new Set<() => void>()

/** Asks the node. */
export async function learnRole(): Promise<void> {
  try {
    standing = await get<Standing>('/api/v1/role')
  } catch (error) {
    // An older node has one token, for everything.
    standing = error instanceof ApiFailure && error.status === 404 ? { role: 'admin', asks: false } : undefined
  }
  watchers.forEach((watcher) => watcher())
}

/** Whether this is offered: the role allows it, or a token that the page asks for then may. */
export const allows = (has: Standing | undefined, role: Role) => has !== undefined && (has.asks || ORDER.indexOf(has.role) >= ORDER.indexOf(role))

export function useRole(): { role: Role | undefined; asks: boolean; may: (role: Role) => boolean } {
  const [, draw] = useReducer((n: number) => n + 1, 0)
  useEffect(() => {
    const watcher = () => draw(undefined)
    watchers.add(watcher)
    return () => void watchers.delete(watcher)
  }, [])
  return { role: standing?.role, asks: standing?.asks ?? false, may: (role) => allows(standing, role) }
}

/** What whoever has this role may do, and nobody else is offered. */
export function May({ role, children }: { role: Role; children: ComponentChildren }) {
  return useRole().may(role) ? <>{children}</> : null
}
