//! `sedge config from-mosquitto`: the files that it writes are valid, and no line is forgotten.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;

use common::{assert_fails, assert_ok, run, stderr, stdout};

/// Every option of mosquitto.conf(5) of versions 2.0 and 2.1, with values that make sense there.
const ALL: &str = "\
per_listener_settings true
allow_zero_length_clientid true
auto_id_prefix auto-
check_retain_source true
max_inflight_bytes 0
max_inflight_messages 20
max_keepalive 300
max_packet_size 100000
max_queued_bytes 0
max_queued_messages 1000
memory_limit 0
message_size_limit 0
persistent_client_expiration 2m
pid_file /run/mosquitto.pid
queue_qos0_messages true
retain_available true
set_tcp_nodelay true
sys_interval 20
upgrade_outgoing_qos false
user mosquitto
bind_address 127.0.0.1
port 1883
bind_interface lo
listener 1884 127.0.0.1
socket_domain ipv4
http_dir /srv
max_connections -1
max_qos 2
max_topic_alias 20
mount_point site/
protocol mqtt
use_username_as_clientid false
websockets_headers_size 0
listener 8883
certfile /etc/cert.pem
keyfile /etc/key.pem
ciphers HIGH
ciphers_tls1.3 TLS_AES_256_GCM_SHA384
crlfile /etc/crl
dhparamfile /etc/dh
require_certificate true
cafile /etc/ca.pem
capath /etc/ca
tls_version tlsv1.2
tls_engine e
tls_engine_kpass_sha1 x
tls_keyform pem
use_identity_as_username true
use_subject_as_username false
listener 8884
psk_hint hint
listener 0 /run/mqtt.sock
autosave_interval 1800
autosave_on_changes false
persistence true
persistence_file mosquitto.db
persistence_location /var/lib/mosquitto/
log_dest stderr
log_dest file /var/log/m.log
log_type error
log_type information
connection_messages true
log_facility 5
log_timestamp true
log_timestamp_format %Y
websockets_log_level 0
clientid_prefixes secure-
allow_anonymous false
allow_duplicate_messages true
password_file /etc/passwd.m
psk_file /etc/psk
acl_file /etc/acl
auth_plugin /usr/lib/a.so
auth_opt_key hidden
auth_plugin_deny_special_chars true
plugin /usr/lib/b.so
plugin_opt_key hidden
connection cloud
address cloud.example:8883 other.example
addresses third.example
topic # out 1 in/ out/
bridge_bind_address 10.0.0.1
bridge_attempt_unsubscribe true
bridge_protocol_version mqttv50
cleansession false
local_cleansession false
idle_timeout 60
keepalive_interval 60
local_clientid a
local_username u
local_password hidden
notifications true
notifications_local_only false
notification_topic t
remote_clientid b
remote_username r
remote_password hidden
restart_timeout 5 30
round_robin false
start_type automatic
threshold 10
try_private true
bridge_outgoing_retain true
bridge_max_packet_size 0
bridge_cafile /etc/ca.pem
bridge_capath /etc/ca
bridge_alpn mqtt
bridge_insecure false
bridge_certfile /etc/c.pem
bridge_keyfile /etc/k.pem
bridge_identity i
bridge_psk hidden
bridge_require_ocsp false
bridge_tls_version tlsv1.3
bridge_ciphers HIGH
bridge_ciphers_tls1.3 TLS_AES_256_GCM_SHA384
bridge_max_topic_alias 10
bridge_receive_maximum 10
bridge_reload_type lazy
bridge_session_expiry_interval 10
bridge_tcp_keepalive 10
bridge_tcp_user_timeout 10
bridge_tls_use_os_certs true
enable_control_api true
global_max_clients 100
global_max_connections 100
global_plugin /usr/lib/c.so
plugin_load acl /usr/lib/d.so
packet_buffer_size 4096
retain_expiry_interval 60
retained_persistence true
listener 1886
plugin_use acl
accept_protocol_versions 4 5
disable_client_cert_date_checks false
enable_proxy_protocol 2
listener_allow_anonymous false
listener_auto_id_prefix x
max_topic_alias_broker 5
proxy_protocol_v2_require_tls false
websockets_origin https://a.example
";

fn migrate(dir: &Path, text: &str) -> (String, String) {
    let (from, to) = (dir.join("mosquitto.conf"), dir.join("sedge.toml"));
    std::fs::write(&from, text).unwrap();
    let _ = std::fs::remove_file(&to);
    let output = run(&["config", "from-mosquitto", from.to_str().unwrap(), "-o", to.to_str().unwrap()]);
    assert_ok(&output);
    assert_eq!(stdout(&output), "");
    assert_ok(&run(&["config", "check", "-c", to.to_str().unwrap()]));
    (std::fs::read_to_string(&to).unwrap(), stderr(&output))
}

#[test]
fn every_option_is_accounted_for_and_the_result_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let (toml, report) = migrate(dir.path(), ALL);
    for (at, line) in ALL.lines().enumerate() {
        let place = format!("mosquitto.conf:{}: {}", at + 1, line.split(' ').next().unwrap());
        // Types of messages add up; the last line stands for them.
        assert!(toml.contains(&place) || line == "log_type error", "{place} is not in\n{toml}");
        assert!(!report.contains("no such option"), "{report}");
    }
    assert!(!toml.contains("hidden") && !report.contains("hidden"), "secrets stay where they are");
    for setting in ["sys]\n# ", "interval = 20", "maximum_keep_alive = 300", "max_inflight = 20", "level = \"info\""] {
        assert!(toml.contains(setting), "{setting} is not in\n{toml}");
    }
    assert!(toml.contains("[bridge.cloud]") && toml.contains("topic = \"out/\""), "{toml}");
    assert!(report.contains("password_file"), "{report}");
}

/// Each option alone, with good and bad values: whatever is written is valid.
#[test]
fn any_value_gives_a_valid_file() {
    let dir = tempfile::tempdir().unwrap();
    let names: std::collections::BTreeSet<&str> = ALL.lines().filter_map(|line| line.split(' ').next()).collect();
    let values = ["", "0", "1", "-1", "99999999999999999999", "true", "a \"b\\c\u{7f}\u{fc}", "/dev/null x"];
    for value in values {
        let lines: Vec<String> = names.iter().map(|name| format!("{name} {value}")).collect();
        migrate(dir.path(), &lines.join("\n"));
    }
}

#[test]
fn the_file_that_debian_installs() {
    let dir = tempfile::tempdir().unwrap();
    let included = dir.path().join("conf.d");
    std::fs::create_dir(&included).unwrap();
    std::fs::write(included.join("site.conf"), "listener 1885\nallow_anonymous true\nno_such_option x\n").unwrap();
    let text = format!(
        "# Place your local configuration in conf.d\n\npid_file /run/mosquitto/mosquitto.pid\n\npersistence true\n\
         persistence_location /var/lib/mosquitto/\n\nlog_dest file /var/log/mosquitto/mosquitto.log\n\n\
         include_dir {}\n",
        included.display()
    );
    let (toml, report) = migrate(dir.path(), &text);
    assert!(toml.contains("site.conf:1: listener 1885\nport = 1885\n"), "{toml}");
    assert!(report.contains("site.conf:3: no_such_option x: Mosquitto 2.0 and 2.1 have no such option"), "{report}");
}

#[test]
fn mistakes_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    assert_fails(&run(&["config", "from-mosquitto", &path("none")]), 2, &["none"]);
    std::fs::write(path("m"), "port 1883\n").unwrap();
    std::fs::write(path("taken"), "mine").unwrap();
    assert_fails(&run(&["config", "from-mosquitto", &path("m"), "-o", &path("taken")]), 1, &["-o", "taken"]);
    assert_eq!(std::fs::read_to_string(path("taken")).unwrap(), "mine");
    let output = run(&["config", "from-mosquitto", &path("m"), "--json"]);
    assert_ok(&output);
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(json["toml"].as_str().unwrap().contains("port = 1883"));
    assert_eq!(json["not_carried_over"], serde_json::json!([]));
}

/// As files in use have it: remarks behind settings, and rules that only a plugin knows.
#[test]
fn remarks_are_none_of_a_setting_and_a_plugin_closes_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let text = "listener 1883 # all\nallow_anonymous true # to begin with\n";
    let (toml, report) = migrate(dir.path(), text);
    assert!(toml.contains("\nport = 1883\n") && toml.contains("\nanonymous = \"always\"\n"), "{toml}");
    assert!(toml.contains("\nmaximum_packet_size = 268435460\n") && report.is_empty(), "{toml}{report}");
    let (toml, report) = migrate(dir.path(), &format!("{text}plugin /usr/lib/mosquitto_dynamic_security.so\n"));
    assert!(toml.contains("\nanonymous = \"never\"\n") && report.contains("nobody is let in"), "{toml}{report}");
    let (toml, report) = migrate(dir.path(), &format!("{text}mount_point site/\n"));
    assert!(toml.contains("\nanonymous = \"never\"\n") && report.contains("mount_point"), "{toml}{report}");
}
