//! Reading again, without a restart, what is kept in files of its own: on SIGHUP and through `POST /api/v1/reload`.

use std::sync::Arc;

use sedge_base::ShardId;

use crate::access::Change;
use crate::runtime::{Letter, Shared};

/// What came of one of the things that were read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// What it is, such as `listener.tls`.
    pub what: String,
    /// Why it could not be used; what was read before goes on being used.
    pub problem: Option<String>,
}

/// Reads everything again. Each part stands for itself: what cannot be used does not keep the others from being exchanged.
pub(crate) fn reload(shared: &Shared) -> Vec<Reloaded> {
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
