//! MQTT 3.1.1 and 5.0: packets, topics and the subscription trie.

mod codec;
mod error;
mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod index;
mod message;
pub mod packet;
mod reason;
mod topic;
mod utf8;

pub use codec::{
    Decoder, Delivery, PublishParts, TopicAlias, encode, encode_publish, encode_publish_head, encode_publish_parts,
    encoded_len, publish_len, trim_to,
};
pub use error::DecodeError;
pub use foreign::LooksLike;
pub use index::{SubscriptionTrie, TopicTree};
pub use message::{Message, MessageId, ReadAt, Stamp};
pub use packet::*;
pub use reason::ReasonCode;
pub use topic::{InvalidTopicFilter, InvalidTopicName, TopicFilter, TopicName};
pub use utf8::{InvalidUtf8, Utf8};
