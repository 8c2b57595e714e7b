//! The interest of this node's clients (FT-09, FT-13).

use std::collections::BTreeMap;

use sedge_base::{ClientId, Rng, Seed, ShardId};
use sedge_broker::{InterestChange, InterestOp};
use sedge_mqtt::{SubscriptionTrie, TopicFilter, TopicName};
use sedge_overlay::{Advert, AdvertOp};

use crate::mail::{Location, TableChange};
use crate::members::Members;

/// Subscriptions of this node's clients, counted by shard.
#[derive(Debug)]
pub(in crate::node) struct InterestTable {
    clients: BTreeMap<ClientId, Client>,
    /// How many clients of a shard want a plain filter.
    plain: SubscriptionTrie<ShardId, u32>,
    groups: BTreeMap<TopicFilter, Members<ShardId>>,
    lines: usize,
    rng: Rng,
}

#[derive(Debug)]
struct Client {
    shard: ShardId,
    /// Whether the client is connected, as told with each filter.
    filters: BTreeMap<TopicFilter, bool>,
}

/// The consequences of changes of a client's subscriptions.
#[derive(Debug, Default)]
pub(in crate::node) struct Effect {
    /// For the forward tables of all shards.
    pub table: Vec<TableChange>,
    /// For the other nodes.
    pub adverts: Vec<Advert>,
}

impl InterestTable {
    pub(in crate::node) fn new(mut rng: Rng) -> Self {
        let plain = SubscriptionTrie::with_seed(Seed::from_rng(&mut rng));
        Self { clients: BTreeMap::new(), plain, groups: BTreeMap::new(), lines: 0, rng }
    }

    /// Takes changes of a client of `shard` in. A change that is known already has no effect.
    pub(in crate::node) fn apply(&mut self, shard: ShardId, client: &ClientId, changes: &[InterestChange]) -> Effect {
        let mut effect = Effect::default();
        for change in changes {
            let op = match change.op {
                InterestOp::Add { online, .. } => self.add(shard, client, &change.filter, online, &mut effect),
                InterestOp::Remove => self.remove(client, &change.filter, &mut effect),
            };
            if let Some(op) = op {
                effect.adverts.push(Advert { client: client.clone(), filter: change.filter.clone(), op });
            }
        }
        effect
    }

    fn add(
        &mut self,
        shard: ShardId,
        client: &ClientId,
        filter: &TopicFilter,
        online: bool,
        effect: &mut Effect,
    ) -> Option<AdvertOp> {
        if !self.clients.contains_key(client) {
            self.clients.insert(client.clone(), Client { shard, filters: BTreeMap::new() });
        }
        let entry = self.clients.get_mut(client)?;
        let shard = entry.shard;
        let before = entry.filters.get_mut(filter).map(|known| core::mem::replace(known, online));
        if before.is_none() {
            entry.filters.insert(filter.detached(), online);
        }
        let shared = filter.share_group().is_some();
        if before == Some(online) {
            return None;
        }
        self.lines += usize::from(before.is_none());
        if shared {
            self.count_member(shard, filter, before, Some(online), effect);
        } else if before.is_none() {
            self.count_plain(shard, filter, effect);
        }
        Some(AdvertOp::Add { online })
    }

    fn remove(&mut self, client: &ClientId, filter: &TopicFilter, effect: &mut Effect) -> Option<AdvertOp> {
        let entry = self.clients.get_mut(client)?;
        let before = entry.filters.remove(filter)?;
        let shard = entry.shard;
        if entry.filters.is_empty() {
            self.clients.remove(client);
        }
        self.lines -= 1;
        if filter.share_group().is_some() {
            self.count_member(shard, filter, Some(before), None, effect);
        } else {
            self.uncount_plain(shard, filter, effect);
        }
        Some(AdvertOp::Remove)
    }

    fn count_plain(&mut self, shard: ShardId, filter: &TopicFilter, effect: &mut Effect) {
        if let Some(count) = self.plain.get_mut(filter, &shard) {
            *count += 1;
            return;
        }
        let filter = filter.detached();
        self.plain.insert(&filter, shard, 1);
        effect.table.push(TableChange::Shard { shard, filter, wanted: true });
    }

    fn uncount_plain(&mut self, shard: ShardId, filter: &TopicFilter, effect: &mut Effect) {
        let Some(count) = self.plain.get_mut(filter, &shard) else { return };
        *count -= 1;
        if *count == 0 {
            self.plain.remove(filter, &shard);
            effect.table.push(TableChange::Shard { shard, filter: filter.clone(), wanted: false });
        }
    }

    /// A member of a group was, and is, connected, not connected, or not there at all.
    fn count_member(
        &mut self,
        shard: ShardId,
        group: &TopicFilter,
        before: Option<bool>,
        after: Option<bool>,
        effect: &mut Effect,
    ) {
        if !self.groups.contains_key(group) {
            self.groups.insert(group.detached(), Members::new(self.rng.next_u64()));
        }
        let Some(members) = self.groups.get_mut(group) else { return };
        let (mut online, mut offline) = members.get(shard);
        match before {
            Some(true) => online = online.saturating_sub(1),
            Some(false) => offline = offline.saturating_sub(1),
            None => {}
        }
        match after {
            Some(true) => online += 1,
            Some(false) => offline += 1,
            None => {}
        }
        members.set(shard, online, offline);
        if members.is_empty() {
            self.groups.remove(group);
        }
        effect.table.push(TableChange::Group { at: Location::Shard(shard), group: group.clone(), online, offline });
    }

    /// Visits every shard with ordinary subscriptions that match, some more than once.
    pub(in crate::node) fn shards_for(&self, topic: &TopicName, mut visit: impl FnMut(ShardId)) {
        self.plain.matches(topic, |shard, _| visit(*shard));
    }

    /// Chooses a shard for a message to a shared subscription.
    pub(in crate::node) fn choose(&mut self, group: &TopicFilter) -> Option<ShardId> {
        self.groups.get_mut(group)?.choose(&[])
    }

    /// Number of lines: pairs of client and filter.
    pub(in crate::node) const fn len(&self) -> usize {
        self.lines
    }

    /// Lines from the `offset`th on, by client and filter.
    pub(in crate::node) fn lines(
        &self,
        offset: usize,
        limit: usize,
    ) -> impl Iterator<Item = (&ClientId, &TopicFilter)> {
        let all =
            self.clients.iter().flat_map(|(client, entry)| entry.filters.keys().map(move |filter| (client, filter)));
        all.skip(offset).take(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(filter: &str, op: InterestOp) -> InterestChange {
        InterestChange { filter: TopicFilter::new(filter).unwrap(), op }
    }

    const ADD: InterestOp = InterestOp::Add { retained: false, online: true };

    /// FT-13
    #[test]
    fn a_filter_stays_until_the_last_client_gives_it_up() {
        let mut table = InterestTable::new(Rng::new(1));
        let (a, b) = (ClientId::new("a"), ClientId::new("b"));
        let effect = table.apply(ShardId(1), &a, &[change("t", ADD)]);
        assert_eq!((effect.table.len(), effect.adverts.len()), (1, 1));
        let effect = table.apply(ShardId(1), &a, &[change("t", ADD)]);
        assert_eq!((effect.table.len(), effect.adverts.len()), (0, 0));
        let effect = table.apply(ShardId(1), &b, &[change("t", ADD)]);
        assert_eq!((effect.table.len(), effect.adverts.len()), (0, 1));
        let effect = table.apply(ShardId(1), &a, &[change("t", InterestOp::Remove)]);
        assert_eq!((effect.table.len(), effect.adverts.len()), (0, 1));
        let effect = table.apply(ShardId(1), &b, &[change("t", InterestOp::Remove), change("t", InterestOp::Remove)]);
        assert_eq!((effect.table.len(), effect.adverts.len()), (1, 1));
        assert!(matches!(effect.table[0], TableChange::Shard { shard: ShardId(1), wanted: false, .. }));
        assert_eq!(table.len(), 0);
    }

    /// MQ-14
    #[test]
    fn members_of_groups_are_counted_by_connection() {
        let mut table = InterestTable::new(Rng::new(1));
        let client = ClientId::new("a");
        let group = TopicFilter::new("$share/g/t").unwrap();
        let counts = |effect: Effect| match effect.table.as_slice() {
            [TableChange::Group { online, offline, .. }] => (*online, *offline),
            other => panic!("{other:?}"),
        };
        assert_eq!(counts(table.apply(ShardId(0), &client, &[change("$share/g/t", ADD)])), (1, 0));
        let away = InterestOp::Add { retained: false, online: false };
        assert_eq!(counts(table.apply(ShardId(0), &client, &[change("$share/g/t", away)])), (0, 1));
        assert_eq!(table.choose(&group), Some(ShardId(0)));
        assert_eq!(counts(table.apply(ShardId(0), &client, &[change("$share/g/t", InterestOp::Remove)])), (0, 0));
        assert_eq!(table.choose(&group), None);
    }
}
