//! The causes that decide whether a client gets a publication.

use sedge_mqtt::{QoS, TopicFilter};

use crate::subscription::Subscription;

/// Whether a client gets a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// At once.
    Sent,
    /// Later: it waits in the queue of the session.
    Waits,
    /// Never.
    Not,
}

impl Outcome {
    /// For programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Waits => "waits",
            Self::Not => "not",
        }
    }
}

/// The answer to a [`crate::Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Whether the client gets it.
    pub outcome: Outcome,
    /// The rule, filter, limit or state that decides.
    pub cause: Cause,
    /// At which quality of service the client gets it; without meaning if it does not.
    pub qos: QoS,
    /// The subscription that it comes from, or the one that is next to it.
    pub filter: Option<TopicFilter>,
    /// The cause in words, with the numbers, keys and lines that decide.
    pub detail: String,
}

impl Explanation {
    pub(super) const fn no(cause: Cause, filter: Option<TopicFilter>, detail: String) -> Self {
        Self { outcome: Outcome::Not, cause, qos: QoS::AtMostOnce, filter, detail }
    }

    pub(super) fn yes(cause: Cause, subscription: &Subscription, qos: QoS, detail: String) -> Self {
        Self { outcome: Outcome::Sent, cause, qos, filter: Some(subscription.filter.clone()), detail }
    }
}

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The cause that decides whether a client gets a publication.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Cause {
            /// For programs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

causes! {
    /// The client is connected and has room.
    Connected = "connected",
    /// The client is away.
    Offline = "offline",
    /// The client resumes its session.
    Settling = "settling",
    /// The client does not read what is sent to it.
    SlowReader = "slow_reader",
    /// As many messages as the client takes are not acknowledged (Receive Maximum).
    WindowFull = "window_full",
    /// Others wait for the client.
    Behind = "behind",
    /// A retained message comes with the next SUBSCRIBE.
    Retained = "retained",
    /// The client has no subscription.
    NoSubscription = "no_subscription",
    /// No subscription is near the topic.
    NoMatch = "no_match",
    /// A subscription differs in one level or more.
    OtherLevel = "other_level",
    /// A subscription has more levels than the topic.
    TooFewLevels = "too_few_levels",
    /// A subscription has fewer levels than the topic.
    TooManyLevels = "too_many_levels",
    /// A subscription differs in the case of letters only.
    LetterCase = "letter_case",
    /// A subscription differs in a slash at the beginning or the end only.
    Slash = "slash",
    /// A wildcard at the beginning does not match a topic that begins with $.
    Dollar = "dollar",
    /// Access rules forbid to receive it.
    NotAuthorized = "not_authorized",
    /// Access rules forbid to publish it.
    PublishNotAuthorized = "publish_not_authorized",
    /// Only the broker publishes there.
    ReservedTopic = "reserved_topic",
    /// The topic has too many levels.
    TopicTooDeep = "topic_too_deep",
    /// The packet is larger than the broker takes.
    PacketTooLargeForBroker = "packet_too_large_for_broker",
    /// The packet is larger than the client takes.
    PacketTooLarge = "packet_too_large",
    /// Its message expiry is over.
    Expired = "expired",
    /// The client has published it itself.
    NoLocal = "no_local",
    /// Members of the shared subscription at other shards and nodes get it in turns with this one.
    SharedTurn = "shared_turn",
    /// Another member of the shared subscription gets it.
    SharedElsewhere = "shared_elsewhere",
    /// The client is away, and QoS 0 does not wait.
    OfflineQos0 = "offline_qos0",
    /// As many messages wait as may.
    QueueFull = "queue_full",
    /// As many bytes wait as may.
    QueueBytesFull = "queue_bytes_full",
    /// All clients together hold as much as they may.
    BuffersFull = "buffers_full",
    /// The journal has no room.
    JournalFull = "journal_full",
    /// Retain Handling keeps the retained message back.
    RetainHandling = "retain_handling",
    /// Shared subscriptions get no retained messages.
    RetainedShared = "retained_shared",
}
