//! `[cluster]`: what no single key of it can show.

use super::layers::together;
use super::{ClusterConfig, Config, Problem, Secret};
use crate::transport::{ClusterTls, NodeFiles};

/// A shorter secret can be guessed.
const CLUSTER_KEY_BYTES_MIN: usize = 16;

impl Config {
    pub(super) fn check_cluster(&mut self, problems: &mut Vec<Problem>) {
        let cluster = &mut self.cluster;
        if cluster.name.is_empty() || cluster.name.len() > 64 {
            problems.push(together("cluster.name", "must have 1 to 64 bytes".to_owned()));
        }
        for seed in &cluster.seeds {
            if let Err(what) = crate::discovery::Seed::parse(seed) {
                problems.push(together("cluster.seeds", format!("{seed:?}: {what}")));
            }
        }
        if !cluster.advertise.is_empty()
            && let Err(what) = crate::host_port::HostPort::parse(&cluster.advertise, 0)
        {
            problems.push(together("cluster.advertise", format!("{:?}: {what}", cluster.advertise)));
        }
        if let Some(file) = cluster.key_file.take() {
            match (&cluster.key, std::fs::read_to_string(&file)) {
                (Some(_), _) => {
                    problems.push(together("cluster.key_file", "give either this or cluster.key".to_owned()));
                }
                (None, Ok(text)) => cluster.key = Some(Secret::new(text.trim())),
                (None, Err(error)) => {
                    problems.push(together("cluster.key_file", format!("cannot read {}: {error}", file.display())));
                }
            }
        }
        if cluster.key.as_ref().is_some_and(|key| key.expose().len() < CLUSTER_KEY_BYTES_MIN) {
            problems.push(together("cluster.key", format!("must have at least {CLUSTER_KEY_BYTES_MIN} bytes")));
        }
        self.check_encryption(problems);
    }

    fn check_encryption(&self, problems: &mut Vec<Problem>) {
        let cluster = &self.cluster;
        let files = [
            ("cluster.cert_file", &cluster.cert_file),
            ("cluster.cert_key_file", &cluster.cert_key_file),
            ("cluster.ca_file", &cluster.ca_file),
        ];
        if files.iter().all(|(_, file)| file.is_none()) {
            return;
        }
        let mut problem = |key: &str, what: &str| problems.push(together(key, what.to_owned()));
        for (key, _) in files.iter().filter(|(_, file)| file.is_none()) {
            problem(key, "is missing: cluster.cert_file, cluster.cert_key_file and cluster.ca_file belong together");
        }
        if !cluster.encryption {
            problem("cluster.encryption", "is \"off\", but there is a cluster.cert_file; leave one of them out");
        }
        if cluster.key.is_none() {
            let what =
                "certificates protect links only: datagrams between nodes need cluster.key or cluster.key_file, too";
            problem("cluster.cert_file", what);
        }
        if let Some(files) = cluster.node_files()
            && let Err((key, what)) = ClusterTls::load(Some(files))
        {
            problem(&format!("cluster.{key}"), &what);
        }
    }
}

impl ClusterConfig {
    /// Whether links are encrypted.
    pub(crate) const fn is_encrypted(&self) -> bool {
        self.encryption && self.key.is_some()
    }

    /// What protects links, in a word.
    pub(crate) const fn protection(&self) -> &'static str {
        match (self.is_encrypted(), &self.cert_file, &self.key) {
            (true, Some(_), _) => "encrypted, with certificates",
            (true, None, _) => "encrypted",
            (false, _, Some(_)) => "authenticated, not encrypted",
            (false, _, None) => "plain, this machine only",
        }
    }

    /// Where the node's certificates for links are, if it has any.
    pub(crate) fn node_files(&self) -> Option<NodeFiles> {
        Some(NodeFiles { cert: self.cert_file.clone()?, key: self.cert_key_file.clone()?, ca: self.ca_file.clone()? })
    }
}
