//! The common part of `pub` and `sub` on the command line: the flags of the Mosquitto clients.

mod args;
mod properties;
mod rewrite;
mod session;
mod url;

pub(crate) use args::MqttArgs;
pub(crate) use properties::Properties;
pub(crate) use rewrite::{explain_unknown, fold_properties};
pub(crate) use session::Target;
