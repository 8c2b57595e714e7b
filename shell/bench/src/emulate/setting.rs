//! How an emulated network is described.

use std::fmt;
use std::str::FromStr;

use sedge_base::Rng;
use serde::{Deserialize, Serialize};

use crate::draw::{standard_normal, unit};
use crate::num;

/// Fewest and most nodes of a network: every one has a link to every other.
pub(super) const NODES: std::ops::RangeInclusive<usize> = 2..=64;
/// Longest delay of a link in ms.
const MAX_DELAY_MS: f64 = 60_000.0;

/// How an emulated network is built.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPlan {
    /// Nodes, each linked to every other: 2 to 64.
    pub nodes: usize,
    /// Rate of every link and direction.
    pub rate: Rate,
    /// Propagation delay: drawn once for each link, the same in both directions.
    pub delay: Delay,
    /// Standard deviation of what a single packet's delay differs from its link's in ms. Packets keep their order.
    pub jitter_ms: f64,
    /// Share of packets that get lost on the way in percent.
    pub loss_percent: f64,
    /// Packets that may wait in front of a link.
    pub queue: Queue,
    /// Start value of random choices.
    pub seed: u64,
    /// Beginning of the names of the namespaces; the network has a beginning of its own if none is given.
    pub name: Option<String>,
}

impl Default for NetworkPlan {
    /// Two nodes without any limit, delay or loss.
    fn default() -> Self {
        Self {
            nodes: 2,
            rate: Rate::UNLIMITED,
            delay: Delay::Fixed(0.0),
            jitter_ms: 0.0,
            loss_percent: 0.0,
            queue: Queue::default(),
            seed: 1,
            name: None,
        }
    }
}

impl NetworkPlan {
    /// Why there can be no such network, if there cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        if !NODES.contains(&self.nodes) {
            return Err(format!("--nodes {}: {} to {} nodes", self.nodes, NODES.start(), NODES.end()));
        }
        if !(0.0..=MAX_DELAY_MS).contains(&self.jitter_ms) {
            return Err(format!("--jitter {}: 0 to {MAX_DELAY_MS} ms", self.jitter_ms));
        }
        check_loss(self.loss_percent).map_err(|error| format!("--loss {error}"))?;
        if let Some(name) = &self.name {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.is_empty() || name.len() > 32 || name.starts_with('-') || !name.chars().all(fits) {
                return Err(format!("--name {name}: 1 to 32 of a-z, 0-9 and -"));
            }
        }
        Ok(())
    }
}

/// Says why this is no share of packets in percent, if it is none.
pub(super) fn check_loss(percent: f64) -> Result<(), String> {
    if (0.0..=100.0).contains(&percent) { Ok(()) } else { Err(format!("{percent}: 0 to 100 percent")) }
}

/// Bits per second, or no limit: `10mbit`, `500kbit`, `1gbit`, `9600bit`, `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(Option<u64>);

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self(None);

    /// So many bits per second; none is no limit.
    pub const fn bits_per_second(bits: u64) -> Self {
        Self(if bits == 0 { None } else { Some(bits) })
    }

    /// Bits per second, if there is a limit.
    pub const fn limit(self) -> Option<u64> {
        self.0
    }

    /// Time to send so many bytes in ns, rounded up.
    pub(super) fn time_of(self, bytes: u64) -> u64 {
        self.0.map_or(0, |bits| {
            let time = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(bits));
            u64::try_from(time).unwrap_or(u64::MAX)
        })
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: no rate such as 10mbit, 500kbit, 1gbit, 9600bit or unlimited");
        if text == "unlimited" {
            return Ok(Self::UNLIMITED);
        }
        let (number, unit) = split_unit(text).ok_or_else(wrong)?;
        let factor = match unit {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(wrong()),
        };
        let bits = number * factor;
        // Below that, a packet would take longer than anybody waits; above, packets take no time in ns.
        if (1_000.0..=1e12).contains(&bits) { Ok(Self(Some(num::whole(bits)))) } else { Err(wrong()) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("unlimited"),
            Some(bits) if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            Some(bits) if bits % 1_000 == 0 => write!(f, "{}kbit", bits / 1_000),
            Some(bits) => write!(f, "{bits}bit"),
        }
    }
}

/// Propagation delays in ms: `10`, `normal:MEAN,STDDEV` or `uniform:LOW-HIGH`. Draws below 0 count as 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delay {
    /// All the same.
    Fixed(f64),
    /// Mean and standard deviation.
    Normal(f64, f64),
    /// Anything from the first to the second.
    Uniform(f64, f64),
}

impl Delay {
    /// One delay in ns.
    pub(super) fn draw(self, rng: &mut Rng) -> u64 {
        let ms = match self {
            Self::Fixed(ms) => ms,
            Self::Normal(mean, deviation) => mean + deviation * standard_normal(rng),
            Self::Uniform(low, high) => low + (high - low) * unit(rng),
        };
        num::nanos(ms.clamp(0.0, MAX_DELAY_MS) / 1e3)
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text}: no delay in ms such as 10, normal:10,2.5 or uniform:5-20, at most {MAX_DELAY_MS}");
        let number = |text: &str| text.parse().ok().filter(|ms| (0.0..=MAX_DELAY_MS).contains(ms)).ok_or_else(wrong);
        if let Some(rest) = text.strip_prefix("normal:") {
            let (mean, deviation) = rest.split_once(',').ok_or_else(wrong)?;
            return Ok(Self::Normal(number(mean)?, number(deviation)?));
        }
        if let Some(rest) = text.strip_prefix("uniform:") {
            let (low, high) = rest.split_once('-').ok_or_else(wrong)?;
            let (low, high) = (number(low)?, number(high)?);
            return if low <= high { Ok(Self::Uniform(low, high)) } else { Err(wrong()) };
        }
        Ok(Self::Fixed(number(text)?))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(ms) => write!(f, "{ms}"),
            Self::Normal(mean, deviation) => write!(f, "normal:{mean},{deviation}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low}-{high}"),
        }
    }
}

/// Limit of the packets that wait in front of a link: `64kB`, `1500B`, `1MB`, or as much as the link sends in a time: `100ms`.
/// Further packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Bytes.
    Bytes(u64),
    /// As many bytes as the link sends in so many ms.
    Millis(u64),
}

impl Queue {
    /// Bytes that may wait at this rate. Where there is no limit of the rate nothing ever waits.
    pub(super) fn bytes(self, rate: Rate) -> u64 {
        match (self, rate.limit()) {
            (Self::Bytes(bytes), _) => bytes,
            (Self::Millis(ms), Some(bits)) => bits.saturating_mul(ms) / 8_000,
            (Self::Millis(_), None) => u64::MAX,
        }
    }
}

impl Default for Queue {
    /// 100 ms: about what a router at the edge of a network has.
    fn default() -> Self {
        Self::Millis(100)
    }
}

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: no queue such as 64kB, 1500B, 1MB or 100ms");
        let (number, unit) = split_unit(text).ok_or_else(wrong)?;
        match unit {
            "ms" => Ok(Self::Millis(num::whole(number))),
            "B" => Ok(Self::Bytes(num::whole(number))),
            "kB" => Ok(Self::Bytes(num::whole(number * 1e3))),
            "MB" => Ok(Self::Bytes(num::whole(number * 1e6))),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
            Self::Millis(ms) => write!(f, "{ms}ms"),
        }
    }
}

/// A non-negative number and what follows it.
fn split_unit(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = text.split_at_checked(text.find(|c: char| c.is_ascii_alphabetic())?)?;
    Some((number.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["10mbit", "500kbit", "9600bit", "unlimited"] {
            assert_eq!(text.parse::<Rate>().expect(text).to_string(), text);
        }
        for text in ["10", "normal:10,2.5", "uniform:1-2.5", "0"] {
            assert_eq!(text.parse::<Delay>().expect(text).to_string(), text);
        }
        assert_eq!("64kB".parse(), Ok(Queue::Bytes(64_000)));
        assert_eq!("100ms".parse(), Ok(Queue::Millis(100)));
        for text in ["", "10", "mbit", "-1mbit", "0mbit", "1parsec"] {
            assert!(text.parse::<Rate>().is_err() && text.parse::<Queue>().is_err(), "{text}");
        }
        for text in ["", "x", "-1", "normal:5", "uniform:2-1", "nan", "1e9"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_packet_takes_its_time() {
        let rate: Rate = "10mbit".parse().expect("a rate");
        assert_eq!(rate.time_of(1_250), 1_000_000);
        assert_eq!(Rate::UNLIMITED.time_of(1_250), 0);
        assert_eq!(Queue::Millis(100).bytes(rate), 125_000);
        assert_eq!(Queue::Bytes(7).bytes(rate), 7);
    }

    #[test]
    fn delays_of_links_follow_the_distribution() {
        let mut rng = Rng::new(3);
        let draws: Vec<f64> = (0..20_000).map(|_| num::real(Delay::Normal(10.0, 2.5).draw(&mut rng)) / 1e6).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>() / 20_000.0;
        assert!((mean - 10.0).abs() < 0.1 && (variance.sqrt() - 2.5).abs() < 0.1, "{mean} {variance}");
        assert!((0..1_000).all(|_| (5_000_000..=7_000_000).contains(&Delay::Uniform(5.0, 7.0).draw(&mut rng))));
        assert!((0..1_000).any(|_| Delay::Normal(1.0, 5.0).draw(&mut rng) == 0), "clipped at 0");
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_flag() {
        let refused = |plan: NetworkPlan| plan.check().expect_err("refused");
        assert!(refused(NetworkPlan { nodes: 1, ..NetworkPlan::default() }).contains("--nodes"));
        assert!(refused(NetworkPlan { nodes: 65, ..NetworkPlan::default() }).contains("--nodes"));
        assert!(refused(NetworkPlan { loss_percent: 101.0, ..NetworkPlan::default() }).contains("--loss"));
        assert!(refused(NetworkPlan { jitter_ms: f64::NAN, ..NetworkPlan::default() }).contains("--jitter"));
        let name = Some("../x".to_owned());
        assert!(refused(NetworkPlan { name, ..NetworkPlan::default() }).contains("--name"));
        assert_eq!(NetworkPlan::default().check(), Ok(()));
    }
}
