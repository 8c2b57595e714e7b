//! The driver for services of a Docker swarm: a service for each group, whose replicas are its nodes. Tasks publish their ports at the
//! machines that they run on, so that the controller and the load balancer reach each of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sedge_scale::ActionId;
use sedge_scale::site::{Kind, MemberSpec, Plain, PlainKind, Site};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::docker::Engine;
use super::{Driver, World, empty};
use crate::network::{Nodes, segment};
use crate::state::NodeRecord;

/// How long a task may take until it is ready: its image may have to be fetched.
const READY: Duration = Duration::from_mins(5);
/// How long a task may take to be gone.
const ENDED: Duration = Duration::from_mins(1);
const TURN: Duration = Duration::from_millis(200);
/// Nanoseconds that a container is given to end.
const GRACE: u64 = 10_000_000_000;
/// Attempts to change a service that somebody else changes, too.
const MAX_ATTEMPTS: u32 = 10;
/// Name of the network of sites that name none.
const NETWORK: &str = "default-network";
const IMAGE: &str = "sedge:latest";
/// Where a node finds the configuration that its site names.
const CONFIG: &str = "/sedge.toml";
const MQTT: u16 = 1883;
const HTTP: u16 = 8080;

/// Sets the size of services.
#[derive(Debug)]
pub(super) struct Swarm {
    world: World,
    engine: Engine,
    nodes: Nodes,
    site: Site,
    /// One change of a size at a time.
    sizing: Mutex<()>,
}

/// The newest task of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    state: String,
    wanted: String,
    /// The machine that it runs on.
    machine: String,
    /// Published ports by those of the container.
    ports: BTreeMap<u16, u16>,
    why: String,
}

/// Whether a node lives, not whether it lets clients in: a swarm ends unhealthy tasks for good, also that of a node that is being emptied,
/// and only healthy tasks have a place in the name by which nodes find each other.
fn health_check() -> Value {
    let seconds = |seconds: u64| seconds * 1_000_000_000;
    json!({
        "Test": ["CMD", "/sedge", "health", "--live"],
        "Interval": seconds(2), "Timeout": seconds(5), "StartPeriod": seconds(300), "Retries": 10,
    })
}

impl Task {
    fn of(value: &Value) -> Self {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let ports = value.pointer("/Status/PortStatus/Ports").and_then(Value::as_array);
        let port = |value: &Value, name: &str| u16::try_from(value.get(name)?.as_u64()?).ok();
        let ports = ports.into_iter().flatten();
        Self {
            state: text("/Status/State"),
            wanted: text("/DesiredState"),
            machine: text("/NodeID"),
            ports: ports.filter_map(|one| Some((port(one, "TargetPort")?, port(one, "PublishedPort")?))).collect(),
            why: text("/Status/Err"),
        }
    }

    fn runs(&self) -> bool {
        self.state == "running" && self.wanted == "running"
    }
}

/// The newest task of `slot` among those of a service.
fn newest(tasks: &Value, slot: u32) -> Option<Task> {
    let of_slot = |task: &&Value| task.get("Slot").and_then(Value::as_u64) == Some(u64::from(slot));
    let made = |task: &&Value| task.get("CreatedAt").and_then(Value::as_str).unwrap_or_default().to_owned();
    tasks.as_array()?.iter().filter(of_slot).max_by_key(made).map(Task::of)
}

/// The number at the end of a node's name, which is the slot of its task.
fn slot(node: &str) -> Result<u32, String> {
    let number = node.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| format!("{node} is no node of this site"))
}

impl Swarm {
    pub(super) fn new(world: World, site: &Site) -> Result<Self, String> {
        let nodes = Nodes::new(&world.state().token, Duration::from_secs(5));
        let engine = Engine::new()?;
        let (status, _) = engine.get("/swarm")?;
        if status != 200 {
            return Err(format!(
                "the Docker engine at {} is no manager of a swarm: run docker swarm init there, or let DOCKER_HOST name a manager",
                engine.name()
            ));
        }
        Ok(Self { world, engine, nodes, site: site.clone(), sizing: Mutex::new(()) })
    }

    fn name(&self, part: &str) -> String {
        self.world.name_at_engine(part)
    }

    fn labels(&self) -> Value {
        json!({ "sedge.site": self.name("site") })
    }

    fn network(&self, part: &str) -> Result<String, String> {
        let name = self.name(part);
        let (status, _) = self.engine.get(&format!("/networks/{name}"))?;
        if status == 404 {
            let body = json!({ "Name": name, "Driver": "overlay", "CheckDuplicate": true, "Labels": self.labels() });
            self.engine.must(self.engine.post("/networks/create", &body), &[409])?;
            self.world.note_provided(part)?;
        }
        Ok(name)
    }

    fn field(&self, resource: &str, field: &str) -> Option<String> {
        match self.site.resources.get(resource).map(|resource| &resource.kind) {
            Some(Kind::Plain(plain)) => plain.fields.get(field).cloned(),
            Some(Kind::Group(_) | Kind::LoadBalancer(_) | Kind::Alarm(_) | Kind::Policy(_)) | None => None,
        }
    }

    /// The configuration of a group's nodes as an object that all machines of the swarm get, if the site names one.
    fn config(&self, group: &str, spec: &MemberSpec) -> Result<Vec<Value>, String> {
        let Some(path) = spec.config.as_ref().map(|config| self.world.beside_site(config)) else {
            return Ok(Vec::new());
        };
        let text = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        // Such an object cannot be changed: other content has another name.
        let digest = Sha256::digest(&text).iter().take(8).fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
        let part = format!("{group}-config-{digest:016x}");
        let name = self.name(&part);
        let body = json!({ "Name": name, "Labels": self.labels(), "Data": BASE64_STANDARD.encode(&text) });
        self.engine.must(self.engine.post("/configs/create", &body), &[409])?;
        self.world.note_provided(&part)?;
        let (_, made) = self.engine.must(self.engine.get(&format!("/configs/{name}")), &[])?;
        let file = json!({ "Name": CONFIG, "UID": "65532", "GID": "65532", "Mode": 0o400 });
        Ok(vec![json!({ "ConfigID": made.get("ID"), "ConfigName": name, "File": file })])
    }

    fn service(&self, group: &str, spec: &MemberSpec, replicas: u32) -> Result<Value, String> {
        let image = spec.image.as_ref().and_then(|image| self.field(image, "ref")).unwrap_or_else(|| IMAGE.to_owned());
        let network = self.network(spec.net.as_deref().unwrap_or(NETWORK))?;
        let configs = self.config(group, spec)?;
        let (key, token) = {
            let state = self.world.state();
            (state.cluster_key.clone(), state.token.clone())
        };
        let name = self.name(group);
        let env = [
            format!("SEDGE_NODE__NAME={group}-{{{{.Task.Slot}}}}"),
            format!("SEDGE_CLUSTER__KEY={key}"),
            // A task has a second address, for its ports, where other tasks do not reach it; its host name is that of the overlay network.
            format!("SEDGE_CLUSTER__ADVERTISE={group}-{{{{.Task.Slot}}}}"),
            format!("SEDGE_HTTP__TOKEN={token}"),
            // The addresses of all tasks, however many there are.
            format!("SEDGE_CLUSTER__SEEDS=tasks.{name}"),
        ];
        let arguments = if configs.is_empty() { vec!["serve"] } else { vec!["serve", "--config", CONFIG] };
        #[expect(clippy::cast_possible_truncation, reason = "the site's check bounds it")]
        let nano_cpus = spec.cpu.map(|cpu| (cpu * 1e9) as i64);
        let mut limits = serde_json::Map::new();
        limits.extend(nano_cpus.map(|cpus| ("NanoCPUs".to_owned(), json!(cpus))));
        limits.extend(spec.memory.map(|bytes| ("MemoryBytes".to_owned(), json!(bytes))));
        let port = |target: u16| json!({ "Protocol": "tcp", "TargetPort": target, "PublishMode": "host" });
        Ok(json!({
            "Name": name, "Labels": self.labels(),
            "TaskTemplate": {
                "ContainerSpec": {
                    "Image": image, "Args": arguments, "Env": env, "Configs": configs, "Labels": self.labels(),
                    "Hostname": format!("{group}-{{{{.Task.Slot}}}}"), "StopGracePeriod": GRACE,
                    "Healthcheck": health_check(),
                },
                "Resources": { "Limits": limits },
                // A node that was emptied ends with success, and is not to come back.
                "RestartPolicy": { "Condition": "on-failure", "Delay": 1_000_000_000 },
                "Networks": [{ "Target": network }],
            },
            "Mode": { "Replicated": { "Replicas": replicas } },
            "EndpointSpec": { "Mode": "dnsrr", "Ports": [port(MQTT), port(HTTP)] },
        }))
    }

    /// Nodes of a group that the site knows.
    fn known(&self, group: &str) -> u32 {
        let count = self.world.state().nodes.values().filter(|record| record.group == group).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Sets the replicas of a group's service to `wanted`; nothing if there is no service.
    fn resize(&self, group: &str, wanted: impl Fn(u32) -> u32) -> Result<bool, String> {
        let path = format!("/services/{}", self.name(group));
        for _ in 0..MAX_ATTEMPTS {
            let (status, service) = self.engine.must(self.engine.get(&path), &[404])?;
            if status == 404 {
                return Ok(false);
            }
            let now = service.pointer("/Spec/Mode/Replicated/Replicas").and_then(Value::as_u64).unwrap_or(0);
            let wanted = wanted(u32::try_from(now).unwrap_or(u32::MAX));
            if u64::from(wanted) == now {
                return Ok(true);
            }
            let version = service.pointer("/Version/Index").and_then(Value::as_u64).unwrap_or(0);
            let mut spec = service.get("Spec").cloned().unwrap_or_default();
            if let Some(replicas) = spec.pointer_mut("/Mode/Replicated/Replicas") {
                *replicas = json!(wanted);
            }
            let (status, answer) = self.engine.post(&format!("{path}/update?version={version}"), &spec)?;
            let said = answer.get("message").and_then(Value::as_str).unwrap_or_default();
            if !said.contains("out of sequence") {
                self.engine.must(Ok((status, answer)), &[])?;
                return Ok(true);
            }
        }
        Err(format!("the service {} changes all the time; does somebody else scale it, too?", self.name(group)))
    }

    fn task(&self, group: &str, node: &str) -> Result<Option<Task>, String> {
        let filter = json!({ "service": { self.name(group): true } }).to_string();
        let (status, tasks) =
            self.engine.must(self.engine.get(&format!("/tasks?filters={}", segment(&filter))), &[404])?;
        Ok(if status == 404 { None } else { newest(&tasks, slot(node)?) })
    }

    /// Where clients and the controller reach a task.
    fn record(&self, group: &str, task: &Task) -> Result<Option<NodeRecord>, String> {
        let (Some(mqtt), Some(http)) = (task.ports.get(&MQTT), task.ports.get(&HTTP)) else { return Ok(None) };
        let (_, machine) = self.engine.must(self.engine.get(&format!("/nodes/{}", task.machine)), &[])?;
        let address = machine.pointer("/Status/Addr").and_then(Value::as_str).filter(|address| *address != "0.0.0.0");
        let address = address.unwrap_or("127.0.0.1");
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let (mqtt, http) = (format!("{host}:{mqtt}"), format!("{host}:{http}"));
        Ok(Some(NodeRecord { group: group.to_owned(), mqtt, http, served: true, ..NodeRecord::default() }))
    }

    fn wait_ready(&self, group: &str, node: &str) -> Result<NodeRecord, String> {
        let deadline = Instant::now() + READY;
        loop {
            let task = self.task(group, node)?;
            if let Some(task) = task.as_ref().filter(|task| task.runs())
                && let Some(record) = self.record(group, task)?
                && self.nodes.is_ready(&record.http)
            {
                return Ok(record);
            }
            if Instant::now() >= deadline {
                let state = task.map_or_else(|| "no task".to_owned(), |task| format!("{} {}", task.state, task.why));
                return Err(format!(
                    "{node} is not ready after {} s ({}); see docker service ps {}",
                    READY.as_secs(),
                    state.trim(),
                    self.name(group)
                ));
            }
            sleep(TURN);
        }
    }

    /// Forgets a node, and removes the service of its group with the group's last node.
    fn forget(&self, node: &str, group: &str) -> Result<(), String> {
        self.world.change(|state| drop(state.nodes.remove(node)))?;
        if self.known(group) == 0 {
            self.engine.must(self.engine.delete(&format!("/services/{}", self.name(group))), &[404])?;
        }
        Ok(())
    }

    fn group_of(&self, node: &str) -> String {
        let known = self.world.node(node).map(|record| record.group);
        known.unwrap_or_else(|| node.rsplit_once('-').map_or(node, |(group, _)| group).to_owned())
    }
}

impl Driver for Swarm {
    fn provide(&self, name: &str, plain: &Plain) -> Result<(), String> {
        match plain.kind {
            PlainKind::Network => self.network(name).map(drop),
            // Each machine of the swarm fetches the images that its tasks need; the controller measures, keeps and evaluates itself.
            PlainKind::Image | PlainKind::Meter | PlainKind::MetricStore | PlainKind::Alarming => Ok(()),
            PlainKind::Storage
            | PlainKind::Container
            | PlainKind::User
            | PlainKind::SecurityGroup
            | PlainKind::FloatingIp => Err(format!("the swarm driver cannot provide a {}", plain.kind)),
        }
    }

    fn create(&self, _action: ActionId, group: &str, node: &str, spec: &MemberSpec) -> Result<(), String> {
        slot(node)?;
        {
            let _turn = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = NodeRecord { group: group.to_owned(), ..NodeRecord::default() };
            self.world.change(|state| state.nodes.entry(node.to_owned()).or_insert(begun).served)?;
            let known = self.known(group);
            if !self.resize(group, |now| now.max(known))? {
                let body = self.service(group, spec, known)?;
                self.engine.must(self.engine.post("/services/create", &body), &[409])?;
            }
        }
        let record = self.wait_ready(group, node)?;
        self.world.change(|state| drop(state.nodes.insert(node.to_owned(), record)))
    }

    fn resize(&self, node: &str, _cpu: f64) -> Result<(), String> {
        Err(format!("the swarm driver cannot change {node} while it runs"))
    }

    fn remove(&self, node: &str) -> Result<(), String> {
        let Some(record) = self.world.node(node) else { return Ok(()) };
        let group = record.group.clone();
        let ended = |task: Option<Task>| task.is_none_or(|task| !task.runs());
        let task = self.task(&group, node)?;
        // One that was emptied before, by this controller or another one, has ended with success.
        if task.as_ref().is_none_or(|task| task.state != "complete") {
            if ended(task) && record.served {
                return Err(format!("{node} has ended before it was empty"));
            }
            empty(&self.nodes, node, &record.http, || self.task(&group, node).is_ok_and(ended))?;
        }
        let _turn = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.known(&group).saturating_sub(1);
        // Of the tasks of a service those that do not run go first.
        self.resize(&group, |_| left)?;
        let deadline = Instant::now() + ENDED;
        while self.task(&group, node)?.is_some_and(|task| task.wanted == "running") {
            if Instant::now() >= deadline {
                return Err(format!("the swarm keeps {node} after {} s", ENDED.as_secs()));
            }
            sleep(TURN);
        }
        self.forget(node, &group)
    }

    /// Which task goes when a service shrinks is the swarm's choice: one that never served stays until it serves, or the service ends.
    fn destroy(&self, node: &str) -> Result<(), String> {
        let _turn = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.group_of(node);
        self.forget(node, &group)
    }

    fn release(&self, name: &str) -> Result<(), String> {
        let own = self.name(name);
        let deadline = Instant::now() + ENDED;
        loop {
            let gone =
                |path: String| self.engine.must(self.engine.delete(&path), &[404]).map(|(status, _)| status == 404);
            let config = gone(format!("/configs/{own}"));
            let network = gone(format!("/networks/{own}"));
            match config.and_then(|config| network.map(|network| config && network)) {
                Ok(true) => return Ok(()),
                // Tasks that are about to end still use it.
                Ok(false) | Err(_) if Instant::now() < deadline => sleep(TURN),
                Ok(false) => return Err(format!("{own} is still there after {} s", ENDED.as_secs())),
                Err(why) => return Err(why),
            }
        }
    }

    fn lost(&self, node: &str) -> Option<String> {
        let record = self.world.node(node)?;
        // The manager may be busy, or about to give up its role: that says nothing of the node.
        let task = self.task(&record.group, node).ok()?;
        let Some(task) = task.filter(Task::runs) else { return Some("its task does not run".to_owned()) };
        let now = self.record(&record.group, &task).ok()??;
        (now.http != record.http).then(|| format!("its task was replaced by one at {}", now.http))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_task_of_a_slot_counts() {
        let task = |slot: u32, made: &str, state: &str, port: u16| {
            json!({
                "Slot": slot, "CreatedAt": made, "DesiredState": "running", "NodeID": "m",
                "Status": { "State": state, "PortStatus": { "Ports": [{ "TargetPort": 1883, "PublishedPort": port }] } },
            })
        };
        let tasks = json!([
            task(1, "2026-01-01T00:00:02Z", "running", 30_001),
            task(1, "2026-01-01T00:00:01Z", "failed", 30_000),
            task(2, "2026-01-01T00:00:01Z", "complete", 30_002),
        ]);
        let first = newest(&tasks, 1).expect("a task");
        assert!(first.runs());
        assert_eq!(first.ports.get(&MQTT), Some(&30_001));
        assert!(newest(&tasks, 2).is_some_and(|task| !task.runs() && task.state == "complete"));
        assert_eq!(newest(&tasks, 3), None);
        assert_eq!((slot("brokers-12"), slot("a-b-3")), (Ok(12), Ok(3)));
        assert!(slot("brokers").is_err() && slot("brokers-0").is_err());
    }
}
