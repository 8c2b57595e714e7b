//! A small blocking MQTT client, for `pub`, `sub` and the proof that a new cluster works.

mod connection;
mod error;
mod inbox;
mod outbox;
mod proxy;
mod reason;
mod server;

pub(crate) use connection::Connection;
pub(crate) use error::ClientError;
pub(crate) use inbox::Inbox;
pub(crate) use outbox::Outbox;
pub(crate) use proxy::Proxy;
pub(crate) use reason::reason_words;
pub(crate) use server::Server;
