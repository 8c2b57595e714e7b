//! MQTT 3.1.1 and 5.0: packets, topics and the subscription trie.

mod message;
pub mod packet;
