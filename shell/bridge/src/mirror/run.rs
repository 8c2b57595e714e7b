//! One run: connections to the broker and to this node, from the first subscription until one of them ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::{Events, Poll, Token};
use sedge_mqtt::{Packet, Publish, QoS, TopicFilter, TopicName, Version};
use sedge_sidecar::{Delivered, Mirror, MirrorConfig, MirrorInput, Side};

use super::{Mirroring, Shared};
use crate::error::BridgeError;
use crate::host::Host;
use crate::mqtt::dial;
use crate::session::{close, subscribe};
use crate::talk::{HERE, Writer, inside, keep_alive, next, take};
use crate::wire::{PATIENCE, Wire, wait_for_events};

/// How long nothing happens at most.
const NAP: Duration = Duration::from_millis(100);
/// Packets of one connection in a turn.
const PACKETS_PER_TURN: usize = 256;

pub(super) fn machine(filters: usize) -> Mirror {
    Mirror::new(MirrorConfig::default(), filters)
}

/// The time of the machine.
fn instant(origin: Instant) -> sedge_base::Instant {
    sedge_base::Instant::from_millis(u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// A connection that gets the publications that match a filter.
struct Probe {
    wire: Wire,
    side: Side,
    filter: usize,
}

/// See the module.
pub(super) struct Run<'a> {
    shared: &'a Shared,
    machine: &'a mut Mirror,
    origin: Instant,
    poll: Poll,
    feed: Wire,
    writer: Writer,
    probes: Vec<Probe>,
}

impl<'a> Run<'a> {
    /// Subscribes everywhere: first to all that the broker publishes, until this node has its retained messages and no others.
    pub(super) fn begin(
        shared: &'a Shared,
        host: &impl Host,
        version: Version,
        machine: &'a mut Mirror,
    ) -> Result<Self, BridgeError> {
        let mut poll = Poll::new().map_err(BridgeError::Inside)?;
        let goes_on = || shared.goes_on();
        let (writer, granted) = inside(host, &mut poll, Token(0), &format!("{}in", Mirroring::session_id(0)), version)?;
        let mut run = Self {
            shared,
            machine,
            origin: Instant::now(),
            feed: outside(shared, &mut poll, Token(1), "feed", version)?,
            writer: Writer::new(writer, version, &granted),
            poll,
            probes: Vec::new(),
        };
        run.copy_retained(host, version)?;
        for (number, text) in shared.filters.iter().enumerate() {
            let Ok(filter) = TopicFilter::new(text) else { continue };
            for side in [Side::Node, Side::Broker] {
                let token = Token(2 + run.probes.len());
                let mut wire = match side {
                    Side::Node => inside(host, &mut run.poll, token, &Mirroring::session_id(number), version)?.0,
                    Side::Broker => outside(shared, &mut run.poll, token, &number.to_string(), version)?,
                };
                let early =
                    subscribe(&mut wire, &mut run.poll, std::slice::from_ref(&filter), QoS::ExactlyOnce, goes_on)?;
                if number == 0 && side == Side::Node {
                    run.begins();
                }
                let mut probe = Probe { wire, side, filter: number };
                for packet in early {
                    run.probed(&mut probe, packet);
                }
                run.probes.push(probe);
            }
        }
        run.shared.record.begins(version == Version::V311);
        run.look_everywhere();
        Ok(run)
    }

    /// The machine goes on with the time of its last run.
    fn begins(&mut self) {
        let now = self.now();
        self.machine.handle(now, MirrorInput::Begin);
    }

    fn now(&self) -> sedge_base::Instant {
        instant(self.origin)
    }

    /// Brings the retained messages of this node to those of the broker.
    fn copy_retained(&mut self, host: &impl Host, version: Version) -> Result<(), BridgeError> {
        let all = TopicFilter::new("#").map_err(|error| BridgeError::File(error.to_string()))?;
        let id = format!("{}kept", Mirroring::session_id(0));
        let (mut own, _) = inside(host, &mut self.poll, Token(usize::MAX - 1), &id, version)?;
        let there = self.until_pong(&mut own, &all)?;
        close(own);
        let mut feed_packets = Vec::new();
        let goes_on = || self.shared.goes_on();
        feed_packets.extend(subscribe(&mut self.feed, &mut self.poll, &[all], QoS::ExactlyOnce, goes_on)?);
        feed_packets.extend(until_pong(&mut self.feed, &mut self.poll, goes_on)?);
        let topic_of = |packet: &Packet| {
            let Packet::Publish(publish) = packet else { return None };
            publish.topic.clone().filter(|_| publish.retain)
        };
        let kept: BTreeSet<TopicName> = feed_packets.iter().filter_map(topic_of).collect();
        for topic in there.into_iter().filter(|topic| !kept.contains(topic)) {
            self.writer.publish(Publish {
                dup: false,
                qos: QoS::AtLeastOnce,
                retain: true,
                topic: Some(topic),
                packet_id: None,
                payload: Bytes::new(),
                properties: None,
            });
        }
        for packet in feed_packets {
            self.fed(packet);
        }
        let until = Instant::now() + PATIENCE;
        while !self.writer.open.is_empty() {
            if Instant::now() >= until {
                return Err(BridgeError::NoAnswer { end: HERE, what: "PUBLISH", seconds: PATIENCE.as_secs() });
            }
            let packet = self.writer.wire.wait(&mut self.poll, "PUBLISH", PATIENCE, goes_on)?;
            self.writer.packet(packet);
        }
        Ok(())
    }

    /// Topics of the retained messages that this node has.
    fn until_pong(&mut self, own: &mut Wire, all: &TopicFilter) -> Result<Vec<TopicName>, BridgeError> {
        let goes_on = || self.shared.goes_on();
        let mut packets = subscribe(own, &mut self.poll, std::slice::from_ref(all), QoS::AtMostOnce, goes_on)?;
        packets.extend(until_pong(own, &mut self.poll, goes_on)?);
        let topic = |packet: Packet| if let Packet::Publish(publish) = packet { publish.topic } else { None };
        Ok(packets.into_iter().filter_map(topic).collect())
    }

    /// Something that the broker publishes.
    fn fed(&mut self, packet: Packet) {
        if let Some(publish) = take(&mut self.feed, packet) {
            self.writer.publish(publish);
        }
    }

    fn probed(&mut self, probe: &mut Probe, packet: Packet) {
        let Some(publish) = take(&mut probe.wire, packet) else { return };
        let Some(topic) = publish.topic else { return };
        let message = Delivered { topic, payload: publish.payload, qos: publish.qos, retain: publish.retain };
        let input = MirrorInput::Delivered { filter: probe.filter, side: probe.side, message };
        let now = self.now();
        self.machine.handle(now, input);
    }

    /// Events may have come while another connection was looked at.
    fn look_everywhere(&mut self) {
        self.feed.look();
        self.writer.wire.look();
        self.probes.iter_mut().for_each(|probe| probe.wire.look());
    }

    /// Runs until a connection ends, or the thread is to.
    pub(super) fn until_the_end(mut self) -> Result<(), BridgeError> {
        let mut events = Events::with_capacity(64);
        while self.shared.goes_on() {
            let more = self.turn()?;
            let nap = if more { Duration::ZERO } else { NAP };
            wait_for_events(&mut self.poll, &mut events, nap)?;
            for event in &events {
                self.feed.event(event);
                self.writer.wire.event(event);
                self.probes.iter_mut().for_each(|probe| probe.wire.event(event));
            }
        }
        for probe in self.probes {
            close(probe.wire);
        }
        close(self.feed);
        close(self.writer.wire);
        Ok(())
    }

    /// Whether there is more to do at once.
    fn turn(&mut self) -> Result<bool, BridgeError> {
        let mut more = false;
        while let Some(packet) = next(&mut self.writer.wire)? {
            self.writer.packet(packet);
        }
        let mut count = 0;
        while count < PACKETS_PER_TURN && self.writer.has_room() {
            let Some(packet) = next(&mut self.feed)? else { break };
            self.fed(packet);
            count += 1;
        }
        more |= count == PACKETS_PER_TURN;
        let mut probes = core::mem::take(&mut self.probes);
        for probe in &mut probes {
            let mut count = 0;
            while count < PACKETS_PER_TURN
                && let Some(packet) = next(&mut probe.wire)?
            {
                self.probed(probe, packet);
                count += 1;
            }
            more |= count == PACKETS_PER_TURN;
        }
        self.probes = probes;
        self.compare();
        self.keep_alive()?;
        self.feed.flush()?;
        self.writer.wire.flush()?;
        self.probes.iter_mut().try_for_each(|probe| probe.wire.flush())?;
        Ok(more)
    }

    fn compare(&mut self) {
        let now = self.now();
        self.machine.handle_timeout(now);
        while let Some(difference) = self.machine.poll_output() {
            let filter = self.shared.filters.get(difference.filter).map_or("", String::as_str);
            self.shared.record.note(filter, &difference);
        }
        self.shared.record.count(self.machine.counters());
    }

    fn keep_alive(&mut self) -> Result<(), BridgeError> {
        let brokers = self.probes.iter_mut().filter(|probe| probe.side == Side::Broker).map(|probe| &mut probe.wire);
        brokers.chain([&mut self.feed]).try_for_each(keep_alive)
    }
}

/// All packets until PINGREQ is answered: the retained messages have come then.
fn until_pong(wire: &mut Wire, poll: &mut Poll, goes_on: impl Fn() -> bool) -> Result<Vec<Packet>, BridgeError> {
    wire.send(&Packet::PingReq);
    let mut packets = Vec::new();
    loop {
        let packet = wire.wait(poll, "PINGREQ", PATIENCE, &goes_on)?;
        if matches!(packet, Packet::PingResp) {
            return Ok(packets);
        }
        packets.push(packet);
    }
}

fn outside(shared: &Shared, poll: &mut Poll, token: Token, name: &str, version: Version) -> Result<Wire, BridgeError> {
    let mut config = shared.config.clone();
    config.version = version;
    config.client_id = format!("{}{name}", shared.config.client_id);
    let address = config.address.first().cloned().unwrap_or_default();
    let mut connect = dial::connect(&config, "", "", u16::MAX)?;
    connect.clean_start = true;
    connect.properties.session_expiry = None;
    let (mut wire, _) = dial::dial(poll, token, (&config, &address), connect, || shared.goes_on())?;
    wire.look();
    Ok(wire)
}
