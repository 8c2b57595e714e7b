//! Copies of a node's sessions on their way to its backups, and the mail that follows when the node is gone.

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::{ClientId, Incarnation, NodeId, ShardId};
use sedge_mqtt::{Message, TopicFilter};

use super::{Reader, Result, WireError, Writer, read_message, write_message};

/// A publication that was on its way to a node that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stray {
    /// The message.
    pub message: Arc<Message>,
    /// Whether it was for the ordinary subscriptions there.
    pub plain: bool,
    /// The shared subscriptions for which the node was chosen.
    pub groups: Vec<TopicFilter>,
}

/// Mail of the topic `$sedge/replica`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaMail {
    /// To a backup: whatever it has of the sender is void; everything comes anew.
    Begin {
        /// Number of this attempt.
        attempt: u32,
        /// How many shards the sender has.
        shards: u16,
    },
    /// To a backup: the changes of one turn of a shard, or a part of them.
    Batch {
        /// The shard.
        shard: ShardId,
        /// Number of the batch; ascending.
        number: u64,
        /// Whether this is the last part.
        last: bool,
        /// Entries as in a journal.
        bytes: Bytes,
    },
    /// From a backup: batches up to this one have had their effect.
    Copied {
        /// Number of the attempt.
        attempt: u32,
        /// The shard.
        shard: ShardId,
        /// Number of the batch.
        number: u64,
        /// Whether it has everything of the shard.
        whole: bool,
    },
    /// To everybody: the nodes that have everything of the sender; the first of them that lives takes over when the sender is gone.
    Backups {
        /// In order.
        nodes: Vec<NodeId>,
    },
    /// From the successor of a node that is gone, to everybody: asks for publications that were on their way there. Answer: [`ReplicaMail::Strays`].
    Want {
        /// The node.
        of: NodeId,
        /// The life that has ended.
        incarnation: Incarnation,
    },
    /// Publications that were on their way to a node that is gone, or a part of them. From a successor to another node: publications for whose
    /// shared subscriptions the node that is gone had chosen members there.
    Strays {
        /// The node.
        of: NodeId,
        /// The life that has ended.
        incarnation: Incarnation,
        /// Whether this is the last part.
        last: bool,
        /// In the order in which they were sent.
        strays: Vec<Stray>,
    },
    /// From a successor, to everybody: all strays are with the sessions, and these are as safe as they have to be.
    Taken {
        /// The node that is gone.
        of: NodeId,
        /// The life that has ended.
        incarnation: Incarnation,
    },
    /// From the node that has the sessions of a life of another node: they are safe, and nothing that the other node's journal holds of them is
    /// needed any longer.
    Safe {
        /// The node whose sessions they were.
        of: NodeId,
        /// The life that has ended.
        incarnation: Incarnation,
    },
    /// To a successor: the session of this client is wanted.
    Ask {
        /// The node that is gone.
        of: NodeId,
        /// The life that has ended.
        incarnation: Incarnation,
        /// The client.
        client: ClientId,
        /// Epoch of its new owner, the sender.
        epoch: u64,
    },
    /// To the first backup of a node that is gone: the sender has given it this session, and keeps it still. Answer: [`ReplicaMail::Has`].
    Keeps {
        /// The node that is gone.
        of: NodeId,
        /// The life that has ended.
        incarnation: Incarnation,
        /// The client.
        client: ClientId,
        /// Epoch under which it was given away.
        epoch: u64,
    },
    /// Whether a backup has a session that another node keeps, or knows who has it.
    Has {
        /// The client.
        client: ClientId,
        /// Epoch under which it was given away.
        epoch: u64,
        /// If not, it goes on where it is kept.
        has: bool,
    },
    /// From a backup: it has nothing that a batch could be added to.
    Nothing,
    /// To a backup: it is one no more; it may forget what it has of the sender.
    End,
}

impl ReplicaMail {
    /// The version of the link protocol that it came with.
    pub(crate) const fn since(&self) -> u32 {
        match self {
            Self::End | Self::Keeps { .. } | Self::Has { .. } | Self::Safe { .. } => 2,
            Self::Begin { .. }
            | Self::Batch { .. }
            | Self::Copied { .. }
            | Self::Backups { .. }
            | Self::Want { .. }
            | Self::Strays { .. }
            | Self::Taken { .. }
            | Self::Ask { .. }
            | Self::Nothing => 1,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        match self {
            Self::Begin { attempt, shards } => {
                out.u8(1);
                out.u32(*attempt);
                out.u16(*shards);
            }
            Self::Batch { shard, number, last, bytes } => {
                out.u8(2);
                out.u16(shard.0);
                out.u64(*number);
                out.bool(*last);
                out.bytes(bytes);
            }
            Self::Copied { attempt, shard, number, whole } => {
                out.u8(3);
                out.u32(*attempt);
                out.u16(shard.0);
                out.u64(*number);
                out.bool(*whole);
            }
            Self::Backups { nodes } => {
                out.u8(4);
                out.list(nodes, |out, node| out.node(*node));
            }
            Self::Want { of, incarnation } => life(&mut out, 5, *of, *incarnation),
            Self::Strays { of, incarnation, last, strays } => {
                life(&mut out, 6, *of, *incarnation);
                out.bool(*last);
                out.list(strays, |out, stray| {
                    write_message(out, &stray.message);
                    out.bool(stray.plain);
                    out.list(&stray.groups, |out, group| out.text(group.as_str()));
                });
            }
            Self::Taken { of, incarnation } => life(&mut out, 7, *of, *incarnation),
            Self::Ask { of, incarnation, client, epoch } => {
                life(&mut out, 8, *of, *incarnation);
                out.client(client);
                out.u64(*epoch);
            }
            Self::Nothing => out.u8(9),
            Self::End => out.u8(10),
            Self::Keeps { of, incarnation, client, epoch } => {
                life(&mut out, 11, *of, *incarnation);
                out.client(client);
                out.u64(*epoch);
            }
            Self::Safe { of, incarnation } => life(&mut out, 13, *of, *incarnation),
            Self::Has { client, epoch, has } => {
                out.u8(12);
                out.client(client);
                out.u64(*epoch);
                out.bool(*has);
            }
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let mail = match from.u8()? {
            1 => Self::Begin { attempt: from.u32()?, shards: from.u16()? },
            2 => {
                let (shard, number) = (ShardId(from.u16()?), from.u64()?);
                Self::Batch { shard, number, last: from.bool()?, bytes: from.bytes()? }
            }
            3 => {
                let (attempt, shard) = (from.u32()?, ShardId(from.u16()?));
                Self::Copied { attempt, shard, number: from.u64()?, whole: from.bool()? }
            }
            4 => Self::Backups { nodes: from.list(Reader::node)? },
            5 => Self::Want { of: from.node()?, incarnation: incarnation(&mut from)? },
            6 => {
                let (of, incarnation, last) = (from.node()?, incarnation(&mut from)?, from.bool()?);
                Self::Strays { of, incarnation, last, strays: from.list(read_stray)? }
            }
            7 => Self::Taken { of: from.node()?, incarnation: incarnation(&mut from)? },
            8 => {
                let (of, incarnation) = (from.node()?, incarnation(&mut from)?);
                Self::Ask { of, incarnation, client: from.client()?, epoch: from.u64()? }
            }
            9 => Self::Nothing,
            10 => Self::End,
            11 => {
                let (of, incarnation) = (from.node()?, incarnation(&mut from)?);
                Self::Keeps { of, incarnation, client: from.client()?, epoch: from.u64()? }
            }
            12 => Self::Has { client: from.client()?, epoch: from.u64()?, has: from.bool()? },
            13 => Self::Safe { of: from.node()?, incarnation: incarnation(&mut from)? },
            _ => return Err(WireError::UNKNOWN),
        };
        from.end()?;
        Ok(mail)
    }
}

fn life(out: &mut Writer, kind: u8, of: NodeId, incarnation: Incarnation) {
    out.u8(kind);
    out.node(of);
    out.u64(incarnation.get());
}

fn incarnation(from: &mut Reader) -> Result<Incarnation> {
    from.u64().map(Incarnation::new)
}

fn read_stray(from: &mut Reader) -> Result<Stray> {
    let (message, plain) = (read_message(from)?, from.bool()?);
    Ok(Stray { message, plain, groups: from.list(Reader::filter)? })
}
