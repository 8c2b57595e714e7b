//! Whether a client would get a publication now, and what decides (OP-04). Asks the code that delivers; changes nothing.

mod cause;
mod near;

use sedge_access::{Action, Who};
use sedge_base::ClientId;
use sedge_mqtt::{Message, QoS, RetainHandling, TopicFilter, TopicName, Version};

pub use self::cause::{Cause, Explanation, Outcome};
use crate::Broker;
use crate::access::{is_inside, may_receive};
use crate::connection::Connection;
use crate::room::Room;
use crate::send::may_send;
use crate::session::{Session, SessionKey};
use crate::subscription::Subscription;

/// A publication that nobody has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its topic.
    pub topic: TopicName,
    /// Its quality of service.
    pub qos: QoS,
    /// Bytes of its payload.
    pub bytes: usize,
    /// The client that would publish it; `None`: any other than the receiver.
    pub publisher: Option<ClientId>,
    /// Its message expiry interval in seconds.
    pub expiry: Option<u32>,
    /// Whether it is asked for a retained message, which comes on a SUBSCRIBE, in place of a publication.
    pub retained: bool,
}

/// Members of a shared subscription that are sessions of other shards and nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Members that are connected.
    pub online: u32,
    /// Members that are away.
    pub offline: u32,
}

impl Broker {
    /// Whether `client` would get the publication, from which subscription, at which QoS; or what prevents it. `elsewhere` counts members of a
    /// shared subscription that this broker does not have. `None`: there is no session of the client here.
    pub fn explain(
        &self,
        client: &ClientId,
        question: &Question,
        elsewhere: impl Fn(&TopicFilter) -> Elsewhere,
    ) -> Option<Explanation> {
        let key = *self.clients.get(client)?;
        let session = self.sessions.get(key)?;
        if let Some(refused) = self.explain_refusal(question) {
            return Some(refused);
        }
        let subscribed: Vec<&Subscription> =
            session.subscriptions.iter().filter(|subscription| subscription.filter.matches(&question.topic)).collect();
        if subscribed.is_empty() {
            return Some(near::mismatch(session, &question.topic));
        }
        if question.retained {
            return Some(self.explain_retained(session, &subscribed, &question.topic));
        }
        let (shared, plain): (Vec<&Subscription>, Vec<&Subscription>) =
            subscribed.into_iter().partition(|subscription| subscription.is_shared());
        let plain = self.explain_plain(session, &plain, question);
        let shared = shared.iter().map(|subscription| {
            self.explain_shared((key, session), subscription, question, elsewhere(&subscription.filter))
        });
        // One way that leads to the client is enough; of those that do not, the first explains the most.
        plain.into_iter().chain(shared).min_by_key(|explanation| explanation.outcome)
    }

    /// Whether access rules and the broker's own topics let `publisher` publish to `topic`. `None`: nothing is in the way, or there is no session
    /// of the publisher here.
    pub fn explain_publisher(&self, publisher: &ClientId, topic: &TopicName) -> Option<Explanation> {
        if is_inside(publisher) {
            return None;
        }
        if self.config.owns(topic) {
            let detail = "only the broker publishes below $SYS, $sedge, $rule and $sparkplug".to_owned();
            return Some(Explanation::no(Cause::ReservedTopic, None, detail));
        }
        let session = self.sessions.get(*self.clients.get(publisher)?)?;
        let (rules, user) = (self.policy.rules.as_deref()?, user_of(session));
        let verdict = rules.decide(Who { user, client: publisher.as_str() }, Action::Publish, topic.as_str());
        (!verdict.allowed).then(|| {
            let detail =
                format!("access rules: {} may not publish there; {}", named(publisher, user), rule(verdict.line));
            Explanation::no(Cause::PublishNotAuthorized, None, detail)
        })
    }

    /// The part of a session in a publication that is about to be delivered to ordinary subscriptions. `None`: it has only shared ones.
    pub(crate) fn explain_delivery(&self, session: &Session, message: &Message) -> Option<Explanation> {
        let matching = session.subscriptions.iter().filter(|subscription| subscription.filter.matches(&message.topic));
        let (shared, plain): (Vec<&Subscription>, Vec<&Subscription>) =
            matching.partition(|subscription| subscription.is_shared());
        if plain.is_empty() {
            return shared.is_empty().then(|| near::mismatch(session, &message.topic));
        }
        self.explain_expiry(message).or_else(|| self.explain_plain(session, &plain, &asked(message)))
    }

    /// The part of the chosen member of a shared subscription.
    pub(crate) fn explain_share(
        &self,
        member: &Session,
        filter: &TopicFilter,
        message: &Message,
    ) -> Option<Explanation> {
        let subscription = member.subscriptions.iter().find(|subscription| subscription.filter == *filter)?;
        self.explain_expiry(message).or_else(|| Some(self.fate(member, subscription, &asked(message))))
    }

    fn explain_expiry(&self, message: &Message) -> Option<Explanation> {
        let is_over = message.expires_at.is_some_and(|at| at <= self.now.wall);
        is_over.then(|| Explanation::no(Cause::Expired, None, "its message expiry interval is over".to_owned()))
    }

    /// The reason why no subscriber would get it.
    fn explain_refusal(&self, question: &Question) -> Option<Explanation> {
        let Question { topic, qos, bytes, publisher, expiry, retained } = question;
        let levels = self.config.max_topic_levels;
        if topic.level_count() > levels {
            let detail = format!("the topic has {} levels; limits.max_topic_levels is {levels}", topic.level_count());
            return Some(Explanation::no(Cause::TopicTooDeep, None, detail));
        }
        if let Some(refused) = publisher.as_ref().and_then(|publisher| self.explain_publisher(publisher, topic)) {
            return Some(refused);
        }
        let limit = usize::try_from(self.config.max_packet_bytes).unwrap_or(usize::MAX);
        let size = packet_bytes(question, *qos, Version::V311, 0);
        if size > limit && !retained {
            let detail = format!("the PUBLISH of {size} bytes is larger than limits.maximum_packet_size, {limit}");
            return Some(Explanation::no(Cause::PacketTooLargeForBroker, None, detail));
        }
        debug_assert!(size >= *bytes, "a packet has its payload in it");
        if self.full && *qos > QoS::AtMostOnce && !retained {
            let detail = "the journal has no room: publications with QoS 1 and 2 are refused with 0x97".to_owned();
            return Some(Explanation::no(Cause::JournalFull, None, detail));
        }
        (*expiry == Some(0)).then(|| {
            let detail = "a message expiry interval of 0 seconds is over when the message comes".to_owned();
            Explanation::no(Cause::Expired, None, detail)
        })
    }

    fn explain_plain(&self, session: &Session, plain: &[&Subscription], question: &Question) -> Option<Explanation> {
        let first = plain.first()?;
        let is_own = question.publisher.as_ref() == Some(&session.client);
        let heard: Vec<&&Subscription> =
            plain.iter().filter(|subscription| !(is_own && subscription.options.no_local)).collect();
        if heard.is_empty() {
            let detail = "the client has published it itself, and the subscription has No Local".to_owned();
            return Some(Explanation::no(Cause::NoLocal, Some(first.filter.clone()), detail));
        }
        if let Some(refused) = self.explain_rules(session, &first.filter, &question.topic) {
            return Some(refused);
        }
        let best = heard.into_iter().max_by_key(|subscription| subscription.options.qos)?;
        Some(self.fate(session, best, question))
    }

    fn explain_shared(
        &self,
        (key, session): (SessionKey, &Session),
        subscription: &Subscription,
        question: &Question,
        elsewhere: Elsewhere,
    ) -> Explanation {
        let filter = &subscription.filter;
        if let Some(refused) = self.explain_rules(session, filter, &question.topic) {
            return refused;
        }
        let size = size_of(question);
        let chosen = self.best_member((&question.topic, question.qos, size), filter);
        match chosen {
            Some((_, member, _)) if member == key => {
                turn(session.connection.is_some(), elsewhere, self.fate(session, subscription, question))
            }
            Some((_, member, _)) => {
                let other = self.sessions.get(member).map_or("another client", |session| session.client.as_str());
                let detail = format!("one member of the shared subscription gets it; it is the turn of {other:?}");
                Explanation::no(Cause::SharedElsewhere, Some(filter.clone()), detail)
            }
            None => {
                let detail = "one member of the shared subscription gets it, and it is not this one".to_owned();
                Explanation::no(Cause::SharedElsewhere, Some(filter.clone()), detail)
            }
        }
    }

    fn explain_rules(&self, session: &Session, filter: &TopicFilter, topic: &TopicName) -> Option<Explanation> {
        let rules = self.policy.rules.as_deref();
        if may_receive(rules, session, topic) {
            return None;
        }
        let user = user_of(session);
        let who = Who { user, client: session.client.as_str() };
        let line = rules.and_then(|rules| rules.decide(who, Action::Receive, topic.as_str()).line);
        let detail = format!("access rules: {} may not receive it; {}", named(&session.client, user), rule(line));
        Some(Explanation::no(Cause::NotAuthorized, Some(filter.clone()), detail))
    }

    /// Whether a retained message of a topic comes when the client subscribes again (MQTT 5.0 section 3.3.1.3).
    fn explain_retained(&self, session: &Session, matching: &[&Subscription], topic: &TopicName) -> Explanation {
        let Some(plain) = matching.iter().find(|subscription| !subscription.is_shared()) else {
            let filter = matching.first().map(|subscription| subscription.filter.clone());
            let detail = "shared subscriptions get no retained messages".to_owned();
            return Explanation::no(Cause::RetainedShared, filter, detail);
        };
        if let Some(refused) = self.explain_rules(session, &plain.filter, topic) {
            return refused;
        }
        let (cause, detail) = match plain.options.retain_handling {
            RetainHandling::Send => {
                let detail = "the retained message, if there is one, comes with each SUBSCRIBE";
                return Explanation::yes(Cause::Retained, plain, plain.options.qos, detail.to_owned());
            }
            RetainHandling::SendIfNew => (
                Cause::RetainHandling,
                "Retain Handling 1: only a subscription that did not exist gets retained messages",
            ),
            RetainHandling::DoNotSend => {
                (Cause::RetainHandling, "Retain Handling 2: the subscription gets no retained messages")
            }
        };
        Explanation::no(cause, Some(plain.filter.clone()), detail.to_owned())
    }

    /// The outcome for a message that the session is to get: see [`crate::send`].
    fn fate(&self, session: &Session, subscription: &Subscription, question: &Question) -> Explanation {
        let qos = question.qos.min(subscription.options.qos);
        let size = size_of(question);
        let filter = || Some(subscription.filter.clone());
        let connection = session.connection.and_then(|key| self.connections.get(key));
        if let Some(connection) = connection {
            let packet = packet_bytes(question, qos, connection.version, subscription.id);
            if packet > usize::try_from(connection.max_packet).unwrap_or(usize::MAX) {
                let limit = connection.max_packet;
                let detail =
                    format!("the PUBLISH of {packet} bytes is larger than the client's Maximum Packet Size, {limit}");
                return Explanation::no(Cause::PacketTooLarge, filter(), detail);
            }
            if may_send(session, connection, (qos, size), (&self.config, &self.counters)) {
                let detail = format!("the client is connected from {}", connection.peer.address);
                return Explanation::yes(Cause::Connected, subscription, qos, detail);
            }
        } else if qos == QoS::AtMostOnce && !self.config.queue_qos0_offline {
            let detail = "the client is away, and QoS 0 does not wait: limits.queue_qos0_offline is false".to_owned();
            return Explanation::no(Cause::OfflineQos0, filter(), detail);
        }
        let room = Room::of(&self.config, session, connection);
        if session.queue.has_room(size, room, &self.counters) {
            let (cause, detail) = waits_for(session, connection, self.config.outbox_high_water);
            return Explanation { outcome: Outcome::Waits, ..Explanation::yes(cause, subscription, qos, detail) };
        }
        let (limits, queue) = (room.limits, &session.queue);
        let held = format!("{} messages and {} bytes wait", queue.len(), queue.bytes());
        let (cause, key) = if queue.len() >= limits.messages {
            (Cause::QueueFull, format!("limits.max_queued_messages is {}", limits.messages))
        } else if queue.bytes().saturating_add(size) > limits.bytes {
            (Cause::QueueBytesFull, format!("limits.max_queued_bytes is {}", limits.bytes))
        } else {
            (Cause::BuffersFull, "its share of limits.max_buffered_bytes is used up".to_owned())
        };
        if size <= limits.bytes && limits.messages > 0 && (queue.qos0() > 0 || limits.drops_oldest) {
            let detail = format!("{held}, and {key}: what has waited longest is dropped for it");
            return Explanation { outcome: Outcome::Waits, ..Explanation::yes(cause, subscription, qos, detail) };
        }
        Explanation::no(cause, filter(), format!("{held}, and {key}: what comes is dropped"))
    }
}

/// The `fate` of a message for a member of a shared subscription that has others elsewhere: one gets it, a connected one if there is any.
fn turn(is_connected: bool, elsewhere: Elsewhere, fate: Explanation) -> Explanation {
    let Elsewhere { online, offline } = elsewhere;
    if !is_connected && online > 0 {
        let detail = format!(
            "one member of the shared subscription gets it: one of {online} elsewhere that are connected, as long as this one is away"
        );
        return Explanation::no(Cause::SharedElsewhere, fate.filter, detail);
    }
    let rivals = if is_connected { online } else { offline };
    if rivals == 0 || fate.outcome == Outcome::Not {
        return fate;
    }
    let detail = format!(
        "one member of the shared subscription gets it, this one or one of {rivals} elsewhere, in turns; if it is this one: {}",
        fate.detail
    );
    Explanation { cause: Cause::SharedTurn, detail, ..fate }
}

/// Why a message waits for a session that has room for it.
fn waits_for(session: &Session, connection: Option<&Connection>, high_water: usize) -> (Cause, String) {
    let waiting = session.queue.len();
    match connection {
        None => (Cause::Offline, format!("the client is away; {waiting} messages wait for it")),
        Some(_) if session.is_held => (
            Cause::Settling,
            "the client resumes its session: everything waits until it has repeated what it had begun".to_owned(),
        ),
        Some(connection) if connection.outbox.len() > high_water => {
            let detail = format!(
                "the client reads slowly: limits.max_outbox_bytes wait in its connection, {waiting} messages behind"
            );
            (Cause::SlowReader, detail)
        }
        Some(connection) if !session.inflight.has_room(connection.window) => {
            let (sent, window) = (session.inflight.len(), connection.window);
            let detail = format!(
                "{sent} messages are sent and not acknowledged, the client's window is {window}; {waiting} messages wait"
            );
            (Cause::WindowFull, detail)
        }
        Some(_) => (Cause::Behind, format!("{waiting} messages wait for the client ahead of it")),
    }
}

/// A publication that somebody has sent, as a question.
fn asked(message: &Message) -> Question {
    Question {
        topic: message.topic.clone(),
        qos: message.qos,
        bytes: message.payload.len(),
        publisher: message.publisher.clone(),
        expiry: message.expires_at.map(|_| 1),
        retained: false,
    }
}

/// Bytes of a message in a queue.
fn size_of(question: &Question) -> usize {
    question.bytes + question.topic.as_bytes().len() + 64
}

/// Bytes of the PUBLISH, without properties that the publisher may add.
fn packet_bytes(question: &Question, qos: QoS, version: Version, subscription_id: u32) -> usize {
    let varint = |value: usize| 1 + [128, 16_384, 2_097_152].iter().filter(|limit| value >= **limit).count();
    let id = usize::try_from(subscription_id).unwrap_or(0);
    let properties = match version {
        Version::V311 => 0,
        Version::V5 => 1 + if id == 0 { 0 } else { 1 + varint(id) } + if question.expiry.is_some() { 5 } else { 0 },
    };
    let packet_id = if qos == QoS::AtMostOnce { 0 } else { 2 };
    let rest = 2 + question.topic.as_bytes().len() + packet_id + properties + question.bytes;
    1 + varint(rest) + rest
}

fn user_of(session: &Session) -> Option<&str> {
    session.identity.as_ref().and_then(|identity| identity.user.as_deref())
}

fn named(client: &ClientId, user: Option<&str>) -> String {
    let client = client.as_str();
    user.map_or_else(
        || format!("client {client:?} without a user name"),
        |user| format!("user {user:?}, client {client:?},"),
    )
}

fn rule(line: Option<u32>) -> String {
    line.map_or_else(|| "no line of acl.file allows it".to_owned(), |line| format!("line {line} of acl.file decides"))
}
