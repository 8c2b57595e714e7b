//! Names of the things that machines talk about.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use crate::StableHash;

/// A node of the cluster. Stable over restarts when the node has a data directory; chosen at random at first start.
/// Printed as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u64);

impl NodeId {
    /// The id with this number.
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The number of the id.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A text that is not a node id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseNodeIdError;

impl fmt::Display for ParseNodeIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node id is 1 to 16 hexadecimal digits")
    }
}

impl core::error::Error for ParseNodeIdError {}

impl FromStr for NodeId {
    type Err = ParseNodeIdError;

    fn from_str(text: &str) -> Result<Self, ParseNodeIdError> {
        if text.is_empty() || text.len() > 16 || text.starts_with('+') {
            return Err(ParseNodeIdError);
        }
        u64::from_str_radix(text, 16).map(Self).ok().ok_or(ParseNodeIdError)
    }
}

/// Which life of a node: grows at every start, so that nothing from an earlier life is mistaken for this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// The incarnation with this number (the daemon uses the start's wall clock in milliseconds).
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of the incarnation.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A shard of one node: one thread with one event loop and one broker machine. Shard 0 also drives the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A client connection of one shard. Never used twice by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// An MQTT client identifier (MQTT 5.0 section 3.1.3.1). Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(Arc<str>);

impl ClientId {
    /// The identifier with this text.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The text of the identifier.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A hash that every node and every version computes alike (FNV-1a, 64 bit, then mixed): which shard and which directory
    /// node an identifier belongs to rests on it.
    pub fn stable_hash(&self) -> u64 {
        let mut hash = StableHash::of(self.0.as_bytes());
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^ (hash >> 32)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ClientId {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_print_and_parse() {
        let id = NodeId::new(0xabc);
        assert_eq!(id.to_string(), "0000000000000abc");
        assert_eq!("0000000000000abc".parse(), Ok(id));
        assert_eq!("abc".parse(), Ok(id));
        for bad in ["", "g", "+1", "00000000000000001", "-1"] {
            assert_eq!(bad.parse::<NodeId>(), Err(ParseNodeIdError), "{bad}");
        }
    }

    #[test]
    fn client_id_hash_is_the_same_for_ever() {
        assert_eq!(ClientId::new("").stable_hash(), 0xfdbd_f6ac_4fc5_2e7f);
        assert_ne!(ClientId::new("a").stable_hash(), ClientId::new("b").stable_hash());
    }
}
