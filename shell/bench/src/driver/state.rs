//! A driver as a whole: its state, its loop, its commands.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::{Events, Poll, Registry, Token, Waker};
use sedge_base::Rng;
use sedge_mqtt::Version;

use super::command::{Command, Event, Progress};
use super::conn::Conn;
use super::packets::Introduction;
use super::publisher::{Manner, Pace, Publisher};
use super::schedule::{Beat, Schedule};
use super::ticker::Ticker;
use crate::clock::{Clock, thread_cpu};
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::measure::{Recorder, SentRange, Window};
use crate::num;
use crate::plan::{Plan, Role};
use crate::remote::Share;
use crate::run::Options;
use crate::scenario::{Pacing, Protocol, Scenario};
use crate::transport::Trust;

const WAKE: Token = Token(usize::MAX);
const TICK: Token = Token(usize::MAX - 1);
/// Bytes of random filler that payloads are cut from.
const FILLER_BYTES: usize = 65_536;
/// Time between two rounds of the work that is not urgent.
const CHORES: u64 = 20_000_000;
/// Time between two reports of progress.
const PROGRESS: u64 = 100_000_000;
/// Deliveries that are reported together, where each is.
const RAW: usize = 10_000;

/// Settings that all drivers of a process have in common.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) scenario: Scenario,
    pub(crate) plan: Plan,
    pub(crate) brokers: Vec<(Endpoint, SocketAddr)>,
    /// Addresses to connect from; any if there are none.
    pub(crate) sources: Vec<IpAddr>,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    /// Number of the run.
    pub(crate) run: u32,
    pub(crate) clock: Clock,
    /// Deliveries that came back, by publishing client (closed loop).
    pub(crate) credits: Vec<AtomicU64>,
    /// Processors that driver threads are bound to, in turn.
    pub(crate) pin: Vec<usize>,
    /// Every delivery is reported.
    pub(crate) raw: bool,
    /// How encrypted connections are made.
    pub(crate) tls: Trust,
}

impl Setup {
    /// The part of this process, as `share` says, with what `options` say about this machine.
    pub(crate) fn new(share: Share, options: &Options, clock: Clock) -> Result<Self, BenchError> {
        let plan = Plan::new(&share.scenario, share.brokers.len(), share.drivers)?;
        let mut brokers = Vec::new();
        for endpoint in share.brokers {
            let address = endpoint.resolve()?;
            brokers.push((endpoint, address));
        }
        let is_encrypted = brokers.iter().any(|(endpoint, _)| endpoint.carrier.is_tls());
        Ok(Self {
            credits: (0..plan.clients.len()).map(|_| AtomicU64::new(0)).collect(),
            plan,
            brokers,
            scenario: share.scenario,
            sources: options.sources.clone(),
            username: share.username,
            password: share.password,
            run: share.run,
            raw: share.raw,
            clock,
            pin: options.pin.clone(),
            tls: Trust::new(&options.tls, is_encrypted)?,
        })
    }
}

/// A driver thread.
pub(crate) struct Handle {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) thread: JoinHandle<()>,
}

/// How far a driver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Connecting,
    Subscribing,
    Publishing,
    Published,
    /// Sessions are removed from the brokers.
    Leaving,
}

/// Everything but the connections.
pub(super) struct Core {
    pub(super) setup: Arc<Setup>,
    pub(super) version: Version,
    pub(super) introduction: Introduction,
    pub(super) registry: Registry,
    pub(super) buffer: Vec<u8>,
    pub(super) filler: Vec<u8>,
    pub(super) rng: Rng,
    pub(super) recorder: Recorder,
    /// Connections that have something to send.
    pub(super) dirty: Vec<usize>,
    pub(super) queued: Vec<bool>,
    /// Connections that have more to read.
    pub(super) again: Vec<usize>,
    /// Connection of each client of the plan, if it is here.
    pub(super) conn_of: Vec<Option<usize>>,
    pub(super) closed_loop: bool,
    /// There are no other drivers.
    pub(super) alone: bool,
    /// Pause between two looks at the connections.
    rest: Option<Duration>,
    pub(super) stage: Stage,
    pub(super) beat: Beat,
    /// Until when connections whose interval counts from their last message wait.
    pub(super) pauses: BinaryHeap<Reverse<(u64, usize)>>,
    pub(super) up: usize,
    pub(super) connecting: usize,
    pub(super) subscribed: usize,
    pub(super) events: Sender<(usize, Event)>,
    pub(super) index: usize,
    pub(super) failed: bool,
}

/// One thread that owns many connections and one event loop.
pub(super) struct Driver {
    poll: Poll,
    pub(super) conns: Vec<Conn>,
    pub(super) core: Core,
    schedules: Vec<Schedule>,
    ticker: Ticker,
    commands: Receiver<Command>,
    pub(super) next_chores: u64,
    next_progress: u64,
    /// When sessions that are still in brokers are given up.
    pub(super) leave_by: u64,
    /// CPU time of this thread and the time itself, at the beginning of the window and at its end.
    cpu: [Option<(u64, u64)>; 2],
}

/// Starts driver number `index` (of all drivers of a run); its events go to `events`.
pub(crate) fn spawn(setup: &Arc<Setup>, index: usize, events: Sender<(usize, Event)>) -> Result<Handle, BenchError> {
    let (sender, commands) = std::sync::mpsc::channel();
    let poll = Poll::new().map_err(BenchError::system("an event loop"))?;
    let waker = Waker::new(poll.registry(), WAKE).map_err(BenchError::system("a waker"))?;
    let driver =
        Driver::new(Arc::clone(setup), index, poll, commands, events).map_err(BenchError::system("an event loop"))?;
    let thread = std::thread::Builder::new()
        .name(format!("bench-{index}"))
        .spawn(move || driver.run())
        .map_err(BenchError::system("a thread"))?;
    Ok(Handle { commands: sender, waker: Arc::new(waker), thread })
}

impl Core {
    fn new(setup: Arc<Setup>, index: usize, registry: Registry, events: Sender<(usize, Event)>) -> Self {
        let scenario = &setup.scenario;
        let version = match scenario.protocol {
            Protocol::V311 => Version::V311,
            Protocol::V5 => Version::V5,
        };
        let introduction = Introduction {
            version,
            keep_alive: scenario.keep_alive_s,
            username: setup.username.clone(),
            password: setup.password.clone(),
        };
        let mut recorder = Recorder::new(setup.run, &setup.plan);
        if setup.raw {
            recorder.keep_raw();
        }
        let mut rng = Rng::new(scenario.seed.wrapping_add(num::count(index)));
        let filler = (0..FILLER_BYTES).map(|_| b'a' + u8::try_from(rng.below(26)).unwrap_or(0)).collect();
        let closed_loop = scenario.publishers.iter().any(|group| scenario.interval_of(group).is_none());
        let alone = setup.plan.clients.iter().all(|client| client.driver == index);
        let tick = num::nanos(scenario.tick_ms / 1e3).max(1);
        let rest = Some(num::nanos(scenario.rest_ms / 1e3)).filter(|nanos| *nanos > 0);
        let rest = rest.map(Duration::from_nanos);
        Self {
            recorder,
            conn_of: vec![None; setup.plan.clients.len()],
            setup,
            version,
            introduction,
            registry,
            buffer: Vec::new(),
            filler,
            rng,
            dirty: Vec::new(),
            queued: Vec::new(),
            again: Vec::new(),
            rest,
            closed_loop,
            alone,
            stage: Stage::Waiting,
            beat: Beat { origin: 0, tick },
            pauses: BinaryHeap::new(),
            up: 0,
            connecting: 0,
            subscribed: 0,
            events,
            index,
            failed: false,
        }
    }

    /// Sees to it that connection `at` is looked at before the loop waits.
    pub(super) fn mark(&mut self, at: usize) {
        if let Some(queued) = self.queued.get_mut(at)
            && !*queued
        {
            *queued = true;
            self.dirty.push(at);
        }
    }

    /// Whether so few connections are being established that more should be begun at once.
    fn has_room(&self) -> bool {
        self.connecting < super::outgoing::MOST_CONNECTING / 2 && self.up + self.connecting < self.queued.len()
    }

    pub(super) fn tell(&self, event: Event) {
        // If nobody listens any more the run is over, and the thread is about to end.
        let _ = self.events.send((self.index, event));
    }

    /// Gives the whole run up.
    pub(super) fn fail(&mut self, text: String) {
        if !std::mem::replace(&mut self.failed, true) {
            self.tell(Event::Failed(text));
        }
    }
}

impl Driver {
    fn new(
        setup: Arc<Setup>,
        index: usize,
        poll: Poll,
        commands: Receiver<Command>,
        events: Sender<(usize, Event)>,
    ) -> io::Result<Self> {
        let ticker = Ticker::new(poll.registry(), TICK)?;
        let core = Core::new(setup, index, poll.registry().try_clone()?, events);
        let mut driver = Self {
            poll,
            conns: Vec::new(),
            core,
            schedules: Vec::new(),
            ticker,
            commands,
            next_chores: 0,
            next_progress: 0,
            leave_by: u64::MAX,
            cpu: [None; 2],
        };
        driver.populate();
        Ok(driver)
    }

    /// Makes the clients of the plan that belong here.
    fn populate(&mut self) {
        let setup = Arc::clone(&self.core.setup);
        let scenario = &setup.scenario;
        let manner = Manner {
            qos: scenario.qos,
            version: self.core.version,
            window: scenario.window,
            burst: scenario.burst(),
            until: scenario.until,
            limit: scenario.messages.unwrap_or(u64::MAX),
            size: scenario.payload.fixed().unwrap_or(0),
        };
        let mut turns: Vec<(u64, Vec<(u64, usize)>)> = Vec::new();
        for (number, client) in setup.plan.clients.iter().enumerate() {
            if client.driver != self.core.index {
                continue;
            }
            let at = self.conns.len();
            let mut conn = Conn::new(number, client.broker);
            match &client.role {
                Role::Publisher { streams, interval, phase } => {
                    let phase = *phase;
                    let pace = match (interval, scenario.pacing) {
                        (None, _) => Pace::Room,
                        (Some(interval), Pacing::Schedule) => Pace::Schedule { interval: *interval, phase },
                        (Some(interval), Pacing::LastMessage) => {
                            Pace::LastMessage { interval: *interval, not_before: phase }
                        }
                    };
                    let known = (&setup.plan, self.core.filler.as_slice());
                    conn.publisher = Some(Box::new(Publisher::new(number, streams.clone(), pace, manner, known)));
                    if let Pace::Schedule { interval, phase } = pace {
                        match turns.iter_mut().find(|(known, _)| *known == interval) {
                            Some((_, members)) => members.push((phase, at)),
                            None => turns.push((interval, vec![(phase, at)])),
                        }
                    }
                }
                Role::Subscriber { receiver, .. } => {
                    conn.place = Some(self.core.recorder.inbox(*receiver, &setup.plan));
                }
                Role::Idle => {}
            }
            if let Some(place) = self.core.conn_of.get_mut(number) {
                *place = Some(at);
            }
            self.conns.push(conn);
        }
        self.core.queued = vec![false; self.conns.len()];
        self.schedules = turns.into_iter().map(|(interval, members)| Schedule::new(interval, members)).collect();
    }

    fn run(mut self) {
        self.pin();
        let mut events = Events::with_capacity(4_096);
        loop {
            let now = self.core.setup.clock.now();
            let timeout = self.timeout(now);
            if let Some(rest) = self.core.rest.filter(|_| self.core.stage == Stage::Publishing) {
                std::thread::sleep(rest);
            }
            if let Err(error) = self.poll.poll(&mut events, Some(timeout))
                && error.kind() != io::ErrorKind::Interrupted
            {
                self.core.fail(format!("the event loop: {error}"));
                return;
            }
            for event in &events {
                let Token(at) = event.token();
                if at < self.conns.len() {
                    self.ready(at, event);
                }
            }
            for at in std::mem::take(&mut self.core.again) {
                self.readable(at, false);
            }
            while let Ok(command) = self.commands.try_recv() {
                self.command(command);
            }
            let now = self.core.setup.clock.now();
            if let Some(left) = self.left(now) {
                self.core.tell(Event::Finished(left));
                return;
            }
            self.advance(now);
            let connects = matches!(self.core.stage, Stage::Connecting | Stage::Leaving);
            let more_to_connect = connects && self.core.has_room();
            if now >= self.next_chores || more_to_connect {
                self.next_chores = now + CHORES;
                self.chores(now);
            }
            self.work_off();
            self.end_publishing(now);
            if let Some(raw) = self.core.recorder.take_raw(RAW) {
                self.core.tell(Event::Raw(raw));
            }
            if now >= self.next_progress {
                self.next_progress = now + PROGRESS;
                self.core.tell(Event::Progress(self.progress()));
            }
        }
    }

    /// Binds this thread to its processor. That it cannot is no reason to stop.
    fn pin(&self) {
        let pin = &self.core.setup.pin;
        if let Some(cpu) = pin.get(self.core.index % pin.len().max(1)) {
            let mut set = rustix::thread::CpuSet::new();
            set.set(*cpu);
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
    }

    /// How long the loop may wait; arms the ticker if something is due before.
    fn timeout(&mut self, now: u64) -> Duration {
        if !self.core.again.is_empty() || !self.core.dirty.is_empty() {
            return Duration::ZERO;
        }
        let publishing = self.core.stage == Stage::Publishing;
        if publishing {
            let window = self.core.recorder.window();
            let turns = self.schedules.iter().filter_map(|schedule| schedule.next_due(self.core.beat));
            let turns = turns.chain(self.core.pauses.peek().map(|Reverse((until, _))| *until));
            let edges = [window.start, window.end].into_iter().filter(|edge| *edge > now);
            if let Some(due) = turns.chain(edges).min() {
                if due <= now {
                    return Duration::ZERO;
                }
                if due < now + CHORES && self.ticker.set(due, now).is_err() {
                    return Duration::ZERO;
                }
            }
        }
        // Deliveries that other drivers see come back here without waking anybody.
        let shared = publishing && self.core.closed_loop && !self.core.alone;
        Duration::from_nanos(if shared { 1_000_000 } else { CHORES })
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Connect => {
                self.core.stage = Stage::Connecting;
                self.next_chores = 0;
                self.report_stage();
            }
            Command::Subscribe => {
                self.core.stage = Stage::Subscribing;
                for at in 0..self.conns.len() {
                    self.subscribe(at);
                }
                self.report_stage();
            }
            Command::Publish { origin, window } => {
                self.core.recorder.set_window(origin, window);
                self.core.beat.origin = origin;
                self.core.stage = Stage::Publishing;
                for at in 0..self.conns.len() {
                    let publisher = self.conns.get_mut(at).and_then(|conn| conn.publisher.as_mut());
                    let first = publisher.and_then(|publisher| publisher.begin(origin));
                    self.core.pauses.extend(first.map(|first| Reverse((first, at))));
                    self.core.mark(at);
                }
            }
            Command::Report { end } => {
                self.core.stage = Stage::Published;
                self.core.recorder.end_window(end);
                self.note_cpu(end);
                let publishers = self.conns.iter().filter_map(|conn| conn.publisher.as_ref());
                let sent: Vec<SentRange> = publishers.flat_map(|publisher| publisher.ranges()).collect();
                self.core.tell(Event::Sent(sent));
            }
            Command::Settle(sent) => self.settle(&sent),
            Command::Finish => self.leave(),
        }
    }

    fn settle(&mut self, sent: &[SentRange]) {
        self.core.recorder.settle(sent);
        if let Some(raw) = self.core.recorder.take_raw(0) {
            self.core.tell(Event::Raw(raw));
        }
        let inflight = self.progress().inflight;
        let tally = &mut self.core.recorder.tally;
        tally.unacknowledged = inflight;
        if let [Some((cpu, at)), Some((cpu_end, end))] = self.cpu {
            tally.driver_cpu = cpu_end - cpu;
            tally.driver_busy = num::ratio(num::real(cpu_end - cpu), num::real(end.saturating_sub(at)));
        }
        let tally = Box::new(std::mem::take(tally));
        self.core.tell(Event::Tally(tally));
    }

    /// Looks at what the time brings: turns of the open loop, edges of the window.
    fn advance(&mut self, now: u64) {
        if self.core.stage != Stage::Publishing {
            return;
        }
        self.note_cpu(now);
        let Window { end, .. } = self.core.recorder.window();
        let until = now.min(end.saturating_sub(1));
        while let Some(Reverse((due, at))) = self.core.pauses.peek().copied()
            && due <= until
        {
            self.core.pauses.pop();
            self.core.recorder.tally.lag.record(now - due);
            self.core.mark(at);
        }
        for schedule in &mut self.schedules {
            let Some(due) = schedule.next_due(self.core.beat).filter(|due| *due <= until) else { continue };
            self.core.recorder.tally.lag.record(now - due);
            schedule.run(self.core.beat, until, |at| {
                if let Some(publisher) = self.conns.get_mut(at).and_then(|conn| conn.publisher.as_mut()) {
                    publisher.due += 1;
                }
                self.core.mark(at);
            });
        }
    }

    /// Ends the publishing at the end of the window, or when all messages are sent. What was due before the end has had its turn by
    /// now, however late this thread woke up.
    fn end_publishing(&mut self, now: u64) {
        if self.core.stage != Stage::Publishing {
            return;
        }
        let end = self.core.recorder.window().end;
        let mut publishers = self.conns.iter().filter_map(|conn| conn.publisher.as_ref());
        let limited = self.core.setup.scenario.messages.is_some();
        if now >= end || limited && publishers.all(|publisher| publisher.is_done()) {
            self.core.stage = Stage::Published;
            self.core.tell(Event::Published);
        }
    }

    /// Reads the CPU clock at the edges of the window.
    fn note_cpu(&mut self, now: u64) {
        let window = self.core.recorder.window();
        let [first, last] = &mut self.cpu;
        if first.is_none() && now >= window.start {
            *first = Some((thread_cpu(), now));
        }
        if first.is_some() && last.is_none() && now >= window.end {
            *last = Some((thread_cpu(), now));
        }
    }

    fn progress(&self) -> Progress {
        let publishers = || self.conns.iter().filter_map(|conn| conn.publisher.as_ref());
        let tally = &self.core.recorder.tally;
        Progress {
            connected: num::count(self.core.up),
            sent: tally.all_sent,
            expected: publishers().map(|publisher| publisher.expected).sum(),
            received: tally.all_received,
            duplicates: tally.duplicates,
            inflight: publishers().map(|publisher| publisher.inflight()).sum(),
        }
    }

    /// Tells when all clients are connected or subscribed.
    pub(super) fn report_stage(&mut self) {
        let done = match self.core.stage {
            Stage::Connecting => (self.core.up == self.conns.len()).then_some(Event::Connected),
            Stage::Subscribing => {
                let wanted = self.conns.iter().filter(|conn| conn.place.is_some()).count();
                (self.core.subscribed == wanted).then_some(Event::Subscribed)
            }
            Stage::Waiting | Stage::Publishing | Stage::Published | Stage::Leaving => None,
        };
        if let Some(event) = done {
            self.core.stage = Stage::Waiting;
            self.core.tell(event);
        }
    }
}
