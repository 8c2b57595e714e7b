//! The driver for pods of a Kubernetes `StatefulSet`, such as that of the Helm chart: it sets the number of replicas, and has a pod
//! emptied before it goes. Pods themselves are made, and made again, by Kubernetes.

mod api;
mod pod;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sedge_scale::ActionId;
use sedge_scale::site::{MemberSpec, Plain, PlainKind, Site};
use serde_json::{Value, json};

use self::api::Api;
use self::pod::Pod;
use super::{Driver, World, empty_only};
use crate::network::{Nodes, segment};
use crate::state::NodeRecord;

/// How long a pod may take until it is ready: its image may have to be fetched.
const READY: Duration = Duration::from_mins(5);
/// The longest time that a pod may take to end: its grace period, and the time that the kubelet needs.
const ENDED: Duration = Duration::from_mins(15);
const TURN: Duration = Duration::from_millis(500);
/// Attempts to change a number that somebody else changes, too.
const MAX_ATTEMPTS: u32 = 10;

/// Where a group's pods are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    namespace: String,
    name: String,
}

/// Sets the size of stateful sets.
#[derive(Debug)]
pub(super) struct Kubernetes {
    world: World,
    api: Api,
    nodes: Nodes,
    places: BTreeMap<String, Place>,
    /// One change of a size at a time.
    sizing: Mutex<()>,
}

/// The number at the end of a node's name: the pod with the ordinal below is the node.
fn number(node: &str) -> Option<u32> {
    node.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).filter(|number| *number > 0)
}

impl Kubernetes {
    pub(super) fn new(world: World, site: &Site) -> Result<Self, String> {
        let nodes = Nodes::new(&world.state().token, Duration::from_secs(5));
        let api = Api::new()?;
        let mut places = BTreeMap::new();
        for (group, spec) in site.groups() {
            let full = spec.member.statefulset.clone().unwrap_or_else(|| group.to_owned());
            let (namespace, name) = match full.split_once('/') {
                Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
                None => (api.namespace(), full),
            };
            places.insert(group.to_owned(), Place { namespace, name });
        }
        let driver = Self { world, api, nodes, places, sizing: Mutex::new(()) };
        driver.adopt()?;
        Ok(driver)
    }

    /// Takes over pods that are ready and that no controller knows yet.
    fn adopt(&self) -> Result<(), String> {
        for (group, place) in &self.places {
            for number in 1..=self.size(place)? {
                let node = format!("{group}-{number}");
                if self.world.node(&node).is_some_and(|record| record.served) {
                    continue;
                }
                if let Some(pod) = self.pod(place, number)?.filter(Pod::is_ready) {
                    let record = pod.record(group).map_err(|why| format!("{node}: {why}"))?;
                    self.world.change(|state| drop(state.nodes.insert(node, record)))?;
                }
            }
        }
        Ok(())
    }

    fn place(&self, group: &str) -> Result<&Place, String> {
        self.places.get(group).ok_or_else(|| format!("the site has no group {group}"))
    }

    /// Group, place and number of a node.
    fn seat(&self, node: &str) -> Result<(&Place, u32), String> {
        let wrong = || format!("{node} is no node of this site");
        let (group, _) = node.rsplit_once('-').ok_or_else(wrong)?;
        Ok((self.place(group)?, number(node).ok_or_else(wrong)?))
    }

    fn scale_path(place: &Place) -> String {
        let (namespace, name) = (segment(&place.namespace), segment(&place.name));
        format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}/scale")
    }

    fn scale(&self, place: &Place) -> Result<Value, String> {
        let (status, value) = self.api.get(&Self::scale_path(place))?;
        let Place { namespace, name } = place;
        if status == 404 {
            return Err(format!(
                "there is no StatefulSet {name} in the namespace {namespace}: install the chart, or name another one with statefulset in member"
            ));
        }
        Ok(value)
    }

    /// Replicas that the set is to have.
    fn size(&self, place: &Place) -> Result<u32, String> {
        let scale = self.scale(place)?;
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(0);
        u32::try_from(replicas).ok().ok_or_else(|| format!("{} has {replicas} replicas", place.name))
    }

    /// Sets the number of replicas to the one that `change` makes of the present number; leaves it if `change` says nothing.
    fn resize(&self, place: &Place, change: impl Fn(u32) -> Option<u32>) -> Result<(), String> {
        let _turn = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MAX_ATTEMPTS {
            let scale = self.scale(place)?;
            let now = scale.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(0);
            let Some(wanted) = change(u32::try_from(now).unwrap_or(u32::MAX)) else { return Ok(()) };
            let version = scale.pointer("/metadata/resourceVersion");
            let body = json!({ "metadata": { "resourceVersion": version }, "spec": { "replicas": wanted } });
            let (status, _) = self.api.patch(&Self::scale_path(place), &body)?;
            if status != 409 {
                return Ok(());
            }
        }
        Err(format!(
            "the size of the StatefulSet {} changes all the time; does an autoscaler change it, too?",
            place.name
        ))
    }

    fn pod(&self, place: &Place, number: u32) -> Result<Option<Pod>, String> {
        let Place { namespace, name } = place;
        let pod = format!("{name}-{}", number.saturating_sub(1));
        let (status, value) =
            self.api.get(&format!("/api/v1/namespaces/{}/pods/{}", segment(namespace), segment(&pod)))?;
        Ok((status != 404).then(|| Pod::new(pod, value)))
    }

    /// Waits until a pod is ready and serves, and says where.
    fn wait_ready(&self, group: &str, place: &Place, number: u32) -> Result<NodeRecord, String> {
        let deadline = Instant::now() + READY;
        loop {
            let pod = self.pod(place, number)?;
            let late = match &pod {
                Some(pod) if pod.is_ready() => {
                    let record = pod.record(group)?;
                    if self.nodes.is_ready(&record.http) {
                        return Ok(record);
                    }
                    format!("{} is ready, but does not answer at {}", pod.name(), record.http)
                }
                Some(pod) => pod.trouble(),
                None => format!("the pod {}-{} is not there", place.name, number.saturating_sub(1)),
            };
            if Instant::now() >= deadline {
                return Err(format!("{late} after {} s", READY.as_secs()));
            }
            sleep(TURN);
        }
    }

    /// Waits until a pod is gone.
    fn wait_gone(&self, place: &Place, number: u32) -> Result<(), String> {
        let deadline = Instant::now() + ENDED;
        while let Some(pod) = self.pod(place, number)? {
            if Instant::now() >= deadline {
                return Err(format!("the pod {} has not ended after {} s", pod.name(), ENDED.as_secs()));
            }
            sleep(TURN);
        }
        Ok(())
    }

    /// The highest number among the nodes of a group that are known, without `node`.
    fn highest_beside(&self, node: &str) -> u32 {
        let group = node.rsplit_once('-').map_or(node, |(group, _)| group);
        let state = self.world.state();
        let others = state.nodes.iter().filter(|(name, record)| *name != node && record.group == group);
        others.filter_map(|(name, _)| number(name)).max().unwrap_or(0)
    }

    fn forget(&self, node: &str) -> Result<(), String> {
        self.world.change(|state| drop(state.nodes.remove(node)))
    }
}

impl Driver for Kubernetes {
    fn provide(&self, _name: &str, plain: &Plain) -> Result<(), String> {
        match plain.kind {
            // The StatefulSet has these resources; the controller measures, keeps and evaluates itself.
            PlainKind::Network
            | PlainKind::Image
            | PlainKind::Storage
            | PlainKind::Meter
            | PlainKind::MetricStore
            | PlainKind::Alarming => Ok(()),
            PlainKind::Container | PlainKind::User | PlainKind::SecurityGroup | PlainKind::FloatingIp => {
                Err(format!("the kubernetes driver cannot provide a {}; have kubectl or Helm do it", plain.kind))
            }
        }
    }

    fn create(&self, _action: ActionId, group: &str, node: &str, _spec: &MemberSpec) -> Result<(), String> {
        let (place, number) = self.seat(node)?;
        let begun = NodeRecord { group: group.to_owned(), ..NodeRecord::default() };
        self.world.change(|state| state.nodes.entry(node.to_owned()).or_insert(begun).served)?;
        self.resize(place, |size| (size < number).then_some(number))?;
        let record = self.wait_ready(group, place, number)?;
        self.world.change(|state| drop(state.nodes.insert(node.to_owned(), record)))
    }

    fn resize(&self, node: &str, _cpu: f64) -> Result<(), String> {
        Err(format!("the kubernetes driver cannot change {node} while it runs"))
    }

    fn remove(&self, node: &str) -> Result<(), String> {
        let Some(record) = self.world.node(node) else { return Ok(()) };
        let (place, number) = self.seat(node)?;
        if self.size(place)? > number {
            return Err(format!(
                "{node} stays: a StatefulSet gives up its last pod first, and has pods behind this one"
            ));
        }
        if self.size(place)? == number {
            match self.pod(place, number)?.filter(Pod::is_ready) {
                Some(_) => empty_only(&self.nodes, node, &record.http)?,
                None if record.served => return Err(format!("{node} has ended before it was empty")),
                None => {}
            }
            self.resize(place, |size| (size >= number).then(|| number.saturating_sub(1)))?;
        }
        self.wait_gone(place, number)?;
        self.forget(node)
    }

    /// Pods that other nodes need stay: the last ones go when the nodes before them are forgotten.
    fn destroy(&self, node: &str) -> Result<(), String> {
        let (place, number) = self.seat(node)?;
        let keep = self.highest_beside(node);
        self.resize(place, |size| (size > keep).then_some(keep))?;
        if number > keep {
            self.wait_gone(place, number)?;
        }
        self.forget(node)
    }

    fn release(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }

    fn lost(&self, node: &str) -> Option<String> {
        let (place, number) = self.seat(node).ok()?;
        let record = self.world.node(node)?;
        match self.pod(place, number) {
            Ok(Some(pod)) => pod.lost(&record),
            Ok(None) => Some(format!("its pod {}-{} is gone", place.name, number.saturating_sub(1))),
            // The API server may be away: that says nothing of the node.
            Err(_) => None,
        }
    }
}
