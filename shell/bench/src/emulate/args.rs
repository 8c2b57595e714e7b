//! The command line of `sedge bench net`.

use std::path::PathBuf;

use clap::Args;

use super::setting::{Delay, NetworkPlan, Queue, Rate};

#[derive(Args, Clone, Debug)]
pub(crate) struct NetArgs {
    /// Nodes, each linked to every other
    #[arg(long, default_value_t = 5)]
    pub(super) nodes: usize,
    /// Rate of every link and direction: 10mbit, 500kbit, 1gbit or unlimited; IP headers count
    #[arg(long, default_value_t = Rate::UNLIMITED)]
    rate: Rate,
    /// Propagation delay in ms, drawn once for each link: 10, normal:10,2.5 or uniform:5-20
    #[arg(long, default_value_t = Delay::Fixed(0.0))]
    delay: Delay,
    /// Standard deviation in ms of what a single packet's delay differs from its link's; packets keep their order
    #[arg(long, default_value_t = 0.0)]
    jitter: f64,
    /// Packets that get lost, in percent
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// What may wait in front of a link: 64kB, 1500B, or what the link sends in a time such as 100ms; more is dropped
    #[arg(long, default_value_t = Queue::default())]
    queue: Queue,
    /// Start value of random choices: delays, losses, jitter
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Beginning of the names of the network namespaces [default: one that nobody else has]
    #[arg(long)]
    name: Option<String>,
    /// Print the network as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Write what every link did to a file as JSON at the end
    #[arg(long)]
    pub(super) report: Option<PathBuf>,
    /// Send REQUEST to the network that takes requests here, instead of making one
    #[arg(long, value_name = "SOCKET", conflicts_with = "clean")]
    pub(super) control: Option<PathBuf>,
    /// Remove what networks left behind whose process was killed, instead of making one
    #[arg(long)]
    pub(super) clean: bool,
    /// Command to run, which finds the network in `SEDGE_NET_*`; the network ends with it. Without, it ends with Ctrl-C.
    /// With --control a request: cut A B, cut 'A>B', isolate A, heal, heal A B, rate A B RATE, delay A B MS, loss A B PERCENT, status
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND|REQUEST")]
    pub(super) words: Vec<String>,
}

impl NetArgs {
    pub(super) fn plan(&self) -> NetworkPlan {
        NetworkPlan {
            nodes: self.nodes,
            rate: self.rate,
            delay: self.delay,
            jitter_ms: self.jitter,
            loss_percent: self.loss,
            queue: self.queue,
            seed: self.seed,
            name: self.name.clone(),
        }
    }
}
