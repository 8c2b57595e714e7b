//! The role of a request's sender.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What whoever asks may do (`GET /api/v1/role`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Standing {
    /// `view`: look; `operate`: also end connections, empty a node, trace, change the level of the log, pause scaling; `admin`: everything.
    pub role: String,
    /// The request showed no token, and one might allow more.
    pub asks: bool,
}
