//! Packets to the broker: publications and requests.

use std::sync::Arc;

use sedge_base::{ClientId, Duration, StableHash, Timestamp, mix};
use sedge_mqtt::{
    Delivery, Message, Packet, PacketId, QoS, ReasonCode, RetainHandling, Subscribe, SubscriptionRequest, Unsubscribe,
    Version, encode, encode_publish, publish_len,
};

use crate::conversation::{Carried, Conversation, Key, Phase, Sent, What};
use crate::expected::{Overdue, RECOGNISED, print_of, weight};
use crate::machine::{Open, Timer};
use crate::{Output, Publication, Receiver, Request, Share, Sidecar};

/// Bytes in a connection's outbox above which publications with QoS 1 and 2 wait, and those with QoS 0 are dropped beyond the queue's limit.
const OUTBOX_HIGH: usize = 1024 * 1024;
/// Most publications with QoS 2 on their way to a broker by 3.1.1, which cannot say how many it takes: Mosquitto acknowledges
/// publications above 20 (`max_inflight_messages`) and drops them.
pub const EXACT_311: u16 = 20;

/// Seconds that a message still lives; `None`: for ever. They are rounded to the nearest: the clock of the publisher's node may be some
/// milliseconds ahead, and nobody gets more than the publisher gave (MQTT 5.0 section 3.3.2.3.3).
fn expiry(message: &Message, wall: Timestamp) -> Option<u32> {
    let left = message.expires_at?.since(wall).as_millis();
    let seconds = if left == 0 { 0 } else { (left.saturating_add(500) / 1_000).max(1) };
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// Appends a PUBLISH to the conversation's outbox.
fn send(conversation: &mut Conversation, carried: &Carried, id: Option<PacketId>, wall: Timestamp) {
    let qos = if id.is_some() { carried.message.qos.min(conversation.allowed.qos) } else { QoS::AtMostOnce };
    let delivery = Delivery {
        qos,
        retain: carried.retain && conversation.allowed.retain,
        packet_id: id,
        message_expiry: expiry(&carried.message, wall),
        ..Delivery::default()
    };
    let version = conversation.version;
    let room = carried.message.payload.len() + carried.message.topic.as_bytes().len() + 64;
    conversation.outbox.append_about(room, |out| encode_publish(&carried.message, &delivery, version, out));
}

impl Sidecar {
    /// A publication for the broker, and for the sessions that the broker has to deliver it to.
    pub(crate) fn on_publication(&mut self, publication: Publication) {
        let Publication { via, message, retain, is_restored, token, mut receivers } = publication;
        self.last_number += 1;
        let number = self.last_number;
        let own = via.and_then(|client| self.clients.get(&client).copied());
        self.open.insert(number, Open { by: own, deliveries: 0, is_queued: false, answered_at: None });
        let key = own.unwrap_or_else(|| self.inlet_for(&message, is_restored));
        let hears = |phase| matches!(phase, Phase::Live | Phase::Closing);
        let is_heard = self.conversations.get(key).is_some_and(|conversation| hears(conversation.phase));
        for receiver in &mut receivers {
            if receiver.share == Share::Copy && !(is_heard && self.is_served(&receiver.client)) {
                self.deliver(receiver, &message);
            }
        }
        if message.qos > QoS::AtMostOnce && receivers.iter().any(|receiver| receiver.share == Share::Copy) {
            self.note_queued(number);
        }
        self.carry(key, Carried { number, message, retain, token, receivers, was_sent: false });
    }

    /// Whether the broker delivers to a client: it has all its subscriptions.
    pub(crate) fn is_served(&self, client: &ClientId) -> bool {
        let key = self.clients.get(client);
        key.and_then(|key| self.conversations.get(*key)).is_some_and(|conversation| conversation.is_current())
    }

    /// An inlet: the same one for all that one publisher sends to one topic, which keeps their order; and for all that is restored of one topic,
    /// so that a value and its clearing do not pass each other, whoever published them.
    pub(crate) fn inlet_for(&self, message: &Message, is_restored: bool) -> Key {
        let publisher = message.publisher.as_ref().filter(|_| !is_restored).map_or("", |client| client.as_str());
        let mut hash = StableHash::new();
        hash.add(publisher.as_bytes());
        hash.add(&[0]);
        hash.add(message.topic.as_bytes());
        let count = self.inlets.len().max(1) as u64;
        let at = usize::try_from(mix(hash.get()) % count).unwrap_or(0);
        self.inlets.get(at).copied().unwrap_or(0)
    }

    /// The broker is about to get a publication: notes the deliveries that it will make, and those that it is not to make.
    fn expect(&mut self, carried: &mut Carried) {
        let mut receivers = core::mem::take(&mut carried.receivers);
        let message = &carried.message;
        let print = print_of(self.seed, message.topic.as_bytes(), &message.payload);
        for receiver in &mut receivers {
            self.expect_one(print, carried, receiver);
        }
        carried.receivers = receivers;
        self.not_queued(carried.number);
    }

    fn expect_one(&mut self, print: u64, carried: &Carried, receiver: &mut Receiver) {
        let (now, number, message) = (self.now.instant, carried.number, &carried.message);
        let key = self.clients.get(&receiver.client).copied();
        let Some((key, conversation)) = key.and_then(|key| Some((key, self.conversations.get_mut(key)?))) else {
            if receiver.share == Share::Copy {
                self.deliver(receiver, message);
            }
            return;
        };
        // Brokers deliver what has expired when it comes: its interval is 0.
        let is_tracked = conversation.tracks(message) || expiry(message, self.now.wall) == Some(0);
        let qos = message.qos.min(receiver.qos);
        let matches = receiver.matches;
        let has_had = match receiver.share {
            Share::Had => true,
            Share::NoLocal => conversation.version == Version::V311,
            Share::Copy if conversation.is_current() => {
                if is_tracked {
                    self.await_delivery(key, print, carried, receiver);
                }
                return;
            }
            Share::Copy => {
                self.deliver(receiver, message);
                true
            }
        };
        // Also where the broker has no subscription of the client yet: it may have it by the time it delivers.
        if let Some(conversation) = self.conversations.get_mut(key).filter(|_| has_had) {
            conversation.expected.get_or_insert_default().ignore(now + RECOGNISED, print, (number, qos), matches);
        }
    }

    /// A session has come with these subscriptions, and with all that was published before: deliveries of earlier publications, which the
    /// broker has yet to make, are not for the session.
    pub(crate) fn ignore_earlier(&mut self, key: Key, client: &ClientId, requests: &[Request]) {
        let wants = |message: &Message| {
            let matching = requests.iter().filter(|request| request.filter.matches(&message.topic));
            let (mut matches, mut qos) = (0_u16, QoS::AtMostOnce);
            for request in matching {
                (matches, qos) = (matches.saturating_add(1), qos.max(request.options.qos));
            }
            (matches > 0).then_some((matches, qos))
        };
        let mut ignored = Vec::new();
        for (_, conversation) in &mut self.conversations {
            for Sent { carried, .. } in conversation.sent.iter() {
                if let Some((matches, qos)) = wants(&carried.message) {
                    ignored.push((carried.number, Arc::clone(&carried.message), matches, qos));
                }
            }
            for carried in conversation.unsent.iter_mut() {
                let is_known = carried.receivers.iter().any(|receiver| receiver.client == *client);
                if let Some((matches, qos)) = wants(&carried.message).filter(|_| !is_known) {
                    carried.receivers.push(Receiver { client: client.clone(), matches, qos, share: Share::Had });
                }
            }
        }
        let (until, seed) = (self.now.instant + RECOGNISED, self.seed);
        let Some(conversation) = self.conversations.get_mut(key).filter(|_| !ignored.is_empty()) else { return };
        let expected = conversation.expected.get_or_insert_default();
        for (number, message, matches, qos) in ignored {
            let print = print_of(seed, message.topic.as_bytes(), &message.payload);
            expected.ignore(until, print, (number, message.qos.min(qos)), matches);
        }
        if let Some(at) = expected.next() {
            self.timers.set(Timer::Expected(key), at);
        }
    }

    fn await_delivery(&mut self, key: Key, print: u64, carried: &Carried, receiver: &Receiver) {
        let until = self.now.instant + self.config.delivery_timeout;
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let expected = conversation.expected.get_or_insert_default();
        let qos = carried.message.qos.min(receiver.qos);
        expected.expect(until, print, carried.number, (Arc::clone(&carried.message), qos), receiver.matches);
        let too_many = expected.len() > self.config.expected_messages || expected.bytes() > self.config.expected_bytes;
        if let Some(at) = expected.next() {
            self.timers.set(Timer::Expected(key), at);
        }
        self.note_awaited(carried.number);
        if too_many {
            self.cover_oldest(key);
        }
    }

    /// Sessions that still wait for a publication get the copy here; later deliveries of it by the broker are ignored.
    pub(crate) fn cover_one(&mut self, carried: &mut Carried) {
        let message = Arc::clone(&carried.message);
        for receiver in carried.receivers.iter_mut().filter(|receiver| receiver.share == Share::Copy) {
            if !carried.was_sent {
                self.deliver(receiver, &message);
                continue;
            }
            receiver.share = Share::Had;
            let key = self.clients.get(&receiver.client).copied();
            let expected = key.and_then(|key| self.conversations.get(key)?.expected.as_ref());
            if expected.is_some_and(|expected| expected.awaits(carried.number))
                && let Some(key) = key
            {
                self.cover(key);
            }
        }
        self.not_queued(carried.number);
    }

    /// A session gets the sidecar's copy: the broker cannot deliver to it. The deliveries that the session still expects of the broker were
    /// published before, and come first.
    pub(crate) fn deliver(&mut self, receiver: &mut Receiver, message: &Arc<Message>) {
        receiver.share = Share::Had;
        let key = self.clients.get(&receiver.client).copied();
        let expects = |key: Key| Some(self.conversations.get(key)?.expected.as_ref()?.len() > 0);
        if let Some(key) = key.filter(|key| expects(*key) == Some(true)) {
            self.cover(key);
        }
        self.counters.covered += 1;
        let (client, message) = (receiver.client.clone(), Arc::clone(message));
        self.outputs.push_back(Output::Delivered { client, message });
    }

    fn cover_oldest(&mut self, key: Key) {
        let until = self.now.instant + RECOGNISED;
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let covered = conversation.expected.as_mut().and_then(|expected| expected.cover_oldest(until));
        let (Some((number, message)), Some(client)) = (covered, conversation.client().cloned()) else { return };
        self.settle(number);
        self.counters.covered += 1;
        self.outputs.push_back(Output::Delivered { client, message });
    }

    fn carry(&mut self, key: Key, mut carried: Carried) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let is_open = matches!(conversation.phase, Phase::Live | Phase::Closing);
        if carried.message.qos > QoS::AtMostOnce {
            conversation.push_unsent(carried);
            self.make_room(key);
            return self.pump(key);
        }
        if is_open && conversation.outbox.len() < OUTBOX_HIGH.max(self.config.queue_bytes) {
            self.expect(&mut carried);
            self.send_now(key, &carried, None);
        } else {
            self.counters.dropped += 1;
        }
        self.is_published(carried.number, carried.token, ReasonCode::Success);
    }

    /// Drops the oldest waiting publications above the limits. A publication whose publisher waits for an answer stays: the publisher's
    /// receive maximum limits them.
    fn make_room(&mut self, key: Key) {
        let (messages, bytes) = (self.config.queue_messages, self.config.queue_bytes);
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let mut gone = Vec::new();
        while conversation.unsent.len() > messages || conversation.unsent_bytes > bytes {
            let Some(at) = conversation.unsent.iter().position(|carried| carried.token.is_none()) else { break };
            if let Some(carried) = conversation.unsent.remove(at) {
                conversation.unsent_bytes -= weight(&carried.message);
                gone.push(carried.number);
            }
        }
        for number in gone {
            self.counters.dropped += 1;
            self.note_answered(number);
        }
    }

    /// Sends the waiting publications, as far as the broker takes them.
    pub(crate) fn pump(&mut self, key: Key) {
        loop {
            let Some(conversation) = self.conversations.get_mut(key) else { return };
            let is_open = matches!(conversation.phase, Phase::Live | Phase::Closing);
            if !is_open || !has_room(conversation) {
                if is_open && !conversation.unsent.is_empty() {
                    self.queued.insert(key);
                }
                return;
            }
            let Some(carried) = conversation.pop_unsent() else {
                self.queued.remove(&key);
                return;
            };
            self.send_one(key, carried);
        }
    }

    fn send_one(&mut self, key: Key, mut carried: Carried) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let qos = carried.message.qos.min(conversation.allowed.qos);
        let probe = Delivery { qos, packet_id: PacketId::new(1), message_expiry: Some(0), ..Delivery::default() };
        let packet_bytes = usize::try_from(conversation.allowed.packet_bytes).unwrap_or(usize::MAX);
        if publish_len(&carried.message, &probe, conversation.version) > packet_bytes {
            self.counters.refused += 1;
            return self.is_published(carried.number, carried.token, ReasonCode::PacketTooLarge);
        }
        let id = if qos == QoS::AtMostOnce { None } else { conversation.next_id() };
        self.expect(&mut carried);
        self.send_now(key, &carried, id);
        match (id, self.conversations.get_mut(key)) {
            (Some(id), Some(conversation)) => conversation.sent.push_back(Sent { id, carried }),
            _ => self.is_published(carried.number, carried.token, ReasonCode::Success),
        }
    }

    fn send_now(&mut self, key: Key, carried: &Carried, id: Option<PacketId>) {
        let wall = self.now.wall;
        if let Some(conversation) = self.conversations.get_mut(key) {
            send(conversation, carried, id, wall);
            self.counters.published += 1;
            self.transmit(key);
        }
    }

    /// The broker has answered a publication.
    pub(crate) fn is_published(&mut self, number: u64, token: Option<u64>, reason: ReasonCode) {
        self.note_answered(number);
        if let Some(token) = token {
            self.outputs.push_back(Output::Published { token, reason });
        }
    }

    /// Sends requests that were not sent on this connection.
    pub(crate) fn send_asked(&mut self, key: Key) {
        let Some(conversation) = self.conversations.get_mut(key).filter(|found| found.phase == Phase::Live) else {
            return;
        };
        for at in 0..conversation.asked.len() {
            if conversation.asked.get(at).is_none_or(|asked| asked.id.is_some()) {
                continue;
            }
            let Some(id) = conversation.next_id() else { return };
            let (version, allows_ids) = (conversation.version, conversation.allowed.ids);
            let Some(asked) = conversation.asked.get_mut(at) else { return };
            asked.id = Some(id);
            let packet = match &asked.what {
                What::Subscribe(requests) => subscribe(id, requests, version, allows_ids),
                What::Unsubscribe(filters) => {
                    Packet::Unsubscribe(Unsubscribe { packet_id: id, filters: filters.clone(), user: Vec::new() })
                }
            };
            if let (What::Subscribe(requests), Some(_)) = (&asked.what, asked.token) {
                conversation.mutes_retained = requests.iter().all(|request| !request.retained);
            }
            conversation.outbox.append(|out| encode(&packet, version, out));
        }
        self.transmit(key);
    }

    /// An expectation has waited for too long. Where the broker has answered the publication, it does not deliver it. Else the broker hangs:
    /// until it is heard of again, the client gets the copies here.
    pub(crate) fn on_expected_timer(&mut self, key: Key) {
        let now = self.now.instant;
        let later = now + self.config.delivery_timeout;
        if self.cover_held(key) {
            return;
        }
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let Some(expected) = &mut conversation.expected else { return };
        let (open, patience) = (&self.open, self.config.delivery_timeout);
        // A delivery may come as long after the answer as after the publication.
        let is_open = |open: &Open| open.answered_at.is_none_or(|at| now < at + patience);
        let (mut withheld, mut mistaken, mut hangs) = (Vec::new(), Vec::new(), false);
        while let Some(overdue) = expected.pop_overdue(now, later, |number| open.get(&number).is_some_and(is_open)) {
            match overdue {
                Overdue::Withheld(number) => withheld.push(number),
                Overdue::Mistaken(number, message) => mistaken.push((number, message)),
                Overdue::Unanswered => hangs = true,
            }
        }
        match expected.next() {
            Some(at) => self.timers.set(Timer::Expected(key), at.max(now + Duration::from_millis(1))),
            None => conversation.expected = None,
        }
        if hangs {
            conversation.hangs_since.get_or_insert(now);
        }
        let client = conversation.client().cloned();
        for number in withheld {
            self.counters.withheld += 1;
            self.settle(number);
        }
        for (number, message) in mistaken {
            self.counters.covered += 1;
            self.settle(number);
            if let Some(client) = client.clone() {
                self.outputs.push_back(Output::Delivered { client, message });
            }
        }
        if hangs {
            self.cover(key);
        }
    }
}

fn subscribe(id: PacketId, requests: &[Request], version: Version, allows_ids: bool) -> Packet {
    let requests_of = |request: &Request| {
        let mut options = request.options;
        options.retain_handling = if request.retained { RetainHandling::Send } else { RetainHandling::DoNotSend };
        SubscriptionRequest { filter: request.filter.clone(), options }
    };
    let known = requests.first().map_or(0, |request| request.id);
    let subscription_id = (known != 0 && allows_ids && version == Version::V5).then_some(known);
    Packet::Subscribe(Subscribe {
        packet_id: id,
        requests: requests.iter().map(requests_of).collect(),
        subscription_id,
        user: Vec::new(),
    })
}

/// Whether the broker takes the publication that waits first, as far as it says. A broker that speaks 3.1.1 cannot say.
fn has_room(conversation: &Conversation) -> bool {
    let is_exact = |carried: &Carried| carried.message.qos.min(conversation.allowed.qos) == QoS::ExactlyOnce;
    let half_full = || {
        conversation.sent.iter().filter(|sent| is_exact(&sent.carried)).take(EXACT_311.into()).count()
            == usize::from(EXACT_311)
    };
    let waits =
        conversation.version == Version::V311 && conversation.unsent.front().is_some_and(is_exact) && half_full();
    conversation.sent.len() < usize::from(conversation.allowed.window)
        && conversation.outbox.len() < OUTBOX_HIGH
        && !waits
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sedge_base::Rng;

    use super::*;
    use crate::SidecarConfig;
    use crate::conversation::testing::message;

    /// MQ-07, IL-13: a value and its clearing do not pass each other, whoever publishes them.
    #[test]
    fn all_that_is_restored_of_a_topic_takes_the_same_way() {
        let sidecar = Sidecar::new(SidecarConfig { inlets: 8, ..SidecarConfig::default() }, Rng::new(1));
        let way = |topic: &str, publisher: Option<&str>| {
            let publisher = publisher.map(ClientId::new);
            sidecar.inlet_for(&Message { publisher, ..Message::clone(&message(topic, "x")) }, true)
        };
        assert_eq!(way("t", None), way("t", Some("a")));
        let ways: BTreeSet<Key> = (0..100).map(|number| way(&format!("t/{number}"), None)).collect();
        assert_eq!(ways.len(), 8);
    }

    /// MQTT 5.0 section 3.3.2.3.3: a clock that is some milliseconds behind gives a message no more than its publisher did.
    #[test]
    fn no_message_lives_longer_than_its_publisher_said() {
        let mut expiring = Message::clone(&message("t", "x"));
        let left = |expiring: &Message, millis| expiry(expiring, Timestamp::from_millis(millis));
        assert_eq!(left(&expiring, 5_000), None);
        expiring.expires_at = Some(Timestamp::from_millis(1_005_000));
        for (now, seconds) in
            [(4_900, 1_000), (5_000, 1_000), (15_000, 990), (1_004_999, 1), (1_005_000, 0), (1_006_000, 0)]
        {
            assert_eq!(left(&expiring, now), Some(seconds), "at {now}");
        }
    }
}
