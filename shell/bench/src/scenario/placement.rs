//! Which client connects to which broker.

use std::str::FromStr;

use sedge_base::Rng;
use serde::{Deserialize, Serialize};

use crate::num;

/// Which broker of the list the clients of a group connect to: `spread` (in turn), `random`, or numbers such as `0` or `1,2`
/// (in turn over these).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Placement {
    /// In turn over all brokers.
    #[default]
    Spread,
    /// Any broker, at random.
    Random,
    /// In turn over these.
    Only(Vec<usize>),
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "spread" => Ok(Self::Spread),
            "random" => Ok(Self::Random),
            _ => text
                .split(',')
                .map(|number| number.trim().parse::<usize>().ok())
                .collect::<Option<Vec<_>>>()
                .map(Self::Only)
                .ok_or_else(|| format!("{text}: brokers are `spread`, `random` or numbers from 0")),
        }
    }
}

impl TryFrom<String> for Placement {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Placement> for String {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Spread => "spread".to_owned(),
            Placement::Random => "random".to_owned(),
            Placement::Only(numbers) => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

impl Placement {
    /// The broker of client `client` of a group. Numbers beyond the list go round, so that a scenario for five brokers
    /// runs on one.
    pub(crate) fn broker(&self, client: u64, brokers: usize, rng: &mut Rng) -> usize {
        let brokers = brokers.max(1);
        match self {
            Self::Spread => num::index(client) % brokers,
            Self::Random => rng.index(brokers),
            Self::Only(numbers) if numbers.is_empty() => 0,
            Self::Only(numbers) => numbers.get(num::index(client) % numbers.len()).copied().unwrap_or(0) % brokers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_over_what_is_named() {
        let mut rng = Rng::new(1);
        let mut places = |text: &str, brokers| -> Vec<usize> {
            let placement: Placement = text.parse().expect(text);
            assert_eq!(String::from(placement.clone()), text);
            (0..6).map(|client| placement.broker(client, brokers, &mut rng)).collect()
        };
        assert_eq!(places("spread", 3), [0, 1, 2, 0, 1, 2]);
        assert_eq!(places("2", 3), [2; 6]);
        assert_eq!(places("1,2", 3), [1, 2, 1, 2, 1, 2]);
        assert_eq!(places("4", 1), [0; 6]);
        assert!(places("random", 5).iter().all(|broker| *broker < 5));
        assert!("all".parse::<Placement>().is_err());
    }
}
