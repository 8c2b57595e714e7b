//! Settings, with a profile for local networks as default.

use core::num::{NonZeroU8, NonZeroUsize};
use std::net::SocketAddr;

use sedge_base::Duration;

/// How often a member is probed. With [`PROBE_RTT`] and [`SUSPICION`] a silent host is known after about a second.
const PROBE_PERIOD: Duration = Duration::from_millis(300);
/// A round trip on a busy local network, with a margin for a loaded small machine.
const PROBE_RTT: Duration = Duration::from_millis(120);
/// Long enough for a suspicion to travel by two gossip rounds and its refutation to travel back.
const SUSPICION: Duration = Duration::from_millis(500);
/// Three rounds of probes fit.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(150);
/// A round trip through another member on a local network.
const REFUSED_TIMEOUT: Duration = Duration::from_millis(10);
const GOSSIP_PERIOD: Duration = Duration::from_millis(100);
const ANNOUNCE_PERIOD: Duration = Duration::from_secs(5);
const DEAD_ANNOUNCE_PERIOD: Duration = Duration::from_millis(250);
/// As EMQX has it (`cluster.autoclean`).
const AUTOCLEAN: Duration = Duration::from_mins(5);
const REMEMBER_DEAD: Duration = Duration::from_hours(24);
const SEED_RETRY_MIN: Duration = Duration::from_millis(200);
const SEED_RETRY_MAX: Duration = Duration::from_secs(5);
/// Below the MTU of Ethernet and common tunnels (RFC 8085 section 3.2).
const MAX_PACKET: usize = 1400;
/// A packet that carries no more than one update.
const MIN_PACKET: usize = 256;

/// Settings of the machine. The default suits a local network.
#[derive(Clone, Debug)]
pub struct Config {
    /// UDP addresses that are asked until they answer, or until [`crate::Input::Seeds`] leaves them out. May include this node's own.
    pub seeds: Vec<SocketAddr>,
    /// One member is probed in each such period.
    pub probe_period: Duration,
    /// After this time without an answer others are asked to probe. Less than half of `probe_period`.
    pub probe_rtt: Duration,
    /// How many others are asked to probe. 1 to 16.
    pub indirect_probes: u8,
    /// How long a member that failed a probe has to object.
    pub suspicion: Duration,
    /// How long a member has to give a life sign after [`crate::Input::Suspect`].
    pub confirm_timeout: Duration,
    /// How long a member has to give a life sign after [`crate::Input::Refused`].
    pub refused_timeout: Duration,
    /// Period of gossip, while there is news.
    pub gossip_period: Duration,
    /// How often a random member is asked for its whole list.
    pub announce_period: Duration,
    /// How often a few dead members are called.
    pub dead_announce_period: Duration,
    /// How long dead members are listed ([`crate::Membership::dead`]) and told to others (EL-03).
    pub autoclean: Duration,
    /// How long dead members are called; not less than `autoclean`.
    pub remember_dead: Duration,
    /// First pause before a seed is asked again; doubles up to `seed_retry_max`.
    pub seed_retry_min: Duration,
    /// Longest pause before a seed is asked again.
    pub seed_retry_max: Duration,
    /// How often one piece of news is sent on by each node.
    pub max_transmissions: u8,
    /// Longest datagram, in bytes. 256 to 65,000.
    pub max_packet: usize,
    /// Most nodes, listed dead ones included, that are kept in mind; others are not let in. At least 1. As many dead ones are called.
    pub max_members: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            probe_period: PROBE_PERIOD,
            probe_rtt: PROBE_RTT,
            indirect_probes: 3,
            suspicion: SUSPICION,
            confirm_timeout: CONFIRM_TIMEOUT,
            refused_timeout: REFUSED_TIMEOUT,
            gossip_period: GOSSIP_PERIOD,
            announce_period: ANNOUNCE_PERIOD,
            dead_announce_period: DEAD_ANNOUNCE_PERIOD,
            autoclean: AUTOCLEAN,
            remember_dead: REMEMBER_DEAD,
            seed_retry_min: SEED_RETRY_MIN,
            seed_retry_max: SEED_RETRY_MAX,
            max_transmissions: 10,
            max_packet: MAX_PACKET,
            max_members: 1024,
        }
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A period or timeout is zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// Indirect probes need their share of the period.
    #[error("probe_rtt must be less than half of probe_period")]
    ProbeRtt,
    /// A number is out of its range.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// Id 0 stands for "whoever listens there".
    #[error("node id 0 is reserved")]
    NodeId,
}

impl Config {
    pub(crate) fn to_foca(&self) -> Result<foca::Config, ConfigError> {
        for (name, value) in [
            ("probe_rtt", self.probe_rtt),
            ("suspicion", self.suspicion),
            ("confirm_timeout", self.confirm_timeout),
            ("refused_timeout", self.refused_timeout),
            ("gossip_period", self.gossip_period),
            ("announce_period", self.announce_period),
            ("dead_announce_period", self.dead_announce_period),
            ("autoclean", self.autoclean),
            ("remember_dead", self.remember_dead),
            ("seed_retry_min", self.seed_retry_min),
        ] {
            if value.is_zero() {
                return Err(ConfigError::Zero(name));
            }
        }
        if self.probe_rtt.saturating_mul(2) >= self.probe_period {
            return Err(ConfigError::ProbeRtt);
        }
        let ranges = [
            ("indirect_probes", (1..=16).contains(&self.indirect_probes)),
            ("max_packet", (MIN_PACKET..=65_000).contains(&self.max_packet)),
            ("max_members", self.max_members >= 1),
            ("seed_retry_max", self.seed_retry_max >= self.seed_retry_min),
        ];
        if let Some((name, _)) = ranges.iter().find(|(_, fits)| !fits) {
            return Err(ConfigError::Range(name));
        }
        let one = NonZeroUsize::MIN;
        let fanout = NonZeroUsize::new(usize::from(self.indirect_probes)).unwrap_or(one);
        Ok(foca::Config {
            probe_period: self.probe_period,
            probe_rtt: self.probe_rtt,
            num_indirect_probes: fanout,
            max_transmissions: NonZeroU8::new(self.max_transmissions).ok_or(ConfigError::Zero("max_transmissions"))?,
            suspect_to_down_after: self.suspicion,
            remove_down_after: Some(self.autoclean),
            max_packet_size: NonZeroUsize::new(self.max_packet).unwrap_or(one),
            notify_down_members: true,
            periodic_announce: Some(foca::PeriodicParams { frequency: self.announce_period, num_members: one }),
            // The machine calls the dead itself: foca does so only while it knows someone alive.
            periodic_announce_to_down_members: None,
            periodic_gossip: Some(foca::PeriodicParams { frequency: self.gossip_period, num_members: fanout }),
        })
    }
}
