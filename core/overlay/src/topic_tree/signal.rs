//! Signals between two nodes about topics, version 1. All numbers are big-endian; `docs/protocol/topic-tree.md` draws the layout. Decoding
//! is strict: bytes that an encoder would not have written are refused.

use bytes::{BufMut, Bytes, BytesMut};
use sedge_base::NodeId;
use sedge_mqtt::TopicFilter;

use super::interest::{Counts, Interest, Role};

pub(super) use crate::wire::SignalError;
use crate::wire::{get_bool, get_text, get_u8, get_u32, get_u64, put_numbers, put_text};

const VERSION: u8 = 1;

/// One change of a node's part in topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Begins(Interest),
    Ends(Interest),
    /// Members of a shared subscription at the node; [`Counts::NONE`]: none any more.
    Group(TopicFilter, Counts),
}

/// The facts that a node tells everybody about itself and its links: all trees are computed from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) capacity: u32,
    pub(super) clients: u32,
    /// Topics rooted at the node.
    pub(super) rooted: u32,
    /// Linked nodes and the cost of the round trip to each, in microseconds; in the order of the nodes.
    pub(super) round_trips: Vec<(NodeId, u32)>,
}

/// Key of a topic or of a set of members, and the node that was elected root of it.
pub(super) type Elected = (u64, NodeId);

/// A signal, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    SnapshotBegin,
    /// Changes, none of which ends anything.
    SnapshotChunk(Vec<Change>),
    SnapshotEnd(u64),
    /// The topic PINGREQ.
    Ask {
        number: u64,
        changes: Vec<Change>,
    },
    /// The topic PINGRESP of a node that is interested as well.
    Answer(Vec<Interest>),
    /// Everything up to this number is done; `whole`: a snapshot is among it.
    Confirm {
        number: u64,
        whole: bool,
    },
    /// Number of signals that were sent over this link before, and the sum of the announced interests.
    Digest {
        signals: u64,
        entries: u64,
        hash: u64,
    },
    Pull,
    Facts(Facts),
    Roots(Vec<Elected>),
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
            2 => Self::SnapshotChunk(get_some(input, |input| get_change(input, false))?),
            3 => Self::SnapshotEnd(get_u64(input)?),
            4 => Self::Ask { number: get_u64(input)?, changes: get_all(input, |input| get_change(input, true))? },
            5 => Self::Answer(get_some(input, get_interest)?),
            6 => Self::Confirm { number: get_u64(input)?, whole: get_bool(input, "whole")? },
            7 => Self::Digest { signals: get_u64(input)?, entries: get_u64(input)?, hash: get_u64(input)? },
            8 => Self::Pull,
            9 => Self::Facts(get_facts(input)?),
            10 => Self::Roots(get_some(input, |input| Ok((get_u64(input)?, NodeId::new(get_u64(input)?))))?),
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
            Self::Ask { number, changes } => {
                put_numbers(4, &[*number], &mut out);
                put_changes(changes, &mut out);
            }
            Self::Answer(interests) => {
                out.put_u8(5);
                for interest in interests {
                    put_interest(interest, &mut out);
                }
            }
            Self::Confirm { number, whole } => {
                put_numbers(6, &[*number], &mut out);
                out.put_u8(u8::from(*whole));
            }
            Self::Digest { signals, entries, hash } => put_numbers(7, &[*signals, *entries, *hash], &mut out),
            Self::Pull => out.put_u8(8),
            Self::Facts(facts) => put_facts(facts, &mut out),
            Self::Roots(roots) => {
                out.put_u8(10);
                for (key, root) in roots {
                    out.put_u64(*key);
                    out.put_u64(root.get());
                }
            }
        }
        out.freeze()
    }
}

/// How many bytes a change takes; none if its filter is too long for MQTT.
pub(super) fn change_len(change: &Change) -> Option<usize> {
    match change {
        Change::Begins(interest) | Change::Ends(interest) => interest_len(interest),
        Change::Group(filter, _) => text_len(filter).map(|len| 1 + len + 8),
    }
}

/// How many bytes an interest takes; none if its filter is too long for MQTT.
pub(super) fn interest_len(interest: &Interest) -> Option<usize> {
    text_len(&interest.filter).map(|len| 1 + len)
}

/// How many bytes the root of a topic takes.
pub(super) const ROOT_LEN: usize = 16;

fn text_len(filter: &TopicFilter) -> Option<usize> {
    let len = filter.as_str().len();
    u16::try_from(len).is_ok().then_some(2 + len)
}

fn put_changes(changes: &[Change], out: &mut BytesMut) {
    for change in changes {
        put_change(change, out);
    }
}

fn put_change(change: &Change, out: &mut BytesMut) {
    match change {
        Change::Begins(interest) => put_interest(interest, out),
        Change::Ends(interest) => {
            out.put_u8(if interest.role == Role::Publisher { 3 } else { 4 });
            put_text(interest.filter.as_str(), out);
        }
        Change::Group(filter, counts) => {
            out.put_u8(5);
            put_text(filter.as_str(), out);
            out.put_u32(counts.online);
            out.put_u32(counts.offline);
        }
    }
}

fn put_interest(interest: &Interest, out: &mut BytesMut) {
    out.put_u8(if interest.role == Role::Publisher { 1 } else { 2 });
    put_text(interest.filter.as_str(), out);
}

fn put_facts(facts: &Facts, out: &mut BytesMut) {
    out.put_u8(9);
    for number in [facts.capacity, facts.clients, facts.rooted] {
        out.put_u32(number);
    }
    for (node, micros) in &facts.round_trips {
        out.put_u64(node.get());
        out.put_u32(*micros);
    }
}

/// Entries up to the end of the signal.
fn get_all<T>(input: &mut &[u8], get: impl Fn(&mut &[u8]) -> Result<T, SignalError>) -> Result<Vec<T>, SignalError> {
    let mut all = Vec::new();
    while !input.is_empty() {
        all.push(get(input)?);
    }
    Ok(all)
}

fn get_some<T>(input: &mut &[u8], get: impl Fn(&mut &[u8]) -> Result<T, SignalError>) -> Result<Vec<T>, SignalError> {
    let all = get_all(input, get)?;
    if all.is_empty() { Err(SignalError::Empty) } else { Ok(all) }
}

fn get_change(input: &mut &[u8], endings: bool) -> Result<Change, SignalError> {
    match get_u8(input)? {
        1 => Ok(Change::Begins(Interest { filter: get_topic(input)?, role: Role::Publisher })),
        2 => Ok(Change::Begins(Interest { filter: get_plain(input)?, role: Role::Subscriber })),
        3 if endings => Ok(Change::Ends(Interest { filter: get_topic(input)?, role: Role::Publisher })),
        4 if endings => Ok(Change::Ends(Interest { filter: get_plain(input)?, role: Role::Subscriber })),
        5 => {
            let group = get_filter(input)?;
            let counts = Counts { online: get_u32(input)?, offline: get_u32(input)? };
            if group.share_group().is_none() || (counts == Counts::NONE && !endings) {
                return Err(SignalError::Value("group"));
            }
            Ok(Change::Group(group, counts))
        }
        _ => Err(SignalError::Value("change")),
    }
}

fn get_interest(input: &mut &[u8]) -> Result<Interest, SignalError> {
    match get_change(input, false)? {
        Change::Begins(interest) => Ok(interest),
        Change::Ends(_) | Change::Group(..) => Err(SignalError::Value("answer")),
    }
}

fn get_topic(input: &mut &[u8]) -> Result<TopicFilter, SignalError> {
    let filter = get_plain(input)?;
    if filter.has_wildcard() { Err(SignalError::Value("topic")) } else { Ok(filter) }
}

fn get_plain(input: &mut &[u8]) -> Result<TopicFilter, SignalError> {
    let filter = get_filter(input)?;
    if filter.share_group().is_some() { Err(SignalError::Value("filter")) } else { Ok(filter) }
}

fn get_filter(input: &mut &[u8]) -> Result<TopicFilter, SignalError> {
    TopicFilter::new(get_text(input, "filter")?).ok().ok_or(SignalError::Value("filter"))
}

fn get_facts(input: &mut &[u8]) -> Result<Facts, SignalError> {
    let (capacity, clients, rooted) = (get_u32(input)?, get_u32(input)?, get_u32(input)?);
    let round_trips = get_all(input, |input| Ok((NodeId::new(get_u64(input)?), get_u32(input)?)))?;
    if !round_trips.is_sorted_by(|(one, _), (next, _)| one < next) {
        return Err(SignalError::Value("order: round trips"));
    }
    Ok(Facts { capacity, clients, rooted, round_trips })
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
