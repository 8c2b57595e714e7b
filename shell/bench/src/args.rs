//! The command line.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::compare::ContenderArgs;
use crate::emulate::NetArgs;
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::experiment::{ClusterArgs, ConvergeArgs, GridArgs, PatternArgs, PlugsArgs, SweepArgs};
use crate::fault::Fault;
use crate::metrics::{MetricsUrl, Token};
use crate::run::Options;
use crate::scenario::{NAMES, Pacing, Payload, Protocol, Scenario, Size, Until, sized};
use crate::suite::SuiteArgs;
use crate::transport::TlsFiles;

/// Load generator and experiments for any MQTT broker.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum BenchCommand {
    /// Run a scenario once and report its figures
    Run(Box<RunArgs>),
    /// Search the highest load at which messages do not pile up
    Limit(Box<LimitArgs>),
    /// Do things to brokers while they are measured: gap, recovery, loss, duplicates, jitter of the replay
    Fail(Box<FailArgs>),
    /// Run several brokers in turn under the same load: medians and ratios with their spread
    Compare(Box<CompareArgs>),
    /// Search the limit of a cluster under placements of clients without, with low and with high locality
    Pattern(Box<PatternArgs>),
    /// Put more and more pairs of clients on a cluster: throughput of each, latency, jitter, loss
    Sweep(Box<SweepArgs>),
    /// Run all combinations of topics, payload and locality over a cluster: delay, loss, bytes between nodes
    Grid(Box<GridArgs>),
    /// Measure how long a cluster takes to form, and to go on without one of its nodes
    Converge(Box<ConvergeArgs>),
    /// Let plugs of smart houses load a cluster behind HAProxy that grows and shrinks: nodes and processor time, completion time
    Plugs(Box<PlugsArgs>),
    /// Run a whole table of loads over several brokers: work per processor time, latency, memory, with medians
    Suite(Box<SuiteArgs>),
    /// Serve as a driver process for `--drivers` of another command
    Drive(DriveArgs),
    /// Emulate a network of several nodes on this machine: links with rate, delay and loss, that can be cut
    Net(NetArgs),
    /// List the ready-made scenarios, or print one as a file to start from
    Scenarios(ScenariosArgs),
}

/// Where the brokers are, and who drives them.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    /// Brokers: `HOST:PORT`, `mqtts://HOST` or `ws://HOST/PATH`; several separated by commas
    #[arg(long, short, value_delimiter = ',')]
    pub(crate) broker: Vec<Endpoint>,
    /// Processes of the brokers, for CPU time and memory; their descendants are included
    #[arg(long, value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Pages of metrics of brokers on other machines (Prometheus text format), for CPU time and memory: http://HOST:PORT/PATH
    #[arg(long, value_delimiter = ',')]
    pub(crate) metrics: Vec<MetricsUrl>,
    /// Token that the metrics and the HTTP API of the brokers want; on the command line others on this machine can see it
    #[arg(long, env = "SEDGE_API_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<Token>,
    /// User name
    #[arg(long, short = 'u')]
    pub(crate) username: Option<String>,
    /// Password
    #[arg(long, short = 'P', env = "SEDGE_BENCH_PASSWORD")]
    pub(crate) password: Option<String>,
    /// Driver threads, each with an event loop
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Addresses of this machine to connect from, in turn: each gives room for as many connections as there are ports
    #[arg(long, value_delimiter = ',')]
    pub(crate) source: Vec<IpAddr>,
    /// Driver processes (`sedge bench drive`) that do the work instead of this one: HOST:PORT, several separated by commas
    #[arg(long, value_delimiter = ',')]
    pub(crate) drivers: Vec<String>,
    #[command(flatten)]
    pub(crate) tls: TlsFiles,
    /// Processors that driver threads are bound to, in turn
    #[arg(long, value_delimiter = ',')]
    pub(crate) pin: Vec<usize>,
}

impl TargetArgs {
    pub(crate) fn options(&self, faults: Vec<Fault>) -> Options {
        Options {
            brokers: self.broker.clone(),
            pids: self.pid.clone(),
            processes: Vec::new(),
            metrics: self.metrics.clone(),
            token: self.token.clone(),
            threads: self.threads.clamp(1, 1_024),
            sources: self.source.clone(),
            username: self.username.clone(),
            password: self.password.clone(),
            pin: self.pin.clone(),
            tls: self.tls.clone(),
            drivers: self.drivers.clone(),
            raw: None,
            faults,
            network: None,
        }
    }
}

/// What to change in a scenario.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct LoadArgs {
    /// Publishers
    #[arg(long)]
    pub(crate) publishers: Option<u32>,
    /// Subscribers
    #[arg(long)]
    pub(crate) subscribers: Option<u32>,
    /// Topics
    #[arg(long)]
    pub(crate) topics: Option<u32>,
    /// Locality of interest in percent, for the scenario of that name: 100, 50 or 0
    #[arg(long)]
    pub(crate) locality: Option<u8>,
    /// Quality of service of publications and subscriptions
    #[arg(long, short)]
    pub(crate) qos: Option<u8>,
    /// Quality of service of subscriptions, if it is another
    #[arg(long)]
    pub(crate) subscribe_qos: Option<u8>,
    /// Payload: 32, uniform:64-1024, normal:1000,200, exponential:500 or choice:32*9,1024*1
    #[arg(long, short)]
    pub(crate) size: Option<Payload>,
    /// Messages per second of all publishers together (open loop); 0 for the closed loop
    #[arg(long, short, conflicts_with = "interval")]
    pub(crate) rate: Option<f64>,
    /// Time between two messages of one publisher in ms (open loop)
    #[arg(long, short)]
    pub(crate) interval: Option<f64>,
    /// Beginning of the interval: a schedule (open loop), or the last message, whose handshake has to be done (closed loop)
    #[arg(long)]
    pub(crate) pacing: Option<Pacing>,
    /// Seconds in which publishers begin one after another, with --pacing last-message
    #[arg(long)]
    pub(crate) ramp: Option<f64>,
    /// In the open loop messages are due at multiples of this time, in ms
    #[arg(long)]
    pub(crate) tick: Option<f64>,
    /// Messages that a publisher has outstanding in the closed loop, or unacknowledged in the open one
    #[arg(long)]
    pub(crate) window: Option<u16>,
    /// Messages that a publisher sends at once in the closed loop [default: a quarter of the window]
    #[arg(long)]
    pub(crate) burst: Option<u16>,
    /// Pause between two looks at the connections, in ms: spares processor time, and adds as much to latencies
    #[arg(long)]
    pub(crate) rest: Option<f64>,
    /// What ends the wait in the closed loop
    #[arg(long)]
    pub(crate) until: Option<Until>,
    /// Messages of each publisher, instead of a time
    #[arg(long)]
    pub(crate) messages: Option<u64>,
    /// Seconds to measure
    #[arg(long, short)]
    pub(crate) duration: Option<f64>,
    /// Seconds before the measurement
    #[arg(long)]
    pub(crate) warmup: Option<f64>,
    /// Most seconds to wait for what is under way at the end
    #[arg(long)]
    pub(crate) drain: Option<f64>,
    /// Seconds of silence once everybody is connected
    #[arg(long)]
    pub(crate) idle: Option<f64>,
    /// Leave sessions that outlive connections in the brokers at the end
    #[arg(long)]
    pub(crate) keep_sessions: bool,
    /// Version of MQTT
    #[arg(long, short = 'V')]
    pub(crate) protocol: Option<Protocol>,
    /// Start value of random choices
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

impl LoadArgs {
    /// The scenario `name`, ready-made or in a file, with what the command line changes.
    pub(crate) fn scenario(&self, name: &str) -> Result<Scenario, BenchError> {
        let size = Size {
            publishers: self.publishers,
            subscribers: self.subscribers,
            topics: self.topics,
            locality: self.locality,
        };
        let sized_anew = self.publishers.or(self.subscribers).or(self.topics).is_some() || self.locality.is_some();
        if name.starts_with("pattern-") && sized_anew {
            return Err(BenchError::Usage(format!("the size and placement of {name} are fixed")));
        }
        let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let mut scenario = match sized(name, size) {
            Some(scenario) => scenario,
            None if Path::new(name).extension().is_some() || Path::new(name).exists() => {
                let mut scenario = Scenario::load(Path::new(name))?;
                self.resize(&mut scenario)?;
                scenario
            }
            None => {
                return Err(BenchError::Usage(format!(
                    "no scenario {name}: there are {}, and files",
                    known.join(", ")
                )));
            }
        };
        self.change(&mut scenario)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// A scenario from a file has sizes of its own: they can be changed where it is clear which is meant.
    fn resize(&self, scenario: &mut Scenario) -> Result<(), BenchError> {
        let several = |what: &str| BenchError::Usage(format!("the scenario has several groups of {what}"));
        if let Some(count) = self.publishers {
            let [group] = scenario.publishers.as_mut_slice() else { return Err(several("publishers")) };
            group.count = count;
        }
        if let Some(count) = self.subscribers {
            let [group] = scenario.subscribers.as_mut_slice() else { return Err(several("subscribers")) };
            group.count = count;
        }
        if self.topics.is_some() || self.locality.is_some() {
            return Err(BenchError::Usage(
                "topics and placement of a scenario file are changed in the file".to_owned(),
            ));
        }
        Ok(())
    }

    /// Applies the changes of the command line to `scenario`.
    pub(crate) fn change(&self, scenario: &mut Scenario) -> Result<(), BenchError> {
        scenario.qos = self.qos.unwrap_or(scenario.qos);
        if self.qos.is_some() {
            scenario.subscribe_qos = None;
        }
        scenario.subscribe_qos = self.subscribe_qos.or(scenario.subscribe_qos);
        if let Some(payload) = &self.size {
            scenario.payload = payload.clone();
        }
        match self.rate {
            Some(0.0) => {
                scenario.interval_ms = None;
                for group in scenario.publishers.iter_mut().filter(|group| !group.probe) {
                    group.interval_ms = None;
                }
            }
            Some(rate) => scenario.set_total_rate(rate)?,
            None => {}
        }
        if let Some(interval) = self.interval {
            scenario.set_interval(interval);
        }
        scenario.pacing = self.pacing.unwrap_or(scenario.pacing);
        scenario.ramp_s = self.ramp.unwrap_or(scenario.ramp_s);
        scenario.tick_ms = self.tick.unwrap_or(scenario.tick_ms);
        scenario.window = self.window.unwrap_or(scenario.window);
        scenario.burst = self.burst.or(scenario.burst);
        scenario.rest_ms = self.rest.unwrap_or(scenario.rest_ms);
        scenario.until = self.until.unwrap_or(scenario.until);
        scenario.messages = self.messages.or(scenario.messages);
        if self.messages.is_some() {
            scenario.warmup_s = 0.0;
        }
        scenario.measure_s = self.duration.unwrap_or(scenario.measure_s);
        scenario.warmup_s = self.warmup.unwrap_or(scenario.warmup_s);
        scenario.drain_s = self.drain.unwrap_or(scenario.drain_s);
        scenario.idle_s = self.idle.unwrap_or(scenario.idle_s);
        scenario.keep_sessions |= self.keep_sessions;
        scenario.protocol = self.protocol.unwrap_or(scenario.protocol);
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        Ok(())
    }
}

/// Where reports go.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ReportArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the series of the run to a file as comma-separated values
    #[arg(long)]
    pub(crate) csv: Option<PathBuf>,
    /// Write a page with figures and plots to a file
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
    /// Say nothing while running
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// Name of a ready-made scenario, or a file
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Write every delivery to a file: receiver, stream, number, times of sending and receiving, how it came
    #[arg(long)]
    pub(crate) raw: Option<PathBuf>,
    /// A fault for brokers meanwhile: SECONDS:kill|term|stop|cont:WHOM (a PID, or node-2 or broker-2 of what
    /// --nodes starts), SECONDS:run:COMMAND, or with --network
    /// SECONDS:cut:A-B, SECONDS:cut:A>B, SECONDS:isolate:A, SECONDS:heal:
    #[arg(long)]
    pub(crate) fault: Vec<Fault>,
    /// The emulated network that faults act on: where it takes requests, as `sedge bench net` prints it
    #[arg(long, value_name = "SOCKET")]
    pub(crate) network: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ScenariosArgs {
    /// The scenario to print as a file
    pub(crate) name: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LimitArgs {
    /// Scenario whose interval is searched
    #[arg(long, default_value = "limit")]
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// First interval of a publisher in ms
    #[arg(long, default_value_t = 1.0)]
    pub(crate) start_ms: f64,
    /// Measurements at both sides of the limit, whose majority counts
    #[arg(long, default_value_t = 3)]
    pub(crate) repeat: usize,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct FailArgs {
    /// Scenario that runs meanwhile
    #[arg(long, default_value = "failover")]
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Write every delivery to a file: receiver, stream, number, times of sending and receiving, how it came
    #[arg(long)]
    pub(crate) raw: Option<PathBuf>,
    /// A fault, and its time in the measurement: SECONDS:kill|term|stop|cont:WHOM (a PID, or node-2 or broker-2 of what
    /// --nodes starts), SECONDS:run:COMMAND, or with --network
    /// SECONDS:cut:A-B, SECONDS:cut:A>B, SECONDS:isolate:A, SECONDS:heal:
    #[arg(long, required = true)]
    pub(crate) fault: Vec<Fault>,
    /// The emulated network that faults act on: where it takes requests, as `sedge bench net` prints it
    #[arg(long, value_name = "SOCKET")]
    pub(crate) network: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) field: ContenderArgs,
    /// Scenario
    #[arg(long, default_value = "pairs")]
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing while running
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DriveArgs {
    /// Where to wait for a coordinator. Whoever reaches it can have any load sent anywhere: trusted networks only
    #[arg(long, default_value = "127.0.0.1:7766")]
    pub(crate) listen: String,
    /// Driver threads, each with an event loop
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Addresses of this machine to connect from, in turn
    #[arg(long, value_delimiter = ',')]
    pub(crate) source: Vec<IpAddr>,
    #[command(flatten)]
    pub(crate) tls: TlsFiles,
    /// Processors that driver threads are bound to, in turn
    #[arg(long, value_delimiter = ',')]
    pub(crate) pin: Vec<usize>,
    /// End after so many runs
    #[arg(long)]
    pub(crate) runs: Option<usize>,
}
