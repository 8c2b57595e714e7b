//! The nodes of a Kubernetes service, as its `EndpointSlices` list them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde_json::Value;

use super::rounds::Service;
use super::web::{self, Failure, Trust, Web};
use super::{ADDRESSES_MAX, Addresses};

/// Port of an `EndpointSlice` that nodes use among each other.
const PORT_NAME: &str = "cluster";
/// Slices in one answer; there are at most a hundred addresses in each.
const SLICES_PER_PAGE: usize = 100;
/// Status for a service account without the right.
const FORBIDDEN: u16 = 403;

/// Settings of Kubernetes.
pub(crate) struct KubernetesSettings {
    /// `https://host:port`, without a slash at the end.
    pub(crate) api: String,
    /// Namespace of the service; `None`: that of the pod.
    pub(crate) namespace: Option<String>,
    pub(crate) service: String,
    /// Directory with the account's token, the API's authority, and the pod's namespace.
    pub(crate) account: PathBuf,
    /// Port of nodes in slices that name none.
    pub(crate) port: u16,
}

pub(super) struct Kubernetes {
    settings: KubernetesSettings,
    /// Certificates with which the client was made.
    trust: Trust,
    web: Option<Web>,
}

impl Kubernetes {
    pub(super) fn new(settings: KubernetesSettings) -> Self {
        Self { settings, trust: Trust::default(), web: None }
    }

    fn text(&self, name: &str) -> Result<String, String> {
        let path = self.settings.account.join(name);
        Ok(String::from_utf8_lossy(&web::file(&path)?).trim().to_owned())
    }

    /// The client. Authorities change at run time, and so do tokens.
    fn web(&mut self) -> Result<&Web, String> {
        let ca = if self.settings.api.starts_with("https://") {
            Some(web::file(&self.settings.account.join("ca.crt"))?)
        } else {
            None
        };
        let trust = Trust { ca, identity: None };
        if self.web.is_none() || trust != self.trust {
            self.web = Some(Web::new(&trust)?);
            self.trust = trust;
        }
        self.web.as_ref().ok_or_else(|| "there is no client".to_owned())
    }
}

impl Service for Kubernetes {
    fn ask(&mut self) -> Result<Addresses, String> {
        let token = self.text("token")?;
        let namespace = match &self.settings.namespace {
            Some(namespace) => namespace.clone(),
            None => self.text("namespace")?,
        };
        let KubernetesSettings { api, service, port, .. } = &self.settings;
        let (port, service) = (*port, service.clone());
        let list = format!(
            "{api}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io%2Fservice-name%3D{service}&limit={SLICES_PER_PAGE}"
        );
        let web = self.web()?;
        let mut found = Addresses::default();
        let mut url = list.clone();
        loop {
            let page = web.get(&url, &token).map_err(|failure| explained(failure, &namespace))?;
            for slice in page.get("items").and_then(Value::as_array).into_iter().flatten() {
                found.addresses.extend(addresses(slice, port));
            }
            let next = page.pointer("/metadata/continue").and_then(Value::as_str).filter(|next| !next.is_empty());
            let Some(next) = next.filter(|_| found.addresses.len() <= ADDRESSES_MAX) else { return Ok(found) };
            url = format!("{list}&continue={}", escaped(next));
        }
    }
}

fn explained(failure: Failure, namespace: &str) -> String {
    match failure {
        Failure::Refused(FORBIDDEN, why) => {
            format!("{why}; allow the pod's service account to list endpointslices in namespace {namespace}")
        }
        Failure::Unreachable(_) | Failure::Refused(..) => failure.text(),
    }
}

/// All pods of the slice that do not end at this time, ready or not: a node is ready only when it has found the others.
fn addresses(slice: &Value, default: u16) -> Vec<SocketAddr> {
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let named = |port: &Value| port.get("name").and_then(Value::as_str) == Some(PORT_NAME);
    let port = list(slice, "ports").iter().find(|port| named(port)).and_then(|port| port.get("port")?.as_u64());
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(default);
    let mut found = Vec::new();
    for endpoint in list(slice, "endpoints") {
        if endpoint.pointer("/conditions/terminating").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        // Slices of host names have no addresses to parse.
        let ips = list(&endpoint, "addresses").into_iter().filter_map(|ip| ip.as_str()?.parse::<IpAddr>().ok());
        found.extend(ips.map(|ip| SocketAddr::new(ip, port)));
    }
    found
}

/// For a query: everything but letters and digits in hexadecimal.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slices_have_pods_with_ports() {
        let slice = json!({
            "addressType": "IPv4",
            "ports": [{ "name": "mqtt", "port": 1883 }, { "name": "cluster", "port": 7000 }],
            "endpoints": [
                { "addresses": ["10.0.0.1"], "conditions": { "ready": true } },
                { "addresses": ["10.0.0.2"], "conditions": { "ready": false, "terminating": false } },
                { "addresses": ["10.0.0.3"], "conditions": { "ready": false, "terminating": true } },
                { "addresses": ["not-an-address"] },
                {},
            ],
        });
        let texts = |slice: &Value| addresses(slice, 7883).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&slice), ["10.0.0.1:7000", "10.0.0.2:7000"]);
        let v6 = json!({ "ports": [{ "name": "", "port": 1883 }], "endpoints": [{ "addresses": ["fd00::1"] }] });
        assert_eq!(texts(&v6), ["[fd00::1]:7883"]);
        assert_eq!(texts(&json!({ "endpoints": null })), Vec::<String>::new());
        assert_eq!(escaped("a+/=1"), "a%2B%2F%3D1");
    }
}
