//! `sedge rule speed`: how fast one core runs rules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use sedge_base::Timestamp;
use sedge_mqtt::{QoS, TopicName};
use sedge_rules::{Input, Item, Machine, Rule};

use crate::failure::Failure;
use crate::out;

/// Topics that messages come from in turn.
const TOPICS: usize = 1000;
/// Messages between two looks at the clock.
const BATCH: usize = 1000;

#[derive(Args, Debug)]
pub(crate) struct SpeedArgs {
    /// Seconds for each line
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// Runs `sedge rule speed`.
pub(crate) fn run(args: &SpeedArgs) -> Result<(), Failure> {
    let time = Duration::from_secs(args.seconds);
    let topics: Result<Vec<TopicName>, _> =
        (0..TOPICS).map(|number| TopicName::new(&format!("plant/line-{number}/temperature"))).collect();
    let topics = topics.map_err(|error| Failure::failed(error.to_string()))?;
    for (name, rule) in rules()? {
        let rate = measured(&Arc::new(rule), &topics, time);
        out::line(&format!("{name:<58} {rate:>10} a second"))?;
    }
    Ok(())
}

fn text(key: &str, text: &str) -> (String, Item) {
    (key.to_owned(), Item::Text(text.to_owned()))
}

fn rules() -> Result<Vec<(&'static str, Rule)>, Failure> {
    let select = |expressions: &[(&str, &str)]| {
        let entries = expressions.iter().map(|(name, expression)| text(name, expression)).collect();
        ("select".to_owned(), Item::Table(entries))
    };
    let ten_seconds = || ("window".to_owned(), Item::Table(vec![text("tumbling", "10s")]));
    let from = |filter: &str| [text("from", filter), text("to", "out")];
    let mut all: Vec<(&str, Vec<(String, Item)>)> = vec![
        ("filters evaluated, none matches", from("plant/+/pressure").to_vec()),
        ("conditions on a topic level, none true", vec![text("where", "topic[1] == 'line-x'")]),
        ("conditions on a field of 128 bytes, none true", vec![text("where", "payload.value < 0")]),
        ("messages passed on", Vec::new()),
        ("fields taken out of 128 bytes and put out", vec![select(&[("v", "payload.value")])]),
    ];
    let windows = [
        ("windows updated: count", [("n", "count()")].to_vec()),
        ("windows updated: mean of a field", [("mean", "mean(payload.value)")].to_vec()),
        (
            "windows updated: five aggregates of a field",
            [
                ("n", "count()"),
                ("mean", "mean(payload.value)"),
                ("min", "min(payload.value)"),
                ("max", "max(payload.value)"),
                ("median", "median(payload.value)"),
            ]
            .to_vec(),
        ),
    ];
    for (name, values) in windows {
        all.push((name, vec![text("group_by", "topic"), ten_seconds(), select(&values)]));
    }
    let compile = |(name, entries): (_, Vec<_>)| match Rule::compile("speed", &entries) {
        Ok(rule) => Ok((name, rule)),
        Err(errors) => Err(Failure::failed(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))),
    };
    all.into_iter().map(compile).collect()
}

/// Messages a second.
fn measured(rule: &Arc<Rule>, topics: &[TopicName], time: Duration) -> u128 {
    let head = r#"{"site":"north","unit":"C","tags":["a","b"],"nested":{"serial":"0123456789"},"value":21.5,"rest":""#;
    let payload = Bytes::from(format!("{head}{}\"}}", "x".repeat(126 - head.len())));
    let mut machine = Machine::new(Arc::clone(rule));
    let (start, mut messages, mut outputs) = (Instant::now(), 0_u128, 0_u64);
    let mut turn = topics.iter().cycle();
    while start.elapsed() < time {
        // A message is a hundred microseconds behind the one before it.
        let now = Timestamp::from_millis(u64::try_from(messages / 10).unwrap_or(u64::MAX));
        for topic in turn.by_ref().take(BATCH) {
            let input = Input {
                topic,
                payload: &payload,
                qos: QoS::AtLeastOnce,
                retain: false,
                properties: None,
                client: None,
            };
            machine.handle(now, &input);
            while machine.poll_output().is_some() {
                outputs += 1;
            }
        }
        messages += u128::try_from(BATCH).unwrap_or_default();
    }
    std::hint::black_box(outputs);
    messages * 1_000_000 / start.elapsed().as_micros().max(1)
}
