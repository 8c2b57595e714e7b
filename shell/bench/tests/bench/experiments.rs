//! Experiments made of several runs, or of several processes.

use std::net::TcpListener;
use std::path::Path;

use crate::common::{COUNTS, counts, figures, try_bench};
use crate::simulated::{Broker, Faults};
use serde_json::Value;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Starts a driver as another process would, for so many runs.
pub(crate) fn driver(threads: usize, runs: usize) -> String {
    let address = format!("127.0.0.1:{}", free_port());
    let words = format!("drive --listen {address} --threads {threads} --runs {runs}");
    std::thread::spawn(move || try_bench(&words).map(|_| ()).expect("a driver"));
    while std::net::TcpStream::connect(&address).map(drop).is_err() {
        std::thread::yield_now();
    }
    address
}

#[test]
fn drivers_in_other_processes_are_merged_into_one_report() {
    let broker = Broker::start(Faults { lose: Some(7), ..Faults::default() });
    // Finding out that they listen is a run of theirs too.
    let drivers = format!("{},{}", driver(1, 2), driver(2, 2));
    let words = format!("--drivers {drivers} --broker {} --drain 3", broker.address);
    let all = figures(&format!("run pairs --publishers 6 --messages 50 --rate 3000 {words}"));
    assert_eq!(counts(&all, COUNTS), [300, 300, 6 * (50 / 7), 0, 0]);
    assert_eq!(all.get("clocks").and_then(Value::as_array).map(Vec::len), Some(2));
    assert_eq!(broker.connects(), 12);
}

#[test]
fn a_loop_is_not_closed_over_processes() {
    let drivers = format!("{},{}", driver(1, 2), driver(1, 2));
    let words = format!("--drivers {drivers} --broker 127.0.0.1:1");
    let error = try_bench(&format!("run fan-in --publishers 4 --messages 5 {words}")).expect_err("no closed loop");
    assert!(error.to_string().contains("open loop"), "{error}");
}

#[test]
fn a_fault_happens_and_what_follows_is_told() {
    let broker = Broker::start(Faults::default());
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("done");
    let words = "fail --publishers 2 --interval 5 --warmup 0.2 --duration 2.5 --drain 3";
    let fault = format!("0.5:run:touch${{IFS}}{}", mark.display());
    let all = figures(&format!("{words} --fault {fault} --broker {}", broker.address));
    assert!(mark.exists(), "the fault did not happen");
    assert_eq!(counts(&all, ["lost", "duplicates"]), [0, 0]);
    assert_eq!(all.get("faults").and_then(Value::as_array).map(Vec::len), Some(1));
    for name in ["longest_gap_ms", "dip_percent", "recovery_time_us", "replay_jitter_us", "before_per_s"] {
        assert!(all.pointer(&format!("/fail/{name}")).and_then(Value::as_f64).is_some(), "{name}");
    }
}

#[test]
fn the_search_measures_until_it_knows() {
    // Whatever this machine can do, the search ends and says what it tried.
    let broker = Broker::start(Faults { lose: Some(10), ..Faults::default() });
    let words = "limit --publishers 2 --subscribers 2 --topics 1 --duration 0.1 --warmup 0 --drain 0.2";
    let all = figures(&format!("{words} --start-ms 1500000 --repeat 1 --broker {}", broker.address));
    let trials = all.get("trials").and_then(Value::as_array).expect("trials");
    assert!(!trials.is_empty());
    for trial in trials {
        assert!(trial.get("interval_ms").and_then(Value::as_f64).is_some());
        assert!(
            ["under", "above", "rejected"].contains(&trial.get("verdict").and_then(Value::as_str).expect("a word"))
        );
    }
}

#[test]
fn brokers_are_compared_in_turn() {
    let (first, second) = (Broker::start(Faults::default()), Broker::start(Faults::default()));
    let words = "--publishers 2 --rate 200 --warmup 0 --duration 0.2";
    let all = figures(&format!("compare a={} b={} {words} --rounds 3", first.address, second.address));
    let brokers = all.get("brokers").and_then(Value::as_array).expect("brokers");
    assert_eq!(brokers.len(), 2);
    for broker in brokers {
        assert_eq!(broker.get("runs").and_then(Value::as_array).map(Vec::len), Some(3));
        let egress = broker.pointer("/figures/0").expect("egress");
        assert_eq!(egress.pointer("/ratio/count").and_then(Value::as_u64), Some(3));
    }
    assert_eq!((first.connects(), second.connects()), (12, 12));
    let (table, notes) = try_bench(&format!("compare a={} gone=127.0.0.1:1 {words} --rounds 1", first.address))
        .expect("a broker that is not there spoils nothing");
    assert!(table.contains("ratio to the first") && notes.contains("could not connect"), "{table}{notes}");
}

#[test]
fn mosquitto_is_started_measured_and_stopped() {
    if !["/usr/sbin/mosquitto", "/usr/bin/mosquitto"].iter().any(|path| Path::new(path).exists()) {
        println!("SKIP: Mosquitto is not installed");
        return;
    }
    let words = "compare mosquitto --rounds 2 --publishers 10 --duration 1";
    let all = figures(&format!("{words} --port {}", free_port()));
    let broker = all.pointer("/brokers/0").expect("a broker");
    assert_eq!(broker.pointer("/errors").and_then(Value::as_array).map(Vec::len), Some(0), "{broker}");
    assert!(broker.pointer("/runs/1/broker_rss_kib").and_then(Value::as_u64).is_some_and(|memory| memory > 0));
    assert_eq!(broker.pointer("/runs/1/lost").and_then(Value::as_u64), Some(0));
}
