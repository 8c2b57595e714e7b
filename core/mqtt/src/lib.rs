//! MQTT 3.1.1 and 5.0: packets, topics and the subscription trie.

mod codec;
mod error;
mod message;
pub mod packet;
mod reason;
mod topic;
mod topic_tree;
mod trie;
mod utf8;

pub use codec::{
    Decoder, Delivery, TopicAlias, encode, encode_publish, encode_publish_head, encoded_len, publish_len, trim_to,
};
pub use error::DecodeError;
pub use message::{Message, MessageId, Stamp};
pub use packet::*;
pub use reason::ReasonCode;
pub use topic::{InvalidTopicFilter, InvalidTopicName, TopicFilter, TopicName};
pub use topic_tree::TopicTree;
pub use trie::SubscriptionTrie;
pub use utf8::{InvalidUtf8, Utf8};
