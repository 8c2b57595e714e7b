//! Figures of a run.

use core::fmt;

/// Publications of one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Publications.
    pub publications: u64,
    /// Pairs of a publication and a node that is settled to want it, linked with the publisher, and alive for two seconds more.
    pub expected: u64,
    /// How many of them were reached within two seconds.
    pub reached: u64,
    /// Nodes that were settled to want a publication and were not among its destinations: has to be 0.
    pub missing: u64,
    /// Destinations none of whose clients want the publication.
    pub needless: u64,
    /// Times that a publication has come to a node once more.
    pub twice: u64,
    /// Sum of the hops to the nodes reached.
    pub hops: u64,
    /// Most hops to a node.
    pub most_hops: u64,
    /// Sum of the microseconds to the nodes reached.
    pub micros: u64,
    /// Copies sent over links.
    pub copies: u64,
}

/// Signals of one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Length of the phase in milliseconds.
    pub millis: u64,
    /// Signals sent.
    pub signals: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Figures of a run with one algorithm. Times are virtual milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The algorithm.
    pub overlay: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// From the start of the last node until all links are in step, all subscriptions settled and the tree is complete everywhere, in
    /// steps of 100 ms; none if that never came to be. Clients subscribe up to 1.2 s after their node has started.
    pub formed: Option<u64>,
    /// The same after the churn.
    pub healed: Option<u64>,
    /// Nodes that died.
    pub deaths: u64,
    /// First publications to a topic from a node, before the churn.
    pub first: Delivery,
    /// The same publications once more.
    pub before: Delivery,
    /// While nodes come and go.
    pub during: Delivery,
    /// First publications after the churn.
    pub after_first: Delivery,
    /// The same publications once more.
    pub after: Delivery,
    /// While all start.
    pub forming: Traffic,
    /// While nothing happens but publications.
    pub quiet: Traffic,
    /// While nodes come and go.
    pub churning: Traffic,
    /// Mean and largest number of lines of the subscription routing tables, before the churn.
    pub table: (u64, u64),
    /// Mean and longest time until a subscription was settled during the churn.
    pub settling: (u64, u64),
    /// Errors that machines have found in signals of others, and signals for nodes without a link: has to be 0.
    pub errors: u64,
}

impl Delivery {
    /// Whether the publications reached those that want them, all of them, and nobody else.
    pub const fn is_exact(&self) -> bool {
        self.is_complete() && self.needless == 0
    }

    /// Whether the publications reached all that want them, once.
    pub const fn is_complete(&self) -> bool {
        self.expected > 0 && self.reached == self.expected && self.missing == 0 && self.twice == 0
    }
}

/// A quotient with as many decimals as asked for; nothing for nothing.
fn ratio(part: u64, whole: u64, scale: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of experiments are far below 2^53")]
    let (part, whole) = (part as f64, (whole * scale) as f64);
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn seconds(millis: Option<u64>) -> String {
    millis.map_or_else(|| "never".to_owned(), |millis| format!("{:.1} s", ratio(millis, 1_000, 1)))
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} publications | {} of {} ({:.3} %) | {} missing | {:.1} needless | {:.2} hops, {} at most | {:.1} ms | {:.1} copies",
            self.publications,
            self.reached,
            self.expected,
            100.0 * ratio(self.reached, self.expected, 1),
            self.missing,
            ratio(self.needless, self.publications, 1),
            ratio(self.hops, self.reached, 1),
            self.most_hops,
            ratio(self.micros, self.reached, 1_000),
            ratio(self.copies, self.publications, 1),
        )
    }
}

impl Figures {
    fn traffic(&self, traffic: &Traffic) -> String {
        let Traffic { millis, signals, bytes } = *traffic;
        let nodes = self.nodes as u64;
        let per_second = |count: u64| ratio(count.saturating_mul(1_000), millis, nodes);
        format!("{:.0} signals, {:.1} kB", per_second(signals), per_second(bytes) / 1_000.0)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## {}\n", self.overlay)?;
        let phases = [
            ("first", self.first),
            ("again", self.before),
            ("in churn", self.during),
            ("first after churn", self.after_first),
            ("again after churn", self.after),
        ];
        for (name, delivery) in phases {
            writeln!(f, "| {name} | {delivery} |")?;
        }
        writeln!(
            f,
            "\n{} nodes; formed in {}, healed in {}; {} deaths; per node and second: {} forming, {} quiet, {} in churn; \
             tables {} lines, {} at most; settled in {} ms, {} at most; {} errors",
            self.nodes,
            seconds(self.formed),
            seconds(self.healed),
            self.deaths,
            self.traffic(&self.forming),
            self.traffic(&self.quiet),
            self.traffic(&self.churning),
            self.table.0,
            self.table.1,
            self.settling.0,
            self.settling.1,
            self.errors,
        )
    }
}
