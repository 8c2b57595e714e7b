//! Verdicts of the rules on the last topics of a connection: devices publish to the same few again and again.

/// Topics that are remembered of one connection.
const TOPICS: usize = 4;
/// Longer topics are not remembered, in bytes.
const TOPIC_BYTES_MAX: usize = 256;

/// Whether a client may publish to its last topics. Holds for one policy and one identity.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// The buffers are used again: forgetting a topic costs no more than copying the next.
    entries: [(String, bool); TOPICS],
    next: usize,
}

impl Verdicts {
    /// Whether the client may publish to `topic`: the remembered verdict, else the one of `decide`. No topic is empty (MQTT-4.7.3-1).
    pub(crate) fn find(&mut self, topic: &str, decide: impl FnOnce() -> bool) -> bool {
        if let Some((_, allowed)) = self.entries.iter().find(|(known, _)| known == topic) {
            return *allowed;
        }
        let allowed = decide();
        if topic.len() <= TOPIC_BYTES_MAX
            && let Some((known, verdict)) = self.entries.get_mut(self.next)
        {
            known.clear();
            known.push_str(topic);
            *verdict = allowed;
            self.next = (self.next + 1) % TOPICS;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_few_topics_are_remembered() {
        let mut verdicts = Verdicts::default();
        let names: Vec<String> = (0..TOPICS).map(|number| format!("t/{number}")).collect();
        for name in &names {
            assert_eq!(verdicts.find(name, || name == "t/1"), name == "t/1");
        }
        for name in &names {
            assert_eq!(verdicts.find(name, || unreachable!()), name == "t/1");
        }
        assert!(verdicts.find("t/new", || true));
        assert!(verdicts.find("t/new", || unreachable!()));
        assert!(verdicts.find("t/0", || true), "the oldest one was forgotten");
    }

    #[test]
    fn long_topics_take_no_room() {
        let (mut verdicts, long) = (Verdicts::default(), "x".repeat(TOPIC_BYTES_MAX + 1));
        assert!(verdicts.find(&long, || true));
        assert!(!verdicts.find(&long, || false));
        assert!(verdicts.entries.iter().all(|(known, _)| known.is_empty()));
    }
}
