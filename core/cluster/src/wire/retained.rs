//! Mail by which nodes compare and repair their retained messages.

use std::sync::Arc;

use bytes::Bytes;
use sedge_broker::BUCKETS;
use sedge_mqtt::Message;

use super::{Reader, Result, WireError, Writer, read_message, write_message};

/// Mail of the topic `$sedge/retained`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RetainedMail {
    /// Digests of all buckets. The receiver sends its messages of the buckets that differ, then [`RetainedMail::Done`].
    Digests {
        /// Whether the receiver's digests are asked for, too.
        answer: bool,
        /// One for each bucket.
        digests: Box<[u64; BUCKETS]>,
    },
    /// Some messages and tombstones.
    Messages(Vec<Arc<Message>>),
    /// All that differs was sent.
    Done,
}

impl RetainedMail {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        match self {
            Self::Digests { answer, digests } => {
                out.u8(1);
                out.bool(*answer);
                digests.iter().for_each(|digest| out.u64(*digest));
            }
            Self::Messages(messages) => {
                out.u8(2);
                out.list(messages, |out, message| write_message(out, message));
            }
            Self::Done => out.u8(3),
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let mail = match from.u8()? {
            1 => {
                let answer = from.bool()?;
                let mut digests = Box::new([0; BUCKETS]);
                for digest in digests.iter_mut() {
                    *digest = from.u64()?;
                }
                Self::Digests { answer, digests }
            }
            2 => Self::Messages(from.list(read_message)?),
            3 => Self::Done,
            _ => return Err(WireError::UNKNOWN),
        };
        from.end()?;
        Ok(mail)
    }
}
