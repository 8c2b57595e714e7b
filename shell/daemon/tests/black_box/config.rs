//! Messages for a user whose configuration is wrong, and the order of the layers when it is right.

use std::path::Path;
use std::time::Duration;

use sedge_bridge::Full;
use sedge_cluster::{SkipGraphBase, SkipGraphMethod};
use sedge_daemon::config::{LogFormat, Secret, SubackMode, known_keys};
use sedge_daemon::{Config, Overrides};

fn load(file: &str, env: &[(&str, &str)], flags: &[(&str, &str, &str)]) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sedge.toml");
    std::fs::write(&path, file).unwrap();
    let env = env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let mut overrides = Overrides::new();
    for &(key, value, flag) in flags {
        overrides.set(key, value, flag);
    }
    let dir = format!("{}/", dir.path().display());
    Config::load(Some(&path), env, &overrides).map_err(|error| error.to_string().replace(&dir, ""))
}

fn refused(file: &str) -> String {
    load(file, &[], &[]).unwrap_err()
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(load("", &[], &[]), Ok(Config::default()));
    assert_eq!(Config::load(None, [], &Overrides::new()), Ok(Config::default()));
}

#[test]
fn mistakes_are_named_with_place_key_and_nearest_name() {
    for (file, message) in [
        ("[mqtt]\nprot = 1\n", "sedge.toml:2:1: mqtt.prot: unknown key; did you mean mqtt.port?"),
        ("[mqt]\nport = 1\n", "sedge.toml:1:2: mqt: unknown section; did you mean [mqtt]?"),
        ("seeds = []\n", "sedge.toml:1:1: seeds: unknown key; did you mean cluster.seeds?"),
        ("mqtt = 1\n", "sedge.toml:1:1: mqtt: is a section: write [mqtt]"),
        ("[tls]\n", "sedge.toml:1:2: tls: unknown section"),
        ("[mqtt]\n\n  port = \"x\"\n", "sedge.toml:3:10: mqtt.port: must be a whole number, not a string"),
        ("[mqtt]\nport = 70000\n", "sedge.toml:2:8: mqtt.port: 70000 is not between 0 and 65535"),
        ("[mqtt]\nport = -1\n", "sedge.toml:2:8: mqtt.port: -1 is not between 0 and 65535"),
        ("[mqtt]\nport = 1.5\n", "sedge.toml:2:8: mqtt.port: must be a whole number, not float"),
        (
            "[mqtt]\nbind = \"all\"\n",
            "sedge.toml:2:8: mqtt.bind: \"all\" is not an IP address such as \"0.0.0.0\" or \"::\"",
        ),
        ("[node]\nid = \"xyz\"\n", "sedge.toml:2:6: node.id: \"xyz\" is not a node id, 1 to 16 hexadecimal digits"),
        ("[http]\nenabled = \"yes\"\n", "sedge.toml:2:11: http.enabled: must be true or false, not a string"),
        ("[cluster]\nsuback = \"all\"\n", "sedge.toml:2:10: cluster.suback: \"all\" is not \"cluster\" or \"local\""),
        ("[cluster]\nskip_graph_base = 3\n", "sedge.toml:2:19: cluster.skip_graph_base: 3 is not 2 or 4 or 16"),
        (
            "[cluster]\nskip_graph_base = \"4\"\n",
            "sedge.toml:2:19: cluster.skip_graph_base: must be 2 or 4 or 16, not a string",
        ),
        (
            "[cluster]\nskip_graph_method = \"split\"\n",
            "sedge.toml:2:21: cluster.skip_graph_method: \"split\" is not \"sfb\" or \"mrf\"",
        ),
        ("[cluster]\nseeds = \"a\"\n", "sedge.toml:2:9: cluster.seeds: must be a list of strings, not a string"),
        (
            "[cluster]\nseeds = [\"a\", \"b:x\"]\n",
            "sedge.toml:2:9: cluster.seeds: \"b:x\": the port is not between 1 and 65535; write host or host:port",
        ),
        (
            "[mqtt]\nadvertise = \"mqtt://x\"\n",
            "sedge.toml:2:13: mqtt.advertise: \"mqtt://x\": the port is not between 1 and 65535; write host or host:port",
        ),
        ("[cluster]\nkey = \"short\"\n", "sedge.toml:2:7: cluster.key: must have at least 16 bytes"),
        (
            "[limits]\nconnect_timeout = \"2 weeks\"\n",
            "sedge.toml:2:19: limits.connect_timeout: \"2 weeks\" is not a time such as 10, \"10s\", \"500ms\", \"5m\" or \"1h\"",
        ),
        (
            "[log]\nlevel = \"loud\"\n",
            "sedge.toml:2:9: log.level: \"loud\" is not one of off, error, warn, info, debug, trace",
        ),
    ] {
        assert_eq!(refused(file), message, "{file}");
    }
}

#[test]
fn what_is_no_toml_is_placed_too() {
    let message = refused("[mqtt]\nport =\n");
    assert!(message.starts_with("sedge.toml:2:"), "{message}");
    assert!(message.contains("not TOML"), "{message}");
    let twice = refused("[mqtt]\nport = 1\nport = 2\n");
    assert!(twice.starts_with("sedge.toml:3:1: not TOML: duplicate key"), "{twice}");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let message = refused("[mqtt]\nport = 70000\nprot = 1\n[lgo]\n");
    assert_eq!(message.lines().count(), 3, "{message}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Some(Path::new("/nowhere/sedge.toml")), [], &Overrides::new()).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("/nowhere/sedge.toml: cannot read this file: "), "{message}");
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = "[mqtt]\nport = 1\nbind = \"::1\"\n[http]\nport = 1\n[cluster]\nport = 1\n";
    let env = [("SEDGE_MQTT__PORT", "2"), ("SEDGE_HTTP__PORT", "2"), ("SEDGE_CLUSTER__SEEDS", "a, b:1,")];
    let config = load(file, &env, &[("mqtt.port", "3", "--port")]).unwrap();
    assert_eq!((config.mqtt.port, config.http.port, config.cluster.port), (3, 2, 1));
    assert_eq!(config.mqtt.bind.to_string(), "::1");
    assert_eq!(config.cluster.seeds, ["a", "b:1"]);
}

#[test]
fn every_kind_of_value_can_come_from_the_environment() {
    let env = [
        ("SEDGE_LIMITS__CONNECT_TIMEOUT", "500ms"),
        ("SEDGE_LIMITS__MAXIMUM_PACKET_SIZE", "64KiB"),
        ("SEDGE_LIMITS__QUEUE_QOS0_OFFLINE", "true"),
        ("SEDGE_CLUSTER__SUBACK", "local"),
        ("SEDGE_CLUSTER__SKIP_GRAPH_BASE", "16"),
        ("SEDGE_CLUSTER__SKIP_GRAPH_METHOD", "mrf"),
        ("SEDGE_LOG__FORMAT", "json"),
        ("SEDGE_NODE__ID", "ab"),
        ("SEDGE_NODE__DATA_DIR", ""),
        ("SEDGE_PORT_1883_TCP", "ignored"),
        ("OTHER__THING", "ignored"),
    ];
    let config = load("", &env, &[]).unwrap();
    let broker = &config.limits.broker;
    assert_eq!((broker.connect_timeout, broker.max_packet_bytes), (Duration::from_millis(500), 65_536));
    assert!(broker.queue_qos0_offline);
    assert_eq!((config.cluster.suback, config.log.format), (SubackMode::Local, LogFormat::Json));
    let skip_graph = (config.cluster.skip_graph_base, config.cluster.skip_graph_method);
    assert_eq!(skip_graph, (SkipGraphBase::Sixteen, SkipGraphMethod::Mrf));
    assert_eq!(config.node.id.map(sedge_base::NodeId::get), Some(0xab));
    assert_eq!(config.node.data_dir, None);
}

#[test]
fn mistakes_outside_the_file_name_variable_or_flag() {
    let message = load("", &[("SEDGE_MQTT__PROT", "1")], &[]).unwrap_err();
    let want = "environment variable SEDGE_MQTT__PROT: unknown configuration key; did you mean SEDGE_MQTT__PORT?";
    assert_eq!(message, want);
    let message = load("", &[("SEDGE_MQTT__PORT", "many")], &[]).unwrap_err();
    assert_eq!(message, "environment variable SEDGE_MQTT__PORT: mqtt.port: \"many\" is not a whole number");
    let message = load("", &[], &[("mqtt.port", "70000", "--port")]).unwrap_err();
    assert_eq!(message, "--port: mqtt.port: 70000 is not between 0 and 65535");
    let message = load("", &[], &[("mqtt.prot", "1", "--set")]).unwrap_err();
    assert_eq!(message, "--set: mqtt.prot: unknown key; did you mean mqtt.port?");
}

#[test]
fn the_key_file_is_read_and_the_key_stays_out_of_logs() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("cluster.key");
    std::fs::write(&key, "0123456789abcdef\n").unwrap();
    let file = format!("[cluster]\nkey_file = \"{}\"\n", key.display());
    let config = load(&file, &[], &[]).unwrap();
    assert_eq!(config.cluster.key.as_ref().map(Secret::expose), Some("0123456789abcdef"));
    assert!(!format!("{config:?}").contains("0123456789"), "{config:?}");
    let both = format!("{file}key = \"0123456789abcdef\"\n");
    assert_eq!(refused(&both), "sedge.toml:2:12: cluster.key_file: give either this or cluster.key");
    let message = refused("[cluster]\nkey_file = \"/nowhere/key\"\n");
    assert!(message.starts_with("sedge.toml:2:12: cluster.key_file: cannot read /nowhere/key: "), "{message}");
}

#[test]
fn every_key_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let documented = std::fs::read_to_string(path).unwrap();
    for key in known_keys() {
        assert!(documented.contains(&format!("| `{}` |", key.name)), "{} is not in docs/configuration.md", key.name);
        assert!(!key.about.is_empty());
    }
    let rows = documented.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, known_keys().count(), "docs/configuration.md has a key that does not exist");
}

/// MQ-19: a conflict of settings is reported at the place where they were written.
#[test]
fn wrong_listeners_are_refused_with_place_and_key() {
    for (file, message) in [
        (
            "[listener.tls]\nport = 8883\n",
            "sedge.toml:2:8: listener.tls.cert_file: is missing: a listener for tls needs cert_file and key_file",
        ),
        (
            "[listener.x]\nport = 1\n",
            "sedge.toml:2:8: listener.x.protocol: is missing: say \"tcp\", \"tls\", \"ws\" or \"wss\"",
        ),
        ("[listener.ws]\nprot = 1\n", "sedge.toml:2:1: listener.ws.prot: unknown key; did you mean listener.ws.port?"),
        (
            "[listener.ws]\nprotocol = \"udp\"\n",
            "sedge.toml:2:12: listener.ws.protocol: \"udp\" is not \"tcp\" or \"tls\" or \"ws\" or \"wss\"",
        ),
        (
            "[listener.ws]\nport = 1883\n",
            "sedge.toml:2:8: listener.ws.port: 0.0.0.0:1883 is the address of listener \"mqtt\"; each needs one of its own",
        ),
        (
            "[listener.tcp]\nport = 1\nclient_cert = \"required\"\n",
            "sedge.toml:3:15: listener.tcp.client_cert: is for protocols tls and wss, and this listener speaks tcp",
        ),
        (
            "[listener.tcp]\nport = 1\nproxy_protocol = \"required\"\n",
            "sedge.toml:3:18: listener.tcp.proxy_protocol: needs proxy_trusted: addresses or networks of the balancers",
        ),
        (
            "[listener.tcp]\nport = 1\nproxy_trusted = [\"10.0.0.0/99\"]\n",
            "sedge.toml:3:17: listener.tcp.proxy_trusted: \"10.0.0.0/99\" is not an address or a network such as \"10.0.0.0/8\"",
        ),
        (
            "[listener.ws]\nsocket = \"/s\"\nport = 1\n",
            "sedge.toml:2:10: listener.ws.socket: is given with bind or port; a listener has one or the other",
        ),
        (
            "[listener.WS]\nport = 1\n",
            "sedge.toml:2:8: listener.WS.port: the name of a listener has 1 to 32 letters a to z, digits, hyphens and underscores",
        ),
        (
            "[mqtt]\nenabled = false\n",
            "sedge.toml:2:11: mqtt.enabled: is false, and there is no [listener.NAME]: nobody could connect",
        ),
        (
            "[limits]\nmax_publish_byte_rate = 1000\n",
            "sedge.toml:2:25: limits.max_publish_byte_rate: at 1000 bytes a second the largest packet (limits.maximum_packet_size, \
             1048576 bytes) would take more than 10 seconds; say at least 104858 here, or lower limits.maximum_packet_size",
        ),
        (
            "[limits]\nmax_connect_burst = 5\n",
            "sedge.toml:2:21: limits.max_connect_burst: is without effect while limits.max_connect_rate is 0",
        ),
        (
            "[listener.ws]\nmax_publish_burst = 5\n",
            "sedge.toml:2:21: listener.ws.max_publish_burst: is without effect while max_publish_rate is 0",
        ),
        (
            "[limits]\nmax_publish_rates = 5\n",
            "sedge.toml:2:1: limits.max_publish_rates: unknown key; did you mean limits.max_publish_rate?",
        ),
        ("[listener]\nws = 1\n", "sedge.toml:2:1: listener.ws: is a section: write [listener.ws]"),
    ] {
        let found = refused(file);
        assert!(found.lines().any(|line| line == message), "{found}\ninstead of\n{message}");
    }
    let missing = refused("[listener.tls]\ncert_file = \"/nowhere/crt\"\nkey_file = \"/nowhere/key\"\n");
    assert!(
        missing.starts_with("sedge.toml:2:13: listener.tls.cert_file: cannot read certificates from /nowhere/crt"),
        "{missing}"
    );
}

#[test]
fn listeners_come_from_the_environment_too_and_may_be_empty() {
    let env = [("SEDGE_LISTENER__BROWSERS__PROTOCOL", "ws"), ("SEDGE_LISTENER__BROWSERS__PORT", "9001")];
    let config = load("[listener.ws]\n", &env, &[]).unwrap();
    assert_eq!(config.listeners["browsers"].port, Some(9001));
    assert_eq!(config.listeners.keys().collect::<Vec<_>>(), ["browsers", "ws"]);
}

/// MQ-18: a fault of a bridge is reported with file, line and the fix.
#[test]
fn bridges_are_refused_with_place_and_fix() {
    let good = "[bridge.cloud]\nkind = \"mqtt\"\naddress = [\"a\"]\nfrom = [\"a/+\"]\n";
    for (more, place, said) in [
        ("topik = \"x\"\n", "sedge.toml:5:1: bridge.cloud.topik: ", "did you mean bridge.cloud.topic?"),
        ("topic = \"{3}\"\n", "sedge.toml:5:9: bridge.cloud.topic: ", "take a lower number"),
        ("buffer = { max_bytes = \"1GB\" }\n", "sedge.toml:5:24: bridge.cloud.buffer.max_bytes: ", "64KiB"),
        ("buffer = { full = \"never\" }\n", "sedge.toml:5:19: bridge.cloud.buffer.full: ", "\"drop-oldest\""),
        ("buffer = { size = 1 }\n", "sedge.toml:5:12: bridge.cloud.buffer.size: ", "unknown key"),
        ("ack = \"remote\"\n", "sedge.toml:5:7: bridge.cloud.ack: ", "needs buffer.full = \"refuse\""),
        ("[bridge.Other]\n", "sedge.toml:5:9: bridge.Other: ", "letters a to z"),
        ("[bridge.other]\n", "sedge.toml:5:9: bridge.other", "kind = \"mqtt\""),
    ] {
        let message = refused(&format!("{good}{more}"));
        assert!(message.contains(place) && message.contains(said), "{more}: {message}");
    }
    let env = [("SEDGE_BRIDGE__CLOUD__BUFFER__FULL", "drop-oldest"), ("SEDGE_BRIDGE__CLOUD__PASSWORD", "secret")];
    let message = load(good, &env, &[]).unwrap_err();
    assert!(message.contains("bridge.cloud.username"), "{message}");
    let config = load(&format!("{good}username = \"u\"\n"), &env, &[]).unwrap();
    let bridge = &config.bridges["cloud"];
    assert_eq!((bridge.buffer_full, format!("{bridge:?}").contains("secret\"")), (Full::DropOldest, false));
}
