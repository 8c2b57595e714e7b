//! What clients saw, and from it what they had a right to see.

use std::collections::{BTreeMap, BTreeSet};

use sedge_base::Instant;
use sedge_mqtt::{QoS, TopicFilter, TopicName};

/// A publication by a client.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub(crate) publisher: usize,
    /// Which connection of the publisher it was first sent on: order is promised within one.
    pub(crate) connection: u64,
    pub(crate) topic: TopicName,
    pub(crate) qos: QoS,
    pub(crate) sent: Instant,
    /// Whether it was sent again with DUP: then it may come late to those who subscribed in between.
    pub(crate) repeated: bool,
    /// When the publisher was told that it is safe.
    pub(crate) acknowledged: Option<Instant>,
}

/// A subscription, while a client had a right to what matches.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) client: usize,
    pub(crate) session: u64,
    pub(crate) filter: TopicFilter,
    pub(crate) qos: QoS,
    /// When the SUBACK arrived.
    pub(crate) from: Instant,
    /// When the client gave it up, or its session ended.
    pub(crate) until: Option<Instant>,
}

/// A message that reached a client's application: QoS 2 repetitions are already sorted out by the client.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) publication: usize,
    pub(crate) at: Instant,
    pub(crate) qos: QoS,
    pub(crate) dup: bool,
    pub(crate) retained: bool,
}

/// A time during which two nodes that could not hear of each other held a session of one client.
///
/// Nobody can then know what the other copy delivers: a client that goes to and fro between the two may get a message from both.
/// The promise for a session is about one session; that it is one again is what [`crate::invariant::agreement`] asks for.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) client: usize,
    pub(crate) from: Instant,
    /// When one of the two was given up.
    pub(crate) until: Option<Instant>,
}

/// Everything clients saw.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) publications: Vec<Publication>,
    pub(crate) subscriptions: Vec<Subscription>,
    /// By client and session, in order of arrival.
    pub(crate) deliveries: BTreeMap<(usize, u64), Vec<Delivery>>,
    /// Sessions that two nodes held.
    pub(crate) splits: Vec<Split>,
    /// Broken rules of the protocol, seen by clients.
    pub(crate) protocol: Vec<String>,
    /// Whether anything happened after which acknowledged messages may be lost for now: a node crashed, or was declared dead.
    pub(crate) disturbed: bool,
}

impl Oracle {
    pub(crate) fn subscribed(&mut self, subscription: Subscription) {
        let (client, session, now) = (subscription.client, subscription.session, subscription.from);
        self.unsubscribed(client, session, &subscription.filter.clone(), now);
        self.subscriptions.push(subscription);
    }

    pub(crate) fn unsubscribed(&mut self, client: usize, session: u64, filter: &TopicFilter, now: Instant) {
        for known in &mut self.subscriptions {
            if known.client == client && known.session == session && known.until.is_none() && known.filter == *filter {
                known.until = Some(now);
            }
        }
    }

    /// The session is over: it has no more rights.
    pub(crate) fn ended(&mut self, client: usize, session: u64, now: Instant) {
        for known in &mut self.subscriptions {
            if known.client == client && known.session == session && known.until.is_none() {
                known.until = Some(now);
            }
        }
    }

    pub(crate) fn delivered(&mut self, client: usize, session: u64, delivery: Delivery) {
        self.deliveries.entry((client, session)).or_default().push(delivery);
    }

    /// Whose sessions two nodes hold now.
    pub(crate) fn split(&mut self, now: Instant, clients: &BTreeSet<usize>) {
        let open = |split: &&mut Split| split.until.is_none();
        let mut known = BTreeSet::new();
        for split in self.splits.iter_mut().filter(open) {
            if clients.contains(&split.client) {
                known.insert(split.client);
            } else {
                split.until = Some(now);
            }
        }
        let fresh = clients.difference(&known).map(|client| Split { client: *client, from: now, until: None });
        self.splits.extend(fresh);
    }

    /// Whether this delivery may have come from the other copy of a session that two nodes held: it came after the second copy
    /// had appeared, and was sent while there were two.
    pub(crate) fn is_excused(&self, client: usize, delivery: &Delivery) -> bool {
        let sent = self.publications[delivery.publication].sent;
        self.splits.iter().any(|split| {
            split.client == client && split.from <= delivery.at && split.until.is_none_or(|until| sent <= until)
        })
    }
}
