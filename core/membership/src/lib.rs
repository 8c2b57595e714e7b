//! SWIM membership, without I/O.
