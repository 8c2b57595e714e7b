//! The driver that calls a program of the user's: `PROGRAM VERB` with JSON on its standard input.
//!
//! Verbs: `provide`, `create`, `resize`, `remove`, `destroy`, `release`, `lost`. `create` answers `{"mqtt": "host:port", "http": "host:port",
//! "cluster": "host:port"}` when the node serves; `lost` answers the reason, or nothing. Another exit code than 0 is a failure, and the
//! text on standard error is its reason.

use std::io::Write;
use std::process::{Command, Stdio};

use sedge_scale::ActionId;
use sedge_scale::site::{MemberSpec, Plain};
use serde_json::{Value, json};

use super::{Driver, World};
use crate::state::NodeRecord;

/// Calls a program.
#[derive(Debug)]
pub(super) struct Exec {
    world: World,
    program: String,
}

impl Exec {
    pub(super) const fn new(world: World, program: String) -> Self {
        Self { world, program }
    }

    fn call(&self, verb: &str, input: &Value) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("cannot run {} {verb}: {error}", self.program);
        let mut child = Command::new(&self.program)
            .arg(verb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input may still do its work.
            let _ = stdin.write_all(input.to_string().as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{} {verb}: {} ({})", self.program, said.trim(), output.status))
    }
}

impl Driver for Exec {
    fn provide(&self, name: &str, plain: &Plain) -> Result<(), String> {
        let input = json!({ "resource": name, "type": plain.kind.to_string(), "fields": plain.fields });
        self.call("provide", &input).map(drop)
    }

    fn create(&self, action: ActionId, group: &str, node: &str, spec: &MemberSpec) -> Result<(), String> {
        let (key, token, seeds) = {
            let state = self.world.state();
            let others = state.nodes.iter().filter(|(name, _)| *name != node);
            let seeds: Vec<String> = others.map(|(_, other)| other.cluster.clone()).collect();
            (state.cluster_key.clone(), state.token.clone(), seeds)
        };
        let input = json!({
            "action": action.0, "group": group, "node": node, "seeds": seeds, "cluster_key": key, "token": token,
            "cpu": spec.cpu, "memory": spec.memory, "config": spec.config,
        });
        let answer: Value = serde_json::from_str(&self.call("create", &input)?)
            .map_err(|error| format!("{} create answers no JSON: {error}", self.program))?;
        let place = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let record = NodeRecord {
            group: group.to_owned(),
            process: None,
            mqtt: place("mqtt"),
            http: place("http"),
            cluster: place("cluster"),
            served: true,
        };
        if record.http.is_empty() || record.mqtt.is_empty() {
            return Err(format!("{} create does not answer with mqtt and http", self.program));
        }
        self.world.change(|state| drop(state.nodes.insert(node.to_owned(), record)))
    }

    fn resize(&self, node: &str, cpu: f64) -> Result<(), String> {
        self.call("resize", &json!({ "node": node, "cpu": cpu })).map(drop)
    }

    fn remove(&self, node: &str) -> Result<(), String> {
        self.call("remove", &json!({ "node": node }))?;
        self.world.change(|state| drop(state.nodes.remove(node)))
    }

    fn destroy(&self, node: &str) -> Result<(), String> {
        self.call("destroy", &json!({ "node": node }))?;
        self.world.change(|state| drop(state.nodes.remove(node)))
    }

    fn release(&self, name: &str) -> Result<(), String> {
        self.call("release", &json!({ "resource": name })).map(drop)
    }

    fn lost(&self, node: &str) -> Option<String> {
        self.call("lost", &json!({ "node": node })).ok().filter(|why| !why.is_empty())
    }
}
