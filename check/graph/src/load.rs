//! Factors that the forwarding load of nodes depends on (SG-22).

use sedge_base::Rng;
use sedge_overlay::skip_graph::Method;

use crate::Options;
use crate::paths::world;
use crate::report::section;
use crate::scribe::Dht;
use crate::stats::{correlation, interval, real};
use crate::world::{resting, topic};

/// Counts of messages that each node has received and forwarded, as the source defines them.
struct Load {
    /// Publications of the topic that the node subscribes to, without those that it only passes on for others.
    received: Vec<usize>,
    /// Copies that it has sent to others for whatever topic, the first hop of a publisher included.
    forwarded: Vec<usize>,
}

impl Load {
    fn new(nodes: usize) -> Self {
        Self { received: vec![0; nodes], forwarded: vec![0; nodes] }
    }

    /// Whether all of them have forwarded nothing, as much as they received, or twice as much: the three lines of figure 3.13.
    fn is_on_three_lines(&self, nodes: &[usize]) -> bool {
        nodes.iter().all(|node| (0..=2).any(|times| self.forwarded[*node] == times * self.received[*node]))
    }

    /// The most copies that a node sent for each it received.
    fn worst(&self, nodes: &[usize]) -> f64 {
        let shares = nodes.iter().filter(|node| self.received[**node] > 0);
        shares.map(|node| real(self.forwarded[*node]) / real(self.received[*node])).fold(0.0, f64::max)
    }
}

fn row(name: &str, pairs: &[(f64, f64)], worst: f64, source: &str) -> Vec<String> {
    let coefficient = correlation(pairs);
    let (text, range) = coefficient.map_or_else(
        || ("does not vary".to_owned(), "—".to_owned()),
        |coefficient| {
            let range = interval(coefficient, pairs.len());
            let range = range.map_or_else(|| "—".to_owned(), |(low, high)| format!("{low:.4} .. {high:.4}"));
            (format!("{coefficient:.4}"), range)
        },
    );
    vec![name.to_owned(), text, range, format!("{worst:.1}"), source.to_owned()]
}

pub(crate) fn run(options: &Options) -> String {
    let (topics, subscribers) = if options.quick { (20, 100) } else { (100, 1_000) };
    let nodes = topics * (1 + subscribers);
    let (mut graph, members) = world(nodes, 1, subscribers, resting(), options.seed);
    let senders: Vec<usize> = members.iter().map(|members| members[0]).collect();
    let receivers: Vec<usize> = members.iter().flat_map(|members| members[1..].iter().copied()).collect();
    let sent = |load: &Load| -> Vec<(f64, f64)> {
        let pairs = senders.iter().enumerate();
        pairs.map(|(number, sender)| (real(number + 1), real(load.forwarded[*sender]))).collect()
    };
    let received = |load: &Load| -> Vec<(f64, f64)> {
        receivers.iter().map(|node| (real(load.received[*node]), real(load.forwarded[*node]))).collect()
    };
    let mut rows = Vec::new();
    let mut lines = "";
    for (name, method, source) in
        [("MRF", Method::Mrf, ["1.0", "0.5483"]), ("SFB", Method::Sfb, ["not given", "not given"])]
    {
        graph.set_method(method);
        let mut load = Load::new(nodes);
        for (number, sender) in senders.iter().enumerate() {
            for _ in 0..=number {
                graph.publish(*sender, topic(number), |copy| {
                    load.forwarded[copy.from] += 1;
                    load.received[copy.to] += 1;
                });
            }
        }
        let worst = load.worst(&receivers);
        if method == Method::Mrf {
            lines = if load.is_on_three_lines(&receivers) { "each subscriber" } else { "not each subscriber" };
        }
        rows.push(row(&format!("sending and forwarding, {name}"), &sent(&load), worst, source[0]));
        rows.push(row(&format!("receiving and forwarding, {name}"), &received(&load), worst, source[1]));
    }
    let dht = Dht::new(nodes, &mut Rng::new(options.seed ^ 0x5c1b));
    let mut load = Load::new(nodes);
    for (number, members) in members.iter().enumerate() {
        let messages = number + 1;
        let tree = dht.tree(number, members[1..].iter().copied());
        if members[0] != tree.root {
            load.forwarded[members[0]] += messages;
        }
        for (node, children) in tree.children() {
            load.forwarded[node] += children * messages;
        }
        for subscriber in &members[1..] {
            load.received[*subscriber] += messages;
        }
    }
    let worst = load.worst(&receivers);
    rows.push(row("sending and forwarding, Scribe", &sent(&load), worst, "0.1310 (-0.1290 .. 0.3742)"));
    rows.push(row("receiving and forwarding, Scribe", &received(&load), worst, "-0.0045 (-0.0126 .. 0.0037); > 1,000"));
    let remarks = format!(
        "{topics} topics with one publisher and {subscribers} subscribers each; publishers publish 1, 2, ..., {topics} times. A node \
         receives what is published to the topic that it subscribes to; it forwards copies for whatever topic. Of MRF {lines} forwards 0, 1 or 2 \
         copies for each that it receives, as in the source, whose second coefficient is 0.5483 (0.5426 .. 0.5540)."
    );
    let head = ["Correlation", "Coefficient", "99 % interval", "Most copies sent per copy received", "Source"];
    section("Predictability of load (figures 3.12 and 3.13)", &head, &rows, &remarks)
}
