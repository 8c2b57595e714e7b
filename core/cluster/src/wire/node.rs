//! Mail between nodes about themselves and about what their operators ask for.

use bytes::Bytes;
use sedge_base::{ClientId, NodeId, Timestamp};
use sedge_mqtt::{ReasonCode, TopicFilter, Utf8};

use super::{Reader, Result, WireError, Writer};

/// Mail of the topic `$sedge/node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeMail {
    /// Where clients reach the sender.
    Clients {
        /// As a server reference of MQTT 5.0 (section 4.11), without spaces.
        address: Utf8,
    },
    /// An operator ends a client's connection. Answer: [`NodeMail::Kicked`].
    Kick {
        /// Number of the request at the sender.
        request: u64,
        /// The client.
        client: ClientId,
        /// The text for the client (5.0).
        reason: ReasonCode,
        /// Whether its session ends, too.
        end_session: bool,
    },
    /// Answer to [`NodeMail::Kick`].
    Kicked {
        /// Number from the request.
        request: u64,
        /// Whether the sender owns the client, so that its connection was ended.
        owned: bool,
    },
    /// Whether the sender has no room to keep publications with QoS 1 and 2.
    Full {
        /// Whether that is so.
        full: bool,
    },
    /// Topics for which the sender has no room, all of them.
    ClosedTopics {
        /// Filters of the topics: publishers to them are refused.
        filters: Vec<TopicFilter>,
    },
    /// Whether the sender is being emptied: it wants no sessions, and no copies of any.
    Draining {
        /// Whether that is so.
        draining: bool,
    },
    /// Answer with [`NodeMail::Heard`] behind everything that the receiver has to say to what came before this.
    Hear {
        /// Number of the question at the sender.
        number: u64,
    },
    /// Answer to [`NodeMail::Hear`], with its number.
    Heard {
        /// Number from the question.
        number: u64,
    },
    /// The sender lets clients in, and knows these members, itself included: other former members are not needed to begin.
    Serving {
        /// The members.
        members: Vec<NodeId>,
    },
    /// An operator asks something; the drivers of both ends know what. Answer: [`NodeMail::Answer`].
    Ask {
        /// Number of the question at the sender.
        request: u64,
        /// The question.
        question: Bytes,
    },
    /// Answer to [`NodeMail::Ask`].
    Answer {
        /// Number from the question.
        request: u64,
        /// The answer; empty: there is none.
        answer: Bytes,
    },
    /// The sender's name, which its operator has chosen.
    Name {
        /// The name.
        name: Utf8,
    },
    /// The time, as the sender sees it.
    Time {
        /// The time of the cluster.
        cluster: Timestamp,
        /// By how many milliseconds the system's clock of the sender is ahead of that.
        system_ahead: i64,
        /// Whether the sender lets clients in.
        serving: bool,
    },
}

impl NodeMail {
    /// The version of the link protocol that it came with.
    pub(crate) const fn since(&self) -> u32 {
        match self {
            Self::Draining { .. }
            | Self::Serving { .. }
            | Self::Hear { .. }
            | Self::Heard { .. }
            | Self::ClosedTopics { .. }
            | Self::Ask { .. }
            | Self::Answer { .. }
            | Self::Name { .. }
            | Self::Time { .. } => 2,
            Self::Clients { .. } | Self::Kick { .. } | Self::Kicked { .. } | Self::Full { .. } => 1,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        match self {
            Self::Clients { address } => {
                out.u8(1);
                out.text(address.as_str());
            }
            Self::Kick { request, client, reason, end_session } => {
                out.u8(2);
                out.u64(*request);
                out.client(client);
                out.u8(reason.as_u8());
                out.bool(*end_session);
            }
            Self::Kicked { request, owned } => {
                out.u8(3);
                out.u64(*request);
                out.bool(*owned);
            }
            Self::Full { full } => {
                out.u8(4);
                out.bool(*full);
            }
            Self::ClosedTopics { filters } => {
                out.u8(10);
                out.list(filters, |out, filter| out.text(filter.as_str()));
            }
            Self::Ask { request, question } => {
                out.u8(11);
                out.u64(*request);
                out.bytes(question);
            }
            Self::Answer { request, answer } => {
                out.u8(12);
                out.u64(*request);
                out.bytes(answer);
            }
            Self::Name { name } => {
                out.u8(13);
                out.text(name.as_str());
            }
            Self::Draining { draining } => {
                out.u8(5);
                out.bool(*draining);
            }
            Self::Serving { members } => {
                out.u8(6);
                out.list(members, |out, node| out.node(*node));
            }
            Self::Hear { number } => {
                out.u8(7);
                out.u64(*number);
            }
            Self::Heard { number } => {
                out.u8(8);
                out.u64(*number);
            }
            Self::Time { cluster, system_ahead, serving } => {
                out.u8(9);
                out.u64(cluster.as_millis());
                out.u64(system_ahead.cast_unsigned());
                out.bool(*serving);
            }
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let mail = match from.u8()? {
            1 => Self::Clients { address: from.utf8()? },
            2 => {
                let (request, client) = (from.u64()?, from.client()?);
                let reason = ReasonCode::from_u8(from.u8()?).ok_or(WireError("no reason code"))?;
                Self::Kick { request, client, reason, end_session: from.bool()? }
            }
            3 => Self::Kicked { request: from.u64()?, owned: from.bool()? },
            4 => Self::Full { full: from.bool()? },
            5 => Self::Draining { draining: from.bool()? },
            10 => Self::ClosedTopics { filters: from.list(Reader::filter)? },
            7 => Self::Hear { number: from.u64()? },
            8 => Self::Heard { number: from.u64()? },
            6 => Self::Serving { members: from.list(Reader::node)? },
            9 => {
                let (cluster, system_ahead) = (Timestamp::from_millis(from.u64()?), from.u64()?.cast_signed());
                Self::Time { cluster, system_ahead, serving: from.bool()? }
            }
            11 => Self::Ask { request: from.u64()?, question: from.bytes()? },
            12 => Self::Answer { request: from.u64()?, answer: from.bytes()? },
            13 => Self::Name { name: from.utf8()? },
            _ => return Err(WireError::UNKNOWN),
        };
        from.end()?;
        Ok(mail)
    }
}
