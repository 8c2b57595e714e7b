//! The values below `$SYS`: Mosquitto's topics, filled from the counters of all threads.

use std::time::Duration;

use sedge_broker::Counters;

use super::load::{Load, WINDOWS};
use crate::runtime::View;

/// Counts of one thread, or of all of them together.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    broker: Counters,
    sockets: u64,
    /// From the node.
    retained: u64,
    retained_bytes: u64,
}

impl Sample {
    pub(super) fn of(view: &View<'_>) -> Self {
        let status = view.node.map(sedge_cluster::Node::status);
        Self {
            broker: view.shard.broker().counters().clone(),
            sockets: view.stats.accepted,
            retained: status.as_ref().map_or(0, |status| status.retained as u64),
            retained_bytes: status.as_ref().map_or(0, |status| status.retained_bytes as u64),
        }
    }

    /// Adds what another thread has counted.
    pub(super) fn add(&mut self, other: &Self) {
        let (sums, broker) = (&mut self.broker, &other.broker);
        for (sum, count) in [
            (&mut sums.connects, broker.connects),
            (&mut sums.bytes_in, broker.bytes_in),
            (&mut sums.bytes_out, broker.bytes_out),
            (&mut sums.packets_in, broker.packets_in),
            (&mut sums.packets_out, broker.packets_out),
            (&mut sums.payload_bytes_in, broker.payload_bytes_in),
            (&mut sums.payload_bytes_out, broker.payload_bytes_out),
            (&mut sums.sessions, broker.sessions),
            (&mut sums.sessions_expired, broker.sessions_expired),
            (&mut sums.connected, broker.connected),
            (&mut sums.subscriptions, broker.subscriptions),
            (&mut sums.shared_subscriptions, broker.shared_subscriptions),
            (&mut sums.queued_messages, broker.queued_messages),
            (&mut sums.queued_bytes, broker.queued_bytes),
            (&mut sums.dropped.queue_full, broker.dropped.queue_full),
            (&mut sums.dropped.queue_full_qos0, broker.dropped.queue_full_qos0),
            (&mut self.sockets, other.sockets),
            (&mut self.retained, other.retained),
            (&mut self.retained_bytes, other.retained_bytes),
        ] {
            *sum += count;
        }
        for (sum, count) in sums.publishes_in.iter_mut().zip(broker.publishes_in) {
            *sum += count;
        }
        for (sum, count) in sums.publishes_out.iter_mut().zip(broker.publishes_out) {
            *sum += count;
        }
    }

    fn publishes_in(&self) -> u64 {
        self.broker.publishes_in.iter().sum()
    }

    fn publishes_out(&self) -> u64 {
        self.broker.publishes_out.iter().sum()
    }

    /// Messages that a full queue had no room for.
    const fn dropped(&self) -> u64 {
        self.broker.dropped.queue_full + self.broker.dropped.queue_full_qos0
    }
}

/// Finds a number.
type Count = fn(&Sample) -> u64;

/// Topics below `load/`, and the number of each.
const LOADS: [(&str, Count); 9] = [
    ("messages/received", |sample| sample.broker.packets_in),
    ("messages/sent", |sample| sample.broker.packets_out),
    ("publish/dropped", Sample::dropped),
    ("publish/received", Sample::publishes_in),
    ("publish/sent", Sample::publishes_out),
    ("bytes/received", |sample| sample.broker.bytes_in),
    ("bytes/sent", |sample| sample.broker.bytes_out),
    ("sockets", |sample| sample.sockets),
    ("connections", |sample| sample.broker.connects),
];

/// State that is kept from one report to the next.
#[derive(Debug, Default)]
pub(super) struct Figures {
    loads: [Load; LOADS.len()],
    most_connected: u64,
}

impl Figures {
    /// Topics below `$SYS/broker/`, always the same ones in the same order, with their values. `elapsed` is the time since the
    /// last call.
    pub(super) fn tell(&mut self, sample: &Sample, uptime: Duration, elapsed: Duration) -> Vec<(String, String)> {
        let broker = &sample.broker;
        let (connected, sessions) = (broker.connected, broker.sessions);
        let away = sessions.saturating_sub(connected);
        self.most_connected = self.most_connected.max(connected);
        let mut told = vec![
            ("version".to_owned(), format!("sedge version {}", env!("CARGO_PKG_VERSION"))),
            ("uptime".to_owned(), format!("{} seconds", uptime.as_secs())),
        ];
        for (topic, count) in [
            ("clients/total", sessions),
            ("clients/maximum", self.most_connected),
            ("clients/connected", connected),
            ("clients/active", connected),
            ("clients/disconnected", away),
            ("clients/inactive", away),
            ("clients/expired", broker.sessions_expired),
            ("messages/received", broker.packets_in),
            ("messages/sent", broker.packets_out),
            ("messages/stored", sample.retained + broker.queued_messages),
            ("publish/messages/received", sample.publishes_in()),
            ("publish/messages/sent", sample.publishes_out()),
            ("publish/messages/dropped", sample.dropped()),
            ("publish/bytes/received", broker.payload_bytes_in),
            ("publish/bytes/sent", broker.payload_bytes_out),
            ("bytes/received", broker.bytes_in),
            ("bytes/sent", broker.bytes_out),
            ("subscriptions/count", broker.subscriptions.saturating_sub(broker.shared_subscriptions)),
            ("shared_subscriptions/count", broker.shared_subscriptions),
            ("retained messages/count", sample.retained),
            ("store/messages/count", sample.retained + broker.queued_messages),
            ("store/messages/bytes", sample.retained_bytes + broker.queued_bytes),
        ] {
            told.push((topic.to_owned(), count.to_string()));
        }
        for (load, (topic, count)) in self.loads.iter_mut().zip(LOADS) {
            load.observe(count(sample), elapsed);
            for (average, (window, _)) in load.averages().into_iter().zip(WINDOWS) {
                told.push((format!("load/{topic}/{window}"), format!("{average:.2}")));
            }
        }
        told
    }
}
