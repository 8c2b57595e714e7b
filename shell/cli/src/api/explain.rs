//! `sedge explain`.

use std::fmt::Write;

use clap::Args;
use sedge_base::printable;
use sedge_controller::segment;
use sedge_daemon::http::model::Explanation;

use super::commands::ApiArgs;
use crate::failure::Failure;
use crate::out;
use crate::table::pairs;

/// Flags of `sedge explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The client that would get the publication; its session may be at any node of the cluster
    #[arg(long, value_name = "ID")]
    client: String,
    /// Topic of the publication, without wildcards
    #[arg(long, value_name = "TOPIC")]
    topic: String,
    /// QoS of the publication
    #[arg(long, value_name = "QOS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Bytes of its payload
    #[arg(long, value_name = "N", default_value_t = 0)]
    bytes: usize,
    /// The client that would publish it: for No Local, and for the access rules that apply to it
    #[arg(long, value_name = "ID")]
    from: Option<String>,
    /// Its message expiry interval
    #[arg(long, value_name = "SECONDS")]
    expiry: Option<u32>,
    /// Ask for the retained message of the topic, which comes with a SUBSCRIBE
    #[arg(long, conflicts_with_all = ["from", "expiry"])]
    retained: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs `sedge explain`.
pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let ExplainArgs { client, topic, qos, bytes, from, expiry, retained, api } = args;
    let (client, topic) = (segment(client), segment(topic));
    let mut path = format!("/api/v1/explain?client={client}&topic={topic}&qos={qos}&bytes={bytes}&retained={retained}");
    if let Some(from) = from {
        let _ = write!(path, "&from={}", segment(from));
    }
    if let Some(expiry) = expiry {
        let _ = write!(path, "&expiry={expiry}");
    }
    let answer = api.client()?.get::<Explanation>(&path)?;
    if api.json { out::json_text(&answer.body) } else { out::line(&text(&answer.value)) }
}

fn text(explanation: &Explanation) -> String {
    let Explanation { client, topic, outcome, cause, detail, qos, filter, node, name, .. } = explanation;
    let (client, topic) = (printable(client), printable(topic));
    let head = match (outcome.as_str(), qos) {
        ("sent", Some(qos)) => format!("{client} would get a publication to {topic} at QoS {qos}"),
        ("waits", Some(qos)) => format!("a publication to {topic} would wait for {client}, at QoS {qos}"),
        _ => format!("{client} would not get a publication to {topic}"),
    };
    let mut rows = vec![("because", detail.clone()), ("cause", cause.clone())];
    rows.extend(filter.clone().map(|filter| ("subscription", filter)));
    rows.extend(node.as_ref().map(|node| ("node", name.as_ref().unwrap_or(node).clone())));
    format!("{head}\n{}", pairs(&rows))
}
