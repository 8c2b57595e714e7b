//! All nodes of the cluster together.

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use sedge_controller::process::{GRACE, wait_until};

use super::node::Node;
use super::plan::NodePlan;
use crate::api::Api;
use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;

/// How long the nodes may take until all are ready.
const READY: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_millis(20);
/// 256 bits.
const KEY_WORDS: usize = 4;

/// Nodes that were started. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Cluster {
    nodes: Vec<Node>,
}

impl Cluster {
    /// Starts a node for each plan, each with all others as seeds.
    pub(super) fn start(plans: &[NodePlan], overlay: Option<&str>, detached: bool) -> Result<Self, Failure> {
        let key = random_key()?;
        let mut cluster = Self { nodes: Vec::new() };
        for plan in plans {
            let others = plans.iter().filter(|other| other.cluster != plan.cluster);
            let seeds: Vec<String> = others.map(|other| format!("127.0.0.1:{}", other.cluster)).collect();
            cluster.nodes.push(Node::start(plan, &seeds, &key, overlay, detached)?);
        }
        Ok(cluster)
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Waits until each node says that it is ready.
    pub(super) fn wait_ready(&mut self, stop: &Stop) -> Result<(), Failure> {
        let deadline = Instant::now() + READY;
        for index in 0..self.nodes.len() {
            let Some(api) = self.nodes.get(index).map(|node| Api::new(&node.plan.api(), None)).transpose()? else {
                break;
            };
            while !api.is_ready() {
                if let Some(obituary) = self.first_ended() {
                    return Err(Failure::cannot_start(obituary));
                }
                if stop.told() {
                    return Err(Failure::failed("stopped before the cluster was ready"));
                }
                if Instant::now() >= deadline {
                    return Err(self.not_ready(index));
                }
                thread::sleep(TURN);
            }
        }
        Ok(())
    }

    fn first_ended(&mut self) -> Option<String> {
        self.nodes.iter_mut().find_map(|node| node.ended().map(|status| node.obituary(status)))
    }

    fn not_ready(&self, index: usize) -> Failure {
        let Some(node) = self.nodes.get(index) else { return Failure::cannot_start("a node is not ready") };
        let (name, seconds, log) = (&node.plan.name, READY.as_secs(), node.plan.log());
        Failure::cannot_start(format!("{name} is not ready after {seconds} s; its log is {}", log.display()))
    }

    /// Watches the nodes until a signal comes or none is left.
    pub(super) fn watch(&mut self, stop: &Stop) -> Result<(), Failure> {
        let mut reported = vec![false; self.nodes.len()];
        while !stop.told() {
            for (node, reported) in self.nodes.iter_mut().zip(&mut reported) {
                if let Some(status) = node.ended()
                    && !*reported
                {
                    *reported = true;
                    out::note(&node.obituary(status));
                }
            }
            if reported.iter().all(|reported| *reported) {
                return Err(Failure::failed("all nodes have ended"));
            }
            thread::sleep(TURN);
        }
        Ok(())
    }

    /// Tells all nodes to end, and ends those that do not in time; returns the names of the latter.
    pub(super) fn stop(&mut self) -> Vec<String> {
        self.nodes.iter_mut().for_each(Node::tell_to_stop);
        wait_until(GRACE, || self.nodes.iter_mut().all(|node| node.ended().is_some()));
        let late = self.nodes.iter_mut().filter_map(|node| {
            let late = node.ended().is_none();
            node.kill();
            late.then(|| node.plan.name.clone())
        });
        late.collect()
    }

    /// Lets the nodes go on without this process.
    pub(super) fn release(mut self) {
        self.nodes.clear();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The secret the nodes share; nobody else has to know it.
fn random_key() -> Result<String, Failure> {
    let mut key = String::new();
    for _ in 0..KEY_WORDS {
        let word = getrandom::u64()
            .map_err(|error| Failure::cannot_start(format!("the system has no random numbers: {error}")))?;
        let _ = write!(key, "{word:016x}");
    }
    Ok(key)
}
