//! Invariants (DESIGN section 6), one file each: states that must never occur.

pub(crate) mod agreement;
pub(crate) mod bounded;
pub(crate) mod kept;
pub(crate) mod not_lost;
pub(crate) mod once;
pub(crate) mod order;
pub(crate) mod protocol;
pub(crate) mod shares;

/// Invariants by name, with their source.
pub const ALL: &[(&str, &str)] = &[
    ("not_lost", "DESIGN section 6, 1"),
    ("kept", "DESIGN section 6, 1; MQ-05"),
    ("once", "DESIGN section 6, 2"),
    ("shares", "MQTT 5.0 section 4.8.2; MQ-14"),
    ("order", "DESIGN section 6, 3; MQ-13"),
    ("agreement", "DESIGN section 6, 4; MQ-11, FT-10, FT-13"),
    ("bounded", "DESIGN section 6, 5"),
    ("protocol", "MQTT 3.1.1 and 5.0: what a client must never see from a broker"),
];
