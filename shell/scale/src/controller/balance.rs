//! Keeping HAProxy in step with the machine.

use std::collections::BTreeMap;

use sedge_scale::EventKind;
use sedge_scale::site::{Driver as Name, LoadBalancer};

use super::Controller;
use crate::haproxy::{Haproxy, Server, place_name};
use crate::process::Proof;
use crate::report::BalancerReport;
use crate::state::{BalancerRecord, NodeRecord, State};

impl Controller {
    fn balancer(&self, name: &str) -> Option<LoadBalancer> {
        self.site.site.balancers().find(|(known, _)| *known == name).map(|(_, balancer)| balancer.clone())
    }

    /// Whether nodes are real, so that there is something to balance.
    fn is_recorded_only(&self) -> bool {
        self.site.site.driver == Name::Null
    }

    /// Starts a load balancer, or goes on with the one that an earlier controller left.
    pub(super) fn start_balancer(&mut self, name: &str) -> Result<(), String> {
        let Some(balancer) = self.balancer(name) else { return Ok(()) };
        let most =
            self.site.site.groups().find(|(group, _)| *group == balancer.backend).map_or(1, |(_, group)| group.max);
        let most = usize::try_from(most).unwrap_or(1);
        let mut record = self.world.state().balancers.get(name).cloned().unwrap_or_default();
        record.places.resize(most, None);
        record.port = balancer.port;
        if self.is_recorded_only() {
            return self.world.change(|state| drop(state.balancers.insert(name.to_owned(), record)));
        }
        let haproxy = Haproxy::new(&self.world.home, name);
        let servers = servers(&self.world.state(), &record);
        match record.process.clone().filter(Proof::is_running) {
            // Its file may say something else by now, another port for example.
            Some(process) => haproxy.reload(&process, &balancer, &servers)?,
            None => record.process = Some(haproxy.start(&balancer, &servers)?),
        }
        self.world.change(|state| drop(state.balancers.insert(name.to_owned(), record)))
    }

    /// Lets these nodes have new connections, and no others.
    pub(super) fn balance(&mut self, name: &str, nodes: &[String]) {
        let Some(balancer) = self.balancer(name) else { return };
        let mut record = self.world.state().balancers.get(name).cloned().unwrap_or_default();
        settle(&mut record, nodes);
        let servers = servers(&self.world.state(), &record);
        self.log_failure(name, self.world.change(|state| drop(state.balancers.insert(name.to_owned(), record))));
        if self.is_recorded_only() {
            return;
        }
        match Haproxy::new(&self.world.home, name).balance(&balancer, &servers) {
            Ok(()) => {
                self.unbalanced.remove(name);
            }
            Err(why) => {
                if self.unbalanced.insert(name.to_owned()) {
                    self.log_failure(name, Err(why));
                }
            }
        }
    }

    /// Tries failed changes again, and starts a HAProxy that has ended.
    pub(super) fn balance_again(&mut self) {
        let records: BTreeMap<String, BalancerRecord> = self.world.state().balancers.clone();
        for (name, record) in records {
            let ended = record.process.as_ref().is_some_and(|process| !process.is_running());
            if ended {
                let event = sedge_scale::Event {
                    at: crate::clock::wall(),
                    kind: EventKind::Lost,
                    subject: name.clone(),
                    text: "haproxy has ended; it is started again".to_owned(),
                };
                self.remember(&event, &|_| ());
                let started = self.start_balancer(&name);
                self.log_failure(&name, started);
            } else if self.unbalanced.contains(&name) {
                let nodes: Vec<String> = record.places.iter().flatten().cloned().collect();
                self.balance(&name, &nodes);
            }
        }
    }

    /// Ends a load balancer; nothing of it is left.
    pub(super) fn end_balancer(&self, name: &str) -> Result<(), String> {
        let record = self.world.state().balancers.get(name).cloned().unwrap_or_default();
        if let Some(process) = record.process {
            Haproxy::new(&self.world.home, name).end(&process)?;
        }
        self.world.change(|state| drop(state.balancers.remove(name)))
    }

    /// The load balancers for the report.
    pub(super) fn balancers(&self, state: &State) -> BTreeMap<String, BalancerReport> {
        let report = |(name, record): (&String, &BalancerRecord)| {
            let real = record.process.is_some();
            let by_place = if real { Haproxy::new(&self.world.home, name).connections() } else { BTreeMap::new() };
            let places = record.places.iter().enumerate();
            let taken: Vec<(usize, String)> =
                places.filter_map(|(place, node)| node.clone().map(|node| (place, node))).collect();
            let count = |place: usize| by_place.get(&place_name(place)).copied().unwrap_or(0);
            let report = BalancerReport {
                port: record.port,
                algorithm: self.balancer(name).map_or_else(String::new, |balancer| balancer.algorithm.to_string()),
                pid: record.process.as_ref().map(|process| process.pid),
                connections: taken.iter().map(|(place, node)| (node.clone(), count(*place))).collect(),
                nodes: taken.into_iter().map(|(_, node)| node).collect(),
            };
            (name.clone(), report)
        };
        state.balancers.iter().map(report).collect()
    }
}

/// Gives each node a place, and leaves those that have one where they are.
fn settle(record: &mut BalancerRecord, nodes: &[String]) {
    for place in &mut record.places {
        if place.as_ref().is_some_and(|node| !nodes.contains(node)) {
            *place = None;
        }
    }
    for node in nodes {
        if record.places.iter().flatten().any(|other| other == node) {
            continue;
        }
        match record.places.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(node.clone()),
            None => record.places.push(Some(node.clone())),
        }
    }
}

/// Server in each place of the load balancer.
fn servers(state: &State, record: &BalancerRecord) -> Vec<Option<Server>> {
    let server = |node: &String| state.nodes.get(node).and_then(address);
    record.places.iter().map(|place| place.as_ref().and_then(server)).collect()
}

fn address(node: &NodeRecord) -> Option<Server> {
    let (host, mqtt) = node.mqtt.rsplit_once(':')?;
    let (_, http) = node.http.rsplit_once(':')?;
    Some(Server { host: host.to_owned(), mqtt: mqtt.parse().ok()?, http: http.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_places() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut record = BalancerRecord { places: vec![None; 3], ..BalancerRecord::default() };
        settle(&mut record, &names(&["a", "b"]));
        settle(&mut record, &names(&["b"]));
        settle(&mut record, &names(&["b", "c"]));
        assert_eq!(record.places, [Some("c".to_owned()), Some("b".to_owned()), None]);
    }
}
