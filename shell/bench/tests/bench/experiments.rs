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
    let (list, _) = try_bench("compare").expect("a list");
    let line = list.lines().find(|line| line.starts_with("mosquitto ")).expect("a line");
    assert!(line.contains(" installed") && line.contains("mosquitto version"), "{list}");
    let words = "compare mosquitto --rounds 2 --publishers 10 --duration 1";
    let all = figures(&format!("{words} --port {}", free_port()));
    let broker = all.pointer("/brokers/0").expect("a broker");
    assert_eq!(broker.pointer("/errors").and_then(Value::as_array).map(Vec::len), Some(0), "{broker}");
    assert!(broker.pointer("/runs/1/broker_rss_kib").and_then(Value::as_u64).is_some_and(|memory| memory > 0));
    assert_eq!(broker.pointer("/runs/1/lost").and_then(Value::as_u64), Some(0));
    assert!(broker.get("version").and_then(Value::as_str).is_some_and(|version| version.contains("version")));
}

const SUITE: &str = r#"
[[row]]
name = "work"
scenario = "pairs"
load = { publishers = 2, messages = 20 }

[[row]]
name = "latency"
scenario = "pairs"
measure = "latency"
load = { publishers = 2, rate = 200 }

[[row]]
name = "limit"
scenario = "limit"
measure = "limit"
load = { publishers = 2, subscribers = 2, topics = 1, drain = 0.2 }
search = { start-ms = 2000000, repeat = 1 }

[[row]]
name = "memory"
scenario = "idle"
measure = "memory"
load = { publishers = 10 }
"#;

/// BM-07.
#[test]
fn a_suite_measures_all_loads_goes_on_where_it_was_and_a_broker_that_fails_spoils_nothing() {
    let broker = Broker::start(Faults { lose: Some(10), ..Faults::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("suite.toml"), SUITE).expect("a file");
    let recipes = "[[broker]]\nname = \"bad\"\ncommand = \"echo no such option; exit 3\"\n";
    std::fs::write(path("recipes.toml"), recipes).expect("a file");
    // Stands for the broker's process: one that is at rest, unlike this one.
    let mut process = std::process::Command::new("sleep").arg("600").spawn().expect("a process");
    let pid = process.id();
    let (port, suite, recipes, journal) = (free_port(), path("suite.toml"), path("recipes.toml"), path("journal"));
    let words = format!(
        "suite good={}@{pid} bad --suite {suite} --recipes {recipes} --journal {journal} --port {port} \
         --duration 0.2 --warmup 0 --drain 3 --csv {} --html {} --markdown {}",
        broker.address,
        path("table.csv"),
        path("table.html"),
        path("table.md")
    );
    let (table, notes) = try_bench(&format!("{words} --rounds 1 --row work --row memory")).expect("a suite");
    assert!(notes.contains("work, round 1: good: ") && !notes.contains("latency"), "{notes}");
    assert!(table.contains("bad did not start") && table.contains("exit status: 3"), "{table}");
    assert!(table.contains("no such option") && table.contains("good"), "{table}");
    let before = broker.connects();
    let (table, notes) = try_bench(&format!("{words} --rounds 1")).expect("a suite");
    // A measurement that succeeded is not repeated; a measurement that failed is.
    assert!(!notes.contains("work, round 1: good") && notes.contains("work, round 1: bad"), "{notes}");
    assert!(notes.contains("latency, round 1: good: ") && notes.contains("limit, round 1: good: "), "{notes}");
    assert!(broker.connects() > before);
    for (name, begin) in [("table.csv", "load,figure,"), ("table.html", "<!doctype html>"), ("table.md", "| load |")] {
        let text = std::fs::read_to_string(folder.path().join(name)).expect("a file");
        assert!(text.starts_with(begin) && text.contains("KiB/conn."), "{text}");
    }
    for line in ["work", "latency", "limit", "memory"] {
        assert!(table.lines().any(|text| text.starts_with(line)), "{line} in {table}");
    }
    let before = broker.connects();
    let all = figures(&format!("{words} --rounds 1"));
    assert_eq!(broker.connects(), before);
    assert_eq!(all.pointer("/lines/0/cells/0/flags").and_then(Value::as_str), Some("L"));
    assert_eq!(all.pointer("/runs/0/rounds/0/lost").and_then(Value::as_u64), Some(4));
    assert_eq!(all.pointer("/lines/0/cells/1/flags").and_then(Value::as_str), Some("E"));
    process.kill().and_then(|()| process.wait()).expect("an end");
    let (text, _) = try_bench("suite --print").expect("a file");
    assert!(text.contains("[[row]]"));
    assert!(try_bench("suite good=127.0.0.1:1 --row nothing").expect_err("no row").to_string().contains("--print"));
}

/// An address that stands for several brokers of a cluster: what enters at one comes out at all.
fn cluster_of_one(nodes: usize) -> (Broker, String) {
    let broker = Broker::start(Faults::default());
    let addresses = vec![broker.address.to_string(); nodes].join(",");
    (broker, addresses)
}

fn array<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    value.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

/// BM-11
#[test]
fn a_sweep_says_what_each_client_gets_and_how_that_degrades() {
    let (_broker, brokers) = cluster_of_one(4);
    let folder = tempfile::tempdir().expect("a folder");
    let (csv, page) = (folder.path().join("rounds.csv"), folder.path().join("page.html"));
    let words = format!(
        "sweep --pairs 2,3 --repeat 2 --duration 0.2 --warmup 0.1 --drain 3 --broker {brokers} --csv {} --html {}",
        csv.display(),
        page.display()
    );
    let all = figures(&words);
    let sizes = array(&all, "/sizes");
    assert_eq!(sizes.len(), 2);
    for (size, pairs) in sizes.iter().zip([2, 3]) {
        assert_eq!(size.get("pairs").and_then(Value::as_u64), Some(pairs));
        for round in array(size, "/rounds") {
            let open = round.get("open").expect("an open loop");
            // 20 messages of each publisher within 0.2 s at 10 ms.
            assert_eq!(counts(open, COUNTS), [20 * pairs, 20 * pairs, 0, 0, 0]);
            assert_eq!(open.get("qos").and_then(Value::as_u64), Some(2));
            assert!(round.get("per_client_per_s").and_then(Value::as_f64).is_some_and(|rate| rate > 0.0));
            assert_eq!(round.pointer("/closed/lost").and_then(Value::as_u64), Some(0));
        }
        for name in ["per_client_per_s", "latency_ms", "latency_max_ms", "jitter_p90_ms", "jitter_max_ms"] {
            assert!(size.pointer(&format!("/{name}/mean")).and_then(Value::as_f64).is_some_and(|m| m > 0.0), "{name}");
            assert_eq!(size.pointer(&format!("/{name}/count")).and_then(Value::as_u64), Some(2));
            assert!(size.pointer(&format!("/{name}/ci95")).and_then(Value::as_f64).is_some(), "{name}");
        }
    }
    assert!(all.pointer("/degradation/per_client_percent").and_then(Value::as_f64).is_some());
    assert!(all.pointer("/head/seed").is_some() && all.pointer("/head/machine").is_some());
    assert_eq!(std::fs::read_to_string(csv).expect("a file").lines().count(), 5, "a line for each round of each size");
    assert!(std::fs::read_to_string(page).expect("a page").contains("Throughput per client"));
}

/// BM-16, BM-17
#[test]
fn a_grid_has_a_cell_for_each_combination_and_a_placement_for_each_repetition() {
    let (_broker, brokers) = cluster_of_one(5);
    let folder = tempfile::tempdir().expect("a folder");
    let csv = folder.path().join("runs.csv");
    let words = format!(
        "grid --topics 1,2 --payload 100 --locality 100,50,0 --repeat 3 --publishers 4 --subscribers 2 --messages 5 \
         --interval 5 --drain 3 --broker {brokers} --csv {}",
        csv.display()
    );
    let all = figures(&words);
    let cells = array(&all, "/cells");
    assert_eq!(cells.len(), 6);
    for cell in cells {
        let runs = array(cell, "/runs");
        let half = cell.get("locality").and_then(Value::as_u64) == Some(50);
        assert_eq!(runs.len(), if half { 3 } else { 1 });
        for run in runs {
            assert_eq!(counts(run.get("figures").expect("figures"), ["sent", "lost", "duplicates"]), [20, 0, 0]);
        }
        let mut seeds: Vec<u64> = runs.iter().filter_map(|run| run.get("seed").and_then(Value::as_u64)).collect();
        seeds.dedup();
        assert_eq!(seeds.len(), runs.len(), "every repetition has a placement of its own");
        if cell.get("topics").and_then(Value::as_u64) == Some(1) {
            assert!(cell.pointer("/latency_ms/mean").and_then(Value::as_f64).is_some_and(|mean| mean > 0.0));
            assert_eq!(cell.pointer("/loss_rate/mean").and_then(Value::as_f64), Some(0.0));
        }
    }
    assert_eq!(std::fs::read_to_string(csv).expect("a file").lines().count(), 11);
}

/// BM-08
#[test]
fn patterns_are_searched_on_brokers_that_run() {
    // Every tenth message is lost, so that no load is under the limit and the search is short.
    let broker = Broker::start(Faults { lose: Some(10), ..Faults::default() });
    let brokers = vec![broker.address.to_string(); 5].join(",");
    let words = "pattern a d --duration 0.05 --warmup 0 --drain 0.2 --start-ms 2000000 --repeat 1";
    let all = figures(&format!("{words} --broker {brokers}"));
    let names: Vec<&str> =
        array(&all, "/patterns").iter().filter_map(|pattern| pattern.get("pattern")?.as_str()).collect();
    assert_eq!(names, ["pattern-a", "pattern-d"]);
    assert!(!array(&all, "/patterns/0/limit/trials").is_empty());
}

#[test]
fn experiments_that_cannot_be_done_say_why() {
    for (words, text) in [
        ("pattern b --broker 127.0.0.1:1 --nodes 3", "--nodes"),
        ("sweep --recipe nothing", "no recipe"),
        ("sweep --pairs 0", "--pairs"),
        ("grid --locality 7", "--locality"),
        ("converge --recipe mosquitto-line", "no status API"),
        ("converge --nodes 1", "--nodes"),
        ("run pattern-c --topics 3 --broker 127.0.0.1:1", "fixed"),
    ] {
        let error = try_bench(words).expect_err(words);
        assert!(error.to_string().contains(text), "{words}: {error}");
    }
}

/// BM-08
#[test]
fn bridged_mosquittos_are_one_cluster() {
    if !["/usr/sbin/mosquitto", "/usr/bin/mosquitto"].iter().any(|path| Path::new(path).exists()) {
        println!("SKIP: Mosquitto is not installed");
        return;
    }
    let words =
        "grid --recipe mosquitto-line --nodes 3 --topics 1 --payload 100 --locality 0 --messages 5 --interval 20";
    // Below what the system hands out, and apart from other test processes.
    let port = 12_000 + u16::try_from(std::process::id() % 9_000).expect("small");
    let all = figures(&format!("{words} --drain 5 --port {port}"));
    assert_eq!(all.pointer("/cells/0/loss_rate/mean").and_then(Value::as_f64), Some(0.0));
    assert_eq!(array(&all, "/head/brokers").len(), 3);
    assert!(
        all.pointer("/head/brokers/0/version").and_then(Value::as_str).is_some_and(|text| text.contains("mosquitto"))
    );
}
