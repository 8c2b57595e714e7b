//! An operator's view of a session.

use sedge_base::{ClientId, ConnId, Timestamp};
use sedge_mqtt::{PacketId, SubscriptionOptions, TopicFilter, Version};

use crate::connection::Connection;
use crate::session::Session;
use crate::subscription::Subscription;
use crate::traffic::Traffic;

/// A session as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The client.
    pub client: ClientId,
    /// The ownership under which it is here.
    pub epoch: u64,
    /// Its connection; `None` while it is away.
    pub connection: Option<ConnId>,
    /// Address of the other side while it is connected.
    pub peer: Option<String>,
    /// User name that its transport has proven, while it is connected.
    pub user: Option<String>,
    /// Protocol version.
    pub version: Version,
    /// Whether the session ends with its connection (session expiry 0; 3.1.1: Clean Session 1).
    pub clean: bool,
    /// Seconds the session outlives its connection; `u32::MAX`: for ever.
    pub expiry_secs: u32,
    /// Keep alive in seconds while it is connected; 0: none.
    pub keep_alive_secs: u16,
    /// When it lost its connection; `None` while it is connected.
    pub disconnected_at: Option<Timestamp>,
    /// Its subscriptions, by filter.
    pub subscriptions: Vec<SubscriptionInfo>,
    /// Messages that wait in its queue.
    pub queued: usize,
    /// Bytes that wait in its queue.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages sent to it and not acknowledged.
    pub inflight: usize,
    /// QoS 2 publications of its own that are not completed.
    pub inbound: usize,
    /// Their packet identifiers.
    pub unreleased: Vec<PacketId>,
    /// Whether there is a will.
    pub will: bool,
    /// PUBLISH packets of the client since its CONNECT, while it is connected.
    pub received: u64,
    /// PUBLISH packets for the client since its CONNECT, while it is connected.
    pub sent: u64,
    /// A topic of at most 256 bytes that it has published to lately, while it is connected.
    pub topic: Option<String>,
}

/// The fields by which a list of sessions is sorted and searched.
#[derive(Clone, Copy, Debug)]
pub struct SessionBrief<'a> {
    /// The client.
    pub client: &'a ClientId,
    /// Address of the other side while it is connected.
    pub peer: Option<&'a str>,
    /// User name that its transport has proven, while it is connected.
    pub user: Option<&'a str>,
    /// When it lost its connection; `None` while it is connected.
    pub disconnected_at: Option<Timestamp>,
    /// Number of its subscriptions.
    pub subscriptions: usize,
    /// Messages that wait in its queue.
    pub queued: usize,
    /// Bytes that wait in its queue.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages sent to it and not acknowledged.
    pub inflight: usize,
}

impl<'a> SessionBrief<'a> {
    pub(crate) fn of(session: &'a Session, connection: Option<&'a Connection>) -> Self {
        Self {
            client: &session.client,
            peer: connection.map(|connection| &*connection.peer.address),
            user: connection.and_then(|connection| connection.peer.user.as_deref()),
            disconnected_at: connection.is_none().then_some(session.disconnected_at),
            subscriptions: session.subscriptions.iter().count(),
            queued: session.queue.len(),
            queued_bytes: session.queue.bytes(),
            inflight: session.inflight.len(),
        }
    }
}

/// A subscription of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionInfo {
    /// The whole filter, `$share/group/` included.
    pub filter: TopicFilter,
    /// Its options.
    pub options: SubscriptionOptions,
    /// Its identifier.
    pub id: Option<u32>,
}

impl SessionInfo {
    pub(crate) fn of(session: &Session, connection: Option<&Connection>) -> Self {
        let subscription = |subscription: &Subscription| SubscriptionInfo {
            filter: subscription.filter.clone(),
            options: subscription.options,
            id: (subscription.id != 0).then_some(subscription.id),
        };
        let traffic = connection.map(|connection| &connection.peer.traffic);
        Self {
            client: session.client.clone(),
            epoch: session.epoch,
            connection: connection.map(|connection| connection.id),
            peer: connection.map(|connection| connection.peer.address.to_string()),
            user: connection.and_then(|connection| connection.peer.user.as_deref()).map(str::to_owned),
            version: session.version,
            clean: session.expiry_secs == 0,
            expiry_secs: session.expiry_secs,
            keep_alive_secs: connection.map_or(0, |connection| connection.keep_alive),
            disconnected_at: connection.is_none().then_some(session.disconnected_at),
            subscriptions: session.subscriptions.iter().map(subscription).collect(),
            queued: session.queue.len(),
            queued_bytes: session.queue.bytes(),
            inflight: session.inflight.len(),
            inbound: session.inbound.as_ref().map_or(0, |inbound| inbound.exact().count()),
            unreleased: session
                .inbound
                .as_ref()
                .map_or_else(Vec::new, |inbound| inbound.exact().map(|exact| exact.packet_id).collect()),
            will: session.will.is_some(),
            received: traffic.map_or(0, Traffic::received),
            sent: traffic.map_or(0, Traffic::sent),
            topic: traffic.and_then(Traffic::topic).map(str::to_owned),
        }
    }
}
