//! Topics by how much clients publish to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The topics that clients publish to most (`GET /api/v1/topics/hot`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotTopics {
    /// Over how many seconds was counted, at the thread that has counted for the shortest time; 0 when the first question has only begun it.
    pub seconds: f64,
    /// The busiest first.
    pub topics: Vec<HotTopic>,
    /// Names of the members that were asked and have not answered in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
}

/// A topic, and how often clients publish to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotTopic {
    /// The topic.
    pub topic: String,
    /// Publications a second, at most.
    pub rate: f64,
    /// By how much that may be too high.
    pub error: f64,
}
