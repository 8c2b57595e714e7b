//! How many bytes a batch of records may have: a topic may take less at a time (`max.message.bytes`) than the producer gathers.

use rdkafka::error::RDKafkaErrorCode;

/// Most bytes of a batch that Kafka takes by default.
const BYTES: usize = 1_000_000;
/// A batch that Kafka has refused is sent again in parts of this size.
const PART: usize = 4;

/// The size of batches that the bridge has found since it began at this node.
#[derive(Debug)]
pub(super) struct Batches {
    bytes: usize,
}

/// The meaning of a refusal for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The record was alone: Kafka will never take it.
    ForGood,
    /// Other records may be the cause. All come again, in smaller batches.
    Smaller,
    /// It has nothing to do with the record.
    Passing,
}

impl Default for Batches {
    fn default() -> Self {
        Self { bytes: BYTES }
    }
}

impl Batches {
    /// Most bytes of a batch; a larger record is a batch of its own.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Kafka refused a record of so many bytes with this code, from a producer whose batches had at most `limit` bytes.
    pub(super) fn refused(&mut self, code: Option<RDKafkaErrorCode>, record: usize, limit: usize) -> Refusal {
        let is_of_batch = [
            RDKafkaErrorCode::MessageSizeTooLarge,
            RDKafkaErrorCode::InvalidMessage,
            RDKafkaErrorCode::InvalidMessageSize,
            RDKafkaErrorCode::InvalidRecord,
        ];
        match code {
            Some(RDKafkaErrorCode::InvalidTopic) => Refusal::ForGood,
            Some(code) if is_of_batch.contains(&code) && record >= limit => Refusal::ForGood,
            Some(code) if is_of_batch.contains(&code) => {
                self.bytes = self.bytes.min((limit / PART).max(1));
                Refusal::Smaller
            }
            Some(_) | None => Refusal::Passing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small record is refused only once it is alone; a large one as soon as no other fits beside it.
    #[test]
    fn a_record_is_refused_for_good_only_when_it_is_alone() {
        let mut batches = Batches::default();
        let code = Some(RDKafkaErrorCode::MessageSizeTooLarge);
        let limit = batches.bytes();
        assert_eq!(batches.refused(code, 300_000, limit), Refusal::Smaller);
        assert_eq!(batches.refused(code, 100, limit), Refusal::Smaller, "all records of a batch are refused");
        assert_eq!(batches.bytes(), 250_000);
        assert_eq!(batches.refused(code, 300_000, 250_000), Refusal::ForGood);
        assert_eq!(batches.bytes(), 250_000, "other records are not to suffer");
        let mut turns = 0;
        while batches.refused(code, 1, batches.bytes()) == Refusal::Smaller {
            turns += 1;
        }
        assert_eq!((turns, batches.bytes()), (9, 1));
    }

    /// Other errors are passed on, and change nothing.
    #[test]
    fn other_errors_say_nothing_about_the_record() {
        let mut batches = Batches::default();
        let limit = batches.bytes();
        assert_eq!(batches.refused(Some(RDKafkaErrorCode::NotLeaderForPartition), 1, limit), Refusal::Passing);
        assert_eq!(batches.refused(None, 1, limit), Refusal::Passing);
        assert_eq!(batches.refused(Some(RDKafkaErrorCode::InvalidTopic), 1, limit), Refusal::ForGood);
        assert_eq!(batches.bytes(), limit);
    }
}
