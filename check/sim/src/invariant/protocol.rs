//! No client ever sees a broken rule of the protocol.

use crate::oracle::Oracle;

/// Name of the invariant.
pub(crate) const NAME: &str = "protocol";

/// Call at any time.
pub(crate) fn check(oracle: &Oracle) -> Vec<String> {
    oracle.protocol.clone()
}
