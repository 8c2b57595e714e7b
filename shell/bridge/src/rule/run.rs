//! A rule at work: its session, its log, and what goes between them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::{Events, Poll, Token};
use sedge_base::Timestamp;
use sedge_mqtt::{
    Ack, ConnAck, Connect, ConnectProperties, Packet, PacketId, Publish, QoS, ReasonCode, RetainHandling, Subscribe,
    SubscriptionOptions, SubscriptionRequest, TopicFilter, TopicName, Unsubscribe, Utf8, Version,
};
use sedge_rules::{Ledger, RECEIVE_MAX, Safe, Taken};
use sedge_sparkplug::{CERTIFICATES, NAMESPACE};

use super::log::Log;
use super::log_id;
use super::status::RuleState;
use super::supervisor::Shared;
use crate::error::BridgeError;
use crate::host::Host;
use crate::session::{REQUEST, close, collect, refused};
use crate::wire::{PATIENCE, Stream, Wire, greet, wait_for_events};

const SESSION: Token = Token(0);
const LOG: Token = Token(1);
/// Longest sleep: then it is looked whether the rule is still wanted here.
const NAP: Duration = Duration::from_millis(300);
/// Packets of one connection before the other has its turn.
const PACKETS_PER_TURN: usize = 256;
/// How long programs work before the log and the clients have their turn.
const PROGRAM_TURN: Duration = Duration::from_millis(50);
/// How errors call the broker.
const END: &str = "this node";

/// A connection, and the packets that came before it was ready.
pub(super) struct Opened {
    pub(super) wire: Wire,
    pub(super) ack: ConnAck,
    pub(super) early: Vec<Packet>,
}

/// See the module.
pub(super) struct Run<'a> {
    shared: &'a Shared,
    poll: Poll,
    session: Wire,
    early: VecDeque<Packet>,
    /// Inputs that wait until there is room for their outputs.
    parked: VecDeque<Publish>,
    log: Log,
    ledger: Ledger,
    /// Inputs that are counted, while there is too much to put out to take more.
    held: Vec<(PacketId, QoS)>,
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Timestamp::from_millis(u64::try_from(since).unwrap_or(u64::MAX))
}

fn success(id: PacketId) -> Ack {
    Ack::new(id, ReasonCode::Success)
}

impl<'a> Run<'a> {
    /// Takes over the rule's two sessions, wherever they are, and goes on where the log ends.
    pub(super) fn begin(shared: &'a Arc<Shared>, host: &impl Host) -> Result<Self, BridgeError> {
        let goes_on = || shared.goes_on();
        let mut poll = Poll::new().map_err(BridgeError::Inside)?;
        let id = log_id(shared.rule.name());
        let topic = TopicName::new(&id).map_err(|error| BridgeError::File(error.to_string()))?;
        let filter = TopicFilter::new(&id).map_err(|error| BridgeError::File(error.to_string()))?;
        // The log first: with its session whoever ran the rule before loses the means to write.
        let opened = open(host, (&id, LOG, u16::MAX), &mut poll, &[filter], &goes_on)?;
        let (log, records) = Log::open(opened, topic, &mut poll, goes_on)?;
        let (mut ledger, changed) = Ledger::replay(&shared.rule, records.iter().map(Vec::as_slice))
            .map_err(|error| BridgeError::File(error.to_string()))?;
        if changed {
            tracing::warn!(rule = shared.rule.name(), "the rule was changed: what its windows held is given up");
        }
        if shared.rule.reads_sparkplug() {
            learn(host, &mut ledger)?;
        }
        give_programs(&mut ledger, shared);
        let wanted = shared.rule.hears();
        let opened = open(host, (&shared.session, SESSION, RECEIVE_MAX), &mut poll, &wanted, &goes_on)?;
        ledger.set_window(opened.ack.properties.receive_maximum.unwrap_or(u16::MAX));
        let mut session = opened.wire;
        for id in ledger.released_before() {
            session.send(&Packet::PubRel(success(id)));
        }
        session.look();
        let (early, parked, held) = (opened.early.into(), VecDeque::new(), Vec::new());
        let mut run = Self { shared, poll, session, early, parked, log, ledger, held };
        run.log.wire.look();
        tracing::info!(rule = shared.rule.name(), records = records.len(), "the rule runs");
        shared.record.set_state(RuleState::Running);
        Ok(run)
    }

    /// Runs until the rule is not wanted here any more.
    pub(super) fn until_the_end(mut self) -> Result<(), BridgeError> {
        let mut events = Events::with_capacity(16);
        while self.shared.goes_on() {
            let more = self.turn()?;
            let due = self.ledger.poll_timeout().map_or(NAP, |due| due.since(now()));
            let nap = if more { Duration::ZERO } else { due.min(NAP) };
            wait_for_events(&mut self.poll, &mut events, nap)?;
            for event in &events {
                self.session.event(event);
                self.log.wire.event(event);
            }
        }
        tracing::info!(rule = self.shared.rule.name(), "the rule ends at this node");
        close(self.session);
        close(self.log.wire);
        Ok(())
    }

    /// Whether there is more to do at once.
    fn turn(&mut self) -> Result<bool, BridgeError> {
        let mut more = self.read_session()?;
        more |= self.take_parked()?;
        more |= self.read_log()?;
        let now = now();
        if self.ledger.poll_timeout().is_some_and(|due| due <= now) {
            self.ledger.handle_timeout(now);
        }
        if let Some(record) = self.ledger.seal() {
            self.log.write(self.ledger.last_record(), &record);
        }
        self.acknowledge();
        while let Some(publish) = self.ledger.poll_publish() {
            self.session.send(&Packet::Publish(publish));
        }
        self.session.flush()?;
        self.log.wire.flush()?;
        self.shared.record.look(&self.ledger);
        if let Some(what) = self.ledger.take_note() {
            self.shared.record.note(&what);
        }
        Ok(more)
    }

    fn read_session(&mut self) -> Result<bool, BridgeError> {
        for _ in 0..PACKETS_PER_TURN {
            let early = self.early.pop_front();
            match early.map_or_else(|| self.session.next(), |packet| Ok(Some(packet)))? {
                Some(packet) => self.session_packet(packet)?,
                None if self.session.is_readable() => {
                    self.session.receive()?;
                    return Ok(true);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Takes inputs that a program makes something of, while there is room for that and time. Whether more can be taken at once.
    fn take_parked(&mut self) -> Result<bool, BridgeError> {
        let begun = Instant::now();
        while self.ledger.has_room() && begun.elapsed() < PROGRAM_TURN {
            let Some(publish) = self.parked.pop_front() else { return Ok(false) };
            self.take(&publish)?;
        }
        Ok(!self.parked.is_empty() && self.ledger.has_room())
    }

    fn take(&mut self, publish: &Publish) -> Result<(), BridgeError> {
        match self.ledger.take(now(), publish) {
            Taken::Counted => {}
            Taken::Again => {
                if let Some(id) = publish.packet_id {
                    self.answer(id, publish.qos);
                }
            }
            Taken::Broken => return Err(BridgeError::Program(self.ledger.take_broken().unwrap_or_default())),
        }
        Ok(())
    }

    fn read_log(&mut self) -> Result<bool, BridgeError> {
        for _ in 0..PACKETS_PER_TURN {
            match self.log.wire.next()? {
                Some(packet) => {
                    if self.log.packet(packet)? {
                        self.record_is_safe();
                    }
                }
                None if self.log.wire.is_readable() => {
                    self.log.wire.receive()?;
                    return Ok(true);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn record_is_safe(&mut self) {
        let Safe { inputs, release, keep_from } = self.ledger.sealed();
        self.held.extend(inputs);
        for id in release {
            self.session.send(&Packet::PubRel(success(id)));
        }
        if let Some(number) = keep_from {
            self.log.forget_before(number);
        }
    }

    /// Acknowledges inputs that are counted, unless there is too much to put out: then the broker sends no more.
    fn acknowledge(&mut self) {
        if !self.ledger.has_room() {
            return;
        }
        for (id, qos) in core::mem::take(&mut self.held) {
            self.answer(id, qos);
        }
    }

    fn answer(&mut self, id: PacketId, qos: QoS) {
        let ack = success(id);
        self.session.send(&if qos == QoS::ExactlyOnce { Packet::PubRec(ack) } else { Packet::PubAck(ack) });
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other packets are none of a server's")]
    fn session_packet(&mut self, packet: Packet) -> Result<(), BridgeError> {
        match packet {
            Packet::Publish(publish) if self.shared.rule.jq().is_some() => {
                // The broker sends no more of QoS 1 and 2 than it was allowed to; of QoS 0 as much may wait.
                if publish.packet_id.is_some() || self.parked.len() < usize::from(RECEIVE_MAX) {
                    self.parked.push_back(publish);
                }
            }
            Packet::Publish(publish) => self.take(&publish)?,
            Packet::PubRel(ack) => self.session.send(&Packet::PubComp(success(ack.packet_id))),
            Packet::PubAck(ack) | Packet::PubRec(ack) => {
                if matches!(ack.reason, ReasonCode::QuotaExceeded | ReasonCode::ServerBusy) {
                    return Err(BridgeError::Busy { end: END, reason: ack.reason });
                }
                if ack.reason.is_error() {
                    let reason = ack.reason;
                    self.shared.record.note(&format!("an output was refused: {reason:?} (0x{:02x})", reason.as_u8()));
                }
                self.ledger.arrived(ack.packet_id);
            }
            Packet::PubComp(ack) => self.ledger.ended(ack.packet_id),
            Packet::PingResp | Packet::SubAck(_) | Packet::UnsubAck(_) => {}
            packet => return Err(BridgeError::Unexpected { end: END, kind: packet.kind() }),
        }
        Ok(())
    }
}

/// Gives a rule with a program something that runs it.
#[cfg(feature = "jq")]
fn give_programs(ledger: &mut Ledger, shared: &Arc<Shared>) {
    if let Some(jq) = shared.rule.jq() {
        let shared = Arc::clone(shared);
        let worker = crate::jq::Worker::new(jq.clone(), Box::new(move || shared.goes_on()));
        ledger.run_programs_by(Box::new(worker));
    }
}

/// No rule of this build has a program.
#[cfg(not(feature = "jq"))]
fn give_programs(_: &mut Ledger, _: &Arc<Shared>) {}

/// Hands in the births that the broker has kept: those of edge nodes before those of their devices, which they end.
fn learn(host: &impl Host, ledger: &mut Ledger) -> Result<(), BridgeError> {
    for births in ["+/NBIRTH/+", "+/DBIRTH/+/+"] {
        let filter = format!("{CERTIFICATES}{NAMESPACE}/{births}");
        let filter = TopicFilter::new(&filter).map_err(|error| BridgeError::File(error.to_string()))?;
        let mut place = Some(0);
        while let Some(from) = place {
            let what = "a question for retained messages";
            let page = host.retained(&filter, from);
            let page = page.ok_or(BridgeError::NoAnswer { end: END, what, seconds: PATIENCE.as_secs() })?;
            for (topic, payload) in page.messages {
                ledger.learn(topic.as_str().strip_prefix(CERTIFICATES).unwrap_or_default(), &payload);
            }
            place = page.next;
        }
    }
    Ok(())
}

/// Connects to a session at this node, and makes its subscriptions these.
fn open(
    host: &impl Host,
    (id, token, window): (&str, Token, u16),
    poll: &mut Poll,
    wanted: &[TopicFilter],
    goes_on: &impl Fn() -> bool,
) -> Result<Opened, BridgeError> {
    let socket = host.connect(id).map_err(BridgeError::Inside)?;
    socket.set_nonblocking(true).map_err(BridgeError::Inside)?;
    let stream = Stream::Unix(mio::net::UnixStream::from_std(socket));
    let mut wire = Wire::new(poll, token, stream, None, (Version::V5, END))?;
    let connect = Connect {
        version: Version::V5,
        bridge: false,
        clean_start: false,
        keep_alive: 0,
        client_id: Utf8::new(id).unwrap_or_default(),
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties {
            session_expiry: Some(u32::MAX),
            receive_maximum: Some(window),
            ..ConnectProperties::default()
        },
    };
    let ack = greet(&mut wire, poll, connect, goes_on)?;
    let there: BTreeSet<String> = host.session(id).unwrap_or_default().filters.into_iter().collect();
    let mut early = Vec::new();
    let old = there.iter().filter(|filter| !wanted.iter().any(|wanted| wanted.as_str() == **filter));
    let filters: Vec<TopicFilter> = old.filter_map(|filter| TopicFilter::new(filter).ok()).collect();
    if !filters.is_empty() {
        wire.send(&Packet::Unsubscribe(Unsubscribe { packet_id: REQUEST, filters, user: Vec::new() }));
        early.extend(collect(&mut wire, poll, "UNSUBSCRIBE", goes_on)?.0);
    }
    let options = SubscriptionOptions {
        qos: QoS::ExactlyOnce,
        no_local: false,
        retain_as_published: true,
        retain_handling: RetainHandling::SendIfNew,
    };
    let new = wanted.iter().filter(|filter| !ack.session_present || !there.contains(filter.as_str()));
    let requests: Vec<SubscriptionRequest> =
        new.map(|filter| SubscriptionRequest { filter: filter.clone(), options }).collect();
    let asked: Vec<String> = requests.iter().map(|request| request.filter.as_str().to_owned()).collect();
    if !requests.is_empty() {
        wire.send(&Packet::Subscribe(Subscribe {
            packet_id: REQUEST,
            requests,
            subscription_id: None,
            user: Vec::new(),
        }));
        let (more, reasons) = collect(&mut wire, poll, "SUBSCRIBE", goes_on)?;
        early.extend(more);
        if let Some((number, reason)) = refused(&reasons) {
            let filter = asked.get(number).cloned().unwrap_or_default();
            return Err(BridgeError::NotSubscribed { end: END, filter, reason });
        }
    }
    Ok(Opened { wire, ack, early })
}
