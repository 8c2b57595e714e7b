//! The steps of a publication.

use sedge_base::{ClientId, NodeId, Now};
use sedge_mqtt::{MessageId, QoS, ReasonCode, TopicName};

use super::TraceParent;
use crate::Explanation;

/// A note about a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Ascending, of the shard or node that has noted it.
    pub number: u64,
    /// When.
    pub at: Now,
    /// Which publication. One that was refused has a number that no other has.
    pub message: MessageId,
    /// Its topic.
    pub topic: TopicName,
    /// The step that the publication has taken.
    pub step: TraceStep,
}

impl TraceEvent {
    /// Bytes that it takes, about.
    pub(super) fn footprint(&self) -> usize {
        let more = match &self.step {
            TraceStep::Session { client, explanation, .. } => {
                let filter = explanation.filter.as_ref().map_or(0, |filter| filter.as_str().len());
                client.as_str().len() + explanation.detail.len() + filter
            }
            TraceStep::Received { publisher, .. } => publisher.as_ref().map_or(0, |client| client.as_str().len()),
            TraceStep::Refused { publisher, detail, .. } => publisher.as_str().len() + detail.len(),
            TraceStep::Answered { publisher: client, .. }
            | TraceStep::Sent { client, .. }
            | TraceStep::Acknowledged { client, .. }
            | TraceStep::Dropped { client, .. } => client.as_str().len(),
            TraceStep::Routed { nodes, groups } => nodes.len() * 16 + groups * 16,
            TraceStep::Copied | TraceStep::Came { .. } | TraceStep::More { .. } => 0,
        };
        size_of::<Self>() + self.topic.as_bytes().len() + more
    }
}

/// One step of a publication through a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// The publication came from its publisher.
    Received {
        /// Its publisher; `None`: the broker itself.
        publisher: Option<ClientId>,
        /// Its quality of service.
        qos: QoS,
        /// Bytes of its payload.
        bytes: usize,
        /// Whether it is to be retained.
        retain: bool,
        /// The publisher's own trace.
        parent: Option<TraceParent>,
    },
    /// The publication came from its publisher and was refused.
    Refused {
        /// Its publisher.
        publisher: ClientId,
        /// Reason code of its acknowledgement.
        reason: ReasonCode,
        /// Cause of the refusal, in words.
        detail: String,
    },
    /// The node sends the publication to these nodes.
    Routed {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// The number of shared subscriptions at other nodes that get the publication.
        groups: usize,
    },
    /// The publication came to a node over a link.
    Came {
        /// The neighbour that has sent it.
        from: NodeId,
        /// Whether the publication had come before, so that it is not delivered again.
        again: bool,
        /// The publisher's own trace.
        parent: Option<TraceParent>,
    },
    /// The copies that sessions here keep of the publication are replicated to other nodes.
    Copied,
    /// A session's part in the publication.
    Session {
        /// The client.
        client: ClientId,
        /// Whether the client gets it, and what decides.
        explanation: Explanation,
    },
    /// More sessions have a part in the publication than are noted.
    More {
        /// How many.
        sessions: usize,
    },
    /// The publication was sent to a client.
    Sent {
        /// The client.
        client: ClientId,
        /// With this quality of service.
        qos: QoS,
        /// Whether the publication had waited.
        waited: bool,
    },
    /// The client has acknowledged the publication (PUBACK, PUBREC).
    Acknowledged {
        /// The client.
        client: ClientId,
    },
    /// The publication had waited for a client, or was to be sent, and is dropped.
    Dropped {
        /// The client.
        client: ClientId,
        /// Why.
        cause: crate::Cause,
    },
    /// The publisher has its acknowledgement.
    Answered {
        /// The publisher.
        publisher: ClientId,
        /// Reason code of the acknowledgement.
        reason: ReasonCode,
    },
}
