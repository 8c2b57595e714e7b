//! One exchange (RFC 5802 section 5).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::message::{ClientFinal, ClientFirst};
use super::{Mechanism, Verifier};

/// Why a client is not who it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// A message is not understood.
    #[error("a message of SCRAM is malformed, or wants what is not offered")]
    Message,
    /// The proof is wrong, or the user unknown: which of both, nobody is told.
    #[error("the proof is wrong")]
    Proof,
}

/// The server's side after the client's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    user: String,
    header: String,
    /// Of the client and the server.
    nonce: String,
    /// `client-first-message-bare`, `server-first-message`.
    messages: String,
    server_first_at: usize,
    verifier: Verifier,
}

impl Exchange {
    /// Begins with the client's first message. `nonce` is the server's part: printable ASCII without commas, random, never used twice.
    /// `verifier` gives the verifier of a user, or one of nobody ([`Verifier::of_nobody`]).
    pub fn begin(data: &[u8], nonce: &str, verifier: impl FnOnce(&str) -> Verifier) -> Result<Self, ScramError> {
        let first = ClientFirst::parse(data).ok_or(ScramError::Message)?;
        let verifier = verifier(&first.user);
        let nonce = format!("{}{nonce}", first.nonce);
        let server_first = format!("r={nonce},s={},i={}", STANDARD.encode(verifier.salt()), verifier.iterations());
        let messages = format!("{},{server_first}", first.bare);
        let server_first_at = first.bare.len() + 1;
        Ok(Self { header: first.header.to_owned(), user: first.user, nonce, messages, server_first_at, verifier })
    }

    /// The user that the client says it is.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The mechanism that the client uses.
    pub const fn mechanism(&self) -> Mechanism {
        self.verifier.mechanism()
    }

    /// The verifier by which the client is judged.
    pub const fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// The server's first message.
    pub fn server_first(&self) -> &str {
        self.messages.get(self.server_first_at..).unwrap_or_default()
    }

    /// Judges the client's last message; the server's last one if it is right.
    pub fn finish(&self, data: &[u8]) -> Result<String, ScramError> {
        let last = ClientFinal::parse(data).ok_or(ScramError::Message)?;
        if last.nonce != self.nonce || last.header != self.header.as_bytes() {
            return Err(ScramError::Proof);
        }
        let auth_message = format!("{},{}", self.messages, last.without_proof);
        let signature = self.verifier.check(auth_message.as_bytes(), &last.proof).ok_or(ScramError::Proof)?;
        Ok(format!("v={}", STANDARD.encode(signature)))
    }
}
