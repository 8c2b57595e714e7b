//! The node: membership, links, overlay, interest, directory and retained messages joined together.
//!
//! One file a concern; each holds the concern's own state and the part of [`Node`] that moves it.

mod admin;
mod asks;
mod beginning;
mod clock;
mod config;
mod dispatch;
mod drain;
mod failures;
mod flush;
mod journal;
mod mistrusted;
mod neighbours;
mod overlay;
mod peers;
mod recovery;
mod seeds;
mod status;
mod traces;

mod delivery;
mod sessions;
mod standby;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{Instant, NodeId, Now, Outbox, Rng, Seed, ShardId};
use sedge_broker::{RetainedStore, Ticket};
use sedge_membership::{Member, Membership};
use sedge_mqtt::{ReasonCode, TopicFilter};
use sedge_overlay::Overlay;

use self::admin::Kicks;
pub use self::asks::ASK_BYTES_MAX;
use self::asks::Operators;
use self::beginning::Beginning;
pub use self::beginning::STANDSTILL;
use self::clock::ClusterClock;
pub use self::config::{NodeConfig, NodeConfigError};
use self::delivery::agreement::Agreement;
use self::delivery::copied::Marks;
use self::delivery::duplicates::Windows;
use self::delivery::interest::InterestTable;
use self::delivery::pending_acks::AckTable;
use self::delivery::received::Had;
use self::delivery::relay::Relay;
use self::delivery::waiters::Settles;
use self::drain::Drain;
use self::journal::{Restoration, RetainedJournal};
use self::mistrusted::Mistrusted;
use self::neighbours::Neighbours;
pub use self::neighbours::{NEIGHBOURS_MAX, NeighbourError};
pub use self::overlay::{MANUAL_OVERLAYS, OVERLAYS};
use self::peers::Peer;
use self::sessions::claims::Claims;
use self::sessions::directory::Directory;
use self::sessions::forwards::Forwards;
use self::sessions::handed_over::HandedOver;
use self::sessions::reclaim::Reclaims;
use self::sessions::reunion::Reunions;
use self::sessions::transfer::Transfers;
use self::standby::absent::Orphans;
use self::standby::backups::Copies;
use self::standby::copies_of_others::Replicas;
use self::standby::out_of_reach::OutOfReach;
use self::standby::takeover::Takeovers;
use self::status::NodeCounters;
use crate::link::{Hello, Links};
use crate::mail::{Handed, TableChange, ToNode};
use crate::sys;
use crate::wire::DirectoryMail;
use crate::{DrainEnd, LinkId, NodeInput, NodeOutput, NodeState};

/// The machine of one node: feed it [`NodeInput`]s, then take [`NodeOutput`]s until there are none. Call
/// [`Node::handle_timeout`] once right after it was made.
pub struct Node {
    config: NodeConfig,
    rng: Rng,
    now: Now,
    started: Option<Instant>,
    state: NodeState,
    beginning: Beginning,
    only_own_seeds: bool,
    outputs: VecDeque<NodeOutput>,
    counters: NodeCounters,

    membership: Membership,
    links: Links,
    overlay: Box<dyn Overlay + Send>,
    neighbours: Neighbours,
    /// Nodes to which the overlay wants a link.
    wanted: BTreeSet<NodeId>,
    peers: BTreeMap<NodeId, Peer>,
    /// All members and this node, ascending.
    ring: Vec<NodeId>,

    interest: InterestTable,
    settles: Settles,
    /// Changes that the shards were not told yet.
    table: Vec<TableChange>,
    acks: AckTable,
    /// Publishers, by shard, that were not told yet.
    accepted: Vec<Vec<(Ticket, ReasonCode)>>,
    windows: Windows,
    /// Publications that came for members of shared subscriptions.
    shares: Windows,

    directory: Directory,
    claims: Claims,
    handed: HandedOver,
    reclaims: Reclaims,
    had: Had,
    forwards: Forwards,
    transfers: Transfers,
    /// Mail of the directory from this node to itself.
    local_mail: VecDeque<DirectoryMail>,

    copies: Copies,
    marks: Marks,
    replicas: Replicas,
    orphans: Orphans,
    out_of_reach: OutOfReach,
    clock: ClusterClock,
    takeovers: Takeovers,
    drain: Drain,
    reunions: Reunions,
    relay: Relay,

    retained: RetainedStore,
    /// When others had the same.
    agreement: Agreement,
    /// The last values of what nodes tell about themselves, in place of retained messages.
    sys: RetainedStore,
    kicks: Kicks,
    operators: Operators,
    /// There is no room to keep publications.
    is_full: bool,
    /// Topics for which the node has no room.
    closed_topics: Vec<TopicFilter>,
    /// The closed topics that the shards were told of.
    told_closed_topics: BTreeSet<TopicFilter>,
    journal: Option<RetainedJournal>,
    restoration: Restoration,
    next_comparison: Option<Instant>,
    /// When the overlay is next told how many clients there are, and what it was told last.
    next_load: Option<Instant>,
    told_clients: Option<u32>,
    /// When seeds that do not answer are next named.
    next_seed_check: Option<Instant>,
    mistrusted: Mistrusted,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("node", &self.config.node).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Node {
    /// A node that knows nobody yet.
    pub fn new(config: NodeConfig, mut rng: Rng) -> Result<Self, NodeConfigError> {
        let overlay = overlay::build(&config, &mut rng)?;
        if config.shards == 0 {
            return Err(NodeConfigError::Shards);
        }
        let (node, incarnation, link_addr) = (config.node, config.incarnation, config.link_addr);
        let neighbours = Neighbours::new(&config);
        let seeds = neighbours.with_seeds(config.seeds.clone());
        let only_own_seeds = !config.discovers && seeds.iter().all(|seed| *seed == config.swim_addr);
        let settings = sedge_membership::Config { seeds: seeds.clone(), ..config.membership.clone() };
        let me = Member::new(node, incarnation, config.swim_addr, link_addr);
        let membership = Membership::new(&settings, me, rng.split(1))?;
        let hello = Hello { node, incarnation, capacity: config.capacity, link_addr };
        Ok(Self {
            membership,
            links: Links::new(config.link_config(overlay.name()), hello, rng.split(2)),
            overlay,
            neighbours,
            wanted: BTreeSet::new(),
            peers: BTreeMap::new(),
            ring: vec![node],
            interest: InterestTable::new(rng.split(3)),
            settles: Settles::default(),
            table: Vec::new(),
            acks: AckTable::default(),
            accepted: vec![Vec::new(); usize::from(config.shards)],
            windows: Windows::default(),
            shares: Windows::default(),
            directory: Directory::default(),
            claims: Claims::default(),
            handed: HandedOver::default(),
            reclaims: Reclaims::default(),
            had: Had::default(),
            forwards: Forwards::default(),
            transfers: Transfers::default(),
            local_mail: VecDeque::new(),
            copies: Copies::default(),
            marks: Marks::default(),
            replicas: Replicas::default(),
            out_of_reach: OutOfReach::default(),
            clock: ClusterClock::default(),
            orphans: Orphans::new(config.max_absent_bytes, Seed::from_rng(&mut rng)),
            takeovers: Takeovers::default(),
            drain: Drain::default(),
            reunions: Reunions::default(),
            relay: Relay::default(),
            retained: RetainedStore::new(config.retained.clone()),
            agreement: Agreement::default(),
            sys: RetainedStore::new(sys::LIMITS),
            kicks: Kicks::default(),
            operators: Operators::default(),
            is_full: false,
            closed_topics: Vec::new(),
            told_closed_topics: BTreeSet::new(),
            journal: None,
            restoration: Restoration::default(),
            next_comparison: None,
            next_load: None,
            told_clients: None,
            next_seed_check: None,
            mistrusted: Mistrusted::default(),
            now: Now::default(),
            started: None,
            state: NodeState::Recovery,
            beginning: Beginning::new(seeds),
            only_own_seeds,
            outputs: VecDeque::new(),
            counters: NodeCounters::default(),
            rng,
            config,
        })
    }

    /// Takes an event in.
    pub fn handle(&mut self, now: Now, input: NodeInput) {
        self.begin(now);
        let instant = now.instant;
        match input {
            NodeInput::Mail { from, mail } => self.shard_mail(from, mail),
            NodeInput::Datagram { from, bytes } => {
                self.membership.handle(now, sedge_membership::Input::Datagram { from, bytes });
            }
            NodeInput::Mistrusted { from, cause } => self.mistrusts(from, cause),
            NodeInput::Refusal { from, cause } => self.is_mistrusted(from, cause),
            NodeInput::Seeds(seeds) => {
                self.note_seeds(&seeds);
                self.set_seeds(seeds);
            }
            NodeInput::LinkAccepted { link, peer } => self.links.opened(instant, link, peer),
            NodeInput::LinkSecured { link, binding } => self.links.secured(link, binding),
            NodeInput::LinkInsecure { link, why } => self.links.insecure(instant, link, &why),
            NodeInput::LinkDialled { link } => self.links.dialled(instant, link),
            NodeInput::LinkReceived { link, bytes } => self.links.received(instant, link, bytes),
            NodeInput::LinkWritten { link, bytes } => self.links.written(instant, link, bytes),
            NodeInput::LinkClosed { link } => self.links.closed(instant, link),
            NodeInput::LinkRefused { link } => self.links.refused(instant, link),
            NodeInput::SystemClock { ahead } => self.system_clock(ahead),
            NodeInput::StoodStill => self.stood_still(),
            NodeInput::Kick(kick) => self.kick_elsewhere(kick),
            NodeInput::Ask { to, request, question } => self.ask(to, request, &question),
            NodeInput::Answer { to, request, answer } => self.answer(to, request, answer),
            NodeInput::Drain { limit } => self.start_drain(limit),
            NodeInput::CancelDrain => self.end_drain(DrainEnd::Cancelled),
            NodeInput::Full(full) => self.set_full(full),
            NodeInput::Traces(specs) => self.set_traces(&specs),
            NodeInput::ClosedTopics(filters) => self.set_closed_topics(filters),
            NodeInput::Shutdown => {
                self.hand_out_all();
                self.state = NodeState::Leaving;
                self.membership.handle(now, sedge_membership::Input::Leave);
                self.links.shutdown(instant);
            }
        }
    }

    fn shard_mail(&mut self, from: ShardId, mail: ToNode) {
        match mail {
            ToNode::StoodStill => self.stood_still(),
            ToNode::Publish(publish) => self.publish(from, publish),
            ToNode::Interest(interest) => self.interest_changed(from, *interest),
            ToNode::BarrierReached { number, made } => {
                self.note_made(from, made);
                self.barrier_reached(number);
            }
            ToNode::Claim { client, conn, clean_start } => self.claim(from, client, conn, clean_start),
            ToNode::HadBefore(had) => self.had.came_before(self.now.instant, had.0, had.1),
            ToNode::Known(known) => self.known_leaves(known.0, &known.1),
            ToNode::Resubscribed { client, from, changes } => self.resubscribed(&client, from, &changes),
            ToNode::Leaves(client) => self.leaves(client),
            ToNode::Stays(client) => self.stays(&client),
            ToNode::Relinquished { client, epoch, session, made, along } => {
                self.note_made(from, made);
                self.relinquished(&client, epoch, session, along);
            }
            ToNode::Adopted { handed, made } => {
                self.is_caught_behind(from, &handed.client, made);
                self.adopted(&handed);
            }
            ToNode::Installed(installed) => {
                let (from, Handed { client, epoch }) = *installed;
                if self.ring.contains(&from) {
                    self.send_safe(from, &client, epoch);
                }
            }
            ToNode::Ahead(caught) => self.caught_ahead(&caught.0, &caught.1),
            ToNode::Leftovers(leftovers) => {
                let (handed, messages) = *leftovers;
                self.leftovers(handed, &messages);
            }
            ToNode::Batch { number, attempt, bytes } => self.batch(from, number, attempt, bytes),
            ToNode::Marked(mark) => self.marked(from, mark),
            ToNode::Inherited(life) => self.inherited(life),
            ToNode::Restored => self.restoration.shard_is_done(),
            ToNode::WantsRetained => self.give_retained(),
            ToNode::Ended { client, epoch } => self.ended(client, epoch),
        }
    }

    /// Does what is due; early or repeated calls do nothing.
    pub fn handle_timeout(&mut self, now: Now) {
        self.begin(now);
        for node in self.links.linked() {
            if let Some(heard) = self.links.last_heard(node) {
                self.membership.heard(node, heard);
            }
        }
        self.membership.handle_timeout(now);
        self.links.handle_timeout(now.instant);
        self.overlay.handle_timeout(now);
        self.claims_due();
        self.releases_due();
        self.reclaims_due();
        self.orphans_due();
        self.takeovers_due();
        self.drain_due();
        self.reunions_due();
        self.relay_due();
        self.backups_due();
        self.out_of_reach_due();
        self.clock_due();
        self.check_seeds();
        self.tell_load();
        if self.next_comparison.is_some_and(|at| at <= now.instant) {
            self.next_comparison = Some(now.instant + self.config.retained_sync_period);
            self.age_retained();
            self.compare_with_someone();
        }
    }

    /// The next thing to do, `None` if there is nothing for now. Events that were fed since the last poll take effect together: so
    /// acknowledgements, table changes and signals are batched.
    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        if self.outputs.is_empty() {
            self.flush();
        }
        self.outputs.pop_front()
    }

    /// When [`Node::handle_timeout`] is next wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let machines = [self.membership.poll_timeout(), self.links.poll_timeout(), self.overlay.poll_timeout()];
        let own = [
            self.claims.timeout(),
            self.handed.timeout(),
            self.reclaims.timeout(),
            self.directory_timeout(),
            self.orphans.timeout(),
            self.takeovers.timeout(),
            self.drain.timeout(),
            self.reunions.timeout(),
            self.relay.timeout(),
            self.copies.unreached.timeout(),
            self.out_of_reach.timeout(),
            self.clock.timeout(),
            self.recovery_timeout(),
            self.beginning.timeout().filter(|_| self.is_restored()),
            self.next_comparison,
            self.next_load,
            self.next_seed_check,
        ];
        machines.into_iter().chain(own).flatten().min()
    }

    /// The bytes that a link has to write; `None` if the link is forgotten. The driver says how much of it was written with
    /// [`NodeInput::LinkWritten`] and does not advance it itself.
    pub fn link_outbox(&mut self, link: LinkId) -> Option<&mut Outbox> {
        self.links.outbox(link)
    }

    /// Whether there are no other members.
    pub fn is_alone(&self) -> bool {
        self.ring.len() <= 1
    }

    /// Which node this is.
    pub const fn id(&self) -> NodeId {
        self.config.node
    }

    /// Whether the node serves with full knowledge: for load balancers.
    pub fn is_ready(&self) -> bool {
        self.state == NodeState::Normal && !self.is_draining()
    }
}
