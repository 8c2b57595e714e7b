//! Requests on which the dashboard rests: its files, sorted lists, events and history.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sedge_daemon::Daemon;
use sedge_mqtt::QoS;

use crate::common::*;

fn node() -> Daemon {
    let node = Daemon::start(&config(&[])).unwrap();
    eventually("the node is ready", || get(&node, "/health/ready").0 == 200);
    node
}

fn json(node: &Daemon, path: &str) -> serde_json::Value {
    let (status, body) = get(node, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// Clients of all pages.
fn listed(node: &Daemon, query: &str) -> Vec<String> {
    let (mut clients, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = json(node, &format!("/api/v1/sessions?{query}{cursor}"));
        let found =
            page["sessions"].as_array().unwrap().iter().map(|session| session["client"].as_str().unwrap().to_owned());
        clients.extend(found);
        let Some(next) = page["next"].as_str() else { return clients };
        cursor = format!("&cursor={next}");
    }
}

#[test]
fn sessions_are_sorted_searched_and_paged_by_the_node() {
    let node = node();
    let mut publisher = Client::connect(&node, "Publisher").0;
    for number in 0..12 {
        let (mut client, _) = Client::connect(&node, &format!("s-{number:02}"));
        client.subscribe(&format!("q/{number}"), QoS::AtLeastOnce);
    }
    eventually("they are away", || json(&node, "/api/v1/sessions?connected=false")["total"] == 12);
    for number in 0..12 {
        for _ in 0..number {
            publisher.publish(&format!("q/{number}"), b"x", false);
        }
    }
    let names: Vec<String> = (0..12).map(|number| format!("s-{number:02}")).collect();
    let upward: Vec<String> = std::iter::once("Publisher".to_owned()).chain(names.clone()).collect();
    let downward: Vec<String> = upward.iter().rev().cloned().collect();
    for limit in [1, 5, 12, 13, 100] {
        assert_eq!(listed(&node, &format!("limit={limit}&sort=client")), upward, "{limit}");
        assert_eq!(listed(&node, &format!("limit={limit}&sort=client&order=desc")), downward, "{limit}");
    }
    let queues = listed(&node, "limit=5&sort=queued&connected=false");
    assert_eq!(queues, names.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(listed(&node, "limit=5&sort=queued&order=asc&connected=false"), names);
    assert_eq!(listed(&node, "search=S-1"), ["s-10", "s-11"]);
    assert_eq!(listed(&node, "search=publisher&sort=inflight"), ["Publisher"]);
    assert_eq!(listed(&node, "connected=true&search=127.0.0.1"), ["Publisher"]);
    assert_eq!(json(&node, "/api/v1/sessions?sort=bytes&limit=2")["total"], 13);
    for wrong in ["sort=x", "order=up", "sort=client&cursor=x", "sort=client&offset=1", "sort=client&limit=0"] {
        assert_eq!(get(&node, &format!("/api/v1/sessions?{wrong}")).0, 400, "{wrong}");
    }
}

/// A stream of events that is open.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(node: &Daemon, query: &str) -> Self {
        let mut stream = TcpStream::connect(node.addresses().http.unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /api/v1/events{query} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    fn status(&mut self) -> u16 {
        self.line().split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The data of the next event of this kind that has `wanted` in it.
    fn data(&mut self, kind: &str, wanted: &str) -> serde_json::Value {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.line() == format!("event: {kind}") {
                let line = self.line();
                let data = line.strip_prefix("data: ").unwrap();
                if data.contains(wanted) {
                    return serde_json::from_str(data).unwrap();
                }
            }
        }
        panic!("no event {kind} with {wanted}");
    }
}

#[test]
fn what_happens_is_told_while_it_happens_and_afterwards() {
    let node = node();
    let (client, _) = Client::connect(&node, "early");
    let mut stream = Stream::open(&node, "");
    let early = stream.data("happened", "early");
    assert_eq!((&early["kind"], &early["client"]), (&"connected".into(), &"early".into()));
    let totals = stream.data("totals", "connections");
    assert_eq!(totals["connections"], 1, "{totals}");
    drop(client);
    let gone = stream.data("happened", "disconnected");
    assert!(gone["id"].as_u64() > early["id"].as_u64() && gone["at_ms"].as_u64() >= early["at_ms"].as_u64());
    let mut again = Stream::open(&node, &format!("?after={}", early["id"]));
    assert_eq!(again.data("happened", "")["id"], gone["id"], "what was known is not told again");
    let mut other_life = Stream::open(&node, "?after=1000000");
    assert_eq!(other_life.data("happened", "")["id"], 1, "a number of another life counts for nothing");
    let (_, metrics) = get(&node, "/metrics");
    for line in ["sedge_event_streams 3", "sedge_events_dropped_total 0", "sedge_history_samples "] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn streams_have_a_limit_and_do_not_hold_the_node_up() {
    let node = node();
    let mut streams: Vec<Stream> = (0..16).map(|_| Stream::open(&node, "")).collect();
    for stream in &mut streams {
        assert_eq!(stream.status(), 200);
    }
    let (status, body) = get(&node, "/api/v1/events");
    assert!(status == 503 && body.contains("too_many_streams"), "{status} {body}");
    streams.truncate(1);
    eventually("there is room again", || Stream::open(&node, "").status() == 200);
    let began = Instant::now();
    node.stop();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn the_page_and_its_rules_come_from_the_node() {
    let node = node();
    let (status, page) = get(&node, "/");
    assert!(status == 200 && page.contains("<script type=\"module\" src=\"/app.js\">"), "{page}");
    let head = |headers: &str| {
        let mut stream = TcpStream::connect(node.addresses().http.unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "HEAD /app.js HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n").unwrap();
        std::io::read_to_string(stream).unwrap().to_lowercase()
    };
    let told = head("Accept-Encoding: gzip, br\r\n");
    for line in
        ["content-encoding: br", "default-src 'none'", "frame-ancestors 'none'", "x-content-type-options: nosniff"]
    {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    let tag = told.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert!(head(&format!("Accept-Encoding: br\r\nIf-None-Match: {tag}\r\n")).starts_with("http/1.1 304"));
    assert!(head(&format!("If-None-Match: {tag}\r\n")).starts_with("http/1.1 200"), "another form is another file");
    assert_eq!(request(&node, "POST", "/").0, 405);
}

#[test]
fn history_can_be_asked_for_in_bounds() {
    let node = node();
    let history = json(&node, "/api/v1/history?minutes=60&points=10");
    assert_eq!(history["series"].as_array().unwrap().len(), 11);
    for wrong in ["minutes=0", "minutes=1441", "points=0", "points=2001", "minutes=x"] {
        assert_eq!(get(&node, &format!("/api/v1/history?{wrong}")).0, 400, "{wrong}");
    }
}
