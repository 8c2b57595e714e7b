// Short messages about what was done.
import { useEffect, useState } from 'preact/hooks'

let tell: (text: string) => void = () => {}

/** Says `text` for a few seconds. */
export const say = (text: string) => tell(text)

export function Toasts() {
  const [text, set] = useState('')
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>
    tell = (next) => {
      set(next)
      clearTimeout(timer)
      timer = setTimeout(() => set(''), 6000)
    }
  }, [])
  return (
    <div class="toast" role="status">
      {text}
    </div>
  )
}
