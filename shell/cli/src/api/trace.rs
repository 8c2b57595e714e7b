//! `sedge trace`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use sedge_base::printable;
use sedge_controller::segment;
use sedge_daemon::http::model::{Explanation, Trace, TraceNote, TraceNotes};

use super::client::Api;
use super::commands::ApiArgs;
use crate::failure::Failure;
use crate::out;
use crate::stop::Stop;

/// How often the nodes are asked.
const EVERY: Duration = Duration::from_millis(300);
/// When nothing of a client's part has come for so long, it is asked for why.
const PATIENCE_US: u64 = 1_000_000;
/// Publications that are remembered, for numbers and times; the oldest is forgotten for one more.
const REMEMBERED_MAX: usize = 10_000;

/// Flags of `sedge trace`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["client", "topic"]).required(true).multiple(true))]
pub(crate) struct TraceArgs {
    /// Follow what this client publishes, and what comes to its subscriptions; its session may be at any node of the cluster
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Follow publications to this topic filter; with --client its part in them, with the reason if it gets none
    #[arg(long, value_name = "FILTER")]
    topic: Option<String>,
    /// Follow one publication of N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
    /// End after so many seconds, up to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// End when so many publications were seen and nothing of them has come for a second
    #[arg(long, value_name = "N")]
    count: Option<usize>,
    #[command(flatten)]
    api: ApiArgs,
}

/// A publication as far as the trace has seen it.
#[derive(Debug)]
struct Seen {
    number: usize,
    first_us: u64,
    topic: String,
    publisher: Option<String>,
    qos: u8,
    bytes: usize,
    /// Shared subscriptions that got it, and for each the member whose turn it was.
    shares: Vec<(String, String)>,
    /// Whether it is told what became of the publication at the client that is watched; true at once if no client or no topic was given.
    is_told: bool,
}

/// Runs `sedge trace`. The trace ends with the command, or by itself when that is killed.
pub(crate) fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let api = args.api.client()?;
    let mut path = format!("/api/v1/traces?one_in={}&seconds={}", args.one_in, args.seconds);
    for (name, value) in [("client", &args.client), ("topic", &args.topic)] {
        if let Some(value) = value {
            let _ = write!(path, "&{name}={}", segment(value));
        }
    }
    let begun = api.post::<Trace>(&path)?.value;
    if !args.api.json {
        out::line(&head(&begun, args.seconds))?;
    }
    let stop = Stop::on_signals()?;
    let mut watch = Watch { args, api: &api, seen: BTreeMap::new(), count: 0, dropped: 0, last_news: Instant::now() };
    let until = Instant::now() + Duration::from_secs(u64::from(args.seconds));
    let mut cursor = None;
    let mut result = Ok(());
    while result.is_ok() && Instant::now() < until && !stop.told() && !watch.is_done() {
        std::thread::sleep(EVERY);
        result = watch.round(begun.id, &mut cursor);
    }
    api.end(&format!("/api/v1/traces/{}", begun.id));
    result
}

fn head(trace: &Trace, seconds: u32) -> String {
    let client = trace.client.as_ref().map(|client| format!("client {}", printable(client)));
    let topics = (!trace.topics.is_empty()).then(|| format!("topics {}", printable(&trace.topics.join(", "))));
    let what: Vec<_> = client.into_iter().chain(topics).collect();
    let mut text = format!("following {} at all nodes for {seconds} s", what.join(", "));
    if !trace.silent.is_empty() {
        let _ = write!(text, "; not at {}", printable(&trace.silent.join(", ")));
    }
    text
}

struct Watch<'a> {
    args: &'a TraceArgs,
    api: &'a Api,
    seen: BTreeMap<String, Seen>,
    /// Publications so far.
    count: usize,
    dropped: u64,
    last_news: Instant,
}

impl Watch<'_> {
    fn is_done(&self) -> bool {
        let quiet = self.last_news.elapsed() > Duration::from_secs(1) && self.seen.values().all(|seen| seen.is_told);
        quiet && self.args.count.is_some_and(|count| self.count >= count)
    }

    /// Asks for the new notes and prints them.
    fn round(&mut self, id: u64, cursor: &mut Option<String>) -> Result<(), Failure> {
        let from = cursor.as_ref().map(|cursor| format!("?cursor={}", segment(cursor))).unwrap_or_default();
        let page = self.api.get::<TraceNotes>(&format!("/api/v1/traces/{id}{from}"))?.value;
        let newest = page.notes.iter().map(|note| note.at_us).max();
        for note in page.notes {
            self.last_news = Instant::now();
            self.tell(&note)?;
        }
        if page.dropped > self.dropped {
            self.remark(&format!("{} notes were dropped; use --one-in", page.dropped - self.dropped))?;
            self.dropped = page.dropped;
        }
        if !page.silent.is_empty() {
            self.remark(&format!("no answer in time from {}", printable(&page.silent.join(", "))))?;
        }
        *cursor = Some(page.next);
        self.explain_silence(newest)
    }

    /// Says something about the trace itself: not among the notes of a program.
    fn remark(&self, text: &str) -> Result<(), Failure> {
        if self.args.api.json {
            out::note(text);
            return Ok(());
        }
        out::line(text)
    }

    fn tell(&mut self, note: &TraceNote) -> Result<(), Failure> {
        let watched = self.args.client.as_deref();
        if !self.seen.contains_key(&note.publication) {
            self.count += 1;
            if self.seen.len() >= REMEMBERED_MAX {
                let oldest = self.seen.iter().min_by_key(|(_, seen)| seen.number).map(|(key, _)| key.clone());
                oldest.and_then(|oldest| self.seen.remove(&oldest));
            }
            let seen = Seen {
                number: self.count,
                first_us: note.at_us,
                topic: note.topic.clone(),
                publisher: None,
                qos: 0,
                bytes: 0,
                shares: Vec::new(),
                // Only with both is it asked whether the one gets the other.
                is_told: watched.is_none() || self.args.topic.is_none(),
            };
            self.seen.insert(note.publication.clone(), seen);
        }
        let Some(seen) = self.seen.get_mut(&note.publication) else { return Ok(()) };
        // Clocks of nodes differ: the note of the entry need not be the first.
        if note.step == "received" {
            (seen.publisher, seen.qos) = (note.client.clone(), note.qos.unwrap_or(0));
            seen.bytes = note.bytes.unwrap_or(0);
        }
        let is_about = watched.is_some() && note.client.as_deref() == watched;
        seen.is_told |= note.step == "refused" || (is_about && note.step == "session");
        if let (Some(filter), Some(client)) = (&note.filter, &note.client)
            && note.step == "session"
            && filter.starts_with("$share/")
        {
            seen.shares.push((filter.clone(), client.clone()));
        }
        if self.args.api.json { out::json(note) } else { out::line(&line(seen, note)) }
    }

    /// Of publications in which the client had no part, asks why.
    fn explain_silence(&mut self, newest: Option<u64>) -> Result<(), Failure> {
        let Some(client) = &self.args.client else { return Ok(()) };
        let quiet = self.last_news.elapsed() > Duration::from_secs(1);
        let is_old = |seen: &Seen| quiet || newest.is_some_and(|newest| newest > seen.first_us + PATIENCE_US);
        let due: Vec<String> = self
            .seen
            .iter()
            .filter(|(_, seen)| !seen.is_told && is_old(seen))
            .map(|(publication, _)| publication.clone())
            .collect();
        for publication in due {
            let Some(seen) = self.seen.get_mut(&publication) else { continue };
            seen.is_told = true;
            let mut path = format!("/api/v1/explain?client={}&topic={}", segment(client), segment(&seen.topic));
            let _ = write!(path, "&qos={}&bytes={}", seen.qos, seen.bytes);
            if let Some(publisher) = &seen.publisher {
                let _ = write!(path, "&from={}", segment(publisher));
            }
            let mut said = self.api.get::<Explanation>(&path)?.value;
            let turn = seen.shares.iter().find(|(filter, _)| Some(filter) == said.filter.as_ref());
            if let Some((_, member)) = turn.filter(|_| said.gets) {
                "not".clone_into(&mut said.outcome);
                "shared_elsewhere".clone_into(&mut said.cause);
                said.detail = format!("one member of the shared subscription gets it; it was the turn of {member:?}");
            }
            let note = TraceNote {
                publication,
                topic: seen.topic.clone(),
                at_us: seen.first_us + PATIENCE_US,
                node: said.node.clone().unwrap_or_default(),
                name: said.name.clone().unwrap_or_else(|| "-".to_owned()),
                step: "explained".to_owned(),
                client: Some(client.clone()),
                outcome: Some(said.outcome),
                cause: Some(said.cause),
                detail: Some(said.detail),
                filter: said.filter,
                ..TraceNote::default()
            };
            if self.args.api.json { out::json(&note)? } else { out::line(&line(seen, &note))? }
        }
        Ok(())
    }
}

/// A note as a line: number of the publication, time since its first note, node, event.
fn line(seen: &Seen, note: &TraceNote) -> String {
    let after = note.at_us.saturating_sub(seen.first_us);
    let time = format!("+{}.{:03} ms", after / 1_000, after % 1_000);
    let text = what(note);
    format!("#{:<4} {time:>14}  {}  {}", seen.number, printable(&note.name), printable(&text))
}

fn what(note: &TraceNote) -> String {
    let client = note.client.as_deref().unwrap_or("the broker");
    let qos = note.qos.map(|qos| format!(" at QoS {qos}")).unwrap_or_default();
    let filter = note.filter.as_ref().map(|filter| format!(", subscription {filter}")).unwrap_or_default();
    let nodes = note.nodes.join(", ");
    let cause = note.cause.as_deref().unwrap_or("unknown");
    let text = match (note.step.as_str(), note.outcome.as_deref()) {
        ("received", _) => {
            format!("{} came from {client}{qos}, {} bytes", note.topic, note.bytes.unwrap_or(0))
        }
        ("refused", _) => format!("{} of {client} is not taken", note.topic),
        ("routed", _) if nodes.is_empty() => "goes to no other node".to_owned(),
        ("routed", _) => format!("goes to {nodes}"),
        ("came", _) => format!("came from {nodes}"),
        ("came_again", _) => format!("came from {nodes} once more and is not delivered again"),
        ("copied", _) => "is copied to other nodes".to_owned(),
        ("explained", Some("sent" | "waits")) => format!("nothing was noted of {client}, who would get it now"),
        ("session", Some("sent")) => format!("{client} gets it{qos}{filter}"),
        ("session", Some("waits")) => format!("it waits for {client}{qos}{filter}; {cause}"),
        ("session" | "explained", _) => format!("{client} does not get it; {cause}{filter}"),
        ("sent", _) => format!("sent to {client}{qos}"),
        ("acknowledged", _) => format!("acknowledged by {client}"),
        ("dropped", _) => format!("dropped for {client}; {cause}"),
        ("answered", _) => format!("{client} has its acknowledgement"),
        (other, _) => other.to_owned(),
    };
    match &note.detail {
        Some(detail) => format!("{text}: {detail}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(step: &str) -> TraceNote {
        let (topic, name) = ("a/b".to_owned(), "attic".to_owned());
        TraceNote {
            topic,
            name,
            at_us: 1_001_250,
            step: step.to_owned(),
            client: Some("lamp".to_owned()),
            ..TraceNote::default()
        }
    }

    #[test]
    fn a_line_says_when_where_and_what() {
        let seen = Seen {
            number: 3,
            first_us: 1_000_000,
            topic: "a/b".to_owned(),
            publisher: None,
            qos: 1,
            bytes: 0,
            shares: Vec::new(),
            is_told: true,
        };
        assert_eq!(line(&seen, &note("acknowledged")), "#3         +1.250 ms  attic  acknowledged by lamp");
        let dropped = TraceNote { cause: Some("expired".to_owned()), ..note("dropped") };
        assert!(line(&seen, &dropped).ends_with("dropped for lamp; expired"));
        let (outcome, cause) = (Some("not".to_owned()), Some("no_match".to_owned()));
        let not = TraceNote { outcome, cause, detail: Some("nothing is near".to_owned()), ..note("explained") };
        assert!(line(&seen, &not).ends_with("lamp does not get it; no_match: nothing is near"));
    }
}
