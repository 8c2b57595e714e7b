//! Topic aliases of one connection (MQTT 5.0 section 3.3.2.3.4).

use core::num::NonZeroU16;

use sedge_base::{LookupMap, Seed};
use sedge_mqtt::{TopicAlias, TopicName};

/// Shorter topics gain nothing: the alias itself takes three bytes.
const WORTH_BYTES: usize = 6;

/// Topics that the client's aliases stand for, by alias minus 1.
#[derive(Debug, Default)]
pub(crate) struct IncomingAliases(Vec<Option<TopicName>>);

impl IncomingAliases {
    /// Sets the topic that `alias` (not 0) stands for.
    pub(crate) fn set(&mut self, alias: u16, topic: &TopicName) {
        let index = usize::from(alias).saturating_sub(1);
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        if self.0[index].as_ref() != Some(topic) {
            self.0[index] = Some(topic.detached());
        }
    }

    /// The topic that `alias` stands for.
    pub(crate) fn get(&self, alias: u16) -> Option<&TopicName> {
        self.0.get(usize::from(alias).checked_sub(1)?)?.as_ref()
    }
}

/// The broker's aliases: the first topics that are sent get one each.
#[derive(Debug)]
pub(crate) struct OutgoingAliases {
    known: LookupMap<TopicName, NonZeroU16>,
    limit: u16,
}

impl OutgoingAliases {
    pub(crate) const fn new(limit: u16, seed: Seed) -> Self {
        Self { known: LookupMap::new(seed), limit }
    }

    /// The alias for a PUBLISH with this topic. One that does not omit the topic is new: see [`OutgoingAliases::sent`].
    pub(crate) fn alias(&self, topic: &TopicName) -> Option<TopicAlias> {
        if topic.as_bytes().len() < WORTH_BYTES {
            return None;
        }
        if let Some(&alias) = self.known.get(topic) {
            return Some(TopicAlias { alias, omit_topic: true });
        }
        let next = u16::try_from(self.known.len()).ok()?.checked_add(1)?;
        let alias = NonZeroU16::new(next).filter(|_| next <= self.limit)?;
        Some(TopicAlias { alias, omit_topic: false })
    }

    /// A PUBLISH with this alias was sent: the client knows it now.
    pub(crate) fn sent(&mut self, topic: &TopicName, alias: TopicAlias) {
        if !alias.omit_topic {
            self.known.insert(topic.detached(), alias.alias);
        }
    }
}
