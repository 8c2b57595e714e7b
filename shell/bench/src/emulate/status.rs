//! Status that an emulated network reports.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::setting::Rate;

/// Status that an emulated network reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// Start value of random choices.
    pub seed: u64,
    /// Where requests are taken.
    pub control: String,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Both directions of every link.
    pub links: Vec<LinkStatus>,
    /// The program that emulates it.
    pub emulator: EmulatorStatus,
}

/// A node of an emulated network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Number, from 1.
    pub node: usize,
    /// Name of its network namespace.
    pub namespace: String,
    /// Address on the emulated network.
    pub site: Ipv4Addr,
    /// Address for clients on this machine, outside of the emulated network.
    pub host: Ipv4Addr,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Node that sends, from 1.
    pub from: usize,
    /// Node that receives, from 1.
    pub to: usize,
    /// Bits per second; none is no limit.
    pub rate_bit_s: Rate,
    /// Propagation delay in ms.
    pub delay_ms: f64,
    /// Share of packets that get lost in percent.
    pub loss_percent: f64,
    /// Whether it is not cut.
    pub open: bool,
    /// IP packets that it sent, lost ones included.
    pub packets: u64,
    /// Bytes of those, IP headers included.
    pub bytes: u64,
    /// Packets that got lost after they were sent.
    pub lost: u64,
    /// Packets for which its queue had no room.
    pub dropped: u64,
    /// Packets that met a cut.
    pub cut: u64,
    /// Bytes that wait.
    pub queue_bytes: u64,
    /// Most bytes that waited at once.
    pub queue_high_water_bytes: u64,
    /// Traffic in the link's packets.
    pub carried: Carried,
}

/// Traffic in the packets of one direction of a link, by the bytes of MQTT in them: each byte once, however often it was sent, and
/// without the headers of TCP and IP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Publications of clients.
    pub publications: Passed,
    /// Packets of MQTT between the nodes over TCP, apart from publications of clients.
    pub control: Passed,
    /// UDP, with headers.
    pub datagram_bytes: u64,
    /// Bytes of connections that cannot be read as MQTT: they are encrypted, or began before the network.
    pub unread_bytes: u64,
    /// Publications by topic. At most 1,024 topics are told apart; the others are under `(others)`.
    pub topics: BTreeMap<String, Passed>,
    /// Traffic between the nodes by its topic; `packets` are the MQTT packets other than PUBLISH.
    pub mechanisms: BTreeMap<String, Passed>,
}

/// How much of something passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Packets of MQTT.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The program that emulates a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmulatorStatus {
    /// Packets that nodes sent.
    pub received: u64,
    /// Packets that nodes sent faster than the emulator read them: the kernel holds 2,000 for each node.
    pub unread: u64,
    /// Packets that were handed to nodes.
    pub delivered: u64,
    /// Packets for which the network as a whole had no room: the emulator holds 65,536.
    pub overflow: u64,
    /// Packets of other protocols than IPv4, or to addresses that are not there.
    pub stray: u64,
    /// Packets that a node's interface did not take.
    pub refused: u64,
    /// How much later than due packets were handed over in µs: median.
    pub late_p50_us: f64,
    /// The same, 99th percentile.
    pub late_p99_us: f64,
    /// The same, largest.
    pub late_max_us: f64,
    /// Processor time of the emulator in seconds. It holds what the kernel does with a packet in the receiving node.
    pub cpu_s: f64,
    /// Whether it runs before everything of ordinary priority; if not, it is later on a crowded machine.
    pub realtime: bool,
}
