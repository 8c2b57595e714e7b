//! How much one rule may take.

/// Named limits of one rule, and what happens at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `max_groups`: most groups at a time.
    pub groups: usize,
    /// `max_state`: bytes of all groups and windows together.
    pub state_bytes: usize,
    /// `max_windows`: most windows that are open at a time.
    pub windows: usize,
    /// `max_payload`: largest payload in bytes that is looked into.
    pub payload_bytes: usize,
    /// `overflow`: what happens at the first three.
    pub overflow: Overflow,
}

/// Handling of a publication that would go beyond a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The publication is left out and counted.
    #[default]
    Drop,
    /// The group that is due first closes its windows early and makes room.
    Close,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            groups: 10_000,
            state_bytes: 16 << 20,
            windows: 100_000,
            payload_bytes: 64 << 10,
            overflow: Overflow::Drop,
        }
    }
}
