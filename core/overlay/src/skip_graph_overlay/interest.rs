//! The topics that clients of this node subscribe to by their names.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::ClientId;
use sedge_mqtt::{TopicFilter, TopicName};

use super::signal::MAX_TOPIC_BYTES;
use crate::{Advert, AdvertOp};

/// The topic that a filter names, if it is one of the graph: no wildcard, no shared subscription, no name that starts with `$` (nobody is
/// told of publications to those unless somebody wants them), and not longer than [`MAX_TOPIC_BYTES`].
pub(super) fn topic_of(filter: &TopicFilter) -> Option<TopicName> {
    if filter.share_group().is_some() || filter.has_wildcard() {
        return None;
    }
    TopicName::new(filter.as_str()).ok().filter(is_graph_topic)
}

/// Whether a topic may be in the graph, see [`topic_of`].
pub(super) fn is_graph_topic(topic: &TopicName) -> bool {
    !topic.is_reserved() && topic.as_bytes().len() <= MAX_TOPIC_BYTES
}

/// Change of this node's own part in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The first local client subscribes (SG-08).
    First,
    /// The last local client that subscribed is gone.
    Last,
}

/// Local clients by topic, and the changes that the other nodes have not been told yet.
#[derive(Debug, Default)]
pub(super) struct Interest {
    clients: BTreeMap<TopicName, BTreeSet<ClientId>>,
    /// The last change of each topic. A change is told even if it leads back to the state told before: an answer may have said otherwise in
    /// between.
    untold: BTreeMap<TopicName, bool>,
}

impl Interest {
    pub(super) fn apply(&mut self, topic: &TopicName, change: &Advert) -> Option<Turn> {
        let turn = match change.op {
            AdvertOp::Add { .. } => {
                let clients = self.clients.entry(topic.clone()).or_default();
                let first = clients.is_empty();
                clients.insert(change.client.clone());
                first.then_some(Turn::First)
            }
            AdvertOp::Remove => {
                let clients = self.clients.get_mut(topic)?;
                clients.remove(&change.client);
                clients.is_empty().then_some(Turn::Last)
            }
        };
        match turn {
            Some(Turn::First) => drop(self.untold.insert(topic.clone(), true)),
            Some(Turn::Last) => {
                self.clients.remove(topic);
                self.untold.insert(topic.clone(), false);
            }
            None => {}
        }
        turn
    }

    pub(super) fn is_subscribed(&self, topic: &TopicName) -> bool {
        self.clients.contains_key(topic)
    }

    pub(super) fn take_news(&mut self) -> Vec<(TopicName, bool)> {
        core::mem::take(&mut self.untold).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(client: &str, op: AdvertOp) -> Advert {
        Advert { client: ClientId::new(client), filter: TopicFilter::new("a").expect("a filter"), op }
    }

    /// SG-08
    #[test]
    fn the_first_and_the_last_client_count() {
        let topic = TopicName::new("a").expect("a topic");
        let mut interest = Interest::default();
        let add = AdvertOp::Add { online: true };
        assert_eq!(interest.apply(&topic, &change("c", AdvertOp::Remove)), None);
        assert_eq!(interest.apply(&topic, &change("c", add)), Some(Turn::First));
        assert_eq!(interest.apply(&topic, &change("c", AdvertOp::Add { online: false })), None);
        assert_eq!(interest.apply(&topic, &change("d", add)), None);
        assert_eq!(interest.take_news(), [(topic.clone(), true)]);
        assert_eq!(interest.apply(&topic, &change("c", AdvertOp::Remove)), None);
        assert!(interest.is_subscribed(&topic));
        assert_eq!(interest.apply(&topic, &change("d", AdvertOp::Remove)), Some(Turn::Last));
        assert!(!interest.is_subscribed(&topic));
        assert_eq!(interest.apply(&topic, &change("d", add)), Some(Turn::First));
        assert_eq!(interest.apply(&topic, &change("d", AdvertOp::Remove)), Some(Turn::Last));
        assert_eq!(interest.take_news(), [(topic, false)], "told although it was not told otherwise");
    }

    #[test]
    fn wildcards_shares_and_reserved_names_are_no_topics_of_the_graph() {
        let topic =
            |text: &str| topic_of(&TopicFilter::new(text).expect("a filter")).map(|topic| topic.as_str().to_owned());
        assert_eq!(topic("a/b").as_deref(), Some("a/b"));
        assert_eq!(topic("/").as_deref(), Some("/"));
        for other in ["a/+", "#", "$share/g/a", "$SYS/a", &"x".repeat(MAX_TOPIC_BYTES + 1)] {
            assert_eq!(topic(other), None);
        }
    }
}
