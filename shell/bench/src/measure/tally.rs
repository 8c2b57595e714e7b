//! Counts of one driver, and their sum over all drivers.

use serde::{Deserialize, Serialize};

use super::Distribution;

/// Counts of a run. All counts but those named otherwise concern the window and leave probes out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Messages whose send time lies in the window.
    pub(crate) sent: u64,
    /// Deliveries whose receive time lies in the window, again-deliveries included.
    pub(crate) received: u64,
    /// Of the messages sent in the window, deliveries that never came.
    pub(crate) lost: u64,
    /// Of the messages sent in the window, deliveries that came once more.
    pub(crate) duplicates: u64,
    /// Of the messages sent in the window, deliveries that came after a later one of the same publisher and topic.
    pub(crate) reordered: u64,
    /// All messages, at any time, probes included.
    pub(crate) all_sent: u64,
    /// All deliveries, at any time, probes included.
    pub(crate) all_received: u64,
    /// Messages at QoS 1 and 2 whose handshake was not complete at the end.
    pub(crate) unacknowledged: u64,
    /// Messages that the broker refused with a reason code.
    pub(crate) refused: u64,
    /// Messages that are not of this run.
    pub(crate) foreign: u64,
    /// Connections lost after they were established.
    pub(crate) disconnects: u64,
    /// Messages sent again after a lost connection.
    pub(crate) resent: u64,
    /// Times that a closed loop had to be opened because a message did not come back for two seconds.
    pub(crate) stalls: u64,
    /// Time from send to receive, of the first deliveries of messages sent in the window.
    pub(crate) latency: Distribution,
    /// Deviation of the time between consecutive deliveries of a stream from its period, without the sign.
    pub(crate) jitter: Distribution,
    /// Smallest deviation with its sign.
    pub(crate) jitter_low: i64,
    /// Largest deviation with its sign.
    pub(crate) jitter_high: i64,
    /// How late the load generator itself was with the messages that were due (open loop).
    pub(crate) lag: Distribution,
    /// Longest time within the window in which some receiver got nothing.
    pub(crate) longest_gap: u64,
    /// Time of the last delivery of a message sent in the window.
    pub(crate) last_delivery: u64,
    /// Messages sent per bin.
    pub(crate) ingress: Vec<u64>,
    /// Deliveries per bin.
    pub(crate) egress: Vec<u64>,
    /// Longest latency of the deliveries of each bin.
    pub(crate) worst_latency: Vec<u64>,
    /// Largest jitter of the deliveries of each bin.
    pub(crate) worst_jitter: Vec<u64>,
    /// Longest time since the one before, of deliveries of each bin that waited already when that came: within a replay.
    pub(crate) worst_pause: Vec<u64>,
    /// CPU time of the driver within the window in ns.
    pub(crate) driver_cpu: u64,
    /// Largest share of one core that a single driver thread took within the window.
    pub(crate) driver_busy: f64,
}

impl Tally {
    /// Adds the counts of another driver.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.all_sent += other.all_sent;
        self.all_received += other.all_received;
        self.unacknowledged += other.unacknowledged;
        self.refused += other.refused;
        self.foreign += other.foreign;
        self.disconnects += other.disconnects;
        self.resent += other.resent;
        self.stalls += other.stalls;
        self.latency.merge(&other.latency);
        if self.jitter.count() == 0 {
            (self.jitter_low, self.jitter_high) = (other.jitter_low, other.jitter_high);
        } else if other.jitter.count() > 0 {
            self.jitter_low = self.jitter_low.min(other.jitter_low);
            self.jitter_high = self.jitter_high.max(other.jitter_high);
        }
        self.jitter.merge(&other.jitter);
        self.lag.merge(&other.lag);
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.last_delivery = self.last_delivery.max(other.last_delivery);
        combine(&mut self.ingress, &other.ingress, |sum, more| sum + more);
        combine(&mut self.egress, &other.egress, |sum, more| sum + more);
        combine(&mut self.worst_latency, &other.worst_latency, u64::max);
        combine(&mut self.worst_jitter, &other.worst_jitter, u64::max);
        combine(&mut self.worst_pause, &other.worst_pause, u64::max);
        self.driver_cpu += other.driver_cpu;
        self.driver_busy = self.driver_busy.max(other.driver_busy);
    }
}

fn combine(all: &mut Vec<u64>, more: &[u64], how: impl Fn(u64, u64) -> u64) {
    if all.len() < more.len() {
        all.resize(more.len(), 0);
    }
    for (place, value) in all.iter_mut().zip(more) {
        *place = how(*place, *value);
    }
}
