//! Brokers as one cluster on this machine: started from a recipe, waited for, stopped.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use super::recipe::{ClusterRecipe, Seat, StatusApi};
use super::status::Api;
use crate::compare::{Running, bound, broker_address, search_path, start_broker};
use crate::emulate::{self as net, Network, NetworkPlan, NetworkStatus};
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::run::{Options, Process, run};
use crate::scenario::{Placement, PublisherGroup, Scenario, SubscriberGroup};

/// Most time for all nodes, and brokers behind them, to start and find each other: some brokers are slow on a busy machine.
const FORM: Duration = Duration::from_mins(3);
/// Time between two looks while waiting.
const TURN: Duration = Duration::from_millis(20);
/// Most time for a message of each to come out at all others.
const CROSSING_S: f64 = 10.0;
/// Distance of the ports for other nodes, and of those for HTTP, from those for clients.
const APART: u16 = 100;
/// Capacity of the node that is to be the strongest; the others have 1.
const STRONGEST: u32 = 1_000;
/// Most nodes: their ports have to fit between.
pub(crate) const NODES_MAX: u16 = 64;

/// How a cluster is started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) recipe: ClusterRecipe,
    pub(crate) nodes: usize,
    /// First port for clients; those for other nodes begin 100, those for HTTP 200 above.
    pub(crate) port: u16,
    /// Processors of the nodes in turn, as `taskset` takes them; none to leave it to the system.
    pub(crate) cpus: Vec<String>,
    /// Cooperation algorithm.
    pub(crate) overlay: String,
    /// Makes of the brokers that the nodes stand before, in turn; none if they are brokers themselves.
    pub(crate) upstream: Vec<String>,
    /// The node that is to be the strongest, if it matters; the others are equal then.
    pub(crate) strongest: Option<usize>,
    /// The emulated network between the nodes; without, they are all on the loopback interface.
    pub(crate) network: Option<NetworkPlan>,
    /// Where nodes keep their files.
    pub(crate) folder: PathBuf,
}

/// Description of a node, as it reports itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) version: Option<String>,
    pub(crate) overlay: Option<String>,
    /// Make of the broker behind the node.
    pub(crate) behind: Option<String>,
}

/// A node that was started.
struct Node {
    endpoint: Endpoint,
    api: Option<Api>,
    running: Running,
}

/// Nodes that were started. They end with this value.
pub(crate) struct Cluster {
    plan: Plan,
    seats: Vec<Seat>,
    nodes: Vec<Node>,
    /// Brokers behind the nodes: each ends when its standard input does, with this value.
    behind: Vec<Child>,
    /// When the first process was started.
    pub(crate) began: Instant,
    /// Ends after the nodes.
    network: Option<Network>,
}

impl Plan {
    fn seats(&self, places: &[net::Node]) -> Result<Vec<Seat>, BenchError> {
        let port = |index: usize, above: u16| {
            let index = u16::try_from(index).ok().filter(|index| *index < NODES_MAX)?;
            self.port.checked_add(above)?.checked_add(index)
        };
        let seat = |index: usize| {
            let name = format!("node-{}", index + 1);
            let local = "127.0.0.1".to_owned();
            let place = places.get(index);
            Some(Seat {
                port: port(index, 0)?,
                cluster_port: port(index, APART)?,
                http_port: port(index, 2 * APART)?,
                address: place.map_or_else(|| local.clone(), |place| place.site.to_string()),
                outside: place.map_or_else(|| local.clone(), |place| place.host.to_string()),
                bind: if place.is_some() { "0.0.0.0" } else { "127.0.0.1" },
                dir: self.folder.join(&name).display().to_string(),
                capacity: self.strongest.map_or(0, |strongest| if strongest == index { STRONGEST } else { 1 }),
                name,
            })
        };
        let wrong = || {
            BenchError::Usage(format!(
                "{} nodes from port {} on: there are 1 to {NODES_MAX} nodes, and ports end at 65535",
                self.nodes, self.port
            ))
        };
        if self.nodes == 0 {
            return Err(wrong());
        }
        (0..self.nodes).map(seat).collect::<Option<_>>().ok_or_else(wrong)
    }

    /// Where the broker behind a node listens.
    fn port_behind(&self, index: usize) -> Option<u16> {
        self.port.checked_add(3 * APART)?.checked_add(u16::try_from(index).ok()?)
    }

    /// Starts the broker behind a node, if there is to be one.
    fn start_behind(&self, index: usize) -> Option<Result<Child, BenchError>> {
        let (make, dir) = (self.make_behind(index)?, self.folder_behind(index));
        Some(start_broker(make, self.port_behind(index)?, &dir, false))
    }

    /// Where a node reaches the broker behind it, if there is to be one: over its Unix socket if it has one, as `sedge up` does.
    fn address_behind(&self, index: usize) -> Option<String> {
        let (make, dir) = (self.make_behind(index)?, self.folder_behind(index));
        Some(broker_address(make, self.port_behind(index)?, &dir))
    }

    fn make_behind(&self, index: usize) -> Option<&str> {
        self.upstream.get(index % self.upstream.len().max(1)).map(String::as_str)
    }

    fn folder_behind(&self, index: usize) -> PathBuf {
        self.folder.join(format!("broker-{}", index + 1))
    }

    /// Version that the recipe's program reports.
    pub(crate) fn version(&self) -> Option<String> {
        let command = Some(&self.recipe.version).filter(|command| !command.is_empty())?;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("PATH", search_path()).stdin(Stdio::null());
        let said = shell.output().ok()?.stdout;
        String::from_utf8_lossy(&said).lines().next().map(|line| line.trim().to_owned())
    }
}

/// Fails if another program has a port of `seat`: its answers would be taken for the node's.
fn check_free(seat: &Seat) -> Result<(), BenchError> {
    for port in [seat.port, seat.cluster_port, seat.http_port] {
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).and_then(|_| UdpSocket::bind(address)).is_err() {
            return Err(BenchError::Usage(format!(
                "port {port} of {} is in use: choose another first port with --port",
                seat.name
            )));
        }
    }
    Ok(())
}

impl Cluster {
    /// Starts all nodes, without waiting for them.
    pub(crate) fn start(plan: &Plan) -> Result<Self, BenchError> {
        let network = plan.network.as_ref().map(Network::start).transpose()?;
        let seats = plan.seats(network.as_ref().map_or(&[], Network::nodes))?;
        if network.is_none() {
            seats.iter().try_for_each(check_free)?;
        }
        let behind = (0..plan.nodes).filter_map(|index| plan.start_behind(index)).collect::<Result<_, _>>()?;
        let began = Instant::now();
        let mut cluster = Self { plan: plan.clone(), seats, nodes: Vec::new(), behind, began, network };
        for index in 0..plan.nodes {
            let node = cluster.spawn(index)?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    /// Starts all nodes, and waits until they are one cluster.
    pub(crate) fn start_formed(plan: &Plan) -> Result<Self, BenchError> {
        let mut cluster = Self::start(plan)?;
        cluster.wait_formed()?;
        Ok(cluster)
    }

    fn spawn(&self, index: usize) -> Result<Node, BenchError> {
        let Plan { recipe, cpus, overlay, .. } = &self.plan;
        let gone = || BenchError::Usage(format!("there is no node {index}"));
        let seat = self.seats.get(index).ok_or_else(gone)?;
        let fill = |text: &str| recipe.fill(text, &self.seats, index, overlay);
        let files = recipe.files.iter().map(|(name, text)| (name.as_str(), fill(text)));
        let cpus = cpus.get(index % cpus.len().max(1)).map(String::as_str);
        let place = self.network.as_ref().and_then(|network| network.nodes().get(index));
        let place = place.map_or_else(String::new, |place| format!("ip netns exec {} ", place.namespace));
        let before = self.plan.address_behind(index);
        let before = before.map_or_else(String::new, |address| format!("env SEDGE_UPSTREAM__ADDRESS={address} "));
        let command = place + &bound(&(before + &fill(&recipe.command)), cpus);
        let name = format!("{} {}", recipe.name, seat.name);
        let running = Running::spawn(&name, &command, seat.dir.as_ref(), files)?;
        let endpoint = format!("{}:{}", seat.outside, seat.port).parse().map_err(BenchError::Usage)?;
        let api = match recipe.status {
            StatusApi::None => None,
            StatusApi::Sedge => Some(Api::new(format!("http://{}:{}", seat.outside, seat.http_port), None)),
        };
        Ok(Node { endpoint, api, running })
    }

    /// Waits until all nodes are ready and have found each other.
    fn wait_formed(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + FORM;
        let count = self.nodes.len();
        for index in 0..count {
            loop {
                self.check_alive()?;
                let Some(node) = self.nodes.get(index) else { break };
                let ready = match &node.api {
                    Some(api) => {
                        api.status().is_some_and(|status| status.ready)
                            && api.view().is_some_and(|view| view.is_of(count))
                    }
                    None => node.endpoint.resolve().is_ok_and(|address| {
                        std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
                    }),
                };
                if ready {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(node.running.did_not_start());
                }
                std::thread::sleep(TURN);
            }
        }
        // Only messages show it where nobody can be asked, and show it best everywhere.
        while !cross(&self.endpoints())?.is_whole() {
            self.check_alive()?;
            if Instant::now() > deadline {
                let name = &self.plan.recipe.name;
                return Err(BenchError::Broker(format!("{name}: messages do not reach all nodes from all others")));
            }
        }
        Ok(())
    }

    /// Fails with the last words of a node that has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), BenchError> {
        match self.nodes.iter_mut().find_map(|node| node.running.has_ended().then(|| node.running.did_not_start())) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Where clients connect to, by node.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.nodes.iter().map(|node| node.endpoint.clone()).collect()
    }

    /// Processes: `node-1` and so on, and `broker-1` and so on behind them.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let of = |what: &str, index: usize, pid: u32| Process { name: format!("{what}-{}", index + 1), pid };
        let nodes = self.nodes.iter().enumerate().map(|(index, node)| of("node", index, node.running.pid()));
        let behind = self.behind.iter().enumerate().map(|(index, broker)| of("broker", index, broker.id()));
        nodes.chain(behind).collect()
    }

    /// HTTP APIs, by node; none if the recipe has no such thing.
    pub(crate) fn apis(&self) -> Vec<Api> {
        self.nodes.iter().filter_map(|node| node.api.clone()).collect()
    }

    /// Counters of the links of the emulated network since their start.
    pub(crate) fn network(&self) -> Option<NetworkStatus> {
        self.network.as_ref().and_then(|network| network.status().ok())
    }

    /// Descriptions of the nodes, as they report themselves.
    pub(crate) fn describe(&self) -> Vec<NodeInfo> {
        let version = self.plan.version();
        let makes = &self.plan.upstream;
        let describe = |(index, (node, seat)): (usize, (&Node, &Seat))| {
            let status = node.api.as_ref().and_then(Api::status);
            NodeInfo {
                name: seat.name.clone(),
                address: node.endpoint.to_string(),
                version: status.as_ref().map(|status| status.version.clone()).or_else(|| version.clone()),
                overlay: status.map(|status| status.overlay),
                behind: makes.get(index % makes.len().max(1)).cloned(),
            }
        };
        self.nodes.iter().zip(&self.seats).enumerate().map(describe).collect()
    }

    /// Sends a signal to a node.
    pub(crate) fn signal(&self, index: usize, signal: Signal) {
        if let Some(node) = self.nodes.get(index) {
            node.running.signal(signal);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All at once: each would wait for its own end alone.
        for node in &self.nodes {
            node.running.signal(Signal::CONT);
            node.running.signal(Signal::TERM);
        }
        // A frozen one would not see the end of its standard input.
        for broker in &self.behind {
            if let Some(group) = i32::try_from(broker.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::CONT);
            }
        }
        self.nodes.clear();
        // Files that cannot be removed are left to the system.
        let _ = std::fs::remove_dir_all(&self.plan.folder);
    }
}

/// A message of each broker that was to come out at each.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Crossing {
    expected: u64,
    arrived: u64,
}

impl Crossing {
    /// Whether all have come out.
    pub(crate) const fn is_whole(self) -> bool {
        self.arrived == self.expected
    }

    /// For people.
    pub(crate) fn text(self) -> String {
        format!("{} of {} messages came out", self.arrived, self.expected)
    }
}

/// Sends a message with QoS 1 from a client of each of `brokers` to one of each.
pub(crate) fn cross(brokers: &[Endpoint]) -> Result<Crossing, BenchError> {
    let count = u32::try_from(brokers.len()).unwrap_or(u32::MAX);
    let scenario = Scenario {
        name: "crossing".to_owned(),
        publishers: vec![PublisherGroup {
            count,
            topic: "bench/crossing/{i}".to_owned(),
            topics: 1,
            interval_ms: Some(1.0),
            brokers: Placement::Spread,
            probe: false,
        }],
        subscribers: vec![SubscriberGroup { count, filter: "bench/crossing/#".to_owned(), brokers: Placement::Spread }],
        messages: Some(1),
        qos: 1,
        warmup_s: 0.0,
        drain_s: CROSSING_S,
        ..Scenario::default()
    };
    let options = Options { brokers: brokers.to_vec(), threads: 1, ..Options::default() };
    let outcome = run(&scenario, &options, &mut |_| ())?;
    let (count, tally) = (u64::from(count), outcome.tally);
    Ok(Crossing { expected: count * count, arrived: tally.received.saturating_sub(tally.duplicates) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(nodes: usize, port: u16) -> Plan {
        Plan {
            recipe: ClusterRecipe::default(),
            nodes,
            port,
            cpus: Vec::new(),
            overlay: String::new(),
            upstream: Vec::new(),
            strongest: None,
            network: None,
            folder: "/nowhere".into(),
        }
    }

    #[test]
    fn nodes_have_ports_of_their_own_or_the_plan_is_refused() {
        let seats = plan(3, 20_000).seats(&[]).expect("ports");
        let ports: Vec<[u16; 3]> = seats.iter().map(|seat| [seat.port, seat.cluster_port, seat.http_port]).collect();
        assert_eq!(ports, [[20_000, 20_100, 20_200], [20_001, 20_101, 20_201], [20_002, 20_102, 20_202]]);
        for (nodes, port) in [(0, 20_000), (65, 20_000), (5, 65_400)] {
            assert!(plan(nodes, port).seats(&[]).is_err(), "{nodes} from {port}");
        }
    }

    #[test]
    fn a_port_in_use_is_named() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = holder.local_addr().expect("an address").port();
        let seat = plan(1, 20_000).seats(&[]).expect("a seat").remove(0);
        let error = check_free(&Seat { port, ..seat }).expect_err("in use").to_string();
        assert!(error.contains(&port.to_string()) && error.contains("--port"), "{error}");
    }

    #[test]
    fn a_node_that_ends_at_once_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let recipe = ClusterRecipe {
            name: "bad".to_owned(),
            command: "sh -c 'echo no such option >&2; exit 1'".to_owned(),
            ..ClusterRecipe::default()
        };
        let port = 21_000 + u16::try_from(std::process::id() % 9_000).expect("small");
        let plan = Plan { recipe, folder: folder.path().join("x"), ..plan(2, port) };
        let error = Cluster::start_formed(&plan).err().expect("an error").to_string();
        assert!(error.contains("did not start: no such option"), "{error}");
    }
}
