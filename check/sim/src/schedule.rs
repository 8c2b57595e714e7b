//! Events of a run, by time.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sedge_base::{Duration, Instant, Rng, ShardId};
use sedge_cluster::LinkId;
use sedge_cluster::mail::{ToNode, ToShard};

use crate::network::{Side, WireId};

/// A machine of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    Node,
    Shard(ShardId),
}

/// Something that happens at its time. `life` tells for which life of a host; others ignore it.
#[derive(Debug)]
pub(crate) enum Event {
    /// Mail reaches a shard.
    ToShard { host: usize, life: u64, shard: ShardId, mail: ToShard },
    /// Mail reaches the node.
    ToNode { host: usize, life: u64, from: ShardId, mail: ToNode },
    /// A machine wanted to be woken.
    Timer { host: usize, life: u64, actor: Actor },
    /// The turn of a node's loop ends.
    TurnEnds { host: usize, life: u64 },
    /// A datagram reaches a host.
    Datagram { from: usize, to: usize, bytes: Bytes },
    /// A dial ends.
    Dialled { host: usize, life: u64, link: LinkId, to: usize },
    /// Bytes reach one end of a wire.
    Arrive { wire: WireId, side: Side, bytes: Bytes },
    /// Bytes that waited for one end of a wire arrive there.
    Unstalled { wire: WireId, side: Side },
    /// The news that the other end has closed reaches one end of a wire.
    Broken { wire: WireId, side: Side },
    /// A client acts.
    Act { client: usize },
    /// Something goes wrong, if it may.
    Fault,
    /// Hosts that were cut off from each other are joined again.
    Heal,
    /// Two hosts that were cut off from each other reach each other again.
    Rejoin { a: usize, b: usize },
    /// A host is emptied or told to stop, if it may.
    Drain,
    /// A host that was told to stop has had its time.
    Stopped { host: usize, life: u64 },
    /// A killed host starts again.
    Restart { host: usize },
    /// A host that stood still goes on.
    Resume { host: usize, life: u64, stood: Duration },
    /// The power of the whole site fails again.
    PowerCut,
    /// A mark reaches a thread, behind publications of another one.
    Mark { host: usize, life: u64, from: ShardId, to: ShardId, mark: u64 },
    /// The medium has the batches of a journal up to this one.
    Synced { host: usize, life: u64, shard: ShardId, sequence: u64 },
    /// A disk that stalled fails.
    DiskFails { host: usize, life: u64 },
}

/// Events by time; equal times in the order they were put in.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    events: BTreeMap<(Instant, u64), Event>,
    /// When the last mail between two actors of a host arrives: mail does not overtake.
    mail: BTreeMap<(usize, Actor, Actor), Instant>,
    next: u64,
}

impl Schedule {
    pub(crate) fn at(&mut self, when: Instant, event: Event) {
        self.next += 1;
        self.events.insert((when, self.next), event);
    }

    /// Puts `event` behind all mail from `from` to `to`.
    pub(crate) fn mail(&mut self, earliest: Instant, path: (usize, Actor, Actor), event: Event) {
        let last = self.mail.entry(path).or_insert(earliest);
        *last = (*last).max(earliest);
        let when = *last;
        self.at(when, event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Instant, Event)> {
        self.events.pop_first().map(|((when, _), event)| (when, event))
    }
}

/// A delay of at most `longest`, mostly short.
pub(crate) fn delay(rng: &mut Rng, longest: Duration) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(1);
    let scale = if rng.chance(1, 8) { nanos } else { nanos / 8 + 1 };
    Duration::from_nanos(1 + rng.below(scale))
}

/// Bytes that wait at an end that does not read, or behind a cut.
pub(crate) type Waiting = VecDeque<Bytes>;
