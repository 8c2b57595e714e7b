//! Where to put the subscribers of a topic: on few brokers, or on many (SG-27 to SG-29).

use crate::report::section;

/// Parameters of the delay of a publication to the last of its subscribers, if the publication spreads over a binary tree of brokers
/// whose root is the publisher's, and all brokers have as many subscribers (Banno, section 4.4).
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Brokers of the site, `m`.
    pub brokers: f64,
    /// Subscribers of all topics, `S`.
    pub subscribers: f64,
    /// Delay between two brokers in milliseconds, `t_c`.
    pub link: f64,
    /// Time that a broker needs for each subscriber in milliseconds, `t_p`.
    pub each: f64,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// On as few brokers as possible: not slower, and always cheaper.
    Intensive,
    /// On as many as possible: faster.
    Extensive,
}

impl Site {
    /// The constants of the source.
    pub const SOURCE: Self = Self { brokers: 10_000.0, subscribers: 2e7, link: 1.0, each: 0.01 };

    /// Subscribers of one broker.
    pub fn share(self) -> f64 {
        self.subscribers / self.brokers
    }

    /// Worst delay of the intensive assignment for a topic with so many subscribers, in milliseconds (`T_i`).
    pub fn intensive(self, topic: f64) -> f64 {
        if topic >= self.share() {
            self.link * ((topic / self.share()).ceil() + 1.0).log2().ceil() + self.each * self.share()
        } else {
            self.link + self.each * topic
        }
    }

    /// Worst delay of the extensive assignment, in milliseconds (`T_e`).
    pub fn extensive(self, topic: f64) -> f64 {
        if topic >= self.brokers {
            self.link * self.brokers.log2().ceil() + self.each * (topic / self.brokers)
        } else {
            self.link * topic.log2().ceil() + self.each
        }
    }

    /// By how much the intensive assignment is slower, in milliseconds, with whole steps of the tree smoothed out (`T_d`).
    pub fn difference(self, topic: f64) -> f64 {
        let Self { brokers, subscribers, link, each } = self;
        match (topic < self.share(), topic < brokers) {
            (true, true) => link * (1.0 - topic.log2()) + each * (topic - 1.0),
            (true, false) => link * (1.0 - brokers.log2()) + each * topic * (brokers - 1.0) / brokers,
            (false, true) => {
                link * ((brokers * topic + subscribers) / (topic * subscribers)).log2() + each * (self.share() - 1.0)
            }
            (false, false) => {
                link * (topic / subscribers + 1.0 / brokers).log2() + each * (subscribers - topic) / brokers
            }
        }
    }

    /// Worst delay in milliseconds of subscribers at so many brokers, the publisher's not among them, at most `most` at one.
    pub fn as_it_is(self, brokers: f64, most: f64) -> f64 {
        self.link * (brokers + 1.0).log2().ceil() + self.each * most
    }

    /// The better assignment of a topic with so many subscribers.
    pub fn advice(self, topic: f64) -> Advice {
        // For a single subscriber both put it on one broker; the formula counts the publisher's broker only once.
        if topic <= 1.0 || self.difference(topic) < 1e-9 { Advice::Intensive } else { Advice::Extensive }
    }
}

pub(crate) fn run() -> String {
    let site = Site::SOURCE;
    let source = [
        (1.0, "+1 (both are the same)"),
        (2.0, "about 0"),
        (144.0, "-4.74, the least"),
        (880.0, "changes its sign"),
        (2_000.0, "10.02"),
        (10_000.0, "9.29"),
        (1_440_695.0, "14.77, the most"),
        (2e7, "0"),
    ];
    let rows: Vec<Vec<String>> = source
        .iter()
        .map(|(topic, source)| {
            vec![
                format!("{topic:.0}"),
                format!("{:.2}", site.intensive(*topic)),
                format!("{:.2}", site.extensive(*topic)),
                format!("{:.2}", site.difference(*topic)),
                format!("{:?}", site.advice(*topic)).to_lowercase(),
                (*source).to_owned(),
            ]
        })
        .collect();
    let head = ["Subscribers of the topic", "Intensive, ms", "Extensive, ms", "Difference, ms", "Advice", "Reference"];
    let remarks = "10,000 brokers, 20 million subscribers, 1 ms between brokers, 0.01 ms for each subscriber. The difference is without the whole steps \
                   that the delays have.";
    section("Assignment of subscribers to brokers (figure 4.9)", &head, &rows, remarks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 0.006, "{one} is not {other}");
    }

    /// SG-29: the points that the formulas are known to go through.
    #[test]
    fn the_four_cases_have_the_values_of_the_source() {
        let site = Site::SOURCE;
        let known = [(1.0, 1.0), (144.0, -4.74), (2_000.0, 10.02), (10_000.0, 9.29), (1_440_695.0, 14.77), (2e7, 0.0)];
        for (topic, difference) in known {
            near(site.difference(topic), difference);
        }
        // More subscribers on a broker than there are brokers: the case that the source's constants never reach.
        let crowded = Site { brokers: 100.0, ..site };
        near(crowded.difference(1_000.0), 1.0 - 100_f64.log2() + 0.01 * 1_000.0 * 0.99);
    }

    /// SG-29
    #[test]
    fn the_extremes_are_where_they_are_said_to_be() {
        let site = Site::SOURCE;
        let greatest = (0..4_000).map(|step| 2_000.0 + 1_000.0 * f64::from(step));
        let greatest = greatest.max_by(|a, b| site.difference(*a).total_cmp(&site.difference(*b))).expect("some");
        assert!((greatest - 1_440_695.0).abs() <= 1_000.0, "{greatest}");
        let exact = site.brokers * site.link / (site.each * core::f64::consts::LN_2) - site.share();
        assert!((exact - 1_440_695.0).abs() < 1.0, "{exact}");
        let least = (2..2_000).map(f64::from).min_by(|a, b| site.difference(*a).total_cmp(&site.difference(*b)));
        assert_eq!(least, Some(144.0));
    }

    /// SG-27, SG-28, SG-29: the advice, and delays with the whole steps of the tree.
    #[test]
    fn advice_follows_the_sign() {
        let site = Site::SOURCE;
        let extensive = [1.0, 100.0, 870.0, 890.0, 5_000.0, 1e6].map(|topic| site.advice(topic) == Advice::Extensive);
        assert_eq!(extensive, [false, false, false, true, true, true]);
        near(site.intensive(100.0), 1.0 + 1.0);
        near(site.intensive(4_000.0), 2.0 + 20.0);
        near(site.extensive(1_000.0), 10.0 + 0.01);
        near(site.extensive(20_000.0), 14.0 + 0.02);
        // The intensive assignment, written out: two brokers, full but for the publisher's.
        near(site.as_it_is(2.0, 2_000.0), site.intensive(4_000.0));
        near(site.as_it_is(1.0, 100.0), site.intensive(100.0));
    }
}
