//! The messages that one connection brings and takes: the measure by which clients are spread over nodes (EL-24).

use sedge_mqtt::TopicName;

/// Longest topic that is remembered as an example of what a client publishes, in bytes.
const MAX_TOPIC_BYTES: usize = 256;
/// A later topic is looked at each time after so many publications.
const LOOK_EVERY: u64 = 1024;

/// Counts of one connection since its CONNECT.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    received: u64,
    sent: u64,
    topic: Option<Box<str>>,
}

impl Traffic {
    /// The client has sent a PUBLISH. Its topic is copied now and then only: the read buffer would stay in memory with it otherwise.
    pub(crate) fn note_received(&mut self, topic: &TopicName) {
        self.received += 1;
        let looks = self.received.is_power_of_two() || self.received.is_multiple_of(LOOK_EVERY);
        if looks && topic.as_bytes().len() <= MAX_TOPIC_BYTES && self.topic.as_deref() != Some(topic.as_str()) {
            self.topic = Some(topic.as_str().into());
        }
    }

    /// A PUBLISH was put into its outbox.
    pub(crate) const fn note_sent(&mut self) {
        self.sent += 1;
    }

    /// PUBLISH packets of the client.
    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    /// PUBLISH packets for the client.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// A topic that it has published to.
    pub(crate) fn topic(&self) -> Option<&str> {
        self.topic.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EL-24
    #[test]
    fn it_counts_and_keeps_a_short_topic() {
        let mut traffic = Traffic::default();
        let long = "x".repeat(MAX_TOPIC_BYTES + 1);
        for text in ["a", "b", "c", &long] {
            traffic.note_received(&TopicName::try_from(text).expect("a topic name"));
        }
        traffic.note_sent();
        assert_eq!((traffic.received(), traffic.sent(), traffic.topic()), (4, 1, Some("b")));
    }
}
