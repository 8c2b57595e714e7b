//! A rule that is fed by hand.

use std::sync::Arc;

use bytes::Bytes;
use sedge_base::Timestamp;
use sedge_mqtt::{QoS, TopicName};
use sedge_rules::{Input, Item, Machine, Output, Rule, RuleError};

pub(crate) fn text(text: &str) -> Item {
    Item::Text(text.to_owned())
}

pub(crate) fn list(texts: &[&str]) -> Item {
    Item::List(texts.iter().map(|item| text(item)).collect())
}

pub(crate) fn table(entries: &[(&str, Item)]) -> Item {
    Item::Table(entries.iter().map(|(key, item)| ((*key).to_owned(), item.clone())).collect())
}

/// Names with expressions.
pub(crate) struct List(pub(crate) &'static [(&'static str, &'static str)]);

impl List {
    pub(crate) fn table(&self) -> Item {
        Item::Table(self.0.iter().map(|(name, expression)| ((*name).to_owned(), text(expression))).collect())
    }
}

pub(crate) fn compile(name: &str, entries: &[(&str, Item)]) -> Result<Rule, Vec<RuleError>> {
    let entries: Vec<(String, Item)> = entries.iter().map(|(key, item)| ((*key).to_owned(), item.clone())).collect();
    Rule::compile(name, &entries)
}

pub(crate) struct Run {
    pub(crate) machine: Machine,
}

impl Run {
    pub(crate) fn new(entries: &[(&str, Item)]) -> Self {
        Self::named("r", entries)
    }

    pub(crate) fn named(name: &str, entries: &[(&str, Item)]) -> Self {
        Self { machine: Machine::new(Arc::new(compile(name, entries).expect("a valid rule"))) }
    }

    pub(crate) fn send(&mut self, now: u64, topic: &str, payload: &str) {
        let (topic, payload) = (TopicName::new(topic).expect("a topic"), Bytes::copy_from_slice(payload.as_bytes()));
        let input = Input {
            topic: &topic,
            payload: &payload,
            qos: QoS::AtLeastOnce,
            retain: false,
            properties: None,
            client: Some("c"),
        };
        self.machine.handle(Timestamp::from_millis(now), &input);
    }

    /// Hands in what another rule has put out.
    pub(crate) fn pass(&mut self, now: u64, output: &Output) {
        let input = Input {
            topic: output.topic.as_ref().unwrap_or(&output.source),
            payload: &output.payload,
            qos: output.qos,
            retain: output.retain,
            properties: Some(&output.properties),
            client: None,
        };
        self.machine.handle(Timestamp::from_millis(now), &input);
    }

    pub(crate) fn at(&mut self, now: u64) {
        self.machine.handle_timeout(Timestamp::from_millis(now));
    }

    pub(crate) fn timeout(&self) -> Option<u64> {
        self.machine.poll_timeout().map(Timestamp::as_millis)
    }

    /// Topic and payload of everything that has come out; `-` where the rule has no topic.
    pub(crate) fn taken(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.machine.poll_output())
            .map(|output| {
                let topic = output.topic.as_ref().map_or("-", TopicName::as_str);
                format!("{topic} {}", String::from_utf8_lossy(&output.payload))
            })
            .collect()
    }
}
