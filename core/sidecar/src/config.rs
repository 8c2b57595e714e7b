//! Every limit of a sidecar in one place.

use bytes::Bytes;
use sedge_base::Duration;
use sedge_mqtt::Utf8;

/// Limits and times of a [`crate::Sidecar`].
#[derive(Clone, Debug)]
pub struct SidecarConfig {
    /// Prefix of the client identifiers of the inlets; a number follows.
    pub inlet_prefix: String,
    /// Conversations through which publications of other nodes enter the broker, at least 1 (IL-17; errata E20).
    pub inlets: u16,
    /// User name of the inlets.
    pub inlet_user: Option<Utf8>,
    /// Password of the inlets.
    pub inlet_password: Option<Bytes>,
    /// Whether the connections to the broker say for which client they are: [`crate::Output::Dial`] names it.
    pub tells_origins: bool,
    /// Time for which clients stay connected while the broker is away.
    pub grace: Duration,
    /// Time that a connection to the broker may take until its CONNACK.
    pub connect_timeout: Duration,
    /// Silence on a conversation after which the broker is asked whether it is there; half of the keep alive that it is told.
    pub ping_period: Duration,
    /// Pause after a failure until the broker is dialled again; it doubles up to [`SidecarConfig::retry_max`].
    pub retry_min: Duration,
    /// The longest pause between two attempts.
    pub retry_max: Duration,
    /// Time that the broker may take to deliver; a later delivery counts as a publication of somebody else.
    pub delivery_timeout: Duration,
    /// Largest packet taken from the broker, in bytes.
    pub max_packet_bytes: u32,
    /// Publications with QoS 1 and 2 on their way to the broker in one conversation; a smaller Receive Maximum of the broker counts.
    pub window: u16,
    /// Publications that wait for the broker in one conversation; above, those of other nodes with QoS 0 go first, then the oldest.
    pub queue_messages: usize,
    /// Bytes of them: payload, topic and 64 for each.
    pub queue_bytes: usize,
    /// Deliveries expected in one conversation; above, the oldest is delivered from the sidecar's copy.
    pub expected_messages: usize,
    /// Bytes of them: payload, topic and 64 for each.
    pub expected_bytes: usize,
}

impl Default for SidecarConfig {
    fn default() -> Self {
        Self {
            inlet_prefix: "sedge-inlet-".to_owned(),
            inlets: 2,
            inlet_user: None,
            inlet_password: None,
            tells_origins: false,
            grace: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            ping_period: Duration::from_secs(15),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(2),
            delivery_timeout: Duration::from_secs(2),
            max_packet_bytes: 256 * 1024 * 1024,
            window: 1024,
            queue_messages: 100_000,
            queue_bytes: 64 * 1024 * 1024,
            expected_messages: 10_000,
            expected_bytes: 16 * 1024 * 1024,
        }
    }
}
