//! The brokers of an experiment: started for it, or there already.

use serde::Serialize;

use super::args::ClusterArgs;
use super::cluster::{Cluster, NodeInfo, Plan};
use super::recipe::ClusterRecipe;
use super::status::{Api, LinkCounters, sum_links};
use crate::compare::{check_brokers, load_clusters};
use crate::emulate::{NetworkPlan, NetworkStatus};
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::num;
use crate::report::{Table, number};
use crate::run::{Options, Process};

/// Overlay of recipes that take one, if none is asked for.
const OVERLAY: &str = "mesh";
/// Nodes for a run of their own, if their number is not asked for.
const NODES: usize = 4;

/// The brokers of an experiment.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// They run already.
    Running,
    /// They are started, several times if the experiment wants them fresh.
    Started(Box<Plan>),
}

/// Brokers that are there for a part of an experiment.
pub(crate) struct Up {
    /// Ends the brokers that were started with this value.
    cluster: Option<Cluster>,
    /// How load is put on them.
    pub(crate) options: Options,
    /// Their HTTP APIs, if they have any.
    pub(crate) apis: Vec<Api>,
    pub(crate) nodes: Vec<NodeInfo>,
}

impl Up {
    /// Traffic that the brokers have sent to each other so far, if it is known: bytes as the emulated network counts them, IP
    /// headers included; without an emulated network, bytes as the brokers count them.
    pub(crate) fn traffic(&self) -> Option<LinkCounters> {
        let counted = sum_links(&self.apis);
        let Some(network) = self.network() else { return counted };
        let bytes = network.links.iter().map(|link| num::real(link.bytes)).sum();
        Some(LinkCounters { bytes, publications: counted.and_then(|counted| counted.publications) })
    }

    /// Publications that the nodes have sent to each other so far. Nodes that do not answer are left out.
    pub(crate) fn transfers(&self) -> Vec<Transfers> {
        let mut all = Vec::new();
        for (api, node) in self.apis.iter().zip(&self.nodes) {
            let Some(view) = api.view() else { continue };
            for (to, publications) in view.sent() {
                all.push(Transfers { from: node.name.clone(), to: to.to_owned(), publications });
            }
        }
        all
    }

    /// Counters of the links of the emulated network since their start.
    pub(crate) fn network(&self) -> Option<NetworkStatus> {
        self.cluster.as_ref().and_then(Cluster::network)
    }
}

/// The cluster that was started for one run, and the publications that its nodes sent to each other.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Site {
    pub(crate) nodes: Vec<NodeInfo>,
    /// Publications that went over links.
    pub(crate) links: Vec<Transfers>,
}

/// Publications from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Transfers {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) publications: u64,
}

impl Site {
    /// The cluster `up`, and the publications that its nodes sent each other since they had sent `before`.
    pub(crate) fn new(up: &Up, before: &[Transfers]) -> Self {
        let same = |one: &Transfers, other: &Transfers| (&one.from, &one.to) == (&other.from, &other.to);
        let since = |one: Transfers| {
            let first = before.iter().find(|other| same(&one, other)).map_or(0, |other| other.publications);
            Transfers { publications: one.publications.saturating_sub(first), ..one }
        };
        let links = up.transfers().into_iter().map(since).filter(|one| one.publications > 0).collect();
        Self { nodes: up.nodes.clone(), links }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::default();
        table.row(["link", "publications"]);
        for link in &self.links {
            table.row([format!("{} to {}", link.from, link.to), number(num::real(link.publications))]);
        }
        if self.links.is_empty() { String::new() } else { format!("\n{}", table.text()) }
    }
}

/// Starts the brokers for one run that `args` ask for; none if such are given that run. They are four nodes unless the flags say how many.
pub(crate) fn up(args: &ClusterArgs, options: &Options, seed: u64) -> Result<Option<Up>, BenchError> {
    let target = Target::new(args, options, (NODES, seed))?;
    match target {
        Target::Running => Ok(None),
        Target::Started(_) if args.nodes.is_none() && args.recipe.is_none() && args.upstream.is_empty() => {
            let what = "no broker: give --broker HOST:PORT, or --nodes and --upstream to start some";
            Err(BenchError::Usage(what.to_owned()))
        }
        Target::Started(_) => target.up(options).map(Some),
    }
}

impl Target {
    /// Target that the flags ask for; a cluster of `nodes` nodes unless the flags give a number.
    pub(crate) fn new(args: &ClusterArgs, options: &Options, (nodes, seed): (usize, u64)) -> Result<Self, BenchError> {
        if options.brokers.is_empty() {
            return Ok(Self::Started(Box::new(plan(args, (nodes, seed))?)));
        }
        for (flag, given) in [
            ("--recipe", args.recipe.is_some()),
            ("--nodes", args.nodes.is_some()),
            ("--cpus", !args.cpus.is_empty()),
            ("--overlay", !args.overlay.is_empty()),
            ("--upstream", !args.upstream.is_empty()),
            ("--emulate", args.emulate),
        ] {
            if given {
                return Err(BenchError::Usage(format!(
                    "{flag} is for brokers that are started, and --broker for such that run: give one of both"
                )));
            }
        }
        Ok(Self::Running)
    }

    /// Name of the recipe.
    pub(crate) fn recipe(&self) -> Option<&str> {
        match self {
            Self::Running => None,
            Self::Started(plan) => Some(&plan.recipe.name),
        }
    }

    /// The overlay its brokers are started with.
    pub(crate) fn overlay(&self) -> Option<&str> {
        match self {
            Self::Running => None,
            Self::Started(plan) => plan.recipe.takes_overlay().then_some(plan.overlay.as_str()),
        }
    }

    /// Leaves links on an emulated network unencrypted, so that it can tell what they carry.
    pub(crate) fn bare_links(&mut self) {
        if let Self::Started(plan) = self
            && plan.network.is_some()
        {
            plan.recipe = plan.recipe.clone().with_plain_links();
        }
    }

    /// How many brokers there are.
    pub(crate) fn nodes(&self, options: &Options) -> usize {
        match self {
            Self::Running => options.brokers.len(),
            Self::Started(plan) => plan.nodes,
        }
    }

    /// Description of the network between the brokers, for people.
    pub(crate) fn network(&self) -> String {
        match self {
            Self::Running => "as it is".to_owned(),
            Self::Started(plan) => plan.network.as_ref().map_or_else(
                || "loopback".to_owned(),
                |network| format!("emulated {}, {} ms", network.rate, network.delay),
            ),
        }
    }

    /// Starts the brokers if they are to be, and waits until they are one cluster.
    pub(crate) fn up(&self, options: &Options) -> Result<Up, BenchError> {
        let mut options = options.clone();
        match self {
            Self::Running => {
                // A page of metrics of Sedge has its API beside it.
                let pages = options.metrics.iter().map(ToString::to_string);
                let api = |url: String| Some(Api::new(url.strip_suffix("/metrics")?, options.token.clone()));
                let apis: Vec<Api> = pages.filter_map(api).collect();
                let said = |index: usize| apis.get(index).and_then(Api::status);
                let info = |(index, broker): (usize, &Endpoint)| {
                    let (address, status) = (broker.to_string(), said(index));
                    let (version, overlay) = status.map(|status| (status.version, status.overlay)).unzip();
                    NodeInfo { name: address.clone(), address, version, overlay, behind: None }
                };
                let nodes = options.brokers.iter().enumerate().map(info).collect();
                Ok(Up { cluster: None, options, apis, nodes })
            }
            Self::Started(plan) => {
                let cluster = Cluster::start_formed(plan)?;
                options.brokers = cluster.endpoints();
                options.processes = cluster.processes();
                options.pids = options.processes.iter().map(|process: &Process| process.pid).collect();
                let (apis, nodes) = (cluster.apis(), cluster.describe());
                Ok(Up { cluster: Some(cluster), options, apis, nodes })
            }
        }
    }
}

/// The flags for each of the overlays that `args` has.
pub(crate) fn each_overlay(args: &ClusterArgs) -> Vec<ClusterArgs> {
    if args.overlay.len() < 2 {
        return vec![args.clone()];
    }
    let alone = |overlay: &String| ClusterArgs { overlay: vec![overlay.clone()], ..args.clone() };
    args.overlay.iter().map(alone).collect()
}

/// How the cluster is started that the flags ask for, with `nodes` unless they say how many. Delays of links are drawn from `seed`.
pub(crate) fn plan(args: &ClusterArgs, (nodes, seed): (usize, u64)) -> Result<Plan, BenchError> {
    let name = args.recipe.as_deref().unwrap_or("sedge");
    let own = args.recipes.as_ref().map_or_else(|| Ok(Vec::new()), |path| load_clusters(path))?;
    let known = own.into_iter().find(|recipe| recipe.name == name).or_else(|| ClusterRecipe::built_in(name));
    let recipe = known.ok_or_else(|| {
        let names = ClusterRecipe::NAMES.join(", ");
        BenchError::Usage(format!("no recipe {name} of a cluster: there are {names}, and those of --recipes FILE"))
    })?;
    if let Some(overlay) = args.overlay.first().filter(|_| !recipe.takes_overlay()) {
        return Err(BenchError::Usage(format!("--overlay {overlay}: recipe {name} takes none")));
    }
    if let [_, second, ..] = args.overlay.as_slice() {
        return Err(BenchError::Usage(format!("--overlay {second}: this experiment takes one overlay at a time")));
    }
    if !args.upstream.is_empty() {
        if !name.starts_with("sedge") || args.emulate {
            let what = "--upstream: only nodes of recipes sedge and sedge-row stand before other brokers, and without --emulate";
            return Err(BenchError::Usage(what.to_owned()));
        }
        check_brokers(args.upstream.iter().map(String::as_str))?;
    }
    let nodes = args.nodes.unwrap_or(nodes);
    let (rate, delay) = (args.link_rate, args.link_delay);
    let network = || NetworkPlan { nodes, rate, delay, seed, ..NetworkPlan::default() };
    Ok(Plan {
        recipe,
        nodes,
        network: args.emulate.then(network),
        port: args.port,
        cpus: args.cpus.clone(),
        overlay: args.overlay.first().cloned().unwrap_or_else(|| OVERLAY.to_owned()),
        upstream: args.upstream.clone(),
        strongest: None,
        folder: std::env::temp_dir().join(format!("sedge-bench-{}", std::process::id())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulate::{Delay, Rate};

    fn args() -> ClusterArgs {
        ClusterArgs {
            recipe: None,
            recipes: None,
            nodes: None,
            port: 20_901,
            cpus: Vec::new(),
            overlay: Vec::new(),
            upstream: Vec::new(),
            emulate: false,
            link_rate: Rate::UNLIMITED,
            link_delay: Delay::Fixed(1.0),
        }
    }

    #[test]
    fn brokers_are_started_unless_they_run() {
        let started = Target::new(&args(), &Options::default(), (4, 1)).expect("a target");
        assert_eq!((started.recipe(), started.nodes(&Options::default())), (Some("sedge"), 4));
        let running = Options { brokers: vec!["h:1".parse().expect("an address"); 2], ..Options::default() };
        let there = Target::new(&args(), &running, (4, 1)).expect("a target");
        assert_eq!((there.recipe(), there.nodes(&running)), (None, 2));
        let both = ClusterArgs { nodes: Some(3), ..args() };
        let error = Target::new(&both, &running, (4, 1)).expect_err("both").to_string();
        assert!(error.contains("--nodes"), "{error}");
    }

    #[test]
    fn recipes_come_from_a_file_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("recipes.toml");
        let text = "[[cluster]]\nname = \"own\"\ncommand = \"own {port} {seeds}\"\nshape = \"line\"\n\
                    [[broker]]\nname = \"single\"\ncommand = \"x\"\n";
        std::fs::write(&path, text).expect("a file");
        let own = ClusterArgs { recipe: Some("own".to_owned()), recipes: Some(path), ..args() };
        assert_eq!(plan(&own, (2, 1)).expect("a plan").recipe.command, "own {port} {seeds}");
        let overlay = ClusterArgs { overlay: vec!["flood".to_owned()], ..own };
        assert!(plan(&overlay, (2, 1)).expect_err("no overlay").to_string().contains("takes none"));
        let two = ClusterArgs { overlay: vec!["mesh".to_owned(), "tree".to_owned()], ..args() };
        assert!(plan(&two, (2, 1)).expect_err("two").to_string().contains("one overlay at a time"));
        let alone: Vec<_> =
            each_overlay(&two).iter().filter_map(|args| Some(plan(args, (2, 1)).ok()?.overlay)).collect();
        assert_eq!(alone, ["mesh", "tree"]);
        assert_eq!(each_overlay(&args()).len(), 1);
        let unknown = ClusterArgs { recipe: Some("x".to_owned()), ..args() };
        assert!(plan(&unknown, (2, 1)).expect_err("unknown").to_string().contains("mosquitto-line"));
    }
}
