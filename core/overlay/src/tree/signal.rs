//! Signals in which two nodes tell each other topics and filters, version 1. All numbers are big-endian.
//!
//! ```text
//! signal   version = 1 u8 | kind u8 | body
//!
//! kind, body   1 snapshot begin
//!              2 snapshot chunk    at least one entry, none of them taken back
//!              3 snapshot end      number u64
//!              4 changes           number u64 | entries
//!              5 ack               number u64
//!              6 sync-ok
//!              7 digest            entries u64 | sum u64
//!              8 pull
//!
//! entry        kind u8: 0 withdraw a topic, 1 advertise a topic, 2 no longer want a filter, 3 want a filter
//!              text length u16 | text: a topic name or a topic filter
//! ```
//!
//! Entries fill the rest of the signal. Numbers grow from one to the next; an ack confirms its number and all before. Changes without
//! entries only ask for an ack. Decoding is strict: bytes that an encoder would not have written are refused.

use bytes::{BufMut, Bytes, BytesMut};
use sedge_mqtt::{TopicFilter, TopicName};

pub(super) use crate::wire::SignalError;
use crate::wire::{get_text, get_u8, get_u64, put_numbers, put_text};

const VERSION: u8 = 1;

/// One thing that a node tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Clients of the sender publish to the topic, or no longer.
    Topic { topic: TopicName, there: bool },
    /// Clients of the sender subscribe to the filter, or no longer.
    Filter { filter: TopicFilter, there: bool },
}

impl Entry {
    fn text(&self) -> &str {
        match self {
            Self::Topic { topic, .. } => topic.as_str(),
            Self::Filter { filter, .. } => filter.as_str(),
        }
    }

    /// How many bytes the entry takes.
    pub(super) fn encoded_len(&self) -> usize {
        1 + 2 + self.text().len()
    }
}

/// A signal, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    SnapshotBegin,
    SnapshotChunk(Vec<Entry>),
    SnapshotEnd(u64),
    Changes { number: u64, entries: Vec<Entry> },
    Ack(u64),
    SyncOk,
    Digest { entries: u64, sum: u64 },
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
            2 => Self::SnapshotChunk(get_entries(input, false)?),
            3 => Self::SnapshotEnd(get_u64(input)?),
            4 => Self::Changes { number: get_u64(input)?, entries: get_entries(input, true)? },
            5 => Self::Ack(get_u64(input)?),
            6 => Self::SyncOk,
            7 => Self::Digest { entries: get_u64(input)?, sum: get_u64(input)? },
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
            Self::SnapshotChunk(entries) => {
                out.put_u8(2);
                put_entries(entries, &mut out);
            }
            Self::SnapshotEnd(number) => put_numbers(3, &[*number], &mut out),
            Self::Changes { number, entries } => {
                put_numbers(4, &[*number], &mut out);
                put_entries(entries, &mut out);
            }
            Self::Ack(number) => put_numbers(5, &[*number], &mut out),
            Self::SyncOk => out.put_u8(6),
            Self::Digest { entries, sum } => put_numbers(7, &[*entries, *sum], &mut out),
            Self::Pull => out.put_u8(8),
        }
        out.freeze()
    }
}

fn put_entries(entries: &[Entry], out: &mut BytesMut) {
    for entry in entries {
        out.put_u8(match entry {
            Entry::Topic { there, .. } => u8::from(*there),
            Entry::Filter { there, .. } => 2 + u8::from(*there),
        });
        // Topic names and filters are at most 65,535 bytes long.
        put_text(entry.text(), out);
    }
}

fn get_entries(input: &mut &[u8], removals: bool) -> Result<Vec<Entry>, SignalError> {
    let mut entries = Vec::new();
    while !input.is_empty() {
        let kind = get_u8(input)?;
        let text = get_text(input, "text")?;
        let there = kind & 1 == 1;
        if !there && !removals {
            return Err(SignalError::Value("entry"));
        }
        entries.push(match kind {
            0 | 1 => Entry::Topic { topic: TopicName::new(text).ok().ok_or(SignalError::Value("topic"))?, there },
            2 | 3 => Entry::Filter { filter: TopicFilter::new(text).ok().ok_or(SignalError::Value("filter"))?, there },
            _ => return Err(SignalError::Value("entry")),
        });
    }
    if entries.is_empty() && !removals { Err(SignalError::Empty) } else { Ok(entries) }
}

/// Cuts entries into pieces of about `limit` bytes.
pub(super) fn cut(entries: impl Iterator<Item = Entry>, limit: usize) -> impl Iterator<Item = Vec<Entry>> {
    let mut entries = entries.peekable();
    core::iter::from_fn(move || {
        entries.peek()?;
        let mut piece = Vec::new();
        let mut bytes = 0;
        while bytes < limit {
            let Some(entry) = entries.next() else { break };
            bytes += entry.encoded_len();
            piece.push(entry);
        }
        Some(piece)
    })
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
