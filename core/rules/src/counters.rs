//! Counts of a rule so far.

/// Counts since the machine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Publications that reached the rule.
    pub seen: u64,
    /// Publications that the rule's `from` and `where` selected.
    pub selected: u64,
    /// Messages that it put out.
    pub outputs: u64,
    /// Outputs that `on_change` or `deadband` held back.
    pub held_back: u64,
    /// Publications that came after all their windows had closed.
    pub late: u64,
    /// Publications without a usable time, or with one that lies too far ahead.
    pub bad_time: u64,
    /// Publications that this rule has put out itself, at first or at second hand, or that too many rules have.
    pub loops: u64,
    /// Publications whose payload was too large to look into.
    pub too_large: u64,
    /// Publications that a limit kept out of their group.
    pub over_limit: u64,
    /// Groups whose windows closed early to make room.
    pub closed_early: u64,
    /// Payloads that are none of Sparkplug B where they should be.
    pub undecodable: u64,
    /// Metrics of Sparkplug B that no birth explains.
    pub unknown_metrics: u64,
    /// Edge nodes that were asked for their births.
    pub rebirths: u64,
    /// Messages for which the `jq` program has raised an error.
    pub jq_failed: u64,
    /// Messages for which the `jq` program has taken too much time or memory, or put out too much.
    pub jq_over_budget: u64,
    /// Outputs that could not be made: no such topic level, or a topic that nobody may publish to.
    pub failed: u64,
}

impl Counters {
    /// The sums of both counts.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            seen: self.seen + other.seen,
            selected: self.selected + other.selected,
            outputs: self.outputs + other.outputs,
            held_back: self.held_back + other.held_back,
            late: self.late + other.late,
            bad_time: self.bad_time + other.bad_time,
            loops: self.loops + other.loops,
            too_large: self.too_large + other.too_large,
            over_limit: self.over_limit + other.over_limit,
            closed_early: self.closed_early + other.closed_early,
            undecodable: self.undecodable + other.undecodable,
            unknown_metrics: self.unknown_metrics + other.unknown_metrics,
            rebirths: self.rebirths + other.rebirths,
            jq_failed: self.jq_failed + other.jq_failed,
            jq_over_budget: self.jq_over_budget + other.jq_over_budget,
            failed: self.failed + other.failed,
        }
    }
}
