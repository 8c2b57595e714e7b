//! TLS, WebSocket, PROXY protocol, Unix sockets and IPv6, as clients see them.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use sedge_daemon::config::{ClientCert, ListenerConfig, Protocol, ProxyProtocol, UsernameFrom};
use sedge_daemon::{Config, Daemon};
use sedge_mqtt::{Packet, QoS};
use serde_json::Value;

use crate::common::{Client, PATIENCE, config, connect, eventually, get, request};
use crate::pki::{Authority, dial, loopback};

/// A node with these listeners beside its plain one.
fn node(listeners: impl IntoIterator<Item = (&'static str, ListenerConfig)>) -> Daemon {
    start(with(config(&[]), listeners))
}

fn with(config: Config, listeners: impl IntoIterator<Item = (&'static str, ListenerConfig)>) -> Config {
    let listeners: BTreeMap<_, _> = listeners.into_iter().map(|(name, config)| (name.to_owned(), config)).collect();
    Config { listeners, ..config }
}

fn start(config: Config) -> Daemon {
    Daemon::start(&config.check().unwrap()).unwrap()
}

fn address(node: &Daemon, name: &str) -> SocketAddr {
    let listener = node.addresses().listeners.iter().find(|listener| listener.name == name).unwrap();
    listener.address.parse().unwrap()
}

fn session(node: &Daemon, client: &str) -> Value {
    let (_, body) = get(node, &format!("/api/v1/sessions?client={client}"));
    serde_json::from_str::<Value>(&body).unwrap()["sessions"][0].clone()
}

fn metric(node: &Daemon, line: &str) -> u64 {
    let (_, text) = get(node, "/metrics");
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {line} in {text}"))
}

fn failures(node: &Daemon, reason: &str) -> u64 {
    metric(node, &format!("sedge_handshake_failures_total{{reason=\"{reason}\"}}"))
}

/// Reads until the other side ends.
fn until_end(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => all,
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => all,
        Err(error) => panic!("the connection did not end: {error}"),
    }
}

/// MQ-19: TLS clients on every shard, messages of all sizes in both directions, and no plain client disturbed.
#[test]
fn messages_cross_tls_whatever_their_size() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let node = node([("tls", authority.listener())]);
    let trust = authority.client(None);
    let mut subscribers: Vec<Client> = (0..4)
        .map(|number| {
            let stream = dial(address(&node, "tls"), &trust).unwrap();
            let mut client = Client::over(stream, &format!("tls-{number}"));
            client.subscribe("t/#", QoS::AtMostOnce);
            client
        })
        .collect();
    let (mut plain, _) = Client::connect(&node, "plain");
    let sizes = [0, 1, 1000, 16_384, 40_000, 600_000];
    for size in sizes {
        plain.publish("t/x", &vec![b'm'; size], false);
    }
    for client in &mut subscribers {
        for size in sizes {
            assert_eq!(client.message().payload, vec![b'm'; size]);
        }
    }
    plain.subscribe("u", QoS::AtMostOnce);
    for size in sizes {
        subscribers[1].publish("u", &vec![b'n'; size], false);
        assert_eq!(plain.message().payload, vec![b'n'; size]);
    }
    assert_eq!(metric(&node, "sedge_listener_connections{listener=\"tls\",protocol=\"tls\"}"), 4);
    assert_eq!(metric(&node, "sedge_handshakes_total"), 4);
    drop(subscribers);
    eventually("connections are counted down", || {
        metric(&node, "sedge_listener_connections{listener=\"tls\",protocol=\"tls\"}") == 0
    });
    let (_, status) = get(&node, "/api/v1/status");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["addresses"]["listeners"][1]["protocol"], "tls");
}

/// MQ-19: nodes and clients refuse strangers; a certificate names the user.
#[test]
fn mutual_tls_tells_friends_from_strangers() {
    let dir = tempfile::tempdir().unwrap();
    let (friends, strangers) = (Authority::new(dir.path(), "friends"), Authority::new(dir.path(), "strangers"));
    let listener = ListenerConfig {
        ca_file: Some(friends.ca_file()),
        client_cert: ClientCert::Required,
        username_from: UsernameFrom::Cn,
        ..friends.listener()
    };
    let by_host =
        ListenerConfig { username_from: UsernameFrom::San, protocol: Some(Protocol::Tls), ..listener.clone() };
    let node = node([("tls", listener), ("by-host", by_host)]);
    let (sensor, stranger) = (friends.sign("sensor-7"), strangers.sign("mallory"));

    for name in ["tls", "by-host"] {
        let stream = dial(address(&node, name), &friends.client(Some(&sensor))).unwrap();
        let client = Client::over(stream, name);
        assert_eq!(session(&node, name)["user"], "sensor-7");
        drop(client);
    }
    // In TLS 1.3 the client learns only with its first read that it was refused.
    for (refused, identity) in [(1, None), (2, Some(&stranger))] {
        let stream = dial(address(&node, "tls"), &friends.client(identity));
        if let Ok(mut stream) = stream {
            let mut answer = Vec::new();
            let error = stream.read_to_end(&mut answer).unwrap_err();
            assert!(error.to_string().contains("alert"), "{error}");
        }
        eventually("the refusal is counted", || failures(&node, "client_certificate") == refused);
    }
    let error = dial(address(&node, "tls"), &strangers.client(Some(&sensor))).unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    eventually("the client's refusal is counted", || failures(&node, "tls_alert") == 1);
}

/// MQ-19: certificates are exchanged without a restart; a broken one changes nothing and is explained.
#[test]
fn a_reload_exchanges_certificates_while_clients_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(dir.path(), "old"), Authority::new(dir.path(), "new"));
    let listener = old.listener();
    let (cert, key) = (listener.cert_file.clone().unwrap(), listener.key_file.clone().unwrap());
    let node = node([("tls", listener)]);
    let at = address(&node, "tls");
    let mut stayer = Client::over(dial(at, &old.client(None)).unwrap(), "stayer");
    stayer.subscribe("t", QoS::AtMostOnce);

    std::fs::write(&cert, "nonsense").unwrap();
    let (status, body) = request(&node, "POST", "/api/v1/reload");
    assert_eq!(status, 422);
    assert!(body.contains("listener.tls.cert_file: cannot read certificates from"), "{body}");
    dial(at, &old.client(None)).unwrap();

    let fresh = new.sign("localhost");
    assert_eq!((&fresh.cert, &fresh.key), (&cert, &key), "the same files have a new content");
    assert_eq!(request(&node, "POST", "/api/v1/reload").0, 200);
    dial(at, &old.client(None)).unwrap_err();
    let mut comer = Client::over(dial(at, &new.client(None)).unwrap(), "comer");
    comer.publish("t", b"still here", false);
    assert_eq!(stayer.message().payload, &b"still here"[..]);
}

/// A masked frame.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0x80 | opcode, 0xfe, length[0], length[1], 0, 0, 0, 0], payload].concat()
}

fn upgrade(stream: &mut impl Write, origin: &str) {
    let request = format!(
        "GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: {origin}\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
}

fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn encoded(packet: &Packet) -> Vec<u8> {
    let mut bytes = bytes::BytesMut::new();
    sedge_mqtt::encode(packet, sedge_mqtt::Version::V5, &mut bytes);
    bytes.to_vec()
}

/// MQ-19: secure WebSocket; the conformance suite has more about frames.
#[test]
fn websockets_work_over_tls_and_close_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let wss = ListenerConfig { allowed_origins: vec!["https://app.site".to_owned()], ..authority.listener() };
    let node = node([("wss", wss), ("ws", loopback())]);
    let mut stream = dial(address(&node, "wss"), &authority.client(None)).unwrap();
    upgrade(&mut stream, "https://app.site");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
    stream.write_all(&frame(2, &encoded(&connect("wss")))).unwrap();
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).unwrap();
    assert_eq!((connack[0], connack[2]), (0x82, 0x20), "a binary frame with a CONNACK");
    stream.write_all(&frame(8, &1000_u16.to_be_bytes())).unwrap();
    let rest = until_end(&mut stream);
    assert!(rest.ends_with(&[0x88, 2, 3, 232]), "{rest:?}");

    let mut foreign = dial(address(&node, "wss"), &authority.client(None)).unwrap();
    upgrade(&mut foreign, "https://evil.site");
    assert!(read_head(&mut foreign).starts_with("HTTP/1.1 403 "));
    assert_eq!(failures(&node, "websocket_request"), 1);

    let mut text = TcpStream::connect(address(&node, "ws")).unwrap();
    text.set_read_timeout(Some(PATIENCE)).unwrap();
    upgrade(&mut text, "any");
    read_head(&mut text);
    text.write_all(&[frame(2, &encoded(&connect("text"))), frame(1, b"text")].concat()).unwrap();
    let rest = until_end(&mut text);
    assert!(rest.ends_with(&[0x88, 2, 3, 235]), "{rest:?} does not end with status 1003");
    eventually("the frame is counted", || failures(&node, "websocket_frame") == 1);
    eventually("the session is without a connection", || session(&node, "text")["connected"] == false);
}

/// FT-35: the node believes a trusted load balancer about the addresses of its clients.
#[test]
fn a_balancer_names_its_clients() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let proxied = |mode, trusted: &str| ListenerConfig {
        protocol: Some(Protocol::Tcp),
        proxy_protocol: mode,
        proxy_trusted: vec![trusted.parse().unwrap()],
        ..loopback()
    };
    let tls = ListenerConfig {
        proxy_protocol: ProxyProtocol::Required,
        proxy_trusted: vec!["127.0.0.0/8".parse().unwrap()],
        ..authority.listener()
    };
    let node = node([
        ("required", proxied(ProxyProtocol::Required, "127.0.0.0/8")),
        ("optional", proxied(ProxyProtocol::Optional, "127.0.0.1/32")),
        ("strangers", proxied(ProxyProtocol::Required, "10.0.0.0/8")),
        ("tls", tls),
    ]);
    let v1 = "PROXY TCP6 2001:db8::7 2001:db8::1 40000 1883\r\n".as_bytes();
    let v2 =
        [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".as_slice(), &[192, 0, 2, 7, 192, 0, 2, 1, 0x9c, 0x40, 7, 0x5b]].concat();
    for (listener, header, peer) in [
        ("required", v1, "[2001:db8::7]:40000"),
        ("required", &v2, "192.0.2.7:40000"),
        ("optional", v1, "[2001:db8::7]:40000"),
        ("optional", b"", "127.0.0.1:"),
    ] {
        let mut stream = TcpStream::connect(address(&node, listener)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(header).unwrap();
        let client = Client::over(stream, "proxied");
        let seen = session(&node, "proxied")["peer"].as_str().unwrap().to_owned();
        assert!(seen.starts_with(peer), "{seen} instead of {peer}");
        drop(client);
    }
    for (listener, bytes) in [("required", encoded(&connect("bare"))), ("strangers", v2.clone())] {
        let mut stream = TcpStream::connect(address(&node, listener)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&bytes);
        assert!(until_end(&mut stream).is_empty());
    }
    assert_eq!(failures(&node, "proxy_header"), 2);

    // The header comes before TLS.
    let mut socket = TcpStream::connect(address(&node, "tls")).unwrap();
    socket.write_all(&v2).unwrap();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let tls = rustls::ClientConnection::new(authority.client(None), name).unwrap();
    let client = Client::over(rustls::StreamOwned::new(tls, socket), "through-tls");
    assert_eq!(session(&node, "through-tls")["peer"], "192.0.2.7:40000");
    drop(client);
}

#[test]
fn unix_sockets_and_ipv6_carry_mqtt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mqtt.sock");
    // As a node leaves it that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let local =
        ListenerConfig { protocol: Some(Protocol::Tcp), socket: Some(path.clone()), ..ListenerConfig::default() };
    let six = ListenerConfig { protocol: Some(Protocol::Tcp), bind: "::".parse().unwrap(), ..loopback() };
    let config = with(config(&[]), [("local", local), ("six", six)]);
    let node = start(config.clone());
    let port = address(&node, "six").port();
    let (mut one, mut two) = (
        Client::over(UnixStream::connect(&path).unwrap(), "local"),
        Client::over(TcpStream::connect(("::1", port)).unwrap(), "six"),
    );
    let four = Client::over(TcpStream::connect(("127.0.0.1", port)).unwrap(), "four");
    two.subscribe("t", QoS::AtMostOnce);
    one.publish("t", &vec![b'x'; 300_000], false);
    assert_eq!(two.message().payload.len(), 300_000);
    assert_eq!(session(&node, "local")["peer"], "unix");
    assert!(session(&node, "six")["peer"].as_str().unwrap().starts_with("[::1]:"));
    assert!(session(&node, "four")["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "not [::ffff:127.0.0.1]");
    drop(four);
    let error = Daemon::start(&with(crate::common::config(&[]), [("local", config.listeners["local"].clone())]));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("listener.local: cannot listen on unix:"), "{error}");
    node.stop();
    assert!(!path.exists(), "the node removes its socket");
}

/// MQ-12: bad bytes close only their own connection, on every port.
#[test]
fn garbage_closes_only_its_own_connection() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let node = node([("tls", authority.listener()), ("ws", loopback())]);
    let mut witness = Client::over(dial(address(&node, "tls"), &authority.client(None)).unwrap(), "witness");
    witness.subscribe("t", QoS::AtMostOnce);
    let mqtt = encoded(&connect("x"));
    let random: Vec<u8> = (0..3000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    for name in ["tls", "ws"] {
        for garbage in
            [mqtt.as_slice(), &random, &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], b"\0\0\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n"]
        {
            let mut stream = TcpStream::connect(address(&node, name)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = stream.write_all(garbage);
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            until_end(&mut stream);
        }
    }
    // In the midst of a good connection, too.
    let mut stream = dial(address(&node, "tls"), &authority.client(None)).unwrap();
    stream.sock.write_all(&[0x17, 3, 3, 0, 40]).unwrap();
    stream.sock.write_all(&random[..40]).unwrap();
    until_end(&mut stream.sock);
    assert!(failures(&node, "tls") >= 4);
    assert!(failures(&node, "websocket_request") >= 3);
    Client::connect(&node, "other").0.publish("t", b"alive", false);
    assert_eq!(witness.message().payload, &b"alive"[..]);
}

/// Half-open handshakes keep nobody else waiting, are limited, and end in time.
#[test]
fn half_open_handshakes_stop_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ca");
    let mut config = with(config(&[]), [("tls", authority.listener()), ("ws", loopback())]);
    config.limits.max_handshakes = 400;
    config.limits.broker.connect_timeout = std::time::Duration::from_secs(4);
    let node = start(config);
    let half_open: Vec<TcpStream> = (0..500)
        .map(|number| {
            let name = if number % 2 == 0 { "tls" } else { "ws" };
            let mut stream = TcpStream::connect(address(&node, name)).unwrap();
            // The first bytes of a hello, or of a request. Those over the limit are closed already.
            let _ = stream.write_all(if number % 2 == 0 { &[0x16, 3, 1, 1, 0, 1] } else { b"GET /mqtt HT" });
            stream
        })
        .collect();
    let (mut plain, _) = Client::connect(&node, "plain");
    plain.publish("t", b"x", false);
    eventually("those over the limit are refused", || failures(&node, "too_many") >= 100);
    assert_eq!(metric(&node, "sedge_handshakes"), 400);
    eventually("one that takes its time gives way", || dial(address(&node, "tls"), &authority.client(None)).is_ok());
    eventually("handshakes end in time", || metric(&node, "sedge_handshakes") == 0);
    assert!(failures(&node, "timeout") > 300);
    plain.publish("t", b"x", false);
    drop(half_open);
}

/// A listener may have a limit of its own.
#[test]
fn a_listener_has_its_own_limit() {
    let limited = ListenerConfig { protocol: Some(Protocol::Tcp), max_connections: 2, ..loopback() };
    let node = node([("few", limited)]);
    let at = address(&node, "few");
    let clients: Vec<Client> =
        (0..2).map(|number| Client::over(TcpStream::connect(at).unwrap(), &format!("c{number}"))).collect();
    let mut third = TcpStream::connect(at).unwrap();
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(until_end(&mut third).is_empty());
    assert_eq!(metric(&node, "sedge_listener_over_limit_total{listener=\"few\",protocol=\"tcp\"}"), 1);
    Client::connect(&node, "elsewhere");
    drop(clients);
    eventually("there is room again", || {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&encoded(&connect("again"))).unwrap();
        matches!(stream.read(&mut [0; 4]), Ok(1..))
    });
}
