//! Births of edge nodes: the names and types behind aliases.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::Timestamp;

use crate::message::{Metric, Payload};
use crate::topic::{Kind, Topic};

/// Most edge nodes that are remembered; the one that was heard of longest ago makes room.
const NODES_MAX: usize = 10_000;
/// Most bytes of all births: names, and this much more for each metric and edge node.
const BYTES_MAX: usize = 16 << 20;
const OVERHEAD: usize = 96;

/// How long an edge node has for its birth before it is asked again.
const ASK_AGAIN: u64 = 10_000;

/// A metric, as its birth has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: Arc<str>,
    pub(crate) datatype: u32,
}

/// Names of metrics are unique for one device, or for the edge node itself.
type Device = Option<Arc<str>>;

#[derive(Clone, Debug, Default)]
struct Node {
    aliases: BTreeMap<u64, (Device, Known)>,
    types: BTreeMap<(Device, Arc<str>), u32>,
    /// Time of the node's own birth; a device that was born before it is not alive.
    born: Option<u64>,
    /// When it was asked for its birth.
    asked: Option<u64>,
    /// Number of the message that was heard last.
    heard: u64,
    bytes: usize,
}

/// See the module. Tables are bounded: see [`Births::forgotten`].
#[derive(Clone, Debug, Default)]
pub struct Births {
    nodes: BTreeMap<(Box<str>, Box<str>), Node>,
    /// Edge nodes by when they were heard last.
    order: BTreeMap<u64, (Box<str>, Box<str>)>,
    heard: u64,
    bytes: usize,
    forgotten: u64,
}

impl Births {
    /// Edge nodes that are remembered.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes that they take, about.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Edge nodes that made room for others, or whose births were too large to keep.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes a birth. The birth of an edge node ends those of its devices.
    pub fn learn(&mut self, topic: &Topic<'_>, payload: &Payload) {
        let key = (Box::from(topic.group), Box::from(topic.node));
        let mut node = self.take(&key).unwrap_or_default();
        let device: Device = topic.device.map(Arc::from);
        if topic.kind == Kind::NodeBirth {
            node = Node { born: Some(payload.timestamp.unwrap_or(0)), ..Node::default() };
        } else if payload.timestamp < node.born {
            // This birth is of a device's former life, kept by a broker.
            return self.put(key, node);
        } else {
            node.aliases.retain(|_, (of, _)| *of != device);
            node.types.retain(|(of, _), _| *of != device);
            node.bytes = node.types.keys().map(|(_, name)| name.len() + OVERHEAD).sum();
        }
        for metric in &payload.metrics {
            let Some(name) = metric.name.as_deref().map(Arc::<str>::from) else { continue };
            let datatype = metric.datatype.unwrap_or(0);
            if node.bytes + name.len() + OVERHEAD > BYTES_MAX {
                self.forgotten += 1;
                break;
            }
            node.bytes += name.len() + OVERHEAD;
            if let Some(alias) = metric.alias {
                node.aliases.insert(alias, (device.clone(), Known { name: Arc::clone(&name), datatype }));
            }
            node.types.insert((device.clone(), name), datatype);
        }
        self.put(key, node);
    }

    /// The metric that `metric` of this topic's edge node or device means; `None`: only a birth can tell.
    pub(crate) fn find(&self, topic: &Topic<'_>, metric: &Metric) -> Option<Known> {
        let node = self.node(topic);
        match (&metric.name, metric.alias) {
            (Some(name), _) if metric.datatype.is_some_and(|kind| kind != 0) => {
                Some(Known { name: Arc::from(name.as_str()), datatype: metric.datatype.unwrap_or(0) })
            }
            (Some(name), _) => {
                let name: Arc<str> = Arc::from(name.as_str());
                let datatype = *node?.types.get(&(topic.device.map(Arc::from), Arc::clone(&name)))?;
                Some(Known { name, datatype })
            }
            (None, Some(alias)) => node?.aliases.get(&alias).map(|(_, known)| known.clone()),
            (None, None) => None,
        }
    }

    fn node(&self, topic: &Topic<'_>) -> Option<&Node> {
        self.nodes.get(&(Box::from(topic.group), Box::from(topic.node)))
    }

    /// Whether the topic's edge node is to be asked for its birth now: it was not asked a short while ago.
    pub(crate) fn ask(&mut self, now: Timestamp, topic: &Topic<'_>) -> bool {
        let key = (Box::from(topic.group), Box::from(topic.node));
        let mut node = self.take(&key).unwrap_or_default();
        let now = now.as_millis();
        let asks = node.asked.is_none_or(|asked| now >= asked.saturating_add(ASK_AGAIN));
        if asks {
            node.asked = Some(now);
        }
        self.put(key, node);
        asks
    }

    fn take(&mut self, key: &(Box<str>, Box<str>)) -> Option<Node> {
        let node = self.nodes.remove(key)?;
        self.order.remove(&node.heard);
        self.bytes -= node.bytes + size(key);
        Some(node)
    }

    fn put(&mut self, key: (Box<str>, Box<str>), mut node: Node) {
        self.heard += 1;
        node.heard = self.heard;
        self.bytes += node.bytes + size(&key);
        self.order.insert(node.heard, key.clone());
        self.nodes.insert(key, node);
        while self.nodes.len() > NODES_MAX || self.bytes > BYTES_MAX {
            let Some((_, oldest)) = self.order.first_key_value() else { return };
            let oldest = oldest.clone();
            self.take(&oldest);
            self.forgotten += 1;
        }
    }
}

fn size((group, node): &(Box<str>, Box<str>)) -> usize {
    group.len() + node.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(text: &str) -> Topic<'_> {
        Topic::parse(text).expect("a topic of Sparkplug")
    }

    fn birth(timestamp: u64, metrics: &[(&str, u64, u32)]) -> Payload {
        let metric = |&(name, alias, datatype): &(&str, u64, u32)| Metric {
            name: Some(name.to_owned()),
            alias: Some(alias),
            datatype: Some(datatype),
            ..Metric::default()
        };
        Payload { timestamp: Some(timestamp), metrics: metrics.iter().map(metric).collect(), ..Payload::default() }
    }

    fn name(births: &Births, text: &str, alias: u64) -> Option<String> {
        let metric = Metric { alias: Some(alias), ..Metric::default() };
        births.find(&topic(text), &metric).map(|known| known.name.to_string())
    }

    #[test]
    fn a_birth_explains_aliases_of_its_edge_node_alone() {
        let mut births = Births::default();
        births.learn(&topic("spBv1.0/g/NBIRTH/e"), &birth(1, &[("t", 7, 9)]));
        births.learn(&topic("spBv1.0/g/DBIRTH/e/d"), &birth(2, &[("p", 8, 3)]));
        assert_eq!(name(&births, "spBv1.0/g/NDATA/e", 7).as_deref(), Some("t"));
        assert_eq!(name(&births, "spBv1.0/g/DDATA/e/d", 8).as_deref(), Some("p"));
        assert_eq!(name(&births, "spBv1.0/g/NDATA/f", 7), None);
        assert_eq!(name(&births, "spBv1.0/h/NDATA/e", 7), None);
        let by_name = Metric { name: Some("p".to_owned()), ..Metric::default() };
        assert_eq!(births.find(&topic("spBv1.0/g/DDATA/e/d"), &by_name).map(|known| known.datatype), Some(3));
        assert_eq!(births.find(&topic("spBv1.0/g/DDATA/e/x"), &by_name), None);
    }

    #[test]
    fn the_birth_of_an_edge_node_ends_those_of_its_devices() {
        let mut births = Births::default();
        births.learn(&topic("spBv1.0/g/NBIRTH/e"), &birth(1, &[]));
        births.learn(&topic("spBv1.0/g/DBIRTH/e/d"), &birth(2, &[("p", 8, 3)]));
        births.learn(&topic("spBv1.0/g/NBIRTH/e"), &birth(5, &[("t", 7, 9)]));
        assert_eq!(name(&births, "spBv1.0/g/DDATA/e/d", 8), None);
        births.learn(&topic("spBv1.0/g/DBIRTH/e/d"), &birth(2, &[("p", 8, 3)]));
        assert_eq!(name(&births, "spBv1.0/g/DDATA/e/d", 8), None, "kept of the life before");
        births.learn(&topic("spBv1.0/g/DBIRTH/e/d"), &birth(6, &[("q", 8, 3)]));
        assert_eq!(name(&births, "spBv1.0/g/DDATA/e/d", 8).as_deref(), Some("q"));
        births.learn(&topic("spBv1.0/g/DBIRTH/e/d"), &birth(7, &[("r", 9, 3)]));
        assert_eq!(name(&births, "spBv1.0/g/DDATA/e/d", 8), None);
    }

    #[test]
    fn a_silent_edge_node_is_asked_again_after_a_while() {
        let mut births = Births::default();
        let data = topic("spBv1.0/g/NDATA/e");
        let mut at = |millis| births.ask(Timestamp::from_millis(millis), &data);
        assert_eq!([at(5), at(6), at(10_004), at(10_005), at(10_006)], [true, false, false, true, false]);
    }

    #[test]
    fn tables_are_bounded_and_count_what_they_forget() {
        let mut births = Births::default();
        let long = "x".repeat(64 << 10);
        for number in 0..400 {
            let node = format!("spBv1.0/g/NBIRTH/e{number}");
            births.learn(&topic(&node), &birth(1, &[(&long, 1, 9)]));
            assert!(births.bytes() <= BYTES_MAX);
        }
        assert!(births.forgotten() > 0 && births.node_count() < 400);
        assert_eq!(name(&births, "spBv1.0/g/NDATA/e0", 1), None);
        assert!(name(&births, "spBv1.0/g/NDATA/e399", 1).is_some());
        let recount: usize = births.nodes.iter().map(|(key, node)| node.bytes + size(key)).sum();
        assert_eq!(births.bytes(), recount);
    }
}
