// What the screen is like.
import { useEffect, useMemo, useState } from 'preact/hooks'

/** Whether a media query holds, as it changes. */
export function useMedia(text: string): boolean {
  const query = useMemo(() => matchMedia(text), [text])
  const [holds, set] = useState(query.matches)
  useEffect(() => {
    const changed = () => set(query.matches)
    query.addEventListener('change', changed)
    return () => query.removeEventListener('change', changed)
  }, [query])
  return holds
}
