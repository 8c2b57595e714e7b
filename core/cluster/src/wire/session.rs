//! A session on its way to its new owner.

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Incarnation, NodeId, Timestamp};
use sedge_broker::{
    InboundState, InflightPhase, InflightState, QueuedState, SessionState, SubscriptionState, WillState,
};
use sedge_mqtt::{
    MessageId, PacketId, QoS, ReasonCode, RetainHandling, SubscriptionOptions, Utf8, Version, Will, WillProperties,
};

use super::message::{read_id, write_id};
use super::{Reader, Result, WireError, Writer, read_message, write_message};
use crate::lineage::{Given, Lineage};
use crate::mail::{Known, Life};

/// Mail of the topic `$sedge/session`, between the former and the new owner of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionMail {
    /// To the new owner: a piece of the session or of what was left over.
    Part {
        /// The client.
        client: ClientId,
        /// Epoch of the new owner. With the highest bit set: of the one to whom the sender had given the
        /// session away before this came. With the second highest: this is sent ahead of the leftovers, and will be among them.
        epoch: u64,
        /// Whether this belongs to the messages that came after the session had been sent.
        leftovers: bool,
        /// Whether this is the last piece.
        last: bool,
        /// The piece; nothing at all if there is no session.
        bytes: Bytes,
    },
    /// To the former owner: publications reach the new owner now, send what came since.
    Release {
        /// The client.
        client: ClientId,
        /// Epoch of the new owner.
        epoch: u64,
        /// Nodes that know where to send, the new owner among them; `None` from and to nodes of version 1 of the protocol: all.
        known_to: Option<Vec<NodeId>>,
    },
    /// To the new owner, ahead of an inherited session: the messages that it came with. Filters only to nodes of version 2 of the protocol.
    Known(Known),
    /// To the new owner, ahead of a session: the last publication with QoS 1 or 2 of each shard that the session may have had.
    Had {
        /// The client.
        client: ClientId,
        /// One of each shard.
        marks: Vec<MessageId>,
        /// Publications of these that the session has not had: the last one before each gap, and the number of the gap's last one. Empty to nodes of
        /// version 1 of the protocol.
        gaps: Vec<(MessageId, u64)>,
        /// Publications in these gaps that the session has had all the same.
        fills: Vec<MessageId>,
        /// The owners from which the session has come.
        came: Lineage,
    },
    /// To the former owner: the session is here, and as safe as it has to be; it need not be kept there any longer.
    Safe {
        /// The client.
        client: ClientId,
        /// Epoch under which it was given away.
        epoch: u64,
    },
}

impl SessionMail {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        match self {
            Self::Part { client, epoch, leftovers, last, bytes } => {
                out.u8(1);
                out.client(client);
                out.u64(*epoch);
                out.bool(*leftovers);
                out.bool(*last);
                out.bytes(bytes);
            }
            Self::Release { client, epoch, known_to } => {
                out.u8(2);
                out.client(client);
                out.u64(*epoch);
                if let Some(known_to) = known_to {
                    out.list(known_to, |out, node| out.node(*node));
                }
            }
            Self::Known(Known { client, from, copied, added, filters }) => {
                out.u8(3);
                out.client(client);
                out.node(from.node);
                out.u64(from.incarnation.get());
                out.list(copied, write_id);
                out.list(added, write_id);
                if let Some(filters) = filters {
                    out.list(filters, |out, filter| out.text(filter.as_str()));
                }
            }
            Self::Had { client, marks, gaps, fills, came } => {
                out.u8(4);
                out.client(client);
                out.list(marks, write_id);
                out.list(gaps, |out, (before, last)| {
                    write_id(out, before);
                    out.u64(*last);
                });
                out.list(fills, write_id);
                let owners: Vec<Given> = came.owners().collect();
                out.list(&owners, |out, given| {
                    out.node(given.from);
                    out.u64(given.epoch);
                });
            }
            Self::Safe { client, epoch } => {
                out.u8(5);
                out.client(client);
                out.u64(*epoch);
            }
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let mail = match from.u8()? {
            1 => {
                let (client, epoch) = (from.client()?, from.u64()?);
                let (leftovers, last) = (from.bool()?, from.bool()?);
                Self::Part { client, epoch, leftovers, last, bytes: from.bytes()? }
            }
            2 => {
                let (client, epoch) = (from.client()?, from.u64()?);
                let known_to = if from.is_empty() { None } else { Some(from.list(Reader::node)?) };
                Self::Release { client, epoch, known_to }
            }
            3 => {
                let client = from.client()?;
                let life = Life { node: from.node()?, incarnation: Incarnation::new(from.u64()?) };
                let (copied, added) = (from.list(read_id)?, from.list(read_id)?);
                let filters = if from.is_empty() { None } else { Some(from.list(Reader::filter)?) };
                Self::Known(Known { client, from: life, copied, added, filters })
            }
            4 => {
                let (client, marks) = (from.client()?, from.list(read_id)?);
                let gaps = from.list(|from| Ok((read_id(from)?, from.u64()?)))?;
                let fills = from.list(read_id)?;
                let owners = from.list(|from| Ok(Given { from: from.node()?, epoch: from.u64()? }))?;
                Self::Had { client, marks, gaps, fills, came: Lineage::new(owners) }
            }
            5 => Self::Safe { client: from.client()?, epoch: from.u64()? },
            _ => return Err(WireError::UNKNOWN),
        };
        from.end()?;
        Ok(mail)
    }
}

/// Appends a session.
pub(crate) fn write_session(out: &mut Writer, session: &SessionState) {
    out.client(&session.client);
    out.u64(session.epoch);
    out.u8(session.version.level());
    out.u32(session.expiry_secs);
    out.u64(session.disconnected_at.as_millis());
    out.list(&session.subscriptions, write_subscription);
    out.list(&session.inflight, |out, inflight| {
        out.u16(inflight.packet_id.get());
        match &inflight.phase {
            InflightPhase::Sent(queued) => {
                out.bool(true);
                write_queued(out, queued);
            }
            InflightPhase::Released => out.bool(false),
        }
    });
    out.list(&session.queue, write_queued);
    out.list(&session.inbound, |out, inbound| {
        out.u16(inbound.packet_id.get());
        out.option(inbound.answer, |out, answer| out.u8(answer as u8));
    });
    out.option(session.will.as_ref(), write_will);
}

/// Reads what [`write_session`] has written.
pub(crate) fn read_session(from: &mut Reader) -> Result<SessionState> {
    let (client, epoch) = (from.client()?, from.u64()?);
    let version = read_version(from)?;
    let expiry_secs = from.u32()?;
    let disconnected_at = Timestamp::from_millis(from.u64()?);
    let subscriptions = from.list(read_subscription)?;
    let inflight = from.list(|from| {
        let packet_id = read_packet_id(from)?;
        let phase = if from.bool()? { InflightPhase::Sent(read_queued(from)?) } else { InflightPhase::Released };
        Ok(InflightState { packet_id, phase })
    })?;
    let queue = from.list(read_queued)?;
    let inbound = from.list(|from| {
        let packet_id = read_packet_id(from)?;
        let answer = from.option(|from| ReasonCode::from_u8(from.u8()?).ok_or(WireError("unknown reason code")))?;
        Ok(InboundState { packet_id, answer })
    })?;
    let will = from.option(read_will)?;
    Ok(SessionState {
        client,
        epoch,
        version,
        expiry_secs,
        disconnected_at,
        subscriptions,
        inflight,
        queue,
        inbound,
        will,
    })
}

pub(super) fn read_version(from: &mut Reader) -> Result<Version> {
    match from.u8()? {
        4 => Ok(Version::V311),
        5 => Ok(Version::V5),
        _ => Err(WireError("unknown protocol level")),
    }
}

pub(super) fn write_subscription(out: &mut Writer, subscription: &SubscriptionState) {
    out.text(subscription.filter.as_str());
    let options = subscription.options;
    out.u8(options.qos.as_u8());
    out.bool(options.no_local);
    out.bool(options.retain_as_published);
    out.u8(options.retain_handling as u8);
    out.option(subscription.id, Writer::u32);
}

pub(super) fn read_subscription(from: &mut Reader) -> Result<SubscriptionState> {
    let filter = from.filter()?;
    let qos = read_qos(from)?;
    let (no_local, retain_as_published) = (from.bool()?, from.bool()?);
    let retain_handling = match from.u8()? {
        0 => RetainHandling::Send,
        1 => RetainHandling::SendIfNew,
        2 => RetainHandling::DoNotSend,
        _ => return Err(WireError("unknown retain handling")),
    };
    let options = SubscriptionOptions { qos, no_local, retain_as_published, retain_handling };
    Ok(SubscriptionState { filter, options, id: from.option(Reader::u32)? })
}

fn write_queued(out: &mut Writer, queued: &QueuedState) {
    write_message(out, &queued.message);
    out.u8(queued.qos.as_u8());
    out.bool(queued.retain);
    out.list(&queued.subscription_ids, |out, id| out.u32(*id));
    out.option(queued.group.as_ref(), |out, group| out.text(group.as_str()));
}

fn read_queued(from: &mut Reader) -> Result<QueuedState> {
    let message = read_message(from)?;
    let (qos, retain) = (read_qos(from)?, from.bool()?);
    let subscription_ids = from.list(Reader::u32)?;
    let group = from.option(Reader::filter)?;
    Ok(QueuedState { message, qos, retain, subscription_ids, group })
}

pub(super) fn write_will(out: &mut Writer, state: &WillState) {
    let will = &state.will;
    out.text(will.topic.as_str());
    out.bytes(&will.payload);
    out.u8(will.qos.as_u8());
    out.bool(will.retain);
    let properties = &will.properties;
    out.option(properties.delay, Writer::u32);
    out.option(properties.payload_is_utf8, Writer::bool);
    out.option(properties.message_expiry, Writer::u32);
    out.option(properties.content_type.as_ref(), write_utf8);
    out.option(properties.response_topic.as_ref(), write_utf8);
    out.option(properties.correlation_data.as_ref(), |out, data| out.bytes(data));
    out.list(&properties.user, |out, (name, value)| {
        write_utf8(out, name);
        write_utf8(out, value);
    });
    out.u64(u64::try_from(state.remaining.as_millis()).unwrap_or(u64::MAX));
}

pub(super) fn read_will(from: &mut Reader) -> Result<WillState> {
    let (topic, payload) = (from.topic()?, from.bytes()?);
    let (qos, retain) = (read_qos(from)?, from.bool()?);
    let properties = WillProperties {
        delay: from.option(Reader::u32)?,
        payload_is_utf8: from.option(Reader::bool)?,
        message_expiry: from.option(Reader::u32)?,
        content_type: from.option(Reader::utf8)?,
        response_topic: from.option(Reader::utf8)?,
        correlation_data: from.option(Reader::bytes)?,
        user: from.list(|from| Ok((from.utf8()?, from.utf8()?)))?,
    };
    let will = Box::new(Will { topic, payload, qos, retain, properties });
    Ok(WillState { will, remaining: Duration::from_millis(from.u64()?) })
}

fn write_utf8(out: &mut Writer, text: &Utf8) {
    out.bytes(text.as_bytes());
}

pub(super) fn read_qos(from: &mut Reader) -> Result<QoS> {
    QoS::from_u8(from.u8()?).ok_or(WireError("unknown quality of service"))
}

pub(super) fn read_packet_id(from: &mut Reader) -> Result<PacketId> {
    PacketId::new(from.u16()?).ok_or(WireError("packet id 0"))
}
