//! Shows that the cluster is one broker.

use std::fmt::Display;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sedge_mqtt::{
    Connect, ConnectProperties, Disconnect, Packet, Publish, QoS, ReasonCode, Subscribe, SubscriptionOptions,
    SubscriptionRequest, TopicFilter, TopicName, Utf8, Version,
};

use crate::client::{ClientError, Connection, Outbox, Server};

const PATIENCE: Duration = Duration::from_secs(10);

/// Publishes a message at one port of this machine that a subscriber at another receives; returns how long it took.
pub(super) fn send_through(from: u16, to: u16) -> Result<Duration, ClientError> {
    let unique = std::process::id();
    let topic = format!("sedge/up/{unique}");
    let mut subscriber = open(to, &format!("sedge_up_sub_{unique}"))?;
    subscribe(&mut subscriber, &topic)?;
    let mut publisher = open(from, &format!("sedge_up_pub_{unique}"))?;
    let mut outbox = Outbox::new(1, &publisher);
    let start = Instant::now();
    outbox.publish(message(&topic)?, &mut publisher)?;
    loop {
        match subscriber.receive(start + PATIENCE)? {
            Some(Packet::Publish(_)) => break,
            Some(_) => {}
            None => return Err(unsuitable(format!("the message did not arrive within {} s", PATIENCE.as_secs()))),
        }
    }
    let took = start.elapsed();
    outbox.settle(&mut publisher)?;
    publisher.close(Disconnect::new(ReasonCode::Success));
    subscriber.close(Disconnect::new(ReasonCode::Success));
    Ok(took)
}

fn unsuitable(text: impl Display) -> ClientError {
    ClientError::Unsuitable(format!("{text}"))
}

fn open(port: u16, client_id: &str) -> Result<Connection, ClientError> {
    let connect = Connect {
        version: Version::V5,
        bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: Utf8::new(client_id).map_err(unsuitable)?,
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    };
    Connection::open(&Server::new("127.0.0.1", port), &connect, false).map(|(connection, _)| connection)
}

fn subscribe(connection: &mut Connection, topic: &str) -> Result<(), ClientError> {
    let filter = TopicFilter::new(topic).map_err(unsuitable)?;
    let packet_id = connection.next_id();
    let requests = vec![SubscriptionRequest { filter, options: SubscriptionOptions::default() }];
    connection.send(&Packet::Subscribe(Subscribe { packet_id, requests, subscription_id: None, user: Vec::new() }))?;
    match connection.receive(Instant::now() + PATIENCE)? {
        Some(Packet::SubAck(ack)) if ack.reasons.iter().all(|reason| !reason.is_error()) => Ok(()),
        Some(packet) => Err(ClientError::Unexpected(packet.kind())),
        None => Err(ClientError::NoAnswer("SUBSCRIBE", PATIENCE.as_secs())),
    }
}

fn message(topic: &str) -> Result<Publish, ClientError> {
    Ok(Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: Some(TopicName::new(topic).map_err(unsuitable)?),
        packet_id: None,
        payload: Bytes::from_static(b"hello"),
        properties: None,
    })
}
