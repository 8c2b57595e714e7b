//! Load generator and experiment tool for any MQTT broker: the engine of `sedge bench`.

mod args;
mod clock;
mod command;
mod compare;
mod draw;
mod driver;
pub mod emulate;
mod endpoint;
mod error;
mod experiment;
mod fail;
mod fault;
mod host;
mod limit;
mod measure;
mod metrics;
mod num;
mod plan;
mod remote;
mod report;
mod run;
mod scenario;
mod suite;
mod transport;
mod wire;

pub use args::BenchArgs;
pub use command::{command, run};
pub use compare::{broker_address, broker_make, check_brokers, start_broker};
pub use error::BenchError;
pub use transport::{TlsFiles, WebSocketStream, tls_client};
