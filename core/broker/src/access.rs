//! Identity and permissions of clients (MQTT 5.0 sections 3.1.4, 4.12 and 5.4).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use sedge_access::{Action, Reach, Rules, Who};
use sedge_base::{ClientId, ConnId, Duration};
use sedge_mqtt::{ReasonCode, TopicFilter, TopicName};

use crate::broker::Timer;
use crate::connection::{ConnKey, Phase, Side};
use crate::disconnect::Ending;
use crate::enhanced::{Enhanced, Stage};
use crate::journal::kept;
use crate::session::{Session, SessionKey};
use crate::{Broker, Credentials, Method, Output};

/// The identification that a broker asks of its clients, and their permissions. The default asks nothing and allows everything, at no cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Whether each CONNECT is put to the owner with [`Output::Authenticate`].
    pub authenticate: bool,
    /// The rules of who may publish and receive what; `None`: everybody everything.
    pub rules: Option<Arc<Rules>>,
    /// Whether a client that publishes what it may not is disconnected (0x87). Otherwise the message is dropped: 5.0 is told with
    /// PUBACK or PUBREC at QoS 1 and 2, and 3.1.1, which has no word for it, sees an acknowledgement.
    pub disconnect_refused: bool,
}

/// A client whose identity is established.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user name that was proven; `None`: an anonymous client.
    pub user: Option<Box<str>>,
}

/// A client that is let in, and on which terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The identity.
    pub identity: Identity,
    /// Whether that rests on an account that can be taken away: [`crate::Input::Revoke`] ends the connection.
    pub account: bool,
    /// For how long; then the connection ends (0xA0). `None`: for ever.
    pub expires_in: Option<Duration>,
    /// Last data of an enhanced authentication, for CONNACK or AUTH.
    pub data: Option<Bytes>,
}

impl From<Identity> for Admission {
    fn from(identity: Identity) -> Self {
        Self { identity, ..Self::default() }
    }
}

/// Client ids that begin so belong to parts of the process, bridges and rules: nobody else can connect with one, they are asked for no
/// password, and access rules do not apply to them.
pub const INSIDE_PREFIXES: [&str; 2] = [BRIDGE_PREFIX, "$rule/"];

/// That of bridges.
pub(crate) const BRIDGE_PREFIX: &str = "$bridge/";

/// Whether a client id is one of those.
pub(crate) fn is_inside_id(client: &str) -> bool {
    INSIDE_PREFIXES.iter().any(|prefix| client.starts_with(prefix))
}

/// Whether the client is a part of the process, here or at another node.
pub(crate) fn is_inside(client: &ClientId) -> bool {
    is_inside_id(client.as_str())
}

/// Whether the session may get a message of `topic`. A session whose client has not been here since it came from elsewhere is
/// nobody's yet: the messages that wait for it are checked when the client comes.
pub(crate) fn may_receive(rules: Option<&Rules>, session: &Session, topic: &TopicName) -> bool {
    let (Some(rules), Some(identity)) = (rules, &session.identity) else { return true };
    let who = Who { user: identity.user.as_deref(), client: session.client.as_str() };
    rules.decide(who, Action::Receive, topic.as_str()).allowed
}

impl Broker {
    /// Another policy: counts for the next packet of every client. Subscriptions stay, and bring what they may bring from now on.
    pub(crate) fn on_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.connections.iter_mut().for_each(|connection| connection.peer.verdicts = None);
        let keys: Vec<SessionKey> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(identity) = self.present_identity(key) {
                self.identify(key, &identity);
            }
            self.judge_subscriptions(key);
        }
    }

    /// Asks the owner who the client of a CONNECT is.
    pub(crate) fn ask_who(&mut self, key: ConnKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(pending) = &mut connection.pending else { return };
        let method = pending.connect.properties.authentication_method.clone();
        // A broker behind this node is told it, too.
        let password = if self.config.delivers_elsewhere {
            pending.connect.password.clone()
        } else {
            pending.connect.password.take()
        };
        let credentials = Credentials {
            conn: connection.id,
            client: pending.client.clone(),
            peer: connection.peer.address.to_string(),
            certificate: connection.peer.user.as_deref().map(str::to_owned),
            user: pending.connect.username.as_ref().map(|user| user.as_str().to_owned()),
            password,
            method: method.as_ref().map(|name| Method {
                name: name.as_str().to_owned(),
                data: pending.connect.properties.authentication_data.take().unwrap_or_default(),
            }),
        };
        connection.phase = Phase::Authenticating;
        connection.hold(&mut self.outputs);
        match method {
            // The time for CONNECT is that for all of the exchange.
            Some(method) => connection.enhanced = Some(Box::new(Enhanced::new(method))),
            None => self.timers.set(Timer::Connection(key), self.now.instant + self.config.auth_timeout),
        }
        self.outputs.push_back(Output::Authenticate(Box::new(credentials)));
    }

    /// The owner's answer.
    pub(crate) fn on_authenticated(&mut self, conn: ConnId, answer: Result<Admission, ReasonCode>) {
        let Some(key) = self.connections.key(conn) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.phase == Phase::Live {
            return self.on_authenticated_again(key, answer);
        }
        if connection.phase != Phase::Authenticating {
            return;
        }
        match answer {
            Ok(admission) => {
                connection.peer.user = admission.identity.user;
                connection.peer.account = admission.account;
                if let Some(enhanced) = &mut connection.enhanced {
                    enhanced.stage = Stage::Done;
                    enhanced.data = admission.data;
                }
                if let Some(time) = admission.expires_in {
                    connection.peer.expires = true;
                    self.timers.set(Timer::Expiry(key), self.now.instant + time);
                }
                self.admit(key);
            }
            Err(reason) => {
                self.counters.authentications_refused += 1;
                let enhanced = connection.enhanced.is_some();
                let ending = refused_for(reason);
                let ending = if enhanced { ending.decided_by("auth.password_file") } else { ending };
                self.end_connection(key, ending);
            }
        }
    }

    /// These accounts are gone, or have another password: clients that connected with them have to leave.
    pub(crate) fn on_revoke(&mut self, users: &BTreeSet<Box<str>>) {
        let is_revoked = |user: &Option<Box<str>>| user.as_ref().is_some_and(|user| users.contains(user));
        let keys: Vec<ConnKey> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.peer.account && is_revoked(&connection.peer.user))
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            let detail = "the account was removed or has another password";
            self.end_connection(key, Ending::server(ReasonCode::NotAuthorized, detail));
        }
    }

    /// The time for which a client was let in is over (MQTT 5.0 section 3.14.2.1).
    pub(crate) fn on_expiry_timer(&mut self, key: ConnKey) {
        self.counters.expired_admissions += 1;
        self.end_connection(key, Ending::server(ReasonCode::MaximumConnectTime, "the token has expired"));
    }

    /// Whether a client that is not connected yet may publish to `topic`.
    pub(crate) fn may_leave_will(&self, user: Option<&str>, client: &ClientId, topic: &TopicName) -> bool {
        let Some(rules) = &self.policy.rules else { return true };
        if is_inside(client) {
            return true;
        }
        rules.decide(Who { user, client: client.as_str() }, Action::Publish, topic.as_str()).allowed
    }

    /// Whether a client publishes what it may not; counts it.
    pub(crate) fn is_refused(&mut self, key: ConnKey, session: SessionKey, topic: &TopicName) -> bool {
        let Some(rules) = &self.policy.rules else { return false };
        let Some(session) = self.sessions.get(session) else { return false };
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if connection.peer.side != Side::Outside {
            return false;
        }
        let user = session.identity.as_ref().and_then(|identity| identity.user.as_deref());
        let decide = || {
            let who = Who { user, client: session.client.as_str() };
            rules.decide(who, Action::Publish, topic.as_str()).allowed
        };
        let refused = !connection.peer.verdicts.get_or_insert_default().find(topic.as_str(), decide);
        self.counters.refused_publications += u64::from(refused);
        refused
    }

    /// How much a subscription of this session may bring.
    pub(crate) fn reach(&self, session: SessionKey, filter: &TopicFilter) -> Reach {
        let (Some(rules), Some(session)) = (&self.policy.rules, self.sessions.get(session)) else { return Reach::All };
        if is_inside(&session.client) {
            return Reach::All;
        }
        let Some(identity) = &session.identity else { return Reach::Some };
        let who = Who { user: identity.user.as_deref(), client: session.client.as_str() };
        rules.judge(who, filter.filter())
    }

    /// The client of a session is known: its waiting messages and its subscriptions are checked against its permissions.
    pub(crate) fn identify(&mut self, key: SessionKey, identity: &Identity) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if self.policy.rules.is_none() || is_inside(&session.client) {
            session.identity = None;
            return;
        }
        if session.identity.as_deref() == Some(identity) {
            return;
        }
        session.identity = Some(Box::new(identity.clone()));
        self.judge_subscriptions(key);
        let rules = self.policy.rules.as_deref();
        let Some(session) = self.sessions.get_mut(key) else { return };
        let mut queue = core::mem::take(&mut session.queue);
        let mut journal = kept(self.journal.as_deref_mut(), session);
        let allowed = |item: &crate::outgoing::Outgoing| {
            let allowed = may_receive(rules, session, &item.message.topic);
            if let (false, Some((journal, number))) = (allowed, &mut journal) {
                journal.dropped(*number, item);
            }
            allowed
        };
        self.counters.dropped.not_authorized += queue.retain(&mut self.counters, allowed);
        session.queue = queue;
    }

    /// The client that is connected to a session.
    fn present_identity(&self, key: SessionKey) -> Option<Identity> {
        let connection = self.connections.get(self.sessions.get(key)?.connection?)?;
        Some(Identity { user: connection.peer.user.clone() })
    }

    /// Marks the subscriptions of a session whose messages have to be looked at one by one.
    fn judge_subscriptions(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        let subscriptions: Vec<_> = session.subscriptions.iter().cloned().collect();
        for subscription in subscriptions {
            let checked = self.reach(key, &subscription.filter) != Reach::All;
            if checked != subscription.checked {
                self.subscribe(key, subscription);
            }
        }
    }
}

/// The end of a client that is not let in, in words, and the key of the configuration that decides.
pub(crate) fn refused_for(reason: ReasonCode) -> Ending {
    const TOLD: [(ReasonCode, &str, &str); 5] = [
        (ReasonCode::BadAuthenticationMethod, "the authentication method is not offered", "auth.password_file"),
        (ReasonCode::BadUserNameOrPassword, "wrong user name or password", "auth.password_file"),
        (ReasonCode::QuotaExceeded, "too many clients of this user are connected", "limits.max_connections_per_user"),
        (ReasonCode::ServerBusy, "too many clients are being authenticated", "auth.max_waiting"),
        (ReasonCode::ServerUnavailable, "whoever knows the accounts does not answer", "auth.http_url"),
    ];
    let told = TOLD.iter().find(|(told, ..)| *told == reason);
    let (words, key) = told.map_or(("not authorized", "auth.anonymous"), |&(_, words, key)| (words, key));
    Ending::server(reason, words).decided_by(key)
}
