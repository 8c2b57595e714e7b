//! A tiny broker inside the test, with faults that are known to the message.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use sedge_mqtt::{
    Ack, ConnAck, ConnAckProperties, Decoder, Packet, PacketId, Publish, QoS, ReasonCode, SubAck, TopicFilter, encode,
};

/// Faults of the broker, per topic: a fault hits each message whose number (from 1) is a multiple of the value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Loses the message.
    pub(crate) lose: Option<u64>,
    /// Delivers the message twice.
    pub(crate) repeat: Option<u64>,
    /// Delivers the message after its successor.
    pub(crate) swap: Option<u64>,
    /// Closes the publisher's connection instead of acknowledging it, once per topic.
    pub(crate) hang_up_at: Option<u64>,
}

struct Subscription {
    client: String,
    filter: TopicFilter,
    qos: QoS,
}

#[derive(Default)]
struct Shared {
    faults: Faults,
    subscriptions: Vec<Subscription>,
    writers: BTreeMap<String, (TcpStream, sedge_mqtt::Version)>,
    /// Messages so far, by topic.
    counts: BTreeMap<String, u64>,
    held: BTreeMap<String, Publish>,
    turns: BTreeMap<String, usize>,
    next_id: u16,
    /// Acknowledgements by subscribers: PUBACK, PUBREC and PUBCOMP.
    acks: [u64; 3],
    connects: u64,
    ended: bool,
    /// Clients whose sessions outlive their connections.
    sessions: BTreeSet<String>,
}

/// A broker on a port of its own.
pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("no thread panics")
}

impl Broker {
    /// Starts a broker; its threads end with the test program.
    pub(crate) fn start(faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Mutex::new(Shared { faults, ..Shared::default() }));
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if locked(&of_thread).ended {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// PUBACK, PUBREC and PUBCOMP that subscribers sent.
    pub(crate) fn acks(&self) -> [u64; 3] {
        locked(&self.shared).acks
    }

    /// Closes all connections and takes no more.
    pub(crate) fn end(&self) {
        let mut state = locked(&self.shared);
        state.ended = true;
        for (writer, _) in state.writers.values() {
            let _ = writer.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        // Whoever waits for the next connection has to see it.
        let _ = TcpStream::connect(self.address);
    }

    /// Messages that were published.
    pub(crate) fn messages(&self) -> u64 {
        locked(&self.shared).counts.values().sum()
    }

    /// Sessions that outlive their connections.
    pub(crate) fn sessions(&self) -> usize {
        locked(&self.shared).sessions.len()
    }

    /// CONNECTs that came.
    pub(crate) fn connects(&self) -> u64 {
        locked(&self.shared).connects
    }
}

fn serve(mut stream: TcpStream, shared: &Mutex<Shared>) {
    stream.set_nodelay(true).expect("an option");
    let mut decoder = Decoder::server(1 << 24);
    let mut client = String::new();
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        decoder.feed(Bytes::copy_from_slice(buffer.get(..length).expect("what was read")));
        while let Ok(Some(packet)) = decoder.next() {
            let mut state = locked(shared);
            if let Packet::Connect(connect) = &packet {
                connect.client_id.as_str().clone_into(&mut client);
                state.connects += 1;
                let persistent = match connect.version {
                    sedge_mqtt::Version::V5 => connect.properties.session_expiry.is_some_and(|seconds| seconds > 0),
                    sedge_mqtt::Version::V311 => !connect.clean_start,
                };
                if persistent {
                    state.sessions.insert(client.clone());
                } else {
                    state.sessions.remove(&client);
                }
                let writer = stream.try_clone().expect("a second handle");
                state.writers.insert(client.clone(), (writer, connect.version));
            }
            if !state.handle(&client, packet) {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
        }
    }
}

impl Shared {
    fn send(&mut self, client: &str, packet: &Packet) {
        let Some((writer, version)) = self.writers.get_mut(client) else { return };
        let mut bytes = BytesMut::new();
        encode(packet, *version, &mut bytes);
        let _ = writer.write_all(&bytes);
    }

    fn handle(&mut self, client: &str, packet: Packet) -> bool {
        let ack = |id: Option<PacketId>| Ack::new(id.unwrap_or(PacketId::MIN), ReasonCode::Success);
        match packet {
            Packet::Connect(_) => {
                let (reason, properties) = (ReasonCode::Success, ConnAckProperties::default());
                self.send(client, &Packet::ConnAck(Box::new(ConnAck { session_present: false, reason, properties })));
            }
            Packet::Subscribe(subscribe) => {
                let mut reasons = Vec::new();
                for request in subscribe.requests {
                    let code = request.options.qos.as_u8();
                    reasons.push(ReasonCode::from_u8(code).expect("a granted QoS"));
                    let (filter, qos) = (request.filter, request.options.qos);
                    self.subscriptions.push(Subscription { client: client.to_owned(), filter, qos });
                }
                let (packet_id, reason_string, user) = (subscribe.packet_id, None, Vec::new());
                self.send(client, &Packet::SubAck(SubAck { packet_id, reasons, reason_string, user }));
            }
            Packet::Publish(publish) => {
                let (qos, id, dup) = (publish.qos, publish.packet_id, publish.dup);
                if !dup && !self.publish(publish) {
                    return false;
                }
                match qos {
                    QoS::AtMostOnce => {}
                    QoS::AtLeastOnce => self.send(client, &Packet::PubAck(ack(id))),
                    QoS::ExactlyOnce => self.send(client, &Packet::PubRec(ack(id))),
                }
            }
            Packet::PubRel(rel) => self.send(client, &Packet::PubComp(ack(Some(rel.packet_id)))),
            Packet::PubRec(rec) => {
                self.acks[1] += 1;
                self.send(client, &Packet::PubRel(ack(Some(rec.packet_id))));
            }
            Packet::PubAck(_) => self.acks[0] += 1,
            Packet::PubComp(_) => self.acks[2] += 1,
            Packet::PingReq => self.send(client, &Packet::PingResp),
            Packet::Disconnect(_) => return false,
            Packet::ConnAck(_)
            | Packet::SubAck(_)
            | Packet::Unsubscribe(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Auth(_) => panic!("a packet that no client sends here"),
        }
        true
    }

    /// Delivers a message with the faults of its number; false if the connection is to be closed instead.
    fn publish(&mut self, publish: Publish) -> bool {
        let topic = publish.topic.as_ref().expect("a topic").as_str().to_owned();
        let count = self.counts.entry(topic.clone()).or_default();
        *count += 1;
        let number = *count;
        let falls = |every: Option<u64>| every.is_some_and(|every| number.is_multiple_of(every));
        let faults = self.faults;
        if falls(faults.swap) {
            self.held.insert(topic, publish);
            return true;
        }
        let times = if falls(faults.lose) { 0 } else { 1 + usize::from(falls(faults.repeat)) };
        for _ in 0..times {
            self.deliver(&publish);
        }
        if let Some(held) = self.held.remove(&topic) {
            self.deliver(&held);
        }
        faults.hang_up_at != Some(number)
    }

    fn deliver(&mut self, publish: &Publish) {
        let topic = publish.topic.clone().expect("a topic");
        let mut targets: Vec<(String, QoS)> = Vec::new();
        let mut groups: BTreeMap<String, Vec<(String, QoS)>> = BTreeMap::new();
        for subscription in self.subscriptions.iter().filter(|subscription| subscription.filter.matches(&topic)) {
            let target = (subscription.client.clone(), subscription.qos.min(publish.qos));
            match subscription.filter.share_group() {
                None => targets.push(target),
                Some(_) => groups.entry(subscription.filter.as_str().to_owned()).or_default().push(target),
            }
        }
        for (group, members) in groups {
            let turn = self.turns.entry(group).or_default();
            *turn += 1;
            targets.extend(members.get(*turn % members.len()).cloned());
        }
        for (client, qos) in targets {
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            let packet_id = NonZeroU16::new(self.next_id).filter(|_| qos > QoS::AtMostOnce);
            let copy = Publish { dup: false, qos, packet_id, ..publish.clone() };
            self.send(&client, &Packet::Publish(copy));
        }
    }
}
