//! Links between nodes: their encryption, and the nodes that get no link.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, Once};

use bytes::{Bytes, BytesMut};
use sedge_base::NodeId;
use sedge_daemon::config::Secret;
use sedge_daemon::{Config, Daemon};
use sedge_mqtt::{Decoder, Packet, Publish, QoS, ReasonCode, Version, encode};

use crate::common::{Client, PATIENCE, config, connect, eventually, get, request};
use crate::pki::{Authority, Identity};

/// The lines that all nodes of this process have written.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Waits for a line that has all of this.
fn logged(parts: &[&str]) {
    let mut lines = String::new();
    eventually(&format!("a line with {parts:?}"), || {
        lines = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
        lines.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    });
}

/// Node `id` with a key, beside the one that listens there.
fn keyed(id: u64, seed: Option<&Daemon>) -> Config {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
    let seeds: Vec<SocketAddr> = seed.into_iter().map(|node| node.addresses().cluster).collect();
    let mut config = config(&seeds);
    config.node.id = Some(NodeId::new(id));
    config.cluster.key = Some(Secret::new("0123456789abcdef"));
    config
}

fn certified(id: u64, seed: Option<&Daemon>, authority: &Authority, identity: Identity) -> Config {
    let mut config = keyed(id, seed);
    config.cluster.cert_file = Some(identity.cert);
    config.cluster.cert_key_file = Some(identity.key);
    config.cluster.ca_file = Some(authority.ca_file());
    config
}

fn start(config: Config) -> Daemon {
    Daemon::start(&config.check().unwrap()).unwrap()
}

fn status(node: &Daemon, key: &str) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&get(node, "/api/v1/status").1).unwrap();
    status[key].clone()
}

fn linked(nodes: [&Daemon; 2]) {
    for node in nodes {
        eventually("a link", || status(node, "links") == 1);
    }
}

/// Waits until both have refused links for some time, and checks that they know each other all the same: datagrams do pass.
fn apart(nodes: [&Daemon; 2]) {
    for node in nodes {
        eventually("refusals", || {
            let (_, metrics) = get(node, "/metrics");
            let line = metrics.lines().find_map(|line| line.strip_prefix("sedge_links_auth_failures_total "));
            line.unwrap().parse::<u64>().unwrap() > 1
        });
        assert_eq!((status(node, "members"), status(node, "links")), (2.into(), 0.into()));
    }
}

/// Messages of all sizes cross in both directions.
fn talk(nodes: [&Daemon; 2]) {
    let mut clients = nodes.map(|node| Client::connect(node, &format!("client of {}", node.addresses().cluster)).0);
    for client in &mut clients {
        client.subscribe("t", QoS::AtMostOnce);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        for size in [0, 1, 16_383, 16_384, 16_385, 1_000_000] {
            let payload = vec![b'x'; size];
            let own = Packet::Publish(Publish {
                dup: false,
                qos: QoS::AtMostOnce,
                retain: false,
                topic: Some("t".try_into().unwrap()),
                packet_id: None,
                payload: payload.clone().into(),
                properties: None,
            });
            clients[from].send(&own);
            for at in [from, to] {
                assert!(clients[at].message().payload == payload, "{size} bytes from {from}");
            }
        }
    }
}

/// Answer of the cluster port to bytes.
fn answer(node: &Daemon, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(node.addresses().cluster).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A connection that is reset has answered nothing more.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// MQ-19, FT-21
#[test]
fn a_key_alone_encrypts_links() {
    let first = start(keyed(0x11, None));
    let second = start(keyed(0x12, Some(&first)));
    linked([&first, &second]);
    talk([&first, &second]);

    // Whoever does not begin with TLS is told so, if it talks like a node, and is not linked.
    let Packet::Connect(mut hello) = connect("0000000000000013") else { unreachable!() };
    hello.clean_start = true;
    let properties = [
        ("node", "0000000000000013"),
        ("cluster", "sedge"),
        ("version", "1"),
        ("since", "1"),
        ("incarnation", "1"),
        ("capacity", "1"),
        ("address", "127.0.0.1:9"),
        ("stream", "1"),
        ("received", "-"),
    ];
    hello.properties.user =
        properties.iter().map(|(name, value)| ((*name).try_into().unwrap(), (*value).try_into().unwrap())).collect();
    let mut bytes = BytesMut::new();
    encode(&Packet::Connect(hello), Version::V5, &mut bytes);
    let mut decoder = Decoder::client(8192);
    decoder.feed(Bytes::from(answer(&first, &bytes)));
    let Some(Packet::ConnAck(connack)) = decoder.next().unwrap() else { panic!("no CONNACK") };
    assert_eq!(connack.reason, ReasonCode::NotAuthorized);
    assert!(connack.properties.reason_string.unwrap().contains("links are encrypted here"));

    // Nonsense behind the first byte of TLS ends in an alert, and disturbs nobody.
    let alert = answer(&first, &[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    assert_eq!(alert.first(), Some(&21), "{alert:?}");
    talk([&first, &second]);
}

/// MQ-19
#[test]
fn encrypted_and_plain_nodes_are_not_linked_and_say_why() {
    for (dialler, acceptor, id) in [(true, false, 0x20), (false, true, 0x24)] {
        let set = |mut config: Config, is_encrypted| {
            config.cluster.encryption = is_encrypted;
            start(config)
        };
        let first = set(keyed(id, None), dialler);
        let second = set(keyed(id + 1, Some(&first)), acceptor);
        apart([&first, &second]);
    }
    // Each side has a line of its own: the encrypted dialler and the plain acceptor, the plain dialler and the encrypted acceptor.
    logged(&["no encrypted link with node 0000000000000021", "cluster.encryption"]);
    logged(&["this node has plain links", "cluster.encryption"]);
    logged(&["node 0000000000000025", "refused the link (0x87)", "links are encrypted here"]);
    logged(&["node 0000000000000024", "its link is plain", "cluster.encryption"]);

    let plain = |mut config: Config| {
        config.cluster.encryption = false;
        start(config)
    };
    let first = plain(keyed(0x28, None));
    let second = plain(keyed(0x29, Some(&first)));
    linked([&first, &second]);
    talk([&first, &second]);
}

/// MQ-19
#[test]
fn certificates_of_the_same_authority_link() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    let first = start(certified(0x31, None, &ours, ours.sign("first")));
    let second = start(certified(0x32, Some(&first), &ours, ours.sign("second")));
    linked([&first, &second]);
    talk([&first, &second]);
}

/// MQ-19
#[test]
fn certificates_of_others_and_expired_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "theirs"));
    // Both as dialler (the lower id) and as acceptor.
    for (id, other) in [(0x41, 0x42), (0x44, 0x43)] {
        let first = start(certified(id, None, &ours, ours.sign("first")));
        let stranger = start(certified(other, Some(&first), &theirs, theirs.sign("stranger")));
        apart([&first, &stranger]);
    }
    logged(&["no encrypted link with node 0000000000000042", "certificate", "UnknownIssuer"]);
    for (id, other) in [(0x46, 0x47), (0x49, 0x48)] {
        let first = start(certified(id, None, &ours, ours.sign("first")));
        let late = start(certified(other, Some(&first), &ours, ours.sign_expired("late")));
        apart([&first, &late]);
    }
    logged(&["no encrypted link with node 0000000000000047", "expired"]);
    logged(&["other nodes refuse this certificate", "expired"]);

    // A key alone is not enough where others have certificates.
    let first = start(certified(0x4c, None, &ours, ours.sign("first")));
    let bare = start(keyed(0x4b, Some(&first)));
    apart([&first, &bare]);
    logged(&["no encrypted link with 127.0.0.1", "cluster.cert_file alike on all nodes", "peer is incompatible"]);
    logged(&["no encrypted link with node 000000000000004c", "its log says why"]);
}

/// MQ-19: the authority is exchanged on one node; its link stays, and new ones need a certificate of the new authority.
#[test]
fn a_reload_exchanges_the_certificates_of_new_links() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(dir.path(), "old"), Authority::new(dir.path(), "new"));
    let first = start(certified(0x51, None, &old, old.sign("first")));
    let second = start(certified(0x52, Some(&first), &old, old.sign("second")));
    linked([&first, &second]);

    let ca = std::fs::read(old.ca_file()).unwrap();
    std::fs::write(old.ca_file(), "nonsense").unwrap();
    let (code, body) = request(&first, "POST", "/api/v1/reload");
    assert_eq!(code, 422);
    assert!(body.contains("cluster.ca_file: cannot read certificates from"), "{body}");
    std::fs::copy(new.ca_file(), old.ca_file()).unwrap();
    new.sign("first");
    assert_eq!(request(&first, "POST", "/api/v1/reload").0, 200);
    std::fs::write(old.ca_file(), ca).unwrap();

    let third = start(certified(0x53, Some(&first), &new, new.sign("third")));
    eventually("the new one is linked", || status(&first, "links") == 2);
    // Sessions of the link that has stayed go on.
    let mut there = Client::connect(&second, "there").0;
    there.subscribe("t", QoS::AtMostOnce);
    let mut here = Client::connect(&first, "here").0;
    here.publish("t", b"still linked", false);
    assert_eq!(there.message().payload, &b"still linked"[..]);
    assert_eq!(status(&third, "links"), 1);
}

/// MQ-19
#[test]
fn certificates_that_cannot_protect_a_cluster_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "theirs"));
    let good = || certified(0x61, None, &ours, ours.sign("node"));
    let refused = |config: Config| config.check().unwrap_err().to_string();
    assert!(good().check().is_ok());

    let mut config = good();
    config.cluster.key = None;
    let message = refused(config);
    assert!(message.contains("cluster.cert_file: certificates protect links only"), "{message}");
    let mut config = good();
    config.cluster.encryption = false;
    assert!(refused(config).contains("cluster.encryption: is \"off\""));
    let mut config = good();
    config.cluster.cert_key_file = None;
    assert!(refused(config).contains("cluster.cert_key_file: is missing"));
    let mut config = good();
    config.cluster.ca_file = Some(theirs.ca_file());
    let message = refused(config);
    assert!(message.contains("cluster.cert_file: other nodes with the authority"), "{message}");
    let mut config = good();
    config.cluster.cert_key_file = Some(theirs.sign("other").key);
    let message = refused(config);
    assert!(message.contains("do not go together"), "{message}");
}
