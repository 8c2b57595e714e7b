//! Rates: their keys in `[limits]` and `[listener.NAME]`, and what does not go together.

use sedge_base::Rate;
use sedge_broker::{PAUSE_MAX, PublishRate};

use super::LimitsConfig;

/// Most of anything a second.
pub(super) const RATE_MAX: u64 = 1_000_000_000_000;

/// Rates that a listener has of its own; what is not said is as in `[limits]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerRates {
    /// New connections.
    pub connect: OwnRate,
    /// PUBLISH packets of each client.
    pub publish: OwnRate,
    /// Bytes of these.
    pub publish_bytes: OwnRate,
}

/// A rate of a listener, as far as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnRate {
    /// So many a second; 0: any number.
    pub per_second: Option<u64>,
    /// So many at once.
    pub burst: Option<u64>,
}

impl OwnRate {
    /// With a rate of its own, a listener has the burst that belongs to it.
    fn over(self, common: Rate) -> Rate {
        let burst = if self.per_second.is_some() { 0 } else { common.burst };
        Rate { per_second: self.per_second.unwrap_or(common.per_second), burst: self.burst.unwrap_or(burst) }
    }
}

impl ListenerRates {
    /// How fast connections may come.
    pub(crate) fn connect(&self, limits: &LimitsConfig) -> Rate {
        self.connect.over(limits.connect_rate)
    }

    /// How fast each client may publish.
    pub(crate) fn publish(&self, limits: &LimitsConfig) -> PublishRate {
        PublishRate {
            messages: self.publish.over(limits.publish_rate.messages),
            bytes: self.publish_bytes.over(limits.publish_rate.bytes),
        }
    }

    /// Settings that do not go together: name of a key, and the fault.
    pub(super) fn problems(&self, limits: &LimitsConfig) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let publish = self.publish(limits);
        let all = [
            ("max_connect_rate", "max_connect_burst", self.connect, self.connect(limits)),
            ("max_publish_rate", "max_publish_burst", self.publish, publish.messages),
            ("max_publish_byte_rate", "max_publish_byte_burst", self.publish_bytes, publish.bytes),
        ];
        for (rate, burst, own, effective) in all {
            if own.burst.is_some_and(|burst| burst > 0) && !effective.is_limited() {
                found.push((burst, format!("is without effect while {rate} is 0")));
            }
        }
        if self.publish_bytes.per_second.is_some() {
            found.extend(slow_bytes(publish.bytes, limits).map(|what| ("max_publish_byte_rate", what)));
        }
        found
    }
}

/// Settings in `[limits]` that do not go together.
pub(super) fn problems(limits: &LimitsConfig) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let all = [
        ("limits.max_connect_burst", "limits.max_connect_rate", limits.connect_rate),
        (
            "limits.max_connect_burst_per_address",
            "limits.max_connect_rate_per_address",
            limits.connect_rate_per_address,
        ),
        ("limits.max_publish_burst", "limits.max_publish_rate", limits.publish_rate.messages),
        ("limits.max_publish_byte_burst", "limits.max_publish_byte_rate", limits.publish_rate.bytes),
    ];
    for (key, rate, value) in all {
        if value.burst > 0 && !value.is_limited() {
            found.push((key, format!("is without effect while {rate} is 0")));
        }
    }
    found.extend(slow_bytes(limits.publish_rate.bytes, limits).map(|what| ("limits.max_publish_byte_rate", what)));
    found
}

/// A client that is not read for long gives its connection up.
fn slow_bytes(rate: Rate, limits: &LimitsConfig) -> Option<String> {
    let (largest, pause) = (u64::from(limits.broker.max_packet_bytes), PAUSE_MAX.as_secs());
    let is_slow = rate.is_limited() && rate.per_second.saturating_mul(pause) < largest;
    is_slow.then(|| {
        let least = largest.div_ceil(pause);
        format!(
            "at {} bytes a second the largest packet (limits.maximum_packet_size, {largest} bytes) would take more than {pause} \
             seconds; say at least {least} here, or lower limits.maximum_packet_size",
            rate.per_second
        )
    })
}
