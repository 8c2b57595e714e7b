//! Signals between two nodes over a link, version 1: drawn in `docs/protocol/skip-graph.md`. Decoding is strict: bytes that an encoder
//! would not have written are refused.

mod graph;
mod wire;

pub(super) use crate::wire::SignalError;
use bytes::{BufMut, Bytes, BytesMut};
use sedge_mqtt::TopicName;

use wire::{get_topic, get_u8, get_u64, put_topic};

use crate::skip_graph::{Base, Message};

const VERSION: u8 = 1;

const MESH: u8 = 1;
const GRAPH: u8 = 2;
const NEWS: u8 = 3;
const ASK: u8 = 4;
const ANSWER: u8 = 5;

/// Longer names are no topics of the graph, so that the longest message, which names all neighbours of a virtual node, is far below 1 MiB.
pub(super) const MAX_TOPIC_BYTES: usize = 4096;

/// A signal, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// A signal of the mesh that carries interest which every node has to know.
    Mesh(Bytes),
    /// Messages of the graph.
    Graph { base: Base, messages: Vec<Message<TopicName>> },
    /// Clients of the sender begin or cease to subscribe to these.
    News(Vec<(TopicName, bool)>),
    /// Clients of the sender publish to these: which of them does the receiver subscribe to?
    Ask { number: u64, topics: Vec<TopicName> },
    /// The answer to the [`Signal::Ask`] of this number, in its order. Up to seven more than there were topics.
    Answer { number: u64, answers: Vec<bool> },
}

impl Signal {
    /// The part of an encoded signal that belongs to the mesh; none if the signal is another one.
    pub(super) fn mesh_part(signal: &[u8]) -> Option<&[u8]> {
        signal.strip_prefix(&[VERSION, MESH])
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, SignalError> {
        let mut rest = &bytes[..];
        let input = &mut rest;
        match get_u8(input)? {
            VERSION => {}
            other => return Err(SignalError::Version(other)),
        }
        let kind = get_u8(input)?;
        if input.is_empty() {
            return Err(SignalError::Empty);
        }
        Ok(match kind {
            MESH => Self::Mesh(bytes.slice(2..)),
            GRAPH => {
                let base = wire::get_base(input)?;
                Self::Graph { base, messages: get_all(input, graph::get_message)? }
            }
            NEWS => Self::News(get_all(input, |input| {
                let subscribed = wire::get_bool(input, "news")?;
                Ok((get_topic(input)?, subscribed))
            })?),
            ASK => Self::Ask { number: get_u64(input)?, topics: get_all(input, get_topic)? },
            ANSWER => {
                let number = get_u64(input)?;
                Self::Answer { number, answers: get_all(input, get_u8)?.into_iter().flat_map(bits).collect() }
            }
            _ => return Err(SignalError::Value("kind")),
        })
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        match self {
            Self::Mesh(bytes) => {
                out.put_u8(MESH);
                out.put_slice(bytes);
            }
            Self::Graph { base, messages } => {
                out.put_u8(GRAPH);
                wire::put_base(*base, &mut out);
                for message in messages {
                    graph::put_message(message, &mut out);
                }
            }
            Self::News(news) => {
                out.put_u8(NEWS);
                for (topic, subscribed) in news {
                    out.put_u8(u8::from(*subscribed));
                    put_topic(topic, &mut out);
                }
            }
            Self::Ask { number, topics } => {
                out.put_u8(ASK);
                out.put_u64(*number);
                for topic in topics {
                    put_topic(topic, &mut out);
                }
            }
            Self::Answer { number, answers } => {
                out.put_u8(ANSWER);
                out.put_u64(*number);
                for eight in answers.chunks(8) {
                    out.put_u8(eight.iter().rev().fold(0, |byte, answer| (byte << 1) | u8::from(*answer)));
                }
            }
        }
        out.freeze()
    }
}

/// Cuts items to be sent into pieces of about `limit` bytes, each with at least one item.
pub(super) fn cut<T>(items: impl IntoIterator<Item = T>, limit: usize, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut pieces = Vec::new();
    let (mut piece, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += size(&item);
        piece.push(item);
        if bytes >= limit {
            pieces.push(core::mem::take(&mut piece));
            bytes = 0;
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// How many bytes a topic takes in a signal.
pub(super) fn topic_len(topic: &TopicName) -> usize {
    2 + topic.as_bytes().len()
}

/// How many bytes a message of the graph takes in a signal.
pub(super) fn message_len(message: &Message<TopicName>) -> usize {
    let mut out = BytesMut::new();
    graph::put_message(message, &mut out);
    out.len()
}

fn bits(byte: u8) -> impl Iterator<Item = bool> {
    (0..8).map(move |bit| byte >> bit & 1 == 1)
}

fn get_all<T>(input: &mut &[u8], get: impl Fn(&mut &[u8]) -> Result<T, SignalError>) -> Result<Vec<T>, SignalError> {
    let mut all = Vec::new();
    while !input.is_empty() {
        all.push(get(input)?);
    }
    if all.is_empty() { Err(SignalError::Empty) } else { Ok(all) }
}

/// For the fuzz target: whether these bytes are a signal. Reading must not panic, and an accepted signal must be written again byte for
/// byte.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_decode(data: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(data);
    let Ok(signal) = Signal::decode(&bytes) else { return false };
    assert_eq!(signal.encode(), bytes);
    true
}

#[cfg(test)]
mod tests;
