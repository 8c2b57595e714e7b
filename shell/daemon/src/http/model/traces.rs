//! Traces of publications.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A trace (`POST /api/v1/traces`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// Its number, the same at all nodes.
    pub id: u64,
    /// The client that it looks at.
    pub client: Option<String>,
    /// The topics whose publications it follows; besides what the client publishes.
    pub topics: Vec<String>,
    /// One publication of so many is followed.
    pub one_in: u32,
    /// Names of the members where it does not run, since they have not answered or run as many as may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// The traces that run at a node (`GET /api/v1/traces`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Traces {
    /// By number.
    pub traces: Vec<Trace>,
}

/// What was noted for a trace at all nodes (`GET /api/v1/traces/{id}`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceNotes {
    /// The notes, by time.
    pub notes: Vec<TraceNote>,
    /// What to give as `cursor` for those that follow.
    pub next: String,
    /// Notes that have made room for others before anybody has read them, at all nodes together.
    pub dropped: u64,
    /// Names of the members that have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A step of a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceNote {
    /// The publication: node, life of the node, shard and number.
    pub publication: String,
    /// Its topic.
    pub topic: String,
    /// When, in microseconds since 1970, by the time of the cluster.
    pub at_us: u64,
    /// Id of the node that has noted it.
    pub node: String,
    /// Name of that node.
    pub name: String,
    /// `received`, `refused`, `routed`, `came`, `came_again`, `copied`, `session`, `more`, `sent`, `acknowledged`, `dropped` or `answered`.
    pub step: String,
    /// The client: the publisher, or the subscriber.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Of `session`: `sent`, `waits` or `not`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What decides, as in `/api/v1/explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The same, or more, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Quality of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// Bytes of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
    /// The publisher's own trace and span, as its user property `traceparent` has them; of `received` and `came`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Names of the nodes that it goes to, or of the one that it came from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}
