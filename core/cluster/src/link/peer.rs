//! The links' knowledge of one other node.

use core::net::SocketAddr;

use sedge_base::Instant;

use super::channel::Channel;
use super::lanes::Lanes;
use super::{Hello, Protocol};
use crate::LinkId;

/// See the module.
#[derive(Debug)]
pub(super) struct Peer {
    /// Where to dial, if this node wants the link.
    pub(super) wanted: Option<SocketAddr>,
    pub(super) channel: Channel,
    /// The connection that frames pass over.
    pub(super) link: Option<LinkId>,
    /// The connection that is being made.
    pub(super) dial: Option<LinkId>,
    /// The connection that is being made through another node.
    pub(super) carried: Option<LinkId>,
    /// Further connections, while there is a link.
    pub(super) lanes: Lanes,
    /// How the neighbour has introduced itself last.
    pub(super) hello: Option<Hello>,
    /// The version of the protocol that the neighbour has named.
    pub(super) protocol: Protocol,
    /// Whether a connection with it could not be encrypted, or not be trusted, since one was: nobody is to carry one.
    pub(super) is_distrusted: bool,
    /// Attempts since the last link that has lasted.
    pub(super) failures: u32,
    pub(super) up_since: Instant,
    /// Round trip in microseconds, smoothed; 0 until measured.
    pub(super) rtt_micros: u32,
    /// Whether frames have come that may have to be acknowledged.
    pub(super) unanswered: bool,
}

impl Peer {
    pub(super) const fn new(channel: Channel) -> Self {
        Self {
            wanted: None,
            channel,
            link: None,
            dial: None,
            carried: None,
            lanes: Lanes::new(),
            hello: None,
            protocol: Protocol::CURRENT,
            is_distrusted: false,
            failures: 0,
            up_since: Instant::ZERO,
            rtt_micros: 0,
            unanswered: false,
        }
    }

    /// Takes a measurement of the round trip into account and returns the smoothed value, at least 1.
    pub(super) fn measured(&mut self, micros: u32) -> u32 {
        let (old, new) = (u64::from(self.rtt_micros), u64::from(micros));
        let smooth = if old == 0 { new } else { (7 * old + new) / 8 };
        self.rtt_micros = u32::try_from(smooth).unwrap_or(u32::MAX).max(1);
        self.rtt_micros
    }
}
