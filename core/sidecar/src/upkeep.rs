//! Connections to the broker: dialled, greeted, kept alive, lost and made again.

use std::sync::Arc;

use sedge_base::ClientId;
use sedge_mqtt::{
    ConnAck, Connect, ConnectProperties, Disconnect, Packet, QoS, ReasonCode, SubscriptionOptions, TopicFilter,
    Version, encode,
};

use crate::conversation::{Allowed, Asked, Key, Party, Phase, Reading, What};
use crate::expected::RECOGNISED;
use crate::machine::Timer;
use crate::{Answer, Event, LinkId, Output, Request, Share, Sidecar};

/// PINGREQs of one client that wait for the broker; the sidecar answers more by itself.
const PINGS_AT_ONCE: usize = 64;
/// Topic in which a broker publishes its make and version.
pub(crate) const VERSION_TOPIC: &str = "$SYS/broker/version";

impl Sidecar {
    pub(crate) fn dial(&mut self, key: Key) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        if conversation.phase != Phase::Idle {
            return;
        }
        self.last_link += 1;
        let link = LinkId::new(self.last_link, key);
        conversation.phase = Phase::Dialling;
        conversation.link = Some(link);
        self.timers.cancel(&Timer::Retry(key));
        self.timers.set(Timer::Connect(key), self.now.instant + self.config.connect_timeout);
        let origin = conversation.origin.as_deref().cloned();
        self.outputs.push_back(Output::Dial { link, origin });
    }

    pub(crate) fn on_opened(&mut self, link: LinkId) {
        let Some(key) = self.conversation_of(link) else { return };
        let keep_alive = u16::try_from(self.config.ping_period.as_secs().saturating_mul(2)).unwrap_or(u16::MAX);
        let only_311 = self.broker.only_311;
        let Some(conversation) = self.conversations.get_mut(key).filter(|found| found.phase == Phase::Dialling) else {
            return;
        };
        conversation.phase = Phase::Greeting;
        conversation.last_heard = self.now.instant;
        self.counters.connections += 1;
        conversation.version = if only_311 { Version::V311 } else { conversation.wanted };
        let version = conversation.version;
        conversation.decoder.set_version(version);
        let properties = ConnectProperties {
            maximum_packet_size: (version == Version::V5).then_some(self.config.max_packet_bytes),
            ..ConnectProperties::default()
        };
        let login = conversation.login.as_deref();
        let connect = Connect {
            version,
            bridge: false,
            clean_start: true,
            keep_alive,
            client_id: conversation.party.client_id(&self.config.inlet_prefix),
            will: None,
            username: login.and_then(|login| login.user.clone()),
            password: login.and_then(|login| login.password.clone()),
            properties,
        };
        conversation.outbox.append(|out| encode(&Packet::Connect(Box::new(connect)), version, out));
        self.transmit(key);
    }

    pub(crate) fn on_connack(&mut self, key: Key, connack: &ConnAck) {
        if connack.reason.is_error() {
            return self.on_refused(key, connack);
        }
        let properties = &connack.properties;
        let window = properties.receive_maximum.unwrap_or(u16::MAX).min(self.config.window);
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        self.has_v5 |= conversation.version == Version::V5;
        conversation.phase = Phase::Live;
        conversation.failures = 0;
        conversation.allowed = Allowed {
            window: window.max(1),
            qos: properties.maximum_qos.unwrap_or(QoS::ExactlyOnce),
            retain: properties.retain_available.unwrap_or(true),
            ids: properties.subscription_ids_available.unwrap_or(true),
            packet_bytes: properties.maximum_packet_size.unwrap_or(u32::MAX),
        };
        let attached = core::mem::take(&mut conversation.attaching);
        let party = conversation.party.clone();
        self.timers.cancel(&Timer::Connect(key));
        self.timers.cancel(&Timer::Grace(key));
        self.timers.set(Timer::Ping(key), self.now.instant + self.config.ping_period);
        match party {
            Party::Client(client) => {
                self.promote(&client, key);
                self.replay(key);
                self.hurry_inlets();
                if attached {
                    self.outputs.push_back(Output::Attached(client, Answer::Open));
                }
            }
            Party::Inlet(number) => self.inlet_is_live(key, number),
        }
        self.send_asked(key);
        self.pump(key);
    }

    /// The broker serves a client: it takes the inlets as well, whenever they would have tried again.
    fn hurry_inlets(&mut self) {
        if self.broker.is_up {
            return;
        }
        for key in self.inlets.clone() {
            if self.timers.get(&Timer::Retry(key)).is_some() {
                self.timers.set(Timer::Retry(key), self.now.instant);
            }
        }
    }

    fn inlet_is_live(&mut self, key: Key, number: u16) {
        if !self.broker.is_up {
            self.broker.is_up = true;
            self.broker.since = self.now.instant;
            self.told_up = false;
        }
        if number == 0 {
            // The only subscription that an inlet ever has: it ends with the first answer.
            if let (Ok(filter), Some(conversation)) = (TopicFilter::new(VERSION_TOPIC), self.conversations.get_mut(key))
            {
                let request = Request { filter, options: SubscriptionOptions::default(), id: 0, retained: true };
                conversation.asked.push_back(Asked {
                    id: None,
                    token: None,
                    is_brought: false,
                    what: What::Subscribe(vec![request]),
                });
            }
            self.outputs.push_back(Output::Restore);
        }
        if !self.told_up {
            self.told_up = true;
            self.outputs.push_back(Output::Event(Event::Up { version: self.broker.version.clone() }));
        }
    }

    /// The broker says no to a CONNECT.
    fn on_refused(&mut self, key: Key, connack: &ConnAck) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        if connack.reason == ReasonCode::UnsupportedProtocolVersion && conversation.version == Version::V5 {
            return self.fall_back(key);
        }
        let words = connack.properties.reason_string.as_ref().map_or("", |words| words.as_str()).to_owned();
        if let Party::Client(client) = conversation.party.clone()
            && core::mem::take(&mut conversation.attaching)
        {
            self.outputs.push_back(Output::Attached(client.clone(), Answer::Refused(connack.reason, words)));
            if self.probes.get(&client) == Some(&key) {
                self.probes.remove(&client);
                return self.give_up(key);
            }
        } else if matches!(conversation.party, Party::Inlet(_)) {
            self.outputs.push_back(Output::Event(Event::InletRefused(connack.reason)));
        }
        self.fail(key, &format!("the broker refuses the connection: {:?}", connack.reason));
    }

    /// The broker has no MQTT 5.0.
    pub(crate) fn fall_back(&mut self, key: Key) {
        if !self.broker.only_311 {
            self.broker.only_311 = true;
            self.outputs.push_back(Output::Event(Event::Only311));
        }
        self.drop_link(key);
        if let Some(conversation) = self.conversations.get_mut(key) {
            conversation.disconnect(&self.config);
        }
        self.dial(key);
    }

    /// A connection does not work: it is closed, and tried again later.
    pub(crate) fn fail(&mut self, key: Key, why: &str) {
        self.drop_link(key);
        self.lost(key, why);
    }

    fn drop_link(&mut self, key: Key) {
        let link = self.conversations.get_mut(key).and_then(|conversation| conversation.link.take());
        if let Some(link) = link {
            self.outputs.push_back(Output::Close(link));
        }
    }

    pub(crate) fn on_closed(&mut self, link: LinkId, why: &str) {
        let Some(key) = self.conversation_of(link) else { return };
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        conversation.link = None;
        // Brokers without MQTT 5.0 often close the connection without a word.
        if conversation.phase == Phase::Greeting && conversation.version == Version::V5 && !self.has_v5 {
            return self.fall_back(key);
        }
        self.lost(key, why);
    }

    /// A conversation has no connection any more.
    fn lost(&mut self, key: Key, why: &str) {
        for timer in [Timer::Connect(key), Timer::Ping(key)] {
            self.timers.cancel(&timer);
        }
        self.counters.failures += 1;
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        if conversation.phase == Phase::Closing {
            return self.give_up(key);
        }
        let was_live = conversation.phase == Phase::Live;
        self.answer_pings(key);
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        conversation.disconnect(&self.config);
        conversation.failures = conversation.failures.saturating_add(1);
        let doubled = self.config.retry_min.saturating_mul(1 << conversation.failures.saturating_sub(1).min(10));
        let pause = doubled.min(self.config.retry_max);
        self.timers.set(Timer::Retry(key), self.now.instant + pause);
        let is_client = matches!(conversation.party, Party::Client(_));
        if is_client && was_live {
            self.timers.set(Timer::Grace(key), self.now.instant + self.config.grace);
        }
        self.cover(key);
        self.cover_published(key);
        if !is_client {
            self.inlet_is_down(why);
        }
    }

    fn inlet_is_down(&mut self, why: &str) {
        let is_live = |key: &Key| self.conversations.get(*key).is_some_and(|inlet| inlet.phase == Phase::Live);
        let up = self.inlets.iter().any(is_live);
        let news = self.broker.last_error.as_deref() != Some(why);
        if !up && (self.broker.is_up || news) {
            self.outputs.push_back(Output::Event(Event::Down(why.to_owned())));
        }
        if !up && self.broker.is_up {
            self.broker.is_up = false;
            self.broker.since = self.now.instant;
        }
        self.broker.last_error = Some(why.to_owned());
    }

    /// The broker was away for longer than a client waits.
    pub(crate) fn on_grace_over(&mut self, key: Key) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        if conversation.phase == Phase::Live {
            return;
        }
        let Party::Client(client) = conversation.party.clone() else { return };
        if core::mem::take(&mut conversation.attaching) {
            let words = "the broker behind this node does not answer".to_owned();
            let answer = Answer::Refused(ReasonCode::ServerUnavailable, words);
            self.outputs.push_back(Output::Attached(client.clone(), answer));
            if self.probes.get(&client) == Some(&key) {
                self.probes.remove(&client);
                self.give_up(key);
            }
        } else {
            self.outputs.push_back(Output::Lost(client));
        }
    }

    /// The sidecar's copies take the place of all deliveries that a conversation expects.
    pub(crate) fn cover(&mut self, key: Key) {
        let until = self.now.instant + RECOGNISED;
        self.timers.cancel(&Timer::Expected(key));
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let client = conversation.client().cloned();
        let (due, next) = match &mut conversation.expected {
            Some(expected) => (expected.take(until), expected.next()),
            None => (Vec::new(), None),
        };
        if let Some(at) = next {
            self.timers.set(Timer::Expected(key), at);
        }
        for (number, message) in due {
            self.settle(number);
            self.counters.covered += 1;
            if let Some(client) = &client {
                self.outputs.push_back(Output::Delivered { client: client.clone(), message });
            }
        }
        if let Some(client) = client {
            self.cover_queued(&client);
        }
    }

    /// The broker does not hear a publisher: sessions that still wait for its publications get the copies here, in their order.
    fn cover_published(&mut self, key: Key) {
        self.queued.remove(&key);
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let mut unsent = core::mem::take(&mut conversation.unsent);
        for carried in unsent.iter_mut() {
            self.cover_one(carried);
        }
        if let Some(conversation) = self.conversations.get_mut(key) {
            conversation.unsent = unsent;
        }
    }

    /// A client is not served by the broker: publications that wait for the broker's window are delivered from the copies here.
    fn cover_queued(&mut self, client: &ClientId) {
        let (mut due, mut done) = (Vec::new(), Vec::new());
        for key in &self.queued {
            let Some(conversation) = self.conversations.get_mut(*key) else { continue };
            // Publications that were sent before are left out: their deliveries were expected, and have been covered.
            for carried in conversation.unsent.iter_mut().filter(|carried| !carried.was_sent) {
                let copies = carried.receivers.iter_mut().filter(|receiver| receiver.share == Share::Copy);
                for receiver in copies.filter(|receiver| receiver.client == *client) {
                    receiver.share = Share::Had;
                    due.push((carried.number, Arc::clone(&carried.message)));
                }
                if !carried.receivers.iter().any(|receiver| receiver.share == Share::Copy) {
                    done.push(carried.number);
                }
            }
        }
        due.sort_by_key(|&(number, _)| number);
        for (_, message) in due {
            self.counters.covered += 1;
            self.outputs.push_back(Output::Delivered { client: client.clone(), message });
        }
        for number in done {
            self.not_queued(number);
        }
    }

    /// A conversation that nobody needs any more is over; its publications for the broker go through an inlet.
    pub(crate) fn give_up(&mut self, key: Key) {
        self.drop_link(key);
        for timer in [Timer::Retry(key), Timer::Connect(key), Timer::Ping(key), Timer::Grace(key), Timer::Expected(key)]
        {
            self.timers.cancel(&timer);
        }
        self.answer_pings(key);
        self.cover(key);
        if !self.conversations.contains(key) {
            return;
        }
        let mut gone = self.conversations.remove(key);
        gone.disconnect(&self.config);
        while let Some(mut carried) = gone.pop_unsent() {
            if let Some(token) = carried.token.take() {
                self.outputs.push_back(Output::Published { token, reason: ReasonCode::Success });
            }
            let inlet = self.inlet_for(&carried.message, false);
            if self.conversations.get(inlet).is_some_and(|conversation| conversation.phase != Phase::Live) {
                self.cover_one(&mut carried);
            }
            if let Some(conversation) = self.conversations.get_mut(inlet) {
                conversation.push_unsent(carried);
            }
            self.pump(inlet);
        }
    }

    /// Ends a conversation when the broker has answered everything.
    pub(crate) fn close_if_done(&mut self, key: Key) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        if conversation.phase != Phase::Closing || !conversation.sent.is_empty() || !conversation.unsent.is_empty() {
            return;
        }
        let version = conversation.version;
        let packet = Packet::Disconnect(Disconnect::new(ReasonCode::Success));
        conversation.outbox.append(|out| encode(&packet, version, out));
        self.transmit(key);
        // The driver writes the outbox before it closes the connection: the conversation is forgotten when that is done.
        if let Some(link) = self.conversations.get(key).and_then(|found| found.link) {
            self.timers.set(Timer::Connect(key), self.now.instant + self.config.connect_timeout);
            self.on_written(link, 0);
        }
    }

    pub(crate) fn on_written(&mut self, link: LinkId, bytes: usize) {
        let Some(key) = self.conversation_of(link) else { return };
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        conversation.outbox.advance(bytes);
        let is_done = conversation.phase == Phase::Closing
            && conversation.outbox.is_empty()
            && conversation.sent.is_empty()
            && conversation.unsent.is_empty();
        if is_done {
            self.give_up(key);
        } else {
            self.pump(key);
        }
    }

    pub(crate) fn on_ping_timer(&mut self, key: Key) {
        let period = self.config.ping_period;
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        if conversation.reading == Reading::Held {
            // Its answer may wait unread.
            conversation.last_heard = self.now.instant;
            conversation.pinged = None;
        }
        let quiet = self.now.instant.since(conversation.last_heard);
        if quiet < period {
            let at = conversation.last_heard + period;
            return self.timers.set(Timer::Ping(key), at);
        }
        if conversation.pinged.is_some() {
            return self.fail(key, "the broker does not answer PINGREQ");
        }
        conversation.pinged = Some(self.now.instant);
        conversation.pings.push_back(None);
        let version = conversation.version;
        conversation.outbox.append(|out| encode(&Packet::PingReq, version, out));
        self.timers.set(Timer::Ping(key), self.now.instant + period / 2);
        self.transmit(key);
    }

    /// A client asks: where the broker cannot be asked, the sidecar answers for it.
    pub(crate) fn on_client_ping(&mut self, client: &ClientId, token: u64) {
        let key = self.clients.get(client).copied();
        let live = key.and_then(|key| self.conversations.get_mut(key)).filter(|found| found.phase == Phase::Live);
        let (Some(conversation), Some(key)) = (live, key) else {
            return self.outputs.push_back(Output::Ponged(token));
        };
        if conversation.pings.len() >= PINGS_AT_ONCE || conversation.reading == Reading::Held {
            return self.outputs.push_back(Output::Ponged(token));
        }
        conversation.pings.push_back(Some(token));
        let version = conversation.version;
        conversation.outbox.append(|out| encode(&Packet::PingReq, version, out));
        self.transmit(key);
    }

    /// Nobody waits for a broker that is gone.
    fn answer_pings(&mut self, key: Key) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let waiting = conversation.pings.take_all().into_iter().flatten();
        self.outputs.extend(waiting.map(Output::Ponged));
    }
}
