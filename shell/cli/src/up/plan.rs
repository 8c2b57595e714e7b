//! Names, ports and directories of a cluster, before anything is started.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use super::args::UpArgs;
use crate::failure::Failure;

/// One node to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) mqtt: u16,
    /// For WebSocket, if wanted or possible.
    pub(super) ws: Option<u16>,
    /// Whether only the page of the node itself may use that in a browser.
    pub(super) ws_for_page: bool,
    pub(super) http: u16,
    pub(super) cluster: u16,
    pub(super) dir: PathBuf,
    /// The broker behind it, if one is wanted.
    pub(super) broker: Option<BrokerPlan>,
}

/// A broker behind a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokerPlan {
    /// Name of its recipe.
    pub(super) make: String,
    /// Make and version in words, once they are found out.
    pub(super) described: Option<String>,
    pub(super) port: u16,
    pub(super) dir: PathBuf,
}

impl NodePlan {
    /// Where its output goes.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(super) fn api(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    fn ports(&self) -> impl Iterator<Item = (&'static str, &'static str, u16)> {
        let ws = self.ws.map(|port| ("WebSocket", "--ws-port", port));
        let broker = self.broker.as_ref().map(|broker| ("broker", "--upstream-port", broker.port));
        [("MQTT", "--port", self.mqtt), ("HTTP", "--http-port", self.http), ("cluster", "--cluster-port", self.cluster)]
            .into_iter()
            .chain(ws)
            .chain(broker)
    }
}

/// The nodes that `args` ask for, in `dir`.
pub(super) fn plan(args: &UpArgs, dir: &Path) -> Result<Vec<NodePlan>, Failure> {
    let port = |flag: &str, first: u16, index: u16| {
        let too_high =
            || Failure::usage(format!("{flag} {first}: {} nodes need ports above 65535; lower it", args.nodes));
        first.checked_add(index).ok_or_else(too_high)
    };
    let cluster_port = args.cluster_port.unwrap_or_else(|| beside(args.port, args.nodes, APART));
    let broker_port = args.upstream_port.unwrap_or_else(|| beside(args.port, args.nodes, BROKERS_APART));
    let mut nodes = Vec::new();
    for index in 0..args.nodes {
        let name = format!("node-{}", index + 1);
        let make = args.upstream.iter().cycle().nth(usize::from(index)).filter(|make| !make.is_empty());
        let broker = make
            .map(|make| {
                let port = port("--upstream-port", broker_port, index)?;
                Ok::<_, Failure>(BrokerPlan {
                    make: make.clone(),
                    described: None,
                    port,
                    dir: dir.join(&name).join("upstream"),
                })
            })
            .transpose()?;
        nodes.push(NodePlan {
            broker,
            mqtt: port("--port", args.port, index)?,
            ws: args.ws_port.map(|first| port("--ws-port", first, index)).transpose()?,
            ws_for_page: false,
            http: port("--http-port", args.http_port, index)?,
            cluster: port("--cluster-port", cluster_port, index)?,
            dir: dir.join(&name),
            name,
        });
    }
    check_apart(&nodes)?;
    Ok(nodes)
}

/// Finds out which version each broker has, once for each make.
pub(super) fn describe_brokers(nodes: &mut [NodePlan]) {
    let mut known = BTreeMap::new();
    for broker in nodes.iter_mut().filter_map(|node| node.broker.as_mut()) {
        let make = &broker.make;
        broker.described = known.entry(make.clone()).or_insert_with(|| sedge_bench::broker_make(make)).clone();
    }
}

/// Gives the nodes a WebSocket for their dashboards, on the ports behind those for HTTP, unless the user has chosen ports or those are taken.
pub(super) fn add_websockets(nodes: &mut [NodePlan]) {
    let Some(last) = nodes.iter().map(|node| node.http).max() else { return };
    let taken: BTreeSet<u16> = nodes.iter().flat_map(NodePlan::ports).map(|(.., port)| port).collect();
    let ports: Vec<u16> = (1..).map_while(|step| last.checked_add(step)).take(nodes.len()).collect();
    let usable = |port: &u16| !taken.contains(port) && listen(*port, false).is_ok();
    if nodes.iter().any(|node| node.ws.is_some()) || ports.len() < nodes.len() || !ports.iter().all(usable) {
        return;
    }
    for (node, port) in nodes.iter_mut().zip(ports) {
        (node.ws, node.ws_for_page) = (Some(port), true);
    }
}

/// How far the ports for other nodes are from those for clients, as 7883 is from 1883.
const APART: u16 = 6_000;

/// How far the ports of brokers behind the nodes are from those for clients.
const BROKERS_APART: u16 = 4_000;

/// The first port for other nodes, or brokers, if none is given: two clusters that differ in `--port` differ in it, too.
fn beside(port: u16, nodes: u16, apart: u16) -> u16 {
    let above = port.checked_add(apart).filter(|first| first.checked_add(nodes).is_some());
    above.unwrap_or_else(|| port.saturating_sub(apart))
}

/// Ranges of ports that start too close to each other overlap.
fn check_apart(nodes: &[NodePlan]) -> Result<(), Failure> {
    let mut taken = BTreeMap::new();
    for node in nodes {
        for (_, flag, port) in node.ports() {
            if let Some(other) = taken.insert(port, flag) {
                let count = nodes.len();
                let message =
                    format!("{other} and {flag} both lead to port {port} with {count} nodes; move one of them");
                return Err(Failure::usage(message));
            }
        }
    }
    Ok(())
}

/// Fails unless every port is free.
pub(super) fn check_free(nodes: &[NodePlan]) -> Result<(), Failure> {
    for node in nodes {
        for (what, flag, port) in node.ports() {
            let udp = flag == "--cluster-port";
            if let Err(error) = listen(port, udp) {
                let (name, why) = (&node.name, why_not(&error));
                return Err(Failure::cannot_start(format!(
                    "{what} port {port} of {name} {why}; choose another first port with {flag}"
                )));
            }
        }
    }
    Ok(())
}

fn why_not(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::AddrInUse {
        return "is in use by another program".to_owned();
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return "needs a privilege, as all below 1024 do".to_owned();
    }
    format!("cannot be used: {error}")
}

fn listen(port: u16, udp: bool) -> io::Result<()> {
    let address = (Ipv4Addr::LOCALHOST, port);
    TcpListener::bind(address)?;
    if udp {
        UdpSocket::bind(address)?;
    }
    Ok(())
}

/// Where a cluster with this first port lives if no directory is given.
pub(super) fn default_dir(port: u16) -> PathBuf {
    state_dir().join(format!("up-{port}"))
}

/// The folder for files that this user's clusters leave to be found without a flag.
pub(super) fn state_dir() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = var("XDG_STATE_HOME").or_else(|| var("HOME").map(|home| home.join(".local/state")));
    state.unwrap_or_else(std::env::temp_dir).join("sedge")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(nodes: u16, port: u16, http_port: u16, cluster_port: u16) -> UpArgs {
        let cluster_port = Some(cluster_port);
        UpArgs {
            nodes,
            port,
            ws_port: None,
            http_port,
            cluster_port,
            overlay: None,
            copies: None,
            upstream: Vec::new(),
            upstream_port: None,
            data_dir: None,
            detach: false,
            json: false,
        }
    }

    #[test]
    fn nodes_have_ascending_ports_and_own_directories() {
        let nodes = plan(&args(3, 1883, 8080, 7883), Path::new("/d")).unwrap();
        let last = nodes.last().unwrap();
        assert_eq!((last.mqtt, last.http, last.cluster), (1885, 8082, 7885));
        assert_eq!(last.log(), Path::new("/d/node-3/log"));
    }

    #[test]
    fn pages_get_a_websocket_where_there_is_room() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let free = holder.local_addr().unwrap().port();
        let with = |args: &UpArgs| {
            let mut nodes = plan(args, Path::new("/d")).unwrap();
            add_websockets(&mut nodes);
            nodes.iter().map(|node| (node.ws, node.ws_for_page)).collect::<Vec<_>>()
        };
        assert_eq!(with(&args(1, 1883, free - 1, 7883)), [(None, false)], "the port is taken");
        drop(holder);
        assert_eq!(with(&args(1, 1883, free - 1, 7883)), [(Some(free), true)]);
        assert_eq!(with(&args(2, free, free - 2, 7883)), [(None, false); 2], "it is that of another listener");
        let chosen = UpArgs { ws_port: Some(9001), ..args(2, 1883, 8080, 7883) };
        assert_eq!(with(&chosen), [(Some(9001), false), (Some(9002), false)]);
        assert_eq!(with(&args(2, 1883, 65_533, 7883)), [(None, false); 2]);
    }

    #[test]
    fn the_port_for_other_nodes_follows_that_for_clients() {
        for (port, cluster) in [(1883, 7883), (21_883, 27_883), (59_532, 65_532), (59_533, 53_533), (65_000, 59_000)] {
            let nodes = plan(&UpArgs { cluster_port: None, ..args(3, port, 8080, 1) }, Path::new("/d")).unwrap();
            assert_eq!(nodes[0].cluster, cluster, "{port}");
        }
    }

    #[test]
    fn impossible_ports_name_their_flags() {
        let high = plan(&args(3, 65_534, 8080, 7883), Path::new("/d")).unwrap_err();
        assert!(high.code == 2 && high.message.unwrap().starts_with("--port 65534"));
        let close = plan(&args(3, 1883, 1884, 7883), Path::new("/d")).unwrap_err().message.unwrap();
        assert!(close.contains("--port") && close.contains("--http-port") && close.contains("1884"), "{close}");
    }

    #[test]
    fn a_port_in_use_is_named_with_its_flag() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        let node = NodePlan {
            mqtt: taken,
            http: 0,
            cluster: 0,
            ..plan(&args(1, 1883, 8080, 7883), Path::new("/d")).unwrap()[0].clone()
        };
        let failure = check_free(&[node]).unwrap_err();
        assert_eq!(failure.code, 3);
        let message = failure.message.unwrap();
        assert!(message.contains(&taken.to_string()) && message.contains("--port"), "{message}");
    }
}
