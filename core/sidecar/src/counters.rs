//! Counters of a sidecar.

/// Ascending counters of a [`crate::Sidecar`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidecarCounters {
    /// Packets that the broker sent.
    pub packets_in: u64,
    /// Publications sent to the broker.
    pub published: u64,
    /// Publications that the broker refused.
    pub refused: u64,
    /// Publications for the broker that found no room while it was away.
    pub dropped: u64,
    /// Deliveries of the broker that this node had given to it.
    pub matched: u64,
    /// Deliveries of the broker that come from somewhere else.
    pub foreign: u64,
    /// Deliveries that repeat a publication which the session has had.
    pub repeated: u64,
    /// Deliveries made from the sidecar's copy because the broker went away before making them.
    pub covered: u64,
    /// Deliveries that the broker never made although it was there.
    pub withheld: u64,
    /// Times a conversation was not read for a while because its client was behind.
    pub holds: u64,
    /// Connections made to the broker.
    pub connections: u64,
    /// Connections to the broker that were lost or could not be made.
    pub failures: u64,
}
