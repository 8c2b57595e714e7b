//! One conversation with the broker: for one client, or an inlet.

use core::ops::{Deref, DerefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, Instant, Outbox};
use sedge_mqtt::{Decoder, Message, PacketId, QoS, SubscriptionOptions, TopicFilter, Utf8, Version};
use smallvec::SmallVec;

use crate::expected::{Expected, weight};
use crate::{LinkId, Origin, Receiver, SidecarConfig};

/// Index of a conversation.
pub(crate) type Key = usize;

/// State of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no connection; one will be made.
    Idle,
    /// A connection is being made.
    Dialling,
    /// CONNECT was sent.
    Greeting,
    /// CONNACK has come.
    Live,
    /// The session has ended; packets on their way to the broker still get their answers.
    Closing,
}

/// Owner of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// A client.
    Client(ClientId),
    /// The inlet with this number.
    Inlet(u16),
}

impl Party {
    /// The client identifier under which the broker knows the owner.
    pub(crate) fn client_id(&self, inlet_prefix: &str) -> Utf8 {
        let name = match self {
            Self::Client(client) => Utf8::new(client.as_str()),
            Self::Inlet(number) => Utf8::new(&format!("{inlet_prefix}{number}")),
        };
        name.unwrap_or_default()
    }
}

/// User name and password for the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<Utf8>,
    pub(crate) password: Option<Bytes>,
}

impl Login {
    /// `None` if there is neither.
    pub(crate) fn new(user: Option<Utf8>, password: Option<Bytes>) -> Option<Box<Self>> {
        (user.is_some() || password.is_some()).then(|| Box::new(Self { user, password }))
    }
}

/// Limits and abilities that the broker's CONNACK grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// QoS 1 and 2 publications without an answer.
    pub(crate) window: u16,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) ids: bool,
    pub(crate) packet_bytes: u32,
}

/// A publication on its way to the broker.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) number: u64,
    pub(crate) message: Arc<Message>,
    pub(crate) retain: bool,
    pub(crate) token: Option<u64>,
    pub(crate) receivers: SmallVec<[Receiver; 2]>,
    /// The publication was sent before, and has not been answered.
    pub(crate) was_sent: bool,
}

/// A publication that the broker has not answered.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: PacketId,
    pub(crate) carried: Carried,
}

/// A SUBSCRIBE or UNSUBSCRIBE that the broker has not answered.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Packet identifier under which the request was sent; `None`: it was not sent on this connection.
    pub(crate) id: Option<PacketId>,
    /// `None`: the sidecar asks by itself.
    pub(crate) token: Option<u64>,
    /// See [`crate::Input::Subscribe`].
    pub(crate) is_brought: bool,
    pub(crate) what: What,
}

/// See [`Asked`].
#[derive(Debug)]
pub(crate) enum What {
    Subscribe(Vec<crate::Request>),
    Unsubscribe(Vec<TopicFilter>),
}

/// A subscription that the broker has, or is to have again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) options: SubscriptionOptions,
    pub(crate) id: u32,
}

/// A list that most conversations have no use for most of the time: it takes memory only while something was put into it and not given back.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "an empty list takes 8 bytes in place of 32 in each of many conversations")]
pub(crate) struct Seldom<T>(Option<Box<VecDeque<T>>>);

impl<T: 'static> Seldom<T> {
    const EMPTY: &VecDeque<T> = &VecDeque::new();

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flat_map(|list| list.iter_mut())
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.0.as_mut()?.pop_front()
    }

    pub(crate) fn take_all(&mut self) -> VecDeque<T> {
        self.0.take().map(|list| *list).unwrap_or_default()
    }

    fn give_back_if_empty(&mut self) {
        self.0 = self.0.take().filter(|list| !list.is_empty());
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: 'static> Deref for Seldom<T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &VecDeque<T> {
        self.0.as_deref().unwrap_or(Self::EMPTY)
    }
}

impl<T: 'static> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut VecDeque<T> {
        self.0.get_or_insert_default()
    }
}

/// Whether the packets of a conversation are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As soon as their bytes come.
    Now,
    /// By [`crate::Sidecar::read_on`]: some deliveries were read, and their client may have no room for more.
    Later,
    /// Not at all: the client is behind.
    Held,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) party: Party,
    /// `None`: the broker is told neither user name nor password.
    pub(crate) login: Option<Box<Login>>,
    /// Where the client was when it came, if the broker is told that.
    pub(crate) origin: Option<Box<Origin>>,
    /// The version of the client.
    pub(crate) asked_for: Version,
    /// The version to be tried.
    pub(crate) wanted: Version,
    /// The version in use.
    pub(crate) version: Version,
    pub(crate) phase: Phase,
    pub(crate) link: Option<LinkId>,
    pub(crate) decoder: Decoder,
    pub(crate) reading: Reading,
    /// Until then deliveries of publications that the broker has answered may wait unread, since the conversation was held.
    pub(crate) behind_until: Instant,
    pub(crate) outbox: Outbox,
    /// [`crate::Output::Transmit`] was put out and the outbox not looked at since.
    pub(crate) transmitting: bool,
    pub(crate) last_heard: Instant,
    /// Time at which the sidecar sent a PINGREQ of its own; `None` as soon as any packet comes.
    pub(crate) pinged: Option<Instant>,
    /// Tokens of the clients' requests that wait for each PINGRESP; `None`: a PINGREQ of the sidecar.
    pub(crate) pings: Seldom<Option<u64>>,
    /// Time since which the broker owes deliveries and answers, and has sent nothing.
    pub(crate) hangs_since: Option<Instant>,
    /// The client waits for [`crate::Output::Attached`].
    pub(crate) attaching: bool,
    pub(crate) failures: u32,
    pub(crate) allowed: Allowed,
    pub(crate) filters: BTreeMap<TopicFilter, Held>,
    pub(crate) asked: Seldom<Asked>,
    /// Requests of [`Conversation::asked`] that restore the subscriptions which the broker had.
    pub(crate) replaying: usize,
    /// Retained messages are not wanted: the client has had them.
    pub(crate) mutes_retained: bool,
    pub(crate) unsent: Seldom<Carried>,
    pub(crate) unsent_bytes: usize,
    pub(crate) sent: Seldom<Sent>,
    pub(crate) last_id: u16,
    /// QoS 2 deliveries without PUBREL.
    pub(crate) half: BTreeSet<PacketId>,
    pub(crate) expected: Option<Box<Expected>>,
}

impl Conversation {
    pub(crate) fn new(party: Party, wanted: Version, now: Instant, config: &SidecarConfig) -> Self {
        Self {
            party,
            login: None,
            origin: None,
            asked_for: wanted,
            wanted,
            version: wanted,
            phase: Phase::Idle,
            link: None,
            decoder: Decoder::client(config.max_packet_bytes).lenient(),
            reading: Reading::Now,
            behind_until: Instant::ZERO,
            outbox: Outbox::new(),
            transmitting: false,
            last_heard: now,
            pinged: None,
            pings: Seldom::default(),
            hangs_since: None,
            attaching: false,
            failures: 0,
            allowed: Allowed { window: 1, qos: QoS::ExactlyOnce, retain: true, ids: true, packet_bytes: u32::MAX },
            filters: BTreeMap::new(),
            asked: Seldom::default(),
            replaying: 0,
            mutes_retained: false,
            unsent: Seldom::default(),
            unsent_bytes: 0,
            sent: Seldom::default(),
            last_id: 0,
            half: BTreeSet::new(),
            expected: None,
        }
    }

    /// Whether the broker has all subscriptions of the client, so that it delivers the publications that match.
    pub(crate) fn is_current(&self) -> bool {
        let lacks = self.replaying > 0 || self.asked.iter().any(|asked| asked.is_brought);
        self.phase == Phase::Live && !lacks && self.hangs_since.is_none()
    }

    pub(crate) fn client(&self) -> Option<&ClientId> {
        match &self.party {
            Party::Client(client) => Some(client),
            Party::Inlet(_) => None,
        }
    }

    /// The name in the client's certificate that the broker was told: it may know the client by that name.
    pub(crate) fn certificate(&self) -> Option<&str> {
        self.origin.as_ref()?.certificate.as_deref()
    }

    /// Whether deliveries of this publication are matched with it: where acknowledgements or properties depend on it.
    pub(crate) fn tracks(&self, message: &Message) -> bool {
        let has_more = message.properties.is_some() || message.expires_at.is_some();
        message.qos > QoS::AtMostOnce || (self.version == Version::V311 && has_more)
    }

    /// A packet identifier that is free.
    pub(crate) fn next_id(&mut self) -> Option<PacketId> {
        for _ in 0..=u16::MAX {
            self.last_id = self.last_id.wrapping_add(1);
            let Some(id) = PacketId::new(self.last_id) else { continue };
            let in_use =
                self.sent.iter().any(|sent| sent.id == id) || self.asked.iter().any(|asked| asked.id == Some(id));
            if !in_use {
                return Some(id);
            }
        }
        None
    }

    pub(crate) fn push_unsent(&mut self, carried: Carried) {
        self.unsent_bytes += weight(&carried.message);
        self.unsent.push_back(carried);
    }

    pub(crate) fn pop_unsent(&mut self) -> Option<Carried> {
        let carried = self.unsent.pop_front()?;
        self.unsent_bytes -= weight(&carried.message);
        Some(carried)
    }

    /// The token of the client's PINGREQ that the broker has answered, if the PINGREQ is a client's. Lists that are empty give their memory back: whoever
    /// pings has had nothing to send for some time.
    pub(crate) fn answered_ping(&mut self) -> Option<u64> {
        let token = self.pings.pop_front().flatten();
        self.pings.give_back_if_empty();
        self.asked.give_back_if_empty();
        self.unsent.give_back_if_empty();
        self.sent.give_back_if_empty();
        token
    }

    /// The connection is gone: packets that the broker has not answered are sent again, ahead of packets that were not sent yet.
    pub(crate) fn disconnect(&mut self, config: &SidecarConfig) {
        self.link = None;
        self.phase = Phase::Idle;
        self.decoder = Decoder::client(config.max_packet_bytes).lenient();
        self.reading = Reading::Now;
        self.behind_until = Instant::ZERO;
        self.outbox = Outbox::new();
        self.transmitting = false;
        self.hangs_since = None;
        self.pinged = None;
        self.half = BTreeSet::new();
        self.asked.retain(|asked| asked.token.is_some());
        for asked in self.asked.iter_mut() {
            asked.id = None;
        }
        self.replaying = 0;
        for Sent { mut carried, .. } in self.sent.take_all().into_iter().rev() {
            carried.was_sent = true;
            self.unsent_bytes += weight(&carried.message);
            self.unsent.push_front(carried);
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use sedge_base::{Incarnation, NodeId, ShardId};
    use sedge_mqtt::{MessageId, ReadAt, Stamp, TopicName};

    use super::*;

    pub(crate) fn message(topic: &str, payload: &str) -> Arc<Message> {
        with_qos(topic, payload, QoS::AtLeastOnce)
    }

    pub(crate) fn with_qos(topic: &str, payload: &str, qos: QoS) -> Arc<Message> {
        let node = NodeId::new(1);
        Arc::new(Message {
            id: MessageId { node, incarnation: Incarnation::new(1), shard: ShardId(0), seq: 1 },
            topic: TopicName::new(topic).unwrap(),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            qos,
            retain: false,
            properties: None,
            stamp: Stamp { millis: 0, counter: 0, node, shard: ShardId(0) },
            expires_at: None,
            publisher: None,
            read_at: ReadAt::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IL-27: a client that is idle costs little memory.
    #[test]
    fn an_idle_conversation_is_small_and_keeps_no_lists() {
        assert!(size_of::<Conversation>() <= 392, "{}", size_of::<Conversation>());
        let party = Party::Client(ClientId::new("a"));
        let mut idle = Conversation::new(party, Version::V5, Instant::ZERO, &SidecarConfig::default());
        idle.pings.extend([Some(7), None]);
        idle.asked.push_back(Asked { id: None, token: None, is_brought: false, what: What::Unsubscribe(Vec::new()) });
        assert_eq!(idle.answered_ping(), Some(7));
        assert_eq!((idle.pings.len(), idle.asked.len()), (1, 1), "what waits stays");
        idle.asked.clear();
        assert_eq!(idle.answered_ping(), None);
        assert!(idle.pings.0.is_none() && idle.asked.0.is_none());
        assert!(idle.sent.0.is_none() && idle.unsent.0.is_none());
    }
}
