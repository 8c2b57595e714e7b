//! Flags of the experiments.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::{LoadArgs, ReportArgs, TargetArgs};
use crate::emulate::{Delay, Rate};
use crate::scenario::{Interworking, Payload, Protocol};

/// Which cluster is started for an experiment.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArgs {
    /// Start recipe of the cluster: sedge, sedge-row (links in a row), mosquitto-line, mosquitto-star or one of --recipes [default: sedge]
    #[arg(long)]
    pub(crate) recipe: Option<String>,
    /// File with more start recipes (`[[cluster]]`)
    #[arg(long)]
    pub(crate) recipes: Option<PathBuf>,
    /// Nodes that are started
    #[arg(long)]
    pub(crate) nodes: Option<usize>,
    /// First port of nodes that are started; they also take ports 100 and 200 above
    #[arg(long, default_value_t = 20_901)]
    pub(crate) port: u16,
    /// Processors of nodes that are started, such as 0 or 0-3; several such lists, separated by /, go to the nodes in turn
    #[arg(long, value_delimiter = '/')]
    pub(crate) cpus: Vec<String>,
    /// Cooperation algorithm of nodes that are started, if the recipe takes one, such as tree, topic-tree:balance or skip-graph:mrf:4; grid and converge take several, separated by commas [default for sedge: mesh]
    #[arg(long, value_delimiter = ',')]
    pub(crate) overlay: Vec<String>,
    /// Start a broker of this make, a recipe of `sedge bench compare`, behind each node; several, separated by commas, are taken in turn
    #[arg(long, value_name = "MAKE", value_delimiter = ',')]
    pub(crate) upstream: Vec<String>,
    /// Put every node that is started on an emulated network: see --link-rate and --link-delay; needs root
    #[arg(long)]
    pub(crate) emulate: bool,
    /// Rate of every link between nodes, with --emulate
    #[arg(long, default_value = "10mbit", requires = "emulate")]
    pub(crate) link_rate: Rate,
    /// Propagation delay in ms, drawn once for each link, with --emulate: 10, normal:10,2.5 or uniform:5-20
    #[arg(long, default_value = "normal:10,2.5", requires = "emulate")]
    pub(crate) link_delay: Delay,
}

/// How each run goes. What is not given is the experiment's own.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CourseArgs {
    /// Seconds to measure
    #[arg(long, short)]
    pub(crate) duration: Option<f64>,
    /// Seconds before the measurement
    #[arg(long)]
    pub(crate) warmup: Option<f64>,
    /// Most seconds to wait for what is under way at the end
    #[arg(long)]
    pub(crate) drain: Option<f64>,
    /// In the open loop messages are due at multiples of this time, in ms
    #[arg(long)]
    pub(crate) tick: Option<f64>,
    /// Pause between two looks at the connections, in ms: spares processor time, and adds as much to latencies
    #[arg(long)]
    pub(crate) rest: Option<f64>,
    /// Version of MQTT
    #[arg(long, short = 'V')]
    pub(crate) protocol: Option<Protocol>,
    /// Start value of random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl CourseArgs {
    /// As changes of a scenario.
    pub(crate) fn load(&self) -> LoadArgs {
        LoadArgs {
            duration: self.duration,
            warmup: self.warmup,
            drain: self.drain,
            tick: self.tick,
            rest: self.rest,
            protocol: self.protocol,
            seed: Some(self.seed),
            ..LoadArgs::default()
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PatternArgs {
    /// Patterns of placement: a (one broker), b (no locality), c (low), d (high)
    #[arg(required = true)]
    pub(crate) patterns: Vec<Interworking>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) course: CourseArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Quality of service of publications and subscriptions
    #[arg(long, short)]
    pub(crate) qos: Option<u8>,
    /// Payload: 32, uniform:64-1024, normal:1000,200, exponential:500 or choice:32*9,1024*1
    #[arg(long, short)]
    pub(crate) size: Option<Payload>,
    /// First interval of a publisher in ms
    #[arg(long, default_value_t = 1.0)]
    pub(crate) start_ms: f64,
    /// Measurements at both sides of the limit, whose majority counts
    #[arg(long, default_value_t = 3)]
    pub(crate) repeat: usize,
}

/// At which nodes the two clients of a pair are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PairPlacement {
    /// Each anywhere, as behind a load balancer.
    Random,
    /// All subscribers, then all publishers to the node with the fewest clients: both at one node only if the pairs divide evenly.
    Leastconn,
    /// Both at the same node.
    Same,
    /// At neighbouring nodes of the list: every message crosses a link.
    Apart,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SweepArgs {
    /// Numbers of pairs
    #[arg(long, value_delimiter = ',', default_values_t = [50, 100, 500, 1_000, 2_000])]
    pub(crate) pairs: Vec<u32>,
    /// Repetitions, each with a cluster of its own if it is started here
    #[arg(long, default_value_t = 5)]
    pub(crate) repeat: usize,
    /// Time between two messages of a publisher in the open loop, in ms
    #[arg(long, short, default_value_t = 10.0)]
    pub(crate) interval: f64,
    /// Where the two clients of a pair are
    #[arg(long, value_enum, default_value = "random")]
    pub(crate) placement: PairPlacement,
    /// Quality of service of publications
    #[arg(long, short, default_value_t = 2)]
    pub(crate) qos: u8,
    /// Quality of service of subscriptions
    #[arg(long, default_value_t = 0)]
    pub(crate) subscribe_qos: u8,
    /// Payload
    #[arg(long, short, default_value = "32")]
    pub(crate) size: Payload,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) course: CourseArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct GridArgs {
    /// Numbers of topics, of which every client picks one at random
    #[arg(long, value_delimiter = ',', default_values_t = [3, 30, 60])]
    pub(crate) topics: Vec<u32>,
    /// Payloads in bytes
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    pub(crate) payload: Vec<u32>,
    /// Localities in percent: 100 (all clients at one node), 50 (anywhere), 0 (publishers at one node, subscribers at another)
    #[arg(long, value_delimiter = ',', default_values_t = [100, 50, 0])]
    pub(crate) locality: Vec<u8>,
    /// Placements at a locality of 50 %
    #[arg(long, default_value_t = 10)]
    pub(crate) repeat: usize,
    /// Repeat the other localities as often: the choice of topics is random there as well
    #[arg(long)]
    pub(crate) repeat_all: bool,
    /// Publishers
    #[arg(long, default_value_t = 20)]
    pub(crate) publishers: u32,
    /// Subscribers
    #[arg(long, default_value_t = 5)]
    pub(crate) subscribers: u32,
    /// Messages of each publisher
    #[arg(long, default_value_t = 500)]
    pub(crate) messages: u64,
    /// Time between two messages of a publisher, in ms
    #[arg(long, short, default_value_t = 1_000.0)]
    pub(crate) interval: f64,
    /// Quality of service of publications and subscriptions
    #[arg(long, short, default_value_t = 0)]
    pub(crate) qos: u8,
    /// Encrypt links on an emulated network, too: then nobody can tell what they carry
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// Seconds without clients in which the nodes' own traffic is measured
    #[arg(long, default_value_t = 2.0)]
    pub(crate) quiet_s: f64,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) course: CourseArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// How a node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Loss {
    /// Its process is killed: the others see their connections end.
    Kill,
    /// Its process is frozen: the others see nothing.
    Stop,
}

/// Which node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Victim {
    /// Any.
    Random,
    /// Any, which is made the strongest, so that trees have it as their root.
    Root,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ConvergeArgs {
    /// Runs
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,
    /// How a node is lost; both one after another: kill,stop
    #[arg(long, value_enum, value_delimiter = ',', default_value = "kill")]
    pub(crate) how: Vec<Loss>,
    /// Which node is lost: any, or the root of all trees, for which it is made the strongest
    #[arg(long, value_enum, default_value = "random")]
    pub(crate) victim: Victim,
    /// Messages with QoS 1 between the other nodes while it happens: what is lost, and how late they are
    #[arg(long)]
    pub(crate) load: bool,
    /// Pause between two looks at a node, in ms
    #[arg(long, default_value_t = 5.0)]
    pub(crate) poll_ms: f64,
    /// Most seconds for the nodes to find each other, and to notice a loss
    #[arg(long, default_value_t = 120.0)]
    pub(crate) timeout_s: f64,
    /// Start value of random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

/// Which part of the plugs sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlugScenario {
    /// Plugs publish ten parameters each, one subscriber for each house.
    Publish,
    /// One publisher for each house commands its plugs.
    Subscribe,
}

/// How many nodes a run of the plugs has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlugMode {
    /// One, then two, up to the most; messages half as often; repeated for the completion time.
    Fixed,
    /// One, at the full rate.
    Single,
    /// As many as the load asks for, at the full rate.
    Elastic,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PlugsArgs {
    /// Scenarios
    #[arg(value_enum, default_values_t = [PlugScenario::Publish, PlugScenario::Subscribe])]
    pub(crate) scenarios: Vec<PlugScenario>,
    /// Runs of each scenario
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PlugMode::Fixed, PlugMode::Single, PlugMode::Elastic])]
    pub(crate) modes: Vec<PlugMode>,
    /// Houses, with 90 plugs each; the source has 40
    #[arg(long, default_value_t = 4)]
    pub(crate) houses: u32,
    /// Least time between two messages of a plug, or to it, in ms; twice as long with a fixed number of nodes
    #[arg(long, short, default_value_t = 1_000.0)]
    pub(crate) interval: f64,
    /// As many messages for each plug as it sends or gets in so many seconds at the least interval
    #[arg(long, default_value_t = 240.0)]
    pub(crate) seconds: f64,
    /// Seconds in which publishers begin one after another
    #[arg(long, default_value_t = 30.0)]
    pub(crate) ramp: f64,
    /// Seconds with all clients connected and silent before the first message
    #[arg(long, default_value_t = 15.0)]
    pub(crate) idle: f64,
    /// Repetitions with a fixed number of nodes
    #[arg(long, default_value_t = 20)]
    pub(crate) repeat: usize,
    /// Processors that each node may use; needs root. 0: as many as there are
    #[arg(long, default_value_t = 0.2)]
    pub(crate) cpu: f64,
    /// Most nodes [default: 2 for publish, 3 for subscribe]
    #[arg(long)]
    pub(crate) max: Option<u32>,
    /// Processor time of nodes in percent above which there is one more
    #[arg(long, default_value_t = 80.0)]
    pub(crate) high: f64,
    /// Processor time of nodes in percent below which there is one less
    #[arg(long, default_value_t = 25.0)]
    pub(crate) low: f64,
    /// Seconds over which processor time is averaged
    #[arg(long, default_value_t = 60)]
    pub(crate) period: u32,
    /// Least seconds between two changes of the number of nodes
    #[arg(long, default_value_t = 60)]
    pub(crate) cooldown: u32,
    /// Most seconds to wait after the last message until one node is left
    #[arg(long, default_value_t = 600.0)]
    pub(crate) shrink: f64,
    /// Port of the load balancer
    #[arg(long, default_value_t = 20_901)]
    pub(crate) port: u16,
    /// Payload
    #[arg(long, short, default_value = "32")]
    pub(crate) size: Payload,
    /// Driver threads, each with an event loop
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Processors that driver threads are bound to, in turn
    #[arg(long, value_delimiter = ',')]
    pub(crate) pin: Vec<usize>,
    /// Start value of random choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
}
