//! Scaling, as the controller of the site tells it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What the controller of the site has told this node last (`GET /api/v1/scale`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scaling {
    /// Seconds since then; absent if none has told it anything.
    pub heard_seconds: Option<u64>,
    /// What somebody has asked of the controller that it has not heard yet: to pause, or to go on.
    pub asked_to_pause: Option<bool>,
    /// What `sedge scale status --json` prints, without old events.
    #[schema(value_type = Option<Object>)]
    pub report: Option<Value>,
}

/// What operators ask of the controller (`PUT /api/v1/scale`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScalingOrder {
    /// Whether actions are to pause; absent: as before.
    pub pause: Option<bool>,
}
