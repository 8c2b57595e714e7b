//! The program's words about itself and about mistakes on its command line.

mod common;

use std::net::TcpListener;

use common::{assert_fails, assert_ok, run, stderr, stdout};

#[test]
fn every_command_explains_itself() {
    for command in
        ["up", "down", "serve", "pub", "sub", "status", "top", "topology", "sessions", "routes", "retained", "kick"]
    {
        let output = run(&[command, "--help"]);
        assert_ok(&output);
        let help = stdout(&output);
        assert!(help.contains("Usage: sedge ") && help.contains("--json"), "{command}: {help}");
        assert!(stdout(&run(&["--help"])).contains(&format!("\n  {command} ")), "{command}");
    }
    for command in ["up", "serve", "pub", "sub"] {
        assert!(stdout(&run(&[command, "--help"])).contains("Examples:\n  sedge "), "{command}");
    }
    assert!(stdout(&run(&["config", "check", "--help"])).contains("--config"));
    assert!(stdout(&run(&["--version"])).starts_with("sedge "));
}

#[test]
fn hidden_flags_stay_hidden() {
    let help = stdout(&run(&["serve", "--help"]));
    assert!(!help.contains("exit-with-parent") && !help.contains("own-session"), "{help}");
}

#[test]
fn mistakes_of_pub_are_usage_errors() {
    for (arguments, words) in [
        (&["pub", "-t", "a"][..], &["--message"][..]),
        (&["pub", "-m", "x"], &["--topic"]),
        (&["pub", "-t", "a", "-m", "x", "-n"], &["cannot be used with"]),
        (&["pub", "-t", "a/#", "-m", "x"], &["-t a/#", "wildcard"]),
        (&["pub", "-t", "a", "-m", "x", "-q", "3"], &["-q", "0, 1 or 2"]),
        (&["pub", "-t", "a", "-m", "x", "-V", "31"], &["3.1 is not supported", "311 or 5"]),
        (&["pub", "-t", "a", "-m", "x", "-V", "311", "-x", "5"], &["-x needs MQTT 5"]),
        (&["pub", "-t", "a", "-m", "x", "--cafile", "no-such.pem"], &["--cafile no-such.pem", "No such file"]),
        (&["pub", "-t", "a", "-m", "x", "-P", "secret"], &["--username"]),
        (&["pub", "-t", "a", "-m", "x", "--will-qos", "1"], &["--will-topic"]),
        (&["pub", "-t", "a", "-m", "x", "-c"], &["-c", "-i"]),
        (&["pub", "-t", "a", "-m", "x", "-D", "publish", "colour", "red"], &["publish colour red", "content-type"]),
        (&["pub", "-t", "a", "-m", "x", "-D", "publish"], &["PACKET NAME VALUE"]),
    ] {
        assert_fails(&run(arguments), 2, words);
    }
}

#[test]
fn mistakes_of_sub_are_usage_errors() {
    for (arguments, words) in [
        (&["sub"][..], &["--topic"][..]),
        (&["sub", "-t", "a/#/b"], &["-t a/#/b", "'#'"]),
        (&["sub", "-t", "a", "-F", "%z"], &["%z"]),
        (&["sub", "-t", "a", "-F", "%p", "-v"], &["cannot be used with"]),
        (&["sub", "-t", "a", "-C", "0"], &["0"]),
        (&["sub", "-t", "a", "-S"], &["SRV", "-h"]),
        (&["sub", "-t", "a", "--unix", "/run/x", "-h", "gw"], &["cannot be used with"]),
        (&["sub", "-t", "a", "--random-filter", "101"], &["0 to 100"]),
        (&["sub", "-t", "a", "--tls-version", "tlsv1.1"], &["tlsv1.2"]),
        (&["sub", "-t", "a", "--tls-alpn", "mqtt"], &["--cafile"]),
        (&["sub", "-t", "a", "--proxy", "http://p"], &["socks5h://"]),
    ] {
        assert_fails(&run(arguments), 2, words);
    }
}

#[test]
fn no_broker_is_a_failure_with_the_address() {
    let port = common::free_ports(1).to_string();
    let output = run(&["pub", "-h", "127.0.0.1", "-p", &port, "-t", "a", "-m", "x"]);
    assert_fails(&output, 1, &[&format!("127.0.0.1:{port}"), "is a broker running there?"]);
    let quiet = run(&["pub", "-h", "127.0.0.1", "-p", &port, "-t", "a", "-m", "x", "--quiet"]);
    assert_eq!((quiet.status.code(), stderr(&quiet).as_str()), (Some(1), ""));
}

#[test]
fn no_api_is_a_failure_with_the_address() {
    let api = format!("http://127.0.0.1:{}", common::free_ports(1));
    for command in [&["status"][..], &["topology"], &["sessions"], &["routes"], &["retained"], &["kick", "me"]] {
        let output = run(&[command, &["--api", &api]].concat());
        assert_fails(&output, 1, &[&api, "--api"]);
    }
    assert_fails(&run(&["status", "--api", "https://x"]), 2, &["TLS"]);
}

#[test]
fn a_wrong_configuration_is_named_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sedge.toml");
    std::fs::write(&file, "[mqtt]\nprot = 1883\n").unwrap();
    let path = file.to_str().unwrap();
    for arguments in [&["config", "check", "-c", path][..], &["serve", "-c", path]] {
        assert_fails(&run(arguments), 2, &[&format!("{path}:2"), "mqtt.prot", "mqtt.port"]);
    }
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&run(&["config", "check", "-c", path, "--json"]))).unwrap();
    assert_eq!((json["valid"].as_bool(), json["problems"][0]["key"].as_str()), (Some(false), Some("mqtt.prot")));
    assert_fails(&run(&["config", "check", "-c", "/no/such.toml"]), 2, &["/no/such.toml"]);
    assert_fails(&run(&["serve", "--bind", "nowhere"]), 2, &["--bind", "nowhere"]);
    std::fs::write(&file, "[mqtt]\nport = 1999\n").unwrap();
    assert_ok(&run(&["config", "check", "-c", path]));
}

#[test]
fn up_names_the_port_in_use_and_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    let text = |port: u16| port.to_string();
    for (index, flag) in [(0, "--port"), (3, "--http-port"), (6, "--cluster-port")] {
        // Others than before: a program that another test starts at this moment may hold the last port for an instant longer.
        let first = common::free_ports(9);
        let taken = first + index + 1;
        let _holder = TcpListener::bind(("127.0.0.1", taken)).unwrap();
        let ports = [text(first), text(first + 3), text(first + 6)];
        let output = run(&[
            "up",
            "--port",
            &ports[0],
            "--http-port",
            &ports[1],
            "--cluster-port",
            &ports[2],
            "--data-dir",
            dir.path().to_str().unwrap(),
        ]);
        assert_fails(&output, 3, &[&taken.to_string(), "node-2", "in use", flag]);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing may be started or written");
}

#[test]
fn down_without_a_cluster_says_where_it_looked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert_fails(&run(&["down", "--data-dir", path]), 1, &[path, "--data-dir"]);
}
