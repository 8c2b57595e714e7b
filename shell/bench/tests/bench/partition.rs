//! Faults of an emulated network.

use std::io::Write;

use sedge_bench::emulate::{Network, NetworkPlan};
use serde_json::Value;

use crate::common::{figures, try_bench};
use crate::simulated::{Broker, Faults};

/// A measurement cuts the network that it is told of, and nothing is wrong about it.
#[test]
fn a_fault_cuts_the_network() {
    if let Some(reason) = Network::unable() {
        writeln!(std::io::stdout(), "SKIP: no network can be emulated here: {reason}").expect("printed");
        return;
    }
    let network = Network::start(&NetworkPlan { nodes: 3, ..NetworkPlan::default() }).expect("a network");
    let broker = Broker::start(Faults::default());
    let words = "fail --publishers 1 --interval 10 --warmup 0 --duration 1 --drain 1";
    let faults = "--fault 0.2:isolate:3 --fault 0.4:cut:1>2 --fault 0.6:heal:2-3";
    let all =
        figures(&format!("{words} {faults} --network {} --broker {}", network.control().display(), broker.address));
    assert_eq!(all.get("faults").and_then(Value::as_array).map(Vec::len), Some(3), "{all}");
    // On a crowded machine the load generator may be late: only what is said about faults counts.
    let warnings = all.get("warnings").map(Value::to_string).unwrap_or_default();
    assert!(!["isolate", "cut", "heal"].iter().any(|word| warnings.contains(word)), "{warnings}");
    let links = network.status().expect("a status").links;
    let open = |(from, to)| links.iter().any(|link| (link.from, link.to) == (from, to) && link.open);
    assert_eq!([(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)].map(open), [false, true, false, false, true, true]);
    let error =
        try_bench(&format!("{words} --fault 1:isolate:4 --network {} --broker x:1", network.control().display()));
    assert!(error.expect_err("no such node").to_string().contains("3 nodes"));
    let error = try_bench(&format!("{words} --fault 1:isolate:1 --broker x:1")).expect_err("no network").to_string();
    assert!(error.contains("--network"), "{error}");
}
