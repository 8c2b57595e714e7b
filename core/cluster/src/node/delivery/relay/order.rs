//! The order that is promised for QoS 0: that of each publisher in each topic (MQTT 5.0 section 4.6), not that of a whole stream.
//!
//! Publications overtake parts of a stream if they go straight because a link has begun anew, are sent again, or take a new way. An overtaken
//! publication is delivered all the same, unless a later one of the same publisher and topic was.

use sedge_base::{StableHash, mix};
use sedge_mqtt::Message;

/// Marks of one sender. Publishers and topics that share one are taken for the same: they lose late publications by it.
const MARKS: usize = 1024;

/// The last publication that was delivered, by the hash of its publisher and topic: one above its number in its shard. Of one
/// sender.
#[derive(Debug, Default)]
pub(super) struct Order(Option<Box<[u64]>>);

impl Order {
    /// A publication is delivered.
    pub(super) fn note(&mut self, message: &Message) {
        let next = message.id.seq.saturating_add(1);
        let mark = self.mark(message);
        *mark = next.max(*mark);
    }

    /// Whether a publication can be delivered although others behind it were; it is noted then.
    pub(super) fn takes_late(&mut self, message: &Message) -> bool {
        let mark = self.mark(message);
        let takes = message.id.seq >= *mark;
        if takes {
            *mark = message.id.seq.saturating_add(1);
        }
        takes
    }

    fn mark(&mut self, message: &Message) -> &mut u64 {
        let mut hash = StableHash::new();
        // Strays have come from another life or another node.
        hash.add(&message.id.node.get().to_be_bytes());
        hash.add(&message.id.incarnation.get().to_be_bytes());
        hash.add(&message.id.shard.0.to_be_bytes());
        hash.add(message.publisher.as_ref().map_or(&[], |publisher| publisher.as_str().as_bytes()));
        hash.add(&[0]);
        hash.add(message.topic.as_bytes());
        let marks = self.0.get_or_insert_with(|| vec![0; MARKS].into());
        let at = usize::try_from(mix(hash.get()) % MARKS as u64).unwrap_or_default();
        &mut marks[at % MARKS]
    }
}
