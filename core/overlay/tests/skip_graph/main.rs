//! The Multi-key Skip Graph, with messages moved by hand.

mod chaos;
mod lists;
mod net;
mod oracle;
mod publish;
mod repair;
mod suspend;
mod ways;
