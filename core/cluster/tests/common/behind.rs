//! Foreign brokers of the simplest kind behind nodes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use sedge_cluster::{ShardInput, UpstreamInput, UpstreamOutput};
use sedge_mqtt::{
    Ack, ConnAck, ConnAckProperties, Decoder, Packet, PacketId, Publish, QoS, ReasonCode, SubAck, TopicFilter,
    UnsubAck, Version, encode,
};
use sedge_sidecar::LinkId;

use super::{End, Event, ShardId, World};

/// One connection to a broker.
struct Peer {
    decoder: Decoder,
    version: Version,
    filters: BTreeSet<TopicFilter>,
    /// QoS 2 publications that wait for PUBREL.
    half: BTreeMap<PacketId, Publish>,
    last_id: u16,
}

/// The broker behind one node.
#[derive(Default)]
pub(crate) struct Behind {
    peers: BTreeMap<LinkId, Peer>,
    /// Time in microseconds that the broker keeps deliveries to these topics.
    pub(crate) slow: BTreeMap<String, u64>,
}

/// Something that happens between a node and the broker behind it.
#[derive(Debug)]
pub(super) enum Happening {
    Dialled,
    /// To the broker.
    Said(Bytes),
    /// From the broker.
    Answered(Bytes),
}

impl World {
    /// The broker behind a node.
    pub(crate) fn behind(&mut self, node: u64) -> &mut Behind {
        self.behind.entry(node).or_default()
    }

    pub(super) fn upstream_output(&mut self, node: u64, output: &UpstreamOutput) {
        match *output {
            UpstreamOutput::Dial { link, .. } => self.happens(node, link, self.delays.client, Happening::Dialled),
            UpstreamOutput::Transmit(link) => self.transmit_behind(node, link),
            UpstreamOutput::Close(link) => {
                self.transmit_behind(node, link);
                self.behind(node).peers.remove(&link);
            }
            UpstreamOutput::Hold(..) | UpstreamOutput::Event(_) => {}
        }
    }

    fn happens(&mut self, node: u64, link: LinkId, longest: u64, what: Happening) {
        let end = if matches!(what, Happening::Answered(_)) { End::Node(node) } else { End::Shard(node, 0) };
        self.send(End::Behind(node, link), end, longest, Event::Behind { node, link, what });
    }

    fn transmit_behind(&mut self, node: u64, link: LinkId) {
        loop {
            let host = self.hosts.get_mut(&node).and_then(|host| host.shards.first_mut());
            let Some(outbox) = host.and_then(|machine| machine.upstream_outbox(link)) else { return };
            let mut slices = [std::io::IoSlice::new(&[]); 16];
            let filled = outbox.io_slices(&mut slices);
            let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            let length = bytes.len();
            if length == 0 {
                return;
            }
            self.happens(node, link, self.delays.client, Happening::Said(Bytes::from(bytes)));
            self.behind_input(node, UpstreamInput::Written { link, bytes: length });
        }
    }

    fn behind_input(&mut self, node: u64, input: UpstreamInput) {
        self.shard_input(node, ShardId(0), ShardInput::Upstream(input));
    }

    pub(super) fn behind_happens(&mut self, node: u64, link: LinkId, what: Happening) {
        if !self.hosts.contains_key(&node) {
            return;
        }
        match what {
            Happening::Dialled => {
                let peer = Peer {
                    decoder: Decoder::server(1 << 20),
                    version: Version::V5,
                    filters: BTreeSet::new(),
                    half: BTreeMap::new(),
                    last_id: 0,
                };
                self.behind(node).peers.insert(link, peer);
                self.behind_input(node, UpstreamInput::Opened(link));
            }
            Happening::Said(bytes) => {
                let Some(peer) = self.behind(node).peers.get_mut(&link) else { return };
                peer.decoder.feed(bytes);
                while let Some(packet) =
                    self.behind(node).peers.get_mut(&link).and_then(|peer| peer.decoder.next().expect("it is MQTT"))
                {
                    self.behind_hears(node, link, packet);
                }
            }
            Happening::Answered(bytes) => self.behind_input(node, UpstreamInput::Received { link, bytes }),
        }
    }

    fn behind_says(&mut self, node: u64, link: LinkId, longest: u64, packet: &Packet) {
        let Some(peer) = self.behind(node).peers.get(&link) else { return };
        let mut out = BytesMut::new();
        encode(packet, peer.version, &mut out);
        self.happens(node, link, longest, Happening::Answered(out.freeze()));
    }

    fn behind_hears(&mut self, node: u64, link: LinkId, packet: Packet) {
        let ack = |id| Ack::new(id, ReasonCode::Success);
        let Some(peer) = self.behind(node).peers.get_mut(&link) else { return };
        let answer = match packet {
            Packet::Connect(connect) => {
                peer.version = connect.version;
                let (reason, properties) = (ReasonCode::Success, ConnAckProperties::default());
                Packet::ConnAck(Box::new(ConnAck { session_present: false, reason, properties }))
            }
            Packet::Subscribe(subscribe) => {
                let reasons = vec![ReasonCode::GrantedQoS2; subscribe.requests.len()];
                peer.filters.extend(subscribe.requests.into_iter().map(|request| request.filter));
                Packet::SubAck(SubAck {
                    packet_id: subscribe.packet_id,
                    reasons,
                    reason_string: None,
                    user: Vec::new(),
                })
            }
            Packet::Unsubscribe(unsubscribe) => {
                peer.filters.retain(|filter| !unsubscribe.filters.contains(filter));
                let reasons = vec![ReasonCode::Success; unsubscribe.filters.len()];
                let (packet_id, reason_string, user) = (unsubscribe.packet_id, None, Vec::new());
                Packet::UnsubAck(UnsubAck { packet_id, reasons, reason_string, user })
            }
            Packet::Publish(publish) => match (publish.qos, publish.packet_id) {
                (QoS::ExactlyOnce, Some(id)) => {
                    peer.half.insert(id, publish);
                    Packet::PubRec(ack(id))
                }
                (_, id) => {
                    self.behind_delivers(node, &publish);
                    let Some(id) = id else { return };
                    Packet::PubAck(ack(id))
                }
            },
            Packet::PubRel(rel) => {
                if let Some(publish) = peer.half.remove(&rel.packet_id) {
                    self.behind_delivers(node, &publish);
                }
                Packet::PubComp(ack(rel.packet_id))
            }
            Packet::PubRec(rec) => Packet::PubRel(ack(rec.packet_id)),
            Packet::PingReq => Packet::PingResp,
            Packet::ConnAck(_)
            | Packet::PubAck(_)
            | Packet::PubComp(_)
            | Packet::SubAck(_)
            | Packet::UnsubAck(_)
            | Packet::PingResp
            | Packet::Disconnect(_)
            | Packet::Auth(_) => return,
        };
        self.behind_says(node, link, self.delays.client, &answer);
    }

    fn behind_delivers(&mut self, node: u64, publish: &Publish) {
        let Some(topic) = publish.topic.clone() else { return };
        let behind = self.behind(node);
        let slow = behind.slow.get(topic.as_str()).copied();
        let wants = |peer: &Peer| peer.filters.iter().any(|filter| filter.matches(&topic));
        let links: Vec<LinkId> = behind.peers.iter().filter(|(_, peer)| wants(peer)).map(|(link, _)| *link).collect();
        let longest = slow.unwrap_or(self.delays.client);
        for link in links {
            let Some(peer) = self.behind(node).peers.get_mut(&link) else { continue };
            let mut copy = Publish { dup: false, packet_id: None, ..publish.clone() };
            if copy.qos > QoS::AtMostOnce {
                peer.last_id = peer.last_id.wrapping_add(1).max(1);
                copy.packet_id = PacketId::new(peer.last_id);
            }
            self.behind_says(node, link, longest, &Packet::Publish(copy));
        }
    }

    /// A running cluster of nodes 1 to `nodes`, each with one shard and before a foreign broker.
    pub(crate) fn before_brokers(seed: u64, nodes: u64) -> Self {
        Self::new(seed, 1).put_before_brokers(nodes)
    }

    /// The same of nodes with journals.
    pub(crate) fn with_journals_before_brokers(seed: u64, nodes: u64) -> Self {
        let mut world = Self::new(seed, 1);
        world.keep_journals(nodes);
        world.put_before_brokers(nodes)
    }

    fn put_before_brokers(mut self, nodes: u64) -> Self {
        let world = &mut self;
        world.has_behind = true;
        for node in 1..=nodes {
            world.start_with(node, |config| config.has_upstream = true);
        }
        world.settle_members(nodes);
        self
    }
}
