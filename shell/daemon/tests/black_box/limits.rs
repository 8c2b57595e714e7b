//! Limits per address, user, listener and client, and floods that take nobody else down.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sedge_base::Rate;
use sedge_daemon::config::{ListenerConfig, OwnRate, Protocol, ProxyProtocol};
use sedge_daemon::{Config, Daemon};
use sedge_mqtt::{Connect, ConnectProperties, Packet, QoS, ReasonCode, Utf8, Version};
use socket2::{Domain, Socket, Type};

use crate::common::{Client, PATIENCE, config, connect, eventually, get, publish};
use crate::pki::{Authority, dial, loopback};

fn metric(node: &Daemon, line: &str) -> u64 {
    let (_, text) = get(node, "/metrics");
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {line} in {text}"))
}

fn address(node: &Daemon, name: &str) -> SocketAddr {
    let listener = node.addresses().listeners.iter().find(|listener| listener.name == name).unwrap();
    listener.address.parse().unwrap()
}

/// A connection from 127.0.0.`last`.
fn from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether the node takes this connection: it answers a CONNECT.
fn is_taken(mut stream: &TcpStream, id: &str) -> bool {
    let mut bytes = bytes::BytesMut::new();
    sedge_mqtt::encode(&connect(id), Version::V5, &mut bytes);
    // One that is refused may be closed before this is written.
    let _ = stream.write_all(&bytes);
    let mut first = [0];
    match stream.read(&mut first) {
        Ok(read) => read == 1 && first[0] == 0x20,
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
        Err(error) => panic!("neither an answer nor an end: {error}"),
    }
}

fn with_listeners<const N: usize>(mut config: Config, listeners: [(&str, ListenerConfig); N]) -> Config {
    config.listeners = BTreeMap::from(listeners.map(|(name, listener)| (name.to_owned(), listener)));
    config
}

#[test]
fn an_address_has_so_many_connections_and_others_have_theirs() {
    let proxied = ListenerConfig {
        protocol: Some(Protocol::Tcp),
        proxy_protocol: ProxyProtocol::Required,
        proxy_trusted: vec!["127.0.0.0/8".parse().unwrap()],
        ..loopback()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mqtt.sock");
    let local =
        ListenerConfig { protocol: Some(Protocol::Tcp), socket: Some(path.clone()), ..ListenerConfig::default() };
    let mut config = with_listeners(config(&[]), [("proxied", proxied), ("local", local)]);
    config.limits.max_connections_per_address = 2;
    let node = Daemon::start(&config).unwrap();
    let to = node.addresses().mqtt[0];
    let taken: Vec<TcpStream> = (0..2).map(|_| from(9, to)).collect();
    assert!(taken.iter().enumerate().all(|(number, stream)| is_taken(stream, &format!("a{number}"))));
    assert!(!is_taken(&from(9, to), "a2"));
    assert_eq!(metric(&node, "sedge_address_over_limit_total"), 1);
    let other = from(10, to);
    assert!(is_taken(&other, "b0"));
    drop(taken);
    eventually("there is room again", || is_taken(&from(9, to), "a3"));

    // Behind a balancer the client's address counts, and the balancer has as many connections as it wants.
    let behind = |last: u8| {
        let mut stream = from(11, address(&node, "proxied"));
        stream.write_all(format!("PROXY TCP4 192.0.2.{last} 192.0.2.1 4000 1883\r\n").as_bytes()).unwrap();
        stream
    };
    let many: Vec<(TcpStream, TcpStream)> = (1..5).map(|last| (behind(last), behind(last))).collect();
    for (number, (one, two)) in many.iter().enumerate() {
        assert!(is_taken(one, &format!("p{number}")) && is_taken(two, &format!("q{number}")));
    }
    assert!(!is_taken(&behind(3), "too-many"));
    assert!(metric(&node, "sedge_known_addresses") > 4);

    // A Unix socket has no address.
    let sockets = (0..4).map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap());
    let local: Vec<Client> = sockets.enumerate().map(|(n, socket)| Client::over(socket, &format!("u{n}"))).collect();
    assert_eq!(local.len(), 4);
}

fn with_user(id: &str, version: Version, user: &str) -> Packet {
    let Packet::Connect(connect) = connect(id) else { unreachable!() };
    let properties = if version == Version::V5 { connect.properties.clone() } else { ConnectProperties::default() };
    let (username, password) = (Some(Utf8::new(user).unwrap()), Some(bytes::Bytes::from_static(b"secret")));
    Packet::Connect(Box::new(Connect { version, clean_start: true, username, password, properties, ..*connect }))
}

#[test]
fn a_user_has_so_many_clients() {
    let dir = tempfile::tempdir().unwrap();
    let passwords = dir.path().join("passwords");
    let line = sedge_daemon::access::hash_password(b"secret", &[7; 16]).unwrap();
    std::fs::write(&passwords, format!("ann:{line}\nbob:{line}\n")).unwrap();
    let mut config = config(&[]);
    config.auth.password_file = Some(passwords);
    config.auth.anonymous = None;
    config.limits.max_connections_per_user = 2;
    let node = Daemon::start(&config).unwrap();
    let join = |id: &str, version: Version, user: &str| {
        let mut client = Client::raw_as(&node, version);
        client.send(&with_user(id, version, user));
        let Some(Packet::ConnAck(ack)) = client.receive() else { panic!("no CONNACK") };
        (client, ack.reason)
    };
    let clients: Vec<_> = ["a1", "a2"].map(|id| join(id, Version::V5, "ann")).into();
    assert!(clients.iter().all(|(_, reason)| *reason == ReasonCode::Success));
    assert_eq!(join("a3", Version::V5, "ann").1, ReasonCode::QuotaExceeded);
    assert_eq!(join("a3", Version::V311, "ann").1.v311_connect_code(), 3);
    assert_eq!(metric(&node, "sedge_user_over_limit_total"), 2);
    assert_eq!(join("b1", Version::V5, "bob").1, ReasonCode::Success);
    // A client that comes again takes its own place.
    let (again, reason) = join("a1", Version::V5, "ann");
    assert_eq!(reason, ReasonCode::Success);
    drop((clients, again));
    eventually("there is room again", || join("a4", Version::V311, "ann").1 == ReasonCode::Success);
}

/// Sends a CONNECT of MQTT 3.1.1 with user and password.
fn knock(stream: &mut TcpStream, id: &str, user: &str, password: &str) {
    let Packet::Connect(connect) = with_user(id, Version::V311, user) else { unreachable!() };
    let password = Some(bytes::Bytes::copy_from_slice(password.as_bytes()));
    let mut bytes = bytes::BytesMut::new();
    sedge_mqtt::encode(&Packet::Connect(Box::new(Connect { password, ..*connect })), Version::V311, &mut bytes);
    stream.write_all(&bytes).unwrap();
}

/// The code of the CONNACK.
fn code(stream: &mut TcpStream) -> u8 {
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).unwrap();
    assert_eq!(connack[..3], [0x20, 2, 0]);
    connack[3]
}

/// FT-35: wrong passwords wait for each other; a client for which there is no room is told so with code 3.
#[test]
fn a_flood_of_wrong_passwords_holds_up_its_own_address_only() {
    let dir = tempfile::tempdir().unwrap();
    let passwords = dir.path().join("passwords");
    let line = sedge_daemon::access::hash_password(b"secret", &[7; 16]).unwrap();
    std::fs::write(&passwords, format!("ann:{line}\n")).unwrap();
    let mut config = config(&[]);
    config.auth.password_file = Some(passwords);
    (config.auth.anonymous, config.auth.workers, config.auth.max_waiting) = (None, 1, 40);
    let node = Daemon::start(&config).unwrap();
    let to = node.addresses().mqtt[0];
    let mut flood: Vec<TcpStream> = (0..80).map(|_| from(9, to)).collect();
    for (number, stream) in flood.iter_mut().enumerate() {
        knock(stream, &format!("f{number}"), "ann", &format!("wrong {number}"));
    }
    let judged = || metric(&node, "sedge_authentications_total{way=\"asked\"}");
    let busy = || metric(&node, "sedge_authentications_total{way=\"busy\"}");
    eventually("the queue is full", || busy() > 0);
    let before = judged();
    let mut right = from(10, to);
    knock(&mut right, "right", "ann", "secret");
    assert_eq!(code(&mut right), 0, "there is room for another address");
    let meanwhile = judged() - before;
    assert!(meanwhile < 20, "{meanwhile} of the 40 that waited had their turn before");
    let codes: Vec<u8> = flood.iter_mut().map(code).collect();
    let refused: u64 = codes.iter().map(|code| u64::from(*code == 3)).sum();
    assert_eq!(refused, busy(), "each is told that all are busy");
    assert!(codes.iter().all(|code| [3, 4].contains(code)), "{codes:?}");
}

#[test]
fn connections_come_no_faster_than_a_listener_takes_them() {
    let slow = OwnRate { per_second: Some(1), burst: Some(3) };
    let mut limited = ListenerConfig { protocol: Some(Protocol::Tcp), ..loopback() };
    limited.rates.connect = slow;
    let mut config = with_listeners(config(&[]), [("slow", limited)]);
    config.limits.connect_rate_per_address = Rate { per_second: 1, burst: 20 };
    let node = Daemon::start(&config).unwrap();
    let to = address(&node, "slow");
    let taken = (0..12).filter(|number| is_taken(&from(20 + number, to), &format!("c{number}"))).count();
    assert!((3..8).contains(&taken), "{taken} of 12 although the burst is 3");
    assert_eq!(metric(&node, "sedge_listener_over_rate_total{listener=\"slow\",protocol=\"tcp\"}"), 12 - taken as u64);
    // The other listener has no such limit, but each address has.
    let plain = node.addresses().mqtt[0];
    let taken = (0..40).filter(|number| is_taken(&from(9, plain), &format!("d{number}"))).count();
    assert!((20..35).contains(&taken), "{taken} of 40 although the burst is 20");
    assert_eq!(metric(&node, "sedge_address_over_rate_total"), 40 - taken as u64);
    assert!(is_taken(&from(10, plain), "other"));
}

/// How long a message takes to itself and back: the worst of some, in the midst of whatever else is going on.
fn worst_round_trip(node: &Daemon, id: &str, rounds: usize) -> Duration {
    let (mut client, _) = Client::connect(node, id);
    client.subscribe(&format!("echo/{id}"), QoS::AtMostOnce);
    let mut worst = Duration::ZERO;
    for _ in 0..rounds {
        let start = Instant::now();
        client.send(&publish(&format!("echo/{id}"), b"x", None, false));
        client.message();
        worst = worst.max(start.elapsed());
    }
    worst
}

/// Neither many connections from one address nor half-open TLS handshakes keep the others from talking or coming.
#[test]
fn a_flood_of_connections_stops_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let mut config = with_listeners(config(&[]), [("tls", authority.listener())]);
    config.limits.max_connections_per_address = 50;
    config.limits.connect_rate_per_address = Rate { per_second: 500, burst: 0 };
    config.limits.max_handshakes = 100;
    let node = Arc::new(Daemon::start(&config).unwrap());
    let (plain, tls) = (node.addresses().mqtt[0], address(&node, "tls"));
    let is_over = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = [(30, plain), (31, plain), (32, tls)]
        .map(|(last, to)| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                let mut made = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let mut stream = from(last, to);
                    // The beginning of a CONNECT, or of a TLS hello.
                    let _ = stream.write_all(&[0x16, 3, 1, 1, 0, 1]);
                    kept.push(stream);
                    kept.truncate(200);
                    made += 1;
                }
                made
            })
        })
        .into();
    eventually("the flood is noticed", || {
        metric(&node, "sedge_address_over_limit_total") + metric(&node, "sedge_address_over_rate_total") > 500
    });
    let worst = worst_round_trip(&node, "calm", 200);
    for number in 0..5 {
        let stream = dial(tls, &authority.client(None));
        let stream = stream.unwrap_or_else(|error| panic!("handshake {number}: {error}"));
        drop(Client::over(stream, "newcomer"));
    }
    is_over.store(true, Ordering::Relaxed);
    let made: u64 = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
    assert!(made > 500 && worst < Duration::from_secs(2), "{made} connections, worst round trip {worst:?}");
}

/// MQ-10: a client that publishes too fast is not read for a while and loses nothing; others do not wait.
#[test]
fn who_publishes_too_fast_waits() {
    let mut free = ListenerConfig { protocol: Some(Protocol::Tcp), ..loopback() };
    free.rates.publish.per_second = Some(0);
    let mut config = with_listeners(config(&[]), [("free", free)]);
    config.limits.publish_rate.messages = Rate { per_second: 100, burst: 50 };
    let node = Daemon::start(&config).unwrap();
    let mut subscriber = Client::over(TcpStream::connect(address(&node, "free")).unwrap(), "sub");
    subscriber.subscribe("t/#", QoS::AtMostOnce);
    let count: u16 = 200;
    let flood = |mut client: Client, topic: &str| {
        let start = Instant::now();
        for number in 0..count {
            client.send(&publish(topic, &number.to_be_bytes(), Some(number + 1), false));
        }
        (client, start)
    };
    let (mut fast, start) = flood(Client::connect(&node, "fast").0, "t/fast");
    for number in 0..count {
        let message = subscriber.message();
        assert_eq!(message.payload[..], number.to_be_bytes());
    }
    assert!(start.elapsed() >= Duration::from_millis(1_400), "{:?}", start.elapsed());
    assert!((0..count).all(|_| matches!(fast.receive(), Some(Packet::PubAck(ack)) if !ack.reason.is_error())));
    fast.send(&Packet::PingReq);
    assert_eq!(fast.receive(), Some(Packet::PingResp));
    let pauses = metric(&node, "sedge_publish_pauses_total");
    assert!(pauses > 0 && metric(&node, "sedge_publish_pause_microseconds_total") > 100_000);
    let exempt = Client::over(TcpStream::connect(address(&node, "free")).unwrap(), "exempt");
    let (_exempt, _) = flood(exempt, "t/free");
    assert!((0..count).all(|number| subscriber.message().payload[..] == number.to_be_bytes()));
    assert_eq!(metric(&node, "sedge_publish_pauses_total"), pauses, "its listener has no such limit");
}

/// MQ-09: the bytes held for clients that do not read stay below the limit of the node, and clients that read get everything.
#[test]
fn clients_that_do_not_read_share_what_may_be_held() {
    let mut config = config(&[]);
    let limit = 4 << 20;
    config.limits.max_buffered_bytes = limit;
    let node = Daemon::start(&config).unwrap();
    let deaf: Vec<Client> = (0..20)
        .map(|number| {
            let (mut client, _) = Client::connect(&node, &format!("deaf-{number}"));
            client.subscribe("busy", if number % 2 == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce });
            client
        })
        .collect();
    let (mut reader, _) = Client::connect(&node, "reader");
    reader.subscribe("busy", QoS::AtMostOnce);
    let (mut publisher, _) = Client::connect(&node, "publisher");
    let mut payload = vec![b'x'; 8_000];
    for number in 0..1_500_u32 {
        payload[..4].copy_from_slice(&number.to_be_bytes());
        publisher.publish("busy", &payload, false);
        assert_eq!(reader.message().payload[..4], number.to_be_bytes());
        if number % 100 == 0 {
            let held = metric(&node, "sedge_buffered_bytes ");
            assert!(held <= limit as u64, "{held} bytes after {number}");
        }
    }
    assert_eq!(metric(&node, "sedge_buffered_bytes_limit"), limit as u64);
    assert!(metric(&node, "sedge_dropped_messages_total{cause=\"buffers_full\"}") > 1_000);
    drop(deaf);
    eventually("what was held is free again", || metric(&node, "sedge_outbox_bytes") == 0);
}
