// Nodes and the links between them, drawn; the tables beside it say the same.
import { forceCenter, forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY, type SimulationNodeDatum } from 'd3-force'
import { useMemo, useRef } from 'preact/hooks'
import { useMedia } from './media'

export interface GraphNode { id: string; label: string; note: string; kind: 'this' | 'up' | 'carried' | 'dead' }
export interface GraphLink { from: string; to: string; label: string; weight: number; kind: 'up' | 'carried' | 'tree' }

/** Room for the drawing, on wide and on narrow screens. */
const WIDE = { width: 760, height: 320 }
const NARROW = { width: 340, height: 300 }

type Placed = SimulationNodeDatum & { id: string; x: number; y: number }

/** Where nodes are: where they were, as far as they are known. */
function useLayout(nodes: GraphNode[], links: GraphLink[], { width, height }: typeof WIDE): Map<string, { x: number; y: number }> {
  const before = useRef(new Map<string, Placed>())
  const shape = nodes.map((node) => node.id).join() + links.map((link) => link.from + link.to).join()
  return useMemo(() => {
    // New nodes begin on a circle, so that the same cluster looks the same each time.
    const placed = nodes.map((node, index): Placed => {
      const angle = (index / nodes.length) * 2 * Math.PI - Math.PI / 2
      const start = { id: node.id, x: width / 2 + 0.3 * width * Math.cos(angle), y: height / 2 + 90 * Math.sin(angle) }
      return before.current.get(node.id) ?? start
    })
    const known = new Set(placed.map((node) => node.id))
    const ends = links.filter((link) => known.has(link.from) && known.has(link.to)).map((link) => ({ source: link.from, target: link.to }))
    forceSimulation(placed)
      .force('link', forceLink<Placed, { source: string | Placed; target: string | Placed }>(ends).id((node) => node.id).distance(width / 3.2).strength(0.3))
      .force('charge', forceManyBody().strength(-700))
      .force('collide', forceCollide(46))
      .force('center', forceCenter(width / 2, height / 2))
      .force('x', forceX(width / 2).strength(0.03))
      .force('y', forceY(height / 2).strength(0.05))
      .stop()
      .tick(200)
    before.current = new Map(placed.map((node) => [node.id, node]))
    const inside = (value: number, size: number, before: number, behind = before) => Math.min(size - behind, Math.max(before, value))
    return new Map(placed.map((node) => [node.id, { x: inside(node.x, width, 60), y: inside(node.y - 12, height, 30, 62) }]))
  }, [shape, width])
}

export function Graph({ name, nodes, links }: { name: string; nodes: GraphNode[]; links: GraphLink[] }) {
  const size = useMedia('(max-width: 40rem)') ? NARROW : WIDE
  const places = useLayout(nodes, links, size)
  return (
    <svg class="graph" viewBox={`0 0 ${size.width} ${size.height}`} role="img" aria-label={name}>
      {links.map((link) => {
        const [from, to] = [places.get(link.from), places.get(link.to)]
        if (!from || !to) return null
        return (
          <g key={`${link.from}-${link.to}`}>
            <line class={`link ${link.kind}`} x1={from.x} y1={from.y} x2={to.x} y2={to.y} stroke-width={1.5 + Math.min(6, link.weight)} />
            <text class="link-label" x={(from.x + to.x) / 2} y={(from.y + to.y) / 2 - 5} text-anchor="middle">
              {link.label}
            </text>
          </g>
        )
      })}
      {nodes.map((node) => {
        const place = places.get(node.id)
        if (!place) return null
        return (
          <g key={node.id} transform={`translate(${place.x} ${place.y})`}>
            <circle class={`node ${node.kind}`} r="22" />
            <text class="node-mark" y="5" text-anchor="middle">
              {node.kind === 'dead' ? '×' : node.kind === 'this' ? '●' : '○'}
            </text>
            <text class="node-label" y="38" text-anchor="middle">
              {node.label}
            </text>
            <text class="node-note" y="52" text-anchor="middle">
              {node.note}
            </text>
          </g>
        )
      })}
    </svg>
  )
}
