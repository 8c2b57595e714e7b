//! Drivers: they make and end instances.

mod docker;
mod exec;
mod kubernetes;
mod null;
mod processes;
mod swarm;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sedge_scale::site::{Driver as Name, MemberSpec, Plain};
use sedge_scale::{ActionId, Site};
use serde_json::Value;

use crate::error::ScaleError;
use crate::network::Nodes;
use crate::process::GRACE;
use crate::state::{Home, NodeRecord, State};

/// State that the controller and its driver share: it survives both, and is written whenever it changes.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) home: Home,
    state: Arc<Mutex<State>>,
}

impl World {
    pub(crate) fn new(home: Home, state: State) -> Self {
        Self { home, state: Arc::new(Mutex::new(state)) }
    }

    /// A look at the state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and writes it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, String> {
        let mut state = self.state();
        let result = change(&mut state);
        self.home.save(&state).map_err(|error| error.to_string())?;
        Ok(result)
    }

    /// The name of something of this site at an engine that other sites use, too.
    fn name_at_engine(&self, part: &str) -> String {
        let site = self.home.dir().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        format!("{site}-{part}")
    }

    /// Remembers that a part of the site was made, so that it goes with the site.
    fn note_provided(&self, part: &str) -> Result<(), String> {
        self.change(|state| {
            if !state.provided.iter().any(|known| known == part) {
                state.provided.push(part.to_owned());
            }
        })
    }

    /// A path that a site file names: relative ones begin at the file's folder.
    pub(crate) fn beside_site(&self, path: &str) -> PathBuf {
        self.state().site.parent().map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
    }

    pub(crate) fn node(&self, name: &str) -> Option<NodeRecord> {
        self.state().nodes.get(name).cloned()
    }
}

/// Makes and ends instances. Each call may come again, and then finds its work done.
pub(crate) trait Driver: Send + Sync {
    /// Provides a resource that is neither a node nor a load balancer.
    fn provide(&self, name: &str, plain: &Plain) -> Result<(), String>;
    /// Makes a node, or starts it again with the data that it kept, and waits until it serves.
    fn create(&self, action: ActionId, group: &str, node: &str, spec: &MemberSpec) -> Result<(), String>;
    /// Lets a node that serves use `cpu` processors from now on.
    fn resize(&self, node: &str, cpu: f64) -> Result<(), String>;
    /// Empties a node, then ends it; nothing of it is left.
    fn remove(&self, node: &str) -> Result<(), String>;
    /// Ends a node at once; nothing of it is left.
    fn destroy(&self, node: &str) -> Result<(), String>;
    /// Takes a provided resource back.
    fn release(&self, name: &str) -> Result<(), String>;
    /// Why a node that serves is known to be gone, if it is.
    fn lost(&self, node: &str) -> Option<String>;
}

/// The driver that a site asks for.
pub(crate) fn driver(site: &Site, world: &World) -> Result<Arc<dyn Driver>, ScaleError> {
    match site.driver {
        Name::Process => Ok(Arc::new(processes::Processes::new(world.clone()))),
        Name::Exec => Ok(Arc::new(exec::Exec::new(world.clone(), site.exec.clone().unwrap_or_default()))),
        Name::Null => Ok(Arc::new(null::Null::new(world.clone()))),
        Name::Docker => Ok(Arc::new(docker::Docker::new(world.clone(), site).map_err(ScaleError::Other)?)),
        Name::Swarm => Ok(Arc::new(swarm::Swarm::new(world.clone(), site).map_err(ScaleError::Other)?)),
        Name::Kubernetes => Ok(Arc::new(kubernetes::Kubernetes::new(world.clone(), site).map_err(ScaleError::Other)?)),
    }
}

/// How long a node may take to be emptied, in seconds.
const EMPTY_SECONDS: u64 = 600;
/// How often a node that is emptied is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Has a node emptied, and waits until it has `ended`.
fn empty(nodes: &Nodes, node: &str, http: &str, ended: impl Fn() -> bool) -> Result<(), String> {
    drain(nodes, (node, http), true, |_| ended())
}

/// Has a node emptied, which then waits for its end.
fn empty_only(nodes: &Nodes, node: &str, http: &str) -> Result<(), String> {
    let drained = |state: &Value| state.get("state").and_then(Value::as_str) == Some("drained");
    drain(nodes, (node, http), false, |state| state.is_some_and(drained))
}

/// Has a node emptied, with `stop` ended as well, and waits until `done` by how far it says it is, if it says anything.
fn drain(
    nodes: &Nodes,
    (node, http): (&str, &str),
    stop: bool,
    done: impl Fn(Option<&Value>) -> bool,
) -> Result<(), String> {
    nodes.post(http, &format!("/api/v1/drain?limit={EMPTY_SECONDS}&stop={stop}"))?;
    let deadline = Instant::now() + Duration::from_secs(EMPTY_SECONDS) + GRACE;
    loop {
        let state = nodes.json(http, "/api/v1/drain").ok();
        if done(state.as_ref()) {
            return Ok(());
        }
        if let Some(why) = state.as_ref().and_then(|state| state.get("gave_up")?.as_str()) {
            return Err(format!("{node} serves on: {why}"));
        }
        if Instant::now() >= deadline {
            return Err(format!("{node} is not empty after {EMPTY_SECONDS} s"));
        }
        sleep(LOOK);
    }
}
