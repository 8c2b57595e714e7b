//! `sedge advise`: whether the subscribers of a topic should share nodes (SG-27 to SG-29).

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use sedge_controller::segment;
use sedge_daemon::http::model::{Cluster, Session, Sessions, Status};
use sedge_graph::{Advice, Site};
use serde::Serialize;

use super::client::Api;
use super::commands::ApiArgs;
use crate::failure::Failure;
use crate::out;
use crate::table::{pairs, table};

/// Sessions asked for at once.
const PAGE: usize = 1_000;
/// Prefix of shared subscriptions: each message goes to one member wherever the others are.
const SHARED: &str = "$share/";

/// Flags of `sedge advise`.
#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// HTTP APIs of the other nodes of the cluster
    #[arg(value_name = "URL")]
    others: Vec<String>,
    /// Delay between two nodes in ms [default: half of the mean round trip that the links measure]
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    link_ms: Option<f64>,
    /// Time that a node needs for each subscriber of a message in ms [default: measured with --watch, else 0.01]
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    each_ms: Option<f64>,
    /// Watch the nodes for so many seconds: processor time per delivery, and publications between nodes
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=3600))]
    watch: Option<u16>,
    /// Show at most N filters, those with most subscribers first
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    api: ApiArgs,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let ms = text.parse::<f64>().ok().filter(|ms| (0.0..=1e6).contains(ms));
    ms.ok_or_else(|| format!("{text}: milliseconds, 0 to a million"))
}

/// Subscriptions of each filter by node.
type Subscribers = BTreeMap<String, BTreeMap<String, u32>>;

/// The advice, and the figures that it rests on.
#[derive(Clone, Debug, Serialize)]
struct Report {
    nodes: usize,
    /// Subscriptions of all filters, shared ones apart.
    subscribers: u32,
    shared: u32,
    link_ms: f64,
    each_ms: f64,
    /// Source of `each_ms`.
    each_from: &'static str,
    /// Publications between nodes in each second that was watched.
    publications_per_s: Option<f64>,
    /// Filters in all.
    filters_total: usize,
    /// Nodes with subscribers, added up over all filters: as it is, and as advised.
    places: (usize, usize),
    filters: Vec<Line>,
}

/// A filter.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    filter: String,
    subscribers: u32,
    /// Nodes that have some of them.
    nodes: usize,
    /// Worst delay with the subscribers where they are, in ms.
    now_ms: f64,
    /// The same with as few, and with as many nodes as possible.
    intensive_ms: f64,
    extensive_ms: f64,
    advice: &'static str,
    /// Nodes that the advice puts them on.
    advised_nodes: usize,
}

/// Runs `sedge advise`.
pub(crate) fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let others = args.others.iter().map(|base| args.api.client_at(base));
    let apis = std::iter::once(args.api.client()).chain(others).collect::<Result<Vec<Api>, _>>()?;
    let mut subscribers = Subscribers::new();
    let (mut asked, mut members, mut trips, mut shared) = (BTreeSet::new(), BTreeSet::new(), Vec::new(), 0);
    for api in &apis {
        let status = api.get::<Status>("/api/v1/status")?.value;
        let cluster = api.get::<Cluster>("/api/v1/cluster")?.value;
        members.extend(cluster.members.iter().map(|member| member.node.clone()));
        let links = cluster.members.iter().filter_map(|member| member.link.as_ref());
        trips.extend(links.map(|link| link.rtt_micros).filter(|micros| *micros > 0));
        if asked.insert(status.node.clone()) {
            for session in sessions(api)? {
                shared += count(&mut subscribers, &status.node, &session);
            }
        }
    }
    let missing = members.difference(&asked).count();
    if missing > 0 {
        let (all, told) = (members.len(), asked.len());
        return Err(Failure::usage(format!(
            "{told} of the {all} nodes were asked: give the HTTP APIs of the other {missing} behind the flags, \
             for nobody knows the subscribers of others one by one"
        )));
    }
    let watched = args.watch.map(|seconds| watch(&apis, seconds)).transpose()?;
    let (each_ms, each_from) = match (args.each_ms, watched.and_then(|watched| watched.each_ms)) {
        (Some(each), _) => (each, "as given"),
        (None, Some(each)) => (each, "measured: processor time per delivery"),
        (None, None) => (Site::SOURCE.each, "assumed"),
    };
    let link_ms = args.link_ms.or_else(|| mean_delay(&trips)).ok_or_else(|| {
        Failure::usage("no link has measured a round trip yet (is this a cluster of one node?): give --link-ms")
    })?;
    let site = Site { brokers: whole(members.len()), subscribers: total(&subscribers), link: link_ms, each: each_ms };
    let mut report = report(site, &subscribers);
    report.shared = shared;
    report.each_from = each_from;
    report.publications_per_s = watched.map(|watched| watched.publications_per_s);
    report.filters.truncate(args.limit);
    if args.api.json { out::json(&report) } else { out::line(&text(&report)) }
}

/// All sessions of a node.
fn sessions(api: &Api) -> Result<Vec<Session>, Failure> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get::<Sessions>(&format!("/api/v1/sessions?limit={PAGE}{cursor}"))?.value;
        all.extend(page.sessions);
        let Some(next) = page.next else { return Ok(all) };
        cursor = format!("&cursor={}", segment(&next));
    }
}

/// Adds the subscriptions of a session; says how many of them are shared.
fn count(subscribers: &mut Subscribers, node: &str, session: &Session) -> u32 {
    let mut shared = 0;
    for subscription in &session.subscriptions {
        if subscription.filter.starts_with(SHARED) {
            shared += 1;
        } else {
            *subscribers.entry(subscription.filter.clone()).or_default().entry(node.to_owned()).or_default() += 1;
        }
    }
    shared
}

/// Figures from the time of watching.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// Processor time of all nodes for each message that a client got; none if no client got any.
    each_ms: Option<f64>,
    publications_per_s: f64,
}

/// Processor seconds, deliveries, and publications between nodes since the nodes started.
fn counters(apis: &[Api]) -> Result<[f64; 3], Failure> {
    let mut sums = [0.0; 3];
    for api in apis {
        let page = api.text("/metrics")?;
        let names = ["process_cpu_seconds_total", "sedge_publishes_sent_total", "sedge_link_publications_sent_total"];
        for (sum, name) in sums.iter_mut().zip(names) {
            *sum += metric(&page, name);
        }
    }
    Ok(sums)
}

/// Sum of all samples of a metric.
fn metric(page: &str, name: &str) -> f64 {
    let sample = |line: &str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '{']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    page.lines().filter_map(sample).sum()
}

fn watch(apis: &[Api], seconds: u16) -> Result<Watched, Failure> {
    let before = counters(apis)?;
    sleep(Duration::from_secs(seconds.into()));
    let after = counters(apis)?;
    let [cpu, deliveries, publications] = [0, 1, 2].map(|at: usize| {
        let value = |sums: &[f64; 3]| sums.get(at).copied().unwrap_or(0.0);
        value(&after) - value(&before)
    });
    let each_ms = (deliveries > 0.0).then(|| cpu * 1e3 / deliveries);
    Ok(Watched { each_ms, publications_per_s: publications / f64::from(seconds) })
}

/// Half of the mean round trip in ms.
fn mean_delay(trips: &[u32]) -> Option<f64> {
    let sum: f64 = trips.iter().copied().map(f64::from).sum();
    (!trips.is_empty()).then(|| sum / whole(trips.len()) / 2e3)
}

/// Numbers of nodes and filters are far from where this is not exact.
fn whole(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

fn total(subscribers: &Subscribers) -> f64 {
    subscribers.values().flat_map(BTreeMap::values).copied().map(f64::from).sum()
}

fn report(site: Site, subscribers: &Subscribers) -> Report {
    let mut filters: Vec<Line> = subscribers.iter().map(|(filter, places)| line(site, filter, places)).collect();
    filters.sort_by(|a, b| b.subscribers.cmp(&a.subscribers).then_with(|| a.filter.cmp(&b.filter)));
    Report {
        nodes: rounded_up(site.brokers),
        subscribers: filters.iter().map(|line| line.subscribers).sum(),
        shared: 0,
        link_ms: site.link,
        each_ms: site.each,
        each_from: "as given",
        publications_per_s: None,
        filters_total: filters.len(),
        places: filters.iter().fold((0, 0), |sum, line| (sum.0 + line.nodes, sum.1 + line.advised_nodes)),
        filters,
    }
}

fn line(site: Site, filter: &str, places: &BTreeMap<String, u32>) -> Line {
    let subscribers: u32 = places.values().sum();
    let number = f64::from(subscribers);
    let most = places.values().copied().max().unwrap_or(0);
    let advice = site.advice(number);
    let (name, advised) = match advice {
        Advice::Intensive => ("intensive", number / site.share().max(1.0)),
        Advice::Extensive => ("extensive", number),
    };
    Line {
        filter: filter.to_owned(),
        subscribers,
        nodes: places.len(),
        now_ms: site.as_it_is(whole(places.len()), f64::from(most)),
        intensive_ms: site.intensive(number),
        extensive_ms: site.extensive(number),
        advice: name,
        advised_nodes: rounded_up(advised.min(site.brokers)).max(1),
    }
}

/// The number of nodes that hold so many shares.
fn rounded_up(number: f64) -> usize {
    (0..=u16::MAX).map(usize::from).find(|count| whole(*count) >= number).unwrap_or(usize::MAX)
}

fn text(report: &Report) -> String {
    let mut lines = vec![
        ("nodes", report.nodes.to_string()),
        (
            "subscribers",
            format!("{}, and {} of shared subscriptions, whose place is left out", report.subscribers, report.shared),
        ),
        ("delay between nodes", format!("{:.3} ms", report.link_ms)),
        ("time per subscriber", format!("{:.4} ms, {}", report.each_ms, report.each_from)),
    ];
    let model = "publications spread over a binary tree of nodes, as over skip-graph; over mesh one more node is one more copy, and no more delay";
    lines.push(("model", model.to_owned()));
    if let Some(rate) = report.publications_per_s {
        lines.push(("between nodes", format!("{rate:.1} publications per s")));
    }
    let (now, advised) = report.places;
    let saved = format!("nodes with subscribers, added up over all filters: {now} as it is, {advised} as advised");
    lines.push(("savings", saved));
    let ms = |ms: f64| format!("{ms:.2}");
    let row = |line: &Line| {
        vec![
            line.filter.clone(),
            line.subscribers.to_string(),
            line.nodes.to_string(),
            ms(line.now_ms),
            ms(line.intensive_ms),
            ms(line.extensive_ms),
            line.advice.to_owned(),
            line.advised_nodes.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = report.filters.iter().map(row).collect();
    let head = ["FILTER", "SUBSCRIBERS", "NODES", "NOW ms", "INTENSIVE ms", "EXTENSIVE ms", "ADVICE", "NODES THEN"];
    let more = report.filters_total.saturating_sub(rows.len());
    let rest = if more > 0 { format!("\n{more} more filters: --limit") } else { String::new() };
    format!("{}\n\n{}{rest}", pairs(&lines), table(&head, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SG-29: topics of few subscribers share a node, and one that all nodes have enough of is spread.
    #[test]
    fn advice_comes_from_the_counts_of_all_nodes() {
        let places = |counts: &[(&str, u32)]| counts.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
        let subscribers: Subscribers = [
            ("small".to_owned(), places(&[("a", 2), ("b", 2), ("c", 2)])),
            ("large".to_owned(), places(&[("a", 3_994)])),
        ]
        .into();
        let site = Site { brokers: 4.0, subscribers: total(&subscribers), link: 1.0, each: 0.01 };
        let report = report(site, &subscribers);
        assert_eq!((report.nodes, report.subscribers, report.filters_total), (4, 4_000, 2));
        let [large, small] = report.filters.as_slice() else { panic!("two filters") };
        assert_eq!(
            (large.filter.as_str(), large.advice, large.nodes, large.advised_nodes),
            ("large", "extensive", 1, 4)
        );
        assert_eq!((small.advice, small.nodes, small.advised_nodes), ("intensive", 3, 1));
        assert!((small.now_ms - 2.02).abs() < 1e-9 && (small.intensive_ms - 1.06).abs() < 1e-9, "{small:?}");
        assert!((large.now_ms - 40.94).abs() < 1e-9 && large.extensive_ms < large.now_ms, "{large:?}");
        assert_eq!(report.places, (4, 5));
        let shown = text(&report);
        assert!(shown.contains("4 as it is, 5 as advised") && shown.contains("extensive"), "{shown}");
    }

    #[test]
    fn delays_come_from_the_links_and_times_from_the_metrics() {
        assert_eq!((mean_delay(&[]), mean_delay(&[1_000, 3_000])), (None, Some(1.0)));
        let page = "# HELP x\nx_total{qos=\"0\"} 2\nx_total{qos=\"1\"} 3.5\nx_total_more 9\n";
        assert!((metric(page, "x_total") - 5.5).abs() < 1e-9);
        assert!(milliseconds("-1").is_err() && milliseconds("x").is_err());
        assert_eq!(milliseconds("0.5"), Ok(0.5));
    }
}
