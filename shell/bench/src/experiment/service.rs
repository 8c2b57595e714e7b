//! Effects of the loss of a node on clients: messages with QoS 1 between all other nodes while the loss happens.

use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::report::Figures;
use crate::run::{Options, run};
use crate::scenario::{Placement, PublisherGroup, Scenario, SubscriberGroup};

/// How long messages flow before the node is lost, connecting included.
pub(super) const BEFORE: Duration = Duration::from_secs(2);
/// How long publishers publish in all, in seconds.
const PUBLISH_S: f64 = 7.0;
/// Most seconds for what is under way then.
const DRAIN_S: f64 = 20.0;
/// Time between two messages of a publisher in ms, with so many subscribers or fewer.
const INTERVAL_MS: (f64, f64) = (20.0, 5.0);

/// Effects that the clients of the remaining nodes noticed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Service {
    pub(super) sent: u64,
    pub(super) expected: u64,
    pub(super) lost: u64,
    pub(super) duplicates: u64,
    pub(super) reordered: u64,
    /// Largest latency, counted from when a message was due: how long clients were held up.
    pub(super) worst_ms: f64,
    pub(super) mean_ms: f64,
}

/// Clients at every node: those at the node that will be lost count for nothing, but make it part of every topic's trees.
pub(super) struct Load {
    counted: JoinHandle<Result<Figures, BenchError>>,
    guest: JoinHandle<()>,
}

/// A publisher and a subscriber at each broker; subscribers take everything below `filter`.
fn scenario(count: usize, topic: &str, filter: &str) -> Scenario {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let (topic, filter) = (topic.to_owned(), filter.to_owned());
    // Publishers times subscribers: as many deliveries per second whatever the number of nodes.
    let (interval_ms, few) = INTERVAL_MS;
    let interval_ms = interval_ms * (f64::from(count) / few).powi(2).max(1.0);
    let publishers = PublisherGroup {
        count,
        topic,
        topics: 1,
        interval_ms: Some(interval_ms),
        brokers: Placement::Spread,
        probe: false,
    };
    Scenario {
        name: "repair".to_owned(),
        qos: 1,
        publishers: vec![publishers],
        subscribers: vec![SubscriberGroup { count, filter, brokers: Placement::Spread }],
        warmup_s: 0.0,
        measure_s: PUBLISH_S,
        drain_s: DRAIN_S,
        ..Scenario::default()
    }
}

impl Load {
    /// Starts clients at the nodes that are left and at the one that will be lost.
    pub(super) fn start(left: &[Endpoint], lost: &Endpoint) -> Self {
        let options = |brokers: &[Endpoint]| Options { brokers: brokers.to_vec(), threads: 1, ..Options::default() };
        let (all, alone) = (options(left), options(std::slice::from_ref(lost)));
        let counted = scenario(left.len(), "bench/repair/{i}", "bench/repair/#");
        let mut guest = scenario(1, "bench/guest", "bench/repair/#");
        // Its publications are its own affair: it is there to subscribe.
        guest.drain_s = 0.0;
        Self {
            counted: std::thread::spawn(move || {
                run(&counted, &all, &mut |_| ()).map(|outcome| Figures::from(&outcome))
            }),
            guest: std::thread::spawn(move || {
                // That its broker is lost is what is measured.
                let _ = run(&guest, &alone, &mut |_| ());
            }),
        }
    }

    /// Waits for the end.
    pub(super) fn end(self) -> Result<Service, BenchError> {
        let ended = |_| BenchError::Driver("the load has ended early".to_owned());
        self.guest.join().map_err(ended)?;
        let figures = self.counted.join().map_err(ended)??;
        Ok(Service {
            sent: figures.sent,
            expected: figures.expected,
            lost: figures.lost,
            duplicates: figures.duplicates,
            reordered: figures.reordered,
            worst_ms: figures.latency_us.max / 1e3,
            mean_ms: figures.latency_us.mean / 1e3,
        })
    }
}
