//! A message for one session, with what its delivery adds.

use std::sync::Arc;

use sedge_mqtt::{Message, QoS};
use smallvec::SmallVec;

use crate::chunks::Chunks;
use crate::detach::{detach, detach_among};
use crate::room::MESSAGE_BYTES;

/// Identifiers of the subscriptions that matched, in as little room as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    /// One, or none if it is 0.
    One(u32),
    /// Two and more, in the order they matched.
    Many(Box<[u32]>),
}

impl Ids {
    pub(crate) const NONE: Self = Self::One(0);

    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(0) => &[],
            Self::One(id) => core::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }

    pub(crate) const fn is_none(&self) -> bool {
        matches!(self, Self::One(0))
    }

    /// Adds an id; 0 is none.
    pub(crate) fn add(&mut self, id: u32) {
        if id == 0 {
            return;
        }
        *self = match self {
            Self::One(0) => Self::One(id),
            Self::One(first) => Self::Many(Box::new([*first, id])),
            Self::Many(ids) => Self::Many(ids.iter().copied().chain([id]).collect()),
        };
    }

    pub(crate) fn to_small(&self) -> SmallVec<[u32; 2]> {
        SmallVec::from_slice(self.as_slice())
    }
}

impl From<&[u32]> for Ids {
    fn from(ids: &[u32]) -> Self {
        match ids {
            [] => Self::NONE,
            [id] => Self::One(*id),
            ids => Self::Many(ids.into()),
        }
    }
}

/// A message on its way to one session.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Arc<Message>,
    pub(crate) ids: Ids,
    /// Number of the shared subscription it was chosen by; 0: none.
    pub(crate) group: u32,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) buffer: Buffer,
}

/// Where topic, payload and properties of a message lie. A part of a buffer that is alive keeps all of the buffer alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// In what was read from a socket.
    Read,
    /// In a buffer with other messages that wait.
    Shared,
    /// By themselves.
    Own,
}

/// Copies of one message for all sessions that have to keep it.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    brief: Option<Arc<Message>>,
    long: Option<Arc<Message>>,
}

impl Outgoing {
    /// Bytes that the message takes of the queue's byte limit.
    pub(crate) fn size(&self) -> usize {
        self.message.payload.len() + self.message.topic.as_bytes().len() + 64
    }

    /// Bytes that the message takes of the limit for all sessions.
    pub(crate) fn footprint(&self) -> usize {
        self.size() + MESSAGE_BYTES
    }

    /// Makes the message fit for waiting long.
    pub(crate) fn keep(&mut self) {
        self.keep_long(&mut Copies::default());
    }

    /// The same for many sessions that get the message: they share one copy.
    pub(crate) fn keep_long(&mut self, copies: &mut Copies) {
        if self.buffer != Buffer::Own {
            self.message = Arc::clone(copies.long.get_or_insert_with(|| detach(&self.message)));
            self.buffer = Buffer::Own;
        }
    }

    /// Makes it fit for waiting until a connected client acknowledges it.
    pub(crate) fn keep_briefly(&mut self, copies: &mut Copies, chunks: &mut Chunks) {
        if self.buffer == Buffer::Read {
            self.message = Arc::clone(copies.brief.get_or_insert_with(|| detach_among(&self.message, chunks)));
            self.buffer = Buffer::Shared;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_order_and_stay_small() {
        let mut ids = Ids::NONE;
        for id in [0, 3, 0, 1, 2] {
            ids.add(id);
        }
        assert_eq!(ids.as_slice(), [3, 1, 2]);
        assert_eq!(size_of::<Ids>(), 16);
        assert_eq!(size_of::<Option<Outgoing>>(), 32);
    }
}
