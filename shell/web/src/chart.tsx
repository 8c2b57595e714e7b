// Curves over time.
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { useMedia } from './media'

export interface Curve {
  label: string
  values: (number | null)[]
  show: (value: number) => string
}

const HEIGHT = 170
/** A curve that has just begun is not drawn over the whole width, in seconds. */
const SPAN_MIN = 60

/** `times` in seconds since 1970. The last values are also there as text. */
export function Chart({ title, times, curves }: { title: string; times: number[]; curves: Curve[] }) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | undefined>(undefined)
  const dark = useMedia('(prefers-color-scheme: dark)')
  const labels = curves.map((curve) => curve.label).join('|')
  const data = [times, ...curves.map((curve) => curve.values)] as uPlot.AlignedData
  useEffect(() => {
    const element = place.current
    if (!element) return
    const colour = (name: string) => getComputedStyle(element).getPropertyValue(name).trim()
    const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 } }
    const show = curves[0]?.show ?? String
    plot.current = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { x: { range: (_, low, high) => [Math.min(low ?? 0, (high ?? 0) - SPAN_MIN), high ?? SPAN_MIN] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.1)] } },
        axes: [axis, { ...axis, size: 76, values: (_, splits) => splits.map((value) => show(value)) }],
        series: [
          {},
          ...curves.map((curve, index) => ({ label: curve.label, stroke: colour(`--curve-${index + 1}`), width: 2, points: { show: false } })),
        ],
      },
      data,
      element,
    )
    const watcher = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }))
    watcher.observe(element)
    return () => {
      watcher.disconnect()
      plot.current?.destroy()
      plot.current = undefined
    }
  }, [dark, labels])
  useEffect(() => plot.current?.setData(data), [data])
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>
        <ul class="legend">
          {curves.map((curve, index) => {
            const last = curve.values.at(-1)
            return (
              <li key={curve.label}>
                <span class={`swatch curve-${index + 1}`} aria-hidden="true" /> {curve.label}: {last == null ? '–' : curve.show(last)}
              </li>
            )
          })}
        </ul>
      </figcaption>
      <div ref={place} aria-hidden="true" />
    </figure>
  )
}
