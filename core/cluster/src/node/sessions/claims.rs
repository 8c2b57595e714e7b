//! Client ids that this node owns, wants to own, or gives away (MQ-11, MQ-09).

use core::ops::Bound;
use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{ClientId, ConnId, Deadlines, NodeId, ShardId};
use sedge_broker::SessionState;
use sedge_mqtt::{Message, TopicFilter};

use crate::lineage::{Given, Lineage};
use crate::link::ControlTopic;
use crate::mail::{self, HadElsewhere, Heard, Life, SessionStep, ToShard};
use crate::node::Node;
use crate::node::sessions::ahead::Ahead;
use crate::node::sessions::contents::messages_of;
use crate::node::sessions::early::Early;
use crate::node::sessions::epoch;
use crate::node::sessions::leaving::{Leaving, Recipient};
use crate::reception::shard_of;
use crate::wire::{DirectoryMail, ReplicaMail};

/// An epoch that no claim has. A node that forgets a client under it takes back a claim that was not granted.
pub(in crate::node) const NO_CLAIM: u64 = 0;

pub(in crate::node) type Session = Option<Box<SessionState>>;

/// The sessions that this node owns, wants to own and gives away.
#[derive(Debug, Default)]
pub(in crate::node) struct Claims {
    pub(in crate::node) owned: BTreeMap<ClientId, Owned>,
    pub(in crate::node) wanted: BTreeMap<ClientId, Wanted>,
    pub(in crate::node) deadlines: Deadlines<ClientId>,
    /// The node that gets the session that a shard was told to give up.
    pub(in crate::node) leaving: BTreeMap<(ClientId, u64), Leaving>,
    /// Sessions that have left their shard, under which epochs, and to which nodes they are about to be sent.
    pub(in crate::node) departing: BTreeMap<ClientId, (u64, Recipient)>,
    pub(in crate::node) early: Early,
    pub(in crate::node) ahead: Ahead,
    /// Clients that belong to nodes which are no members here: they get the session, under this epoch, when they are.
    pub(in crate::node) postponed: BTreeMap<ClientId, (u64, NodeId)>,
    /// Messages that other owners had for clients that are claimed right now.
    merges: BTreeMap<ClientId, Vec<mail::Merge>>,
}

/// Why a node does not answer claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Silence {
    /// It has forgotten what it was told.
    Forgotten,
    /// It is gone.
    Gone,
    /// It is gone, and this node was never linked to it: others know who takes over.
    Unmet,
}

#[derive(Clone, Debug)]
pub(in crate::node) struct Owned {
    /// Epoch that the home knows.
    pub(in crate::node) granted: u64,
    /// Epoch that the shard knows.
    pub(in crate::node) told: u64,
    /// Whether it was claimed at this node, in this life of it.
    pub(in crate::node) is_claimed: bool,
    /// A successor that had taken the session over, although this node lives.
    pub(in crate::node) successor: Option<NodeId>,
    /// From which node it was taken over.
    pub(in crate::node) inherited_from: Option<NodeId>,
    /// The former owners from which the session has come.
    pub(in crate::node) came: Lineage,
}

impl Owned {
    /// Whether a home's word under this epoch says which of two registered owners goes on, and grants no claim: a session that was taken over, or that
    /// the journal held, goes on at this node.
    fn wins_with(&self, epoch: u64) -> bool {
        !self.is_claimed && (epoch == self.granted || epoch == epoch::after_tie(self.granted))
    }
}

#[derive(Debug)]
pub(in crate::node) struct Wanted {
    pub(in crate::node) shard: ShardId,
    /// `None`: the client was given to this node; nobody waits for it.
    pub(in crate::node) conn: Option<ConnId>,
    pub(in crate::node) clean_start: bool,
    pub(in crate::node) phase: Phase,
    /// The highest epoch under which a home has granted it.
    granted: u64,
    /// The newest connection of the same client that came meanwhile, and whether it or one between starts clean: the shard has closed all
    /// others.
    pub(in crate::node) later: Option<(ConnId, bool)>,
    /// Another node claims it already; it gets the session once it is here.
    pub(in crate::node) next: Option<Next>,
    /// The publications that the coming session has had, if this node has a session of the client itself.
    pub(in crate::node) beside: Option<Box<HadElsewhere>>,
    /// The node that has given away the session that has come: that node keeps the session until it is safe here.
    pub(in crate::node) given: Option<Given>,
    /// Owners from which the session had come there.
    pub(in crate::node) before: Lineage,
    /// All of them, once all messages that the node caught for the session have come, too.
    pub(in crate::node) came: Lineage,
    /// The session that has come from an owner that is gone, should its successor not have it.
    pub(in crate::node) spare: Session,
    /// Whether an owner is gone whose session had come.
    pub(in crate::node) has_lost_former: bool,
}

impl Wanted {
    fn new(shard: ShardId, conn: Option<ConnId>, clean_start: bool, home: NodeId) -> Self {
        let (phase, later) = (Phase::Asked { home }, None);
        Self {
            shard,
            conn,
            clean_start,
            phase,
            granted: 0,
            later,
            next: None,
            beside: None,
            given: None,
            before: Lineage::default(),
            came: Lineage::default(),
            spare: None,
            has_lost_former: false,
        }
    }
}

#[derive(Debug)]
pub(in crate::node) enum Phase {
    /// The home was asked.
    Asked { home: NodeId },
    /// The former owner has to send the session, or the successor of a former owner `of` that is gone.
    Session { epoch: u64, from: NodeId, of: NodeId },
    /// The session is here; everybody has to learn of its interest.
    Adopting { epoch: u64, given: Given, session: Box<SessionState> },
    /// The former owner has to send what came for the session since.
    Leftovers { epoch: u64, given: Given, session: Box<SessionState> },
    /// They are here; messages sent to both owners have to be here, too, so that they are told from new ones.
    Flushing { epoch: u64, session: Box<SessionState>, leftovers: Vec<Arc<Message>> },
}

impl Phase {
    /// Of a session that is to be sent: under which epoch, by whom, and whose it was.
    pub(in crate::node) const fn waits_for(&self) -> Option<(u64, NodeId, NodeId)> {
        match self {
            Self::Session { epoch, from, of } => Some((*epoch, *from, *of)),
            Self::Asked { .. } | Self::Adopting { .. } | Self::Leftovers { .. } | Self::Flushing { .. } => None,
        }
    }

    /// Under which epoch the home has granted the claim, if it has.
    pub(in crate::node) const fn epoch(&self) -> Option<u64> {
        match self {
            Self::Asked { .. } => None,
            Self::Session { epoch, .. }
            | Self::Adopting { epoch, .. }
            | Self::Leftovers { epoch, .. }
            | Self::Flushing { epoch, .. } => Some(*epoch),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Next {
    pub(in crate::node) epoch: u64,
    pub(in crate::node) clean_start: bool,
    pub(in crate::node) to: Recipient,
}

impl Claims {
    /// Clients of this node and the epochs that their homes know.
    pub(in crate::node) fn owned(&self) -> impl Iterator<Item = (&ClientId, u64)> {
        self.owned.iter().map(|(client, owned)| (client, owned.granted))
    }

    /// Clients of this node, and those that homes have granted to it and whose sessions are on their way here, with the epochs of their homes.
    pub(in crate::node) fn granted(&self) -> impl Iterator<Item = (&ClientId, u64)> {
        let coming = self.wanted.iter().filter_map(|(client, wanted)| Some((client, wanted.phase.epoch()?)));
        self.owned().chain(coming)
    }

    /// Whether this node owns the client.
    pub(in crate::node) fn owns(&self, client: &ClientId) -> bool {
        self.owned.contains_key(client)
    }

    /// Whether this node does not own the client, or only a session that is older than this one: its shard goes on with the newer one.
    pub(in crate::node) fn is_outdated(&self, client: &ClientId, epoch: u64) -> bool {
        self.owned.get(client).is_none_or(|owned| !owned.is_claimed && owned.told < epoch)
    }

    /// Whether this node goes on with a session of its own that was succeeded under this epoch.
    pub(in crate::node) fn outlives(&self, client: &ClientId, epoch: u64) -> bool {
        self.owned.get(client).is_some_and(|owned| owned.is_claimed && epoch::outlives(owned.told, epoch))
    }

    /// Whether the client is to become this node's.
    pub(in crate::node) fn wants(&self, client: &ClientId) -> bool {
        self.wanted.contains_key(client)
    }

    /// Number of clients that are to become this node's.
    pub(in crate::node) fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// The first client of this node behind another one, with the epoch that its home knows.
    pub(in crate::node) fn owned_after(&self, client: Option<&ClientId>) -> Option<(&ClientId, u64)> {
        let from = client.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.owned.range::<ClientId, _>((from, Bound::Unbounded));
        behind.next().map(|(client, owned)| (client, owned.granted))
    }

    /// Under which epoch its home knows this node for the owner of a client.
    pub(in crate::node) fn epoch_of(&self, client: &ClientId) -> Option<u64> {
        self.owned.get(client).map(|owned| owned.granted)
    }

    /// Clients whose homes were asked and have not answered.
    pub(in crate::node) fn asked(&self) -> Vec<ClientId> {
        let asked = self.wanted.iter().filter(|(_, wanted)| matches!(wanted.phase, Phase::Asked { .. }));
        asked.map(|(client, _)| client.clone()).collect()
    }

    /// Number of them.
    pub(in crate::node) fn len(&self) -> usize {
        self.owned.len()
    }

    /// When a claim has waited long enough.
    pub(in crate::node) fn timeout(&self) -> Option<sedge_base::Instant> {
        self.deadlines.next()
    }

    /// A client whose session the journal held, or that is taken over from a node that is gone.
    pub(in crate::node) fn restore(&mut self, client: ClientId, epoch: u64, inherited_from: Option<NodeId>) {
        let came = Lineage::default();
        let owned = Owned { granted: epoch, told: epoch, is_claimed: false, successor: None, inherited_from, came };
        self.owned.insert(client, owned);
    }

    /// Clients whose sessions the journals held, of which no home has said anything since, with the epochs of the sessions.
    pub(in crate::node) fn restored(&self) -> impl Iterator<Item = (ClientId, u64)> {
        let is_untouched = |owned: &Owned| !owned.is_claimed && owned.granted == owned.told;
        let own = self.owned.iter().filter(move |(_, owned)| is_untouched(owned) && owned.inherited_from.is_none());
        own.map(|(client, owned)| (client.clone(), owned.told))
    }

    /// The clients that this node owns are connected no more: a successor that has taken a session over goes on with it.
    pub(in crate::node) fn are_of_a_former_life(&mut self) {
        for owned in self.owned.values_mut() {
            owned.is_claimed = false;
        }
    }

    /// Clients whose sessions were taken over from a node, and the epochs that their homes know.
    pub(in crate::node) fn inherited_from(&self, node: NodeId) -> Vec<(ClientId, u64)> {
        let inherited = self.owned.iter().filter(|(_, owned)| owned.inherited_from == Some(node));
        inherited.map(|(client, owned)| (client.clone(), owned.granted)).collect()
    }

    /// This owner is to send the session of a client.
    pub(in crate::node) fn asks(&mut self, client: &ClientId, epoch: u64, from: NodeId) {
        if let Some(wanted) = self.wanted.get_mut(client) {
            wanted.phase = Phase::Session { epoch, from, of: from };
        }
    }

    /// Whether the home was asked for this client, and has not answered. No home is asked for a session that is given to this node.
    fn is_asking(&self, client: &ClientId) -> bool {
        let wanted = self.wanted.get(client);
        wanted.is_some_and(|wanted| wanted.conn.is_some() && matches!(wanted.phase, Phase::Asked { .. }))
    }

    fn has_spare(&self, client: &ClientId) -> bool {
        self.wanted.get(client).is_some_and(|wanted| wanted.spare.is_some())
    }

    /// Whether a session under this epoch is one that its owner has given away since, with all that came for it, and that has gone on to this
    /// node, or is being put together here.
    pub(in crate::node) fn came_from(&self, client: &ClientId, owner: NodeId, epoch: u64) -> bool {
        let owned = self.owned.get(client).map(|owned| &owned.came);
        let coming = self.wanted.get(client).map(|wanted| &wanted.before);
        owned.into_iter().chain(coming).any(|came| came.succeeds(owner, epoch))
    }

    /// Whether this node owns the client under a later epoch than this.
    pub(in crate::node) fn has_since(&self, client: &ClientId, epoch: u64) -> bool {
        self.owned.get(client).is_some_and(|owned| owned.told > epoch)
    }
}

impl Node {
    /// A client has connected to a shard of this node.
    pub(in crate::node) fn claim(&mut self, shard: ShardId, client: ClientId, conn: ConnId, clean_start: bool) {
        if let Some(wanted) = self.claims.wanted.get_mut(&client) {
            let is_clean = clean_start || wanted.later.is_some_and(|(_, is_clean)| is_clean);
            wanted.later = Some((conn, is_clean));
            return;
        }
        self.start_claim(shard, client, conn, clean_start);
    }

    fn start_claim(&mut self, shard: ShardId, client: ClientId, conn: ConnId, clean_start: bool) {
        let home = self.home_of(&client);
        let wanted = Wanted::new(shard, Some(conn), clean_start, home);
        self.claims.wanted.insert(client.clone(), wanted);
        self.set_claim_deadline(&client);
        self.send_directory(home, DirectoryMail::Claim { client, clean_start });
    }

    /// Asks the home of a client if another node was asked before.
    pub(in crate::node) fn ask_home(&mut self, client: ClientId) {
        let home = self.home_of(&client);
        let Some(wanted) = self.claims.wanted.get_mut(&client) else { return };
        let Phase::Asked { home: asked } = wanted.phase else { return };
        if asked == home {
            return;
        }
        wanted.phase = Phase::Asked { home };
        let clean_start = wanted.clean_start;
        self.send_directory(asked, DirectoryMail::Forget { client: client.clone(), epoch: NO_CLAIM });
        self.send_directory(home, DirectoryMail::Claim { client, clean_start });
    }

    pub(in crate::node) fn set_claim_deadline(&mut self, client: &ClientId) {
        self.claims.deadlines.set(client.clone(), self.now.instant + self.config.claim_timeout);
    }

    /// The home says that this node owns the client.
    pub(in crate::node) fn granted(&mut self, home: NodeId, client: &ClientId, epoch: u64, former: Option<NodeId>) {
        // Of two owners that a home has found, this one goes on: no claim was granted anew.
        let owned = self.claims.owned.get(client);
        let is_double = owned.is_some_and(|owned| epoch < epoch::next_claim(owned.granted));
        if owned.is_some_and(|owned| owned.wins_with(epoch)) && self.claims.is_asking(client) {
            // The home has compared registrations, and has yet to answer the claim.
            return self.wins(client, epoch, former);
        }
        let Some(wanted) = self.claims.wanted.get_mut(client) else {
            let returns = former.filter(|former| self.claims.leaves_for(client, *former, epoch));
            if let Some(former) = returns {
                self.want(home, client);
                self.granted(home, client, epoch, Some(former));
            } else if self.claims.owns(client) {
                self.wins(client, epoch, former.filter(|_| is_double));
            } else if let Some(former) =
                former.filter(|_| !self.has_left(client, epoch) && !self.claims.departs_after(client, epoch))
            {
                // The home has told the former owner to give the session to this node, which has served the client without the home's word, or has
                // discarded the session of its journal since.
                self.given(home, client, epoch, former);
            } else {
                self.forget_at_home(client.clone(), epoch);
                self.forwards.refuse(client, epoch);
                self.look_at_early(client);
            }
            return;
        };
        wanted.granted = wanted.granted.max(epoch);
        if wanted.phase.epoch().is_some() {
            // Two homes have granted it: the first one's word is carried out, the second one learns of it by registration.
            return;
        }
        // A late word on an earlier claim, which the home has made anew of what it heard since: the session is here.
        let is_late = self.claims.owned.get(client).is_some_and(|owned| owned.is_claimed && owned.told == epoch);
        let former = former.filter(|_| !is_late && !is_double);
        let former_lives = former.is_some_and(|former| self.ring.contains(&former));
        if !is_late
            && !is_double
            && !former_lives
            && let Some((_, session)) = self.claims.early.take(client, epoch, former)
        {
            // It sent what it had before it went.
            return self.claimed_late(client, epoch, session, Vec::new());
        }
        let lost = former.filter(|former| self.orphans.has(*former) && !self.ring.contains(former));
        if let Some(lost) = lost
            && self.await_successor(client, epoch, lost)
        {
            return;
        }
        let Some(wanted) = self.claims.wanted.get_mut(client) else { return };
        let kept_from = self.claims.owned.get(client).and_then(|owned| owned.successor);
        // A node that has just come may know of a death before the home does, and not who takes over: that one says so at the home, which
        // asks it for the session then.
        let (ring, orphans) = (&self.ring, &self.orphans);
        let may_come = |former: &NodeId| ring.contains(former) || !orphans.knows_successors(*former);
        let former = former.filter(|former| *former != self.config.node && may_come(former));
        let former = former.filter(|former| kept_from != Some(*former));
        let Some(from) = former else {
            self.claimed(client, epoch, None, Vec::new());
            if self.home_of(client) != home {
                self.register_one(client, epoch);
            }
            return;
        };
        wanted.phase = Phase::Session { epoch, from, of: from };
        self.set_claim_deadline(client);
        if let Some((from, session)) = self.claims.early.take(client, epoch, Some(from)) {
            self.session_arrived(from, client, epoch, session);
        }
    }

    /// The home says that this node goes on as the owner of a client, and `other`, if there is another one, does not.
    fn wins(&mut self, client: &ClientId, epoch: u64, other: Option<NodeId>) {
        let Some(owned) = self.claims.owned.get_mut(client) else { return };
        owned.granted = owned.granted.max(epoch);
        if let Some(other) = other {
            self.await_other(client, other, epoch);
        }
    }

    /// The home says that this node owns a client for which it has not asked: its former owner is being emptied.
    pub(in crate::node) fn given(&mut self, home: NodeId, client: &ClientId, epoch: u64, former: NodeId) {
        if !self.claims.wanted.contains_key(client) && !self.claims.owns(client) {
            self.want(home, client);
        }
        self.granted(home, client, epoch, Some(former));
    }

    /// A session is to come for which no connection waits.
    fn want(&mut self, home: NodeId, client: &ClientId) {
        let shard = shard_of(client, self.config.shards);
        self.claims.wanted.insert(client.clone(), Wanted::new(shard, None, false, home));
    }

    /// The former owner is gone: the session is at its successor. False if there is none.
    pub(in crate::node) fn await_successor(&mut self, client: &ClientId, epoch: u64, former: NodeId) -> bool {
        let Some(from) = self.successor_of(former) else { return false };
        let is_kept = from == self.config.node && self.may_be_kept(former, client);
        if from == self.config.node && !is_kept {
            self.claimed_late(client, epoch, None, Vec::new());
            return true;
        }
        let Some(wanted) = self.claims.wanted.get_mut(client) else { return false };
        (wanted.phase, wanted.given) = (Phase::Session { epoch, from, of: former }, None);
        if is_kept {
            self.set_claim_deadline(client);
            return true;
        }
        self.set_claim_deadline(client);
        if let Some((from, session)) = self.claims.early.take(client, epoch, Some(from)) {
            self.session_arrived(from, client, epoch, session);
            return true;
        }
        let Some(incarnation) = self.orphaned_life(former) else { return false };
        let ask = ReplicaMail::Ask { of: former, incarnation, client: client.clone(), epoch };
        self.send_control(from, ControlTopic::Replica, ask.encode());
        true
    }

    /// Nobody keeps sessions of a node that this one has taken over from: clients that have waited for that have none.
    pub(in crate::node) fn nothing_is_kept(&mut self) {
        let me = self.config.node;
        let waits = self.claims.wanted.iter().filter_map(|(client, wanted)| {
            let (epoch, from, of) = wanted.phase.waits_for()?;
            (from == me && !self.may_be_kept(of, client)).then(|| (client.clone(), epoch))
        });
        for (client, epoch) in waits.collect::<Vec<_>>() {
            self.claimed_late(&client, epoch, None, Vec::new());
        }
    }

    /// The session of a client that is claimed here is kept at this node.
    pub(in crate::node) fn await_keeper(&mut self, client: &ClientId, keeper: NodeId) {
        let granted = self.claims.wanted.get(client).and_then(|wanted| wanted.phase.epoch());
        if let Some(epoch) = granted {
            self.claims.asks(client, epoch, keeper);
            self.set_claim_deadline(client);
        }
    }

    /// The former owner has sent the session.
    pub(in crate::node) fn session_arrived(&mut self, from: NodeId, client: &ClientId, epoch: u64, session: Session) {
        self.take_session(from, client, epoch, session);
        self.other_has_answered(client, from, epoch);
    }

    fn take_session(&mut self, from: NodeId, client: &ClientId, epoch: u64, session: Session) {
        let was_taken_over = self.claims.early.takes_restored(client, from);
        let is_restored = was_taken_over || self.has_restarted(from);
        match self.claims.wanted.get(client).map(|wanted| &wanted.phase) {
            // A node that gave the session to the owner that was asked, and registered it once more before it heard that it was to, has none.
            // It does not know whether there is one.
            Some(Phase::Session { from: asked, .. }) if session.is_none() && from != *asked => {}
            // The session that a restarted node found in its journal is older than that of the owner that was asked. It is put together with the
            // owner's session, or has its turn if the owner sends nothing.
            Some(&Phase::Session { epoch: mine, from: former, .. })
                if from != former && epoch == mine && self.ring.contains(&former) && is_restored =>
            {
                self.keep_early(from, client, epoch, session, was_taken_over);
            }
            Some(&Phase::Session { epoch: mine, from: former, .. }) if epoch == mine || from == former => match session
            {
                Some(session) if !session.subscriptions.is_empty() => {
                    self.adopt(Given { from, epoch }, client, mine, session);
                }
                None if self.claims.has_spare(client) => self.serve_as_is(client),
                None if self.takes_early(client, mine) => {}
                session => {
                    let given = session.is_some().then_some(Given { from, epoch });
                    if let Some(wanted) = self.claims.wanted.get_mut(client) {
                        (wanted.given, wanted.spare) = (given, None);
                    }
                    self.claimed_late(client, mine, session, Vec::new());
                }
            },
            Some(Phase::Asked { .. }) => self.keep_early(from, client, epoch, session, was_taken_over),
            // It may be given to this node, and be here sooner than the home's word.
            None if !self.claims.owns(client) && !self.has_left(client, epoch) => {
                self.keep_early(from, client, epoch, session, was_taken_over);
            }
            // The client was served without it: two owners after a partition, or a former owner that was slow.
            Some(_) | None => {
                if self.given_back(from, client, epoch, session.as_deref()) {
                    return;
                }
                if let Some(session) = session {
                    self.given_up_unasked(from, client, epoch, session, was_taken_over);
                }
            }
        }
    }

    /// There were two owners, and the other one goes. `was_taken_over`: the other one has only what its journal held before the session was taken over.
    fn given_up_unasked(
        &mut self,
        from: NodeId,
        client: &ClientId,
        epoch: u64,
        session: Box<SessionState>,
        was_taken_over: bool,
    ) {
        if self.claims.wants(client) || (self.claims.owns(client) && self.claims.is_leaving(client)) {
            // The other owner's session is put together with the one that comes, or goes behind the one that leaves.
            return self.keep_early(from, client, epoch, Some(session), was_taken_over);
        }
        if self.claims.owns(client) && !was_taken_over {
            self.begin_reunion(client, from, None);
            self.given_back(from, client, epoch, Some(&session));
            return;
        }
        self.release_behind(from, client, epoch);
        self.send_safe(from, client, epoch);
        if was_taken_over {
            // The copy from which the session goes on had as much, and all that is published since comes to its owner.
            return;
        }
        let plain = messages_of(&session).filter(|queued| queued.group.is_none());
        let messages: Vec<_> = plain.map(|queued| Arc::clone(&queued.message)).collect();
        self.send_late(client, &messages);
    }

    /// Whether this node has known an earlier life of another one.
    fn has_restarted(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.former.is_some())
    }

    pub(in crate::node) fn life_of(&self, node: NodeId) -> Life {
        let incarnation = self.peers.get(&node).and_then(|peer| peer.incarnation).unwrap_or_default();
        Life { node, incarnation }
    }

    /// Messages that another owner, `from`, had for a client.
    pub(in crate::node) fn held(
        &mut self,
        from: NodeId,
        client: &ClientId,
        message: &Arc<Message>,
        group: Option<TopicFilter>,
    ) -> mail::Held {
        let id = message.id;
        let own = (id.node, id.incarnation) == (self.config.node, self.config.incarnation);
        // A message for which a shared subscription chose a member at another node did not come here.
        let seen = self.had.has(client, message, own, self.windows.has(&id))
            || (group.is_none() && self.had.was_not_wanted(client, message));
        let is_owed = self.had.is_held_back_for(from, client, &id);
        self.had.gets(client, id);
        mail::Held { message: Arc::clone(message), group, seen: seen && !is_owed, is_owed, is_caught: true }
    }

    /// Another owner had something for a client of this node.
    pub(in crate::node) fn merge(&mut self, merge: mail::Merge) {
        if self.claims.wanted.contains_key(&merge.client) {
            self.claims.merges.entry(merge.client.clone()).or_default().push(merge);
        } else if self.claims.owns(&merge.client) {
            self.counters.sessions_merged += 1;
            self.tell_shard(shard_of(&merge.client, self.config.shards), session_step(SessionStep::Merge(merge)));
        } else {
            self.counters.sessions_discarded += 1;
        }
    }

    /// Whether another owner had something for a session that waits until its client is served here.
    pub(in crate::node) fn has_merges(&self, client: &ClientId) -> bool {
        self.claims.merges.contains_key(client) && self.claims.wants(client)
    }

    /// Clients of whose sessions another owner had something that waits until they are served here.
    pub(in crate::node) fn awaiting_merges(&self) -> impl Iterator<Item = &ClientId> {
        self.claims.merges.keys().filter(|client| self.claims.wants(client))
    }

    /// More of a session has come: it is worth waiting on.
    pub(in crate::node) fn session_is_coming(&mut self, client: &ClientId) {
        if self.claims.wanted.contains_key(client) {
            self.set_claim_deadline(client);
        }
    }

    /// Serves a client whose claim has taken its time. The home that granted it may no longer be its home, or have forgotten it.
    pub(in crate::node) fn claimed_late(
        &mut self,
        client: &ClientId,
        epoch: u64,
        session: Session,
        leftovers: Vec<Arc<Message>>,
    ) {
        let is_mine = self.claims.wanted.get(client).is_some_and(|wanted| wanted.next.is_none());
        self.claimed(client, epoch, session, leftovers);
        if is_mine {
            self.register_one(client, epoch);
        }
    }

    /// Serves the client with what there is.
    fn claimed(&mut self, client: &ClientId, epoch: u64, session: Session, leftovers: Vec<Arc<Message>>) {
        let Some(wanted) = self.claims.wanted.remove(client) else { return };
        self.claims.deadlines.cancel(client);
        self.claims.ahead.take(client);
        let begins = session.is_none() && !wanted.clean_start && !self.claims.owns(client);
        let takes_back = begins && self.takes_back_for(client, epoch);
        if begins && wanted.later.is_none() && wanted.next.is_some() {
            // The client has connected to a node that claims its session, and this node does not have it: what comes on this older
            // connection is not published for a session that knows none of its packet identifiers (MQTT-3.1.4-3).
            self.end_connection(client);
        }
        if begins && !takes_back && self.reunions.may_return() {
            self.had.begins(self.now, client);
        }
        let granted = wanted.granted.max(epoch);
        let known = self.claims.owned.get(client).map(|owned| owned.came.clone()).unwrap_or_default();
        let came = if wanted.came.is_empty() { known } else { wanted.came };
        let owned = Owned { granted, told: epoch, is_claimed: true, successor: None, inherited_from: None, came };
        self.claims.owned.insert(client.clone(), owned);
        self.forwards.forget(client);
        let (shard, conn, beside) = (wanted.shard, wanted.conn, wanted.beside);
        let given = wanted.given.filter(|_| session.is_some()).map(|given| (given.from, given.epoch));
        let had = given.map(|(from, _)| self.had.had_all(from, client)).unwrap_or_default();
        let claimed = mail::Claimed { client: client.clone(), conn, epoch, session, leftovers, beside, given, had };
        self.tell_shard(shard, session_step(SessionStep::Claimed(claimed)));
        // Sessions that came under other epochs are those of other owners.
        self.look_at_early(client);
        if let Some(merges) = self.claims.merges.remove(client) {
            for merge in merges {
                self.merge(merge);
            }
            self.let_go_if_complete(client);
        }
        if let Some(next) = wanted.next {
            self.pass_on(client.clone(), next);
        }
        if let Some((conn, clean_start)) = wanted.later {
            self.start_claim(shard, client.clone(), conn, clean_start);
        }
    }

    /// This node owns the client under this epoch, for no connection's sake.
    pub(in crate::node) fn tell_epoch(&mut self, client: &ClientId, epoch: u64) {
        let claimed = mail::Claimed {
            client: client.clone(),
            conn: None,
            epoch,
            session: None,
            leftovers: Vec::new(),
            beside: None,
            given: None,
            had: Heard::new(),
        };
        let shard = shard_of(client, self.config.shards);
        self.tell_shard(shard, session_step(SessionStep::Claimed(claimed)));
        self.register_one(client, epoch);
    }

    /// The session has ended at its shard by itself.
    pub(in crate::node) fn ended(&mut self, client: ClientId, epoch: u64) {
        let ended = self.claims.owned.get(&client).filter(|owned| owned.told == epoch);
        if let Some(granted) = ended.map(|owned| owned.granted) {
            self.claims.owned.remove(&client);
            self.forget_at_home(client, granted);
        }
    }

    fn forget_at_home(&mut self, client: ClientId, epoch: u64) {
        let home = self.home_of(&client);
        self.send_directory(home, DirectoryMail::Forget { client, epoch });
    }
}

pub(in crate::node) fn session_step(step: SessionStep) -> ToShard {
    ToShard::Session(Box::new(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MQ-11, FT-31
    #[test]
    fn a_comparison_of_registered_owners_is_told_from_the_answer_to_a_claim() {
        let (client, granted) = (ClientId::new("a"), epoch::claimed(0, 1_000));
        let mut claims = Claims::default();
        claims.restore(client.clone(), granted, None);
        let owned = claims.owned.get_mut(&client).unwrap();
        assert!(owned.wins_with(granted) && owned.wins_with(epoch::after_tie(granted)));
        for other in [epoch::inherited(granted), epoch::next_claim(granted), epoch::claimed(granted, 0)] {
            assert!(!owned.wins_with(other), "{other} is that of a successor or a claim");
        }
        owned.is_claimed = true;
        assert!(!owned.wins_with(granted), "the client has come: a home's next word answers its claim");
    }
}
