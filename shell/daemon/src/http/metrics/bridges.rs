//! Bridges to other services.

use sedge_bridge::{BridgeState, BridgeStatus, Counts};

use super::exposition::{Exposition, Kind};
use crate::http::bridges::status;
use crate::runtime::Shared;

type Row<T> = (&'static str, &'static str, fn(&T) -> u64);

pub(super) fn write(out: &mut Exposition, shared: &Shared) {
    let all = status(shared);
    if all.is_empty() {
        return;
    }
    let gauges: [Row<BridgeStatus>; 4] = [
        ("bridge_running", "Whether this node runs the bridge and is connected to the other end.", |bridge| {
            u64::from(matches!(bridge.state, BridgeState::Running(_)))
        }),
        ("bridge_lag_messages", "Messages at this node that the other end does not have yet.", |bridge| {
            bridge.lag.messages
        }),
        ("bridge_lag_bytes", "Bytes of those that wait.", |bridge| bridge.lag.bytes),
        ("bridge_lag_seconds", "How long the oldest of them has waited.", |bridge| bridge.lag.waits.as_secs()),
    ];
    for (name, help, read) in gauges {
        let mut family = out.family(name, Kind::Gauge, help);
        for bridge in &all {
            family.labelled(&[("bridge", &bridge.name)], read(bridge));
        }
    }
    let counters: [Row<Counts>; 11] = [
        ("bridge_messages_out_total", "Messages that the other end has acknowledged.", |c| c.messages_out),
        ("bridge_bytes_out_total", "Bytes of payloads sent to the other end, repetitions included.", |c| c.bytes_out),
        ("bridge_messages_in_total", "Messages from the other end.", |c| c.messages_in),
        ("bridge_bytes_in_total", "Bytes of their payloads.", |c| c.bytes_in),
        ("bridge_dropped_total", "Messages with too many hops, without a name there, or too large.", |c| c.dropped),
        ("bridge_refused_total", "Messages that the receiving end refused for good.", |c| c.refused),
        ("bridge_kept_total", "Messages that a rule has kept.", |c| c.kept),
        ("bridge_repeats_total", "Messages not sent again: a transaction had brought them to Kafka.", |c| c.repeats),
        ("bridge_forgotten_total", "QoS 2 messages whose handshake the other end had forgotten.", |c| c.forgotten),
        ("bridge_connects_total", "Connections to the other end.", |c| c.connects),
        ("bridge_failures_total", "Connections lost, and attempts that failed.", |c| c.failures),
    ];
    for (name, help, read) in counters {
        let mut family = out.family(name, Kind::Counter, help);
        for bridge in &all {
            family.labelled(&[("bridge", &bridge.name)], read(&bridge.counts));
        }
    }
}
