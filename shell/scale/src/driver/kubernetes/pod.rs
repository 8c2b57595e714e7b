//! A pod as the API of Kubernetes shows it.

use std::net::IpAddr;

use serde_json::Value;

use crate::state::NodeRecord;

/// Ports of a node whose pod names none.
const MQTT: u16 = 1883;
const HTTP: u16 = 8080;
const CLUSTER: u16 = 7883;

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    name: String,
    value: Value,
}

impl Pod {
    pub(super) const fn new(name: String, value: Value) -> Self {
        Self { name, value }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.value.pointer(pointer).and_then(Value::as_str)
    }

    fn is_ending(&self) -> bool {
        self.value.pointer("/metadata/deletionTimestamp").is_some()
    }

    /// Whether its condition `Ready` holds, and nobody has ended it.
    pub(super) fn is_ready(&self) -> bool {
        let conditions = self.value.pointer("/status/conditions").and_then(Value::as_array);
        let of = |condition: &Value, name: &str| condition.get(name).and_then(Value::as_str).map(str::to_owned);
        let ready =
            conditions.into_iter().flatten().find(|condition| of(condition, "type").as_deref() == Some("Ready"));
        !self.is_ending() && ready.and_then(|ready| of(ready, "status")).as_deref() == Some("True")
    }

    fn address(&self) -> Option<IpAddr> {
        self.text("/status/podIP").and_then(|address| address.parse().ok())
    }

    /// The port that its containers name so.
    fn port(&self, wanted: &str) -> Option<u16> {
        let containers = self.value.pointer("/spec/containers").and_then(Value::as_array);
        let ports = |container: &Value| container.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut ports = containers.into_iter().flatten().flat_map(ports);
        let port = ports.find(|port| port.get("name").and_then(Value::as_str) == Some(wanted))?;
        u16::try_from(port.get("containerPort")?.as_u64()?).ok()
    }

    /// The node that serves in this pod.
    pub(super) fn record(&self, group: &str) -> Result<NodeRecord, String> {
        let address = self.address().ok_or_else(|| format!("the pod {} has no address", self.name))?;
        let at =
            |name: &str, port: u16| std::net::SocketAddr::new(address, self.port(name).unwrap_or(port)).to_string();
        let (mqtt, http, cluster) = (at("mqtt", MQTT), at("http", HTTP), at("cluster", CLUSTER));
        Ok(NodeRecord { group: group.to_owned(), process: None, mqtt, http, cluster, served: true })
    }

    /// Why the node of `record` is known to be gone, if it is.
    pub(super) fn lost(&self, record: &NodeRecord) -> Option<String> {
        let name = &self.name;
        if let Some(phase @ ("Failed" | "Succeeded")) = self.text("/status/phase") {
            return Some(format!("its pod {name} has ended ({phase})"));
        }
        let now = self.record(&record.group).ok()?;
        (now.http != record.http).then(|| format!("its pod {name} was replaced by one at {}", now.http))
    }

    /// The reason why the pod is not ready, as far as Kubernetes names one.
    pub(super) fn trouble(&self) -> String {
        let statuses = self.value.pointer("/status/containerStatuses").and_then(Value::as_array);
        let reason = |status: &Value| {
            let waiting = status.pointer("/state/waiting/reason").and_then(Value::as_str)?;
            let message = status.pointer("/state/waiting/message").and_then(Value::as_str).unwrap_or_default();
            Some(format!("{waiting} {message}").trim().to_owned())
        };
        let conditions = self.value.pointer("/status/conditions").and_then(Value::as_array);
        let held = |condition: &Value| {
            let no = condition.get("status").and_then(Value::as_str) == Some("False");
            condition.get("message").and_then(Value::as_str).filter(|_| no).map(str::to_owned)
        };
        let why = statuses.into_iter().flatten().find_map(reason);
        let why = why.or_else(|| conditions.into_iter().flatten().find_map(held));
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        format!("the pod {} is not ready{why}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &Value) -> Pod {
        let ports = json!([{ "name": "mqtt", "containerPort": 1884 }, { "containerPort": 9 }]);
        Pod::new("s-0".to_owned(), json!({ "spec": { "containers": [{ "ports": ports }] }, "status": status }))
    }

    #[test]
    fn a_ready_pod_is_a_node_at_its_ports() {
        let ready =
            json!({ "podIP": "10.1.2.3", "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        let found = pod(&ready);
        let record = found.record("g").expect("a record");
        assert!(found.is_ready() && record.served);
        assert_eq!((record.mqtt.as_str(), record.http.as_str()), ("10.1.2.3:1884", "10.1.2.3:8080"));
        assert_eq!(found.lost(&record), None);
        let mut ending = found.clone();
        ending.value["metadata"] = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert!(!ending.is_ready());
        let mut moved = ready.clone();
        moved["podIP"] = json!("fd00::1");
        assert!(pod(&moved).lost(&record).is_some_and(|why| why.contains("[fd00::1]:8080")));
        let mut failed = ready;
        failed["phase"] = json!("Failed");
        assert!(pod(&failed).lost(&record).is_some_and(|why| why.contains("Failed")));
    }

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let waiting = json!([{ "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } } }]);
        let waiting = pod(&json!({ "containerStatuses": waiting }));
        assert!(!waiting.is_ready() && waiting.record("g").is_err());
        assert_eq!(waiting.trouble(), "the pod s-0 is not ready (ImagePullBackOff no such image)");
        let unschedulable =
            json!([{ "type": "PodScheduled", "status": "False", "message": "0/1 nodes are available" }]);
        assert!(pod(&json!({ "conditions": unschedulable })).trouble().contains("0/1 nodes"));
        assert_eq!(Pod::new("s-1".to_owned(), Value::Null).trouble(), "the pod s-1 is not ready");
    }
}
