//! One turn of an event loop after the other.

mod access;
mod clients;
mod journal;
mod log;
mod stop;
mod upstream;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::{Events, Poll, Token};
use sedge_base::{Instant, Now, ShardId};
use sedge_broker::{Policy, TraceSpec};
use sedge_cluster::{NodeInput, NodeOutput, Shard, ShardInput, ShardOutput};

use self::journal::Kept;
use self::stop::Stopping;
use super::clients::{Clients, TOKEN_BASE};
use super::office::Office;
use super::pace::{Pace, Taken};
use super::upstream::TOKEN_BASE as UPSTREAM_TOKENS;
use super::wire::Chunk;
use super::{Door, Hub, Keeper, Letter, LogLimiter, Shared, Upstreams, View, WorkerStats, door, links, pulse};

/// The event of the mailbox.
pub(crate) const MAIL: Token = Token(0);
/// How long one turn reads mail, reads clients, and writes, but for what is under way then: a message for a thousand clients is as many
/// copies, and everybody else waits meanwhile.
const SHARE_OF_TURN: Duration = Duration::from_millis(5);
/// Events taken in one turn.
const EVENTS_PER_TURN: usize = 1024;

/// A thread's event loop and its machines.
pub(crate) struct Worker {
    id: ShardId,
    shared: Arc<Shared>,
    poll: Poll,
    now: Now,
    shard: Shard,
    clients: Clients,
    chunk: Chunk,
    /// Letters that were taken and not read.
    inbox: VecDeque<Letter>,
    office: Office,
    /// The node; on the first thread only.
    hub: Option<Hub>,
    /// The listeners for clients; on the first thread only.
    door: Option<Door>,
    /// Connections to the broker behind this node, if there is one.
    upstreams: Option<Upstreams>,
    /// Where that broker is, as configured.
    upstream_address: String,
    max_packet_bytes: u32,
    connect_timeout: Duration,
    max_handshakes: usize,
    /// Until when connections are accepted that have waited while none were.
    backlog_until: Instant,
    /// Reads of unfinished handshakes that this turn has left.
    handshake_reads: usize,
    /// Bytes of MQTT that the layers of a connection have unwrapped.
    pieces: Vec<Bytes>,
    /// Shard of the next client without an identifier of its own.
    next_default: u16,
    stats: WorkerStats,
    log: LogLimiter,
    stopping: Option<Stopping>,
    /// The journal, if there is one.
    kept: Option<Box<Kept>>,
}

/// Parts of a [`Worker`].
pub(crate) struct Parts {
    pub(crate) id: ShardId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) poll: Poll,
    pub(crate) shard: Shard,
    pub(crate) hub: Option<Hub>,
    pub(crate) door: Option<Door>,
    pub(crate) max_packet_bytes: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) log_lines_per_second: u32,
    pub(crate) max_handshakes: usize,
    pub(crate) keeper: Option<Keeper>,
    /// Connections to the broker behind this node and where it is.
    pub(crate) upstream: Option<(Upstreams, String)>,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let (upstreams, upstream_address) = parts.upstream.unzip();
        let mut worker = Self {
            kept: parts.keeper.map(|keeper| Box::new(Kept::new(keeper, parts.shared.boxes.len()))),
            id: parts.id,
            now: parts.shared.clock.now(),
            clients: Clients::new(parts.id),
            chunk: Chunk::new(),
            inbox: VecDeque::new(),
            office: Office::new(parts.id, parts.shared.boxes.len()),
            shared: parts.shared,
            poll: parts.poll,
            shard: parts.shard,
            hub: parts.hub,
            door: parts.door,
            upstreams,
            upstream_address: upstream_address.unwrap_or_default(),
            max_packet_bytes: parts.max_packet_bytes,
            connect_timeout: parts.connect_timeout,
            max_handshakes: parts.max_handshakes,
            backlog_until: Instant::ZERO,
            handshake_reads: 0,
            pieces: Vec::new(),
            next_default: 0,
            stats: WorkerStats::default(),
            log: LogLimiter::new(parts.log_lines_per_second),
            stopping: None,
        };
        worker.shard.handle(worker.now, ShardInput::Policy(worker.shared.gate.policy()));
        worker.gate();
        let registry = worker.poll.registry();
        if let Some(hub) = &mut worker.hub {
            hub.links.register(registry)?;
        }
        if let Some(door) = &mut worker.door {
            door.register(registry)?;
        }
        Ok(worker)
    }

    /// Turns until the node has stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        if let Some(hub) = &mut self.hub {
            hub.node.handle_timeout(self.now);
        }
        self.settle_all();
        self.end_turn();
        self.commit()?;
        self.post();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut pace = self.upstreams.is_some().then(|| Pace::new(cpus));
        while !self.is_finished() {
            if let Some(pause) = pace.as_ref().and_then(Pace::pause) {
                self.stats.pauses += 1;
                std::thread::sleep(pause);
            }
            let timeout = self.timeout();
            let has_events = pace.as_mut().is_some_and(|pace| self.linger(&mut events, timeout, pace));
            if !has_events {
                self.look(&mut events, timeout)?;
            }
            let begun = self.clock();
            self.turn(&events)?;
            if let Some(pace) = &mut pace {
                let taken = Taken { reads: self.stats.reads, packets: self.shard.packets_in() };
                pace.turned((begun, self.clock()), events.iter().count(), taken);
            }
        }
        if let Some(mailbox) = self.shared.boxes.get(usize::from(self.id.0)) {
            mailbox.close();
        }
        self.close_journal()
    }

    /// Waits until something has happened, for so long at most.
    fn look(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            // Interrupted: whatever the last turn saw is not told again.
            Err(_) => events.clear(),
            Ok(()) => {}
        }
        Ok(())
    }

    fn turn(&mut self, events: &Events) -> io::Result<()> {
        self.now = self.shared.clock.now();
        let begun = self.now.instant;
        self.stats.turns += 1;
        self.notice_standstill();
        for event in events {
            self.event(event);
        }
        self.read_mail();
        if self.reads() {
            self.accept();
            // The process may have been stopped in the middle of this turn.
            self.notice_standstill();
            if !self.shard.stands_still() {
                self.read_clients();
            }
            self.read_links();
            self.read_upstream();
        }
        self.receive_datagrams();
        self.timers();
        self.settle_all();
        // The bytes read in this turn are in no batch yet.
        self.notice_standstill();
        self.end_turn();
        self.commit()?;
        let turn = self.now.instant;
        // The clock is read again, because the writes below happen after the work of the turn.
        self.now = self.shared.clock.now();
        self.flush();
        self.check_stopping();
        self.post();
        self.stats.connections = self.clients.len();
        self.stats.handshaking = self.clients.handshaking();
        let ended = self.shared.clock.now().instant;
        self.stats.lag.note(ended, ended.since(begun));
        if let Some(hub) = &self.hub
            && !self.shard.stands_still()
        {
            self.shared.pulse.beat(turn, self.shared.clock.now().instant, hub.node.is_alone());
        }
        Ok(())
    }

    /// After a standstill nothing is read from clients until the node has heard what the others did meanwhile.
    fn notice_standstill(&mut self) {
        let now = self.shared.clock.now();
        if self.shard.stands_still() || !self.shared.pulse.has_stopped(now.instant) {
            return;
        }
        self.now = now;
        self.shard.handle(self.now, ShardInput::StoodStill);
        if let Some(hub) = &mut self.hub {
            hub.node.handle(self.now, NodeInput::StoodStill);
        }
        self.settle_all();
    }

    /// Whether anything more is taken in from clients and links.
    fn reads(&mut self) -> bool {
        !self.is_choked() && !self.office.is_jammed(&self.shared)
    }

    fn event(&mut self, event: &mio::event::Event) {
        let token = event.token();
        match token {
            MAIL => {}
            Token(number) if number >= UPSTREAM_TOKENS => {
                if let Some(upstreams) = &mut self.upstreams {
                    upstreams.event(event);
                }
            }
            Token(number) if number >= door::TOKEN_BASE => {
                if let Some(door) = &mut self.door {
                    door.knock(token);
                }
            }
            Token(number) if number < TOKEN_BASE || number % 2 == 1 => {
                debug_assert!(number >= TOKEN_BASE || token == links::LISTENER || token == links::DATAGRAMS);
                if let Some(hub) = &mut self.hub {
                    hub.links.event(event);
                }
            }
            token => self.client_event(token, event),
        }
    }

    fn read_mail(&mut self) {
        if self.inbox.is_empty() {
            self.take_mail();
        }
        let until = self.clock() + SHARE_OF_TURN;
        while let Some(letter) = self.inbox.pop_front() {
            self.letter(letter);
            // A shard that stops reads everything: letters of the other shards came before those shards were gone.
            if self.stopping.is_none() && !self.inbox.is_empty() && self.clock() >= until {
                if let Some(mailbox) = self.shared.boxes.get(usize::from(self.id.0)) {
                    mailbox.fall_behind();
                }
                return;
            }
        }
    }

    fn take_mail(&mut self) {
        let mut letters = Vec::from(std::mem::take(&mut self.inbox));
        let Some(mailbox) = self.shared.boxes.get(usize::from(self.id.0)) else { return };
        for sender in mailbox.take(&mut letters) {
            if let Some(mailbox) = self.shared.boxes.get(sender) {
                mailbox.nudge();
            }
        }
        self.inbox = letters.into();
    }

    /// The time at this very moment; that of the machines stands still during a turn.
    fn clock(&self) -> Instant {
        self.shared.clock.now().instant
    }

    fn letter(&mut self, letter: Letter) {
        match letter {
            Letter::Shard(mail) => self.shard.handle(self.now, ShardInput::Mail(mail)),
            Letter::Node(from, mail) => {
                if let Some(hub) = &mut self.hub {
                    hub.node.handle(self.now, NodeInput::Mail { from, mail });
                }
            }
            Letter::Seeds(seeds) => {
                if let Some(hub) = &mut self.hub {
                    hub.node.handle(self.now, NodeInput::Seeds(seeds));
                }
            }
            Letter::Report(reports) => self.shard.handle(self.now, ShardInput::Report(reports)),
            Letter::Authenticated(conn, answer) => self.authenticated(conn, answer),
            Letter::Policy(policy, users) => self.set_policy(policy, users),
            Letter::Handover(handover) => self.take_over(*handover),
            Letter::Query(query) => {
                let node = self.hub.as_ref().map(|hub| &hub.node);
                let journal = self.kept.as_ref().map(|kept| kept.stats());
                query(&View {
                    id: self.id,
                    place: &self.shared.place,
                    make: self.shared.make.as_deref(),
                    shard: &self.shard,
                    node,
                    stats: &self.stats,
                    journal,
                });
            }
            Letter::Kick(kick) => {
                if let Some(hub) = &mut self.hub {
                    hub.kick(self.now, *kick);
                }
            }
            Letter::Ask(ask) => {
                if let Some(hub) = &mut self.hub {
                    hub.ask(self.now, *ask);
                }
            }
            Letter::Answer(to, request, answer) => {
                if let Some(hub) = &mut self.hub {
                    hub.node.handle(self.now, NodeInput::Answer { to, request, answer });
                }
            }
            Letter::Inside(queues, awaits) => self.shard.handle(self.now, ShardInput::Inside { queues, awaits }),
            Letter::Arrived(session, ids) => self.shard.handle(self.now, ShardInput::Arrived { session, ids }),
            Letter::Traces(specs) => self.set_traces(specs),
            Letter::WatchTopics => self.shard.handle(self.now, ShardInput::WatchTopics),
            Letter::WatchTopicTree => self.shard.handle(self.now, ShardInput::WatchTopicTree),
            Letter::Drain(order) => self.drain(order),
            Letter::Neighbour(order) => {
                if let Some(hub) = &mut self.hub {
                    hub.neighbour(self.now, order);
                }
            }
            Letter::Connections(connections, order) => {
                if let Some(hub) = &mut self.hub {
                    hub.node.set_connections(self.now, connections, order);
                }
            }
            Letter::ClosedTopics(filters) => {
                if let Some(hub) = &mut self.hub {
                    hub.node.handle(self.now, NodeInput::ClosedTopics(filters));
                }
            }
            Letter::Stop(elsewhere) => self.start_stopping(elsewhere),
            Letter::Mark(from, mark) => self.note_mark(from, mark),
            // The turn it causes is all.
            Letter::Gone => {}
        }
        self.settle();
    }

    fn read_links(&mut self) {
        let Some(hub) = &mut self.hub else { return };
        hub.accept(self.poll.registry(), self.now);
        hub.read(self.now, &mut self.chunk, &mut self.stats);
    }

    fn receive_datagrams(&mut self) {
        let Some(hub) = &mut self.hub else { return };
        hub.receive(self.now, &mut self.stats);
    }

    fn timers(&mut self) {
        self.client_timers();
        while let Some((kind, lines)) = self.log.summary(self.now.instant) {
            tracing::warn!(
                kind = kind.name(),
                lines,
                "suppressed lines; log.lines_per_second allows more, log.level debug all"
            );
        }
        if self.shard.poll_timeout().is_some_and(|at| at <= self.now.instant) {
            self.shard.handle_timeout(self.now);
            self.settle();
        }
        if let Some(hub) = &mut self.hub
            && hub.node.poll_timeout().is_some_and(|at| at <= self.now.instant)
        {
            let ahead = self.shared.clock.system_ahead();
            hub.node.handle(self.now, NodeInput::SystemClock { ahead });
            hub.node.handle_timeout(self.now);
        }
    }

    /// Other nodes have corrected the time of the cluster. A thread writes it down, so that the disk stops nobody.
    fn set_time(&mut self, ahead: i64) {
        let clock = self.shared.clock.clone();
        clock.correct(ahead);
        self.now.wall = clock.now().wall;
        let keep = move || clock.keep();
        if let Err(error) = std::thread::Builder::new().name("clock".to_owned()).spawn(keep) {
            tracing::debug!(%error, "no thread writes the time of the cluster down");
        }
    }

    /// Writes once to each connection and link that has output. Output that the machines add upon that is for the next turn.
    fn flush(&mut self) {
        self.flush_clients();
        self.flush_upstream();
        self.settle_all();
        if let Some(hub) = &mut self.hub {
            hub.flush(self.now, &mut self.stats);
        }
        self.settle_all();
    }

    /// Posts what the turn has made; with a journal that is done by [`Worker::commit`].
    fn post(&mut self) {
        if self.kept.is_some() {
            return;
        }
        self.office.post(&self.shared, &mut self.stats);
    }

    /// How long to sleep; `None`: until something happens.
    fn timeout(&mut self) -> Option<Duration> {
        let reading = self.reads();
        let now = self.shared.clock.now().instant;
        let reads_clients = reading && !self.shard.stands_still();
        let clients = self.clients.has_dirty() || (reads_clients && self.clients.ready_len() > 0);
        let links = self.hub.as_ref().is_some_and(|hub| hub.links.is_busy(reading));
        let mail = !self.inbox.is_empty();
        let mailbox = self.shared.boxes.get(usize::from(self.id.0));
        let upstream = reading && self.upstreams.as_ref().is_some_and(Upstreams::is_busy);
        let journal = self.has_more_to_commit() || self.shard.is_turn_open();
        if mail || clients || links || upstream || journal || mailbox.is_some_and(|mailbox| !mailbox.may_sleep()) {
            return Some(Duration::ZERO);
        }
        let hub = self.hub.as_ref();
        let deadlines = [
            self.shard.poll_timeout(),
            self.clients.next_deadline(),
            hub.and_then(|hub| hub.node.poll_timeout()),
            hub.and_then(|hub| hub.links.next_deadline()),
            self.door.as_ref().filter(|_| reads_clients).and_then(|door| door.next_deadline(now)),
            self.log.next_deadline(),
            self.stopping.as_ref().map(Stopping::next_deadline),
            self.kept.as_ref().and_then(|kept| kept.next_deadline()),
            self.upstreams.as_ref().filter(|_| reading).and_then(Upstreams::next_deadline),
        ];
        let sleep = deadlines.into_iter().flatten().min().map(|at| at.since(now));
        let limit = (self.hub.is_some() && self.shared.pulse.is_watched()).then_some(pulse::EVERY);
        sleep.into_iter().chain(limit).min()
    }

    fn set_policy(&mut self, policy: Policy, users: Arc<BTreeSet<Box<str>>>) {
        self.shard.handle(self.now, ShardInput::Policy(policy));
        self.shard.handle(self.now, ShardInput::Revoke { users });
    }

    fn set_traces(&mut self, specs: Arc<[Arc<TraceSpec>]>) {
        if let Some(hub) = &mut self.hub {
            hub.node.handle(self.now, NodeInput::Traces(Arc::clone(&specs)));
        }
        self.shard.handle(self.now, ShardInput::Traces(specs));
    }

    /// Does what the shard wants. The node is only told: it makes one batch of all that it was told since it was asked last.
    fn settle(&mut self) {
        while let Some(output) = self.shard.poll_output() {
            self.shard_output(output);
        }
    }

    /// Does what both machines want until they want nothing more.
    fn settle_all(&mut self) {
        loop {
            if let Some(output) = self.shard.poll_output() {
                self.shard_output(output);
            } else if let Some(output) = self.hub.as_mut().and_then(|hub| hub.node.poll_output()) {
                self.node_output(output);
            } else {
                return;
            }
        }
    }

    /// The changes of the turn are copied together; see [`Shard::end_turn`].
    fn end_turn(&mut self) {
        self.shard.end_turn(self.now);
        self.settle_all();
    }

    fn shard_output(&mut self, output: ShardOutput) {
        match output {
            ShardOutput::Transmit(conn) => self.transmit(conn),
            ShardOutput::Close(conn) => self.clients.start_closing(conn, self.now.instant),
            ShardOutput::Hold(conn) => self.clients.hold(conn, true),
            ShardOutput::Release(conn) => self.clients.hold(conn, false),
            ShardOutput::Authenticate(credentials) => self.authenticate(*credentials),
            ShardOutput::Proceed { conn, data, exchange } => self.proceed(conn, &exchange, &data),
            ShardOutput::ToNode(mail) => match &mut self.hub {
                Some(hub) => hub.node.handle(self.now, NodeInput::Mail { from: self.id, mail }),
                None => self.office.put(ShardId(0), Letter::Node(self.id, mail)),
            },
            ShardOutput::ToShard(to, mail) if to == self.id => self.shard.handle(self.now, ShardInput::Mail(mail)),
            ShardOutput::ToShard(to, mail) => self.office.put(to, Letter::Shard(mail)),
            ShardOutput::Event(event) => self.log_client(event),
            ShardOutput::Upstream(output) => self.upstream_output(output),
        }
    }

    fn node_output(&mut self, output: NodeOutput) {
        let Some(hub) = &mut self.hub else { return };
        match output {
            NodeOutput::ToShard(to, mail) if to == self.id => self.shard.handle(self.now, ShardInput::Mail(mail)),
            NodeOutput::ToShard(to, mail) => self.office.put(to, Letter::Shard(mail)),
            NodeOutput::Datagram { to, bytes } => hub.links.send_datagram(to, &bytes, &mut self.stats),
            NodeOutput::Refuse { to, cause } => hub.links.refuse(to, cause),
            NodeOutput::Dial { link, to } => hub.dial(self.poll.registry(), self.now, link, to),
            NodeOutput::LinkTransmit(link) => match &mut self.kept {
                Some(kept) => kept.touch_link(link),
                None => hub.links.mark_dirty(link),
            },
            NodeOutput::LinkClose(link) => hub.close(self.now.instant, link),
            NodeOutput::Kicked { request, by } => hub.kicked(request, by),
            NodeOutput::Asked { from, request, question } => {
                if question.first() == Some(&crate::awaits::MARK) {
                    crate::awaits::asked(&self.shared, from, request, question);
                } else {
                    crate::http::asked(&self.shared, from, request, &question);
                }
            }
            NodeOutput::Answered { request, answer, last } => hub.answered(request, answer, last),
            NodeOutput::SetTime { ahead } => self.set_time(ahead),
            NodeOutput::Drained => self.drained(),
            NodeOutput::Event(event) => self.log_node(&event),
        }
    }
}
