//! Accounts: the identity of a client, by certificate, password, token or a question to an HTTP server; and the access rules.
//!
//! Nothing here runs on an event loop but what takes microseconds: passwords are hashed and servers are asked by threads of their
//! own, with a bounded queue before them.

mod cache;
mod callout;
mod edit;
mod gate;
mod hash;
mod jwt;
mod passwords;
mod pool;
mod turns;

pub use edit::{edited, replace_file, salt, wrong_user};
pub use hash::{hash_password, scram_verifier};
pub use jwt::{Keys, KeysError};
pub use passwords::{PasswordError, PasswordFile, SCRAM_ITERATIONS};

pub(crate) use gate::{Answer, Change, Gate, Said, problems};
