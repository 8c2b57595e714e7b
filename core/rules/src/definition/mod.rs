//! A rule as its user writes it, checked and compiled.

mod jq;
mod read;
mod select;
mod text;

use std::collections::BTreeSet;
use std::sync::Arc;

use sedge_base::StableHash;
use sedge_mqtt::{QoS, TopicFilter};
use sedge_sparkplug::NAMESPACE;

use crate::aggregate::Aggregate;
use crate::error::RuleError;
use crate::expression::{Expression, Field};
use crate::limits::Limits;
use crate::template::Template;
use crate::window::Windowing;

pub use self::jq::Jq;

/// Longest name of a rule, and what it may consist of, as in the names of listeners.
const NAME_BYTES_MAX: usize = 32;

/// Keys of a rule, for messages and documents.
pub const KEYS: [&str; 21] = [
    "from",
    "decode",
    "rebirth",
    "to",
    "where",
    "group_by",
    "window",
    "select",
    "jq",
    "on_change",
    "deadband",
    "qos",
    "retain",
    "max_groups",
    "max_state",
    "max_windows",
    "max_payload",
    "max_time",
    "max_outputs",
    "max_output",
    "overflow",
];

/// A value of a configuration file, whatever language it is written in.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A string.
    Text(String),
    /// A number.
    Number(f64),
    /// True or false.
    Bool(bool),
    /// A list.
    List(Vec<Self>),
    /// Keys with values, in the order in which they are written.
    Table(Vec<(String, Self)>),
    /// Something else, by the name of its kind.
    Other(&'static str),
}

/// A rule that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub(crate) name: Arc<str>,
    pub(crate) from: Vec<TopicFilter>,
    pub(crate) to: Option<Template>,
    /// Without `to`: prefix of the topic that a message came from.
    pub(crate) below: Option<String>,
    pub(crate) decode: Decode,
    pub(crate) condition: Option<Expression>,
    pub(crate) group_by: Vec<Expression>,
    pub(crate) window: Option<Windowing>,
    pub(crate) select: Select,
    /// The program that has the place of `select`.
    pub(crate) jq: Option<Jq>,
    /// The selected values that are compared with those put out last; empty: everything is put out.
    pub(crate) watched: Vec<Watched>,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) limits: Limits,
    pub(crate) fields: Vec<Field>,
    pub(crate) aggregates: Vec<Aggregate>,
    /// The same for rules whose state can be exchanged.
    pub(crate) fingerprint: u64,
}

/// How a rule decodes payloads before it looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decode {
    /// Nothing.
    No,
    /// Payloads of Sparkplug B become JSON.
    Sparkplug {
        /// Whether edge nodes are asked for births that are missing.
        asks: bool,
    },
}

/// Source of an output's payload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Select {
    /// The payload of the input, unchanged.
    Payload,
    /// The value of one expression.
    One(Expression),
    /// A JSON object, its members in the order of the rule.
    Object(Vec<(String, Expression)>),
}

/// A selected value that has to move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Watched {
    /// Its number in the selection.
    pub(crate) number: usize,
    pub(crate) band: Band,
}

/// How far a value has to move to be put out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Band {
    /// At all.
    Any,
    /// By more than this.
    Absolute(f64),
    /// By more than this part of the value that was put out last.
    Relative(f64),
}

/// Numbers of a rule are finite.
impl Eq for Rule {}

impl Rule {
    /// Compiles the rule `name` from its keys. Reports everything that is wrong, not only the first thing.
    pub fn compile(name: &str, entries: &[(String, Item)]) -> Result<Self, Vec<RuleError>> {
        read::rule(name, entries)
    }

    /// Its name: lower-case letters, digits, `-` and `_`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Filters that the rule listens to; empty: the owner chooses the rule's messages.
    pub fn from(&self) -> &[TopicFilter] {
        &self.from
    }

    /// Filters that the rule subscribes to: its own, and those of the Sparkplug B births without which it could not read payloads.
    pub fn hears(&self) -> Vec<TopicFilter> {
        let mut filters = self.from.clone();
        if self.reads_sparkplug() {
            let births = births_of(&self.from).into_iter();
            filters.extend(births.filter(|birth| !self.from.contains(birth)));
        }
        filters
    }

    /// Whether payloads of Sparkplug B become JSON for it.
    pub const fn reads_sparkplug(&self) -> bool {
        matches!(self.decode, Decode::Sparkplug { .. })
    }

    /// The rule for an owner that names it and has its own filters and topics: an output goes to the topic of its input, or of the last
    /// message of its window, behind `prefix`.
    #[must_use]
    pub fn below(&self, from: Vec<TopicFilter>, prefix: &str) -> Self {
        Self { from, to: None, below: Some(prefix.to_owned()), ..self.clone() }
    }

    /// Whether it has a `to` of its own.
    pub const fn has_topic(&self) -> bool {
        self.to.is_some()
    }

    /// Whether it aggregates over a window.
    pub const fn has_window(&self) -> bool {
        self.window.is_some()
    }

    /// The jq program that makes the rule's outputs, if it has one: the owner gives the machine a program runner.
    pub const fn jq(&self) -> Option<&Jq> {
        self.jq.as_ref()
    }

    /// Whether the rule's outputs depend on earlier messages.
    pub const fn has_state(&self) -> bool {
        self.window.is_some() || !self.watched.is_empty()
    }

    /// Quality of service of the rule's outputs.
    pub const fn qos(&self) -> QoS {
        self.qos
    }

    /// Its limits.
    pub const fn limits(&self) -> Limits {
        self.limits
    }
}

/// Filters of all births of the groups that these filters name.
fn births_of(from: &[TopicFilter]) -> Vec<TopicFilter> {
    let group = |filter: &TopicFilter| {
        let mut levels = filter.as_str().split('/');
        let group = levels.nth(1).filter(|_| filter.as_str().starts_with(NAMESPACE))?;
        (!group.contains(['+', '#'])).then(|| group.to_owned())
    };
    let groups: Option<BTreeSet<String>> = from.iter().map(group).collect();
    let groups = groups.filter(|groups| !groups.is_empty()).unwrap_or_else(|| BTreeSet::from(["+".to_owned()]));
    let births = |group: &String| [format!("{NAMESPACE}/{group}/NBIRTH/+"), format!("{NAMESPACE}/{group}/DBIRTH/+/+")];
    groups.iter().flat_map(births).filter_map(|filter| TopicFilter::new(&filter).ok()).collect()
}

/// A number that differs between rules whose state differs in shape or meaning.
fn fingerprint(entries: &[(String, Item)]) -> u64 {
    const SHAPING: [&str; 7] = ["decode", "where", "group_by", "window", "select", "on_change", "deadband"];
    let mut hash = StableHash::new();
    for (key, item) in entries.iter().filter(|(key, _)| SHAPING.contains(&key.as_str())) {
        hash.add(format!("{key}={item:?};").as_bytes());
    }
    hash.get()
}
