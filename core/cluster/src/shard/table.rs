//! The forward table (FT-11): where else than at this shard a topic has subscribers.

use sedge_base::{NodeId, Rng, Seed, ShardId};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName};
use smallvec::SmallVec;

use super::exact::Choice;
use crate::mail::{Location, TableChange};
use crate::members::Members;

/// A subscriber of a plain filter. `None` stands for other nodes, all in one.
type Wanting = Option<ShardId>;

/// Topics up to this many bytes are remembered; see [`Last`].
const REMEMBERED_BYTES: usize = 256;

/// The shards and nodes that the last topic went to, as far as plain filters go: a publisher that sends several messages at a time mostly sends
/// them to one topic.
#[derive(Debug, Default)]
struct Last {
    /// Empty: none is remembered.
    topic: Vec<u8>,
    shards: SmallVec<[ShardId; 4]>,
    remote: bool,
}

/// Plain filters of other shards and nodes, and the members of all shared subscriptions.
#[derive(Debug)]
pub(super) struct ForwardTable {
    me: ShardId,
    plain: SubscriptionTrie<Wanting, ()>,
    groups: SubscriptionTrie<TopicFilter, Members<Location>>,
    last: Last,
    /// For each shard the number of the last match that found it: marks without clearing.
    marks: Vec<u64>,
    match_number: u64,
    rng: Rng,
}

/// The receivers of a publication. The list is kept between publications, so that it allocates once.
#[derive(Debug, Default)]
pub(super) struct Matched {
    /// Shards of this node. This shard itself only for its shared subscriptions.
    pub shards: Vec<(ShardId, Share)>,
    /// Nodes that were chosen for shared subscriptions.
    pub nodes: Vec<(NodeId, TopicFilter)>,
    /// Whether ordinary subscriptions at other nodes match.
    pub remote: bool,
}

/// One shard's part of a publication.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Delivers to its ordinary subscriptions.
    pub plain: bool,
    /// Delivers to a member of each of these shared subscriptions.
    pub groups: SmallVec<[TopicFilter; 1]>,
}

impl Matched {
    fn clear(&mut self) {
        self.shards.clear();
        self.nodes.clear();
        self.remote = false;
    }

    /// Whether any session of this node gets it, beyond the ordinary subscriptions of shard `me`.
    pub(super) fn reaches_this_node(&self, me: ShardId) -> bool {
        self.shards.iter().any(|(shard, share)| *shard != me || !share.groups.is_empty())
    }

    /// The places chosen for shared subscriptions.
    pub(super) fn choice(&self) -> Choice {
        let shards = self
            .shards
            .iter()
            .flat_map(|(shard, share)| share.groups.iter().map(|group| (group.clone(), Location::Shard(*shard))));
        let nodes = self.nodes.iter().map(|(node, group)| (group.clone(), Location::Node(*node)));
        shards.chain(nodes).collect()
    }

    /// Replaces the places chosen for shared subscriptions by those that were chosen before a restart. Shard `me` has the messages that it was
    /// chosen for: it had them with the record that the publication had come.
    pub(super) fn choose_again(&mut self, choice: &Choice, me: ShardId) {
        self.nodes.clear();
        for (_, share) in &mut self.shards {
            share.groups.clear();
        }
        for (group, place) in choice {
            match place {
                Location::Shard(shard) if *shard == me => {}
                Location::Shard(shard) => self.share_of(*shard).groups.push(group.clone()),
                Location::Node(node) => self.nodes.push((*node, group.clone())),
            }
        }
        self.shards.retain(|(_, share)| share.plain || !share.groups.is_empty());
    }

    fn share_of(&mut self, shard: ShardId) -> &mut Share {
        let at = self.shards.iter().position(|(known, _)| *known == shard).unwrap_or_else(|| {
            self.shards.push((shard, Share::default()));
            self.shards.len() - 1
        });
        &mut self.shards[at].1
    }
}

impl ForwardTable {
    pub(super) fn new(me: ShardId, seed: Seed, rng: Rng) -> Self {
        Self {
            me,
            plain: SubscriptionTrie::with_seed(seed),
            groups: SubscriptionTrie::with_seed(seed),
            last: Last::default(),
            marks: Vec::new(),
            match_number: 0,
            rng,
        }
    }

    pub(super) fn apply(&mut self, changes: &[TableChange]) {
        self.last.topic.clear();
        for change in changes {
            match change {
                TableChange::Shard { shard, .. } if *shard == self.me => {}
                TableChange::Shard { shard, filter, wanted } => self.set_plain(filter, Some(*shard), *wanted),
                TableChange::Remote { filter, wanted } => self.set_plain(filter, None, *wanted),
                TableChange::Group { at, group, online, offline } => self.set_group(group, *at, *online, *offline),
            }
        }
    }

    fn set_plain(&mut self, filter: &TopicFilter, who: Wanting, wanted: bool) {
        if wanted {
            self.plain.insert(filter, who, ());
        } else {
            self.plain.remove(filter, &who);
        }
    }

    fn set_group(&mut self, group: &TopicFilter, at: Location, online: u32, offline: u32) {
        if self.groups.get(group, group).is_none() {
            self.groups.insert(group, group.clone(), Members::new(self.rng.next_u64()));
        }
        let Some(members) = self.groups.get_mut(group, group) else { return };
        members.set(at, online, offline);
        if members.is_empty() {
            self.groups.remove(group, group);
        }
    }

    /// Sets `found` to all who get a publication to `topic`, beside the ordinary subscriptions of this shard. For each shared
    /// subscription one place is chosen.
    pub(super) fn matches(&mut self, topic: &TopicName, found: &mut Matched) {
        found.clear();
        if !self.plain.is_empty() {
            self.look_up(topic);
            found.remote = self.last.remote;
            let share = || Share { plain: true, groups: SmallVec::new() };
            found.shards.extend(self.last.shards.iter().map(|shard| (*shard, share())));
        }
        if self.groups.is_empty() {
            return;
        }
        let mut groups = SmallVec::<[TopicFilter; 4]>::new();
        self.groups.matches(topic, |group, _| groups.push(group.clone()));
        for group in groups {
            match self.choose(&group, &[]) {
                Some(Location::Shard(shard)) => found.share_of(shard).groups.push(group),
                Some(Location::Node(node)) => found.nodes.push((node, group)),
                None => {}
            }
        }
    }

    /// Brings the last topic up to date.
    fn look_up(&mut self, topic: &TopicName) {
        let (last, text) = (&mut self.last, topic.as_bytes());
        if last.topic == text {
            return;
        }
        last.topic.clear();
        if text.len() <= REMEMBERED_BYTES {
            last.topic.extend_from_slice(text);
        }
        last.shards.clear();
        last.remote = false;
        self.match_number += 1;
        let (number, marks) = (self.match_number, &mut self.marks);
        self.plain.matches(topic, |who, ()| match who {
            None => last.remote = true,
            Some(shard) => {
                let at = usize::from(shard.0);
                if marks.len() <= at {
                    marks.resize(at + 1, 0);
                }
                if core::mem::replace(&mut marks[at], number) != number {
                    last.shards.push(*shard);
                }
            }
        });
    }

    /// How many members the group has at other places than `me`, (connected, not connected).
    pub(super) fn members_elsewhere(&self, group: &TopicFilter, me: ShardId) -> (u32, u32) {
        self.groups.get(group, group).map_or((0, 0), |members| members.elsewhere(Location::Shard(me)))
    }

    /// Chooses a place with a member of the group, not one of `except`; see [`Members::choose`].
    pub(super) fn choose(&mut self, group: &TopicFilter, except: &[Location]) -> Option<Location> {
        self.groups.get_mut(group, group)?.choose(except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ForwardTable {
        let mut rng = Rng::new(1);
        ForwardTable::new(ShardId(0), Seed::from_rng(&mut rng), rng)
    }

    fn filter(text: &str) -> TopicFilter {
        TopicFilter::new(text).unwrap()
    }

    fn group(at: Location, online: u32, offline: u32) -> TableChange {
        TableChange::Group { at, group: filter("$share/g/a/+"), online, offline }
    }

    /// FT-11, FT-14
    #[test]
    fn each_place_is_found_once_and_its_own_shard_never() {
        let mut table = table();
        let wanted = true;
        table.apply(&[
            TableChange::Shard { shard: ShardId(0), filter: filter("a/#"), wanted },
            TableChange::Shard { shard: ShardId(2), filter: filter("a/#"), wanted },
            TableChange::Shard { shard: ShardId(2), filter: filter("a/b"), wanted },
            TableChange::Remote { filter: filter("a/b"), wanted },
        ]);
        let mut found = Matched::default();
        table.matches(&TopicName::new("a/b").unwrap(), &mut found);
        assert_eq!(found.shards.iter().map(|(shard, _)| shard.0).collect::<Vec<_>>(), [2]);
        assert!(found.remote);
        table.matches(&TopicName::new("a/c").unwrap(), &mut found);
        assert!(!found.remote && found.shards.len() == 1);
        table.matches(&TopicName::new("b").unwrap(), &mut found);
        assert!(!found.remote && found.shards.is_empty());
        // Again, and after a change.
        table.matches(&TopicName::new("a/c").unwrap(), &mut found);
        table.matches(&TopicName::new("a/c").unwrap(), &mut found);
        assert!(!found.remote && found.shards.len() == 1);
        table.apply(&[TableChange::Remote { filter: filter("+/c"), wanted }]);
        table.matches(&TopicName::new("a/c").unwrap(), &mut found);
        assert!(found.remote && found.shards.len() == 1);
        table.apply(&[TableChange::Shard { shard: ShardId(2), filter: filter("a/#"), wanted: false }]);
        table.matches(&TopicName::new("a/c").unwrap(), &mut found);
        assert!(found.remote && found.shards.is_empty());
    }

    /// MQ-14
    #[test]
    fn members_take_turns_in_proportion_and_connected_ones_first() {
        let mut table = table();
        let (here, there) = (Location::Shard(ShardId(1)), Location::Node(NodeId::new(7)));
        table.apply(&[group(here, 1, 5), group(there, 3, 0)]);
        let key = filter("$share/g/a/+");
        assert_eq!(table.members_elsewhere(&key, ShardId(1)), (3, 0));
        assert_eq!(table.members_elsewhere(&filter("$share/g/b"), ShardId(1)), (0, 0));
        let count = |table: &mut ForwardTable| (0..400).filter(|_| table.choose(&key, &[]) == Some(here)).count();
        assert_eq!(count(&mut table), 100);
        table.apply(&[group(there, 0, 5)]);
        assert_eq!(count(&mut table), 400);
        table.apply(&[group(here, 0, 5)]);
        assert_eq!(count(&mut table), 200);
        assert_eq!(table.choose(&key, &[here]), Some(there));
        assert_eq!(table.choose(&key, &[here, there]), None);
        table.apply(&[group(here, 0, 0), group(there, 0, 0)]);
        assert!(table.groups.is_empty());
    }
}
