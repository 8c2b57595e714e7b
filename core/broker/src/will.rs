//! Will messages (MQTT 5.0 section 3.1.2.5).

use std::sync::Arc;

use sedge_base::{ClientId, Duration, Instant};
use sedge_mqtt::{Message, PublishProperties, ReadAt, Will, WillProperties};

use crate::broker::Timer;
use crate::clock::expires_at;
use crate::outgoing::Buffer;
use crate::session::SessionKey;
use crate::{Broker, Identity, Output};

/// How long a will waits after the connection is lost.
pub(crate) fn delay_of(will: &Will) -> Duration {
    Duration::from_secs(u64::from(will.properties.delay.unwrap_or(0)))
}

/// The message properties a will asks for.
fn properties_of(properties: &WillProperties) -> Option<Box<PublishProperties>> {
    let WillProperties { delay: _, message_expiry: _, payload_is_utf8, content_type, response_topic, .. } = properties;
    let properties = PublishProperties {
        payload_is_utf8: *payload_is_utf8,
        content_type: content_type.clone(),
        response_topic: response_topic.clone(),
        correlation_data: properties.correlation_data.clone(),
        user: properties.user.clone(),
        ..PublishProperties::default()
    };
    (properties != PublishProperties::default()).then(|| Box::new(properties))
}

impl Broker {
    /// The connection was lost: publishes the will, or lets it wait for its delay.
    pub(crate) fn schedule_will(&mut self, key: SessionKey) {
        let now = self.now.instant;
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some(will) = &mut session.will {
            will.due = Some(now + delay_of(&will.will));
        }
        self.publish_due_will(key);
    }

    /// Publishes the will if its time has come.
    fn publish_due_will(&mut self, key: SessionKey) {
        let now = self.now.instant;
        let Some(session) = self.sessions.get_mut(key) else { return };
        let will = session.will.take_if(|will| will.due.is_some_and(|due| due <= now));
        if let Some(will) = will {
            let (client, identity) = (session.client.clone(), session.identity.clone());
            self.note_will(key);
            self.publish_will(client, identity.as_deref(), *will.will);
        }
    }

    /// Publishes a will like any publication of its client: rules that have changed since CONNECT count.
    pub(crate) fn publish_will(&mut self, client: ClientId, identity: Option<&Identity>, will: Will) {
        let allowed = |known: &Identity| self.may_leave_will(known.user.as_deref(), &client, &will.topic);
        if !identity.is_none_or(allowed) {
            self.counters.refused_publications += 1;
            return;
        }
        let properties = properties_of(&will.properties);
        let expiry = will.properties.message_expiry;
        let message = Arc::new(Message {
            id: self.clock.next_id(),
            topic: will.topic,
            payload: will.payload,
            qos: will.qos,
            retain: will.retain,
            properties,
            stamp: self.clock.next_stamp(self.now),
            expires_at: expiry.map(|secs| expires_at(self.now, secs)),
            publisher: Some(client),
            read_at: ReadAt::at(self.now.instant),
        });
        self.counters.wills += 1;
        let matched = self.fan_out_own(&message, Buffer::Read);
        self.outputs.push_back(Output::Route { message, ticket: None, matched });
    }

    /// The will of a client that is away is published elsewhere.
    pub fn forget_will(&mut self, client: &ClientId) {
        let Some(&key) = self.clients.get(client) else { return };
        if self.sessions.get(key).is_some_and(|session| session.connection.is_none()) {
            self.drop_will(key);
        }
    }

    /// Somebody else publishes the will of this session.
    pub(crate) fn drop_will(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let is_away = session.connection.is_none();
        if session.will.take().is_some() {
            self.note_will(key);
            if is_away {
                self.set_session_timer(key);
            }
        }
    }

    /// Sets the timer of a session without connection to what comes first: its will or its end.
    pub(crate) fn set_session_timer(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        let will = session.will.as_ref().and_then(|will| will.due);
        match will.map_or(session.expires, |will| will.min(session.expires)) {
            Instant::NEVER => {
                self.timers.cancel(&Timer::Session(key));
            }
            at => self.timers.set(Timer::Session(key), at),
        }
    }

    /// A session without connection reaches its will or its end.
    pub(crate) fn on_session_timer(&mut self, key: SessionKey) {
        self.publish_due_will(key);
        let Some(session) = self.sessions.get(key) else { return };
        if session.expires <= self.now.instant {
            self.counters.sessions_expired += 1;
            self.end_session(key, true);
        } else {
            self.set_session_timer(key);
        }
    }
}
