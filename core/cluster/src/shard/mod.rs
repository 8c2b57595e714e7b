//! One shard: a broker machine and a copy of the node's forward table.

mod exact;
mod gate;
mod groups;
mod handover;
mod hold;
mod inherit;
mod journal;
mod table;
mod upstream;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use sedge_base::{ClientId, ConnId, Incarnation, Instant, Now, Outbox, Rng, Seed, ShardId};
use sedge_broker::{
    BounceReason, Broker, BrokerConfig, Census, Deliver, Elsewhere, Explanation, Input, InterestChange, Output, Place,
    Question, Ticket,
};
use sedge_mqtt::{Message, QoS, ReasonCode, TopicFilter};
use smallvec::SmallVec;

pub(crate) use self::exact::Choice;
pub use self::exact::Exact;
use self::exact::Exacts;
use self::gate::Gate;
use self::groups::Bounces;
use self::handover::Handovers;
use self::hold::Hold;
use self::inherit::Inheritance;
use self::journal::ShardJournal;
use self::table::{ForwardTable, Matched};
use self::upstream::Upstream;
use crate::mail::{
    Adopt, Again, Claimed, Handed, Interest, Leave, Location, Missed, Publish, Relinquish, SessionStep, TableChange,
    ToNode, ToShard,
};
use crate::{ShardInput, ShardOutput};

/// Settings of a [`Shard`].
#[derive(Clone, Debug, Default)]
pub struct ShardConfig {
    /// Settings of its broker.
    pub broker: BrokerConfig,
    /// Settings of its sidecar, where a foreign broker stands behind the node.
    pub upstream: Option<sedge_sidecar::SidecarConfig>,
}

/// The counters of a shard beside its broker's [`sedge_broker::Counters`]; ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounters {
    /// Publications handed to other shards.
    pub to_shards: u64,
    /// Publications handed to the node, for other nodes or the retained store.
    pub to_node: u64,
    /// Messages for shared subscriptions that found no member anywhere.
    pub groups_dropped: u64,
    /// Messages for sessions on their way to another node that were more than a session may hold.
    pub handover_dropped: u64,
}

/// The sessions and publications that wait in a shard beside the queues of its broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardBacklog {
    /// Sessions that are wanted elsewhere and wait until publications of their clients, which the journal held, have gone out.
    pub held_up: usize,
    /// QoS 2 publications of clients that this node's backups do not have yet; at most as many as clients may send without an answer.
    pub reads: usize,
}

/// The machine of one shard: feed it [`ShardInput`]s, then take [`ShardOutput`]s until there are none.
#[derive(Debug)]
pub struct Shard {
    broker: Broker,
    place: Place,
    table: ForwardTable,
    bounces: Bounces,
    exacts: Exacts,
    handovers: Handovers,
    outputs: VecDeque<ShardOutput>,
    matched: Matched,
    counters: ShardCounters,
    /// Writes changes down: for the driver's journal, for copies at other nodes, or for both.
    journal: Option<Box<ShardJournal>>,
    writes_journal: bool,
    /// Records that the journal has still to write, while there are copies.
    sealed: BytesMut,
    /// Set while there are copies: the outputs that wait for them.
    hold: Option<Box<Hold>>,
    /// Number of the last batch for copies, while there are none.
    last_batch: u64,
    inheritance: Inheritance,
    /// The broker says what its journal held.
    is_restoring: bool,
    /// The node does not know the cluster again yet.
    is_recovering: bool,
    /// Publications that wait for that.
    held_back: Vec<Output>,
    /// Sessions that other nodes want, since when, and that leave after their clients' publications among these.
    held_up: VecDeque<(Instant, Relinquish)>,
    /// Clients whose wills the journal held and that wait for that.
    wills: Vec<ClientId>,
    /// The latest life of this node whose sessions another node has taken over.
    taken_over: Option<Incarnation>,
    /// The life of this node whose sessions the journal held, if another node has taken them over.
    former: Option<Incarnation>,
    gate: Gate,
    /// The broker behind this node, if there is one.
    upstream: Option<Box<Upstream>>,
}

impl Shard {
    /// A shard without connections, at this place.
    pub fn new(config: ShardConfig, place: Place, mut rng: Rng) -> Self {
        let table = ForwardTable::new(place.shard, Seed::from_rng(&mut rng), rng.split(1));
        let handovers = Handovers::new(Seed::from_rng(&mut rng));
        let mut broker = config.broker;
        broker.delivers_elsewhere = config.upstream.is_some();
        let upstream = config.upstream.map(|upstream| Box::new(Upstream::new(upstream, rng.split(2))));
        Self {
            broker: Broker::new(broker, place, rng),
            place,
            table,
            bounces: Bounces::default(),
            exacts: Exacts::default(),
            handovers,
            outputs: VecDeque::new(),
            matched: Matched::default(),
            counters: ShardCounters::default(),
            journal: None,
            writes_journal: false,
            sealed: BytesMut::new(),
            hold: None,
            last_batch: 0,
            inheritance: Inheritance::default(),
            is_restoring: false,
            is_recovering: false,
            held_back: Vec::new(),
            held_up: VecDeque::new(),
            wills: Vec::new(),
            taken_over: None,
            former: None,
            gate: Gate::default(),
            upstream,
        }
    }

    /// Takes an event in.
    pub fn handle(&mut self, now: Now, input: ShardInput) {
        match input {
            ShardInput::Opened { conn, peer, user, rate, inside } => {
                self.broker.handle(now, Input::Opened { conn, peer, user, rate, inside });
            }
            ShardInput::Authenticated { conn, answer } => {
                self.broker.handle(now, Input::Authenticated { conn, answer });
            }
            ShardInput::Challenge { conn, data, exchange } => {
                self.broker.handle(now, Input::Challenge { conn, data, exchange });
            }
            ShardInput::Revoke { users } => self.broker.handle(now, Input::Revoke { users }),
            ShardInput::Traces(specs) => self.broker.set_traces(&specs),
            ShardInput::WatchTopics => self.broker.watch_topics(now.instant),
            ShardInput::WatchTopicTree => self.broker.watch_topic_tree(now.instant),
            ShardInput::Policy(policy) => self.broker.handle(now, Input::Policy(policy)),
            ShardInput::Inside { queues, awaits } => self.broker.handle(now, Input::Inside { queues, awaits }),
            ShardInput::Arrived { session, ids } => self.broker.handle(now, Input::Arrived { session, ids }),
            ShardInput::Received { conn, bytes } => self.broker.handle(now, Input::Received { conn, bytes }),
            ShardInput::Written { conn, bytes } => self.broker.handle(now, Input::Written { conn, bytes }),
            ShardInput::Closed { conn } => {
                self.forget_certificate(conn);
                self.broker.handle(now, Input::Closed { conn });
            }
            ShardInput::Mail(mail) => self.mail(now, mail),
            ShardInput::Report(reports) => {
                for report in reports {
                    self.broker.handle(now, Input::Report(report));
                }
            }
            ShardInput::Upstream(input) => self.upstream_input(now, input),
            ShardInput::StoodStill => self.stand_still(true),
            ShardInput::Shutdown { elsewhere } => self.broker.handle(now, Input::Shutdown { elsewhere }),
        }
        self.drain_broker(now);
    }

    /// Does what is due; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now) {
        if !self.is_recovering && !self.stands_still() {
            self.broker.handle_timeout(now);
        }
        self.let_held_up_leave(now);
        if let Some(upstream) = &mut self.upstream {
            upstream.sidecar.handle_timeout(now);
            self.let_leave(now);
        }
        self.drain_broker(now);
    }

    /// The next thing to do, `None` if there is nothing for now.
    pub fn poll_output(&mut self) -> Option<ShardOutput> {
        self.outputs.pop_front()
    }

    /// When [`Shard::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let broker = self.broker.poll_timeout().filter(|_| !self.is_recovering && !self.stands_still());
        let upstream = self.upstream.as_ref().and_then(|upstream| upstream.sidecar.poll_timeout());
        broker.into_iter().chain(upstream).chain(self.leaves_at()).chain(self.held_up_until()).min()
    }

    /// The bytes that a connection has to write; `None` if the connection is forgotten. The driver says how much of it was written with
    /// [`ShardInput::Written`] and does not advance it itself.
    pub fn outbox(&mut self, conn: ConnId) -> Option<&mut Outbox> {
        self.broker.outbox(conn)
    }

    /// The broker, for listings and counters.
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Whether `client` would get a publication now, and what decides; `None`: it has no session here.
    pub fn explain(&self, client: &ClientId, question: &Question) -> Option<Explanation> {
        self.broker.explain(client, question, |group| {
            let (online, offline) = self.table.members_elsewhere(group, self.place.shard);
            Elsewhere { online, offline }
        })
    }

    /// The shard's own counters.
    pub const fn counters(&self) -> ShardCounters {
        ShardCounters { handover_dropped: self.handovers.dropped(), ..self.counters }
    }

    /// The sessions and publications that wait here beside the queues of the broker.
    pub fn backlog(&self) -> ShardBacklog {
        let reads = self.hold.as_ref().map_or(0, |hold| hold.reads_open());
        ShardBacklog { held_up: self.held_up.len(), reads }
    }

    fn mail(&mut self, now: Now, mail: ToShard) {
        match mail {
            ToShard::Plain(message) => {
                self.deliver(now, Deliver { message, plain: true, groups: SmallVec::new() });
            }
            ToShard::Missed(missed) => self.deliver_missed(now, *missed),
            ToShard::Share(deliver) => self.deliver(now, *deliver),
            ToShard::Exact(exact) => self.deliver_exact(now, *exact),
            ToShard::Kept(number) => {
                if let Some((ticket, reason)) = self.exacts.kept(number) {
                    self.broker.handle(now, Input::Accepted { ticket, reason });
                }
            }
            ToShard::Again(again) => {
                let Again { message, group, not, tried } = *again;
                self.choose_again(now, (message, group), not, tried);
            }
            ToShard::Table(changes) => self.change_table(&changes),
            ToShard::Barrier(number) => {
                self.tell_node(ToNode::BarrierReached { number, made: self.broker.last_made() });
            }
            ToShard::Settled(settled) => {
                let settled = *settled;
                self.broker.handle(now, Input::Settled { ticket: settled.ticket, retained: settled.retained });
            }
            ToShard::Accepted(tickets) => {
                for (ticket, reason) in tickets {
                    self.judged(now, ticket, reason);
                }
            }
            ToShard::Kick { client, reason, end_session } => {
                self.broker.handle(now, Input::Kick { client, reason, end_session });
            }
            ToShard::ClosedTopics(filters) => self.broker.handle(now, Input::ClosedTopics(filters)),
            ToShard::Census(census) => self.broker.handle(now, Input::Census(census)),
            ToShard::Retained(retained) => self.enter_retained(now, &retained),
            ToShard::Drain(elsewhere) => self.broker.handle(now, Input::Drain(elsewhere)),
            ToShard::Leave(leave) => {
                let Leave { client, if_away, to } = *leave;
                self.broker.handle(now, Input::Leave { client, if_away, to });
            }
            ToShard::Recovered => self.recovered(now),
            ToShard::Open => self.open(now),
            ToShard::StandStill => self.stand_still(false),
            ToShard::TakenForDead { had_copies } => self.taken_for_dead(now, had_copies),
            ToShard::Sent(batch) => self.unread(now, batch),
            ToShard::TakenOver(life) => self.taken_over(now, life),
            ToShard::PassOn(shard, mail) => self.post(ShardOutput::ToShard(shard, *mail), false),
            ToShard::Session(step) => self.session_step(now, *step),
            ToShard::Copy(attempt) => self.copy(attempt),
            ToShard::CopyMore => self.copy_more(),
            ToShard::Copied(batch) => self.copied(now, batch),
            ToShard::CopyNothing => self.copy_nothing(now),
            ToShard::Mark(mark) => self.mark(mark),
            ToShard::Marked { by, mark } => self.marked(now, by, mark),
        }
        for (message, group) in self.handovers.take_freed() {
            self.choose_again(now, (message, group), None, 0);
        }
    }

    /// A session is wanted elsewhere. A second word on the same session finds that it has left.
    fn gives_up(&mut self, now: Now, relinquish: Relinquish) {
        if let Some(relinquish) = self.stays(now, relinquish) {
            self.relinquish(now, relinquish);
            self.drain_broker(now);
        }
    }

    fn relinquish(&mut self, now: Now, Relinquish { client, epoch, clean_start }: Relinquish) {
        if !clean_start {
            self.flush_upstream(now, &client);
            self.handovers.begin(&client);
        }
        self.broker.handle(now, Input::Relinquish { client, epoch, clean_start });
    }

    /// A session comes or goes.
    fn session_step(&mut self, now: Now, step: SessionStep) {
        if let SessionStep::Had { client, id } = &step {
            // Applies also to a message caught already for a session that is coming, and not only to messages that come afterwards.
            self.handovers.has_had(client, *id);
        }
        let step = match step.client().cloned() {
            Some(client) => {
                let Some(step) = self.inheritance.defer(&client, step) else { return };
                step
            }
            None => step,
        };
        match step {
            SessionStep::Claimed(claimed) => self.claimed(now, claimed),
            SessionStep::Relinquish(relinquish) => {
                if let Some(relinquish) = self.hold_up(now, relinquish) {
                    self.gives_up(now, relinquish);
                }
            }
            SessionStep::Expect(Adopt { client, epoch, filters }) => self.handovers.expect(&client, epoch, filters),
            SessionStep::Adopt(Adopt { client, epoch, filters }) => {
                let left = self.handovers.adopt(&client, epoch, filters);
                self.withdraw(&client, left);
                let made = Some(self.broker.last_made());
                self.tell_node(ToNode::Adopted { handed: Box::new(Handed { client, epoch }), made });
            }
            SessionStep::Left(Handed { client, epoch }) => {
                self.broker.session_left(&client, epoch);
                let left = self.handovers.leave(&client, epoch);
                self.withdraw(&client, left);
            }
            SessionStep::TakeBack(handed, epoch) => self.take_back(now, handed, epoch),
            SessionStep::Discard(client) => self.discard(now, &client),
            SessionStep::Flush(handed) => {
                if self.handovers.flush(&handed.client, handed.epoch, self.place.shards) {
                    self.tell_node(ToNode::Adopted { handed: Box::new(handed), made: None });
                }
            }
            SessionStep::Look(handed) => {
                let messages = self.handovers.look(&handed.client, handed.epoch);
                if !messages.is_empty() {
                    self.tell_node(ToNode::Ahead(Box::new((handed, messages))));
                }
            }
            SessionStep::Collect(handed) => {
                if let Some(messages) = self.handovers.collect(&handed.client, handed.epoch, self.place.shards) {
                    self.tell_node(ToNode::Leftovers(Box::new((handed, messages))));
                }
            }
            SessionStep::Inherit(inherit) => self.inherit(inherit),
            SessionStep::Arriving(arriving) => self.arriving(arriving),
            SessionStep::Arrive(life) => self.arrive(now, life),
            SessionStep::Merge(merge) => self.merge(now, merge),
            SessionStep::Known(known) => self.inheritance.remember(known),
            SessionStep::Resubscribe { client, from, next, subscriptions } => {
                let changes = self.resubscribe(now, &client, (from, next), subscriptions);
                self.tell_node(ToNode::Resubscribed { client, from, changes });
            }
            SessionStep::Had { client, id } => self.broker.has_had(&client, id),
            SessionStep::Hold { client, afresh } => {
                if let Some(from) = afresh {
                    self.inheritance.forget_others(&client, from);
                }
                self.broker.hold(&client);
            }
            SessionStep::HoldAll => self.broker.hold_all(),
            SessionStep::LetGo(client) => self.broker.let_go(now, &client),
            SessionStep::LetGoAll { but } => self.broker.let_go_all(now, |client| but.contains(client)),
        }
    }

    /// The client id belongs to this shard now.
    fn claimed(&mut self, now: Now, claimed: Claimed) {
        let Claimed { client, conn, epoch, mut session, leftovers, beside, given, had } = claimed;
        self.catch_leaving(&client);
        let left = self.handovers.arrive(&client, session.as_deref_mut(), leftovers);
        if session.is_some() {
            self.note_had_before(&client);
            self.comes_with(&client, had);
        }
        self.withdraw(&client, left);
        let own = beside.map_or_else(Vec::new, |had| self.only_here(&client, &had));
        let brought = self.brought_beside(&client, session.as_deref());
        self.broker.handle(now, Input::Claimed { client: client.clone(), conn, epoch, session });
        for id in brought {
            self.broker.has_had(&client, id);
        }
        if !own.is_empty() {
            self.broker.merge(now, &client, &own, &BTreeSet::new());
        }
        if let Some((from, epoch)) = given {
            self.has_installed(from, Handed { client, epoch });
        }
    }

    /// A session that was given away goes on here, unless it has come back since.
    fn take_back(&mut self, now: Now, handed: Handed, epoch: u64) {
        let Handed { client, epoch: given } = handed;
        let Some(mut session) = self.broker.take_back(&client, given).map(Box::new) else { return };
        self.handovers.keep_shares(&client);
        self.catch_leaving(&client);
        let left = self.handovers.arrive(&client, Some(&mut session), Vec::new());
        self.withdraw(&client, left);
        self.broker.handle(now, Input::Claimed { client, conn: None, epoch, session: Some(session) });
    }

    fn withdraw(&mut self, client: &ClientId, changes: Vec<InterestChange>) {
        if !changes.is_empty() {
            let (client, ticket) = (client.clone(), None);
            self.tell_node(ToNode::Interest(Box::new(Interest { client, changes, ticket })));
        }
    }

    fn deliver(&mut self, now: Now, deliver: Deliver) {
        if deliver.plain && self.has_seen(&deliver.message) {
            return;
        }
        let was_heard = self.was_heard(&deliver.message);
        if deliver.plain {
            self.handovers.catch(&deliver.message, was_heard, &mut self.broker);
        }
        if deliver.plain && deliver.groups.is_empty() && was_heard {
            return self.deliver_again(now, &deliver.message);
        }
        let deliver = self.enter_from_elsewhere(now, deliver);
        self.note_heard(&deliver.message);
        self.deliver_here(now, deliver);
    }

    fn deliver_missed(&mut self, now: Now, Missed { message, clients }: Missed) {
        if self.has_seen(&message) {
            return;
        }
        self.handovers.catch(&message, false, &mut self.broker);
        self.note_heard(&message);
        self.broker.deliver_to_some(now, &message, &clients);
    }

    /// Does what the broker, and the sidecar, ask for until they ask for nothing more.
    fn drain_broker(&mut self, now: Now) {
        loop {
            while let Some(output) = self.broker.poll_output() {
                if let Some(output) = self.divert(now, output) {
                    self.broker_output(now, output);
                }
            }
            let any = self.drain_sidecar(now);
            if !self.let_sessions_leave(now) && !any {
                return;
            }
        }
    }

    fn broker_output(&mut self, now: Now, output: Output) {
        match output {
            Output::Transmit { conn } => match &mut self.hold {
                Some(hold) => hold.touch(conn),
                None => self.outputs.push_back(ShardOutput::Transmit(conn)),
            },
            Output::Close { conn } => match &mut self.hold {
                Some(hold) => hold.close(conn),
                None => self.outputs.push_back(ShardOutput::Close(conn)),
            },
            Output::Hold { conn } => self.outputs.push_back(ShardOutput::Hold(conn)),
            Output::Release { conn } => self.outputs.push_back(ShardOutput::Release(conn)),
            // Only a broker that others deliver for says so, and those answer it.
            Output::Ping { conn, .. } => self.broker.pong(now, conn),
            Output::Authenticate(credentials) => self.outputs.push_back(ShardOutput::Authenticate(credentials)),
            Output::Proceed { conn, data, exchange } => {
                self.outputs.push_back(ShardOutput::Proceed { conn, data, exchange });
            }
            Output::Claim { client, conn, clean_start } => self.claim(client, conn, clean_start),
            Output::Relinquished { client, epoch, session } => self.relinquished(client, epoch, session),
            Output::Census(census) => self.tell_census(&census),
            Output::Leaves { client } => self.tell_node(ToNode::Leaves(client)),
            Output::Stays { client } => self.tell_node(ToNode::Stays(client)),
            Output::Ended { client, epoch } => {
                self.inheritance.has_left(&client);
                self.tell_node(ToNode::Ended { client, epoch });
            }
            Output::Interest { client, mut changes, ticket } => {
                self.handovers.withhold(&client, &mut changes);
                if !changes.is_empty() || ticket.is_some() {
                    self.tell_node(ToNode::Interest(Box::new(Interest { client, changes, ticket })));
                }
            }
            // Only what a journal held comes while the node recovers without a client having sent it just now.
            Output::Route { .. } | Output::Bounced { .. } if self.is_restoring => self.held_back.push(output),
            Output::Route { message, ticket, matched } => {
                self.handovers.catch(&message, false, &mut self.broker);
                self.route(now, &message, ticket, matched);
            }
            Output::Bounced { message, group, reason } => self.on_bounced(now, message, group, reason),
            Output::Event(event) => self.outputs.push_back(ShardOutput::Event(event)),
        }
    }

    /// Sends a publication of a client of this shard to everyone else who wants it.
    fn route(&mut self, now: Now, message: &Arc<Message>, ticket: Option<Ticket>, matched: bool) {
        if matched {
            self.note_heard(message);
        }
        let mut found = core::mem::take(&mut self.matched);
        self.table.matches(&message.topic, &mut found);
        let exact = self.note_exact(message, ticket, &mut found);
        let here = matched || found.reaches_this_node(self.place.shard);
        let remote = found.remote || message.retain || !found.nodes.is_empty();
        // Nobody else gets it before its publisher's QoS 2 state is safe.
        let waits = ticket.is_some() && message.qos == QoS::ExactlyOnce;
        if let (Some(hold), Some(ticket), true) = (&mut self.hold, ticket, waits) {
            hold.reads(ticket, message.id);
        }
        if remote {
            self.counters.to_node += 1;
            let groups = (!found.nodes.is_empty()).then(|| found.nodes.drain(..).collect());
            let (message, remote) = (Arc::clone(message), found.remote);
            let publish = ToNode::Publish(Publish { message, ticket, remote, matched: here, groups });
            self.post(ShardOutput::ToNode(publish), waits);
        } else if let Some(ticket) = ticket {
            let reason = if here { ReasonCode::Success } else { ReasonCode::NoMatchingSubscribers };
            self.judged(now, ticket, reason);
        }
        self.deliver_locally(now, message, exact, &mut found, waits);
        self.matched = found;
    }

    /// It is known what a publisher is to be told.
    fn judged(&mut self, now: Now, ticket: Ticket, reason: ReasonCode) {
        let judged = self.exacts.judged(ticket, reason);
        if let Some((ticket, reason)) = judged.and_then(|(ticket, reason)| self.await_deliveries(ticket, reason)) {
            self.broker.handle(now, Input::Accepted { ticket, reason });
        }
    }

    fn deliver_locally(
        &mut self,
        now: Now,
        message: &Arc<Message>,
        exact: Option<u64>,
        found: &mut Matched,
        waits: bool,
    ) {
        for (shard, share) in found.shards.drain(..) {
            let (message, plain, groups) = (Arc::clone(message), share.plain, share.groups);
            if shard == self.place.shard {
                self.broker.handle(now, Input::Deliver(Deliver { message, plain: false, groups }));
                continue;
            }
            self.counters.to_shards += 1;
            if let Some(hold) = &mut self.hold {
                hold.tells(shard, &message);
            }
            if let Some(number) = exact {
                let (deliver, from) = (Deliver { message, plain, groups }, self.place.shard);
                let mail = ToShard::Exact(Box::new(Exact { deliver, from, number }));
                self.post(ShardOutput::ToShard(shard, mail), waits);
                continue;
            }
            let mail = if groups.is_empty() {
                ToShard::Plain(message)
            } else {
                ToShard::Share(Box::new(Deliver { message, plain, groups }))
            };
            self.post(ShardOutput::ToShard(shard, mail), waits);
        }
    }

    /// A message for a shared subscription comes back from the broker of this shard.
    fn on_bounced(&mut self, now: Now, message: Arc<Message>, group: TopicFilter, reason: BounceReason) {
        let not = match reason {
            // It is known here before its session is.
            BounceReason::NoMember if self.handovers.awaits_member(&group) => {
                self.handovers.catch_share(&message, &group, &mut self.broker);
                return;
            }
            BounceReason::NoMember => Some(Location::Shard(self.place.shard)),
            BounceReason::SessionEnded => None,
        };
        self.choose_again(now, (message, group), not, 0);
    }

    /// Places that have a member now may be tried again for messages that came back from there.
    fn change_table(&mut self, changes: &[TableChange]) {
        self.table.apply(changes);
        for change in changes {
            if let TableChange::Group { at, group, online, offline } = change
                && (*online, *offline) != (0, 0)
            {
                self.bounces.has_member(group, *at);
            }
        }
    }

    /// Chooses another place for a message to a shared subscription; not the one that is known to have no member, and a few times
    /// only.
    fn choose_again(&mut self, now: Now, (message, group): handover::Share, not: Option<Location>, tried: u16) {
        let place = self.bounces.note(&message.id, &group, not).and_then(|tried| self.table.choose(&group, tried));
        let Some(place) = place else {
            if !self.handovers.catch_share(&message, &group, &mut self.broker) {
                self.pass_share_on((message, group), not, tried + 1);
            }
            return;
        };
        match place {
            Location::Node(node) => {
                let groups = Some(Box::from([(node, group)]));
                self.tell_node(ToNode::Publish(Publish {
                    message,
                    ticket: None,
                    remote: false,
                    matched: true,
                    groups,
                }));
            }
            Location::Shard(shard) => {
                let deliver = Deliver { message, plain: false, groups: SmallVec::from_iter([group]) };
                if shard == self.place.shard {
                    self.broker.handle(now, Input::Deliver(deliver));
                } else {
                    self.post(ShardOutput::ToShard(shard, ToShard::Share(Box::new(deliver))), false);
                }
            }
        }
    }

    /// Another shard may have a member of a shared subscription on the move, for which a message waits.
    fn pass_share_on(&mut self, (message, group): handover::Share, not: Option<Location>, tried: u16) {
        if tried >= self.place.shards {
            self.counters.groups_dropped += 1;
            return;
        }
        let next = ShardId((self.place.shard.0 + 1) % self.place.shards);
        let again = ToShard::Again(Box::new(Again { message, group, not, tried }));
        self.post(ShardOutput::ToShard(next, again), false);
    }

    fn tell_census(&mut self, census: &Census) {
        let me = self.place.shard;
        for shard in (0..self.place.shards).map(ShardId).filter(|shard| *shard != me) {
            self.post(ShardOutput::ToShard(shard, ToShard::Census(Box::new(census.clone()))), false);
        }
    }

    fn tell_node(&mut self, mail: ToNode) {
        self.post(ShardOutput::ToNode(mail), false);
    }

    /// Sends mail, behind what waits to be sent.
    fn post(&mut self, mail: ShardOutput, waits: bool) {
        match &mut self.hold {
            Some(hold) if waits || hold.keeps_mail() => hold.keep(mail),
            Some(_) | None => self.outputs.push_back(mail),
        }
    }
}
