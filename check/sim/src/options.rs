//! Options of a run: everything is drawn from the seed.

use sedge_base::{Duration, Rng};

/// Delay of a datagram or a piece of a stream between sites that are far apart.
pub(crate) const FAR: Duration = Duration::from_millis(20);

/// A bug put into the world on purpose, to prove that the invariants find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// Some messages between the shards of a node vanish.
    LoseMail,
    /// Some messages between the shards of a node come twice.
    RepeatMail,
    /// Some messages between the shards of a node overtake others.
    ReorderMail,
    /// Some changes of the forward table never reach a shard.
    LoseTable,
    /// Shards believe that everything is copied as soon as they have sent it.
    BelieveCopied,
    /// The host takes a batch for kept as soon as the batch is written, before the medium has it.
    BelieveKept,
}

/// Options of a run. Times are virtual.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each fault has a switch of its own")]
pub struct Options {
    /// Seed that everything is drawn from.
    pub seed: u64,
    /// The kind of the run, one of [`KINDS`], or nothing.
    pub kind: &'static str,
    /// Cooperation algorithm of the nodes.
    pub overlay: &'static str,
    /// Whether all faults were switched on, whatever the seed says.
    pub harsh: bool,
    /// Nodes.
    pub nodes: usize,
    /// Shards of each node.
    pub shards: u16,
    /// MQTT clients.
    pub clients: usize,
    /// More clients, all members of one shared subscription and subscribed to nothing else.
    pub workers: usize,
    /// Whether the sessions of some workers end with their connections.
    pub clean_workers: bool,
    /// Length of the first phase.
    pub faults_for: Duration,
    /// Longest pause between two actions of a client.
    pub pause: Duration,
    /// Longest delay of mail inside a node.
    pub mail_delay: Duration,
    /// Longest delay of bytes and datagrams.
    pub net_delay: Duration,
    /// Datagrams lost, of a thousand.
    pub loss: u64,
    /// Whether clients lose their connection now and then.
    pub client_drops: bool,
    /// Whether clients come back at another node.
    pub roaming: bool,
    /// Whether links are cut now and then; they may be dialled again at once.
    pub link_cuts: bool,
    /// Whether nodes are cut off from each other for a while.
    pub partitions: bool,
    /// Whether a partition leaves two sides that are whole in themselves, and excuses no loss of messages that both sides knew of.
    pub parts: bool,
    /// Whether nodes are killed and started again.
    pub crashes: bool,
    /// Whether nodes are emptied or told to stop, and started again, one after the other.
    pub drains: bool,
    /// Whether a node is killed, emptied or stopped only when every node's sessions have all the copies they are to have: then nothing may be lost.
    pub spaced: bool,
    /// Whether sessions may be on their way then.
    pub moving: bool,
    /// Whether hosts stand still now and then, for less than it takes to be declared dead.
    pub pauses: bool,
    /// Whether hosts stand still for so long that the others declare them dead and take their sessions over.
    pub freezes: bool,
    /// Whether all hosts are killed at once now and then, and started again.
    pub site: bool,
    /// After how long without CONNACK a client goes to another node; a node hears of that only when it reads from the connection again.
    pub hasty: Option<Duration>,
    /// Seconds after which publications of 5.0 clients expire: longer than any run. 0: they do not.
    pub expiry: u32,
    /// Whether the way from one host to another is cut now and then, and not the way back, while others reach both.
    pub one_way: bool,
    /// Datagrams that come twice, of a thousand.
    pub repeats: u64,
    /// By how much wall clocks may be apart.
    pub drift: Duration,
    /// Whether hosts have disks, and journals on them.
    pub disks: bool,
    /// Longest time until the medium has what was written; zero: it has that at once.
    pub sync_delay: Duration,
    /// Longest turn of a node's loop: how long the outputs of what the node was told may wait while it is told more and its timers run.
    /// Zero: they are taken at once.
    pub turn: Duration,
    /// Messages that may wait for one session.
    pub queue_limit: usize,
    /// Connections with each neighbour.
    pub connections: u8,
    /// A bug put in on purpose.
    pub sabotage: Sabotage,
}

/// Makes the options of a seed.
pub type Draw = fn(u64) -> Options;

/// Kinds of runs besides the one whose seed says which faults there are, with what happens in each.
pub const KINDS: &[(&str, Draw, &str)] = &[
    ("harsh", Options::harsh, "every fault there is; what is lost by them is excused"),
    ("crash", Options::crashing, "one node dies after the other"),
    ("move", Options::moving, "the same while sessions move"),
    ("far", Options::far, "the same with 20 ms between nodes"),
    (
        "swarm",
        Options::swarm,
        "move with pauses, ways cut in one direction, repeated datagrams, wrong clocks and journals",
    ),
    ("freeze", Options::freezing, "hosts stand still until after the others have declared them dead"),
    ("journal-restart", Options::journal_restart, "one node dies after the other and starts again from its journal"),
    ("site-restart", Options::site_restart, "all nodes die at once and start again from their journals"),
    (
        "hasty-restart",
        Options::hasty_restart,
        "site-restart with clients that wait only briefly for CONNACK and then try another node",
    ),
    ("slow-disk", Options::slow_disk, "disks take their time, stall and fail; nodes die one by one or all at once"),
    ("apart", Options::apart, "crashes, with clocks up to a day apart and publications that expire"),
    ("drain", Options::draining, "one node after the other is emptied or stopped"),
    ("part", Options::parting, "nodes fall apart into two sides and find each other again"),
    ("lanes", Options::laned, "swarm with several connections between two nodes, which are cut one by one"),
    ("share", Options::sharing, "members of a shared subscription come and go"),
];

impl Options {
    /// The options that belong to this seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed).split(1);
        Self {
            seed,
            kind: "",
            overlay: "mesh",
            harsh: false,
            nodes: 1 + rng.index(4),
            shards: u16::try_from(1 + rng.index(3)).unwrap_or(1),
            clients: 3 + rng.index(10),
            workers: 0,
            clean_workers: false,
            faults_for: Duration::from_secs(5 + rng.below(10)),
            pause: Duration::from_millis(*rng.pick(&[20, 50, 100, 300]).unwrap_or(&20)),
            mail_delay: Duration::from_micros(*rng.pick(&[1, 100, 5_000]).unwrap_or(&1)),
            net_delay: Duration::from_micros(*rng.pick(&[50, 1_000, 20_000]).unwrap_or(&50)),
            loss: *rng.pick(&[0, 0, 10, 50]).unwrap_or(&0),
            client_drops: rng.chance(1, 2),
            roaming: rng.chance(1, 2),
            link_cuts: rng.chance(1, 3),
            partitions: rng.chance(1, 4),
            parts: false,
            crashes: rng.chance(1, 4),
            drains: false,
            spaced: false,
            moving: false,
            pauses: false,
            freezes: false,
            site: false,
            hasty: None,
            expiry: 0,
            one_way: false,
            repeats: 0,
            drift: Duration::ZERO,
            disks: false,
            sync_delay: Duration::ZERO,
            turn: Duration::from_micros(*Rng::new(seed).split(18).pick(&[0, 100, 5_000]).unwrap_or(&0)),
            queue_limit: *rng.pick(&[100_000, 100_000, 20]).unwrap_or(&100_000),
            connections: 1,
            sabotage: Sabotage::None,
        }
    }

    /// The same over another cooperation algorithm.
    #[must_use]
    pub fn over(self, overlay: &'static str) -> Self {
        Self { overlay, ..self }
    }

    /// As [`Options::from_seed`], with several nodes and every fault there is.
    pub fn harsh(seed: u64) -> Self {
        let drawn = Self::from_seed(seed);
        Self {
            kind: "harsh",
            harsh: true,
            nodes: drawn.nodes.max(2),
            client_drops: true,
            roaming: true,
            link_cuts: true,
            partitions: true,
            crashes: true,
            ..drawn
        }
    }

    /// Nodes crash, one after the other has recovered; links break and clients come and go.
    pub fn crashing(seed: u64) -> Self {
        let drawn = Self::from_seed(seed);
        Self {
            kind: "crash",
            nodes: drawn.nodes.max(2),
            client_drops: true,
            roaming: true,
            partitions: false,
            crashes: true,
            spaced: true,
            queue_limit: 100_000,
            ..drawn
        }
    }

    /// As [`Options::crashing`], but nodes also die while sessions are on their way to them and from them.
    pub fn moving(seed: u64) -> Self {
        Self { kind: "move", moving: true, ..Self::crashing(seed) }
    }

    /// As [`Options::moving`], with 20 ms between nodes: sites that are far apart, and crashes that meet more messages on their way.
    pub fn far(seed: u64) -> Self {
        Self { kind: "far", net_delay: FAR, ..Self::moving(seed) }
    }

    /// As [`Options::moving`], with more kinds of faults: hosts that stand still, ways that are cut in one direction, datagrams that come
    /// twice, clocks that are apart and drift, and, in half of the runs, journals to start again from.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = Rng::new(seed).split(11);
        // By up to an hour in some runs.
        let hours = if Rng::new(seed).split(13).chance(1, 3) { 720 } else { 1 };
        Self {
            kind: "swarm",
            pauses: rng.chance(1, 2),
            one_way: rng.chance(1, 2),
            repeats: *rng.pick(&[0, 20, 200]).unwrap_or(&0),
            drift: Duration::from_millis(*rng.pick(&[0, 100, 5_000]).unwrap_or(&0)) * hours,
            disks: rng.chance(1, 2),
            ..Self::moving(seed)
        }
    }

    /// As [`Options::swarm`], with two to five connections between two nodes.
    pub fn laned(seed: u64) -> Self {
        let connections = 2 + u8::try_from(seed % 4).unwrap_or(0);
        Self { kind: "lanes", connections, link_cuts: true, ..Self::swarm(seed) }
    }

    /// As [`Options::crashing`], with hosts that stand still for 1 to 20 s instead of crashes: the others take their sessions over.
    pub fn freezing(seed: u64) -> Self {
        let drawn = Self::crashing(seed);
        Self { kind: "freeze", crashes: false, freezes: true, faults_for: drawn.faults_for * 3, ..drawn }
    }

    /// All hosts are killed, and started again from their journals: at once, one after the other, one of them late or never, or twice
    /// in a row.
    pub fn site_restart(seed: u64) -> Self {
        let drawn = Self::crashing(seed);
        Self {
            kind: "site-restart",
            crashes: false,
            site: true,
            disks: true,
            faults_for: drawn.faults_for * 4,
            ..drawn
        }
    }

    /// As [`Options::site_restart`], with clients that go to another node when CONNACK does not come soon: when nodes let clients in, each
    /// client has claims at several of them.
    pub fn hasty_restart(seed: u64) -> Self {
        let patience = *Rng::new(seed).split(15).pick(&[100, 400, 1_500]).unwrap_or(&400);
        Self { kind: "hasty-restart", hasty: Some(Duration::from_millis(patience)), ..Self::site_restart(seed) }
    }

    /// As [`Options::crashing`], and every host starts again from its journal, before or after the others have declared it dead.
    pub fn journal_restart(seed: u64) -> Self {
        Self { kind: "journal-restart", disks: true, ..Self::crashing(seed) }
    }

    /// As [`Options::site_restart`] or [`Options::journal_restart`], with disks that take their time, stall and fail. Batches that the medium does
    /// not have are gone when a process ends.
    pub fn slow_disk(seed: u64) -> Self {
        let mut rng = Rng::new(seed).split(17);
        let drawn = if rng.chance(1, 2) { Self::site_restart(seed) } else { Self::journal_restart(seed) };
        let sync_delay = Duration::from_millis(*rng.pick(&[1, 5, 50]).unwrap_or(&1));
        Self { kind: "slow-disk", sync_delay, ..drawn }
    }

    /// As [`Options::crashing`], with clocks that are up to a day apart and drift, and publications that expire later than the run ends.
    pub fn apart(seed: u64) -> Self {
        let hours = *Rng::new(seed).split(14).pick(&[0, 1, 24]).unwrap_or(&0);
        Self { kind: "apart", drift: Duration::from_secs(3 + 3_600 * hours), expiry: 600, ..Self::crashing(seed) }
    }

    /// Whether the faults of [`Options::swarm`] are among those of this run.
    pub(crate) fn is_swarm(&self) -> bool {
        let has_any = self.pauses || self.one_way || self.disks || self.repeats > 0 || self.drift > Duration::ZERO;
        self.kind == "swarm" && has_any
    }

    /// One node after the other is emptied, or told to stop, and started again, while clients come and go.
    pub fn draining(seed: u64) -> Self {
        let drawn = Self::from_seed(seed);
        Self {
            kind: "drain",
            nodes: drawn.nodes.max(2),
            faults_for: drawn.faults_for * 2,
            partitions: false,
            crashes: false,
            drains: true,
            spaced: true,
            queue_limit: 100_000,
            ..drawn
        }
    }

    /// The nodes fall apart into two sides and find each other again, over and over.
    pub fn parting(seed: u64) -> Self {
        let drawn = Self::from_seed(seed);
        Self {
            kind: "part",
            nodes: drawn.nodes + 2,
            faults_for: drawn.faults_for * 2,
            partitions: true,
            parts: true,
            crashes: false,
            queue_limit: 100_000,
            ..drawn
        }
    }

    /// Members of a shared subscription come and go, in half of the runs while nodes crash as in [`Options::crashing`].
    pub fn sharing(seed: u64) -> Self {
        let mut rng = Rng::new(seed).split(7);
        Self {
            kind: "share",
            workers: 2 + rng.index(4),
            clean_workers: rng.chance(1, 2),
            crashes: rng.chance(1, 2),
            ..Self::crashing(seed)
        }
    }

    /// A run without faults, for planted bugs: each violation is due to the bug.
    pub fn calm(seed: u64, sabotage: Sabotage) -> Self {
        Self {
            nodes: 3,
            shards: 3,
            clients: 9,
            loss: 0,
            client_drops: false,
            roaming: false,
            link_cuts: false,
            partitions: false,
            crashes: false,
            queue_limit: 100_000,
            pause: Duration::from_millis(20),
            sabotage,
            ..Self::from_seed(seed)
        }
    }
}
