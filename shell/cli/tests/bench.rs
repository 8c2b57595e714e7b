//! `sedge bench` against a node.

mod common;

use std::process::{Command, Stdio};

use common::{Node, Running, assert_fails, assert_ok, read_to, run, sedge, stdout};
use serde_json::Value;

/// BM-19
#[test]
fn a_node_is_measured_through_its_metrics() {
    let node = Node::start();
    let broker = format!("127.0.0.1:{}", node.port);
    let load = ["--publishers", "5", "--warmup", "0.2", "--duration", "1", "--quiet", "--json"];
    let watched = ["--broker", &broker, "--metrics", &node.api];
    let output = run(&[&["bench", "run", "pairs"][..], &watched, &load].concat());
    assert_ok(&output);
    let figures: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for name in ["broker_cpu_s", "egress_per_cpu_s", "broker_rss_kib", "egress_per_s"] {
        assert!(figures[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {}", figures[name]);
    }
    let api = format!("{}/health/live", node.api);
    let output = run(&["bench", "run", "pairs", "--broker", &broker, "--metrics", &api]);
    assert_fails(&output, 2, &[&api, "process_cpu_seconds_total"]);
}

/// The program where a process may have only 200 file descriptors.
fn confined() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 200 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sedge")]).stdin(Stdio::null());
    command
}

#[test]
fn too_few_descriptors_are_told_before_they_run_out() {
    let node = Node::start();
    let broker = format!("127.0.0.1:{}", node.port);
    let words = |clients: &'static str| {
        let load = ["--duration", "0.2", "--quiet", "--json", "--publishers", clients];
        ["bench", "run", "idle", "--broker", &broker].into_iter().chain(load).map(str::to_owned).collect::<Vec<_>>()
    };
    let near = confined().args(words("130")).output().unwrap();
    assert_ok(&near);
    let figures: Value = serde_json::from_str(&stdout(&near)).unwrap();
    let warnings = figures["warnings"].to_string();
    assert!(warnings.contains("194 file descriptors of 200 are needed"), "{warnings}");
    assert_fails(&confined().args(words("150")).output().unwrap(), 2, &["214 file descriptors", "sedge bench drive"]);

    // A driver process says so too, and the report has it.
    let mut driver = Running::spawn(confined().args(["bench", "drive", "--listen", "127.0.0.1:0", "--runs", "2"]));
    let line = read_to(&mut driver.err, "driver at").pop().unwrap();
    let address = line.rsplit_once(' ').unwrap().1;
    let with = |clients| [words(clients), vec!["--drivers".to_owned(), address.to_owned()]].concat();
    let merged = sedge().args(with("130")).output().unwrap();
    assert_ok(&merged);
    let figures: Value = serde_json::from_str(&stdout(&merged)).unwrap();
    let warnings = figures["warnings"].to_string();
    assert!(warnings.contains(address) && warnings.contains("194 file descriptors of 200"), "{warnings}");
    assert_fails(&sedge().args(with("150")).output().unwrap(), 1, &[address, "214 file descriptors"]);
}
