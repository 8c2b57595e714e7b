//! Parts of signals. All numbers are big-endian.

use bytes::{BufMut, BytesMut};
use sedge_base::NodeId;
use sedge_mqtt::TopicName;

use super::{MAX_TOPIC_BYTES, SignalError};
use crate::skip_graph::{Base, End, Key, Note, Peer, Range, Role, Side, Status, Vector};
pub(super) use crate::wire::{get_bool, get_u8, get_u16, get_u32, get_u64};

type Result<T> = core::result::Result<T, SignalError>;

pub(super) fn get_base(input: &mut &[u8]) -> Result<Base> {
    match get_u8(input)? {
        2 => Ok(Base::Two),
        4 => Ok(Base::Four),
        16 => Ok(Base::Sixteen),
        _ => Err(SignalError::Value("base")),
    }
}

pub(super) fn put_base(base: Base, out: &mut BytesMut) {
    out.put_u8(match base {
        Base::Two => 2,
        Base::Four => 4,
        Base::Sixteen => 16,
    });
}

pub(super) fn get_topic(input: &mut &[u8]) -> Result<TopicName> {
    let len = usize::from(get_u16(input)?);
    if len > MAX_TOPIC_BYTES {
        return Err(SignalError::Value("length of a topic"));
    }
    let (text, rest) = input.split_at_checked(len).ok_or(SignalError::Truncated)?;
    *input = rest;
    let text = core::str::from_utf8(text).ok().ok_or(SignalError::Value("topic"))?;
    let topic = TopicName::new(text).ok().ok_or(SignalError::Value("topic"))?;
    if topic.is_reserved() { Err(SignalError::Value("topic")) } else { Ok(topic) }
}

pub(super) fn put_topic(topic: &TopicName, out: &mut BytesMut) {
    // Every topic written here is a topic of the graph, so it is not longer than allowed.
    out.put_u16(u16::try_from(topic.as_bytes().len()).unwrap_or(u16::MAX));
    out.put_slice(topic.as_bytes());
}

pub(super) fn get_key(input: &mut &[u8]) -> Result<Key<TopicName>> {
    let role = match get_u8(input)? {
        0 => return Ok(Key::placeholder(get_node(input)?)),
        1 => Role::Publisher,
        2 => Role::Subscriber,
        _ => return Err(SignalError::Value("kind of a key")),
    };
    let topic = get_topic(input)?;
    Ok(Key::new(topic, role, get_node(input)?))
}

pub(super) fn put_key(key: &Key<TopicName>, out: &mut BytesMut) {
    match (&key.topic, key.role) {
        (None, _) => out.put_u8(0),
        (Some(topic), role) => {
            out.put_u8(if role == Role::Publisher { 1 } else { 2 });
            put_topic(topic, out);
        }
    }
    out.put_u64(key.node.get());
}

pub(super) fn get_node(input: &mut &[u8]) -> Result<NodeId> {
    get_u64(input).map(NodeId::new)
}

pub(super) fn get_peer(input: &mut &[u8]) -> Result<Peer<TopicName>> {
    let key = get_key(input)?;
    let vector = Vector::new(get_u64(input)?);
    Ok(Peer { key, vector, life: get_u64(input)? })
}

pub(super) fn put_peer(peer: &Peer<TopicName>, out: &mut BytesMut) {
    put_key(&peer.key, out);
    out.put_u64(peer.vector.get());
    out.put_u64(peer.life);
}

pub(super) fn get_option<T>(input: &mut &[u8], get: impl Fn(&mut &[u8]) -> Result<T>) -> Result<Option<T>> {
    if get_bool(input, "presence")? { get(input).map(Some) } else { Ok(None) }
}

pub(super) fn put_option<T>(value: Option<&T>, out: &mut BytesMut, put: impl Fn(&T, &mut BytesMut)) {
    out.put_u8(u8::from(value.is_some()));
    if let Some(value) = value {
        put(value, out);
    }
}

pub(super) fn get_side(input: &mut &[u8]) -> Result<Side> {
    Ok(if get_bool(input, "side")? { Side::Right } else { Side::Left })
}

pub(super) fn put_side(side: Side, out: &mut BytesMut) {
    out.put_u8(u8::from(side == Side::Right));
}

pub(super) fn get_status(input: &mut &[u8]) -> Result<Status> {
    let active = get_bool(input, "status")?;
    Ok(Status { active, epoch: get_u64(input)? })
}

pub(super) fn put_status(status: &Status, out: &mut BytesMut) {
    out.put_u8(u8::from(status.active));
    out.put_u64(status.epoch);
}

fn get_end(input: &mut &[u8]) -> Result<End<TopicName>> {
    let included = get_bool(input, "end of a range")?;
    Ok(End { key: get_key(input)?, included })
}

fn put_end(end: &End<TopicName>, out: &mut BytesMut) {
    out.put_u8(u8::from(end.included));
    put_key(&end.key, out);
}

fn get_range(input: &mut &[u8]) -> Result<Range<TopicName>> {
    Ok(Range { low: get_end(input)?, high: get_end(input)? })
}

fn put_range(range: &Range<TopicName>, out: &mut BytesMut) {
    put_end(&range.low, out);
    put_end(&range.high, out);
}

pub(super) fn get_note(input: &mut &[u8]) -> Result<Note<TopicName>> {
    let (whole, piece) = (get_range(input)?, get_range(input)?);
    let source = get_node(input)?;
    Ok(Note { whole, piece, source, hops: get_u16(input)? })
}

pub(super) fn put_note(note: &Note<TopicName>, out: &mut BytesMut) {
    put_range(&note.whole, out);
    put_range(&note.piece, out);
    out.put_u64(note.source.get());
    out.put_u16(note.hops);
}

pub(super) fn get_peers(input: &mut &[u8]) -> Result<Vec<Peer<TopicName>>> {
    let count = get_u8(input)?;
    (0..count).map(|_| get_peer(input)).collect()
}

pub(super) fn put_peers(peers: &[Peer<TopicName>], out: &mut BytesMut) {
    // Rows have at most one neighbour for each digit of a vector, and one own virtual node follows.
    let count = u8::try_from(peers.len()).unwrap_or(u8::MAX);
    out.put_u8(count);
    peers.iter().take(usize::from(count)).for_each(|peer| put_peer(peer, out));
}
