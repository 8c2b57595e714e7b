//! The reasons for which a node takes no datagrams of another node: the causes that keep two nodes apart that somebody wants to be one cluster.

use core::net::SocketAddr;

/// The mistake between this node and another, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mistrust {
    /// Both have a `cluster.key`, and not the same.
    OtherKey,
    /// This node has a `cluster.key`, the other has none.
    KeyHereOnly,
    /// The other has a `cluster.key`, this node has none.
    KeyThereOnly,
    /// Neither has a `cluster.key`, and they are on different machines.
    NoKey,
    /// Both have the same node id.
    SameId,
}

impl Mistrust {
    /// The same as the other node sees it.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        match self {
            Self::KeyHereOnly => Self::KeyThereOnly,
            Self::KeyThereOnly => Self::KeyHereOnly,
            same @ (Self::OtherKey | Self::NoKey | Self::SameId) => same,
        }
    }

    /// Number of it in a refusal (`docs/protocol/link.md`, "Datagrams that are not taken"); 0 for what no refusal says.
    pub const fn code(self) -> u8 {
        match self {
            Self::OtherKey => 1,
            Self::KeyHereOnly => 2,
            Self::KeyThereOnly => 3,
            Self::NoKey => 4,
            Self::SameId => 0,
        }
    }

    /// The mistake for which the number of a refusal stands.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::OtherKey),
            2 => Some(Self::KeyHereOnly),
            3 => Some(Self::KeyThereOnly),
            4 => Some(Self::NoKey),
            _ => None,
        }
    }

    /// The mistake and its remedy, as one plain sentence without a full stop.
    pub(crate) fn explain(self, address: SocketAddr) -> String {
        match self {
            Self::OtherKey => format!("The node at {address} has another cluster.key; set the same on all nodes"),
            Self::KeyHereOnly => {
                format!("The node at {address} has no cluster.key, and this node has one; set the same on all nodes")
            }
            Self::KeyThereOnly => {
                format!("The node at {address} has a cluster.key, and this node has none; set the same on all nodes")
            }
            Self::NoKey => format!(
                "The node at {address} is on another machine; without cluster.key only nodes of one machine are linked: set the same cluster.key_file on all nodes"
            ),
            Self::SameId => format!(
                "The node at {address} has the node id of this node: a copy of its node.data_dir; stop one of the two, empty its node.data_dir, remove node.id if it is set, and start it again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FT-21
    #[test]
    fn what_one_side_says_the_other_understands() {
        for cause in [Mistrust::OtherKey, Mistrust::KeyHereOnly, Mistrust::KeyThereOnly, Mistrust::NoKey] {
            assert_eq!(Mistrust::from_code(cause.code()), Some(cause));
            assert_eq!(cause.mirrored().mirrored(), cause);
        }
        assert_eq!(Mistrust::from_code(Mistrust::SameId.code()), None);
        assert_eq!(Mistrust::KeyHereOnly.mirrored(), Mistrust::KeyThereOnly);
    }
}
