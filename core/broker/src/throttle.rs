//! How fast one client may publish. A client that is faster is not read for a while: nothing is lost, and TCP makes it wait.

use sedge_base::{Duration, Instant, Rate, TokenBucket};

use crate::Broker;
use crate::broker::Timer;
use crate::connection::{ConnKey, Phase};

/// Longest time that a client is not read: clients whose PINGREQ is not answered in time give their connection up. Debt beyond this
/// time is forgiven.
pub const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How fast one client may publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishRate {
    /// PUBLISH packets, repetitions included.
    pub messages: Rate,
    /// Bytes of their topics and payloads.
    pub bytes: Rate,
}

impl PublishRate {
    /// Whether there is any limit.
    pub const fn is_limited(self) -> bool {
        self.messages.is_limited() || self.bytes.is_limited()
    }
}

/// A client's use of its publish rate.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: PublishRate,
    messages: TokenBucket,
    bytes: TokenBucket,
    /// The client's packets are not taken for a while.
    pub(crate) is_pausing: bool,
}

impl Throttle {
    /// `None` if there is no limit.
    pub(crate) fn new(rate: PublishRate) -> Option<Box<Self>> {
        let (messages, bytes) = Default::default();
        rate.is_limited().then(|| Box::new(Self { rate, messages, bytes, is_pausing: false }))
    }

    /// A PUBLISH has come; returns how long the next one has to wait.
    fn publish(&mut self, bytes: usize, now: Instant) -> Duration {
        let messages = self.messages.take(1, self.rate.messages, now, PAUSE_MAX);
        messages.max(self.bytes.take(bytes as u64, self.rate.bytes, now, PAUSE_MAX))
    }
}

impl Broker {
    /// Charges a PUBLISH of so many bytes to its client, and stops reading from it if it is too fast.
    pub(crate) fn charge(&mut self, key: ConnKey, bytes: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(throttle) = &mut connection.throttle else { return };
        let wait = throttle.publish(bytes, self.now.instant);
        if wait.is_zero() {
            return;
        }
        throttle.is_pausing = true;
        connection.hold(&mut self.outputs);
        self.counters.publish_pauses += 1;
        self.counters.publish_pause_micros += u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.timers.set(Timer::Pause(key), self.now.instant + wait);
    }

    /// A client has waited long enough.
    pub(crate) fn on_pause_over(&mut self, key: ConnKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(throttle) = &mut connection.throttle else { return };
        throttle.is_pausing = false;
        if connection.phase != Phase::Live {
            return;
        }
        // The broker has not looked at what the client has sent meanwhile.
        connection.last_seen = self.now.instant;
        if let Some(session) = connection.session {
            self.release_if_calm(key, session);
        }
    }
}
