//! Model of a site (Pham section III; the schema of `docs/elasticity.md`).

use std::collections::BTreeMap;

use sedge_base::Duration;

/// A checked site file.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Driver that makes and ends instances.
    pub driver: Driver,
    /// Program that the `exec` driver runs.
    pub exec: Option<String>,
    /// Policies together start at most so many actions in an hour.
    pub max_actions_per_hour: u32,
    /// All resources by name.
    pub resources: BTreeMap<String, Resource>,
}

/// Driver that makes and ends the instances of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Processes of this machine.
    Process,
    /// Containers of a Docker engine.
    Docker,
    /// Services of a Docker swarm.
    Swarm,
    /// A `StatefulSet` of a Kubernetes cluster.
    Kubernetes,
    /// A program of the user's.
    Exec,
    /// Nobody: actions are only recorded.
    Null,
}

/// One resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Line of its name in the file.
    pub line: usize,
    /// Names of resources that have to be there first.
    pub needs: Vec<String>,
    /// Kind of the resource.
    pub kind: Kind,
}

/// Kind of a resource, with its fields.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Nodes of one kind whose number follows the load.
    Group(Group),
    /// One address for a group.
    LoadBalancer(LoadBalancer),
    /// A condition on measurements.
    Alarm(Alarm),
    /// A rule that changes a group, because of an alarm or without one.
    Policy(Policy),
    /// Any other type: a resource that is provided before the resources that refer to it.
    Plain(Plain),
}

/// A resource that is only provided: `network`, `image`, `meter`, `storage` and the like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Its `type`.
    pub kind: PlainKind,
    /// Its other fields as text.
    pub fields: BTreeMap<String, String>,
}

/// Types of plain resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlainKind {
    /// A network that instances join.
    Network,
    /// An image that instances are made from.
    Image,
    /// The module that measures.
    Meter,
    /// The module that keeps measurements.
    MetricStore,
    /// The module that evaluates alarms.
    Alarming,
    /// Space on a disk.
    Storage,
    /// A container beside the brokers.
    Container,
    /// An account.
    User,
    /// Addresses that may connect.
    SecurityGroup,
    /// An address that can move.
    FloatingIp,
}

/// Nodes of one kind whose number follows the load.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Properties of each node of the group.
    pub member: MemberSpec,
    /// Fewest nodes.
    pub min: u32,
    /// Most nodes.
    pub max: u32,
    /// Whether a new node is given clients of the others.
    pub relief: bool,
}

/// Properties of a node of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberSpec {
    /// Processors that the node may use; `None`: all of the machine's.
    pub cpu: Option<f64>,
    /// Bytes of memory that the node may use.
    pub memory: Option<u64>,
    /// Configuration file of Sedge for each node.
    pub config: Option<String>,
    /// Image that the node is made from.
    pub image: Option<String>,
    /// Network that the node joins.
    pub net: Option<String>,
    /// `StatefulSet` whose pods are the nodes, for Kubernetes: `NAME` or `NAMESPACE/NAME`.
    pub statefulset: Option<String>,
}

/// Method by which a load balancer chooses a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// One after the other.
    RoundRobin,
    /// The node with the fewest connections.
    LeastConn,
    /// Any.
    Random,
    /// Always the same node for the same client identifier.
    ClientId,
}

/// One address for a group.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancer {
    /// Name of the group.
    pub backend: String,
    /// Method by which the load balancer chooses a node.
    pub algorithm: Algorithm,
    /// Address it listens at.
    pub bind: String,
    /// Port it listens at.
    pub port: u16,
    /// Most connections (EL-05).
    pub maxconn: u32,
    /// Time a health check may take (EL-05).
    pub check_timeout: Duration,
    /// Time between two health checks.
    pub check_interval: Duration,
    /// Whether nodes are told the client's address (PROXY protocol, version 2).
    pub proxy_protocol: bool,
}

/// Statistic of a period's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// The mean of all samples of all nodes.
    Mean,
    /// The least sample.
    Min,
    /// The greatest sample.
    Max,
    /// The sum of the nodes' means.
    Sum,
}

/// Comparison of a measurement with a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}

/// A condition on measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// Metric that is measured.
    pub metric: Metric,
    /// Name of the group whose nodes are measured.
    pub of: String,
    /// Statistic of a period that is compared.
    pub stat: Stat,
    /// Length of a period.
    pub period: Duration,
    /// Number of periods in a row in which the condition must hold.
    pub evaluations: u32,
    /// Comparison of the measurement with the threshold.
    pub op: Op,
    /// Threshold for the measurement.
    pub threshold: f64,
    /// Name of the policy that acts.
    pub action: Option<String>,
}

/// Metric of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Processor time of the broker, in percent of the processor time that it may use.
    CpuUtil,
    /// Connections of clients.
    Connections,
    /// Publications from clients a second.
    MessagesPerSecond,
    /// Age of the oldest message that waits, in seconds.
    QueueAge,
    /// Lateness of the event loops, in milliseconds.
    LoopLag,
    /// Messages dropped a second.
    Drops,
    /// Sessions, with and without a connection.
    Sessions,
    /// Messages that wait for sessions.
    QueuedMessages,
    /// Nodes that should hold a copy of this node's sessions and do not.
    CopiesMissing,
    /// Processors that the node may use.
    Vcpus,
}

/// A rule that changes a group, because of an alarm or without one.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Name of the group that the policy changes.
    pub group: String,
    /// Time that the policy waits after each action on the group.
    pub cooldown: Duration,
    /// Rule for the number of nodes that the policy wants.
    pub strategy: Strategy,
}

/// Number of nodes that a policy wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// So many more (or fewer) while an alarm that names it holds.
    Adjust(i32),
    /// The adjustment of the greatest bound that the alarm's measurement has passed, of pairs `(bound, adjust)`.
    Step(Vec<(f64, i32)>),
    /// As many as keep the mean of a metric near a value.
    Target(Target),
    /// At least so many from a time of the day on, in UTC: `(minute of the day, nodes)`, ascending.
    Schedule(Vec<(u16, u32)>),
    /// As many as the same hour of earlier days needed, if these are more than the target asks for.
    Forecast(Target),
    /// As many as there are, each with more (or fewer) processors while an alarm that names it holds.
    Resize(Resize),
}

/// How the nodes of a group are made larger or smaller, in thousandths of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// So many more (or fewer) at a time.
    pub by: i32,
    /// Fewest.
    pub min: u32,
    /// Most.
    pub max: u32,
}

/// Goal of target tracking: a metric and the value that it is kept near.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Metric that is tracked.
    pub metric: Metric,
    /// Value that the metric's mean is kept near.
    pub value: f64,
    /// Period over which the mean is taken.
    pub period: Duration,
}

/// A type whose values have fixed names in site files.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// All values with their names.
    const NAMES: &'static [(&'static str, Self)];

    /// The name of this value.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

macro_rules! named {
    ($kind:ident: $($name:literal => $value:ident),+ $(,)?) => {
        impl Named for $kind {
            const NAMES: &'static [(&'static str, Self)] = &[$(($name, Self::$value)),+];
        }
        impl core::fmt::Display for $kind {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named!(Driver: "process" => Process, "docker" => Docker, "swarm" => Swarm, "kubernetes" => Kubernetes, "exec" => Exec, "null" => Null);
named!(PlainKind: "network" => Network, "image" => Image, "meter" => Meter, "metric_store" => MetricStore, "alarming" => Alarming,
    "storage" => Storage, "container" => Container, "user" => User, "security_group" => SecurityGroup, "floating_ip" => FloatingIp);
named!(Algorithm: "roundrobin" => RoundRobin, "leastconn" => LeastConn, "random" => Random, "client-id" => ClientId);
named!(Stat: "mean" => Mean, "min" => Min, "max" => Max, "sum" => Sum);
named!(Op: ">" => Greater, ">=" => GreaterOrEqual, "<" => Less, "<=" => LessOrEqual);
named!(Metric: "cpu_util" => CpuUtil, "connections" => Connections, "messages_per_s" => MessagesPerSecond, "queue_age" => QueueAge,
    "loop_lag" => LoopLag, "drops" => Drops, "sessions" => Sessions, "queued_messages" => QueuedMessages,
    "copies_missing" => CopiesMissing, "vcpus" => Vcpus);

impl Driver {
    /// Whether a node that runs can be given more or fewer processors.
    pub const fn resizes(self) -> bool {
        match self {
            Self::Process | Self::Docker | Self::Exec | Self::Null => true,
            Self::Swarm | Self::Kubernetes => false,
        }
    }

    /// Whether the node that was made last has to go first.
    pub const fn removes_last(self) -> bool {
        match self {
            Self::Kubernetes => true,
            Self::Process | Self::Docker | Self::Swarm | Self::Exec | Self::Null => false,
        }
    }
}

impl Op {
    /// Whether `value` meets the condition.
    pub fn holds(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::Greater => value > threshold,
            Self::GreaterOrEqual => value >= threshold,
            Self::Less => value < threshold,
            Self::LessOrEqual => value <= threshold,
        }
    }
}

impl Policy {
    /// Target that the policy tracks, if it tracks one.
    pub const fn tracked(&self) -> Option<&Target> {
        match &self.strategy {
            Strategy::Target(target) | Strategy::Forecast(target) => Some(target),
            Strategy::Adjust(_) | Strategy::Step(_) | Strategy::Schedule(_) | Strategy::Resize(_) => None,
        }
    }
}

impl Metric {
    /// The metric that site files call `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, metric)| *metric)
    }
}

impl MemberSpec {
    /// Thousandths of a processor that it may use, if that is limited.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the site's check bounds it")]
    pub fn millicpus(&self) -> Option<u32> {
        self.cpu.map(|cpu| (cpu * 1_000.0).round() as u32)
    }
}

impl Site {
    /// The groups by name.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.of_kind(|kind| if let Kind::Group(group) = kind { Some(group) } else { None })
    }

    /// The load balancers by name.
    pub fn balancers(&self) -> impl Iterator<Item = (&str, &LoadBalancer)> {
        self.of_kind(|kind| if let Kind::LoadBalancer(balancer) = kind { Some(balancer) } else { None })
    }

    /// The alarms by name.
    pub fn alarms(&self) -> impl Iterator<Item = (&str, &Alarm)> {
        self.of_kind(|kind| if let Kind::Alarm(alarm) = kind { Some(alarm) } else { None })
    }

    /// The policies by name.
    pub fn policies(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.of_kind(|kind| if let Kind::Policy(policy) = kind { Some(policy) } else { None })
    }

    fn of_kind<'a, T: 'a>(
        &'a self,
        pick: impl Fn(&'a Kind) -> Option<&'a T>,
    ) -> impl Iterator<Item = (&'a str, &'a T)> {
        self.resources
            .iter()
            .filter_map(move |(name, resource)| pick(&resource.kind).map(|found| (name.as_str(), found)))
    }
}
