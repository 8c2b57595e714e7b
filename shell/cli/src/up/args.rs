//! Flags of `sedge up` and `sedge down`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

const EXAMPLES: &str = "\
Examples:
  sedge up                                 three nodes, ports from 1883, 8080 and 7883 on; Ctrl-C ends them
  sedge up --port 21883 --http-port 28080  a second cluster beside it
  sedge up --detach && sedge status && sedge down
  sedge up --upstream mosquitto,nats       a Mosquitto and a NATS server, a node before each, one cluster

Exit codes: 0 the cluster ran and was ended, or with --detach runs; 1 a node failed; 2 wrong usage; 3 it cannot be started.";

/// Start a cluster on this machine.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) nodes: u16,
    /// MQTT port of the first node; the others have the next ones
    #[arg(long, value_name = "PORT", default_value = "1883", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: u16,
    /// Port of the first node for MQTT over WebSocket, path /mqtt; the others have the next ones [default: those behind the HTTP ports, for the
    /// dashboards of the nodes only]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) ws_port: Option<u16>,
    /// HTTP port of the first node
    #[arg(long, value_name = "PORT", default_value = "8080", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) http_port: u16,
    /// Port for other nodes of the first node [default: 6000 above --port, or below it: 7883 for 1883]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) cluster_port: Option<u16>,
    /// How the nodes cooperate: docs/overlays.md [default: mesh]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(sedge_daemon::OVERLAYS))]
    pub(super) overlay: Option<String>,
    /// Nodes that hold each session that outlives its connection: one less may die at once [default: 2; 3 with four nodes or more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(super) copies: Option<u8>,
    /// Brokers to start behind the nodes, one behind each in turn; the names are those of `sedge bench compare`
    #[arg(long, value_name = "MAKE", value_delimiter = ',')]
    pub(super) upstream: Vec<String>,
    /// Port of the first of these brokers; the others have the next ones [default: 4000 above --port, or below it: 5883 for 1883]
    #[arg(long, value_name = "PORT", requires = "upstream", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) upstream_port: Option<u16>,
    /// Directory for data and logs of the nodes [default: sedge/up-PORT in the state directory of the user]
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// Return as soon as the cluster works, and leave it running; `sedge down` ends it
    #[arg(long)]
    pub(super) detach: bool,
    /// Print one line of JSON as soon as the cluster works
    #[arg(long)]
    pub(super) json: bool,
}

/// So many nodes are taken for a site that is to survive the death of two at once.
const NODES_WITH_THREE_COPIES: u16 = 4;
/// The variable that sets `cluster.copies`.
const COPIES: &str = "SEDGE_CLUSTER__COPIES";

impl UpArgs {
    /// Variables in the environment of each node. What the user has set there stays, unless a flag says something else.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let wants_three = self.nodes >= NODES_WITH_THREE_COPIES && std::env::var_os(COPIES).is_none();
        let copies = self.copies.or_else(|| wants_three.then_some(3));
        let overlay = self.overlay.clone().map(|overlay| ("SEDGE_CLUSTER__OVERLAY", overlay));
        overlay.into_iter().chain(copies.map(|copies| (COPIES, copies.to_string()))).collect()
    }
}

/// Stop a cluster that `sedge up --detach` started.
#[derive(Args, Debug)]
pub(crate) struct DownArgs {
    /// Directory that was given to `sedge up`
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// MQTT port that was given to `sedge up`
    #[arg(long, value_name = "PORT", default_value = "1883", conflicts_with = "data_dir")]
    pub(super) port: u16,
    /// Print what was done as one line of JSON
    #[arg(long)]
    pub(super) json: bool,
}
