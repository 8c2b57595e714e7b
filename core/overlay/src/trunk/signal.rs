//! Signals between two nodes about the tree over all nodes, version 1. All numbers are big-endian.
//!
//! ```text
//! signal    version = 1 u8 | claim | count u16 | deaf node u64 ... | count u16 | (node u64 | claim) ...
//! ```
//!
//! The first claim is that of the sender; see [`Claim`] for its layout. Then come the nodes that the sender has no link to, and claims of
//! others that it passes on. Decoding is strict: bytes that an encoder would not have written are refused.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sedge_base::NodeId;

use crate::spanning::Claim;

const VERSION: u8 = 1;
/// Counts beyond are refused: no cluster has as many nodes.
pub(super) const MAX_NODES: usize = 4096;

/// Why bytes are no signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignalError {
    #[error("the signal ends too early, or a claim contradicts itself")]
    Cut,
    #[error("bytes behind the end of the signal")]
    Trailing,
    #[error("tree signal version {0} is not supported")]
    Version(u8),
    #[error("{0} nodes in one signal; {MAX_NODES} are allowed")]
    Count(usize),
}

/// A signal, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) claim: Claim,
    pub(super) deaf: Vec<NodeId>,
    pub(super) passed: Vec<(NodeId, Claim)>,
}

impl Signal {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, SignalError> {
        let mut rest = bytes;
        let input = &mut rest;
        match input.try_get_u8().ok().ok_or(SignalError::Cut)? {
            VERSION => {}
            other => return Err(SignalError::Version(other)),
        }
        let claim = Claim::get(input).ok_or(SignalError::Cut)?;
        let deaf = get_each(input, get_node)?;
        let passed = get_each(input, |input| Some((get_node(input)?, Claim::get(input)?)))?;
        if input.is_empty() { Ok(Self { claim, deaf, passed }) } else { Err(SignalError::Trailing) }
    }

    /// At most [`MAX_NODES`] of each kind are written.
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        self.claim.put(&mut out);
        put_each(&self.deaf, &mut out, |node, out| out.put_u64(node.get()));
        put_each(&self.passed, &mut out, |(node, claim), out| {
            out.put_u64(node.get());
            claim.put(out);
        });
        out.freeze()
    }
}

fn get_node(input: &mut &[u8]) -> Option<NodeId> {
    input.try_get_u64().ok().map(NodeId::new)
}

fn get_each<T>(input: &mut &[u8], get: impl Fn(&mut &[u8]) -> Option<T>) -> Result<Vec<T>, SignalError> {
    let count = usize::from(input.try_get_u16().ok().ok_or(SignalError::Cut)?);
    if count > MAX_NODES {
        return Err(SignalError::Count(count));
    }
    (0..count).map(|_| get(input).ok_or(SignalError::Cut)).collect()
}

fn put_each<T>(items: &[T], out: &mut BytesMut, put: impl Fn(&T, &mut BytesMut)) {
    let count = u16::try_from(items.len().min(MAX_NODES)).unwrap_or_default();
    out.put_u16(count);
    items.iter().take(usize::from(count)).for_each(|item| put(item, out));
}

/// For the fuzz target: whether these bytes are a signal. Reading must not panic, and an accepted signal must be written again byte for
/// byte.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_decode(data: &[u8]) -> bool {
    let Ok(signal) = Signal::decode(data) else { return false };
    assert_eq!(signal.encode(), data);
    true
}
