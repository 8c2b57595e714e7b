//! How long payloads are.

use std::fmt;
use std::str::FromStr;

use sedge_base::Rng;
use serde::{Deserialize, Serialize};

use crate::draw::{standard_normal, unit};
use crate::num;
use crate::wire::STAMP_BYTES;

/// Longest payload that is generated.
const MAX_BYTES: u32 = 16 << 20;

/// How long payloads are in bytes: `32`, `uniform:64-1024`, `normal:1000,200`, `exponential:500` or `choice:32*9,1024*1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub(crate) enum Payload {
    /// All the same.
    Fixed(u32),
    /// Each length from the first to the second equally often.
    Uniform(u32, u32),
    /// Mean and standard deviation.
    Normal(f64, f64),
    /// Mean.
    Exponential(f64),
    /// Lengths with their weights.
    Choice(Vec<(u32, u32)>),
}

/// A number or a text in a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u32),
    Text(String),
}

impl TryFrom<Written> for Payload {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(bytes) => Ok(Self::Fixed(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<Payload> for String {
    fn from(payload: Payload) -> Self {
        payload.to_string()
    }
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text}: no payload size such as 32, uniform:64-1024, normal:1000,200 or choice:32*9,1024*1");
        let Some((kind, rest)) = text.split_once(':') else {
            return text.parse().map(Self::Fixed).ok().ok_or_else(wrong);
        };
        let pair = |sign: char| {
            let (first, second) = rest.split_once(sign)?;
            Some((first.trim().parse::<f64>().ok()?, second.trim().parse::<f64>().ok()?))
        };
        let bytes = |number: f64| u32::try_from(num::whole(number)).unwrap_or(u32::MAX);
        match kind {
            "uniform" => pair('-').map(|(low, high)| Self::Uniform(bytes(low), bytes(high))),
            "normal" => pair(',').map(|(mean, deviation)| Self::Normal(mean, deviation)),
            "exponential" => rest.trim().parse().ok().map(Self::Exponential),
            "choice" => rest
                .split(',')
                .map(|part| {
                    let (length, weight) = part.split_once('*').unwrap_or((part, "1"));
                    Some((length.trim().parse().ok()?, weight.trim().parse().ok()?))
                })
                .collect::<Option<Vec<_>>>()
                .map(Self::Choice),
            _ => None,
        }
        .ok_or_else(wrong)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low}-{high}"),
            Self::Normal(mean, deviation) => write!(f, "normal:{mean},{deviation}"),
            Self::Exponential(mean) => write!(f, "exponential:{mean}"),
            Self::Choice(choices) => {
                let parts: Vec<String> = choices.iter().map(|(length, weight)| format!("{length}*{weight}")).collect();
                write!(f, "choice:{}", parts.join(","))
            }
        }
    }
}

impl Payload {
    /// Why these sizes cannot be generated, if they cannot.
    pub(crate) fn check(&self) -> Result<(), String> {
        let longest = match self {
            Self::Fixed(bytes) => *bytes,
            Self::Uniform(low, high) if low <= high => *high,
            Self::Choice(choices) if choices.iter().any(|(_, weight)| *weight > 0) => {
                choices.iter().map(|(length, _)| *length).max().unwrap_or(0)
            }
            Self::Normal(mean, deviation) if mean.is_finite() && deviation.is_finite() && *deviation >= 0.0 => 0,
            Self::Exponential(mean) if mean.is_finite() && *mean >= 0.0 => 0,
            Self::Uniform(..) | Self::Choice(_) | Self::Normal(..) | Self::Exponential(_) => {
                return Err(format!("{self}: no distribution of payload sizes"));
            }
        };
        if longest > MAX_BYTES {
            return Err(format!("{self}: payloads are at most {MAX_BYTES} bytes"));
        }
        Ok(())
    }

    /// The one length, if all are the same.
    pub(crate) fn fixed(&self) -> Option<usize> {
        match self {
            Self::Fixed(bytes) => Some(fit(*bytes)),
            Self::Uniform(..) | Self::Normal(..) | Self::Exponential(_) | Self::Choice(_) => None,
        }
    }

    /// The next length. Never shorter than what a message has to carry to be measured.
    pub(crate) fn draw(&self, rng: &mut Rng) -> usize {
        let length = match self {
            Self::Fixed(bytes) => *bytes,
            Self::Uniform(low, high) => {
                let span = u64::from(high - low) + 1;
                low + u32::try_from(rng.below(span)).unwrap_or(0)
            }
            Self::Normal(mean, deviation) => clip(mean + deviation * standard_normal(rng)),
            Self::Exponential(mean) => clip(-mean * unit(rng).ln()),
            Self::Choice(choices) => {
                let total: u64 = choices.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut at = rng.below(total);
                let mut chosen = 0;
                for (length, weight) in choices {
                    chosen = *length;
                    if at < u64::from(*weight) {
                        break;
                    }
                    at -= u64::from(*weight);
                }
                chosen
            }
        };
        fit(length)
    }
}

fn fit(length: u32) -> usize {
    num::index(u64::from(length)).max(STAMP_BYTES)
}

fn clip(length: f64) -> u32 {
    u32::try_from(num::whole(length.round())).unwrap_or(MAX_BYTES).min(MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["32", "uniform:64-1024", "normal:1000,200", "exponential:500", "choice:32*9,1024*1"] {
            let payload: Payload = text.parse().expect(text);
            assert_eq!(payload.to_string(), text);
            assert_eq!(payload.check(), Ok(()));
        }
        for text in ["", "x", "uniform:5", "normal:5", "choice:", "uniform:a-b", "other:1"] {
            assert!(text.parse::<Payload>().is_err(), "{text}");
        }
        assert!("uniform:9-5".parse::<Payload>().expect("a form").check().is_err());
        assert!(Payload::Fixed(u32::MAX).check().is_err());
    }

    #[test]
    fn draws_follow_the_distribution() {
        let mean = |text: &str| {
            let payload: Payload = text.parse().expect(text);
            let mut rng = Rng::new(7);
            (0..20_000).map(|_| num::real(num::count(payload.draw(&mut rng)))).sum::<f64>() / 20_000.0
        };
        assert!((mean("uniform:100-300") - 200.0).abs() < 3.0);
        assert!((mean("normal:1000,200") - 1000.0).abs() < 10.0);
        assert!((mean("exponential:5000") - 5000.0).abs() < 150.0);
        assert!((mean("choice:100*9,1100*1") - 200.0).abs() < 10.0);
        assert!((mean("1") - 24.0).abs() < 1e-9, "a payload has room for its stamp");
    }
}
