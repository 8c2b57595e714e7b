//! One connection between two nodes.

use core::net::SocketAddr;

use bytes::BytesMut;
use sedge_base::{Instant, NodeId, Outbox};
use sedge_mqtt::{Decoder, Packet, Version, encode};

use super::auth::Transcript;
use super::binding::Binding;
use super::carried::Carriage;
use super::greeting::Greeting;

/// Largest packet of a stranger.
pub(super) const STRANGER_BYTES: u32 = 8 * 1024;

/// How far a connection has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Dialled: the driver connects.
    Dialling,
    /// Accepted: CONNECT has to come.
    AwaitConnect,
    /// Accepted: the dialler has to prove that it knows the key.
    AwaitProof(Box<(Greeting, Transcript)>),
    /// Dialled: CONNECT is sent; AUTH or CONNACK has to come.
    AwaitAnswer(Box<Transcript>),
    /// Dialled: our proof is sent; CONNACK has to come.
    AwaitVerdict(Box<Transcript>),
    /// Frames may pass.
    Established,
    /// A packet is being handled.
    Busy,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) peer_addr: SocketAddr,
    pub(super) dialled: bool,
    /// The node that should be there (dialled), that says to be there (accepted), or that is there (established).
    pub(super) node: Option<NodeId>,
    /// Which of the connections with the neighbour it is; 0: the link itself.
    pub(super) lane: u8,
    /// Our stream as we told it in CONNECT.
    pub(super) announced: u64,
    pub(super) stage: Stage,
    /// Of an encrypted connection.
    pub(super) binding: Option<Binding>,
    /// If another node carries it.
    pub(super) carriage: Option<Box<Carriage>>,
    /// Whether anything has come over it.
    pub(super) has_read: bool,
    pub(super) decoder: Decoder,
    pub(super) outbox: Outbox,
    /// Whether the owner has been told that the outbox holds something.
    pub(super) told: bool,
    pub(super) last_heard: Instant,
    /// When the kernel last took bytes.
    pub(super) last_written: Instant,
    pub(super) ping_sent: Option<Instant>,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) publications_sent: u64,
    pub(super) publications_received: u64,
}

impl Conn {
    pub(super) fn accepted(now: Instant, peer_addr: SocketAddr) -> Self {
        Self::new(now, peer_addr, Stage::AwaitConnect, Decoder::server(STRANGER_BYTES), None)
    }

    pub(super) fn dialling(now: Instant, peer_addr: SocketAddr, node: NodeId) -> Self {
        Self::new(now, peer_addr, Stage::Dialling, Decoder::client(STRANGER_BYTES), Some(node))
    }

    fn new(now: Instant, peer_addr: SocketAddr, stage: Stage, decoder: Decoder, node: Option<NodeId>) -> Self {
        Self {
            peer_addr,
            dialled: node.is_some(),
            node,
            lane: 0,
            announced: 0,
            stage,
            binding: None,
            carriage: None,
            has_read: false,
            decoder,
            outbox: Outbox::new(),
            told: false,
            last_heard: now,
            last_written: now,
            ping_sent: None,
            bytes_sent: 0,
            bytes_received: 0,
            publications_sent: 0,
            publications_received: 0,
        }
    }

    pub(super) const fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Established)
    }

    /// Appends a packet to the outbox.
    pub(super) fn write(&mut self, packet: &Packet) {
        self.write_as(packet, Version::V5);
    }

    /// Appends a packet in the encoding of this version.
    pub(super) fn write_as(&mut self, packet: &Packet, version: Version) {
        self.outbox.append(|out: &mut BytesMut| encode(packet, version, out));
    }
}
