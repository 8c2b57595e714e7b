//! Mail of the session directory.

use bytes::Bytes;
use sedge_base::{ClientId, NodeId};

use super::{Reader, Result, WireError, Writer};

/// Mail of the topic `$sedge/directory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryMail {
    /// To the home: the sender wants to own this client.
    Claim {
        /// The client.
        client: ClientId,
        /// Whether the session starts clean.
        clean_start: bool,
    },
    /// From the home: the receiver owns this client.
    Granted {
        /// The client.
        client: ClientId,
        /// Which ownership this is.
        epoch: u64,
        /// The former owner, or another one that the home has found beside the receiver, who was told to send the session; `None`: there is
        /// nothing to wait for.
        from: Option<NodeId>,
    },
    /// To the home: the sender owns this client and wants another node to own it.
    Give {
        /// The client.
        client: ClientId,
        /// Under which epoch the sender owns it.
        epoch: u64,
        /// The node that is to own it.
        to: NodeId,
    },
    /// From the home: the receiver owns this client, for which it has not asked.
    Given {
        /// The client.
        client: ClientId,
        /// Which ownership this is.
        epoch: u64,
        /// The former owner, who was told to send the session.
        from: NodeId,
    },
    /// From the home: the receiver no longer owns this client.
    Relinquish {
        /// The client.
        client: ClientId,
        /// Epoch of the new owner.
        epoch: u64,
        /// Whether the session ends.
        clean_start: bool,
        /// The new owner, who waits for the session.
        to: NodeId,
    },
    /// To the home: clients that the sender owns, with their epochs.
    Register {
        /// Hash of the members that the sender knows.
        view: u64,
        /// Whether that was all under this view.
        last: bool,
        /// The clients.
        clients: Vec<(ClientId, u64)>,
    },
    /// To the home: the session has ended under this epoch. Under epoch 0, which no claim has: the node takes back a claim that was not granted.
    Forget {
        /// The client.
        client: ClientId,
        /// The ownership that ended.
        epoch: u64,
    },
}

impl DirectoryMail {
    /// The version of the link protocol that it came with.
    pub(crate) const fn since(&self) -> u32 {
        match self {
            Self::Give { .. } | Self::Given { .. } => 2,
            Self::Claim { .. }
            | Self::Granted { .. }
            | Self::Relinquish { .. }
            | Self::Register { .. }
            | Self::Forget { .. } => 1,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        match self {
            Self::Claim { client, clean_start } => {
                out.u8(1);
                out.client(client);
                out.bool(*clean_start);
            }
            Self::Granted { client, epoch, from } => {
                out.u8(2);
                out.client(client);
                out.u64(*epoch);
                out.option(*from, Writer::node);
            }
            Self::Relinquish { client, epoch, clean_start, to } => {
                out.u8(3);
                out.client(client);
                out.u64(*epoch);
                out.bool(*clean_start);
                out.node(*to);
            }
            Self::Register { view, last, clients } => {
                out.u8(4);
                out.u64(*view);
                out.bool(*last);
                out.list(clients, |out, (client, epoch)| {
                    out.client(client);
                    out.u64(*epoch);
                });
            }
            Self::Forget { client, epoch } => {
                out.u8(5);
                out.client(client);
                out.u64(*epoch);
            }
            Self::Give { client, epoch, to } => given(&mut out, 6, client, *epoch, *to),
            Self::Given { client, epoch, from } => given(&mut out, 7, client, *epoch, *from),
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let mail = match from.u8()? {
            1 => Self::Claim { client: from.client()?, clean_start: from.bool()? },
            2 => Self::Granted { client: from.client()?, epoch: from.u64()?, from: from.option(Reader::node)? },
            3 => {
                let (client, epoch) = (from.client()?, from.u64()?);
                Self::Relinquish { client, epoch, clean_start: from.bool()?, to: from.node()? }
            }
            4 => {
                let (view, last) = (from.u64()?, from.bool()?);
                let clients = from.list(|from| Ok((from.client()?, from.u64()?)))?;
                Self::Register { view, last, clients }
            }
            5 => Self::Forget { client: from.client()?, epoch: from.u64()? },
            6 => Self::Give { client: from.client()?, epoch: from.u64()?, to: from.node()? },
            7 => Self::Given { client: from.client()?, epoch: from.u64()?, from: from.node()? },
            _ => return Err(WireError::UNKNOWN),
        };
        from.end()?;
        Ok(mail)
    }
}

fn given(out: &mut Writer, kind: u8, client: &ClientId, epoch: u64, node: NodeId) {
    out.u8(kind);
    out.client(client);
    out.u64(epoch);
    out.node(node);
}
