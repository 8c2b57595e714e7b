//! Tells the nodes of the site how it is scaled, so that their dashboards show it, and hears from them the orders of operators.

use std::sync::PoisonError;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::controller::Message;
use crate::driver::World;
use crate::error::ScaleError;
use crate::http::Shown;
use crate::network::Nodes;
use crate::report::Report;

/// How often.
const EVERY: Duration = Duration::from_secs(2);
/// How long a node may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Events that are told.
const EVENTS: usize = 50;
/// Most bytes that a node takes.
const BYTES_MAX: usize = 60 * 1024;

/// Tells them from a thread of its own, which ends with the process.
pub(crate) fn in_background(world: World, shown: Shown, orders: Sender<Message>) -> Result<(), ScaleError> {
    let nodes = Nodes::new(&world.state().token, PATIENCE);
    let run = move || {
        loop {
            thread::sleep(EVERY);
            let report = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(text) = short(report) else { continue };
            if let Some(paused) = tell(&nodes, &addresses(&world), &text)
                && orders.send(Message::Pause(paused)).is_err()
            {
                return;
            }
        }
    };
    let failed = |error| ScaleError::other(format!("cannot start a thread: {error}"));
    thread::Builder::new().name("scale-teller".to_owned()).spawn(run).map(drop).map_err(failed)
}

fn addresses(world: &World) -> Vec<String> {
    let state = world.state();
    let served = state.nodes.values().filter(|node| node.served && !node.http.is_empty());
    served.map(|node| node.http.clone()).collect()
}

/// Tells all nodes at the same time; returns the order of an operator to pause or to go on, if one of them has it.
fn tell(nodes: &Nodes, addresses: &[String], report: &str) -> Option<bool> {
    let answers: Vec<Result<String, String>> = thread::scope(|scope| {
        let asked: Vec<_> =
            addresses.iter().map(|http| scope.spawn(move || nodes.put(http, "/api/v1/scale", report))).collect();
        asked.into_iter().filter_map(|answer| answer.join().ok()).collect()
    });
    let mut orders = answers.into_iter().filter_map(|answer| match answer {
        Ok(text) => serde_json::from_str::<Value>(&text).ok()?.get("pause")?.as_bool(),
        Err(why) => {
            tracing::debug!(why, "a node was not told how the site is scaled");
            None
        }
    });
    orders.next_back()
}

/// The report as a node takes it: without old events, and if it is too long still, without samples of nodes and with fewer decisions.
fn short(mut report: Report) -> Option<String> {
    if report.groups.is_empty() {
        return None;
    }
    report.events.drain(..report.events.len().saturating_sub(EVENTS));
    let fits = |report: &Report| serde_json::to_string(report).ok().filter(|text| text.len() <= BYTES_MAX);
    if let Some(text) = fits(&report) {
        return Some(text);
    }
    report.groups.values_mut().flat_map(|group| &mut group.nodes).for_each(|node| node.samples.clear());
    report.events.clear();
    report.decisions.drain(..report.decisions.len().saturating_sub(8));
    fits(&report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{EventReport, GroupReport, NodeReport};

    fn report(nodes: usize, events: usize) -> Report {
        let node = |number: usize| NodeReport {
            name: format!("brokers-{number}"),
            samples: (0..12).map(|metric| (format!("metric_{metric}"), 1.5)).collect(),
            ..NodeReport::default()
        };
        let event = EventReport { text: "a node was added".to_owned(), ..EventReport::default() };
        let group = GroupReport { nodes: (0..nodes).map(node).collect(), ..GroupReport::default() };
        Report { groups: [("brokers".to_owned(), group)].into(), events: vec![event; events], ..Report::default() }
    }

    #[test]
    fn a_report_fits_whatever_the_size_of_the_site() {
        let told: Report = serde_json::from_str(&short(report(3, 1_000)).unwrap()).unwrap();
        assert_eq!((told.events.len(), told.groups["brokers"].nodes[0].samples.len()), (EVENTS, 12));
        let large: Report = serde_json::from_str(&short(report(300, 1_000)).unwrap()).unwrap();
        assert_eq!((large.events.len(), large.groups["brokers"].nodes.len()), (0, 300));
        assert!(large.groups["brokers"].nodes[0].samples.is_empty());
        assert_eq!(short(report(5_000, 1)), None);
        assert_eq!(short(Report::default()), None, "the controller has only begun");
    }
}
