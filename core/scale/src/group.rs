//! One group: its nodes, how many are wanted, and which one to give up.

use std::collections::BTreeMap;

use sedge_base::{Duration, Instant};

use crate::site::Metric;
use crate::status::MemberState;
use crate::store::Store;

/// The first wait before a node that fails is started again; doubled each time.
const BACKOFF: Duration = Duration::from_secs(1);
/// The longest.
const BACKOFF_MAX: Duration = Duration::from_mins(1);
/// A node that has served so long has no earlier failures.
const SOUND: Duration = Duration::from_mins(1);

/// A node of a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) state: MemberState,
    pub(crate) since: Instant,
    failures: u32,
}

impl Member {
    pub(crate) const fn new(state: MemberState, since: Instant) -> Self {
        Self { state, since, failures: 0 }
    }

    pub(crate) fn enter(&mut self, state: MemberState, now: Instant) {
        self.state = state;
        self.since = now;
    }

    /// Counts a failure; says how long to wait before the next attempt.
    pub(crate) fn fail(&mut self, now: Instant) -> Duration {
        if self.state == MemberState::Serving && now.since(self.since) >= SOUND {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        backoff(self.failures)
    }
}

/// Pause after so many failures.
pub(crate) fn backoff(failures: u32) -> Duration {
    BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(BACKOFF_MAX)
}

/// A group at work.
#[derive(Clone, Debug)]
pub(crate) struct GroupState {
    pub(crate) members: BTreeMap<String, Member>,
    /// Nodes that are wanted.
    pub(crate) target: u32,
    /// Time at which the set of serving nodes changed last: earlier measurements say nothing about it.
    pub(crate) settled: Instant,
    /// Time at which a policy changed the target last.
    pub(crate) last_action: Option<Instant>,
    /// Reason why a change that a policy wants is not made.
    pub(crate) hold: Option<String>,
    /// Whether nodes that start get clients of the others.
    pub(crate) relieve: bool,
    /// Thousandths of a processor that each node may use, if that is limited.
    pub(crate) millicpus: Option<u32>,
}

impl GroupState {
    pub(crate) const fn new(target: u32, millicpus: Option<u32>) -> Self {
        Self {
            members: BTreeMap::new(),
            target,
            settled: Instant::ZERO,
            last_action: None,
            hold: None,
            relieve: false,
            millicpus,
        }
    }

    /// Names of the nodes that serve, ascending.
    pub(crate) fn serving(&self) -> Vec<String> {
        self.members
            .iter()
            .filter(|(_, member)| member.state == MemberState::Serving)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Nodes that are there or are being made.
    pub(crate) fn staying(&self) -> u32 {
        let staying = self.members.values().filter(|member| member.state != MemberState::Leaving).count();
        u32::try_from(staying).unwrap_or(u32::MAX)
    }

    /// Whether all nodes serve, and as many as wanted.
    pub(crate) fn is_calm(&self) -> bool {
        self.members.values().all(|member| member.state == MemberState::Serving) && self.staying() == self.target
    }

    /// The node that costs least to empty: fewest sessions and waiting messages; of equal ones the youngest.
    pub(crate) fn cheapest(&self, store: &Store) -> Option<String> {
        let cost = |name: &str| {
            let of = |metric| store.last(name, metric).unwrap_or(0.0);
            of(Metric::Sessions) + of(Metric::QueuedMessages)
        };
        let serving = self.members.iter().filter(|(_, member)| member.state == MemberState::Serving);
        let best = serving.min_by(|(left, a), (right, b)| {
            cost(left).total_cmp(&cost(right)).then(b.since.cmp(&a.since)).then(right.cmp(left))
        });
        best.map(|(name, _)| name.clone())
    }

    /// The node with the highest number.
    pub(crate) fn last(&self) -> Option<String> {
        let number = |name: &str| name.rsplit_once('-').and_then(|(_, number)| number.parse::<u32>().ok());
        let serving = self.members.iter().filter(|(_, member)| member.state == MemberState::Serving);
        serving.max_by_key(|(name, _)| number(name)).map(|(name, _)| name.clone())
    }
}

/// The first free name of a node of `group`.
pub(crate) fn free_name(group: &str, taken: impl Fn(&str) -> bool) -> String {
    (1..=u32::MAX).map(|number| format!("{group}-{number}")).find(|name| !taken(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_failures_doubles_up_to_a_minute() {
        let waits = [1, 2, 3, 7, 100].map(|failures| backoff(failures).as_secs());
        assert_eq!(waits, [1, 2, 4, 60, 60]);
    }

    #[test]
    fn the_node_with_the_least_to_move_is_given_up() {
        let mut group = GroupState::new(3, None);
        let mut store = Store::new(Duration::from_secs(1));
        for (number, sessions) in [(1, 10.0), (2, 3.0), (3, 3.0)] {
            let name = format!("g-{number}");
            group.members.insert(name.clone(), Member::new(MemberState::Serving, Instant::from_millis(number)));
            store.add(&name, Metric::Sessions, Instant::ZERO, sessions);
        }
        assert_eq!(group.cheapest(&store).as_deref(), Some("g-3"), "the youngest of two that cost the same");
        store.add("g-3", Metric::QueuedMessages, Instant::ZERO, 5.0);
        assert_eq!(group.cheapest(&store).as_deref(), Some("g-2"));
        group.members.insert("g-10".to_owned(), Member::new(MemberState::Serving, Instant::from_millis(1)));
        assert_eq!(group.last().as_deref(), Some("g-10"), "by number, not by letter");
    }
}
