//! `sedge rule`: rules without a cluster.

mod sample;
mod speed;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use sedge_base::Timestamp;
use sedge_daemon::config::read_rules;
use sedge_mqtt::TopicName;
use sedge_rules::{Counters, Machine, Output, Rule};
use serde::Serialize;
use serde_json::value::RawValue;

use self::sample::Sample;
use crate::failure::{Failure, USAGE};
use crate::out;

const EXAMPLES: &str = "\
Examples:
  sedge rule test sedge.toml < samples.jsonl
  sedge rule test sedge.toml --rule mean-10s < samples.jsonl
  sedge sub -t 'plant/#' --json -W 60 > samples.jsonl      samples from what runs

A sample is one line of JSON:
  {\"topic\": \"plant/a/temperature\", \"payload\": {\"value\": 21.5}, \"time\": 1000}
Beside topic and payload it may have qos, retain, client, time (milliseconds; else that of the sample before), and properties: user
properties by name, or as sedge sub --json writes them. At the end of the samples all windows close.

Exit codes: 0 done, 1 a sample cannot be read, 2 a rule is wrong.";

/// Try rules without a cluster.
#[derive(Subcommand, Debug)]
pub(crate) enum RuleCommand {
    Test(TestArgs),
    /// Print how many messages a second one core selects, looks into and aggregates
    Speed(speed::SpeedArgs),
}

/// Print what rules make of samples: one line of JSON for each message they put out
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TestArgs {
    /// File with [rule.NAME] sections; other sections are passed over
    file: PathBuf,
    /// Only these rules
    #[arg(long = "rule", value_name = "NAME")]
    rules: Vec<String>,
    /// Print at the end, on standard error, what each rule has counted
    #[arg(long)]
    counters: bool,
}

/// Runs `sedge rule`.
pub(crate) fn run(command: &RuleCommand) -> Result<(), Failure> {
    match command {
        RuleCommand::Test(args) => test(args),
        RuleCommand::Speed(args) => speed::run(args),
    }
}

#[derive(Serialize)]
struct Line<'a> {
    rule: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(flatten)]
    payload: Payload<'a>,
    qos: u8,
    retain: bool,
    time: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Payload<'a> {
    Json { payload: &'a RawValue },
    Text { payload: &'a str },
    Binary { payload_hex: String },
}

impl<'a> Payload<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        if let Ok(payload) = serde_json::from_slice(bytes) {
            return Self::Json { payload };
        }
        if let Ok(payload) = std::str::from_utf8(bytes) {
            return Self::Text { payload };
        }
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
        Self::Binary { payload_hex: digits.collect() }
    }
}

fn test(args: &TestArgs) -> Result<(), Failure> {
    let rules = read_rules(&args.file).map_err(|error| Failure::new(USAGE, error.to_string()))?;
    let mut machines: Vec<Machine> = chosen(&rules, &args.rules)?.into_iter().map(machine).collect();
    // Without a time of their own samples arrive now, so that times within payloads of today are believed.
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let mut now = Timestamp::from_millis(u64::try_from(started).unwrap_or(0));
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let at = |what: String| Failure::failed(format!("sample {}: {what}", number + 1));
        let line = line.map_err(|error| at(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let sample = Sample::parse(&line).map_err(at)?;
        now = sample.time.unwrap_or(now);
        for machine in &mut machines {
            run_until(machine, now)?;
            machine.handle(now, &sample.input());
            if let Some(why) = machine.take_broken() {
                return Err(at(why));
            }
            if let Some(what) = machine.take_note() {
                out::note(&format!("sample {}: {}: {what}", number + 1, machine.rule().name()));
            }
            print(machine, now)?;
        }
    }
    for machine in &mut machines {
        run_until(machine, Timestamp::from_millis(u64::MAX))?;
        if args.counters {
            out::note(&counted(machine.rule().name(), machine.counters()));
        }
    }
    Ok(())
}

/// A machine for a rule, with a worker for the rule's program if there is one.
fn machine(rule: Arc<Rule>) -> Machine {
    #[cfg_attr(not(feature = "jq"), expect(unused_mut, reason = "no rule of this build has a program"))]
    let mut machine = Machine::new(rule);
    #[cfg(feature = "jq")]
    if let Some(jq) = machine.rule().jq().cloned() {
        machine.run_programs_by(Box::new(sedge_bridge::jq::Worker::new(jq, Box::new(|| true))));
    }
    machine
}

fn chosen(rules: &BTreeMap<String, Arc<Rule>>, names: &[String]) -> Result<Vec<Arc<Rule>>, Failure> {
    if let Some(unknown) = names.iter().find(|name| !rules.contains_key(*name)) {
        let known: Vec<&str> = rules.keys().map(String::as_str).collect();
        return Err(Failure::usage(format!("there is no rule {unknown:?} in this file; it has {}", known.join(", "))));
    }
    let wanted = |name: &String| names.is_empty() || names.contains(name);
    Ok(rules.iter().filter(|(name, _)| wanted(name)).map(|(_, rule)| Arc::clone(rule)).collect())
}

/// Closes windows when they are due, as a node does.
fn run_until(machine: &mut Machine, end: Timestamp) -> Result<(), Failure> {
    while let Some(due) = machine.poll_timeout().filter(|due| *due < end) {
        machine.handle_timeout(due);
        print(machine, due)?;
    }
    Ok(())
}

fn print(machine: &mut Machine, now: Timestamp) -> Result<(), Failure> {
    while let Some(Output { topic, payload, qos, retain, .. }) = machine.poll_output() {
        out::json(&Line {
            rule: machine.rule().name(),
            topic: topic.as_ref().map(TopicName::as_str),
            payload: Payload::of(&payload),
            qos: qos.as_u8(),
            retain,
            time: now.as_millis(),
        })?;
    }
    Ok(())
}

fn counted(name: &str, counters: Counters) -> String {
    let Counters {
        seen,
        selected,
        outputs,
        held_back,
        late,
        bad_time,
        loops,
        too_large,
        over_limit,
        closed_early,
        undecodable,
        unknown_metrics,
        rebirths,
        jq_failed,
        jq_over_budget,
        failed,
    } = counters;
    format!(
        "{name}: seen {seen}, selected {selected}, outputs {outputs}, held back {held_back}, late {late}, bad time {bad_time}, \
         loops {loops}, too large {too_large}, over limit {over_limit}, closed early {closed_early}, undecodable {undecodable}, unknown metrics {unknown_metrics}, \
         rebirths {rebirths}, jq failed {jq_failed}, jq over budget {jq_over_budget}, failed {failed}"
    )
}
