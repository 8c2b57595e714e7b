//! Mail of the session directory, and registration when the members change.

use std::collections::BTreeMap;

use bytes::Bytes;
use sedge_base::{ClientId, Duration, Instant, NodeId};

use crate::NodeState;
use crate::link::ControlTopic;
use crate::node::Node;
use crate::node::sessions::claims::NO_CLAIM;
use crate::node::sessions::home::{Home, NO_VIEW, home_of, view_of};
use crate::wire::{DirectoryMail, WireError};

/// Clients registered by one mail.
const BATCH: usize = 1_000;

/// The part of the directory that lives at this node.
#[derive(Debug, Default)]
pub(in crate::node) struct Directory {
    pub home: Home,
    /// Claims for clients that nobody is known to own, while not everybody has registered theirs.
    delayed: Vec<Delayed>,
    /// Until when registrations are waited for.
    delay_until: Option<Instant>,
}

/// A claim that waits for registrations.
#[derive(Debug)]
struct Delayed {
    client: ClientId,
    by: NodeId,
    clean_start: bool,
    /// Until when it waits for this node to see that it is the client's home: the claiming node may know of a change of members earlier.
    view_until: Instant,
}

impl Directory {
    /// Until when registrations are waited for.
    pub(in crate::node) const fn waits_until(&self) -> Option<Instant> {
        self.delay_until
    }

    /// All may have to register their clients anew.
    pub(in crate::node) const fn wait_until(&mut self, until: Instant) {
        self.delay_until = Some(until);
    }

    /// A node asks another home for a client whose claim waits here.
    fn takes_back(&mut self, client: &ClientId, by: NodeId) {
        self.delayed.retain(|claim| claim.by != by || claim.client != *client);
    }

    /// When delayed claims are to be granted at the latest.
    pub(in crate::node) fn timeout(&self) -> Option<Instant> {
        let latest = |claim: &Delayed| self.delay_until.map_or(claim.view_until, |until| until.max(claim.view_until));
        self.delayed.iter().map(latest).min()
    }
}

impl Node {
    /// When delayed claims are to be granted at the latest, unless members are waited for that may own the clients.
    pub(in crate::node) fn directory_timeout(&self) -> Option<Instant> {
        self.directory.timeout().filter(|_| !self.awaits_members())
    }

    /// The home of a client among the members and this node.
    pub(in crate::node) fn home_of(&self, client: &ClientId) -> NodeId {
        home_of(client, self.ring.iter().copied()).unwrap_or(self.config.node)
    }

    /// Sends mail of the directory, also to this node itself.
    pub(in crate::node) fn send_directory(&mut self, to: NodeId, mail: DirectoryMail) {
        if to == self.config.node {
            self.local_mail.push_back(mail);
        } else {
            self.send_control(to, ControlTopic::Directory, mail.encode());
        }
    }

    pub(in crate::node) fn directory_bytes(&mut self, from: NodeId, payload: Bytes) -> Result<(), WireError> {
        let mail = DirectoryMail::decode(payload)?;
        self.check_known(mail.since())?;
        self.directory_mail(from, mail);
        Ok(())
    }

    pub(in crate::node) fn directory_mail(&mut self, from: NodeId, mail: DirectoryMail) {
        match mail {
            DirectoryMail::Claim { client, clean_start } => self.home_claim(from, client, clean_start),
            DirectoryMail::Granted { client, epoch, from: former } => self.granted(from, &client, epoch, former),
            DirectoryMail::Give { client, epoch, to } => self.home_give(from, &client, epoch, to),
            DirectoryMail::Given { client, epoch, from: former } => self.given(from, &client, epoch, former),
            DirectoryMail::Relinquish { client, epoch, clean_start, to } => {
                self.relinquish(client, epoch, clean_start, to);
            }
            DirectoryMail::Register { view, last, clients } => {
                for (client, epoch) in &clients {
                    self.home_register(from, client, *epoch, view);
                }
                if last && let Some(peer) = self.peers.get_mut(&from) {
                    peer.registered = Some(view);
                }
            }
            DirectoryMail::Forget { client, epoch: NO_CLAIM } => self.directory.takes_back(&client, from),
            DirectoryMail::Forget { client, epoch } => self.directory.home.forget(&client, from, epoch),
        }
    }

    fn home_claim(&mut self, by: NodeId, client: ClientId, clean_start: bool) {
        let wait = if self.is_home(&client) { Duration::ZERO } else { self.config.register_timeout };
        let claim = Delayed { client, by, clean_start, view_until: self.now.instant + wait };
        // At a node that joins a link may come up before membership tells of the neighbour, which has registered its sessions by then: the
        // neighbour is to be asked for the session, and can be as soon as it is a member. Another node may have had a session of this node's own
        // journal since, and its successor registers it.
        let is_joining = self.state == NodeState::Recovery;
        let owner = self.directory.home.owner(&claim.client);
        let is_fresh = self.directory.home.is_fresh(&claim.client);
        let is_sure = |owner| !is_joining || (owner != self.config.node && self.ring.contains(&owner));
        let is_known = is_fresh && owner.is_some_and(|(owner, _)| is_sure(owner));
        if is_known || (self.is_registered() && self.is_due(&claim)) {
            self.home_grant(by, claim.client, clean_start);
        } else {
            self.directory.delayed.push(claim);
        }
    }

    fn is_home(&self, client: &ClientId) -> bool {
        self.home_of(client) == self.config.node
    }

    /// Whether this node has to know the former owner, if there is one, once all are registered.
    fn is_due(&self, claim: &Delayed) -> bool {
        self.now.instant >= claim.view_until || self.is_home(&claim.client)
    }

    fn home_grant(&mut self, by: NodeId, client: ClientId, clean_start: bool) {
        let view = self.heard_in(&client, self.directory.home.view());
        let ring = &self.ring;
        let is_member = |node| ring.contains(&node);
        let (epoch, former) = self.directory.home.claim(&client, by, (view, self.now.wall.as_millis()), is_member);
        self.send_directory(by, DirectoryMail::Granted { client: client.clone(), epoch, from: former });
        if let Some(former) = former {
            self.send_directory(former, DirectoryMail::Relinquish { client, epoch, clean_start, to: by });
        }
    }

    /// Tells an owner to give a session to another node under this epoch.
    pub(in crate::node) fn send_relinquish(&mut self, owner: NodeId, client: &ClientId, epoch: u64, to: NodeId) {
        let relinquish = DirectoryMail::Relinquish { client: client.clone(), epoch, clean_start: false, to };
        self.send_directory(owner, relinquish);
    }

    /// The owner of the client wants `to` to own it. Not if another node has claimed it meanwhile, the owner included, or may have where this
    /// node does not know of it: the owner asks again.
    fn home_give(&mut self, by: NodeId, client: &ClientId, epoch: u64, to: NodeId) {
        if !self.is_home(client) || !self.is_registered() {
            return;
        }
        self.home_register(by, client, epoch, self.directory.home.view());
        if self.directory.home.owner(client) != Some((by, epoch)) || by == to || !self.ring.contains(&to) {
            return;
        }
        let said = (self.directory.home.view(), self.now.wall.as_millis());
        let (epoch, _) = self.directory.home.claim(client, to, said, |_| true);
        self.send_directory(to, DirectoryMail::Given { client: client.clone(), epoch, from: by });
        self.send_relinquish(by, client, epoch, to);
    }

    /// Among which members this node is the home of a client that a node with this view has told of: the present ones, or those that are to be.
    fn heard_in(&self, client: &ClientId, view: u64) -> u64 {
        let present = self.directory.home.view();
        if self.is_home(client) {
            present
        } else if view == present {
            NO_VIEW
        } else {
            view
        }
    }

    fn home_register(&mut self, owner: NodeId, client: &ClientId, epoch: u64, view: u64) {
        if !self.is_home(client) && self.keep(client, epoch, self.life_of(owner)) {
            return;
        }
        let view = self.heard_in(client, view);
        let Some(loser) = self.directory.home.register(client, owner, epoch, view) else { return };
        let (epoch, to) = (loser.epoch, loser.to);
        self.counters.directory_conflicts += 1;
        self.send_directory(to, DirectoryMail::Granted { client: client.clone(), epoch, from: Some(loser.owner) });
        self.send_relinquish(loser.owner, client, epoch, to);
    }

    /// Whether everybody who sees the same members as this node has registered its clients, or had the time to.
    pub(in crate::node) fn is_registered(&self) -> bool {
        !self.awaits_members() && self.has_all_registrations()
    }

    /// The same, whether or not members are waited for.
    pub(in crate::node) fn has_all_registrations(&self) -> bool {
        if self.directory.delay_until.is_none_or(|until| self.now.instant >= until) {
            return true;
        }
        if self.reclaims.len() > 0 {
            return false;
        }
        let mut others = self.ring.iter().filter(|node| **node != self.config.node).peekable();
        if others.peek().is_none() {
            return self.seeds_had_their_time();
        }
        let view = Some(self.directory.home.view());
        others.all(|node| self.peers.get(node).is_some_and(|peer| peer.registered == view))
    }

    /// Grants what was delayed, if it need not wait any longer.
    pub(in crate::node) fn grant_delayed(&mut self) {
        if self.directory.delayed.is_empty() || !self.is_registered() {
            return;
        }
        for claim in core::mem::take(&mut self.directory.delayed) {
            if self.is_due(&claim) {
                self.home_grant(claim.by, claim.client, claim.clean_start);
            } else {
                self.directory.delayed.push(claim);
            }
        }
    }

    /// The members have changed: this node's clients are registered with their new homes, and everybody is told when that is
    /// done. `joined`: the new member; a former life of it may have been a member until now.
    pub(in crate::node) fn members_changed(&mut self, joined: Option<NodeId>) {
        let mut before = self.note_members();
        before.retain(|node| Some(*node) != joined);
        self.register_moved(&before);
        self.ask_new_homes();
        self.tell_serving_to_guests();
        self.relinquish_postponed();
        self.release_reunions();
        self.release_again();
    }

    /// Claims that wait for a node that is no longer the home of their clients go to the one that is: only there the owners are
    /// registered.
    fn ask_new_homes(&mut self) {
        let me = self.config.node;
        let mut delayed = core::mem::take(&mut self.directory.delayed);
        let until = self.now.instant + self.config.register_timeout;
        delayed.retain_mut(|claim| {
            let is_home = self.is_home(&claim.client);
            if !is_home {
                // The claimant sees the change, too.
                claim.view_until = claim.view_until.max(until);
            }
            is_home || claim.by != me
        });
        self.directory.delayed = delayed;
        for client in self.claims.asked() {
            self.ask_home(client);
        }
    }

    /// Looks who the members are; returns who they were.
    pub(in crate::node) fn note_members(&mut self) -> Vec<NodeId> {
        let before = core::mem::take(&mut self.ring);
        let me = (self.config.node, self.config.incarnation);
        let mut members: Vec<_> = self.membership.members().map(|member| (member.node, member.incarnation)).collect();
        members.retain(|(node, _)| *node != me.0);
        members.push(me);
        members.sort_unstable();
        self.ring = members.iter().map(|(node, _)| *node).collect();
        let view = view_of(members.into_iter());
        let ring = &self.ring;
        let rings = [&before, ring];
        let stays = |client: &ClientId| rings.iter().all(|ring| home_of(client, ring.iter().copied()) == Some(me.0));
        self.directory.home.members_change(view, stays);
        self.directory.delay_until = Some(self.now.instant + self.config.register_timeout);
        self.note_members_changed();
        self.note_known_nodes();
        before
    }

    /// Registers the clients whose home has changed, and those that were taken over.
    pub(in crate::node) fn register_moved(&mut self, before: &[NodeId]) {
        let mut moved = BTreeMap::<NodeId, Vec<(ClientId, u64)>>::new();
        // One that is about to leave for a node that is gone is registered when it is known where it goes on.
        for (client, epoch) in self.claims.granted().filter(|(client, _)| !self.reclaims.is_pending(client)) {
            let home = self.home_of(client);
            if home_of(client, before.iter().copied()) != Some(home) {
                moved.entry(home).or_default().push((client.clone(), epoch));
            }
        }
        for (client, epoch) in self.take_fresh() {
            moved.entry(self.home_of(&client)).or_default().push((client, epoch));
        }
        for node in self.ring.clone() {
            let clients = moved.remove(&node).unwrap_or_default();
            self.register(node, &clients);
        }
    }

    /// The neighbour may have lost what it was told before: it is told again all whose home it is.
    pub(in crate::node) fn register_all_with(&mut self, node: NodeId) {
        let homed = |client: &ClientId| self.home_of(client) == node;
        let clients = self.claims.granted().filter(|(client, _)| homed(client));
        let clients: Vec<_> = clients.map(|(client, epoch)| (client.clone(), epoch)).collect();
        self.register(node, &clients);
    }

    /// A node that was taken for dead is told which of its sessions were taken over here: their homes may find out later, when they
    /// reach both nodes, and by then it may have delivered what is behind that which came for them here.
    pub(in crate::node) fn register_inherited_with(&mut self, node: NodeId) {
        let (view, last) = (self.directory.home.view(), false);
        for clients in self.claims.inherited_from(node).chunks(BATCH) {
            self.send_directory(node, DirectoryMail::Register { view, last, clients: clients.to_vec() });
        }
    }

    fn register(&mut self, to: NodeId, clients: &[(ClientId, u64)]) {
        let view = self.directory.home.view();
        for batch in clients.chunks(BATCH) {
            let mail = DirectoryMail::Register { view, last: false, clients: batch.to_vec() };
            self.send_directory(to, mail);
        }
        if self.reclaims.len() == 0 {
            self.end_registration(to);
        }
    }

    fn end_registration(&mut self, to: NodeId) {
        if to != self.config.node {
            let view = self.directory.home.view();
            self.send_directory(to, DirectoryMail::Register { view, last: true, clients: Vec::new() });
        }
    }

    /// It is known of all sessions whether they are here: all that are are registered.
    pub(in crate::node) fn all_is_registered(&mut self) {
        for node in self.ring.clone() {
            self.end_registration(node);
        }
    }

    /// Registers one client with its home.
    pub(in crate::node) fn register_one(&mut self, client: &ClientId, epoch: u64) {
        let (home, view) = (self.home_of(client), self.directory.home.view());
        let mail = DirectoryMail::Register { view, last: false, clients: vec![(client.clone(), epoch)] };
        self.send_directory(home, mail);
    }
}
