//! `sedge up` and `sedge down`: a cluster on this machine.

mod args;
mod broker;
mod cluster;
mod down;
mod node;
mod plan;
mod proof;
mod run;
mod state;
mod token;

pub(crate) use args::{DownArgs, UpArgs};
pub(crate) use down::run as down;
pub(crate) use run::run as up;
pub(crate) use token::known as known_token;
