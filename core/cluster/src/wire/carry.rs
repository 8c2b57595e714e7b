//! Mail of links that a third node carries (`docs/protocol/link.md`, "Carried links").

use bytes::Bytes;
use sedge_base::NodeId;

use super::{Reader, Result, WireError, Writer};

/// Mail of the topic `$sedge/carry`: from one end of a connection to the node that carries it, and from there to the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CarryMail {
    /// `Some`: the receiver carries it to this node. `None`: it is for the receiver.
    pub to: Option<NodeId>,
    /// The end that has said it; on the way to the carrier that is the sender.
    pub from: NodeId,
    /// Which connection of the two ends; drawn at random by the one that has opened it.
    pub number: u64,
    /// Whether `from` has opened it.
    pub by_opener: bool,
    /// The message.
    pub word: CarryWord,
}

/// A message from one end of a carried connection to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CarryWord {
    /// There is such a connection from now on.
    Open,
    /// Bytes of it.
    Bytes {
        /// How many went before them.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// So many bytes were read.
    Read(u64),
    /// It is over.
    Close,
}

impl CarryMail {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u8(match self.word {
            CarryWord::Open => 1,
            CarryWord::Bytes { .. } => 2,
            CarryWord::Read(_) => 3,
            CarryWord::Close => 4,
        });
        out.option(self.to.as_ref(), |out, to| out.node(*to));
        out.node(self.from);
        out.u64(self.number);
        out.bool(self.by_opener);
        match &self.word {
            CarryWord::Open | CarryWord::Close => {}
            CarryWord::Bytes { offset, bytes } => {
                out.u64(*offset);
                out.bytes(bytes);
            }
            CarryWord::Read(up_to) => out.u64(*up_to),
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let kind = from.u8()?;
        if !(1..=4).contains(&kind) {
            return Err(WireError::UNKNOWN);
        }
        let to = from.option(Reader::node)?;
        let (end, number, by_opener) = (from.node()?, from.u64()?, from.bool()?);
        let word = match kind {
            1 => CarryWord::Open,
            2 => CarryWord::Bytes { offset: from.u64()?, bytes: from.bytes()? },
            3 => CarryWord::Read(from.u64()?),
            _ => CarryWord::Close,
        };
        from.end()?;
        Ok(Self { to, from: end, number, by_opener, word })
    }
}
