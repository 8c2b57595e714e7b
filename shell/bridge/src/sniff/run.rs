//! One run: captured packets to this node, and what this node delivers to the broker, until a connection ends.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use sedge_mqtt::{
    ConnAck, Packet, Publish, QoS, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest, TopicFilter,
    Unsubscribe, Version,
};
use sedge_sidecar::{SniffConfig, SniffOutput, Sniffer};

use super::Shared;
use super::capture::Capture;
use crate::error::BridgeError;
use crate::host::Host;
use crate::mqtt::dial;
use crate::session::close;
use crate::talk::{Writer, inside, keep_alive, next, take};
use crate::wire::{Wire, wait_for_events};

/// How long nothing happens at most.
const NAP: Duration = Duration::from_millis(100);
/// Captured packets, and packets of one connection, in a turn.
const PACKETS_PER_TURN: usize = 512;
/// Publications that wait for this node; beyond, the newest is dropped and counted.
const PENDING_MAX: usize = 100_000;
/// Their payloads.
const PENDING_BYTES: usize = 64 * 1024 * 1024;
/// Filters in one SUBSCRIBE.
const FILTERS_MAX: usize = 100;

/// The capture and the interpretation of its packets; a tap outlives the runs.
pub(super) struct Tap {
    capture: Capture,
    sniffer: Sniffer,
    origin: Instant,
    pending: VecDeque<Box<Publish>>,
    pending_bytes: usize,
    changes: VecDeque<(TopicFilter, bool)>,
    dropped: u64,
    recorded: Option<Instant>,
}

impl Tap {
    pub(super) fn new(capture: Capture, config: SniffConfig) -> Self {
        Self {
            capture,
            sniffer: Sniffer::new(config),
            origin: Instant::now(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            changes: VecDeque::new(),
            dropped: 0,
            recorded: None,
        }
    }

    /// Reads what was captured. Whether there may be more.
    fn read(&mut self) -> Result<bool, BridgeError> {
        let now =
            sedge_base::Instant::from_millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.sniffer.handle_timeout(now);
        for _ in 0..PACKETS_PER_TURN {
            let Some(packet) = self.capture.next().map_err(BridgeError::Inside)? else { return Ok(false) };
            self.sniffer.handle(now, &packet);
            while let Some(output) = self.sniffer.poll_output() {
                self.note(output);
            }
        }
        Ok(true)
    }

    fn note(&mut self, output: SniffOutput) {
        match output {
            SniffOutput::Publish(publish) => {
                let bytes = publish.payload.len();
                if self.pending.len() >= PENDING_MAX || self.pending_bytes + bytes > PENDING_BYTES {
                    self.dropped += 1;
                } else {
                    self.pending_bytes += bytes;
                    self.pending.push_back(publish);
                }
            }
            SniffOutput::Want(filter, is_wanted) => self.changes.push_back((filter, is_wanted)),
            SniffOutput::Encrypted(client) => tracing::error!(
                %client,
                "a client speaks TLS with the broker: upstream.mode = \"sniff\" reads plain TCP only; use \"proxy\""
            ),
        }
    }

    fn take_pending(&mut self) -> Option<Box<Publish>> {
        let publish = self.pending.pop_front()?;
        self.pending_bytes -= publish.payload.len();
        Some(publish)
    }

    /// Reads on while nothing can be passed on: publications are dropped and counted.
    pub(super) fn read_on(&mut self, shared: &Shared) {
        match self.read() {
            Ok(true) => {}
            Ok(false) => std::thread::sleep(NAP),
            Err(error) => {
                shared.fail(&error.to_string());
                std::thread::sleep(NAP);
            }
        }
        self.dropped += self.pending.len() as u64;
        self.pending.clear();
        self.pending_bytes = 0;
        self.changes.clear();
        self.record(shared);
    }

    /// Says how it stands, now and then: it takes a look at all connections.
    fn record(&mut self, shared: &Shared) {
        if self.recorded.is_some_and(|at| at.elapsed() < NAP) {
            return;
        }
        self.recorded = Some(Instant::now());
        shared.record(|status, _| {
            status.counters = *self.sniffer.counters();
            status.followed = self.sniffer.followed();
            status.filters = self.sniffer.wanted().count();
            status.dropped = self.dropped;
        });
    }
}

/// See the module.
pub(super) struct Run<'a> {
    shared: &'a Shared,
    tap: &'a mut Tap,
    poll: Poll,
    here: Writer,
    there: Writer,
    replayed: u64,
}

impl<'a> Run<'a> {
    /// Connects to this node and to the broker, and subscribes here to what the broker's clients want.
    pub(super) fn begin(
        shared: &'a Shared,
        host: &impl Host,
        version: Version,
        tap: &'a mut Tap,
    ) -> Result<Self, BridgeError> {
        let mut poll = Poll::new().map_err(BridgeError::Inside)?;
        let fd = tap.capture.socket().as_raw_fd();
        let source = &mut SourceFd(&fd);
        poll.registry().register(source, Token(2), Interest::READABLE).map_err(BridgeError::Inside)?;
        let (there, granted) = outside(shared, &mut poll, version)?;
        let there = Writer::new(there, version, &granted);
        let (here, granted) = inside(host, &mut poll, Token(0), &shared.session, Version::V5)?;
        let here = Writer::new(here, Version::V5, &granted);
        tap.changes.clear();
        let wanted: Vec<TopicFilter> = tap.sniffer.wanted().cloned().collect();
        let mut run = Self { shared, tap, poll, here, there, replayed: shared.record(|status, _| status.replayed) };
        for filters in wanted.chunks(FILTERS_MAX) {
            run.subscribe(filters);
        }
        run.here.wire.look();
        run.there.wire.look();
        shared.record(|status, since| {
            (status.up, *since, status.only_311) = (true, Instant::now(), version == Version::V311);
        });
        tracing::info!(
            "the broker's traffic is read from here on, and what its clients publish goes to the other nodes"
        );
        Ok(run)
    }

    fn subscribe(&mut self, filters: &[TopicFilter]) {
        let options = SubscriptionOptions {
            qos: QoS::ExactlyOnce,
            no_local: true,
            retain_as_published: true,
            retain_handling: RetainHandling::SendIfNew,
        };
        let requests = filters.iter().map(|filter| SubscriptionRequest { filter: filter.clone(), options }).collect();
        let packet_id = self.here.free_id();
        let subscribe = Subscribe { packet_id, requests, subscription_id: None, user: Vec::new() };
        self.here.wire.send(&Packet::Subscribe(subscribe));
    }

    /// Runs until a connection ends, or the thread is to.
    pub(super) fn until_the_end(mut self) -> Result<(), BridgeError> {
        let mut events = Events::with_capacity(64);
        while self.shared.goes_on() {
            let more = self.turn()?;
            wait_for_events(&mut self.poll, &mut events, if more { Duration::ZERO } else { NAP })?;
            for event in &events {
                self.here.wire.event(event);
                self.there.wire.event(event);
            }
        }
        close(self.here.wire);
        close(self.there.wire);
        Ok(())
    }

    /// Whether there is more to do at once.
    fn turn(&mut self) -> Result<bool, BridgeError> {
        let mut more = self.tap.read()?;
        while let Some((filter, is_wanted)) = self.tap.changes.pop_front() {
            if is_wanted {
                self.subscribe(std::slice::from_ref(&filter));
            } else {
                let packet_id = self.here.free_id();
                let unsubscribe = Unsubscribe { packet_id, filters: vec![filter], user: Vec::new() };
                self.here.wire.send(&Packet::Unsubscribe(unsubscribe));
            }
        }
        while self.here.has_room()
            && let Some(publish) = self.tap.take_pending()
        {
            self.here.publish(*publish);
        }
        while let Some(packet) = next(&mut self.there.wire)? {
            self.there.packet(packet);
        }
        self.note_refused();
        let mut count = 0;
        while count < PACKETS_PER_TURN && self.there.has_room() {
            let Some(packet) = next(&mut self.here.wire)? else { break };
            self.delivered(packet);
            count += 1;
        }
        more |= count == PACKETS_PER_TURN;
        keep_alive(&mut self.there.wire)?;
        self.here.wire.flush()?;
        self.there.wire.flush()?;
        self.tap.record(self.shared);
        self.shared.record(|status, _| status.replayed = self.replayed);
        Ok(more)
    }

    /// Publications that the broker, or this node, did not take.
    fn note_refused(&mut self) {
        for (writer, by) in [(&mut self.there, "the broker"), (&mut self.here, "this node")] {
            let (refused, Some(reason)) = writer.take_refused() else { continue };
            self.tap.dropped += refused;
            self.shared.warn(&format!("{by} refuses publications: {reason:?} (0x{:02x})", reason.as_u8()));
        }
    }

    /// Handles a packet from this node: an answer to a publication, or a publication of another node.
    fn delivered(&mut self, packet: Packet) {
        if matches!(packet, Packet::Publish(_) | Packet::PubRel(_)) {
            if let Some(publish) = take(&mut self.here.wire, packet) {
                self.replayed += 1;
                self.there.publish(publish);
            }
        } else {
            self.here.packet(packet);
        }
    }
}

fn outside(shared: &Shared, poll: &mut Poll, version: Version) -> Result<(Wire, ConnAck), BridgeError> {
    let mut config = shared.config.clone();
    config.version = version;
    let address = config.address.first().cloned().unwrap_or_default();
    let mut connect = dial::connect(&config, "", "", u16::MAX)?;
    connect.clean_start = true;
    connect.properties.session_expiry = None;
    dial::dial(poll, Token(1), (&config, &address), connect, || shared.goes_on())
}
