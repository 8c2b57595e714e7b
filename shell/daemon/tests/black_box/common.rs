//! Nodes in this process, and clients that talk plain MQTT and HTTP to them.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sedge_daemon::{Config, Daemon};
use sedge_mqtt::{
    Connect, ConnectProperties, Decoder, Packet, Publish, QoS, Subscribe, SubscriptionOptions, SubscriptionRequest,
    TopicFilter, TopicName, Utf8, Version, encode,
};

/// Transport of a client's bytes.
pub(crate) trait Carrier: Read + Write {}
impl<T: Read + Write> Carrier for T {}

/// Nothing that a node does on this machine takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A configuration on loopback with ports of the system's choice.
pub(crate) fn config(seeds: &[SocketAddr]) -> Config {
    let mut config = Config::default();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0)).ip();
    (config.mqtt.bind, config.mqtt.port) = (loopback, 0);
    (config.cluster.bind, config.cluster.port) = (loopback, 0);
    (config.http.bind, config.http.port) = (loopback, 0);
    config.cluster.seeds = seeds.iter().map(ToString::to_string).collect();
    // Load balancers bring clients of other machines.
    config.auth.anonymous = Some(sedge_daemon::config::Anonymous::Always);
    config.node.shards = 2;
    config
}

/// `count` nodes of one cluster, all ready and linked.
pub(crate) fn cluster(count: usize) -> Vec<Daemon> {
    let mut nodes: Vec<Daemon> = Vec::new();
    for _ in 0..count {
        let seeds: Vec<SocketAddr> = nodes.first().map(|node| node.addresses().cluster).into_iter().collect();
        nodes.push(Daemon::start(&config(&seeds)).unwrap());
    }
    for node in &nodes {
        eventually("a node sees all others", || {
            let (_, status) = get(node, "/api/v1/status");
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            status["members"] == count && status["links"] == count - 1 && status["ready"] == true
        });
    }
    nodes
}

/// Waits until `holds`.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A client.
pub(crate) struct Client {
    stream: Box<dyn Carrier>,
    decoder: Decoder,
    version: Version,
    /// Publications that came before the SUBACK.
    early: VecDeque<Publish>,
}

impl Client {
    /// A connection without a CONNECT.
    pub(crate) fn raw(node: &Daemon) -> Self {
        let stream = TcpStream::connect(node.addresses().mqtt[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::on(stream)
    }

    /// The same for a version of its own.
    pub(crate) fn raw_as(node: &Daemon, version: Version) -> Self {
        let mut client = Self::raw(node);
        client.version = version;
        client.decoder.set_version(version);
        client
    }

    fn on(stream: impl Carrier + 'static) -> Self {
        let (decoder, version) = (Decoder::client(16 * 1024 * 1024), Version::V5);
        Self { stream: Box::new(stream), decoder, version, early: VecDeque::new() }
    }

    /// A client on a connection that exists.
    pub(crate) fn over(stream: impl Carrier + 'static, id: &str) -> Self {
        let mut client = Self::on(stream);
        client.send(&connect(id));
        let Some(Packet::ConnAck(ack)) = client.receive() else { panic!("no CONNACK") };
        assert!(!ack.reason.is_error(), "{:?}", ack.reason);
        client
    }

    /// A client with a session that outlives its connection; returns whether there was one already.
    pub(crate) fn connect(node: &Daemon, id: &str) -> (Self, bool) {
        let mut client = Self::raw(node);
        client.send(&connect(id));
        let Some(Packet::ConnAck(ack)) = client.receive() else { panic!("no CONNACK") };
        assert!(!ack.reason.is_error(), "{:?}", ack.reason);
        (client, ack.session_present)
    }

    pub(crate) fn send(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        encode(packet, self.version, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next packet; `None` when the connection has ended.
    pub(crate) fn receive(&mut self) -> Option<Packet> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if let Some(packet) = self.decoder.next().unwrap() {
                return Some(packet);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.decoder.feed(Bytes::copy_from_slice(&buffer[..read])),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    pub(crate) fn subscribe(&mut self, filter: &str, qos: QoS) {
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        let requests = vec![SubscriptionRequest { filter: TopicFilter::try_from(filter).unwrap(), options }];
        let packet_id = 1.try_into().unwrap();
        self.send(&Packet::Subscribe(Subscribe { packet_id, requests, subscription_id: None, user: Vec::new() }));
        loop {
            match self.receive() {
                Some(Packet::Publish(publish)) => self.early.push_back(publish),
                Some(Packet::SubAck(ack)) => return assert!(!ack.reasons[0].is_error(), "{:?}", ack.reasons),
                other => panic!("{other:?} instead of SUBACK"),
            }
        }
    }

    /// Publishes at QoS 1 and waits for the answer.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) {
        self.send(&publish(topic, payload, Some(7), retain));
        let Some(Packet::PubAck(ack)) = self.receive() else { panic!("no PUBACK") };
        assert!(!ack.reason.is_error(), "{:?}", ack.reason);
    }

    /// The next message, not acknowledged.
    pub(crate) fn message(&mut self) -> Publish {
        if let Some(publish) = self.early.pop_front() {
            return publish;
        }
        match self.receive() {
            Some(Packet::Publish(publish)) => publish,
            other => panic!("{other:?} instead of a message"),
        }
    }
}

pub(crate) fn connect(id: &str) -> Packet {
    let properties = ConnectProperties { session_expiry: Some(300), ..ConnectProperties::default() };
    Packet::Connect(Box::new(Connect {
        version: Version::V5,
        bridge: false,
        clean_start: false,
        keep_alive: 60,
        client_id: Utf8::try_from(id).unwrap(),
        will: None,
        username: None,
        password: None,
        properties,
    }))
}

pub(crate) fn publish(topic: &str, payload: &[u8], id: Option<u16>, retain: bool) -> Packet {
    Packet::Publish(Publish {
        dup: false,
        qos: if id.is_some() { QoS::AtLeastOnce } else { QoS::AtMostOnce },
        retain,
        topic: Some(TopicName::try_from(topic).unwrap()),
        packet_id: id.map(|id| id.try_into().unwrap()),
        payload: Bytes::copy_from_slice(payload),
        properties: None,
    })
}

/// Status and body of a request.
pub(crate) fn request(node: &Daemon, method: &str, path: &str) -> (u16, String) {
    request_with(node, method, path, "")
}

/// Status and body of a request with more headers, each with its line end.
pub(crate) fn request_with(node: &Daemon, method: &str, path: &str, headers: &str) -> (u16, String) {
    request_at(node, "localhost", method, path, &format!("X-Sedge: 1\r\n{headers}"))
}

/// Status and body of a request to a host of this name, with these headers and no others of meaning.
pub(crate) fn request_at(node: &Daemon, host: &str, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(node.addresses().http.unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

pub(crate) fn get(node: &Daemon, path: &str) -> (u16, String) {
    request(node, "GET", path)
}
