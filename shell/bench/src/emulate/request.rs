//! Requests to a running emulated network: one line of text each.

use std::fmt;
use std::str::FromStr;

use super::setting::{Rate, check_loss};

/// A request to a running emulated network. Nodes are counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `cut A B`: nothing passes between two nodes.
    Cut(usize, usize),
    /// `cut A>B`: nothing passes from the first to the second.
    CutOneWay(usize, usize),
    /// `isolate A`: nothing passes from or to a node.
    Isolate(usize),
    /// `heal`: every link is open again.
    Heal,
    /// `heal A B`: the link between two nodes is open again.
    HealLink(usize, usize),
    /// `rate A B RATE`: rate of a link in both directions, from the next packet on.
    Rate(usize, usize, Rate),
    /// `delay A B MS`: delay of a link in both directions, from the next packet on.
    Delay(usize, usize, f64),
    /// `loss A B PERCENT`: loss of a link in both directions, from the next packet on.
    Loss(usize, usize, f64),
    /// `status`: what every link does.
    Status,
}

/// The requests, for error messages.
const FORMS: &str = "cut A B, cut A>B, isolate A, heal, heal A B, rate A B RATE, delay A B MS, loss A B PERCENT, status; nodes count from 1";

impl FromStr for Request {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: no request such as {FORMS}");
        let number = |text: &str| text.parse::<usize>().ok().filter(|node| *node > 0).ok_or_else(wrong);
        let pair = |a: &str, b: &str| {
            let (a, b) = (number(a)?, number(b)?);
            if a == b { Err(format!("{text}: a node has no link to itself")) } else { Ok((a, b)) }
        };
        let real = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(wrong);
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["cut", one] => match (one.split_once('>'), one.split_once('-')) {
                (Some((a, b)), _) => pair(a, b).map(|(a, b)| Self::CutOneWay(a, b)),
                (None, Some((a, b))) => pair(a, b).map(|(a, b)| Self::Cut(a, b)),
                (None, None) => Err(wrong()),
            },
            ["cut", a, b] => pair(a, b).map(|(a, b)| Self::Cut(a, b)),
            ["isolate", node] => number(node).map(Self::Isolate),
            ["heal"] => Ok(Self::Heal),
            ["heal", one] => {
                let (a, b) = one.split_once('-').ok_or_else(wrong)?;
                pair(a, b).map(|(a, b)| Self::HealLink(a, b))
            }
            ["heal", a, b] => pair(a, b).map(|(a, b)| Self::HealLink(a, b)),
            ["rate", a, b, rate] => pair(a, b).and_then(|(a, b)| Ok(Self::Rate(a, b, rate.parse()?))),
            ["delay", a, b, ms] => {
                let (a, b) = pair(a, b)?;
                let ms = real(ms)?;
                if (0.0..=60_000.0).contains(&ms) {
                    Ok(Self::Delay(a, b, ms))
                } else {
                    Err(format!("{text}: a delay is 0 to 60000 ms"))
                }
            }
            ["loss", a, b, percent] => {
                let (a, b) = pair(a, b)?;
                let percent = real(percent)?;
                check_loss(percent)?;
                Ok(Self::Loss(a, b, percent))
            }
            ["status"] => Ok(Self::Status),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut(a, b) => write!(f, "cut {a} {b}"),
            Self::CutOneWay(a, b) => write!(f, "cut {a}>{b}"),
            Self::Isolate(node) => write!(f, "isolate {node}"),
            Self::Heal => f.write_str("heal"),
            Self::HealLink(a, b) => write!(f, "heal {a} {b}"),
            Self::Rate(a, b, rate) => write!(f, "rate {a} {b} {rate}"),
            Self::Delay(a, b, ms) => write!(f, "delay {a} {b} {ms}"),
            Self::Loss(a, b, percent) => write!(f, "loss {a} {b} {percent}"),
            Self::Status => f.write_str("status"),
        }
    }
}

impl Request {
    /// The highest node that it names.
    pub(crate) fn highest(&self) -> usize {
        match self {
            Self::Cut(a, b)
            | Self::CutOneWay(a, b)
            | Self::HealLink(a, b)
            | Self::Rate(a, b, _)
            | Self::Delay(a, b, _)
            | Self::Loss(a, b, _) => *a.max(b),
            Self::Isolate(node) => *node,
            Self::Heal | Self::Status => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "cut 1 2",
            "cut 1>2",
            "isolate 3",
            "heal",
            "heal 1 2",
            "rate 1 2 10mbit",
            "delay 1 2 2.5",
            "loss 2 1 0.5",
            "status",
        ] {
            assert_eq!(text.parse::<Request>().expect(text).to_string(), text);
        }
        assert_eq!("cut 1-2".parse(), Ok(Request::Cut(1, 2)));
        assert_eq!("heal 1-2".parse(), Ok(Request::HealLink(1, 2)));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for text in
            ["", "cut", "cut 1", "cut 0 1", "cut 1 1", "cut a b", "isolate", "heal 1", "loss 1 2 101", "delay 1 2 -1"]
        {
            assert!(text.parse::<Request>().is_err(), "{text}");
        }
    }
}
