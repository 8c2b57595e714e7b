//! Services that lead nodes to each other: the keys of `[discovery]` about etcd and Kubernetes.

use std::net::SocketAddr;

use super::{CLUSTER_PORT, Config, DiscoveryConfig};
use crate::StartError;
use crate::discovery::{EtcdSettings, KubernetesSettings};
use crate::host_port::HostPort;

const HTTP: &str = "http://";
const HTTPS: &str = "https://";
/// Longest label of a name in Kubernetes.
const LABEL_BYTES_MAX: usize = 63;
/// Where Kubernetes tells pods about its API.
const API_HOST: &str = "KUBERNETES_SERVICE_HOST";
const API_PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Settings that are impossible or missing, by key.
pub(super) fn problems(discovery: &DiscoveryConfig) -> Vec<(&'static str, String)> {
    let mut problems = etcd_problems(discovery);
    let service = &discovery.kubernetes_service;
    if service.is_empty() {
        return problems;
    }
    if split_service(service).is_none() {
        let what = format!("{service:?}: write the name of a service, or namespace/service");
        problems.push(("kubernetes_service", what));
    }
    match api_of(discovery) {
        None => {
            let what = format!("is missing, and this is no pod: {API_HOST} and {API_PORT} are not set");
            problems.push(("kubernetes_api", what));
        }
        Some(api) if !is_url(&api) => problems.push(("kubernetes_api", format!("{api:?}: write https://host:port"))),
        Some(_) => {}
    }
    problems
}

fn etcd_problems(discovery: &DiscoveryConfig) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    let optional = [
        ("etcd_password_file", &discovery.etcd_password_file),
        ("etcd_ca_file", &discovery.etcd_ca_file),
        ("etcd_cert_file", &discovery.etcd_cert_file),
        ("etcd_cert_key_file", &discovery.etcd_cert_key_file),
    ];
    if discovery.etcd.is_empty() {
        let given = optional.iter().filter(|(_, file)| file.is_some()).map(|(key, _)| *key);
        let user = (!discovery.etcd_user.is_empty()).then_some("etcd_user");
        let useless = given.chain(user).map(|key| (key, "is of no use without discovery.etcd".to_owned()));
        return useless.collect();
    }
    for url in discovery.etcd.iter().filter(|url| !is_url(url)) {
        problems.push(("etcd", format!("{url:?}: write http://host:port or https://host:port")));
    }
    let mut missing = |key, why: &str| problems.push((key, format!("is missing: {why}")));
    let is_encrypted = discovery.etcd.iter().any(|url| url.starts_with(HTTPS));
    if is_encrypted && discovery.etcd_ca_file.is_none() {
        missing("etcd_ca_file", "name the authority of etcd's certificate");
    }
    if discovery.etcd_user.is_empty() != discovery.etcd_password_file.is_none() {
        let key = if discovery.etcd_user.is_empty() { "etcd_user" } else { "etcd_password_file" };
        missing(key, "discovery.etcd_user and discovery.etcd_password_file belong together");
    }
    if discovery.etcd_cert_file.is_none() != discovery.etcd_cert_key_file.is_none() {
        let key = if discovery.etcd_cert_file.is_none() { "etcd_cert_file" } else { "etcd_cert_key_file" };
        missing(key, "discovery.etcd_cert_file and discovery.etcd_cert_key_file belong together");
    }
    for (key, file) in optional {
        if let Some(file) = file
            && let Err(error) = std::fs::read(file)
        {
            problems.push((key, format!("cannot read {}: {error}", file.display())));
        }
    }
    problems
}

/// Whether this is `http://host:port` or `https://host:port`, with or without a slash behind it.
fn is_url(url: &str) -> bool {
    let rest = url.strip_prefix(HTTP).or_else(|| url.strip_prefix(HTTPS));
    let host = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    host.is_some_and(|host| HostPort::parse(host, CLUSTER_PORT).is_ok())
}

/// Namespace and service.
fn split_service(text: &str) -> Option<(Option<&str>, &str)> {
    let sane = |label: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.chars().all(allowed)
    };
    let (namespace, service) = match text.split_once('/') {
        Some((namespace, service)) => (Some(namespace), service),
        None => (None, text),
    };
    (sane(service) && namespace.is_none_or(sane)).then_some((namespace, service))
}

fn api_of(discovery: &DiscoveryConfig) -> Option<String> {
    if !discovery.kubernetes_api.is_empty() {
        return Some(discovery.kubernetes_api.trim_end_matches('/').to_owned());
    }
    let (host, port) = (std::env::var(API_HOST).ok()?, std::env::var(API_PORT).ok()?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("{HTTPS}{host}:{port}"))
}

impl Config {
    /// How etcd is asked, if it is; `node` is this node's id, and `me` where others find it.
    pub(crate) fn etcd(&self, node: &str, me: SocketAddr) -> Result<Option<EtcdSettings>, StartError> {
        let discovery = &self.discovery;
        if discovery.etcd.is_empty() {
            return Ok(None);
        }
        let read = |key, file: &Option<std::path::PathBuf>| match file {
            Some(file) => std::fs::read(file)
                .map(Some)
                .map_err(|error| StartError::Setting { key, what: format!("cannot read {}: {error}", file.display()) }),
            None => Ok(None),
        };
        let cert = read("discovery.etcd_cert_file", &discovery.etcd_cert_file)?;
        let key = read("discovery.etcd_cert_key_file", &discovery.etcd_cert_key_file)?;
        let password = read("discovery.etcd_password_file", &discovery.etcd_password_file)?;
        let password = password.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        Ok(Some(EtcdSettings {
            endpoints: discovery.etcd.iter().map(|url| url.trim_end_matches('/').to_owned()).collect(),
            prefix: format!("{}/{}/", discovery.etcd_prefix.trim_end_matches('/'), self.cluster.name),
            node: node.to_owned(),
            me,
            user: password.map(|password| (discovery.etcd_user.clone(), password)),
            ca: read("discovery.etcd_ca_file", &discovery.etcd_ca_file)?,
            identity: cert.zip(key),
            period: discovery.interval,
        }))
    }

    /// How Kubernetes is asked, if it is.
    pub(crate) fn kubernetes(&self) -> Option<KubernetesSettings> {
        let (namespace, service) = split_service(&self.discovery.kubernetes_service)?;
        Some(KubernetesSettings {
            api: api_of(&self.discovery)?,
            namespace: namespace.map(str::to_owned),
            service: service.to_owned(),
            account: self.discovery.kubernetes_account.clone(),
            port: if self.cluster.port == 0 { CLUSTER_PORT } else { self.cluster.port },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_urls() {
        assert_eq!(split_service("sedge"), Some((None, "sedge")));
        assert_eq!(split_service("plant-1/sedge"), Some((Some("plant-1"), "sedge")));
        for bad in ["", "a/b/c", "/a", "a/", "A", "a?b", "a%2Fb"] {
            assert_eq!(split_service(bad), None, "{bad}");
        }
        assert!(is_url("http://etcd:2379/") && is_url("https://[fd00::1]:2379"));
        assert!(!is_url("etcd:2379") && !is_url("http://a/b") && !is_url("https://user@a"));
    }
}
