//! Packets to bytes and back (MQTT 3.1.1 and MQTT 5.0, sections 2 and 3 of both).

mod decoder;
mod delivery;
mod encode;

pub use decoder::Decoder;
pub use delivery::{Delivery, TopicAlias};
pub use encode::{encode, encode_publish, encode_publish_head, encoded_len, publish_len, trim_to};
