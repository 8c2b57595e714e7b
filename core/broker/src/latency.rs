//! How long publications take to subscribers, and acknowledgements to publishers: measured on samples, up to the moment when the bytes are written.

use sedge_base::{Duration, Durations, Instant, Now, Rng};
use sedge_mqtt::{Message, PacketId};

use crate::Broker;
use crate::connection::{Connection, Side};

/// From one sample of a shard to the next, at least.
const EVERY: Duration = Duration::from_millis(1);
/// Of so many that came since the last sample the next one is drawn.
const DRAW_FROM_MAX: u32 = 1_024;
/// An acknowledgement that has not come after so long makes room for the next sample.
const ACK_PATIENCE: Duration = Duration::from_mins(1);

/// Chooses what is measured.
#[derive(Debug)]
pub(crate) struct Sampler {
    rng: Rng,
    next: Instant,
    seen: u32,
    skip: u32,
}

impl Sampler {
    pub(crate) const fn new(rng: Rng) -> Self {
        Self { rng, next: Instant::ZERO, seen: 0, skip: 0 }
    }

    /// Whether to measure this one. Drawn by chance among those of a millisecond, so that the first receiver of each message is not
    /// the only one that counts; where few come, all are measured.
    pub(crate) fn takes(&mut self, now: Instant) -> bool {
        self.seen = self.seen.saturating_add(1);
        if now < self.next {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.next = now + EVERY;
        let seen = core::mem::take(&mut self.seen).min(DRAW_FROM_MAX);
        self.skip = u32::try_from(self.rng.below(u64::from(seen))).unwrap_or(0);
        true
    }
}

/// The messages in a connection's outbox that are measured.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// The time of its PUBLISH, the bytes until it is written, and whether a client of this node has published it.
    delivery: Option<(Instant, usize, bool)>,
    ack: Option<AckProbe>,
}

/// A publication whose acknowledgement is measured.
#[derive(Debug)]
struct AckProbe {
    id: PacketId,
    since: Instant,
    /// Bytes until it is written; none before it is in the outbox.
    left: Option<usize>,
}

/// Durations of the sampled deliveries and acknowledgements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// From the PUBLISH of a client of this node that was read to its PUBLISH for a subscriber that was written.
    pub delivery: Durations,
    /// The same for publications of clients of other nodes; by the time of the cluster, in milliseconds.
    pub delivery_from_elsewhere: Durations,
    /// From a PUBLISH with QoS 1 or 2 that was read to its PUBACK or PUBREC that was written.
    pub acknowledgement: Durations,
}

impl Broker {
    /// How long deliveries and acknowledgements took.
    pub const fn latencies(&self) -> &Latencies {
        &self.latencies
    }
}

impl Probes {
    fn is_empty(&self) -> bool {
        self.delivery.is_none() && self.ack.is_none()
    }
}

impl Connection {
    /// A message was put into the outbox: it is measured from now on, if it was published while the client was here and nothing else of it is.
    pub(crate) fn probe_delivery(&mut self, message: &Message, now: Now) {
        let since = published(message, now);
        let is_measured = self.peer.probes.as_ref().is_some_and(|probes| probes.delivery.is_some());
        if is_measured || since < self.peer.live_since || self.peer.side != Side::Outside {
            return;
        }
        let is_here = message.read_at.get().is_some();
        self.peer.probes.get_or_insert_default().delivery = Some((since, self.outbox.len(), is_here));
    }

    /// A publication of the client was read, and is to be acknowledged.
    pub(crate) fn note_inbound(&mut self, sampler: &mut Sampler, id: PacketId, now: Instant) {
        self.inbound = self.inbound.saturating_add(1);
        if !sampler.takes(now) {
            return;
        }
        let last = self.peer.probes.as_ref().and_then(|probes| probes.ack.as_ref());
        if last.is_none_or(|last| now.since(last.since) >= ACK_PATIENCE) && self.peer.side == Side::Outside {
            self.peer.probes.get_or_insert_default().ack = Some(AckProbe { id, since: now, left: None });
        }
    }

    /// A publication of the client was acknowledged: the acknowledgement is the last in the outbox.
    pub(crate) fn note_acked(&mut self, acked: PacketId) {
        let left = self.outbox.len();
        if let Some(probes) = &mut self.peer.probes
            && let Some(ack) = probes.ack.as_mut().filter(|ack| ack.id == acked && ack.left.is_none())
        {
            ack.left = Some(left);
        }
    }

    /// So many bytes of the outbox were written.
    pub(crate) fn note_written(&mut self, bytes: usize, now: Instant, latencies: &mut Latencies) {
        let Some(probes) = &mut self.peer.probes else { return };
        if let Some((since, left, is_here)) = &mut probes.delivery {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                let from = if *is_here { &mut latencies.delivery } else { &mut latencies.delivery_from_elsewhere };
                from.note(now.since(*since));
                probes.delivery = None;
            }
        }
        if let Some(AckProbe { since, left: Some(left), .. }) = &mut probes.ack {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                latencies.acknowledgement.note(now.since(*since));
                probes.ack = None;
            }
        }
        if probes.is_empty() {
            self.peer.probes = None;
        }
    }
}

/// When a message was published: by this node's own clock where that is known, else by the time of the cluster.
fn published(message: &Message, now: Now) -> Instant {
    message.read_at.get().unwrap_or_else(|| {
        let age = Duration::from_millis(now.wall.as_millis().saturating_sub(message.stamp.millis));
        Instant::from_nanos(now.instant.as_nanos().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    #[test]
    fn few_are_all_measured_and_of_many_some_at_any_place() {
        let mut sampler = Sampler::new(Rng::new(5));
        assert!((0..100).all(|second| sampler.takes(at(second * 1_000_000))));
        // A hundred a millisecond, in a burst at its beginning.
        let (mut taken, mut late) = (0, 0);
        for number in 0..100_000_u64 {
            if sampler.takes(at(200_000_000 + number / 100 * 1_000)) {
                taken += 1;
                late += u64::from(number % 100 >= 50);
            }
        }
        assert!((300..=1_000).contains(&taken), "{taken} samples of 1,000 ms");
        assert!(late > taken / 5, "{late} of {taken} in the second half of a burst");
    }
}
