//! Finding filters by topic and topics by filter (MQTT 5.0 section 4.7).

mod edges;
mod entries;
mod topic_tree;
mod trie;

#[cfg(test)]
mod tests;

pub use topic_tree::TopicTree;
pub use trie::SubscriptionTrie;
