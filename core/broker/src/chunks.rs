//! Buffers that messages share while they wait for their acknowledgements: one allocation for several of them.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use sedge_mqtt::TopicName;

use crate::detach::shared_topic;

/// Size of one buffer.
const CHUNK_BYTES: usize = 8 * 1024;
/// A message that is larger is worth a buffer of its own.
const SHARE_UP_TO_BYTES: usize = CHUNK_BYTES / 2;
/// Buffers at most. A buffer lives as long as anything in it: messages that stay pin no more than these.
const CHUNKS_MAX: usize = 1024;
/// Filled buffers that are looked at, oldest first, for one that nobody reads any more.
const LOOKS: usize = 2;

/// The buffers of one broker. Those that nobody reads any more are filled again.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    filling: Option<BytesMut>,
    filled: VecDeque<BytesMut>,
    refused: u64,
}

/// How the buffers stand that messages share while they wait for their acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedBuffers {
    /// Buffers of 8 KiB, at most 1,024.
    pub count: usize,
    /// Messages that have a buffer of their own because there were as many as there may be.
    pub refused: u64,
}

impl Chunks {
    /// Copies of topic and payload in one of the buffers. Nothing if they are too large, or if there are as many buffers as there
    /// may be.
    pub(crate) fn content(&mut self, topic: &TopicName, payload: &[u8]) -> Option<(TopicName, Bytes)> {
        let name = topic.as_bytes();
        let size = name.len() + payload.len();
        let has_room = |filling: &BytesMut| filling.capacity() - filling.len() >= size;
        if size > SHARE_UP_TO_BYTES {
            return None;
        }
        if !self.filling.as_ref().is_some_and(has_room) && !self.turn() {
            self.refused += 1;
            return None;
        }
        let filling = self.filling.as_mut()?;
        filling.extend_from_slice(name);
        filling.extend_from_slice(payload);
        let mut payload = filling.split().freeze();
        let topic = shared_topic(payload.split_to(name.len()), topic);
        Some((topic, payload))
    }

    /// Gives the memory back. Buffers that are in use live on without this.
    pub(crate) fn release(&mut self) {
        if self.filling.is_some() || !self.filled.is_empty() {
            *self = Self { refused: self.refused, ..Self::default() };
        }
    }

    /// The number of buffers, and the number of times that they were not enough.
    pub(crate) fn status(&self) -> SharedBuffers {
        SharedBuffers { count: self.filled.len() + usize::from(self.filling.is_some()), refused: self.refused }
    }

    /// Begins another buffer; false if there may be no more.
    fn turn(&mut self) -> bool {
        self.filled.extend(self.filling.take());
        for _ in 0..LOOKS {
            let Some(mut oldest) = self.filled.pop_front() else { break };
            if oldest.try_reclaim(CHUNK_BYTES) {
                self.filling = Some(oldest);
                return true;
            }
            self.filled.push_back(oldest);
        }
        if self.filled.len() < CHUNKS_MAX {
            self.filling = Some(BytesMut::with_capacity(CHUNK_BYTES));
        }
        self.filling.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicName {
        TopicName::new("a/b").unwrap()
    }

    #[test]
    fn contents_lie_together_and_equal_what_was_given() {
        let mut chunks = Chunks::default();
        let contents: Vec<_> = (0..20_u8).map(|number| chunks.content(&topic(), &[number; 1_000]).unwrap()).collect();
        for (number, (name, payload)) in (0..).zip(&contents) {
            assert_eq!((name, &payload[..]), (&topic(), &[number; 1_000][..]));
        }
        assert_eq!(chunks.filled.len(), 2, "eight in a buffer");
        assert!(chunks.content(&topic(), &[0; SHARE_UP_TO_BYTES]).is_none());
    }

    #[test]
    fn a_buffer_that_nobody_reads_is_filled_again() {
        let mut chunks = Chunks::default();
        let mut waiting = VecDeque::new();
        for number in 0..10_000_usize {
            let payload = number.to_be_bytes();
            waiting.push_back((payload, chunks.content(&topic(), &payload).unwrap().1));
            if waiting.len() > 2_000 {
                let (payload, content) = waiting.pop_front().unwrap();
                assert_eq!(content[..], payload);
            }
        }
        assert!(chunks.filled.len() <= 2_000 * 11 / CHUNK_BYTES + LOOKS, "{}", chunks.filled.len());
        chunks.release();
        assert!(chunks.filling.is_none() && chunks.filled.is_empty());
        assert!(waiting.iter().all(|(payload, content)| content[..] == *payload));
    }

    #[test]
    fn there_are_no_more_buffers_than_there_may_be() {
        let mut chunks = Chunks::default();
        let mut waiting = Vec::new();
        while let Some((_, payload)) = chunks.content(&topic(), &[7; 4_000]) {
            waiting.push(payload);
        }
        assert_eq!((waiting.len(), chunks.filled.len()), (2 * CHUNKS_MAX, CHUNKS_MAX));
        assert!(chunks.content(&topic(), b"x").is_none());
        assert_eq!(chunks.status(), SharedBuffers { count: CHUNKS_MAX, refused: 2 });
        waiting.clear();
        assert!(chunks.content(&topic(), b"x").is_some());
    }
}
