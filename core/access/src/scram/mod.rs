//! SCRAM, the server's side (RFC 5802, RFC 7677): a client proves that it knows a password without sending it, and is shown that
//! the server knows it, too. Without channel binding: TLS of MQTT is told apart by the listener.
//!
//! [`Exchange`] is the machine: it is made from the client's first message, gives the server's first, and judges the client's last.

mod exchange;
mod message;
mod verifier;

pub use exchange::{Exchange, ScramError};
pub use verifier::{ITERATIONS_MAX, ITERATIONS_MIN, Mechanism, Verifier, VerifierError};

/// Longest message of a client that is read, in bytes.
pub const MESSAGE_MAX: usize = 4096;
