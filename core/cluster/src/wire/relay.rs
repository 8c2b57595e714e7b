//! Mail about the streams of publications that are relayed (`docs/adr/0010-relayed-publications.md`).

use bytes::Bytes;
use sedge_base::Incarnation;

use super::{Reader, Result, WireError, Writer};

/// Mail of the topic `$sedge/relay`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayMail {
    /// The sender's stream to the receiver goes on behind this number: whatever came before has arrived or will not come.
    Begin {
        /// Which life of the sender.
        incarnation: Incarnation,
        /// The number.
        behind: u64,
    },
    /// All publications of the receiver's stream up to this one have arrived.
    Arrived {
        /// Which life of the receiver.
        incarnation: Incarnation,
        /// The number.
        up_to: u64,
    },
    /// Publications of the receiver's stream are missing while later ones have come.
    Missing {
        /// Which life of the receiver.
        incarnation: Incarnation,
        /// The last one before the gap.
        up_to: u64,
        /// The first one behind it.
        before: u64,
    },
    /// Frames behind this one may be taken only when everything up to this place of the sender's stream has come.
    Fence {
        /// Which life of the sender.
        incarnation: Incarnation,
        /// The last number before the place.
        number: u64,
        /// How many with QoS 0 behind it.
        behind: u64,
    },
}

impl RelayMail {
    pub(crate) fn encode(self) -> Bytes {
        let mut out = Writer::default();
        match self {
            Self::Begin { incarnation, behind } => {
                out.u8(1);
                out.u64(incarnation.get());
                out.u64(behind);
            }
            Self::Arrived { incarnation, up_to } => {
                out.u8(2);
                out.u64(incarnation.get());
                out.u64(up_to);
            }
            Self::Missing { incarnation, up_to, before } => {
                out.u8(3);
                out.u64(incarnation.get());
                out.u64(up_to);
                out.u64(before);
            }
            Self::Fence { incarnation, number, behind } => {
                out.u8(4);
                out.u64(incarnation.get());
                out.u64(number);
                out.u64(behind);
            }
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let (kind, incarnation) = (from.u8()?, Incarnation::new(from.u64()?));
        let mail = match kind {
            1 => Self::Begin { incarnation, behind: from.u64()? },
            2 => Self::Arrived { incarnation, up_to: from.u64()? },
            3 => Self::Missing { incarnation, up_to: from.u64()?, before: from.u64()? },
            4 => Self::Fence { incarnation, number: from.u64()?, behind: from.u64()? },
            _ => return Err(WireError::UNKNOWN),
        };
        from.end()?;
        Ok(mail)
    }
}
