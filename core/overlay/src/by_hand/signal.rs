//! Signals between two nodes about chosen links, version 1. All numbers are big-endian; reading is strict.
//!
//! ```text
//! signal   0 u8 | signal of the algorithm that knows the interest of the nodes
//!          1 u8 | version = 1 u8 | number u64 | count u16 | node u64 ... | count u16 | node u64 ...   links chosen, links ended
//!          2 u8 | version = 1 u8 | number u64                                                         the word of this number is heard
//! ```

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use sedge_base::NodeId;

use super::graph::{LINKS_MAX, Word};
use crate::wire::{SignalError, get_u8, get_u16, get_u64};

const VERSION: u8 = 1;
/// The first byte of signals of the algorithm inside.
pub(super) const INNER: u8 = 0;
const WORD: u8 = 1;
const HEARD: u8 = 2;

/// A signal, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// A signal of the algorithm inside.
    Inner(Bytes),
    /// The sender's word about its links. Numbers grow.
    Word(u64, Word),
    /// The sender goes by the receiver's word of this number.
    Heard(u64),
}

impl Signal {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Inner(bytes) => {
                out.put_u8(INNER);
                out.put_slice(bytes);
            }
            Self::Word(number, Word { links, cuts }) => {
                out.put_slice(&[WORD, VERSION]);
                out.put_u64(*number);
                put_nodes(links, &mut out);
                put_nodes(cuts, &mut out);
            }
            Self::Heard(number) => {
                out.put_slice(&[HEARD, VERSION]);
                out.put_u64(*number);
            }
        }
        out.freeze()
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, SignalError> {
        let mut rest = &bytes[..];
        let input = &mut rest;
        let kind = get_u8(input)?;
        if kind == INNER {
            return Ok(Self::Inner(bytes.slice(1..)));
        }
        match get_u8(input)? {
            VERSION => {}
            other => return Err(SignalError::Version(other)),
        }
        let number = get_u64(input)?;
        let signal = match kind {
            WORD => Self::Word(number, Word { links: get_nodes(input)?, cuts: get_nodes(input)? }),
            HEARD => Self::Heard(number),
            _ => return Err(SignalError::Value("the kind of the signal")),
        };
        if input.is_empty() { Ok(signal) } else { Err(SignalError::Trailing) }
    }
}

fn put_nodes(nodes: &BTreeSet<NodeId>, out: &mut BytesMut) {
    let count = nodes.len().min(LINKS_MAX);
    out.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
    nodes.iter().take(count).for_each(|node| out.put_u64(node.get()));
}

fn get_nodes(input: &mut &[u8]) -> Result<BTreeSet<NodeId>, SignalError> {
    let count = usize::from(get_u16(input)?);
    if count > LINKS_MAX {
        return Err(SignalError::Value("the number of links"));
    }
    let mut nodes = BTreeSet::new();
    for _ in 0..count {
        let node = NodeId::new(get_u64(input)?);
        if nodes.last().is_some_and(|last| *last >= node) {
            return Err(SignalError::Value("the order of links"));
        }
        nodes.insert(node);
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_they_were_written() {
        let nodes = |ids: &[u64]| ids.iter().map(|id| NodeId::new(*id)).collect();
        let word = Word { links: nodes(&[2, 3]), cuts: nodes(&[9]) };
        let inner = Signal::Inner(Bytes::from_static(b"x"));
        for signal in [Signal::Word(7, word.clone()), Signal::Word(1, Word::default()), Signal::Heard(7), inner] {
            assert_eq!(Signal::decode(&signal.encode()), Ok(signal));
        }
        let bytes = Signal::Word(7, word).encode();
        for len in 1..bytes.len() {
            assert_eq!(Signal::decode(&bytes.slice(..len)), Err(SignalError::Truncated), "{len}");
        }
        let wrong: [&'static [u8]; 4] = [
            &[3, 1, 0, 0, 0, 0, 0, 0, 0, 1],
            &[2, 2, 0, 0, 0, 0, 0, 0, 0, 1],
            &[2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            &[1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255],
        ];
        for bytes in wrong {
            assert!(Signal::decode(&Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
    }
}
