//! The experiments of the literature as single commands: each starts the brokers it wants, measures, and puts its figures beside
//! those of the source.

mod args;
mod carried;
mod cluster;
mod converge;
mod grid;
mod pattern;
mod plugs;
mod recipe;
mod result;
mod service;
mod stats;
mod status;
mod sweep;
mod target;

pub(crate) use args::{ClusterArgs, ConvergeArgs, GridArgs, PatternArgs, PlugsArgs, SweepArgs};
pub(crate) use converge::converge;
pub(crate) use grid::grid;
pub(crate) use pattern::pattern;
pub(crate) use plugs::plugs;
pub(crate) use recipe::ClusterRecipe;
pub(crate) use sweep::sweep;
pub(crate) use target::{Site, up};
