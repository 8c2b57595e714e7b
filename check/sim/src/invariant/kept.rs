//! A session that is to stay is there when its client comes back.

use crate::oracle::Oracle;

/// Name of the invariant.
pub(crate) const NAME: &str = "kept";

/// Call at the end, if nothing has happened that excuses the loss of acknowledged messages.
pub(crate) fn check(oracle: &Oracle) -> Vec<String> {
    oracle.lost_sessions.clone()
}
