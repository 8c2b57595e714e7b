//! The links that each node has chosen, and the ways over them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::NodeId;

/// Links that one node tells of; those beyond are not taken.
pub(super) const LINKS_MAX: usize = 1_000;
/// Most nodes whose word is kept; the words of further nodes are not heard.
const NODES_MAX: usize = 4_096;

/// The word of one node: its statement about its links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Nodes to which its operator wants a link.
    pub(super) links: BTreeSet<NodeId>,
    /// Nodes to which its operator has ended a link, whatever those nodes say.
    pub(super) cuts: BTreeSet<NodeId>,
}

/// The words of all nodes.
#[derive(Debug, Default)]
pub(super) struct Graph {
    words: BTreeMap<NodeId, Word>,
}

impl Graph {
    /// The last word of a node.
    pub(super) fn word(&self, node: NodeId) -> Option<&Word> {
        self.words.get(&node)
    }

    /// Takes in the present word of a node. Returns the word before it; `None` if there is no room for the new one.
    pub(super) fn hear(&mut self, node: NodeId, word: Word) -> Option<Word> {
        if !self.words.contains_key(&node) && self.words.len() >= NODES_MAX {
            return None;
        }
        Some(self.words.insert(node, word).unwrap_or_default())
    }

    /// Changes the word of a node about another: a link is chosen, ended, or neither.
    pub(super) fn set(&mut self, node: NodeId, other: NodeId, link: bool, cut: bool) -> bool {
        let word = self.words.entry(node).or_default();
        let put = |set: &mut BTreeSet<NodeId>, is_in: bool| {
            if is_in { set.len() < LINKS_MAX && set.insert(other) } else { set.remove(&other) }
        };
        put(&mut word.links, link) | put(&mut word.cuts, cut)
    }

    /// Whether one node has chosen a link to another.
    pub(super) fn chose(&self, node: NodeId, other: NodeId) -> bool {
        self.words.get(&node).is_some_and(|word| word.links.contains(&other))
    }

    /// Whether one node has ended the link to another.
    pub(super) fn has_cut(&self, node: NodeId, other: NodeId) -> bool {
        self.words.get(&node).is_some_and(|word| word.cuts.contains(&other))
    }

    /// Every link that one end has chosen and none has ended, from both ends.
    fn edges(&self) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
        let mut edges: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        for (node, word) in &self.words {
            for other in word.links.iter().filter(|other| *other != node) {
                if !word.cuts.contains(other) && !self.has_cut(*other, *node) {
                    edges.entry(*node).or_default().insert(*other);
                    edges.entry(*other).or_default().insert(*node);
                }
            }
        }
        edges
    }

    /// The neighbours of a node.
    pub(super) fn neighbours(&self, node: NodeId) -> BTreeSet<NodeId> {
        self.edges().remove(&node).unwrap_or_default()
    }

    /// The node before each other one on the shortest way from `from`, which begins with none of the neighbours that are left out.
    pub(super) fn ways(&self, from: NodeId, without: impl Fn(NodeId) -> bool) -> BTreeMap<NodeId, NodeId> {
        let edges = self.edges();
        let (mut before, mut next) = (BTreeMap::new(), VecDeque::from([from]));
        while let Some(node) = next.pop_front() {
            for other in edges.get(&node).into_iter().flatten() {
                let is_left_out = node == from && without(*other);
                if *other != from && !is_left_out && !before.contains_key(other) {
                    before.insert(*other, node);
                    next.push_back(*other);
                }
            }
        }
        before
    }
}

/// The first step of each way.
pub(super) fn first_steps(from: NodeId, before: &BTreeMap<NodeId, NodeId>) -> BTreeMap<NodeId, NodeId> {
    let first = |node: NodeId| {
        let mut step = node;
        // A way is no longer than there are nodes.
        for _ in 0..=before.len() {
            match before.get(&step) {
                Some(other) if *other != from => step = *other,
                _ => break,
            }
        }
        step
    };
    before.keys().map(|node| (*node, first(*node))).collect()
}

#[cfg(test)]
mod tests {
    use sedge_base::Rng;

    use super::*;

    fn id(number: u64) -> NodeId {
        NodeId::new(number)
    }

    /// Steps from one node to another if each node on the way goes by its own ways; `None` if it does not get there.
    fn walk(graph: &Graph, from: NodeId, to: NodeId, nodes: u64) -> Option<u64> {
        let mut at = from;
        for steps in 0..=nodes {
            if at == to {
                return Some(steps);
            }
            at = *first_steps(at, &graph.ways(at, |_| false)).get(&to)?;
        }
        panic!("it goes in a circle from {from} to {to}");
    }

    /// IL-29: in 1,000 random graphs, most with cycles, every way ends where it is to, is a shortest one, and is there for all that links
    /// lead to and for no others.
    #[test]
    fn ways_in_random_graphs_go_in_no_circles() {
        let mut rng = Rng::new(1);
        let mut cycles = 0;
        for _ in 0..1_000 {
            let nodes = 2 + rng.below(9);
            let mut graph = Graph::default();
            let mut far = vec![vec![u64::MAX; 12]; 12];
            let mut edges = BTreeSet::new();
            for _ in 0..rng.below(2 * nodes) {
                let (one, other) = (1 + rng.below(nodes), 1 + rng.below(nodes));
                graph.set(id(one), id(other), true, false);
                edges.extend((one != other).then_some((one.min(other), one.max(other))));
            }
            for (one, other) in &edges {
                let (one, other) = (usize::try_from(*one).unwrap(), usize::try_from(*other).unwrap());
                (far[one][other], far[other][one]) = (1, 1);
            }
            (0..12).for_each(|node| far[node][node] = 0);
            for over in 0..12 {
                for from in 0..12 {
                    for to in 0..12 {
                        far[from][to] = far[from][to].min(far[from][over].saturating_add(far[over][to]));
                    }
                }
            }
            for from in 1..=nodes {
                for to in 1..=nodes {
                    let distance = far[usize::try_from(from).unwrap()][usize::try_from(to).unwrap()];
                    assert_eq!(walk(&graph, id(from), id(to), nodes).unwrap_or(u64::MAX), distance, "{edges:?}");
                }
            }
            cycles += u64::from(edges.len() as u64 >= nodes);
        }
        assert!(cycles > 200, "{cycles}");
    }

    #[test]
    fn a_link_ends_for_both_and_a_way_can_avoid_one() {
        let mut graph = Graph::default();
        for (one, other) in [(1, 2), (2, 3), (3, 1)] {
            assert!(graph.set(id(one), id(other), true, false));
        }
        assert_eq!(graph.neighbours(id(1)), BTreeSet::from([id(2), id(3)]));
        let around = graph.ways(id(1), |node| node == id(3));
        assert_eq!(first_steps(id(1), &around).get(&id(3)), Some(&id(2)));
        assert!(graph.set(id(1), id(3), false, true), "whoever has chosen it");
        assert_eq!(graph.neighbours(id(3)), BTreeSet::from([id(2)]));
    }
}
