//! Topic names and topic filters (MQTT 5.0 section 4.7).

mod filter;
mod name;

pub use filter::{InvalidTopicFilter, TopicFilter};
pub use name::{InvalidTopicName, TopicName};
