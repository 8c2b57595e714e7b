//! The directory at its home node: which node owns a client id (MQ-11). Every client id has one home, found by rendezvous
//! hashing over the members, which serialises the claims for it.

use std::collections::BTreeMap;

use sedge_base::{ClientId, Incarnation, NodeId, mix};

use crate::node::sessions::epoch;

/// Owners of the client ids whose home this node is, or was taken for.
#[derive(Debug, Default)]
pub(in crate::node) struct Home {
    entries: BTreeMap<ClientId, Entry>,
    /// See [`view_of`]: the members, this node included.
    view: u64,
}

/// The view of an entry that holds among no members.
pub(in crate::node) const NO_VIEW: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    owner: NodeId,
    epoch: u64,
    /// The members among which this node is the home, and was told so. Among others another node has been the home, or the owner is gone: the owner
    /// of the client may have changed.
    view: u64,
    /// The owner before, until the owner has said that it has the session.
    before: Option<NodeId>,
}

/// An owner that has to give a client up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct Loser {
    /// The owner so far.
    pub owner: NodeId,
    /// Epoch of the new owner.
    pub epoch: u64,
    /// The new owner.
    pub to: NodeId,
}

impl Home {
    /// The owner of this client, as far as its home knows, and its epoch.
    pub(in crate::node) fn owner(&self, client: &ClientId) -> Option<(NodeId, u64)> {
        self.entries.get(client).map(|entry| (entry.owner, entry.epoch))
    }

    /// Whether that is so as far as anybody has told its home.
    pub(in crate::node) fn is_fresh(&self, client: &ClientId) -> bool {
        self.entries.get(client).is_some_and(|entry| entry.view == self.view)
    }

    /// The present members.
    pub(in crate::node) const fn view(&self) -> u64 {
        self.view
    }

    /// The members change. What this node was told before holds on where it `stays` the home; another node may have been the home of other
    /// clients, whose owners register them with this node when it is. Some know of the change earlier than this node.
    pub(in crate::node) fn members_change(&mut self, view: u64, stays: impl Fn(&ClientId) -> bool) {
        let before = core::mem::replace(&mut self.view, view);
        for (client, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.view != view) {
            entry.view = if entry.view == before && stays(client) { view } else { NO_VIEW };
        }
    }

    /// The process of this home `me` stood still: clients of other owners may have others since, which say so.
    pub(in crate::node) fn stood_still(&mut self, me: NodeId) {
        for entry in self.entries.values_mut().filter(|entry| entry.owner != me) {
            entry.view = NO_VIEW;
        }
    }

    /// `by` owns the client from now on: returns the epoch, and the former owner; if that is no member, and has not said that it has the session,
    /// the owner before it.
    pub(in crate::node) fn claim(
        &mut self,
        client: &ClientId,
        by: NodeId,
        (view, wall_millis): (u64, u64),
        is_member: impl Fn(NodeId) -> bool,
    ) -> (u64, Option<NodeId>) {
        let former = self.entries.get(client).copied();
        let epoch = epoch::claimed(former.map_or(0, |entry| entry.epoch), wall_millis);
        let again = former.filter(|entry| entry.owner == by);
        let owners = former.filter(|_| again.is_none()).map(|entry| [Some(entry.owner), entry.before]);
        let other = owners.into_iter().flatten().flatten().find(|owner| *owner != by && is_member(*owner));
        let before = again.map_or(other, |entry| entry.before);
        self.entries.insert(client.clone(), Entry { owner: by, epoch, view, before });
        (epoch, other)
    }

    /// `owner` says that it owns the client, among the members of this view. If somebody else says so, too, the higher epoch wins, then the higher
    /// node id.
    pub(in crate::node) fn register(
        &mut self,
        client: &ClientId,
        owner: NodeId,
        epoch: u64,
        view: u64,
    ) -> Option<Loser> {
        let said = Entry { owner, epoch, view, before: None };
        let Some(known) = self.entries.get_mut(client) else {
            self.entries.insert(client.clone(), said);
            return None;
        };
        let is_stale = known.view != self.view && known.view != view;
        if known.owner == owner || (is_stale && known.epoch < epoch) {
            *known = Entry { epoch: known.epoch.max(epoch), ..said };
            return None;
        }
        let (winner, loser) = if (epoch, owner) > (known.epoch, known.owner) { (said, *known) } else { (*known, said) };
        let epoch = if winner.epoch == loser.epoch { epoch::after_tie(winner.epoch) } else { winner.epoch };
        *known = Entry { owner: winner.owner, epoch, view, before: None };
        Some(Loser { owner: loser.owner, epoch, to: winner.owner })
    }

    /// The session that `owner` had under this epoch, or an earlier one, has ended.
    pub(in crate::node) fn forget(&mut self, client: &ClientId, owner: NodeId, epoch: u64) {
        if self.entries.get(client).is_some_and(|entry| entry.owner == owner && entry.epoch <= epoch) {
            self.entries.remove(client);
        }
    }

    /// A node is gone, and its entries with it. A session that it has claimed and may not have got is likely to be with the owner before.
    pub(in crate::node) fn purge(&mut self, node: NodeId) {
        self.entries.retain(|_, entry| {
            if entry.owner != node {
                return true;
            }
            let Some(owner) = entry.before.filter(|before| *before != node) else { return false };
            *entry = Entry { owner, epoch: entry.epoch, view: NO_VIEW, before: None };
            true
        });
    }
}

/// The home of a client among these nodes: the one with the highest hash of both.
pub(in crate::node) fn home_of(client: &ClientId, nodes: impl Iterator<Item = NodeId>) -> Option<NodeId> {
    let hash = client.stable_hash();
    nodes.max_by_key(|node| (mix(hash ^ mix(node.get())), *node))
}

/// A hash of the members, equal where they are.
pub(in crate::node) fn view_of(members: impl Iterator<Item = (NodeId, Incarnation)>) -> u64 {
    members.fold(0, |hash, (node, incarnation)| mix(hash ^ mix(node.get()) ^ incarnation.get().rotate_left(32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-11
    #[test]
    fn claims_are_serialised_and_epochs_grow() {
        let mut home = Home::default();
        let client = ClientId::new("c");
        let (a, b) = (NodeId::new(1), NodeId::new(2));
        assert_eq!(home.claim(&client, a, (0, 100), |_| true), (100, None));
        assert_eq!(home.claim(&client, a, (0, 50), |_| true), (116, None));
        assert_eq!(home.claim(&client, b, (0, 50), |_| true), (132, Some(a)));
        home.forget(&client, a, 116);
        assert!(home.owner(&client).is_some());
        assert_eq!(home.owner(&client), Some((b, 132)));
        home.forget(&client, b, 131);
        assert!(home.owner(&client).is_some());
        home.forget(&client, b, 133);
        assert_eq!(home.owner(&client), None);
    }

    /// MQ-11, FT-31
    #[test]
    fn of_two_owners_the_higher_epoch_wins() {
        let mut home = Home::default();
        let client = ClientId::new("c");
        let (a, b, c) = (NodeId::new(1), NodeId::new(2), NodeId::new(3));
        assert_eq!(home.register(&client, a, 10, home.view), None);
        assert_eq!(home.register(&client, b, 9, home.view), Some(Loser { owner: b, epoch: 10, to: a }));
        assert_eq!(home.register(&client, b, 12, home.view), Some(Loser { owner: a, epoch: 12, to: b }));
        assert_eq!(home.register(&client, c, 12, home.view), Some(Loser { owner: b, epoch: 14, to: c }));
        assert_eq!(home.register(&client, b, 15, home.view), Some(Loser { owner: c, epoch: 15, to: b }));
        assert_eq!(
            home.register(&client, c, 15, home.view),
            Some(Loser { owner: b, epoch: 17, to: c }),
            "one of two successors is still one"
        );
        home.purge(c);
        assert_eq!(home.owner(&client), None);
    }

    /// FT-20, MQ-11: a node that has claimed a session and dies before it has got that.
    #[test]
    fn the_owner_before_is_known_until_the_next_one_has_the_session() {
        let client = ClientId::new("c");
        let (a, b, c) = (NodeId::new(1), NodeId::new(2), NodeId::new(3));
        let claimed = || {
            let mut home = Home::default();
            home.register(&client, a, 100, home.view);
            assert_eq!(home.claim(&client, b, (0, 0), |_| true), (116, Some(a)));
            home
        };
        let mut home = claimed();
        assert_eq!(
            home.claim(&client, c, (0, 0), |node| node != b),
            (132, Some(a)),
            "the home does not know b any more"
        );
        let mut home = claimed();
        home.purge(b);
        assert_eq!(home.owner(&client), Some((a, 116)));
        assert!(!home.is_fresh(&client), "the successor of b may have it, and say so");
        assert_eq!(home.claim(&client, c, (0, 0), |_| true), (132, Some(a)));
        let mut home = claimed();
        home.register(&client, b, 116, home.view);
        home.purge(b);
        assert_eq!(home.owner(&client), None, "b had it: its successor says so");
    }

    /// MQ-11: the owner of a client when this node was last its home may have given it away since.
    #[test]
    fn who_is_the_home_again_asks_once_more() {
        let mut home = Home::default();
        let (here, there) = (ClientId::new("here"), ClientId::new("there"));
        let (a, b) = (NodeId::new(1), NodeId::new(2));
        for client in [&here, &there] {
            home.claim(client, a, (0, 100), |_| true);
        }
        home.members_change(1, |client| *client == here);
        assert!(home.is_fresh(&here) && !home.is_fresh(&there));
        assert_eq!(home.owner(&there), Some((a, 100)), "it is what there is, should nobody say more");
        assert_eq!(home.register(&there, b, 116, home.view), None, "the former owner need not be told");
        assert!(home.is_fresh(&there));
        home.members_change(2, |_| false);
        assert_eq!(home.register(&here, b, 90, home.view), Some(Loser { owner: b, epoch: 100, to: a }));
        home.members_change(3, |_| false);
        home.register(&here, a, 100, home.view);
        assert!(home.is_fresh(&here));
    }

    /// MQ-11: an owner knows of a change of members before the home does; a successor that knows nothing of that owner registers, too.
    #[test]
    fn who_becomes_the_home_has_heard_from_who_knew_before() {
        let mut home = Home::default();
        let (client, other) = (ClientId::new("c"), ClientId::new("other"));
        let (a, b) = (NodeId::new(1), NodeId::new(2));
        assert_eq!(home.register(&client, a, 101, 7), None);
        assert_eq!(home.register(&other, a, 101, NO_VIEW), None);
        assert!(!home.is_fresh(&client) && !home.is_fresh(&other), "this node is not their home");
        assert_eq!(home.register(&client, b, 116, 7), Some(Loser { owner: a, epoch: 116, to: b }));
        home.members_change(7, |_| false);
        assert!(home.is_fresh(&client) && !home.is_fresh(&other));
        home.members_change(8, |_| false);
        home.members_change(7, |_| false);
        assert!(!home.is_fresh(&client), "it was told that long ago");
    }

    /// MQ-11, FT-24: clients go on elsewhere while the process of their home stands still.
    #[test]
    fn who_stood_still_asks_once_more() {
        let mut home = Home::default();
        let (own, other) = (ClientId::new("own"), ClientId::new("other"));
        let (me, a) = (NodeId::new(1), NodeId::new(2));
        home.claim(&own, me, (0, 100), |_| true);
        home.claim(&other, a, (0, 100), |_| true);
        home.stood_still(me);
        assert!(home.is_fresh(&own) && !home.is_fresh(&other));
    }

    /// FT-31
    #[test]
    fn homes_move_only_with_the_node_that_comes_or_goes() {
        let nodes: Vec<NodeId> = (1..=5).map(NodeId::new).collect();
        let mut counts = [0; 6];
        for i in 0..1_000 {
            let client = ClientId::new(&format!("client-{i}"));
            let home = home_of(&client, nodes.iter().copied()).unwrap();
            counts[usize::try_from(home.get()).unwrap()] += 1;
            let without = home_of(&client, nodes.iter().copied().filter(|node| node.get() != 3)).unwrap();
            assert!(without == home || home.get() == 3);
        }
        assert!(counts.iter().skip(1).all(|&n| (120..280).contains(&n)), "{counts:?}");
    }
}
