//! Inputs and outputs of a [`crate::Sidecar`].

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::ClientId;
use sedge_mqtt::{Message, Publish, QoS, ReasonCode, SubscriptionOptions, TopicFilter, Utf8, Version};
use smallvec::SmallVec;

use crate::conversation::Key;

/// Bits of a [`LinkId`] that say whose connection it is: more conversations than memory has room for.
const KEY_BITS: u32 = 28;

/// A TCP connection to the broker, numbered by the sidecar; no number is used twice, and later ones are higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

impl LinkId {
    /// The `dialled`th connection, which is made for a conversation.
    pub(crate) const fn new(dialled: u64, conversation: Key) -> Self {
        Self(dialled << KEY_BITS | conversation as u64)
    }

    /// The conversation that it was made for.
    pub(crate) fn conversation(self) -> Key {
        usize::try_from(self.0 & ((1 << KEY_BITS) - 1)).unwrap_or(usize::MAX)
    }
}

/// The other side of a client's connection, as a PROXY header tells it to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Address of the client.
    pub address: String,
    /// Common name of the certificate that the client has proven to own.
    pub certificate: Option<String>,
}

/// A client that wants a conversation with the broker.
#[derive(Clone, PartialEq, Eq)]
pub struct Attach {
    /// The client.
    pub client: ClientId,
    /// Protocol version of the client, tried first with the broker.
    pub version: Version,
    /// User name for the broker.
    pub user: Option<Utf8>,
    /// Password for the broker.
    pub password: Option<Bytes>,
    /// Where the client is, for [`Output::Dial`].
    pub origin: Origin,
}

impl core::fmt::Debug for Attach {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // No password in any log.
        let has_password = self.password.is_some();
        let mut out = f.debug_struct("Attach");
        out.field("client", &self.client).field("version", &self.version).field("user", &self.user);
        out.field("has_password", &has_password).field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// One filter for the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// A filter without `$share`.
    pub filter: TopicFilter,
    /// Options of the subscription; Retain Handling is overruled by `retained`.
    pub options: SubscriptionOptions,
    /// Subscription identifier; 0: none.
    pub id: u32,
    /// Whether the broker is to send its retained messages.
    pub retained: bool,
}

/// One session that the broker has to deliver a publication to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// The client.
    pub client: ClientId,
    /// Number of the client's subscriptions that match: a broker may deliver once for each (MQTT 5.0 section 3.3.4).
    pub matches: u16,
    /// The highest QoS that these subscriptions grant.
    pub qos: QoS,
    /// The session's share of the publication.
    pub share: Share,
}

/// A session's share of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The publication, once.
    Copy,
    /// Nothing: the client published it and asked for No Local, which a 3.1.1 broker knows nothing of.
    NoLocal,
    /// Nothing: the session has had the publication, and the broker gets it once more.
    Had,
}

/// A publication for the broker.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The client that published it at this node: its own conversation carries it. `None`, or a client without a conversation: an inlet does.
    pub via: Option<ClientId>,
    /// The message to publish.
    pub message: Arc<Message>,
    /// The retain flag that the broker sees.
    pub retain: bool,
    /// It is a value of the cluster's store, or its clearing, that the broker may not have.
    pub is_restored: bool,
    /// Comes back with [`Output::Published`]; without one nobody waits.
    pub token: Option<u64>,
    /// Sessions of this node with ordinary subscriptions that match.
    pub receivers: SmallVec<[Receiver; 2]>,
}

/// An event for the sidecar.
#[derive(Debug)]
pub enum Input {
    /// A client has come: it needs a conversation. Answer: [`Output::Attached`].
    Attach(Box<Attach>),
    /// The session of a client is about to leave: outstanding deliveries to it are made at once, and so are the outstanding deliveries of its
    /// own publications to other sessions.
    Flush(ClientId),
    /// The session of a client has ended: so does its conversation.
    Detach(ClientId),
    /// A client has subscribed. Answer: [`Output::Answered`] with one reason for each request.
    Subscribe {
        /// The client.
        client: ClientId,
        /// Comes back with the answer.
        token: u64,
        /// Filters to subscribe to.
        requests: Vec<Request>,
        /// Whether a session from elsewhere has brought the subscriptions along, with all that was published before.
        is_brought: bool,
    },
    /// A client has unsubscribed. Answer: [`Output::Answered`].
    Unsubscribe {
        /// The client.
        client: ClientId,
        /// Comes back with the answer.
        token: u64,
        /// Filters to unsubscribe from.
        filters: Vec<TopicFilter>,
    },
    /// The session of a client has these subscriptions: the broker is asked for those that it does not have.
    Sync {
        /// The client.
        client: ClientId,
        /// All subscriptions of the session.
        requests: Vec<Request>,
    },
    /// A publication for the broker.
    Publish(Publication),
    /// A client asks whether anybody is there: the broker answers (spec `interworking.md` section 4). Answer: [`Output::Ponged`].
    Ping {
        /// The client.
        client: ClientId,
        /// Comes back with the answer.
        token: u64,
    },
    /// The client of a session takes nothing for now, or takes messages again: its conversation is not read meanwhile.
    Hold {
        /// The client.
        client: ClientId,
        /// Whether to stop reading.
        held: bool,
    },
    /// [`Output::Dial`] has led to a connection.
    Opened(LinkId),
    /// Bytes came from the broker.
    Received {
        /// Connection that the bytes came over.
        link: LinkId,
        /// The bytes.
        bytes: Bytes,
    },
    /// The first `bytes` of [`crate::Sidecar::outbox`] were taken by the kernel.
    Written {
        /// Connection that was written to.
        link: LinkId,
        /// Number of bytes that were taken.
        bytes: usize,
    },
    /// A connection is gone, or could not be made.
    Closed {
        /// Connection that is gone or could not be made.
        link: LinkId,
        /// Reason, in a few words.
        why: String,
    },
}

/// The broker's answer to a client's CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The conversation is open.
    Open,
    /// The conversation will not be opened: reason code and text.
    Refused(ReasonCode, String),
}

/// An order to the owner of the sidecar.
#[derive(Debug)]
pub enum Output {
    /// Connect to the broker; answer: [`Input::Opened`] or [`Input::Closed`].
    Dial {
        /// Number of the connection to be.
        link: LinkId,
        /// The client that the connection is for; `None`: an inlet, or [`crate::SidecarConfig::tells_origins`] is off.
        origin: Option<Origin>,
    },
    /// The connection's outbox holds something to write.
    Transmit(LinkId),
    /// Close the connection once its outbox is written; no more input for it is expected.
    Close(LinkId),
    /// Do not read from this connection, or read again.
    Hold(LinkId, bool),
    /// Answer to [`Input::Attach`].
    Attached(ClientId, Answer),
    /// Answer to [`Input::Subscribe`] and [`Input::Unsubscribe`]: the broker's reason code for each filter.
    Answered {
        /// Token of the request.
        token: u64,
        /// One reason code for each filter.
        reasons: Vec<ReasonCode>,
    },
    /// The broker has taken or refused a publication. For QoS 0, `Success` comes as soon as the publication is on its way.
    Published {
        /// Token of the publication.
        token: u64,
        /// The broker's reason code.
        reason: ReasonCode,
    },
    /// No session waits any more for the publication with this number, for which one did: see [`crate::Sidecar::is_settled`].
    Settled(u64),
    /// Answer to [`Input::Ping`]: all that the broker had sent before has been delivered.
    Ponged(u64),
    /// The broker has delivered a publication of this node, or ought to have and cannot any more: the session gets its copy of it.
    Delivered {
        /// The client.
        client: ClientId,
        /// The publication.
        message: Arc<Message>,
    },
    /// The broker has delivered something that does not come from this node: a retained message, or a publication of a client of its own.
    Foreign {
        /// The client.
        client: ClientId,
        /// The packet.
        publish: Box<Publish>,
        /// Protocol version of the conversation.
        version: Version,
    },
    /// The broker was away for longer than the grace: the client's connection ends, its session stays.
    Lost(ClientId),
    /// The broker is back, or here for the first time: it may have forgotten retained messages.
    Restore,
    /// A line for the log.
    Event(Event),
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The broker takes connections.
    Up {
        /// Make and version that the broker reports, if it reports them.
        version: Option<String>,
    },
    /// The broker cannot be reached, or has closed the inlets.
    Down(String),
    /// The broker refuses an inlet.
    InletRefused(ReasonCode),
    /// The broker has broken the rules of MQTT.
    Garbage(String),
    /// The broker has no MQTT 5.0: its conversations are 3.1.1 from here on.
    Only311,
}
