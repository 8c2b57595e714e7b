//! A bridge to a remote MQTT broker (MQ-18).

pub(crate) mod dial;
mod relay;

use std::time::Duration;

use bytes::Bytes;
use mio::{Poll, Token};
use sedge_mqtt::{ConnAck, Packet, Publish, QoS, TopicName};

use self::dial::dial;
use self::relay::{Relay, Takes};
use crate::error::BridgeError;
use crate::host::Host;
use crate::map::{Map, Transform};
use crate::session::{Opened, Session, subscribe};
use crate::status::BridgeState;
use crate::supervisor::Shared;
use crate::talk;
use crate::wire::Wire;

const REMOTE: Token = Token(1);

/// A bridge while it lives at this node.
pub(crate) struct Bridge<'a, H> {
    shared: &'a Shared,
    session: Session<'a, H>,
    map: Map,
    /// Which address is tried next.
    next: usize,
}

impl<'a, H: Host> Bridge<'a, H> {
    pub(crate) fn new(shared: &'a Shared, host: &'a H, transform: Option<Box<dyn Transform>>) -> Self {
        let map = Map::new(&shared.config, &shared.cluster, &shared.record.name, transform);
        Self { shared, session: Session::new(shared, host), map, next: 0 }
    }

    /// One connection to the other end, from first to last. `Ok`: the bridge is not wanted here any more.
    pub(crate) fn run(&mut self) -> Result<(), BridgeError> {
        let shared = self.shared;
        let goes_on = || shared.goes_on();
        let window = self.session.prepare()?;
        let mut poll = Poll::new().map_err(BridgeError::Inside)?;
        let (address, mut remote) = self.open_remote(&mut poll, window)?;
        let takes = self.takes(&remote.ack);
        let most = talk::window(shared.config.version, &remote.ack);
        let mut local = self.session.open(&mut poll, most.min(shared.config.max_inflight))?;
        self.announce(&mut remote.wire, &mut local.wire, "1");
        let early = (local.early, remote.early);
        remote.wire.look();
        local.wire.look();
        let unreleased = self.session.unreleased();
        let mut relay = Relay::new((local.wire, remote.wire), &mut self.map, &shared.record, takes);
        if !remote.ack.session_present {
            relay.release(unreleased.into_iter());
        }
        tracing::info!(bridge = shared.record.name, address, "the bridge runs");
        shared.record.counters.connects.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        shared.record.set_state(BridgeState::Running(address));
        early.0.into_iter().try_for_each(|packet| relay.local_packet(packet))?;
        early.1.into_iter().try_for_each(|packet| relay.remote_packet(packet))?;
        let end = relay.run(&mut poll, goes_on);
        if end.is_ok() {
            announce(&shared.config, &mut relay.remote, "0");
        }
        announce(&shared.config, &mut relay.local, "0");
        relay.close();
        if !shared.goes_on() {
            tracing::info!(bridge = shared.record.name, "the bridge ends at this node");
            // Another node may change the session meanwhile.
            self.session.leave();
        }
        end
    }

    fn takes(&self, ack: &ConnAck) -> Takes {
        let (config, properties) = (&self.shared.config, &ack.properties);
        let keep_alive = properties.server_keep_alive.unwrap_or(config.keep_alive);
        Takes {
            qos: config.qos.min(properties.maximum_qos.unwrap_or(QoS::ExactlyOnce)),
            retain: properties.retain_available != Some(false),
            packet_bytes: properties
                .maximum_packet_size
                .and_then(|most| usize::try_from(most).ok())
                .unwrap_or(usize::MAX),
            keep_alive: Duration::from_secs(u64::from(keep_alive)),
        }
    }

    fn announce(&self, remote: &mut Wire, local: &mut Wire, payload: &'static str) {
        announce(&self.shared.config, remote, payload);
        announce(&self.shared.config, local, payload);
    }

    /// Connects to the first address that answers, beginning with the one that did last.
    fn open_remote(&mut self, poll: &mut Poll, window: u16) -> Result<(String, Opened), BridgeError> {
        let config = &self.shared.config;
        let window = window.min(config.max_inflight);
        let mut last = BridgeError::File("there is no address".to_owned());
        for turn in 0..config.address.len() {
            let place = (self.next + turn) % config.address.len();
            let Some(address) = config.address.get(place) else { continue };
            let connect = dial::connect(config, &self.shared.cluster, &self.shared.record.name, window)?;
            match dial(poll, REMOTE, (config, address), connect, || self.shared.goes_on()) {
                Ok((mut wire, ack)) => {
                    self.next = place;
                    let early = self.subscribe_remote(&mut wire, poll)?;
                    return Ok((address.clone(), Opened { wire, ack, early }));
                }
                Err(error) => last = error,
            }
            if !self.shared.goes_on() {
                break;
            }
        }
        // A broker that takes connections and nothing else is not the one to begin with.
        self.next = (self.next + 1) % config.address.len().max(1);
        Err(last)
    }

    fn subscribe_remote(&self, wire: &mut Wire, poll: &mut Poll) -> Result<Vec<Packet>, BridgeError> {
        if !self.shared.config.direction.comes_in() {
            return Ok(Vec::new());
        }
        subscribe(wire, poll, &Map::remote_filters(&self.shared.config), self.shared.config.qos, || {
            self.shared.goes_on()
        })
    }
}

/// Says at the notifications topic whether the bridge is connected.
fn announce(config: &crate::BridgeConfig, wire: &mut Wire, payload: &'static str) {
    let Ok(topic) = TopicName::new(&config.notifications) else { return };
    wire.send(&Packet::Publish(Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: true,
        topic: Some(topic),
        packet_id: None,
        payload: Bytes::from_static(payload.as_bytes()),
        properties: None,
    }));
}
