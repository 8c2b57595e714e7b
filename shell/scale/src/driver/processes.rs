//! The driver for processes of this machine. Nodes outlive the controller, so that the next one finds them serving.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sedge_scale::ActionId;
use sedge_scale::site::{MemberSpec, Plain};

use super::{Driver, World, empty};
use crate::network::{Nodes, free_ports};
use crate::process::{GRACE, Proof};
use crate::state::NodeRecord;

mod cgroup;

/// How long a node may take until it is ready.
const READY: Duration = Duration::from_secs(40);
const TURN: Duration = Duration::from_millis(20);
/// Settings of the surroundings that cannot hold for several nodes at once.
const NOT_INHERITED: [&str; 3] = ["SEDGE_CLUSTER__KEY_FILE", "SEDGE_CLUSTER__ADVERTISE", "SEDGE_NODE__ID"];

/// Starts and ends processes.
#[derive(Debug)]
pub(super) struct Processes {
    world: World,
    nodes: Nodes,
    /// Those that this controller started itself: somebody has to wait for them when they end.
    children: Mutex<BTreeMap<String, Child>>,
    /// One node at a time looks for ports, so that no two find the same.
    planning: Mutex<()>,
}

impl Processes {
    pub(super) fn new(world: World) -> Self {
        let nodes = Nodes::new(&world.state().token, Duration::from_secs(5));
        Self { world, nodes, children: Mutex::new(BTreeMap::new()), planning: Mutex::new(()) }
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<String, Child>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for children that have ended, so that nothing of them is left.
    fn reap(&self) {
        self.children().retain(|_, child| matches!(child.try_wait(), Ok(None)));
    }

    fn dir(&self, node: &str) -> PathBuf {
        self.world.home.dir().join(node)
    }

    /// The record of a node with free ports, if it has none yet.
    fn plan(&self, group: &str, node: &str) -> Result<NodeRecord, String> {
        let _turn = self.planning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = self.world.node(node) {
            return Ok(record);
        }
        let taken: BTreeSet<u16> = {
            let state = self.world.state();
            let places = state.nodes.values().flat_map(|node| [&node.mqtt, &node.http, &node.cluster]);
            places.filter_map(|place| place.rsplit_once(':').and_then(|(_, port)| port.parse().ok())).collect()
        };
        let [mqtt, http, cluster] = free_ports(&taken).ok_or("there are no free ports from 20000 to 31999")?;
        let place = |port: u16| format!("127.0.0.1:{port}");
        let (group, mqtt, http, cluster) = (group.to_owned(), place(mqtt), place(http), place(cluster));
        let record = NodeRecord { group, mqtt, http, cluster, ..NodeRecord::default() };
        self.world.change(|state| drop(state.nodes.insert(node.to_owned(), record.clone())))?;
        Ok(record)
    }

    fn start(&self, node: &str, record: &NodeRecord, spec: &MemberSpec) -> Result<Proof, String> {
        let dir = self.dir(node);
        let failed = |what: &str, error: std::io::Error| format!("{what} {}: {error}", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|error| failed("cannot make", error))?;
        let log = fs::File::options().create(true).append(true).mode(0o600).open(dir.join("log"));
        let log = log.map_err(|error| failed("cannot write a log in", error))?;
        let errors = log.try_clone().map_err(|error| failed("cannot write a log in", error))?;
        let program = std::env::current_exe().map_err(|error| format!("cannot find the program itself: {error}"))?;
        let mut command = Command::new(program);
        command.arg("serve");
        if let Some(config) = &spec.config {
            command.arg("--config").arg(self.world.beside_site(config));
        }
        let port = |place: &str| place.rsplit_once(':').map_or_else(String::new, |(_, port)| port.to_owned());
        command.args(["--name", node, "--bind", "127.0.0.1", "--port", &port(&record.mqtt)]);
        command.args(["--http-port", &port(&record.http), "--cluster-port", &port(&record.cluster)]);
        command.arg("--data-dir").arg(&dir).arg("--own-session");
        let (key, token, seeds) = {
            let state = self.world.state();
            // Of nodes that start at the same time each but the first finds another one here.
            let others = state.nodes.iter().filter(|(name, other)| *name != node && !other.cluster.is_empty());
            let seeds: Vec<String> = others.map(|(_, other)| other.cluster.clone()).collect();
            (state.cluster_key.clone(), state.token.clone(), seeds)
        };
        command.args(seeds.iter().flat_map(|seed| ["--seed", seed]));
        command.env("SEDGE_CLUSTER__KEY", key).env("SEDGE_CLUSTER__BIND", "127.0.0.1");
        command.env("SEDGE_HTTP__ENABLED", "true").env("SEDGE_HTTP__BIND", "127.0.0.1").env("SEDGE_HTTP__TOKEN", token);
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let child = command.spawn().map_err(|error| format!("cannot start {node}: {error}"))?;
        let proof = Proof::of(child.id());
        self.children().insert(node.to_owned(), child);
        let proof = proof.ok_or_else(|| self.obituary(node))?;
        if spec.cpu.is_some() || spec.memory.is_some() {
            cgroup::hold(&self.world.home, node, proof.pid, spec).inspect_err(|_| {
                proof.end(GRACE);
            })?;
        }
        Ok(proof)
    }

    fn obituary(&self, node: &str) -> String {
        let log = self.dir(node).join("log");
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        let last: Vec<&str> = lines.into_iter().rev().collect();
        format!("{node} has ended; the end of {}: {}", log.display(), last.join(" / "))
    }

    fn wait_ready(&self, node: &str, http: &str, proof: &Proof) -> Result<(), String> {
        let deadline = Instant::now() + READY;
        while !self.nodes.is_ready(http) {
            if !proof.is_running() {
                self.reap();
                return Err(self.obituary(node));
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "{node} is not ready after {} s; its log is {}",
                    READY.as_secs(),
                    self.dir(node).join("log").display()
                ));
            }
            sleep(TURN);
        }
        Ok(())
    }

    fn forget(&self, node: &str) -> Result<(), String> {
        self.reap();
        cgroup::release(&self.world.home, node);
        let dir = self.dir(node);
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
        }
        self.world.change(|state| drop(state.nodes.remove(node)))
    }
}

impl Driver for Processes {
    /// The machine itself is network, image and storage; metering and alarms are parts of the controller.
    fn provide(&self, _name: &str, _plain: &Plain) -> Result<(), String> {
        Ok(())
    }

    fn create(&self, _action: ActionId, group: &str, node: &str, spec: &MemberSpec) -> Result<(), String> {
        self.reap();
        let record = self.plan(group, node)?;
        let running = record.process.clone().filter(Proof::is_running);
        let proof = match running {
            Some(proof) => proof,
            None => self.start(node, &record, spec)?,
        };
        let kept = proof.clone();
        self.world.change(|state| {
            state.nodes.entry(node.to_owned()).and_modify(|record| record.process = Some(kept)).or_default().served
        })?;
        self.wait_ready(node, &record.http, &proof)?;
        self.world.change(|state| {
            state.nodes.entry(node.to_owned()).and_modify(|record| record.served = true).or_default().served
        })?;
        Ok(())
    }

    fn resize(&self, node: &str, cpu: f64) -> Result<(), String> {
        let running = self.world.node(node).and_then(|record| record.process).filter(Proof::is_running);
        let proof = running.ok_or_else(|| format!("{node} does not run"))?;
        cgroup::hold(&self.world.home, node, proof.pid, &MemberSpec { cpu: Some(cpu), ..MemberSpec::default() })
    }

    fn remove(&self, node: &str) -> Result<(), String> {
        let Some(record) = self.world.node(node) else { return Ok(()) };
        let Some(proof) = record.process.clone().filter(Proof::is_running) else {
            self.reap();
            // The data of a node that ended by itself is wanted when the node is started again.
            return if record.served {
                Err(format!("{node} has ended before it was empty"))
            } else {
                self.forget(node)
            };
        };
        empty(&self.nodes, node, &record.http, || !proof.is_running())?;
        self.forget(node)
    }

    fn destroy(&self, node: &str) -> Result<(), String> {
        if let Some(proof) = self.world.node(node).and_then(|record| record.process)
            && !proof.end(GRACE)
        {
            return Err(format!("{node} (pid {}) does not end", proof.pid));
        }
        self.forget(node)
    }

    fn release(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }

    fn lost(&self, node: &str) -> Option<String> {
        self.reap();
        let proof = self.world.node(node)?.process?;
        (!proof.is_running()).then(|| format!("its process (pid {}) has ended", proof.pid))
    }
}
