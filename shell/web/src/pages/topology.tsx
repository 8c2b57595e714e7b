// Links, trees, copies and tables of the overlay, as this node knows them.
import { useState } from 'preact/hooks'
import type { Status, Topology as Shape, Tree } from '../api'
import { count, micros, short } from '../format'
import { Graph, type GraphLink, type GraphNode } from '../graph'
import { usePoll } from '../live'
import { Command, Problem, Table, Tile } from '../parts'

function picture(shape: Shape, tree: Tree | undefined): { nodes: GraphNode[]; links: GraphLink[] } {
  const nodes = shape.nodes.map((node): GraphNode => {
    const place = tree?.nodes.find((one) => one.node === node.node)
    const note = tree ? (tree.root === node.node ? 'root' : place ? `capability ${place.capability}` : 'not in this tree') : node.address
    return { id: node.node, label: short(node.node), note, kind: node.node === shape.node ? 'this' : tree && !place ? 'dead' : 'up' }
  })
  const links = tree
    ? tree.nodes.flatMap((node): GraphLink[] =>
        node.parent === null ? [] : [{ from: node.parent, to: node.node, label: node.cost_micros === null ? '' : micros(node.cost_micros), weight: 1, kind: 'tree' }],
      )
    : shape.links.map((link): GraphLink => ({ from: link.via ?? link.from, to: link.to, label: micros(link.rtt_micros), weight: 0, kind: link.via ? 'carried' : 'up' }))
  return { nodes, links }
}

function Branches({ tree, parent }: { tree: Tree; parent: string | null }) {
  const below = tree.nodes.filter((node) => node.parent === parent)
  if (below.length === 0) return null
  return (
    <ul class="tree">
      {below.map((node) => (
        <li key={node.node}>
          <code>{short(node.node)}</code>{' '}
          <small>
            capability {node.capability}
            {node.cost_micros !== null && node.cost_micros > 0 && `, ${micros(node.cost_micros)} from the root`}
          </small>
          <Branches tree={tree} parent={node.node} />
        </li>
      ))}
    </ul>
  )
}

export function Topology() {
  const topology = usePoll<Shape>('/api/v1/topology', 5000)
  const status = usePoll<Status>('/api/v1/status', 5000)
  const [chosen, setChosen] = useState(-1)
  const shape = topology.data
  if (!shape) return topology.error ? <Problem text={topology.error} /> : <p class="quiet">Asking the node …</p>
  const tree = shape.trees[chosen]
  const drawing = picture(shape, tree)
  const counters = Object.entries(shape.counters)
  return (
    <>
      <Problem text={topology.error} />
      {shape.trees.length > 0 && (
        <p>
          <label>
            Draw
            <select value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
              <option value={-1}>the links of this node</option>
              {shape.trees.map((one, index) => (
                <option value={index} key={index}>
                  {one.topic === null ? 'the tree' : `the tree of ${one.topic}`}
                </option>
              ))}
            </select>
          </label>
        </p>
      )}
      <Graph name={tree ? 'Tree; the list below says the same' : 'Links of this node; the table below says the same'} nodes={drawing.nodes} links={drawing.links} />
      {tree && (
        <section aria-labelledby="tree">
          <h2 id="tree">{tree.topic === null ? 'Tree' : `Tree of ${tree.topic}`}</h2>
          <p>
            Epoch {tree.epoch}, {tree.complete ? 'in use' : 'being computed anew'}.
          </p>
          <Branches tree={tree} parent={null} />
        </section>
      )}
      <section aria-labelledby="links">
        <h2 id="links">Links</h2>
        <Table name="Links" head={['To', 'Address', 'Round trip', 'State'].map((name) => <th scope="col" class={name === 'Round trip' ? 'number' : ''} key={name}>{name}</th>)}>
          {shape.links.map((link) => (
            <tr key={link.to}>
              <th scope="row">{short(link.to)}</th>
              <td>{shape.nodes.find((node) => node.node === link.to)?.address}</td>
              <td class="number">{micros(link.rtt_micros)}</td>
              <td>{link.via ? `over ${short(link.via)}` : link.synced ? 'up' : 'learning'}</td>
            </tr>
          ))}
        </Table>
      </section>
      {status.data && (
        <section aria-labelledby="copies">
          <h2 id="copies">Copies</h2>
          <dl class="tiles">
            <Tile name="Copies of this node's sessions" value={`${status.data.copies} of ${status.data.copies_wanted}`} hint="itself included" />
            <Tile name="Nodes with copies here" value={count(status.data.replicas)} />
            <Tile name="Sessions that move" value={count(status.data.moving)} />
            <Tile name="Nodes gone, sessions being taken over" value={count(status.data.orphaned)} hint={`${count(status.data.strays)} publications kept for them`} />
          </dl>
        </section>
      )}
      <section aria-labelledby="overlay">
        <h2 id="overlay">Overlay {shape.overlay}</h2>
        {shape.graph && (
          <p>
            Skip Graph: membership vector <code>{shape.graph.vector}</code>, {count(shape.graph.virtual_nodes_total)} virtual nodes.
          </p>
        )}
        {shape.adverts.length > 0 && <h3>Where publishers are</h3>}
        {shape.adverts.length > 0 && (
          <Table name="Publishers" head={['Topic', 'Publisher at', 'Next'].map((name) => <th scope="col" key={name}>{name}</th>)}>
            {shape.adverts.slice(0, 200).map((line) => (
              <tr key={`${line.topic} ${line.origin}`}>
                <th scope="row">
                  <code>{line.topic}</code>
                </th>
                <td>{short(line.origin)}</td>
                <td>{short(line.next)}</td>
              </tr>
            ))}
          </Table>
        )}
        {shape.adverts_total > 200 && <p class="quiet">The first 200 of {count(shape.adverts_total)} publishers.</p>}
        {shape.interest.length > 0 && <h3>What is wanted where</h3>}
        {shape.interest.length > 0 && (
          <Table name="Interest" head={['Filter', 'Wanted at', 'Next'].map((name) => <th scope="col" key={name}>{name}</th>)}>
            {shape.interest.slice(0, 200).map((line) => (
              <tr key={`${line.filter} ${line.node}`}>
                <th scope="row">
                  <code>{line.filter}</code>
                </th>
                <td>{short(line.node)}</td>
                <td>{short(line.next)}</td>
              </tr>
            ))}
          </Table>
        )}
        {shape.interest_total > 200 && <p class="quiet">The first 200 of {count(shape.interest_total)} lines.</p>}
        {shape.suspended_total > 0 && <p>{count(shape.suspended_total)} topics of publishers here are wanted nowhere else: nothing is sent for them.</p>}
        {counters.length > 0 && <h3>Counters</h3>}
        {counters.length > 0 && (
          <dl class="pairs">
            {counters.map(([name, value]) => (
              <div key={name}>
                <dt>{name.replaceAll('_', ' ')}</dt>
                <dd>{count(value)}</dd>
              </div>
            ))}
          </dl>
        )}
      </section>
      <Command words={['topology']} />
    </>
  )
}
