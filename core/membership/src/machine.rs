//! The machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::once;
use std::net::SocketAddr;

use bytes::Bytes;
use foca::{Foca, Header, Message, NoCustomBroadcast, OwnedNotification, State, Timer};
use sedge_base::{Duration, Instant, NodeId, Now, Rng};

use crate::confirm::{Confirm, Step};
use crate::dead::Dead;
use crate::member::{ANYONE, plain};
use crate::patience::Patience;
use crate::random::Random;
use crate::renewals::Renewals;
use crate::seeds::Seeds;
use crate::sink::Sink;
use crate::timers::Timers;
use crate::wire::{Datagram, WireCodec};
use crate::{Config, ConfigError, DownCause, Input, Member, Output};

/// Dead members called in one period; the choice is random.
const DEAD_CALLS: usize = 8;
/// Members told of a departure directly; the others hear it from them.
const FAREWELLS: usize = 64;

/// The membership of one node. Feed all datagrams that have arrived before calling
/// [`Membership::handle_timeout`]: lateness of answers is decided there.
pub struct Membership {
    foca: Foca<Member, WireCodec, Random, NoCustomBroadcast>,
    sink: Sink,
    timers: Timers,
    patience: Patience,
    /// When members were last heard over their links.
    heard: BTreeMap<NodeId, Instant>,
    /// When datagrams last showed that members live.
    signs: BTreeMap<NodeId, Instant>,
    /// Suspects that were given more time, with the number of the refuted suspicions before, and until when.
    reprieved: BTreeMap<NodeId, (Member, u16, Instant)>,
    suspicion: Duration,
    seeds: Seeds,
    confirm: Confirm,
    renewals: Renewals,
    rejoining: bool,
    members: BTreeMap<NodeId, Member>,
    dead: Dead,
    next_call: Option<Instant>,
    call_period: Duration,
    indirect_probes: usize,
    max_packet: usize,
    max_members: usize,
    rng: Rng,
    left: bool,
    rejected: u64,
    outputs: VecDeque<Output>,
}

impl Membership {
    /// The membership of `me`, who knows nobody yet. `rng` chooses whom to probe and to tell.
    pub fn new(config: &Config, me: Member, mut rng: Rng) -> Result<Self, ConfigError> {
        if me.node == ANYONE {
            return Err(ConfigError::NodeId);
        }
        let codec = WireCodec { me: me.node };
        let others = config.seeds.iter().copied().map(plain).filter(|seed| *seed != me.swim);
        let seeds = Seeds::new(others, config.seed_retry_min, config.seed_retry_max);
        let random = Random(rng.split(1));
        Ok(Self {
            foca: Foca::new(me, config.to_foca()?, random, codec),
            sink: Sink::default(),
            timers: Timers::default(),
            patience: Patience::default(),
            heard: BTreeMap::new(),
            signs: BTreeMap::new(),
            reprieved: BTreeMap::new(),
            suspicion: config.suspicion,
            seeds,
            confirm: Confirm::new(config.confirm_timeout, config.refused_timeout),
            renewals: Renewals::new(),
            rejoining: false,
            members: BTreeMap::new(),
            dead: Dead::new(config.autoclean, config.remember_dead, config.max_members),
            next_call: None,
            call_period: config.dead_announce_period,
            indirect_probes: usize::from(config.indirect_probes),
            max_packet: config.max_packet,
            max_members: config.max_members,
            rng,
            left: false,
            rejected: 0,
            outputs: VecDeque::new(),
        })
    }

    /// This node, as the others know it.
    pub fn me(&self) -> &Member {
        self.foca.identity()
    }

    /// The other members, by id.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.values()
    }

    /// The other member with this id.
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }

    /// Whether some member has failed a probe and is about to be declared dead unless it objects.
    pub fn has_suspects(&self) -> bool {
        self.foca.iter_membership_state().any(|known| known.state() == State::Suspect)
    }

    /// Members that died in the last [`Config::autoclean`], and when.
    pub fn dead(&self) -> impl Iterator<Item = (&Member, Instant)> {
        self.dead.listed()
    }

    /// How many members are not listed as dead any more because their time was over.
    pub const fn cleaned(&self) -> u64 {
        self.dead.cleaned()
    }

    /// Seeds behind which no member is known: a non-empty list for long is worth a warning.
    pub fn unreached_seeds(&self) -> impl Iterator<Item = SocketAddr> {
        self.seeds.unreached()
    }

    /// Datagrams dropped because they were malformed, too long or would have exceeded [`Config::max_members`].
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Feeds one event.
    pub fn handle(&mut self, now: Now, input: Input) {
        if self.left {
            return;
        }
        let now = now.instant;
        match input {
            Input::Datagram { from, bytes } => self.on_datagram(now, plain(from), &bytes),
            Input::Seeds(seeds) => self.on_seeds(now, seeds),
            Input::Suspect { node } => self.on_suspect(now, node, false),
            Input::Refused { node } => self.on_suspect(now, node, true),
            Input::Probe { node } => self.on_probe(node),
            Input::Call { to } => self.announce(now, plain(to)),
            Input::Leave => self.on_leave(),
        }
    }

    /// Runs what is due; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.left {
            return;
        }
        let now = now.instant;
        if let Some(due) = self.timers.next() {
            self.patience.note(now, due);
        }
        while let Some(addr) = self.seeds.pop_due(now) {
            self.announce(now, addr);
        }
        self.run_confirmations(now);
        while let Some(timer) = self.timers.pop_due(now) {
            if self.is_refuted(&timer) {
                continue;
            }
            if let Some(longer) = self.reprieve(now, &timer) {
                self.timers.add(now, longer, timer);
                continue;
            }
            // Fails when the owner was too late for a probe's stages; the next probe starts afresh.
            let _late = self.foca.handle_timer(timer, &mut self.sink);
            self.drain(now);
        }
        self.dead.handle_timeout(now);
        if self.next_call.is_some_and(|at| at <= now) {
            self.call_the_dead(now);
        }
    }

    /// Whether this is the end of a suspicion against which the member has objected: `foca` would not declare it dead, but tell it that
    /// it was, and it would renew its identity for nothing, and after a few times be silent for a while.
    fn is_refuted(&self, timer: &Timer<Member>) -> bool {
        let Timer::ChangeSuspectToDown { member_id, incarnation, .. } = timer else { return false };
        let known = self.foca.iter_membership_state().find(|member| member.id() == member_id);
        known.is_none_or(|member| (member.incarnation(), member.state()) != (*incarnation, State::Suspect))
    }

    /// How much more time a suspect gets: as long as its link shows that it lives, and once if this node itself is late.
    fn reprieve(&mut self, now: Instant, timer: &Timer<Member>) -> Option<Duration> {
        let Timer::ChangeSuspectToDown { member_id, incarnation, .. } = timer else { return None };
        if self.heard.get(&member_id.node).is_some_and(|heard| now.since(*heard) < self.suspicion) {
            self.tell_suspect(member_id, *incarnation);
            return Some(self.suspicion);
        }
        // A suspect that fails further probes has a timer for each.
        if let Some((member, number, until)) = self.reprieved.get(&member_id.node)
            && (member, number) == (member_id, incarnation)
        {
            return (now < *until).then(|| until.since(now));
        }
        let extra = self.patience.extra(now);
        if extra.is_zero() {
            return None;
        }
        self.reprieved.insert(member_id.node, (member_id.clone(), *incarnation, now + extra));
        Some(extra)
    }

    /// Gossip tells of a suspicion a few times only. A suspect that has missed them all does not object, however long it answers probes.
    fn tell_suspect(&mut self, suspect: &Member, incarnation: u16) {
        let news = foca::Member::new(suspect.clone(), incarnation, State::Suspect);
        self.send(suspect, Message::Gossip, vec![news]);
    }

    /// Something has come from this member over its link, at that time: it lives. Call it before [`Membership::handle_timeout`].
    pub fn heard(&mut self, node: NodeId, at: Instant) {
        if self.members.contains_key(&node) {
            self.heard.insert(node, at);
            self.confirm.heard(node, at);
        }
    }

    /// When a datagram last showed that this member lives: one of its own, or one that tells of an answer to another.
    pub fn last_sign(&self, node: NodeId) -> Option<Instant> {
        self.signs.get(&node).copied()
    }

    /// The next thing that the owner has to do or know.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Membership::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.left {
            return None;
        }
        let machines = [self.seeds.next(), self.confirm.next(), self.timers.next(), self.dead.next()];
        machines.into_iter().chain([self.next_call]).flatten().min()
    }

    fn on_datagram(&mut self, now: Instant, from: SocketAddr, bytes: &Bytes) {
        let decoded = if bytes.len() > self.max_packet { None } else { Datagram::decode(bytes).ok() };
        let Some(mut datagram) = decoded.filter(|datagram| self.has_room_for(datagram)) else {
            self.rejected += 1;
            return;
        };
        let disbelieved = self.disbelieve(now, &mut datagram);
        let bytes = disbelieved.as_ref().unwrap_or(bytes);
        if let Some(at) = self.namesake(&datagram) {
            self.outputs.push_back(Output::SameId { at });
            return;
        }
        let src = &datagram.header.src;
        self.tell_of_namesake(src);
        if src.node == self.me().node {
            // The way to a seed that is this node under another name.
            if src == self.foca.identity() {
                self.seeds.answered(from, src.node);
            }
            return;
        }
        if self.declares_me_dead(&datagram) && !self.renewals.allows(now) {
            return;
        }
        if self.foca.handle_data(bytes, &mut self.sink).is_err() {
            self.rejected += 1;
        }
        self.drain(now);
        self.note_life_signs(now, &datagram.header);
        if self.members.contains_key(&src.node) && datagram.header.message != Message::TurnUndead {
            self.seeds.answered(from, src.node);
            self.seeds.answered(src.swim, src.node);
        }
    }

    /// Address of another process with the id of this node. News of an earlier life of this node, at the address it had then, is no sign
    /// of another process.
    fn namesake(&self, datagram: &Datagram) -> Option<SocketAddr> {
        let me = self.foca.identity();
        let is_other = |other: &Member| {
            other.node == me.node && other.incarnation != me.incarnation && other.swim != me.swim && !other.departed
        };
        let src = &datagram.header.src;
        if is_other(src) {
            return Some(src.swim);
        }
        let lives = datagram.updates.iter().filter(|update| update.state() != State::Down).map(foca::Member::id);
        lives.filter(|other| is_other(other) && other.incarnation > me.incarnation).map(|other| other.swim).next()
    }

    /// Tells a process whose id another one at another address has by now, which started later.
    fn tell_of_namesake(&mut self, src: &Member) {
        let is_later = |known: &&Member| known.swim != src.swim && known.incarnation > src.incarnation;
        let Some(known) = self.members.get(&src.node).filter(is_later).cloned() else { return };
        self.send(src, Message::Gossip, vec![foca::Member::new(known, 0, State::Alive)]);
    }

    /// Strangers must not fill the memory with invented members.
    fn has_room_for(&self, datagram: &Datagram) -> bool {
        let known = self.foca.iter_membership_state();
        if known.len() + datagram.updates.len() < self.max_members {
            return true;
        }
        let mut nodes: BTreeSet<NodeId> = known.map(|member| member.id().node).collect();
        nodes.insert(datagram.header.src.node);
        nodes.extend(datagram.updates.iter().map(|update| update.id().node));
        nodes.remove(&self.me().node);
        nodes.len() <= self.max_members
    }

    /// Takes out the news of deaths of members that are heard over their links: a node that was cut off takes the others for dead, and
    /// says so when it is back. Should it be true, their links will end.
    fn disbelieve(&self, now: Instant, datagram: &mut Datagram) -> Option<Bytes> {
        let all = datagram.updates.len();
        datagram.updates.retain(|update| {
            let (member, is_down) = (update.id(), update.state() == State::Down && !update.id().departed);
            let is_heard = self.heard.get(&member.node).is_some_and(|heard| now.since(*heard) < self.suspicion);
            !(is_down && is_heard && self.members.get(&member.node) == Some(member) && !self.confirm.is_open(member))
        });
        if datagram.updates.len() == all {
            return None;
        }
        let mut bytes = Vec::new();
        datagram.encode(&mut bytes).ok().map(|()| bytes.into())
    }

    fn declares_me_dead(&self, datagram: &Datagram) -> bool {
        let me = self.foca.identity();
        datagram.header.message == Message::TurnUndead && datagram.header.dst == *me
            || datagram.updates.iter().any(|update| update.state() == State::Down && update.id() == me)
    }

    fn note_life_signs(&mut self, now: Instant, header: &Header<Member>) {
        let lives = if let Message::ForwardedAck { origin, .. } = &header.message { origin } else { &header.src };
        if self.members.get(&lives.node) == Some(lives) {
            self.signs.insert(lives.node, now);
        }
        match &header.message {
            Message::Ack(probe) => self.confirm.life_sign(&header.src, Some(*probe)),
            Message::ForwardedAck { origin, probe_number } => self.confirm.life_sign(origin, Some(*probe_number)),
            // It answers all that it gets from us with this.
            Message::TurnUndead => self.confirm.life_sign(&header.src, None),
            Message::Ping(_)
            | Message::PingReq { .. }
            | Message::IndirectPing { .. }
            | Message::IndirectAck { .. }
            | Message::Announce
            | Message::Feed
            | Message::Gossip
            | Message::Broadcast => {}
        }
    }

    fn on_seeds(&mut self, now: Instant, seeds: Vec<SocketAddr>) {
        let me = self.me().swim;
        let known = &self.members;
        let member_at = |addr| known.values().find(|member| member.swim == addr).map(|member| member.node);
        self.seeds.replace(now, seeds.into_iter().map(plain).filter(|seed| *seed != me), member_at);
    }

    fn on_suspect(&mut self, now: Instant, node: NodeId, is_refused: bool) {
        let Some(member) = self.members.get(&node) else { return };
        let [.., probe] = self.rng.next_u64().to_be_bytes();
        self.confirm.open(now, member.clone(), probe);
        if is_refused {
            self.confirm.hasten(now, node);
        }
        self.run_confirmations(now);
    }

    fn on_probe(&mut self, node: NodeId) {
        let Some(member) = self.members.get(&node).cloned() else { return };
        let [.., probe] = self.rng.next_u64().to_be_bytes();
        self.probe(&member, probe);
    }

    fn run_confirmations(&mut self, now: Instant) {
        while let Some(step) = self.confirm.pop_due(now) {
            match step {
                Step::Probe(member, probe) => self.probe(&member, probe),
                Step::Dead(member) => self.declare_dead(now, member),
            }
        }
    }

    /// The same messages as those of `foca`'s own probes. Its answers to a number that it did not draw do nothing there.
    fn probe(&mut self, member: &Member, probe: u8) {
        let mut helpers: Vec<Member> =
            self.members.values().filter(|other| other.node != member.node).cloned().collect();
        self.rng.shuffle(&mut helpers);
        helpers.truncate(self.indirect_probes);
        self.send(member, Message::Ping(probe), Vec::new());
        for helper in &helpers {
            let request = Message::PingReq { target: member.clone(), probe_number: probe };
            self.send(helper, request, Vec::new());
        }
    }

    fn send(&mut self, to: &Member, message: Message<Member>, updates: Vec<foca::Member<Member>>) {
        // The number of refuted suspicions is foca's secret; 0 changes nothing at the receiver.
        let header = Header { src: self.me().clone(), src_incarnation: 0, dst: to.clone(), message };
        let mut bytes = Vec::new();
        if (Datagram { header, updates }).encode(&mut bytes).is_ok() {
            self.outputs.push_back(Output::Datagram { to: to.swim, bytes: bytes.into() });
        }
    }

    fn declare_dead(&mut self, now: Instant, member: Member) {
        let verdict = foca::Member::new(member, 0, State::Down);
        let _encodes = self.foca.apply_many(once(verdict), true, &mut self.sink);
        let _encodes = self.foca.gossip(&mut self.sink);
        self.drain(now);
    }

    fn announce(&mut self, now: Instant, to: SocketAddr) {
        let _encodes = self.foca.announce(Member::unknown_at(to), &mut self.sink);
        self.drain(now);
    }

    /// A node that was declared dead calls the living too, until one of them lets it in under its new identity.
    fn call_the_dead(&mut self, now: Instant) {
        let known = self
            .foca
            .iter_membership_state()
            .filter(|member| self.rejoining || member.state() == State::Down)
            .map(foca::Member::id)
            .filter(|member| !member.departed)
            .map(|member| member.swim);
        let addrs: BTreeSet<SocketAddr> = known.chain(self.dead.addresses()).collect();
        let mut addrs: Vec<SocketAddr> = addrs.into_iter().collect();
        self.next_call = if addrs.is_empty() { None } else { Some(now + self.call_period) };
        self.rng.shuffle(&mut addrs);
        for addr in addrs.into_iter().take(DEAD_CALLS) {
            self.announce(now, addr);
        }
    }

    fn on_leave(&mut self) {
        let departed = Member { departed: true, ..self.me().clone() };
        let mut others: Vec<Member> = self.members.values().cloned().collect();
        self.rng.shuffle(&mut others);
        for dst in others.into_iter().take(FAREWELLS) {
            let to = dst.swim;
            let header = Header { src: departed.clone(), src_incarnation: 0, dst, message: Message::Gossip };
            let mut bytes = Vec::new();
            let updates = vec![foca::Member::down(departed.clone())];
            if (Datagram { header, updates }).encode(&mut bytes).is_ok() {
                self.outputs.push_back(Output::Datagram { to, bytes: bytes.into() });
            }
        }
        self.left = true;
    }

    /// Takes over what `foca` said during the last call.
    fn drain(&mut self, now: Instant) {
        while let Some((to, bytes)) = self.sink.sent.pop_front() {
            self.outputs.push_back(Output::Datagram { to: to.swim, bytes });
        }
        while let Some((after, timer)) = self.sink.timers.pop_front() {
            self.timers.add(now, after, timer);
        }
        while let Some(notification) = self.sink.told.pop_front() {
            match notification {
                OwnedNotification::MemberUp(member) => {
                    self.on_return(now, member.node);
                    self.on_up(member);
                }
                OwnedNotification::MemberDown(member) => self.on_down(now, member.node, DownCause::Dead),
                OwnedNotification::Rename(_, member) => self.on_rename(now, member),
                OwnedNotification::Rejoin(me) => self.on_rejoin(now, me),
                OwnedNotification::Active => self.rejoining = false,
                OwnedNotification::Idle | OwnedNotification::Defunct => {}
            }
        }
    }

    /// Where one is that was lost, others are likely to be.
    fn on_return(&mut self, now: Instant, node: NodeId) {
        if self.dead.has(node) {
            self.next_call = Some(now);
        }
    }

    fn on_up(&mut self, member: Member) {
        self.dead.returned(member.node);
        if !member.departed {
            self.members.insert(member.node, member.clone());
            self.outputs.push_back(Output::Up(member));
        }
    }

    fn on_down(&mut self, now: Instant, node: NodeId, cause: DownCause) {
        let Some(member) = self.members.remove(&node) else { return };
        self.confirm.close(node);
        self.heard.remove(&node);
        self.signs.remove(&node);
        self.reprieved.remove(&node);
        self.seeds.lost(now, node);
        if cause == DownCause::Dead {
            self.dead.died(now, member.clone());
            self.next_call.get_or_insert(now + self.call_period);
        }
        self.outputs.push_back(Output::Down { member, cause });
    }

    fn on_rename(&mut self, now: Instant, member: Member) {
        if member.departed {
            self.dead.returned(member.node);
        }
        let Some(known) = self.members.get_mut(&member.node) else { return };
        if member.departed {
            self.on_down(now, member.node, DownCause::Left);
        } else if known.incarnation != member.incarnation {
            self.on_down(now, member.node, DownCause::Restarted);
            self.on_up(member);
        } else {
            let moved = (known.swim, known.link) != (member.swim, member.link);
            *known = member.clone();
            if moved {
                self.outputs.push_back(Output::Moved(member));
            }
        }
    }

    fn on_rejoin(&mut self, now: Instant, me: Member) {
        if self.renewals.renewed(now) {
            self.outputs.push_back(Output::Outranked);
        }
        self.rejoining = true;
        self.next_call = Some(now);
        self.outputs.push_back(Output::Rejoined(me));
    }
}
