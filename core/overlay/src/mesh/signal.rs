//! Signals between two meshes over a link, version 1. All numbers are big-endian.
//!
//! ```text
//! signal   version = 1 u8 | kind u8 | body
//!
//! kind, body   1 snapshot begin
//!              2 snapshot chunk    at least one change, none of them a removal
//!              3 snapshot end      number u64
//!              4 adv               number u64 | at least one change
//!              5 ack               number u64
//!              6 sync-ok
//!              7 digest            entries u64 | hash u64
//!              8 pull
//!
//! change       op u8: 0 remove, 1 add offline, 2 add online | client | filter
//! client       length u16, at most 65,535 bytes of UTF-8
//! filter       length u16, a topic filter, `$share/group/` included
//! ```
//!
//! Changes fill the rest of the signal. The number of an adv or a snapshot end grows from one to the next; an ack confirms its number and
//! all before. Decoding is strict: bytes that an encoder would not have written are refused.

use bytes::{BufMut, Bytes, BytesMut};
use sedge_base::ClientId;
use sedge_mqtt::TopicFilter;

use crate::{Advert, AdvertOp};

pub(super) use crate::wire::SignalError;
use crate::wire::{get_text, get_u8, get_u64, put_numbers, put_text};

const VERSION: u8 = 1;

/// A signal, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    SnapshotBegin,
    SnapshotChunk(Vec<Advert>),
    SnapshotEnd(u64),
    Adv { number: u64, changes: Vec<Advert> },
    Ack(u64),
    SyncOk,
    Digest { entries: u64, hash: u64 },
    Pull,
}

impl Signal {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, SignalError> {
        let mut rest = bytes;
        let input = &mut rest;
        match get_u8(input)? {
            VERSION => {}
            other => return Err(SignalError::Version(other)),
        }
        let signal = match get_u8(input)? {
            1 => Self::SnapshotBegin,
            2 => Self::SnapshotChunk(get_changes(input, false)?),
            3 => Self::SnapshotEnd(get_u64(input)?),
            4 => Self::Adv { number: get_u64(input)?, changes: get_changes(input, true)? },
            5 => Self::Ack(get_u64(input)?),
            6 => Self::SyncOk,
            7 => Self::Digest { entries: get_u64(input)?, hash: get_u64(input)? },
            8 => Self::Pull,
            _ => return Err(SignalError::Value("kind")),
        };
        if input.is_empty() { Ok(signal) } else { Err(SignalError::Trailing) }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        match self {
            Self::SnapshotBegin => out.put_u8(1),
            Self::SnapshotChunk(changes) => {
                out.put_u8(2);
                put_changes(changes, &mut out);
            }
            Self::SnapshotEnd(number) => put_numbers(3, &[*number], &mut out),
            Self::Adv { number, changes } => {
                put_numbers(4, &[*number], &mut out);
                put_changes(changes, &mut out);
            }
            Self::Ack(number) => put_numbers(5, &[*number], &mut out),
            Self::SyncOk => out.put_u8(6),
            Self::Digest { entries, hash } => put_numbers(7, &[*entries, *hash], &mut out),
            Self::Pull => out.put_u8(8),
        }
        out.freeze()
    }
}

/// How many bytes this change takes; none if its client or filter is too long for MQTT.
pub(super) fn encoded_len(change: &Advert) -> Option<usize> {
    let (client, filter) = (change.client.as_str().len(), change.filter.as_str().len());
    u16::try_from(client.max(filter)).is_ok().then_some(1 + 2 + client + 2 + filter)
}

fn put_changes(changes: &[Advert], out: &mut BytesMut) {
    for change in changes {
        out.put_u8(match change.op {
            AdvertOp::Remove => 0,
            AdvertOp::Add { online: false } => 1,
            AdvertOp::Add { online: true } => 2,
        });
        put_text(change.client.as_str(), out);
        put_text(change.filter.as_str(), out);
    }
}

fn get_changes(input: &mut &[u8], removals: bool) -> Result<Vec<Advert>, SignalError> {
    let mut changes = Vec::new();
    while !input.is_empty() {
        let op = match get_u8(input)? {
            0 if removals => AdvertOp::Remove,
            1 => AdvertOp::Add { online: false },
            2 => AdvertOp::Add { online: true },
            _ => return Err(SignalError::Value("op")),
        };
        let client = ClientId::new(get_text(input, "client")?);
        let filter = TopicFilter::new(get_text(input, "filter")?).ok().ok_or(SignalError::Value("filter"))?;
        changes.push(Advert { client, filter, op });
    }
    // A question has none; a piece of a snapshot would say nothing.
    if changes.is_empty() && !removals { Err(SignalError::Empty) } else { Ok(changes) }
}

/// Whether a signal says that something was done, behind the publications before it.
pub(crate) fn promises(signal: &[u8]) -> bool {
    !matches!(signal.get(1), Some(1..=4 | 7 | 8))
}

/// For the fuzz target: whether these bytes are a signal. Reading must not panic, and an accepted signal must be written again byte for
/// byte.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_decode(data: &[u8]) -> bool {
    let Ok(signal) = Signal::decode(data) else { return false };
    assert_eq!(signal.encode(), data);
    true
}

#[cfg(test)]
mod tests;
