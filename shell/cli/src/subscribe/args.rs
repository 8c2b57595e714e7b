//! Flags of `sedge sub`.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::format::Format;
use crate::mqtt::MqttArgs;

const EXAMPLES: &str = "\
Examples:
  sedge sub -t 'kitchen/#' -v
  sedge sub -p 1884 -q 1 -t alarm -C 1 -W 10
  sedge sub -t '#' -F '%I %t (%l bytes): %p'
  sedge sub -t '#' --json | jq .topic

Formats (-F):
  %t topic                    %p payload                  %x %X payload in hexadecimal digits
  %l payload length           %q QoS                      %r retain flag, 0 or 1
  %m packet id                %i client id of this sub    %j all as JSON, payload as text
  %J all as JSON, payload as the JSON it is               %I time of arrival, ISO 8601 in UTC
  %U time of arrival, Unix seconds                        %% a percent sign
  MQTT 5: %A topic alias, %C content type, %D correlation data, %E message expiry, %F payload format indicator,
  %P user properties, %R response topic, %S subscription identifiers
  Escapes: \\n \\r \\t \\a \\e \\0 \\v \\\\

Exit codes: 0 done; the CONNACK code if the broker refuses the connection; 27 the time of -W is over; 1 otherwise
failed; 2 wrong usage.";

/// Subscribe and print what comes; flags as of `mosquitto_sub`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(disable_help_flag = true, after_help = EXAMPLES)]
pub(crate) struct SubArgs {
    #[command(flatten)]
    pub(super) mqtt: MqttArgs,
    /// Topic filter to subscribe to; may be repeated
    #[arg(short, long = "topic", value_name = "FILTER", action = ArgAction::Append, allow_hyphen_values = true,
          required_unless_present_any = ["url", "unsubscribe"])]
    pub(super) topics: Vec<String>,
    /// Topic filter whose messages are not printed; may be repeated
    #[arg(short = 'T', long, value_name = "FILTER", action = ArgAction::Append)]
    pub(super) filter_out: Vec<String>,
    /// Topic filter to unsubscribe from; may be repeated
    #[arg(short = 'U', long, value_name = "FILTER", action = ArgAction::Append)]
    pub(super) unsubscribe: Vec<String>,
    /// End after COUNT messages
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,
    /// End after SECONDS, with exit code 27
    #[arg(short = 'W', value_name = "SECONDS", value_parser = parse_timeout)]
    pub(super) timeout: Option<Duration>,
    /// End as soon as the broker has acknowledged the subscriptions
    #[arg(short = 'E')]
    pub(super) exit_after_sub: bool,
    /// Do not print retained messages
    #[arg(short = 'R')]
    pub(super) no_retained: bool,
    /// Print retained messages only, and end at the first other one
    #[arg(long, conflicts_with = "no_retained")]
    pub(super) retained_only: bool,
    /// Keep the retain flag of what was published retained, also when it is not a retained message that comes (MQTT 5)
    #[arg(long)]
    pub(super) retain_as_published: bool,
    /// Print only this share of the messages, drawn at random: 0 to 100 percent
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(super) random_filter: Option<f64>,
    /// Remove every retained message that comes and is not filtered out
    #[arg(long)]
    pub(super) remove_retained: bool,
    /// Print the topic before the payload
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Print no line end after a message
    #[arg(short = 'N')]
    pub(super) no_line_end: bool,
    /// How to print a message; see below
    #[arg(short = 'F', value_name = "FORMAT", value_parser = Format::parse, allow_hyphen_values = true,
          conflicts_with_all = ["verbose", "json"])]
    pub(super) format: Option<Format>,
    /// Print one JSON object per message
    #[arg(long, conflicts_with = "verbose")]
    pub(super) json: bool,
    /// Print JSON of %j, %J and --json over several lines
    #[arg(long)]
    pub(super) pretty: bool,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=100.0).contains(share));
    share.ok_or_else(|| "use a number from 0 to 100".to_owned())
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..=31_536_000) => Ok(Duration::from_secs(seconds)),
        _ => Err("use whole seconds, at least 1".to_owned()),
    }
}
