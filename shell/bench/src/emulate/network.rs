//! An emulated network from its making to its removal.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use tun_rs::DeviceBuilder;

use super::control::Control;
use super::engine::{Handle, spawn};
use super::fabric::Fabric;
use super::live::{Belongings, Guard};
use super::place::{Place, stale};
use super::request::Request;
use super::setting::NetworkPlan;
use super::space::{Space, exists, remove, unread};
use super::status::{EmulatorStatus, NetworkStatus, NodeStatus};
use crate::error::BenchError;

/// Packets that a node's kernel holds for the emulator. What comes faster than it reads is dropped there.
const TX_QUEUE: u32 = 2_000;

/// A node of an emulated network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number, from 1.
    pub number: usize,
    /// Name of its network namespace.
    pub namespace: String,
    /// Address on the emulated network: other nodes reach it here.
    pub site: Ipv4Addr,
    /// Address outside of the emulated network: clients on this machine reach it here.
    pub host: Ipv4Addr,
}

impl Node {
    /// A command that runs `program` on this node.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    fn status(&self) -> NodeStatus {
        NodeStatus { node: self.number, namespace: self.namespace.clone(), site: self.site, host: self.host }
    }
}

/// A network that is emulated while this value lives. With it go its namespaces and the processes that still run in them.
///
/// A process that is killed leaves its namespaces behind: [`Network::stale`] finds them.
pub struct Network {
    // In the order in which they have to go.
    guard: Option<Guard>,
    control: Option<Control>,
    engine: Option<(Handle, JoinHandle<()>)>,
    spaces: Vec<Space>,
    nodes: Vec<Node>,
    socket: PathBuf,
    seed: u64,
    place: Place,
}

impl Network {
    /// Makes the namespaces and starts to emulate. Needs root, the command `ip` and `/dev/net/tun`.
    pub fn start(plan: &NetworkPlan) -> Result<Self, BenchError> {
        plan.check().map_err(BenchError::Usage)?;
        if let Some(reason) = Self::unable() {
            return Err(BenchError::Network(reason));
        }
        let name =
            |number: u8, node: usize| format!("{}{node}", plan.name.clone().unwrap_or_else(|| Place::prefix(number)));
        let place = Place::take(|number| (1..=plan.nodes).map(|node| name(number, node)).collect())?;
        let prefix = Place::prefix(place.number());
        let (mut nodes, mut spaces, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for number in 1..=plan.nodes {
            let last = u8::try_from(number).unwrap_or(u8::MAX);
            let (site, host) = (place.site(last), place.host(last));
            let namespace = name(place.number(), number);
            let space = Space::new(&namespace)?;
            space.connect(&format!("{prefix}{number}h"), place.outside(), host)?;
            let device = format!("{prefix}{number}t");
            // It stays open while its device goes to the namespace: no thread has to enter that.
            let tun = DeviceBuilder::new().name(&device).tx_queue_len(TX_QUEUE).enable(false).build_sync();
            devices.push(tun.map_err(BenchError::system("a TUN device"))?);
            space.adopt(&device, site)?;
            spaces.push(space);
            nodes.push(Node { number, namespace, site, host });
        }
        let engine = spawn(Fabric::new(plan), devices)?;
        let socket = place.socket();
        let mut network =
            Self { control: None, engine: Some(engine), spaces, nodes, socket, seed: plan.seed, place, guard: None };
        network.listen()?;
        Ok(network)
    }

    fn listen(&mut self) -> Result<(), BenchError> {
        let Some((handle, _)) = &self.engine else { return Ok(()) };
        let (handle, describe) = (handle.clone(), self.describe());
        let serve = move |request| {
            if request != Request::Status {
                return handle.request(request).map(|()| None);
            }
            complete(&handle, describe.clone()).map(Some)
        };
        self.control = Some(Control::listen(self.socket.clone(), Arc::new(serve))?);
        Ok(())
    }

    /// Why no network can be emulated here, if none can.
    pub fn unable() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("it needs root".to_owned());
        }
        if !Path::new("/dev/net/tun").exists() {
            return Some("it needs /dev/net/tun, which is not there".to_owned());
        }
        match Command::new("ip").args(["netns", "list"]).output() {
            Ok(done) if done.status.success() => None,
            Ok(done) => Some(format!("ip netns: {}", String::from_utf8_lossy(&done.stderr).trim())),
            Err(error) => Some(format!("it needs the command ip (package iproute2): {error}")),
        }
    }

    /// From here on SIGINT and SIGTERM remove the network before they end this process. For programs that do not wait for these
    /// signals themselves.
    pub fn remove_on_signals(&mut self) -> Result<(), BenchError> {
        let namespaces = self.nodes.iter().map(|node| node.namespace.clone()).collect();
        self.guard = Some(Guard::new(Belongings { namespaces, files: self.place.files() })?);
        Ok(())
    }

    /// The nodes, from number 1.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Where other programs send requests to: see [`super::ask`].
    pub fn control(&self) -> &Path {
        &self.socket
    }

    /// Has a request done.
    pub fn request(&self, request: Request) -> Result<(), BenchError> {
        self.handle()?.request(request)
    }

    /// Status of the network: the counters of every link since its start.
    pub fn status(&self) -> Result<NetworkStatus, BenchError> {
        complete(self.handle()?, self.describe())
    }

    fn handle(&self) -> Result<&Handle, BenchError> {
        let engine = self.engine.as_ref().ok_or_else(|| BenchError::Network("it has ended".to_owned()))?;
        Ok(&engine.0)
    }

    /// The part of the status that does not change.
    fn describe(&self) -> NetworkStatus {
        NetworkStatus {
            seed: self.seed,
            control: self.socket.display().to_string(),
            nodes: self.nodes.iter().map(Node::status).collect(),
            links: Vec::new(),
            emulator: EmulatorStatus::default(),
        }
    }

    /// Namespaces that are still there of networks whose process was killed.
    pub fn stale() -> Vec<String> {
        stale().into_iter().flat_map(|(_, names)| names).filter(|name| exists(name)).collect()
    }

    /// Removes what networks left whose process was killed, with the processes in it. Gives the names of the namespaces.
    pub fn clean() -> Result<Vec<String>, BenchError> {
        let mut removed = Vec::new();
        for (path, names) in stale() {
            for name in names.into_iter().filter(|name| exists(name)) {
                remove(&name)?;
                removed.push(name);
            }
            std::fs::remove_file(&path).map_err(|source| BenchError::File { path, source })?;
        }
        Ok(removed)
    }
}

/// Adds the changing part to the status of a network.
fn complete(handle: &Handle, mut status: NetworkStatus) -> Result<NetworkStatus, BenchError> {
    (status.links, status.emulator) = handle.status()?;
    for node in &status.nodes {
        status.emulator.unread += unread(&node.namespace)?;
    }
    Ok(status)
}

impl Drop for Network {
    fn drop(&mut self) {
        self.control = None;
        // All at once, and while packets still pass: brokers say goodbye to each other.
        for space in &self.spaces {
            space.ask_to_end();
        }
        self.spaces.clear();
        if let Some((handle, thread)) = self.engine.take() {
            handle.end();
            let _ = thread.join();
        }
    }
}
