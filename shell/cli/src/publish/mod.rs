//! `sedge pub`.

mod lines;
mod source;

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use sedge_mqtt::{Publish, PublishProperties, TopicName};
use serde_json::json;

use self::lines::Lines;
use self::source::SourceArgs;
use crate::client::{ClientError, Connection, Outbox};
use crate::failure::Failure;
use crate::mqtt::{MqttArgs, Properties, Target};
use crate::out;

/// How long to listen to the broker between two looks at standard input.
const TURN: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  sedge pub -t kitchen/lamp -m on
  sedge pub -p 1884 -q 1 -r -t kitchen/temperature -m 21.5
  tail -f values.log | sedge pub -t log -l
  sedge pub -V 5 -t job -m go -D PUBLISH response-topic job/answer

Exit codes: 0 all was sent and, with QoS 1 and 2, acknowledged; the CONNACK code if the broker refuses the connection;
1 otherwise failed; 2 wrong usage.";

/// Publish messages; flags as of `mosquitto_pub`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct PubArgs {
    #[command(flatten)]
    mqtt: MqttArgs,
    /// Topic to publish to
    #[arg(short, long, value_name = "TOPIC", allow_hyphen_values = true, required_unless_present = "url")]
    topic: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
    /// Retain the message
    #[arg(short, long)]
    retain: bool,
    /// Publish the message N times (with -m, -n, -f and -s)
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "lines")]
    repeat: u64,
    /// Seconds between repetitions
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    repeat_delay: Option<Duration>,
    /// Most QoS 1 and 2 messages to have unacknowledged
    #[arg(short = 'M', long, value_name = "COUNT", default_value = "20", value_parser = clap::value_parser!(u16).range(1..))]
    max_inflight: u16,
    /// Print what was done as one line of JSON
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "use seconds, for example 0.5".to_owned();
    Duration::try_from_secs_f64(text.parse().ok().ok_or_else(wrong)?).ok().ok_or_else(wrong)
}

/// Runs `sedge pub`.
pub(crate) fn run(args: &PubArgs) -> Result<(), Failure> {
    publish_all(args).map_err(|failure| if args.mqtt.quiet { Failure::silent(failure.code) } else { failure })
}

fn publish_all(args: &PubArgs) -> Result<(), Failure> {
    let properties = Properties::parse(&args.mqtt.properties)?;
    let mut target = Target::new(&args.mqtt, &properties, "pub")?;
    let topic = topic(args, &target)?;
    // Before connecting: a file that cannot be read is found at once, and no keep alive runs while standard input is read.
    let payload = if args.source.lines { None } else { Some(args.source.read()?) };
    let (connection, _) = Connection::open_any(&mut target.servers, &target.connect, args.mqtt.debug)?;
    let mut sender = Sender::new(args, &properties, topic, connection);
    let done = match payload {
        Some(payload) => sender.repeat(&payload, args.repeat, args.repeat_delay.unwrap_or_default()),
        None => sender.send_lines(&Lines::of_stdin()?),
    };
    done.and_then(|()| sender.outbox.settle(&mut sender.connection).map_err(Failure::from))
        .map_err(|failure| sender.with_progress(failure))?;
    sender.finish(args, target)
}

fn topic(args: &PubArgs, target: &Target) -> Result<TopicName, Failure> {
    if target.url_topic.is_some() && args.topic.is_some() {
        return Err(Failure::usage("-t and -L both name a topic; give one"));
    }
    let text = args.topic.as_deref().or(target.url_topic.as_deref());
    let text = text.ok_or_else(|| Failure::usage("no topic: give one with -t, or at the end of -L"))?;
    TopicName::new(text).map_err(|error| Failure::usage(format!("-t {text}: {error}")))
}

/// A connection with the fields that all messages on it share.
struct Sender {
    connection: Connection,
    outbox: Outbox,
    template: Publish,
    sent: u64,
}

impl Sender {
    fn new(args: &PubArgs, properties: &Properties, topic: TopicName, connection: Connection) -> Self {
        let given = &properties.publish;
        let template = Publish {
            dup: false,
            qos: args.mqtt.qos,
            retain: args.retain,
            topic: Some(topic),
            packet_id: None,
            payload: Bytes::new(),
            properties: (*given != PublishProperties::default()).then(|| Box::new(given.clone())),
        };
        let outbox = Outbox::new(args.max_inflight, &connection);
        Self { connection, outbox, template, sent: 0 }
    }

    fn send(&mut self, payload: Bytes) -> Result<(), ClientError> {
        let publish = Publish { payload, ..self.template.clone() };
        self.outbox.publish(publish, &mut self.connection)?;
        self.sent += 1;
        Ok(())
    }

    fn repeat(&mut self, payload: &Bytes, times: u64, delay: Duration) -> Result<(), Failure> {
        for round in 0..times {
            let due = Instant::now() + delay;
            while round > 0 && Instant::now() < due {
                let left = due.saturating_duration_since(Instant::now());
                self.outbox.poll(left, &mut self.connection)?;
            }
            self.send(payload.clone())?;
        }
        Ok(())
    }

    fn send_lines(&mut self, lines: &Lines) -> Result<(), Failure> {
        loop {
            match lines.next(TURN)? {
                lines::Next::Line(line) => self.send(line)?,
                lines::Next::Nothing => self.outbox.poll(Duration::ZERO, &mut self.connection)?,
                lines::Next::End => return Ok(()),
            }
        }
    }

    /// The failure with the number of messages that were sent and not acknowledged.
    fn with_progress(&self, failure: Failure) -> Failure {
        let open = self.sent.saturating_sub(self.outbox.acknowledged());
        let Some(message) = failure.message else { return failure };
        if self.template.qos == sedge_mqtt::QoS::AtMostOnce || open == 0 {
            return Failure::new(failure.code, message);
        }
        Failure::new(failure.code, format!("{message}; {open} of {} messages sent were not acknowledged", self.sent))
    }

    fn finish(self, args: &PubArgs, target: Target) -> Result<(), Failure> {
        self.connection.close(target.disconnect);
        if args.json {
            out::json(&json!({
                "topic": self.template.topic.as_ref().map(TopicName::as_str),
                "qos": self.template.qos.as_u8(),
                "sent": self.sent,
                "acknowledged": self.outbox.acknowledged(),
                "refused": self.outbox.refusals(),
            }))?;
        }
        let refusals = self.outbox.refusals();
        let Some(first) = refusals.first() else { return Ok(()) };
        let count = refusals.len();
        Err(Failure::failed(format!("the broker refused {count} of {} messages: {first}", self.sent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_seconds() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["-1", "x", "inf", "nan"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
