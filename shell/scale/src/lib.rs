//! The elasticity controller: reads a site file, drives the machine of `sedge-scale`, and carries out the machine's actions with a driver,
//! HAProxy and the HTTP API of the brokers (Pham; EL-04 to EL-26).

mod bus;
mod clock;
mod controller;
mod driver;
mod error;
mod haproxy;
mod http;
mod meter;
mod modules;
mod network;
pub mod process;
pub mod report;
mod site_file;
mod state;
mod tell;

pub use self::bus::{Messages, Module};
pub use self::controller::{RunOptions, run};
pub use self::error::ScaleError;
pub use self::network::segment;
pub use self::report::Report;
pub use self::site_file::SiteFile;
pub use self::state::Home;

mod commands;
pub use self::commands::{delete, pause, plan, rebalance, status};
