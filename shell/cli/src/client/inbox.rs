//! The receiving half of QoS 1 and 2.

use std::collections::{BTreeSet, HashMap};

use sedge_mqtt::{Ack, Packet, PacketId, Publish, QoS, ReasonCode, TopicName};

use super::{ClientError, Connection};

/// A subscriber's knowledge of messages on their way to it.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// QoS 2 messages that were taken and whose PUBREL has not come.
    unreleased: BTreeSet<PacketId>,
    aliases: HashMap<u16, TopicName>,
}

/// A message that came for the first time.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) topic: TopicName,
    pub(crate) publish: Publish,
}

impl Inbox {
    /// Starts on a new connection: forgets the aliases, and without a session at the broker also the unreleased messages.
    pub(crate) fn reconnected(&mut self, session_present: bool) {
        self.aliases.clear();
        if !session_present {
            self.unreleased.clear();
        }
    }

    /// Whether a QoS 2 handshake is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.unreleased.is_empty()
    }

    /// The message in `publish`; `None` if it is a repetition, which is acknowledged at once. Call [`Inbox::done`] with the
    /// `publish` that is returned once the message is safe.
    pub(crate) fn arrived(
        &mut self,
        publish: Publish,
        connection: &mut Connection,
    ) -> Result<Option<Arrival>, ClientError> {
        let topic = self.resolve(&publish)?;
        let known = publish.packet_id.is_some_and(|id| self.unreleased.contains(&id));
        if publish.qos == QoS::ExactlyOnce && known {
            self.done(&publish, connection)?;
            return Ok(None);
        }
        Ok(Some(Arrival { topic, publish }))
    }

    /// Acknowledges a message.
    pub(crate) fn done(&mut self, publish: &Publish, connection: &mut Connection) -> Result<(), ClientError> {
        let Some(id) = publish.packet_id else { return Ok(()) };
        let ack = Ack::new(id, ReasonCode::Success);
        if publish.qos == QoS::AtLeastOnce {
            return connection.send(&Packet::PubAck(ack));
        }
        self.unreleased.insert(id);
        connection.send(&Packet::PubRec(ack))
    }

    /// Answers PUBREL.
    pub(crate) fn released(&mut self, release: &Ack, connection: &mut Connection) -> Result<(), ClientError> {
        self.unreleased.remove(&release.packet_id);
        connection.send(&Packet::PubComp(Ack::new(release.packet_id, ReasonCode::Success)))
    }

    fn resolve(&mut self, publish: &Publish) -> Result<TopicName, ClientError> {
        let alias = publish.properties.as_ref().and_then(|properties| properties.topic_alias);
        match (&publish.topic, alias) {
            (Some(topic), alias) => {
                if let Some(alias) = alias {
                    self.aliases.insert(alias, topic.detached());
                }
                Ok(topic.clone())
            }
            (None, alias) => alias
                .and_then(|alias| self.aliases.get(&alias).cloned())
                .ok_or_else(|| ClientError::Unsuitable("the broker used a topic alias it never set".to_owned())),
        }
    }
}
