//! The driver for containers of one Docker engine. Nodes find each other by their names in a network of the site's own.

mod engine;
mod socket;

use std::thread::sleep;
use std::time::{Duration, Instant};

use sedge_scale::ActionId;
use sedge_scale::site::{Kind, MemberSpec, Plain, PlainKind, Site};
use serde_json::{Value, json};

pub(super) use self::engine::Engine;
use super::{Driver, World, empty};
use crate::network::Nodes;
use crate::state::NodeRecord;

/// How long a node may take until it is ready.
const READY: Duration = Duration::from_secs(50);
const TURN: Duration = Duration::from_millis(50);
/// Seconds that a container is given to end.
const GRACE: u32 = 10;
/// Name of the network of sites that name none.
const NETWORK: &str = "default-network";
const IMAGE: &str = "sedge:latest";
/// Where a node finds the configuration that its site names.
const CONFIG: &str = "/sedge.toml";

/// Makes and ends containers.
#[derive(Debug)]
pub(super) struct Docker {
    world: World,
    engine: Engine,
    nodes: Nodes,
    site: Site,
}

impl Docker {
    pub(super) fn new(world: World, site: &Site) -> Result<Self, String> {
        let nodes = Nodes::new(&world.state().token, Duration::from_secs(5));
        let engine = Engine::new()?;
        engine.must(engine.get("/version"), &[])?;
        Ok(Self { world, engine, nodes, site: site.clone() })
    }

    fn name(&self, part: &str) -> String {
        self.world.name_at_engine(part)
    }

    fn labels(&self) -> Value {
        json!({ "sedge.site": self.name("site") })
    }

    /// A network of this site, which is made if it is not there.
    fn network(&self, part: &str) -> Result<String, String> {
        let name = self.name(part);
        let (status, _) = self.engine.get(&format!("/networks/{name}"))?;
        if status == 404 {
            let body = json!({ "Name": name, "CheckDuplicate": true, "Labels": self.labels() });
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

    fn create_container(&self, node: &str, spec: &MemberSpec) -> Result<(), String> {
        let image = spec.image.as_ref().and_then(|image| self.field(image, "ref")).unwrap_or_else(|| IMAGE.to_owned());
        let network = self.network(spec.net.as_deref().unwrap_or(NETWORK))?;
        let (key, token, seeds) = {
            let state = self.world.state();
            let seeds: Vec<String> = state.nodes.keys().filter(|other| *other != node).cloned().collect();
            (state.cluster_key.clone(), state.token.clone(), seeds.join(","))
        };
        let mut env = vec![
            format!("SEDGE_NODE__NAME={node}"),
            format!("SEDGE_CLUSTER__KEY={key}"),
            format!("SEDGE_HTTP__TOKEN={token}"),
        ];
        if !seeds.is_empty() {
            env.push(format!("SEDGE_CLUSTER__SEEDS={seeds}"));
        }
        let nano_cpus = spec.cpu.map(nano_cpus);
        let endpoint = json!({ "Aliases": [node] });
        let config = spec.config.as_ref().map(|config| self.world.beside_site(config));
        let binds: Vec<String> = config.iter().map(|path| format!("{}:{CONFIG}:ro", path.display())).collect();
        let command = if config.is_some() { vec!["serve", "--config", CONFIG] } else { vec!["serve"] };
        let body = json!({
            "Image": image, "Cmd": command, "Hostname": node, "Env": env, "Labels": self.labels(), "StopTimeout": GRACE,
            "HostConfig": {
                "Binds": binds, "NanoCpus": nano_cpus, "Memory": spec.memory, "NetworkMode": network,
                "LogConfig": { "Type": "json-file", "Config": { "max-size": "10m", "max-file": "2" } },
            },
            "NetworkingConfig": { "EndpointsConfig": { network.as_str(): endpoint } },
        });
        let path = format!("/containers/create?name={}", self.name(node));
        self.engine.must(self.engine.post(&path, &body), &[409]).map(drop)
    }

    /// The address of a node's container, if it runs.
    fn address(&self, node: &str) -> Result<Option<String>, String> {
        let path = format!("/containers/{}/json", self.name(node));
        let (status, value) = self.engine.must(self.engine.get(&path), &[404])?;
        let runs = value.pointer("/State/Running").and_then(Value::as_bool).unwrap_or(false);
        if status == 404 || !runs {
            return Ok(None);
        }
        let networks = value.pointer("/NetworkSettings/Networks").and_then(Value::as_object);
        let found = networks.into_iter().flat_map(|networks| networks.values());
        let mut found = found.filter_map(|network| network.get("IPAddress").and_then(Value::as_str));
        Ok(found.find(|address| !address.is_empty()).map(str::to_owned))
    }

    fn forget(&self, node: &str) -> Result<(), String> {
        let path = format!("/containers/{}?force=true&v=true", self.name(node));
        self.engine.must(self.engine.delete(&path), &[404])?;
        self.world.change(|state| drop(state.nodes.remove(node)))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the site's check bounds it")]
fn nano_cpus(cpu: f64) -> i64 {
    (cpu * 1e9).round() as i64
}

impl Driver for Docker {
    fn provide(&self, name: &str, plain: &Plain) -> Result<(), String> {
        let field = |field: &str| plain.fields.get(field).cloned();
        match plain.kind {
            PlainKind::Network => self.network(name).map(drop),
            PlainKind::Image => {
                let image = field("ref").ok_or("an image needs a ref, such as sedge:latest")?;
                let (status, _) = self.engine.must(self.engine.get(&format!("/images/{image}/json")), &[404])?;
                if status != 404 {
                    return Ok(());
                }
                let path = format!("/images/create?fromImage={image}");
                self.engine.must(self.engine.post(&path, &Value::Null), &[]).map(drop)
            }
            PlainKind::Storage => {
                let body = json!({ "Name": self.name(name), "Labels": self.labels() });
                self.engine.must(self.engine.post("/volumes/create", &body), &[]).map(drop)
            }
            PlainKind::Container => {
                let image = field("image").ok_or("a container needs an image")?;
                let command: Vec<String> = field("command")
                    .map(|text| text.split_whitespace().map(str::to_owned).collect())
                    .unwrap_or_default();
                let network = self.network(NETWORK)?;
                let body = json!({
                    "Image": image, "Cmd": command, "Labels": self.labels(), "HostConfig": { "NetworkMode": network },
                });
                let path = format!("/containers/create?name={}", self.name(name));
                self.engine.must(self.engine.post(&path, &body), &[409])?;
                let path = format!("/containers/{}/start", self.name(name));
                self.engine.must(self.engine.post(&path, &Value::Null), &[304]).map(drop)
            }
            // The controller measures, keeps and evaluates itself.
            PlainKind::Meter | PlainKind::MetricStore | PlainKind::Alarming => Ok(()),
            PlainKind::User | PlainKind::SecurityGroup | PlainKind::FloatingIp => {
                Err(format!("the docker driver cannot provide a {}", plain.kind))
            }
        }
    }

    fn create(&self, _action: ActionId, group: &str, node: &str, spec: &MemberSpec) -> Result<(), String> {
        let record =
            self.world.node(node).unwrap_or_else(|| NodeRecord { group: group.to_owned(), ..NodeRecord::default() });
        self.world.change(|state| drop(state.nodes.insert(node.to_owned(), record.clone())))?;
        self.create_container(node, spec)?;
        let path = format!("/containers/{}/start", self.name(node));
        self.engine.must(self.engine.post(&path, &Value::Null), &[304])?;
        let deadline = Instant::now() + READY;
        loop {
            let Some(address) = self.address(node)? else {
                return Err(format!("the container {} has ended; see docker logs {0}", self.name(node)));
            };
            let record = NodeRecord {
                mqtt: format!("{address}:1883"),
                http: format!("{address}:8080"),
                cluster: format!("{address}:7883"),
                served: record.served,
                ..record.clone()
            };
            if self.nodes.is_ready(&record.http) {
                let served = NodeRecord { served: true, ..record };
                return self.world.change(|state| drop(state.nodes.insert(node.to_owned(), served)));
            }
            if Instant::now() >= deadline {
                return Err(format!(
                    "{node} is not ready after {} s; see docker logs {}",
                    READY.as_secs(),
                    self.name(node)
                ));
            }
            sleep(TURN);
        }
    }

    fn resize(&self, node: &str, cpu: f64) -> Result<(), String> {
        let path = format!("/containers/{}/update", self.name(node));
        self.engine.must(self.engine.post(&path, &json!({ "NanoCpus": nano_cpus(cpu) })), &[]).map(drop)
    }

    fn remove(&self, node: &str) -> Result<(), String> {
        let Some(record) = self.world.node(node) else { return Ok(()) };
        if self.address(node)?.is_none() {
            return if record.served {
                Err(format!("{node} has ended before it was empty"))
            } else {
                self.forget(node)
            };
        }
        empty(&self.nodes, node, &record.http, || self.address(node).is_ok_and(|address| address.is_none()))?;
        self.forget(node)
    }

    fn destroy(&self, node: &str) -> Result<(), String> {
        self.forget(node)
    }

    fn release(&self, name: &str) -> Result<(), String> {
        let own = self.name(name);
        for path in
            [format!("/containers/{own}?force=true&v=true"), format!("/networks/{own}"), format!("/volumes/{own}")]
        {
            self.engine.must(self.engine.delete(&path), &[404])?;
        }
        Ok(())
    }

    fn lost(&self, node: &str) -> Option<String> {
        match self.address(node) {
            Ok(None) => Some(format!("its container {} does not run", self.name(node))),
            // The engine may be busy: that says nothing of the node.
            Ok(Some(_)) | Err(_) => None,
        }
    }
}
