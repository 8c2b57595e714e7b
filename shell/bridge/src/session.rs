//! The bridge's session at this node, which is the buffer.

use std::collections::BTreeSet;

use mio::{Poll, Token};
use sedge_mqtt::{
    ConnAck, Connect, ConnectProperties, Packet, PacketId, QoS, ReasonCode, RetainHandling, Subscribe,
    SubscriptionOptions, SubscriptionRequest, TopicFilter, Unsubscribe, Utf8, Version,
};

use crate::error::BridgeError;
use crate::host::Host;
use crate::supervisor::Shared;
use crate::wire::{PATIENCE, Stream, Wire, greet};

/// Token for events of the connection to the session.
pub(crate) const LOCAL: Token = Token(0);
/// Packet identifier of the bridge's own requests: sessions begin with low ones.
pub(crate) const REQUEST: PacketId = PacketId::MAX;
/// Packets that may come before a subscription is acknowledged.
const EARLY_MAX: usize = 100_000;

/// A connection, and the packets that came before it was ready.
pub(crate) struct Opened {
    pub(crate) wire: Wire,
    pub(crate) ack: ConnAck,
    pub(crate) early: Vec<Packet>,
}

/// See the module.
pub(crate) struct Session<'a, H> {
    shared: &'a Shared,
    host: &'a H,
    /// QoS 1 and 2 messages that the broker takes at once, since it has the session.
    window: Option<u16>,
}

impl<'a, H: Host> Session<'a, H> {
    pub(crate) const fn new(shared: &'a Shared, host: &'a H) -> Self {
        Self { shared, host, window: None }
    }

    /// Makes the session, once: what is published while the other end cannot be reached waits in it. Returns how many QoS 1 and 2 messages
    /// the broker takes at once.
    pub(crate) fn prepare(&mut self) -> Result<u16, BridgeError> {
        if let Some(window) = self.window {
            return Ok(window);
        }
        let mut poll = Poll::new().map_err(BridgeError::Inside)?;
        let opened = self.open(&mut poll, 1)?;
        close(opened.wire);
        let window = opened.ack.properties.receive_maximum.unwrap_or(u16::MAX);
        self.window = Some(window);
        Ok(window)
    }

    /// Another node may change the session from now on.
    pub(crate) const fn leave(&mut self) {
        self.window = None;
    }

    /// Identifiers of QoS 2 publications that the other end has begun.
    pub(crate) fn unreleased(&self) -> Vec<PacketId> {
        let session = self.host.session(&self.shared.session).unwrap_or_default();
        session.unreleased.into_iter().filter_map(PacketId::new).collect()
    }

    /// Connects to the bridge's session at this node, and makes its subscriptions what the configuration says.
    pub(crate) fn open(&self, poll: &mut Poll, window: u16) -> Result<Opened, BridgeError> {
        let socket = self.host.connect(&self.shared.session).map_err(BridgeError::Inside)?;
        socket.set_nonblocking(true).map_err(BridgeError::Inside)?;
        let stream = Stream::Unix(mio::net::UnixStream::from_std(socket));
        let mut wire = Wire::new(poll, LOCAL, stream, None, (Version::V5, "this node"))?;
        let connect = Connect {
            version: Version::V5,
            bridge: false,
            clean_start: false,
            keep_alive: 0,
            client_id: Utf8::new(&self.shared.session).unwrap_or_default(),
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties {
                session_expiry: Some(u32::MAX),
                receive_maximum: Some(window.max(1)),
                ..ConnectProperties::default()
            },
        };
        let goes_on = || self.shared.goes_on();
        let ack = greet(&mut wire, poll, connect, goes_on)?;
        let wanted: Vec<TopicFilter> = if self.shared.config.direction.goes_out() {
            self.shared.config.from.iter().filter_map(|text| TopicFilter::new(text).ok()).collect()
        } else {
            Vec::new()
        };
        let mut early = Vec::new();
        if self.window.is_none() {
            early = self.unsubscribe_others(&mut wire, poll, &wanted)?;
        }
        if !wanted.is_empty() && (self.window.is_none() || !ack.session_present) {
            early.extend(subscribe(&mut wire, poll, &wanted, self.shared.config.qos, goes_on)?);
        }
        Ok(Opened { wire, ack, early })
    }

    /// Ends the subscriptions that an earlier configuration has made.
    fn unsubscribe_others(
        &self,
        wire: &mut Wire,
        poll: &mut Poll,
        wanted: &[TopicFilter],
    ) -> Result<Vec<Packet>, BridgeError> {
        let wanted: BTreeSet<&str> = wanted.iter().map(TopicFilter::as_str).collect();
        let there = self.host.session(&self.shared.session).unwrap_or_default().filters;
        let old = there.iter().filter(|filter| !wanted.contains(filter.as_str()));
        let filters: Vec<TopicFilter> = old.filter_map(|filter| TopicFilter::new(filter).ok()).collect();
        if filters.is_empty() {
            return Ok(Vec::new());
        }
        wire.send(&Packet::Unsubscribe(Unsubscribe { packet_id: REQUEST, filters, user: Vec::new() }));
        collect(wire, poll, "UNSUBSCRIBE", || self.shared.goes_on()).map(|(early, _)| early)
    }
}

/// Subscribes; returns the packets that came before the answer.
pub(crate) fn subscribe(
    wire: &mut Wire,
    poll: &mut Poll,
    filters: &[TopicFilter],
    qos: QoS,
    goes_on: impl Fn() -> bool,
) -> Result<Vec<Packet>, BridgeError> {
    let v5 = wire.version == Version::V5;
    let options = SubscriptionOptions {
        qos,
        no_local: v5,
        retain_as_published: v5,
        retain_handling: if v5 { RetainHandling::SendIfNew } else { RetainHandling::Send },
    };
    let request = |filter: &TopicFilter| SubscriptionRequest { filter: filter.clone(), options };
    let requests = filters.iter().map(request).collect();
    wire.send(&Packet::Subscribe(Subscribe { packet_id: REQUEST, requests, subscription_id: None, user: Vec::new() }));
    let (early, reasons) = collect(wire, poll, "SUBSCRIBE", goes_on)?;
    if let Some((number, reason)) = refused(&reasons) {
        let filter = filters.get(number).map(|filter| filter.as_str().to_owned()).unwrap_or_default();
        return Err(BridgeError::NotSubscribed { end: wire.end, filter, reason });
    }
    Ok(early)
}

/// Waits for the answer to a request of one's own; other packets are kept for later.
pub(crate) fn collect(
    wire: &mut Wire,
    poll: &mut Poll,
    what: &'static str,
    goes_on: impl Fn() -> bool,
) -> Result<(Vec<Packet>, Vec<ReasonCode>), BridgeError> {
    let mut early = Vec::new();
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are for the relay")]
    while early.len() < EARLY_MAX {
        match wire.wait(poll, what, PATIENCE, &goes_on)? {
            Packet::SubAck(ack) => return Ok((early, ack.reasons)),
            Packet::UnsubAck(_) => return Ok((early, Vec::new())),
            packet => early.push(packet),
        }
    }
    Err(BridgeError::NoAnswer { end: wire.end, what, seconds: PATIENCE.as_secs() })
}

/// The first reason of a SUBACK that refuses, with the number of its filter.
pub(crate) fn refused(reasons: &[ReasonCode]) -> Option<(usize, ReasonCode)> {
    reasons.iter().copied().enumerate().find(|(_, reason)| reason.is_error())
}

/// Says good-bye; the session stays.
pub(crate) fn close(mut wire: Wire) {
    wire.send(&Packet::Disconnect(sedge_mqtt::Disconnect::new(ReasonCode::Success)));
    // It may be gone already.
    let _ = wire.flush();
}
