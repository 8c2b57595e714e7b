//! Wires (TCP connections) and which hosts cannot reach each other.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sedge_base::{ConnId, Instant, ShardId};
use sedge_cluster::{LinkId, Reception};

use crate::schedule::Waiting;

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireId(pub(crate) u64);

/// One end of a wire: 0 has dialled, 1 was dialled.
pub(crate) type Side = usize;

/// Bytes that may be under way in one direction.
pub(crate) const WINDOW_BYTES: usize = 32 * 1024;

/// Holder of one end of a wire.
#[derive(Debug)]
pub(crate) enum End {
    /// A client.
    Client(usize),
    /// A host that has not seen the CONNECT yet, with the bytes that it has read.
    Fresh { host: usize, reception: Box<Reception>, read: Vec<Bytes> },
    /// A shard of a host.
    Shard { host: usize, shard: ShardId, conn: ConnId },
    /// A node's link.
    Link { host: usize, link: LinkId },
    /// Nobody: closed. Bytes that come are answered by a reset if the host is there to do it.
    Gone { host: Option<usize> },
}

impl End {
    /// The host that holds it, if one does.
    pub(crate) fn host(&self) -> Option<usize> {
        match self {
            Self::Client(_) => None,
            Self::Fresh { host, .. } | Self::Shard { host, .. } | Self::Link { host, .. } => Some(*host),
            Self::Gone { host } => *host,
        }
    }
}

/// A TCP connection: bytes in order, without loss, until one end closes.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) ends: [End; 2],
    /// Bytes under way towards each end, those that wait there included.
    pub(crate) under_way: [usize; 2],
    /// When the last bytes arrive at each end.
    pub(crate) last: [Instant; 2],
    /// Bytes that have arrived at an end that does not read.
    pub(crate) unread: [Waiting; 2],
    /// Ends that do not read.
    pub(crate) held: [bool; 2],
    /// Bytes that wait behind a cut.
    pub(crate) stalled: [Waiting; 2],
    /// Ends that will hear of the other's closing when the cut is healed.
    pub(crate) stalled_break: [bool; 2],
    /// Ends that will hear of the other's closing when they read again.
    pub(crate) unread_break: [bool; 2],
}

impl Wire {
    pub(crate) fn new(ends: [End; 2], now: Instant) -> Self {
        Self {
            ends,
            under_way: [0; 2],
            last: [now; 2],
            unread: Default::default(),
            held: [false; 2],
            stalled: Default::default(),
            stalled_break: [false; 2],
            unread_break: [false; 2],
        }
    }
}

/// All wires and cuts.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) wires: BTreeMap<WireId, Wire>,
    cuts: BTreeSet<(usize, usize)>,
    /// Ways that are cut in one direction.
    ways: BTreeSet<(usize, usize)>,
    next: u64,
}

impl Network {
    /// A new wire between these ends.
    pub(crate) fn connect(&mut self, ends: [End; 2], now: Instant) -> WireId {
        self.next += 1;
        self.wires.insert(WireId(self.next), Wire::new(ends, now));
        WireId(self.next)
    }

    /// Cuts two hosts off from each other.
    pub(crate) fn cut(&mut self, a: usize, b: usize) {
        self.cuts.insert((a.min(b), a.max(b)));
    }

    /// Cuts the way from one host to another.
    pub(crate) fn cut_way(&mut self, from: usize, to: usize) {
        self.ways.insert((from, to));
    }

    /// Whether no hosts are cut off from each other.
    pub(crate) fn is_whole(&self) -> bool {
        self.cuts.is_empty() && self.ways.is_empty()
    }

    /// Whether nothing comes from one host to the other.
    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.contains(&(from.min(to), from.max(to))) || self.ways.contains(&(from, to))
    }

    /// Whether nothing comes to this end of a wire for now.
    pub(crate) fn is_wire_cut(&self, wire: &Wire, side: Side) -> bool {
        match (wire.ends[1 - side].host(), wire.ends[side].host()) {
            (Some(from), Some(to)) => self.is_cut(from, to),
            _ => false,
        }
    }

    /// Which hosts cannot reach each other.
    pub(crate) fn cuts(&self) -> Vec<(usize, usize)> {
        self.cuts.iter().copied().collect()
    }

    /// Joins two hosts again.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        self.cuts.remove(&(a.min(b), a.max(b)));
    }

    /// Joins everything again.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.ways.clear();
    }

    /// Wires that `host` holds an end of, with that end.
    pub(crate) fn of_host(&self, host: usize) -> Vec<(WireId, Side)> {
        let mut found = Vec::new();
        for (id, wire) in &self.wires {
            for side in 0..2 {
                if wire.ends[side].host() == Some(host) && !matches!(wire.ends[side], End::Gone { .. }) {
                    found.push((*id, side));
                }
            }
        }
        found
    }

    /// Links between hosts that are up.
    pub(crate) fn links(&self) -> Vec<WireId> {
        let both = |wire: &Wire| wire.ends.iter().all(|end| matches!(end, End::Link { .. }));
        self.wires.iter().filter(|(_, wire)| both(wire)).map(|(id, _)| *id).collect()
    }
}
