//! All nodes of the cluster together.

use std::fmt::Write;
use std::thread;
use std::time::{Duration, Instant};

use sedge_controller::process::{GRACE, wait_until};

use super::broker::Broker;
use super::node::Node;
use super::plan::NodePlan;
use super::token::Token;
use crate::api::Api;
use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;

/// How long the nodes may take until all are ready.
const READY: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_millis(20);
/// The secret that the nodes share, and nobody else has to know, has 256 bits.
const KEY_WORDS: usize = 4;

/// Nodes that were started. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Cluster {
    nodes: Vec<Node>,
    /// Brokers behind them; they end after the nodes.
    brokers: Vec<Broker>,
}

impl Cluster {
    /// Starts a node for each plan, each with all others as seeds and with these variables of its environment.
    pub(super) fn start(
        plans: &[NodePlan],
        settings: &[(&str, String)],
        token: Option<&Token>,
        detached: bool,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let key = random_hex(KEY_WORDS)?;
        let mut cluster = Self { nodes: Vec::new(), brokers: Vec::new() };
        for plan in plans {
            if let Some(broker) = &plan.broker {
                cluster.brokers.push(Broker::start(broker, &plan.name, detached)?);
            }
        }
        for broker in &mut cluster.brokers {
            broker.wait_ready(stop)?;
        }
        for plan in plans {
            let others = plans.iter().filter(|other| other.cluster != plan.cluster);
            let seeds: Vec<String> = others.map(|other| format!("127.0.0.1:{}", other.cluster)).collect();
            cluster.nodes.push(Node::start(plan, &seeds, &key, settings, token.map(Token::file), detached)?);
        }
        Ok(cluster)
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// Waits until each node says that it is ready.
    pub(super) fn wait_ready(&mut self, token: Option<&Token>, stop: &Stop) -> Result<(), Failure> {
        let deadline = Instant::now() + READY;
        for index in 0..self.nodes.len() {
            let Some(api) =
                self.nodes.get(index).map(|node| Api::new(&node.plan.api(), token.map(Token::text))).transpose()?
            else {
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
        self.brokers.iter_mut().for_each(Broker::release);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A secret of so many times 64 bits.
pub(super) fn random_hex(words: usize) -> Result<String, Failure> {
    let mut key = String::new();
    for _ in 0..words {
        let word = getrandom::u64()
            .map_err(|error| Failure::cannot_start(format!("the system has no random numbers: {error}")))?;
        let _ = write!(key, "{word:016x}");
    }
    Ok(key)
}
