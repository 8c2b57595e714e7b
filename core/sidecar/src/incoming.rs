//! Packets from the broker: deliveries and answers.

use sedge_mqtt::{Ack, Packet, PacketId, Publish, QoS, ReasonCode, UnsubAck, Version, encode};

use crate::conversation::{Asked, Held, Key, Party, Phase, What};
use crate::expected::{Found, print_of};
use crate::upkeep::VERSION_TOPIC;
use crate::{Event, Output, Sidecar};

impl Sidecar {
    pub(crate) fn on_packet(&mut self, key: Key, packet: Packet) {
        self.counters.packets_in += 1;
        let Some(conversation) = self.conversations.get(key) else { return };
        let greeting = conversation.phase == Phase::Greeting;
        match packet {
            Packet::ConnAck(connack) if greeting => self.on_connack(key, &connack),
            _ if greeting => self.breaks_rules(key, "a packet ahead of CONNACK"),
            Packet::Publish(publish) => self.on_publish(key, publish),
            Packet::PubAck(ack) => self.on_answer(key, ack.packet_id, ack.reason),
            Packet::PubRec(ack) => self.on_pubrec(key, &ack),
            Packet::PubComp(ack) => self.on_answer(key, ack.packet_id, ReasonCode::Success),
            Packet::PubRel(ack) => {
                if let Some(conversation) = self.conversations.get_mut(key) {
                    conversation.half.remove(&ack.packet_id);
                }
                self.send_ack(key, &Packet::PubComp(Ack::new(ack.packet_id, ReasonCode::Success)));
            }
            Packet::SubAck(suback) => self.on_suback(key, suback.packet_id, suback.reasons),
            Packet::UnsubAck(unsuback) => self.on_unsuback(key, unsuback),
            Packet::PingResp => {
                let conversation = self.conversations.get_mut(key);
                self.outputs
                    .extend(conversation.and_then(|conversation| conversation.answered_ping()).map(Output::Ponged));
            }
            Packet::Disconnect(disconnect) => {
                self.fail(key, &format!("the broker ends the connection: {:?}", disconnect.reason));
            }
            Packet::ConnAck(_) | Packet::Auth(_) => self.breaks_rules(key, "a packet that was not asked for"),
            Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::PingReq => {
                self.breaks_rules(key, "a packet that a broker does not send");
            }
        }
    }

    fn breaks_rules(&mut self, key: Key, what: &str) {
        self.outputs.push_back(Output::Event(Event::Garbage(what.to_owned())));
        self.fail(key, &format!("the broker breaks the rules of MQTT: {what}"));
    }

    fn send_ack(&mut self, key: Key, packet: &Packet) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let version = conversation.version;
        conversation.outbox.append(|out| encode(packet, version, out));
        self.transmit(key);
    }

    /// The broker delivers something.
    fn on_publish(&mut self, key: Key, publish: Publish) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let (id, qos) = (publish.packet_id, publish.qos);
        let is_new = match (id, qos) {
            (Some(id), QoS::ExactlyOnce) => conversation.half.insert(id),
            _ => true,
        };
        if is_new {
            self.deliver_publish(key, publish);
        }
        let success = |id: PacketId| Ack::new(id, ReasonCode::Success);
        match (id, qos) {
            (Some(id), QoS::AtLeastOnce) => self.send_ack(key, &Packet::PubAck(success(id))),
            (Some(id), QoS::ExactlyOnce) => self.send_ack(key, &Packet::PubRec(success(id))),
            _ => {}
        }
    }

    fn deliver_publish(&mut self, key: Key, publish: Publish) {
        let seed = self.seed;
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let Some(topic) = &publish.topic else { return };
        let client = match &conversation.party {
            Party::Client(client) => client.clone(),
            Party::Inlet(_) => return self.on_version(key, &publish),
        };
        if conversation.phase == Phase::Closing {
            return;
        }
        // A retained message that was kept by the broker is no delivery of a publication.
        let is_kept = publish.retain && !conversation.filters.values().any(|held| held.options.retain_as_published);
        if is_kept && conversation.mutes_retained && conversation.version == Version::V311 {
            self.counters.repeated += 1;
            return;
        }
        let found = match &mut conversation.expected {
            Some(expected) if !is_kept => {
                let print = print_of(seed, topic.as_bytes(), &publish.payload);
                expected.arrived(print, publish.qos)
            }
            _ => Found::Foreign,
        };
        let version = conversation.version;
        match found {
            Found::Due(number, message) => {
                self.counters.matched += 1;
                self.settle(number);
                self.outputs.push_back(Output::Delivered { client, message });
            }
            Found::Repeated => self.counters.repeated += 1,
            Found::Foreign => {
                self.counters.foreign += 1;
                self.outputs.push_back(Output::Foreign { client, publish: Box::new(publish), version });
            }
        }
    }

    /// The broker reports its make and version.
    fn on_version(&mut self, key: Key, publish: &Publish) {
        const LONGEST: usize = 100;
        if publish.topic.as_ref().is_none_or(|topic| topic.as_str() != VERSION_TOPIC) {
            return;
        }
        let text: String = String::from_utf8_lossy(&publish.payload).chars().take(LONGEST).collect();
        if self.broker.version.as_ref() != Some(&text) {
            self.broker.version = Some(text.clone());
            self.outputs.push_back(Output::Event(Event::Up { version: Some(text) }));
        }
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        if let Ok(filter) = sedge_mqtt::TopicFilter::new(VERSION_TOPIC) {
            conversation.asked.push_back(Asked {
                id: None,
                token: None,
                is_brought: false,
                what: What::Unsubscribe(vec![filter]),
            });
        }
        self.send_asked(key);
    }

    fn on_pubrec(&mut self, key: Key, ack: &Ack) {
        if ack.reason.is_error() {
            return self.on_answer(key, ack.packet_id, ack.reason);
        }
        self.send_ack(key, &Packet::PubRel(Ack::new(ack.packet_id, ReasonCode::Success)));
    }

    /// PUBACK, PUBCOMP, or a PUBREC that says no.
    fn on_answer(&mut self, key: Key, id: PacketId, reason: ReasonCode) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let Some(at) = conversation.sent.iter().position(|sent| sent.id == id) else { return };
        let Some(sent) = conversation.sent.remove(at) else { return };
        self.counters.refused += u64::from(reason.is_error());
        self.is_published(sent.carried.number, sent.carried.token, reason);
        self.pump(key);
        self.close_if_done(key);
    }

    fn take_asked(&mut self, key: Key, id: PacketId) -> Option<Asked> {
        let conversation = self.conversations.get_mut(key)?;
        let at = conversation.asked.iter().position(|asked| asked.id == Some(id))?;
        conversation.asked.remove(at)
    }

    fn on_suback(&mut self, key: Key, id: PacketId, reasons: Vec<ReasonCode>) {
        let Some(Asked { token, what: What::Subscribe(requests), .. }) = self.take_asked(key, id) else { return };
        if reasons.len() != requests.len() {
            return self.breaks_rules(key, "a SUBACK with another number of reason codes");
        }
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let is_inlet = matches!(conversation.party, Party::Inlet(_));
        for (request, reason) in requests.iter().zip(&reasons) {
            if is_inlet {
                continue;
            }
            if reason.is_error() {
                conversation.filters.remove(&request.filter);
            } else {
                let held = Held { options: request.options, id: request.id };
                conversation.filters.insert(request.filter.clone(), held);
            }
        }
        match token {
            Some(token) => self.outputs.push_back(Output::Answered { token, reasons }),
            None => conversation.replaying = conversation.replaying.saturating_sub(1),
        }
    }

    fn on_unsuback(&mut self, key: Key, unsuback: UnsubAck) {
        let Some(Asked { token, what: What::Unsubscribe(filters), .. }) = self.take_asked(key, unsuback.packet_id)
        else {
            return;
        };
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        for filter in &filters {
            conversation.filters.remove(filter);
        }
        if let Some(token) = token {
            let reasons =
                if unsuback.reasons.is_empty() { vec![ReasonCode::Success; filters.len()] } else { unsuback.reasons };
            self.outputs.push_back(Output::Answered { token, reasons });
        }
    }
}
