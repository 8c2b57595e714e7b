//! Messages of the graph.

use bytes::{BufMut, BytesMut};
use sedge_mqtt::TopicName;

use super::SignalError;
use super::wire::{
    get_key, get_note, get_option, get_peer, get_peers, get_side, get_status, get_topic, get_u8, get_u16, get_u32,
    get_u64, put_key, put_note, put_option, put_peer, put_peers, put_side, put_status, put_topic,
};
use crate::skip_graph::{Errand, Message};

const ROUTE: u8 = 1;
const JOINED: u8 = 2;
const WALK: u8 = 3;
const LINK: u8 = 4;
const LINKED: u8 = 5;
const LEAVE: u8 = 6;
const LEFT: u8 = 7;
const GONE: u8 = 8;
const CAST: u8 = 9;
const ORDER: u8 = 10;
const ASK: u8 = 11;
const ANSWER: u8 = 12;
const OUTSIDE: u8 = 13;
const PING: u8 = 14;
const PONG: u8 = 15;

pub(super) fn get_message(input: &mut &[u8]) -> Result<Message<TopicName>, SignalError> {
    Ok(match get_u8(input)? {
        ROUTE => {
            let to = get_option(input, get_key)?;
            let (target, hops) = (get_key(input)?, get_u16(input)?);
            Message::Route { to, target, hops, errand: get_errand(input)? }
        }
        JOINED => {
            let to = get_key(input)?;
            let (left, right) = (get_option(input, get_peer)?, get_option(input, get_peer)?);
            Message::Joined { to, left, right, status: get_option(input, get_status)? }
        }
        WALK => Message::Walk { to: get_key(input)?, peer: get_peer(input)?, side: get_side(input)? },
        LINK => Message::Link { to: get_key(input)?, peer: get_peer(input)?, level: get_u32(input)? },
        LINKED => {
            let (to, peer) = (get_key(input)?, get_peer(input)?);
            Message::Linked { to, peer, hint: get_option(input, get_peer)?, status: get_option(input, get_status)? }
        }
        LEAVE => {
            let (to, key, life) = (get_key(input)?, get_key(input)?, get_u64(input)?);
            Message::Leave { to, key, life, right: get_option(input, get_peer)?, hops: get_u16(input)? }
        }
        LEFT => Message::Left { to: get_key(input)?, by: get_peer(input)? },
        GONE => Message::Gone { key: get_key(input)?, life: get_u64(input)?, instead: get_peers(input)? },
        CAST => Message::Cast { note: get_note(input)?, topic: get_topic(input)?, status: get_status(input)? },
        ORDER => Message::Order { topic: get_topic(input)?, status: get_status(input)? },
        ASK => Message::Ask { to: get_key(input)?, from: get_key(input)? },
        ANSWER => Message::Answer { to: get_key(input)?, status: get_status(input)? },
        OUTSIDE => Message::Outside,
        PING => Message::Ping,
        PONG => Message::Pong,
        _ => return Err(SignalError::Value("kind of a message")),
    })
}

const fn kind(message: &Message<TopicName>) -> u8 {
    match message {
        Message::Route { .. } => ROUTE,
        Message::Joined { .. } => JOINED,
        Message::Walk { .. } => WALK,
        Message::Link { .. } => LINK,
        Message::Linked { .. } => LINKED,
        Message::Leave { .. } => LEAVE,
        Message::Left { .. } => LEFT,
        Message::Gone { .. } => GONE,
        Message::Cast { .. } => CAST,
        Message::Order { .. } => ORDER,
        Message::Ask { .. } => ASK,
        Message::Answer { .. } => ANSWER,
        Message::Outside => OUTSIDE,
        Message::Ping => PING,
        Message::Pong => PONG,
    }
}

pub(super) fn put_message(message: &Message<TopicName>, out: &mut BytesMut) {
    out.put_u8(kind(message));
    match message {
        Message::Route { to, target, hops, errand } => {
            put_option(to.as_ref(), out, put_key);
            put_key(target, out);
            out.put_u16(*hops);
            put_errand(errand, out);
        }
        Message::Joined { to, left, right, status } => {
            put_key(to, out);
            put_option(left.as_ref(), out, put_peer);
            put_option(right.as_ref(), out, put_peer);
            put_option(status.as_ref(), out, put_status);
        }
        Message::Walk { to, peer, side } => {
            put_key(to, out);
            put_peer(peer, out);
            put_side(*side, out);
        }
        Message::Link { to, peer, level } => {
            put_key(to, out);
            put_peer(peer, out);
            out.put_u32(*level);
        }
        Message::Linked { to, peer, hint, status } => {
            put_key(to, out);
            put_peer(peer, out);
            put_option(hint.as_ref(), out, put_peer);
            put_option(status.as_ref(), out, put_status);
        }
        Message::Leave { to, key, life, right, hops } => {
            put_key(to, out);
            put_key(key, out);
            out.put_u64(*life);
            put_option(right.as_ref(), out, put_peer);
            out.put_u16(*hops);
        }
        Message::Left { to, by } => {
            put_key(to, out);
            put_peer(by, out);
        }
        Message::Gone { key, life, instead } => {
            put_key(key, out);
            out.put_u64(*life);
            put_peers(instead, out);
        }
        Message::Cast { note, topic, status } => {
            put_note(note, out);
            put_topic(topic, out);
            put_status(status, out);
        }
        Message::Order { topic, status } => {
            put_topic(topic, out);
            put_status(status, out);
        }
        Message::Ask { to, from } => {
            put_key(to, out);
            put_key(from, out);
        }
        Message::Answer { to, status } => {
            put_key(to, out);
            put_status(status, out);
        }
        Message::Outside | Message::Ping | Message::Pong => {}
    }
}

fn get_errand(input: &mut &[u8]) -> Result<Errand<TopicName>, SignalError> {
    Ok(match get_u8(input)? {
        1 => Errand::Join(get_peer(input)?),
        2 => Errand::Meet(get_peer(input)?),
        3 => Errand::Report(get_topic(input)?),
        _ => return Err(SignalError::Value("errand")),
    })
}

fn put_errand(errand: &Errand<TopicName>, out: &mut BytesMut) {
    match errand {
        Errand::Join(peer) => {
            out.put_u8(1);
            put_peer(peer, out);
        }
        Errand::Meet(peer) => {
            out.put_u8(2);
            put_peer(peer, out);
        }
        Errand::Report(topic) => {
            out.put_u8(3);
            put_topic(topic, out);
        }
    }
}
