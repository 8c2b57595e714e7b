//! Payloads that become JSON before the rule looks at them.

use bytes::Bytes;
use sedge_mqtt::{PublishProperties, QoS, TopicName};
use sedge_sparkplug::{Births, rebirth_request};

use super::Machine;
use crate::definition::{Decode, Rule};
use crate::input::{Input, Output, marks};

/// The payload that the rule looks at.
pub(super) enum Read {
    /// The payload as it came.
    AsItIs,
    /// This in its place.
    Json(Bytes),
    /// Nothing: the payload cannot be read.
    Nothing,
}

impl Machine {
    /// Takes over a birth that the broker has kept, before anything else comes.
    pub fn learn(&mut self, topic: &str, payload: &[u8]) {
        if let Some(decoder) = &mut self.decoder {
            decoder.learn(topic, payload);
        }
    }

    /// The births that the rule remembers, if it reads Sparkplug B.
    pub fn births(&self) -> Option<&Births> {
        self.decoder.as_ref().map(|decoder| decoder.births())
    }

    pub(super) fn decode(&mut self, rule: &Rule, input: &Input<'_>) -> Read {
        let Decode::Sparkplug { asks } = rule.decode else { return Read::AsItIs };
        let Some(decoder) = &mut self.decoder else { return Read::AsItIs };
        if input.payload.len() > rule.limits.payload_bytes {
            // It is not looked into, as with every rule; but a birth that were not learned would be asked for again and again.
            decoder.learn(input.topic.as_str(), input.payload);
            return Read::AsItIs;
        }
        let now = sedge_base::Timestamp::from_millis(self.now);
        let decoded = match decoder.decode(now, input.topic.as_str(), input.payload) {
            Ok(Some(decoded)) => decoded,
            Ok(None) => return Read::AsItIs,
            Err(_) => {
                self.counters.undecodable += 1;
                return Read::Nothing;
            }
        };
        self.counters.unknown_metrics += decoded.unknown as u64;
        if let Some(topic) = decoded.ask.filter(|_| asks).and_then(|topic| TopicName::new(&topic).ok()) {
            self.counters.rebirths += 1;
            // Commands are neither acknowledged nor retained (specification, chapter 6).
            self.put_out(Output {
                topic: Some(topic),
                source: input.topic.clone(),
                payload: rebirth_request(now),
                qos: QoS::AtMostOnce,
                retain: false,
                properties: PublishProperties {
                    user: marks([&*rule.name].into_iter()),
                    ..PublishProperties::default()
                },
            });
        }
        Read::Json(decoded.json)
    }
}
