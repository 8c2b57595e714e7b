//! Every delivery in a file: whoever computes the figures from it gets those of the report.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::common::{COUNTS, counts, figures};
use crate::experiments::driver;
use crate::simulated::{Broker, Faults};

/// A line of the file.
struct Delivery {
    receiver: u32,
    stream: u32,
    number: u64,
    sent: u64,
    received: u64,
    arrival: String,
    in_latency: bool,
}

fn read(path: &Path) -> Vec<Delivery> {
    let text = std::fs::read_to_string(path).expect("a file");
    let (head, lines) = text.split_once('\n').expect("a first line");
    assert_eq!(head, "receiver,stream,number,sent_ns,received_ns,arrival,in_latency");
    let delivery = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [receiver, stream, number, sent, received, arrival, in_latency] = fields.as_slice() else {
            panic!("{line}")
        };
        Delivery {
            receiver: receiver.parse().expect("a number"),
            stream: stream.parse().expect("a number"),
            number: number.parse().expect("a number"),
            sent: sent.parse().expect("a time"),
            received: received.parse().expect("a time"),
            arrival: (*arrival).to_owned(),
            in_latency: *in_latency == "1",
        }
    };
    lines.lines().map(delivery).collect()
}

/// Whether `told` holds the statistics of `raw`, which are ns: moments and extremes to the last digit told, quantiles as fine as
/// the histogram is.
fn assert_statistics(told: &Value, mut raw: Vec<u64>, what: &str) {
    raw.sort_unstable();
    let micros: Vec<f64> = raw.iter().map(|nanos| f64::from(u32::try_from(*nanos).expect("below 4 s")) / 1e3).collect();
    let count = f64::from(u32::try_from(raw.len()).expect("few"));
    let mean = micros.iter().sum::<f64>() / count;
    let deviation = (micros.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
    let number = |name: &str| told.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("{what}: {name}"));
    assert_eq!(told.get("count").and_then(Value::as_u64), Some(raw.len() as u64), "{what}");
    let exact = [("min", micros[0]), ("max", micros[micros.len() - 1]), ("mean", mean), ("stddev", deviation)];
    for (name, value) in exact {
        assert!((number(name) - value).abs() < 2e-3, "{what}: {name} is {value} and not {}", number(name));
    }
    for (name, permille) in [("p50", 500), ("p90", 900), ("p95", 950), ("p99", 990), ("p999", 999)] {
        let rank = (raw.len() * permille).div_ceil(1_000).max(1) - 1;
        let value = micros[rank];
        assert!((number(name) - value).abs() <= value * 1.1e-3, "{what}: {name} is {value} and not {}", number(name));
    }
}

/// BM-09
#[test]
fn statistics_equal_recomputation_from_raw_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deliveries.csv");
    for drivers in [String::new(), format!("--drivers {},{}", driver(1, 2), driver(1, 2))] {
        let faults = Faults { lose: Some(67), repeat: Some(10), swap: Some(31), ..Faults::default() };
        let broker = Broker::start(faults);
        let words = "run pairs --publishers 4 --messages 150 --rate 4000 --drain 3";
        let file = format!("--raw {} --broker {} {drivers}", path.display(), broker.address);
        let all = figures(&format!("{words} {file}"));
        let raw = read(&path);
        let [_, expected, lost, duplicates, reordered] = counts(&all, COUNTS);
        let kinds = |kind: &str| raw.iter().filter(|delivery| delivery.arrival == kind).count() as u64;
        assert_eq!([kinds("again"), kinds("late")], [duplicates, reordered]);
        assert_eq!(kinds("in-order") + kinds("late"), expected - lost);
        assert!(raw.iter().all(|delivery| delivery.in_latency == (delivery.arrival != "again")));
        let latencies = raw.iter().filter(|delivery| delivery.in_latency);
        let latencies: Vec<u64> = latencies.map(|delivery| delivery.received.saturating_sub(delivery.sent)).collect();
        assert_statistics(all.get("latency_us").expect("latencies"), latencies, "latency");
        // Jitter: time since the delivery before, of the same stream to the same receiver, less the period of 1 ms.
        let mut before: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut jitter = Vec::new();
        for delivery in &raw {
            let last = before.insert((delivery.receiver, delivery.stream), delivery.received);
            if let Some(last) = last.filter(|_| delivery.in_latency) {
                jitter.push((delivery.received - last).abs_diff(1_000_000));
            }
        }
        assert_statistics(all.get("jitter_us").expect("jitter"), jitter, "jitter");
        assert!(raw.iter().all(|delivery| delivery.number < 150));
    }
}
