//! Reading again, without a restart, what is kept in files of its own, which bridges and rules there are, and the level of the log: on SIGHUP and through `POST /api/v1/reload`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sedge_base::ShardId;
use sedge_broker::QueueLimits;

use crate::access::Change;
use crate::config::{Setting, is_exchanged};
use crate::runtime::{Letter, Shared};
use crate::{Config, Digests, ReadAgain, awaits, bridges, logging, mirror, rules, sniff};

/// Outcome for one of the things that were read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Name of the thing, such as `listener.tls`.
    pub what: String,
    /// Reason why its new content could not be used; the former content goes on being used.
    pub problem: Option<String>,
}

/// Outcome of a reload as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Each thing that was read again.
    pub parts: Vec<Reloaded>,
    /// Keys of the configuration whose change counts from this reload on.
    pub applied: Vec<String>,
    /// Keys of the configuration that differ from what the node runs with, and count from its next start on.
    pub restart: Vec<String>,
}

/// How the configuration is read again, and what the node runs with.
pub(crate) struct Again {
    read: ReadAgain,
    holds: Mutex<Digests>,
}

impl Again {
    pub(crate) fn new(read: ReadAgain, holds: Digests) -> Self {
        Self { read, holds: Mutex::new(holds) }
    }

    /// The settings as they are now, and the keys whose values the node does not run with.
    pub(crate) fn settings(&self) -> Result<(Vec<Setting>, BTreeSet<String>), String> {
        let settings = (self.read.settings)()?;
        let (_, digests) = (self.read.config)()?;
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((settings, holds.changed(&digests).into_iter().collect()))
    }

    /// Says which keys changed: applied ones, which count if nothing went wrong, and those that take a restart.
    fn compare(&self, read: &Digests, went_well: bool) -> (Vec<String>, Vec<String>) {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut applied, restart): (Vec<_>, Vec<_>) =
            holds.changed(read).into_iter().partition(|key| is_exchanged(key));
        if !went_well {
            applied.clear();
        }
        for key in &applied {
            holds.take(key, read);
        }
        (applied, restart)
    }
}

/// Bridges, rules, the level of the log and connections between nodes are those of the configuration as it is now; all else of it takes a restart.
fn reload_configuration(shared: &Arc<Shared>, report: &mut ReloadReport) {
    let Some(again) = shared.again.get() else { return };
    let problem = match (again.read.config)() {
        Ok((config, digests)) => {
            if logging::level().is_some() {
                let problem = logging::configure(&config.log.level).err();
                report.parts.push(Reloaded { what: "log.level".to_owned(), problem });
            }
            let problem = change_sections(shared, &config);
            (report.applied, report.restart) = again.compare(&digests, problem.is_none());
            problem
        }
        Err(what) => Some(what),
    };
    report.parts.push(Reloaded { what: "bridges and rules".to_owned(), problem });
}

/// Limits of the queues of the process's own sessions.
pub(crate) fn queues(config: &Config, node: &str) -> BTreeMap<Box<str>, QueueLimits> {
    let configured = bridges::queues(config).into_iter().chain(rules::queues(config));
    configured.chain(mirror::queues(config)).chain(sniff::queues(config, node)).collect()
}

/// Exchanges bridges, rules and connections between nodes; says what went wrong.
fn change_sections(shared: &Arc<Shared>, config: &Config) -> Option<String> {
    let queues = queues(config, &shared.place.0);
    let awaits = awaits::sessions(config);
    shared.post(ShardId(0), Letter::Connections(config.cluster.link_connections, config.cluster.link_order));
    // The new limits arrive before the messages to which they apply.
    for shard in (0_u16..).zip(&shared.boxes).map(|(shard, _)| ShardId(shard)) {
        shared.post(shard, Letter::Inside(queues.clone(), Arc::clone(&awaits)));
    }
    let change = || {
        if let Some(running) = shared.bridges.get().and_then(Weak::upgrade) {
            bridges::change(&running, config, shared)?;
        }
        match shared.rules.get().and_then(Weak::upgrade) {
            Some(running) => rules::change(&running, config, shared),
            None => Ok(()),
        }
    };
    change().err().map(|error: std::io::Error| format!("cannot start a thread: {error}"))
}

/// Reads everything again. Each part stands for itself: an unusable part does not keep the others from being exchanged.
pub(crate) fn reload(shared: &Arc<Shared>) -> ReloadReport {
    let mut report = ReloadReport::default();
    let done = &mut report.parts;
    for listener in &shared.listeners {
        if let Some(certificates) = &listener.certificates {
            let what = format!("listener.{}", listener.name);
            let problem = certificates.reload().err().map(|(key, why)| format!("{what}.{key}: {why}"));
            done.push(Reloaded { what, problem });
        }
    }
    if let Some(tls) = shared.cluster_tls.as_ref().filter(|tls| tls.has_files()) {
        let problem = tls.reload().err().map(|(key, why)| format!("cluster.{key}: {why}"));
        done.push(Reloaded { what: "cluster".to_owned(), problem });
    }
    done.push(reload_access(shared));
    if shared.api_guard.has_file() {
        let problem = shared.api_guard.read().err().map(|(key, what)| format!("{key}: {what}"));
        done.push(Reloaded { what: "http".to_owned(), problem });
    }
    reload_configuration(shared, &mut report);
    log(&report);
    report
}

fn log(report: &ReloadReport) {
    for Reloaded { what, problem } in &report.parts {
        match problem {
            None => tracing::info!(what, "read again"),
            Some(problem) => tracing::error!(what, problem, "cannot be read again; what was read before stays in use"),
        }
    }
    if !report.applied.is_empty() {
        tracing::info!(keys = report.applied.join(", "), "changed keys count from this reload on");
    }
    if !report.restart.is_empty() {
        tracing::warn!(keys = report.restart.join(", "), "changed keys count from the next start of the node on");
    }
}

/// Accounts and access rules: all of their files, or none of them.
pub(crate) fn reload_access(shared: &Shared) -> Reloaded {
    let problem = match shared.gate.read() {
        Ok(Change { policy, revoked }) => {
            let revoked = Arc::new(revoked);
            for shard in 0..shared.boxes.len() {
                shared.post(
                    ShardId(u16::try_from(shard).unwrap_or(0)),
                    Letter::Policy(policy.clone(), Arc::clone(&revoked)),
                );
            }
            None
        }
        Err(problems) => Some(problems.join("; ")),
    };
    Reloaded { what: "access".to_owned(), problem }
}
