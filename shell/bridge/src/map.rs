//! Topic and properties of a message at the other end.

use sedge_mqtt::{Publish, PublishProperties, TopicFilter, TopicName, Utf8};

use crate::config::{BridgeConfig, Direction};
use crate::template::Template;

/// User property: how many bridges a message has crossed.
const HOPS: &str = "sedge-hops";
/// User property: the client that published a message, which other brokers are not told.
pub(crate) const CLIENT: &str = "sedge-client";
/// User property: the cluster and the bridge that it crossed first.
const ORIGIN: &str = "sedge-origin";

/// A change of messages on their way, or a refusal to pass them on; a place for rules.
pub trait Transform: Send {
    /// Changes the message, named as in the cluster. `false`: the message does not go, and counts as having arrived.
    fn apply(&mut self, message: &mut Publish) -> bool;
}

/// Why a message does not go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It has crossed as many bridges as it may.
    Hops,
    /// It would have no name at the other end, or none that is allowed.
    Nameless,
    /// The transform keeps it.
    Transformed,
}

/// Names of one way.
#[derive(Debug)]
struct Way {
    strip: String,
    template: Template,
}

/// See the module.
pub(crate) struct Map {
    outward: Way,
    inward: Way,
    max_hops: u32,
    origin: Utf8,
    /// Whether the other end is told who published.
    keeps_client: bool,
    transform: Option<Box<dyn Transform>>,
}

impl Way {
    /// Whether every topic keeps its name.
    const fn is_plain(&self) -> bool {
        self.strip.is_empty() && self.template.is_empty()
    }

    fn rename(&self, topic: &str) -> Option<String> {
        let bare = self.strip.trim_end_matches('/');
        let inner = topic.strip_prefix(bare).and_then(|rest| rest.strip_prefix('/'));
        let topic = inner.filter(|_| !bare.is_empty()).unwrap_or(topic);
        if self.template.is_empty() {
            return Some(topic.to_owned());
        }
        let name = self.template.fill(topic, None)?;
        Some(if self.template.is_whole() { name } else { join(&name, topic) })
    }
}

/// `prefix/name`, with one slash whether the prefix ends with one or not.
fn join(prefix: &str, name: &str) -> String {
    format!("{}/{name}", prefix.trim_end_matches('/'))
}

impl Map {
    /// For the bridge `name` of the cluster `cluster`.
    pub(crate) fn new(config: &BridgeConfig, cluster: &str, name: &str, transform: Option<Box<dyn Transform>>) -> Self {
        // A template that is wrong was refused with the configuration.
        let template = config.template().unwrap_or_default();
        let way = || Way { strip: config.strip.clone(), template: template.clone() };
        let inward = match config.direction {
            Direction::Both => Way { strip: config.topic.clone(), template: Template::default() },
            Direction::In | Direction::Out => way(),
        };
        let origin = Utf8::new(&format!("{cluster}/{name}")).unwrap_or_default();
        Self { outward: way(), inward, max_hops: config.max_hops, origin, keeps_client: false, transform }
    }

    /// For an end that has names of its own: only the front of topics goes.
    #[cfg(feature = "kafka")]
    pub(crate) fn plain(shared: &crate::supervisor::Shared, transform: Option<Box<dyn Transform>>) -> Self {
        let config = BridgeConfig { topic: String::new(), ..shared.config.clone() };
        Self { keeps_client: true, ..Self::new(&config, &shared.cluster, &shared.record.name, transform) }
    }

    /// Gives the transform back.
    #[cfg(feature = "kafka")]
    pub(crate) fn take_transform(&mut self) -> Option<Box<dyn Transform>> {
        self.transform.take()
    }

    /// Topic filters to subscribe to at the other end.
    pub(crate) fn remote_filters(config: &BridgeConfig) -> Vec<TopicFilter> {
        let name = |filter: &String| match config.direction {
            Direction::Both if !config.topic.is_empty() => join(&config.topic, filter),
            Direction::Both | Direction::In | Direction::Out => filter.clone(),
        };
        config.from.iter().filter_map(|filter| TopicFilter::new(&name(filter)).ok()).collect()
    }

    /// The message as it leaves the cluster.
    pub(crate) fn outward(&mut self, mut message: Publish) -> Result<Publish, Stays> {
        if self.transform.as_mut().is_some_and(|transform| !transform.apply(&mut message)) {
            return Err(Stays::Transformed);
        }
        self.cross(message, true)
    }

    /// The message as it comes into the cluster.
    pub(crate) fn inward(&mut self, message: Publish) -> Result<Publish, Stays> {
        let mut message = self.cross(message, false)?;
        let goes = self.transform.as_mut().is_none_or(|transform| transform.apply(&mut message));
        if goes { Ok(message) } else { Err(Stays::Transformed) }
    }

    fn cross(&self, mut message: Publish, out: bool) -> Result<Publish, Stays> {
        let way = if out { &self.outward } else { &self.inward };
        let topic = message.topic.as_ref().ok_or(Stays::Nameless)?;
        if !way.is_plain() {
            let name = way.rename(topic.as_str()).ok_or(Stays::Nameless)?;
            message.topic = Some(TopicName::new(&name).ok().ok_or(Stays::Nameless)?);
        }
        let mut properties = message.properties.take().unwrap_or_default();
        properties.topic_alias = None;
        properties.subscription_ids.clear();
        if out {
            self.count_hop(&mut properties)?;
        }
        message.properties = (*properties != PublishProperties::default()).then_some(properties);
        Ok(message)
    }

    /// MQ-18: a message that goes round in a circle of bridges ends.
    fn count_hop(&self, properties: &mut PublishProperties) -> Result<(), Stays> {
        let is = |name: &Utf8, wanted: &str| name.as_bytes() == wanted.as_bytes();
        let hops = properties.user.iter().find(|(name, _)| is(name, HOPS));
        let hops = hops.map_or(0, |(_, hops)| hops.as_str().parse::<u32>().unwrap_or(u32::MAX));
        if hops >= self.max_hops {
            return Err(Stays::Hops);
        }
        properties.user.retain(|(name, _)| !is(name, HOPS) && (self.keeps_client || !is(name, CLIENT)));
        // Nearly every message crosses its first bridge.
        let number =
            if hops == 0 { Utf8::from_static("1") } else { Utf8::new(&(hops + 1).to_string()).unwrap_or_default() };
        properties.user.push((Utf8::from_static(HOPS), number));
        if !properties.user.iter().any(|(name, _)| is(name, ORIGIN)) {
            properties.user.push((Utf8::from_static(ORIGIN), self.origin.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sedge_mqtt::QoS;

    use super::*;

    fn message(topic: &str) -> Publish {
        Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: Some(TopicName::new(topic).unwrap()),
            packet_id: sedge_mqtt::PacketId::new(1),
            payload: Bytes::from_static(b"x"),
            properties: None,
        }
    }

    fn map(direction: Direction, topic: &str, strip: &str) -> Map {
        let (topic, strip) = (topic.to_owned(), strip.to_owned());
        let config = BridgeConfig { direction, topic, strip, max_hops: 2, ..BridgeConfig::default() };
        Map::new(&config, "site", "cloud", None)
    }

    fn name(result: Result<Publish, Stays>) -> String {
        result.unwrap().topic.unwrap().as_str().to_owned()
    }

    /// MQ-18, DP-04
    #[test]
    fn topics_get_a_prefix_on_the_way_out_and_lose_it_on_the_way_in() {
        let mut both = map(Direction::Both, "site-1", "");
        assert_eq!(name(both.outward(message("a/b"))), "site-1/a/b");
        assert_eq!(name(both.inward(message("site-1/a/b"))), "a/b");
        assert_eq!(name(both.inward(message("site-11/a"))), "site-11/a", "only whole levels are taken away");
        assert_eq!(name(map(Direction::Out, "site-1/", "plant").outward(message("plant/7/t"))), "site-1/7/t");
        assert_eq!(name(map(Direction::Out, "{1}/{topic}", "").outward(message("plant/7"))), "7/plant/7");
        assert_eq!(name(map(Direction::Out, "x-{0}", "").outward(message("plant/7"))), "x-plant/plant/7");
        assert_eq!(name(map(Direction::In, "", "").inward(message("a"))), "a");
        assert_eq!(map(Direction::Out, "{3}", "").outward(message("a/b")), Err(Stays::Nameless));
        let config = BridgeConfig {
            direction: Direction::Both,
            topic: "site-1".to_owned(),
            from: vec!["alarm/#".to_owned()],
            ..BridgeConfig::default()
        };
        assert_eq!(Map::remote_filters(&config).first().map(TopicFilter::as_str), Some("site-1/alarm/#"));
    }

    /// MQ-18: no endless loop.
    #[test]
    fn a_message_crosses_so_many_bridges_and_no_more() {
        let mut map = map(Direction::Out, "", "");
        let once = map.outward(message("a")).unwrap();
        let user = |message: &Publish| {
            let user = &message.properties.as_ref().unwrap().user;
            user.iter().map(|(name, value)| format!("{}={}", name.as_str(), value.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(user(&once), ["sedge-hops=1", "sedge-origin=site/cloud"]);
        let twice = map.outward(once).unwrap();
        assert_eq!(user(&twice), ["sedge-origin=site/cloud", "sedge-hops=2"]);
        assert_eq!(map.outward(twice), Err(Stays::Hops));
    }

    struct Only(&'static str);

    impl Transform for Only {
        fn apply(&mut self, message: &mut Publish) -> bool {
            message.payload = Bytes::from_static(b"y");
            message.topic.as_ref().is_some_and(|topic| topic.as_str() == self.0)
        }
    }

    /// DP-02: the place where rules are put in.
    #[test]
    fn a_transform_changes_messages_or_keeps_them() {
        let config = BridgeConfig::default();
        let mut map = Map::new(&config, "site", "cloud", Some(Box::new(Only("a"))));
        assert_eq!(map.outward(message("a")).unwrap().payload.as_ref(), b"y");
        assert_eq!(map.outward(message("b")), Err(Stays::Transformed));
    }
}
