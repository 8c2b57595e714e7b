//! Input and output of a rule.

use bytes::Bytes;
use sedge_mqtt::{PublishProperties, QoS, TopicName, Utf8};

/// The user property that names each rule that had a part in a publication. A rule of the cluster tells by it which messages not to take.
pub const RULE_PROPERTY: &str = "sedge-rule";

/// Most rules that have a part in one publication: rules behind the last leave it alone.
pub const CHAIN_MAX: usize = 8;

/// A publication as a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Topic of the publication.
    pub topic: &'a TopicName,
    /// Payload of the publication.
    pub payload: &'a Bytes,
    /// Quality of service it was published with.
    pub qos: QoS,
    /// Whether it was to be retained.
    pub retain: bool,
    /// MQTT 5.0 properties.
    pub properties: Option<&'a PublishProperties>,
    /// Client id of the publisher, where it is known.
    pub client: Option<&'a str>,
}

impl<'a> Input<'a> {
    /// Names of the rules that had a part in it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &'a str> {
        let user = self.properties.map_or(&[][..], |properties| &properties.user[..]);
        user.iter().filter(|(name, _)| name.as_str() == RULE_PROPERTY).map(|(_, rule)| rule.as_str())
    }
}

/// A message that a rule puts out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Topic that the message is published to; `None`: the rule has no `to`, and its owner chooses the topic.
    pub topic: Option<TopicName>,
    /// Topic of the publication that the output was made of; for the output of a window: topic of its last message.
    pub source: TopicName,
    /// Payload of the output.
    pub payload: Bytes,
    /// Quality of service to publish it with.
    pub qos: QoS,
    /// Whether the output is to be published as a retained message.
    pub retain: bool,
    /// Properties of the output; [`RULE_PROPERTY`] names the rules that had a part in it, this one included.
    pub properties: PublishProperties,
}

/// The user properties that name these rules.
pub(crate) fn marks<'a>(chain: impl Iterator<Item = &'a str>) -> Vec<(Utf8, Utf8)> {
    chain.filter_map(|rule| Some((Utf8::from_static(RULE_PROPERTY), Utf8::new(rule).ok()?))).collect()
}
