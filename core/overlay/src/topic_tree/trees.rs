//! Trees among sets of members, computed from facts that all of them have been told alike.

use std::collections::BTreeMap;

use sedge_base::NodeId;

use super::signal::Facts;
use super::topics::Members;

/// One of the trees of [`Trees`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreeId(u64);

/// A tree over some members.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) root: NodeId,
    pub(super) members: Members,
    /// Of all members that can be reached, but the root.
    pub(super) parents: BTreeMap<NodeId, NodeId>,
    /// Of all members that can be reached: the way from the root, in microseconds.
    pub(super) costs: BTreeMap<NodeId, u64>,
    /// How often the trees of this node had been computed before.
    pub(super) version: u64,
    /// The neighbour in the tree on the way from here to each member.
    hops: BTreeMap<NodeId, NodeId>,
    topics: usize,
}

impl Tree {
    pub(super) fn hop_towards(&self, node: NodeId) -> Option<NodeId> {
        self.hops.get(&node).copied()
    }

    /// How many topics use it.
    pub(super) const fn topics(&self) -> usize {
        self.topics
    }
}

/// One tree for each set of members and root that some topic has (FW-05).
#[derive(Debug, Default)]
pub(super) struct Trees {
    ids: BTreeMap<(Members, NodeId), TreeId>,
    by_id: BTreeMap<TreeId, Tree>,
    last: u64,
    /// How often all trees were computed anew.
    version: u64,
}

impl Trees {
    pub(super) fn get(&self, id: TreeId) -> Option<&Tree> {
        self.by_id.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tree> {
        self.by_id.values()
    }

    /// A topic uses the tree of these members and this root from now on. None: there are `limit` trees already.
    pub(super) fn join(&mut self, members: &Members, root: NodeId, limit: usize, map: &Map<'_>) -> Option<TreeId> {
        let key = (members.clone(), root);
        if let Some(id) = self.ids.get(&key) {
            self.by_id.get_mut(id)?.topics += 1;
            return Some(*id);
        }
        if self.by_id.len() >= limit {
            return None;
        }
        self.last += 1;
        let id = TreeId(self.last);
        self.ids.insert(key, id);
        self.by_id.insert(id, Tree { version: self.version, ..map.grow(members, root) });
        Some(id)
    }

    /// A topic no longer uses it.
    pub(super) fn leave(&mut self, id: TreeId) {
        let Some(tree) = self.by_id.get_mut(&id) else { return };
        tree.topics -= 1;
        if tree.topics == 0 {
            let key = (tree.members.clone(), tree.root);
            self.ids.remove(&key);
            self.by_id.remove(&id);
        }
    }

    /// Computes all trees anew.
    pub(super) fn grow_all(&mut self, map: &Map<'_>) {
        self.version += 1;
        for tree in self.by_id.values_mut() {
            *tree = Tree { topics: tree.topics, version: self.version, ..map.grow(&tree.members, tree.root) };
        }
    }
}

/// A way from the root that was found so far: its cost, its hops and the last member before its end.
type Way = (u64, usize, Option<usize>);

/// The links between some members, by their places.
struct Links {
    /// The cost of the way to each member that each member tells, row by row.
    told: Vec<Option<u32>>,
    members: usize,
}

impl Links {
    fn new(map: &Map<'_>, members: &Members) -> Self {
        let mut told = vec![None; members.len() * members.len()];
        for (row, member) in told.chunks_mut(members.len().max(1)).zip(members.iter()) {
            let Some(facts) = map.facts.get(member) else { continue };
            // Both are in the order of the nodes.
            let mut cells = row.iter_mut().zip(members.iter()).peekable();
            for (node, micros) in &facts.round_trips {
                while cells.next_if(|(_, other)| *other < node).is_some() {}
                if let Some((cell, _)) = cells.next_if(|(_, other)| *other == node) {
                    *cell = Some(*micros);
                }
            }
        }
        Self { told, members: members.len() }
    }

    /// Costs of a member's links in microseconds: of the figures that the two ends tell, the greater one. None if either end does not tell
    /// of the link.
    fn of(&self, at: usize) -> impl Iterator<Item = (usize, u64)> {
        let row = self.told.iter().skip(at * self.members).take(self.members);
        let column = self.told.iter().skip(at).step_by(self.members.max(1));
        let links = row.zip(column).enumerate();
        links.filter_map(|(other, (there, back))| Some((other, u64::from((*there)?.max((*back)?)))))
    }
}

/// The facts that the nodes have told of their links.
#[derive(Debug)]
pub(super) struct Map<'a> {
    pub(super) me: NodeId,
    pub(super) facts: BTreeMap<NodeId, &'a Facts>,
    /// The preference among equals: less is better.
    pub(super) order: BTreeMap<NodeId, usize>,
}

impl Map<'_> {
    fn order(&self, node: NodeId) -> usize {
        self.order.get(&node).copied().unwrap_or(usize::MAX)
    }

    /// The shortest ways from `root` to all members over links between members (Dijkstra 1959). Of ways that take equally long the one
    /// with fewer hops counts, then the one over the preferred parent.
    fn grow(&self, members: &Members, root: NodeId) -> Tree {
        let links = Links::new(self, members);
        let order: Vec<usize> = members.iter().map(|member| self.order(*member)).collect();
        let rank = |(cost, hops, parent): Way| (cost, hops, parent.map_or(0, |parent| order[parent]));
        let (mut parents, mut costs) = (BTreeMap::new(), BTreeMap::new());
        let mut rim: Vec<Option<Way>> =
            members.iter().map(|member| (*member == root).then_some((0, 0, None))).collect();
        let mut is_open = vec![true; members.len()];
        let nearest = |rim: &[Option<Way>]| {
            let ways =
                rim.iter().enumerate().filter_map(|(at, way)| way.map(|(cost, hops, _)| (cost, hops, order[at], at)));
            ways.min().map(|(.., at)| at)
        };
        while let Some(at) = nearest(&rim) {
            let Some((cost, hops, parent)) = rim[at].take() else { break };
            is_open[at] = false;
            parents.extend(parent.map(|parent| (members[at], members[parent])));
            costs.insert(members[at], cost);
            for (next, step) in links.of(at).filter(|(next, _)| is_open[*next]) {
                let offer = (cost + step, hops + 1, Some(at));
                if rim[next].is_none_or(|best| rank(offer) < rank(best)) {
                    rim[next] = Some(offer);
                }
            }
        }
        let hops = members.iter().filter_map(|member| Some((*member, self.hop(&parents, root, *member)?))).collect();
        Tree { root, members: members.clone(), parents, costs, version: 0, hops, topics: 1 }
    }

    /// The neighbour of this node in the tree on the way to `member`.
    fn hop(&self, parents: &BTreeMap<NodeId, NodeId>, root: NodeId, member: NodeId) -> Option<NodeId> {
        let me = self.me;
        if member == me || (member != root && !parents.contains_key(&member)) {
            return None;
        }
        let mut at = member;
        while let Some(parent) = parents.get(&at) {
            if *parent == me {
                return Some(at);
            }
            at = *parent;
        }
        // The member is not behind this node: the way to it leads over the parent.
        parents.get(&me).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn facts(round_trips: impl Iterator<Item = (u64, u32)>) -> Facts {
        let round_trips = round_trips.map(|(node, micros)| (NodeId::new(node), micros)).collect();
        Facts { round_trips, ..Facts::default() }
    }

    fn map(me: u64, all: &[Facts]) -> Map<'_> {
        let ids = || (1..).map(NodeId::new);
        Map { me: NodeId::new(me), facts: ids().zip(all).collect(), order: ids().take(all.len()).zip(0..).collect() }
    }

    /// Costs from the root by trying all ways (Bellman and Ford).
    fn costs(members: &[usize], matrix: &[u32], root: usize) -> BTreeMap<usize, u64> {
        let mut costs = BTreeMap::from([(root, 0)]);
        for _ in members {
            for from in members {
                let Some(cost) = costs.get(from).copied() else { continue };
                for to in members.iter().filter(|to| *to != from) {
                    let way = cost + u64::from(matrix[from * 6 + to].max(matrix[to * 6 + from]));
                    let best = costs.entry(*to).or_insert(way);
                    *best = way.min(*best);
                }
            }
        }
        costs
    }

    proptest! {
        /// TR-09, TR-10, TR-19
        #[test]
        fn a_tree_has_the_shortest_ways_and_only_members_and_all_see_the_same(
            matrix in vec(1..1_000_u32, 36), chosen in vec(any::<bool>(), 6), root in any::<prop::sample::Index>(),
        ) {
            let members: Vec<usize> = (0..6).filter(|at| chosen[*at]).collect();
            prop_assume!(!members.is_empty());
            let root = members[root.index(members.len())];
            let id = |at: usize| NodeId::new(at as u64 + 1);
            let cell = |at: usize, to: usize| (to as u64 + 1, matrix[at * 6 + to]);
            let row = |at: usize| facts((0..6).filter(|to| *to != at).map(|to| cell(at, to)));
            let all: Vec<Facts> = (0..6).map(row).collect();
            let set: Members = members.iter().map(|at| id(*at)).collect();
            let trees: Vec<Tree> = (1..=6).map(|me| map(me, &all).grow(&set, id(root))).collect();
            let tree = &trees[0];
            prop_assert_eq!(tree.parents.len(), members.len() - 1);
            for (at, expected) in costs(&members, &matrix, root) {
                let (mut cost, mut node) = (0, id(at));
                while let Some(parent) = tree.parents.get(&node) {
                    prop_assert!(set.contains(parent));
                    let place = |node: NodeId| members.iter().position(|at| id(*at) == node).unwrap();
                    cost += Links::new(&map(1, &all), &set).of(place(node)).find(|(at, _)| *at == place(*parent)).unwrap().1;
                    node = *parent;
                }
                prop_assert_eq!((node, cost), (id(root), expected));
            }
            for from in &members {
                prop_assert_eq!(&trees[*from].parents, &tree.parents);
                for to in members.iter().filter(|to| *to != from) {
                    let mut way = vec![id(*from)];
                    while *way.last().unwrap() != id(*to) {
                        let at = usize::try_from(way.last().unwrap().get()).unwrap() - 1;
                        way.push(trees[at].hop_towards(id(*to)).unwrap());
                        prop_assert!(way.len() <= members.len(), "{way:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn links_that_one_side_does_not_know_are_not_used() {
        // 1 - 2 - 3, and 1 believes in a link to 3.
        let all = [
            facts([(2, 10), (3, 1)].into_iter()),
            facts([(1, 10), (3, 10)].into_iter()),
            facts([(2, 10)].into_iter()),
            facts([].into_iter()),
        ];
        let members: Members = (1..=4).map(NodeId::new).collect();
        let tree = map(1, &all).grow(&members, NodeId::new(1));
        assert_eq!(tree.hop_towards(NodeId::new(3)), Some(NodeId::new(2)));
        assert_eq!(tree.hop_towards(NodeId::new(4)), None);
        assert_eq!(tree.parents.len(), 2);
    }
}
