//! Reading again, without a restart, what is kept in files of its own, and which bridges and rules there are: on SIGHUP and through `POST /api/v1/reload`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use sedge_base::ShardId;

use crate::access::Change;
use crate::runtime::{Letter, Shared};
use crate::{Config, awaits, bridges, rules};

/// What came of one of the things that were read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// What it is, such as `listener.tls`.
    pub what: String,
    /// Why it could not be used; what was read before goes on being used.
    pub problem: Option<String>,
}

/// Bridges and rules are those of the configuration as it is now; all else of it takes a restart.
fn reload_sections(shared: &Arc<Shared>) -> Option<Reloaded> {
    let config = shared.again.get()?();
    let change = |config: &Config| {
        let queues: BTreeMap<_, _> = bridges::queues(config).into_iter().chain(rules::queues(config)).collect();
        let awaits = awaits::sessions(config);
        // Before anything comes that they are about.
        for shard in (0_u16..).zip(&shared.boxes).map(|(shard, _)| ShardId(shard)) {
            shared.post(shard, Letter::Inside(queues.clone(), Arc::clone(&awaits)));
        }
        if let Some(running) = shared.bridges.get().and_then(Weak::upgrade) {
            bridges::change(&running, config, shared)?;
        }
        match shared.rules.get().and_then(Weak::upgrade) {
            Some(running) => rules::change(&running, config, shared),
            None => Ok(()),
        }
    };
    let problem = match config {
        Ok(config) => change(&config).err().map(|error| format!("cannot start a thread: {error}")),
        Err(what) => Some(what),
    };
    Some(Reloaded { what: "bridges and rules".to_owned(), problem })
}

/// Reads everything again. Each part stands for itself: what cannot be used does not keep the others from being exchanged.
pub(crate) fn reload(shared: &Arc<Shared>) -> Vec<Reloaded> {
    let mut done = Vec::new();
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
        let problem = shared.api_guard.read().err().map(|what| format!("http.token_file: {what}"));
        done.push(Reloaded { what: "http".to_owned(), problem });
    }
    done.extend(reload_sections(shared));
    for Reloaded { what, problem } in &done {
        match problem {
            None => tracing::info!(what, "read again"),
            Some(problem) => tracing::error!(what, problem, "cannot be read again; what was read before stays in use"),
        }
    }
    done
}

/// Accounts and access rules: all of their files, or none of them.
fn reload_access(shared: &Shared) -> Reloaded {
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
