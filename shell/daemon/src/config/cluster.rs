//! `[cluster]`: what no single key of it can show.

use sedge_cluster::MANUAL_OVERLAYS;

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
        for neighbour in &cluster.neighbours {
            if let Err(what) = crate::host_port::HostPort::parse(neighbour, super::CLUSTER_PORT) {
                problems.push(together("cluster.neighbours", format!("{neighbour:?}: {what}")));
            }
        }
        if cluster.manual_links && !MANUAL_OVERLAYS.contains(&cluster.overlay.as_str()) {
            let (overlay, all) = (&cluster.overlay, MANUAL_OVERLAYS.map(|name| format!("{name:?}")).join(", "));
            let what = format!(
                "is \"manual\", but the overlay {overlay:?} chooses its links by itself; set cluster.overlay to {all}"
            );
            problems.push(together("cluster.links", what));
        }
        if !cluster.manual_links && !cluster.neighbours.is_empty() {
            let what = "counts only with cluster.links = \"manual\"; set that on all nodes, or leave this out";
            problems.push(together("cluster.neighbours", what.to_owned()));
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
        if cluster.lease < cluster.refresh * 3 {
            let what = "must be at least three times cluster.refresh, so that one lost refresh ends no lease";
            problems.push(together("cluster.lease", what.to_owned()));
        }
        self.check_remote_seeds(problems);
        self.check_encryption(problems);
    }

    /// Nodes of other machines are refused without a key, whatever they have.
    fn check_remote_seeds(&self, problems: &mut Vec<Problem>) {
        if self.cluster.key.is_some() || problems.iter().any(|problem| problem.key.starts_with("cluster.key")) {
            return;
        }
        let literal = |seed: &&String| crate::host_port::HostPort::parse(seed, 0).ok().and_then(|seed| seed.literal());
        let is_remote = |seed: &&String| literal(seed).is_some_and(|seed| !seed.ip().to_canonical().is_loopback());
        let named = [("cluster.seeds", &self.cluster.seeds), ("cluster.neighbours", &self.cluster.neighbours)];
        for (key, seed) in named.iter().filter_map(|(key, all)| Some((*key, all.iter().find(is_remote)?))) {
            let what = format!(
                "{seed:?} is another machine, and without cluster.key only nodes of this one are linked; set the same cluster.key_file on all nodes"
            );
            problems.push(together(key, what));
        }
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

    /// The protection of links, in a few words.
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
