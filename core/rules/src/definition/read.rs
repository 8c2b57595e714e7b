//! From keys and values to a rule.

use std::sync::Arc;

use sedge_mqtt::{QoS, TopicFilter};

use super::select::{self, Selection};
use super::{Decode, Item, KEYS, NAME_BYTES_MAX, Rule, fingerprint, text};
use crate::error::RuleError;
use crate::expression::{Expression, Tables, parse};
use crate::limits::{Limits, Overflow};
use crate::nearest::hint;
use crate::template::Template;
use crate::window::{COUNT_MAX, LENGTH_MAX, LENGTH_MIN, OVERLAP_MAX, Shape, Windowing};

/// Most filters and most values of `group_by`.
const LIST_MAX: usize = 32;
/// How long a group's event time may stand still before its windows close.
const IDLE: u64 = 60_000;
/// How far a message's own time may lie ahead.
const AHEAD: u64 = 3_600_000;

/// Collects the mistakes in a rule.
pub(super) struct Reader {
    pub(super) problems: Vec<RuleError>,
    pub(super) tables: Tables,
}

impl Reader {
    pub(super) fn wrong(&mut self, key: impl Into<String>, what: impl Into<String>) {
        self.problems.push(RuleError::new(key, what));
    }

    pub(super) fn unknown(&mut self, key: String, what: impl Into<String>) {
        self.problems.push(RuleError { key, at: None, of_key: true, what: what.into() });
    }

    /// The expression at `key`.
    pub(super) fn expression(&mut self, key: &str, item: &Item) -> Option<Expression> {
        let Item::Text(text) = item else {
            self.wrong(key, format!("is an expression in quotes, not {}", kind(item)));
            return None;
        };
        match parse(text, &mut self.tables) {
            Ok(expression) => Some(expression),
            Err(fault) => {
                self.problems.push(fault.of(key));
                None
            }
        }
    }

    fn texts<'a>(&mut self, key: &str, item: &'a Item) -> Vec<&'a Item> {
        match item {
            Item::Text(_) => vec![item],
            Item::List(items) if items.len() <= LIST_MAX => items.iter().collect(),
            Item::List(_) => {
                self.wrong(key, format!("has more than {LIST_MAX} entries"));
                Vec::new()
            }
            Item::Number(_) | Item::Bool(_) | Item::Table(_) | Item::Other(_) => {
                self.wrong(key, format!("is a list of strings, not {}", kind(item)));
                Vec::new()
            }
        }
    }

    fn filters(&mut self, item: &Item) -> Vec<TopicFilter> {
        let mut filters = Vec::new();
        let items = self.texts("from", item);
        for (number, item) in items.iter().enumerate() {
            let key = format!("from[{number}]");
            let Item::Text(filter) = item else {
                self.wrong(key, format!("is a topic filter in quotes, not {}", kind(item)));
                continue;
            };
            match TopicFilter::new(filter) {
                Ok(filter) if filter.share_group().is_some() => {
                    self.wrong(key, "a rule runs once in the whole cluster: leave $share/ and the group away");
                }
                Ok(filter) => filters.push(filter),
                Err(error) => self.wrong(key, format!("{filter:?} is no topic filter: {error}")),
            }
        }
        if items.is_empty() {
            self.wrong("from", "names no topic filter; for everything write [\"#\"]");
        }
        filters
    }

    fn flag(&mut self, key: &str, item: &Item) -> bool {
        if let Item::Bool(flag) = item {
            return *flag;
        }
        self.wrong(key, format!("is true or false, not {}", kind(item)));
        false
    }

    /// A whole number within bounds; as text with a unit if `unit` reads it.
    pub(super) fn number(&mut self, key: &str, item: &Item, bounds: (u64, u64), unit: Option<Unit>) -> Option<u64> {
        let (least, most) = bounds;
        let shown = |number: u64| if unit == Some(Unit::Time) { text::shown(number) } else { number.to_string() };
        let number = match (item, unit) {
            (Item::Number(seconds), Some(Unit::Time)) => crate::value::to_u64(seconds * 1000.0),
            (Item::Number(number), _) if number.fract() == 0.0 => crate::value::to_u64(*number),
            (Item::Text(text), Some(Unit::Time)) => text::millis(text),
            (Item::Text(text), Some(Unit::Bytes)) => text::bytes(text),
            _ => None,
        };
        let Some(number) = number else {
            let wanted = match unit {
                Some(Unit::Time) => "a time such as \"10s\", \"500ms\" or \"5m\"",
                Some(Unit::Bytes) => "a size such as 65536, \"64KiB\" or \"1MiB\"",
                None => "a whole number",
            };
            self.wrong(key, format!("is {wanted}, not {}", kind(item)));
            return None;
        };
        if !(least..=most).contains(&number) {
            self.wrong(key, format!("{} is not between {} and {}", shown(number), shown(least), shown(most)));
            return None;
        }
        Some(number)
    }

    pub(super) fn time(&mut self, key: &str, item: &Item, least: u64) -> Option<u64> {
        self.number(key, item, (least, LENGTH_MAX), Some(Unit::Time))
    }

    pub(super) fn limit(
        &mut self,
        key: &str,
        item: Option<&Item>,
        default: usize,
        most: u64,
        unit: Option<Unit>,
    ) -> usize {
        let Some(item) = item else { return default };
        let number = self.number(key, item, (1, most), unit);
        number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
    }

    fn limits(&mut self, entries: &Entries<'_>) -> Limits {
        let default = Limits::default();
        let overflow = match entries.get("overflow") {
            None => Overflow::Drop,
            Some(Item::Text(word)) if word == "drop" => Overflow::Drop,
            Some(Item::Text(word)) if word == "close" => Overflow::Close,
            Some(_) => {
                self.wrong("overflow", "is \"drop\" (leave the message out) or \"close\" (close a window early)");
                Overflow::Drop
            }
        };
        Limits {
            groups: self.limit("max_groups", entries.get("max_groups"), default.groups, 1_000_000, None),
            state_bytes: self.limit(
                "max_state",
                entries.get("max_state"),
                default.state_bytes,
                1 << 30,
                Some(Unit::Bytes),
            ),
            windows: self.limit("max_windows", entries.get("max_windows"), default.windows, 10_000_000, None),
            payload_bytes: self.limit(
                "max_payload",
                entries.get("max_payload"),
                default.payload_bytes,
                16 << 20,
                Some(Unit::Bytes),
            ),
            overflow,
        }
    }

    fn window(&mut self, item: &Item) -> Option<Windowing> {
        const SHAPES: [&str; 4] = ["tumbling", "hopping", "session", "count"];
        const WINDOW_KEYS: [&str; 10] =
            ["tumbling", "hopping", "session", "count", "every", "longest", "time", "lateness", "idle", "ahead"];
        let Item::Table(entries) = item else {
            self.wrong("window", format!("is a table such as {{ tumbling = \"10s\" }}, not {}", kind(item)));
            return None;
        };
        for (key, _) in entries.iter().filter(|(key, _)| !WINDOW_KEYS.contains(&key.as_str())) {
            self.unknown(format!("window.{key}"), format!("unknown key{}", hint(key, WINDOW_KEYS)));
        }
        let entries = Entries(entries);
        let shapes: Vec<&str> = SHAPES.into_iter().filter(|shape| entries.get(shape).is_some()).collect();
        let &[shape] = &shapes[..] else {
            self.wrong("window", "has exactly one of tumbling, hopping, session and count");
            return None;
        };
        let shape = self.shape(shape, &entries)?;
        let event_time = match entries.get("time") {
            None => None,
            Some(item) => Some(self.expression("window.time", item)?),
        };
        if event_time.is_none() {
            for key in ["lateness", "idle", "ahead"] {
                if entries.get(key).is_some() {
                    self.wrong(
                        format!("window.{key}"),
                        "has a meaning only with window.time: messages never arrive late by the time of their arrival",
                    );
                }
            }
        }
        let time = |reader: &mut Self, key: &str, least, default| {
            let item = entries.get(key);
            item.map_or(Some(default), |item| reader.time(&format!("window.{key}"), item, least))
        };
        let lateness = time(self, "lateness", 0, 0)?;
        if lateness > 0 && matches!(shape, Shape::Count { .. }) {
            self.wrong("window.lateness", "has no meaning for windows by count: every message counts when it comes");
        }
        let idle = time(self, "idle", LENGTH_MIN, IDLE)?;
        let ahead = time(self, "ahead", 0, AHEAD)?;
        Some(Windowing { shape, event_time, lateness, idle, ahead })
    }

    fn shape(&mut self, shape: &str, entries: &Entries<'_>) -> Option<Shape> {
        let allowed = match shape {
            "hopping" => Some("every"),
            "session" | "count" => Some("longest"),
            _ => None,
        };
        for (key, of) in [("every", "hopping windows"), ("longest", "sessions and windows by count")] {
            if entries.get(key).is_some() && allowed != Some(key) {
                self.wrong(format!("window.{key}"), format!("belongs to {of}, not to {shape}"));
            }
        }
        let item = entries.get(shape)?;
        let key = format!("window.{shape}");
        if shape == "count" {
            let count = self.number(&key, item, (1, COUNT_MAX), None)?;
            let longest = entries.get("longest");
            let longest = longest.map_or(Some(LENGTH_MAX), |item| self.time("window.longest", item, LENGTH_MIN))?;
            return Some(Shape::Count { count, longest });
        }
        let length = self.time(&key, item, LENGTH_MIN)?;
        match shape {
            "tumbling" => Some(Shape::Tumbling { length }),
            "hopping" => {
                let Some(every) = entries.get("every") else {
                    self.wrong("window", "a hopping window needs every: how often one begins, such as every = \"10s\"");
                    return None;
                };
                let every = self.time("window.every", every, LENGTH_MIN)?;
                if every > length {
                    let what = format!(
                        "is longer than the window ({}): what lies between two would be lost",
                        text::shown(length)
                    );
                    self.wrong("window.every", what);
                    return None;
                }
                if length.div_ceil(every) > OVERLAP_MAX {
                    let what = format!(
                        "is too short: each message would be in {} windows; at most {OVERLAP_MAX}, so at least {}",
                        length.div_ceil(every),
                        text::shown(length.div_ceil(OVERLAP_MAX))
                    );
                    self.wrong("window.every", what);
                    return None;
                }
                Some(Shape::Hopping { length, every })
            }
            _ => {
                let longest = entries.get("longest");
                let default = (length * 60).clamp(3_600_000, LENGTH_MAX);
                let longest = longest.map_or(Some(default), |item| self.time("window.longest", item, LENGTH_MIN))?;
                if longest < length {
                    self.wrong("window.longest", "is shorter than the gap that ends a session: make it longer");
                    return None;
                }
                Some(Shape::Session { gap: length, longest })
            }
        }
    }

    fn group_by(&mut self, item: &Item) -> Vec<Expression> {
        let items = self.texts("group_by", item);
        let found = items.iter().enumerate();
        let found: Vec<Expression> =
            found.filter_map(|(number, item)| self.expression(&format!("group_by[{number}]"), item)).collect();
        for (number, expression) in found.iter().enumerate() {
            let key = format!("group_by[{number}]");
            self.per_message(&key, expression, "the group of a message is known before its window");
        }
        found
    }

    /// Refuses aggregates and windows where one message is looked at.
    pub(super) fn per_message(&mut self, key: &str, expression: &Expression, why: &str) {
        let mut found = None;
        expression.walk(&mut |inner| {
            if let Expression::Aggregate(_, at) = inner {
                found = found.or(Some((at.0, "an aggregate")));
            }
            if let Expression::Call(function, _, at) = inner
                && function.needs_window()
            {
                found = found.or(Some((at.0, "a function of the window")));
            }
        });
        if let Some((at, what)) = found {
            let what = format!("{what} has no place here: {why}");
            self.problems.push(RuleError { key: key.to_owned(), at: Some(at), of_key: false, what });
        }
    }

    fn template(&mut self, item: &Item) -> Option<Template> {
        let Item::Text(text) = item else {
            self.wrong("to", format!("is a topic in quotes, not {}", kind(item)));
            return None;
        };
        match Template::parse(text, &mut self.tables) {
            Ok(template) => Some(template),
            Err(fault) => {
                self.problems.push(fault.of("to"));
                None
            }
        }
    }

    fn decode(&mut self, entries: &Entries<'_>) -> Decode {
        let asks = entries.get("rebirth").map(|item| self.flag("rebirth", item));
        match entries.get("decode") {
            Some(Item::Text(word)) if word == "sparkplug" => {
                return Decode::Sparkplug { asks: asks.unwrap_or(true) };
            }
            Some(item) => self.wrong("decode", format!("is \"sparkplug\", not {}", kind(item))),
            None if asks.is_some() => {
                self.wrong("rebirth", "has a meaning only with decode = \"sparkplug\": add that, or leave this out");
            }
            None => {}
        }
        Decode::No
    }

    fn condition(&mut self, item: &Item) -> Option<Expression> {
        let expression = self.expression("where", item)?;
        self.per_message("where", &expression, "where looks at one message; aggregates stand in select");
        if !expression.can_be_true() {
            self.wrong("where", "is never true or false: compare it with something, such as payload.value > 0");
        }
        Some(expression)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Time,
    Bytes,
}

/// Keys and values of a table.
pub(super) struct Entries<'a>(pub(super) &'a [(String, Item)]);

impl<'a> Entries<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Item> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, item)| item)
    }
}

/// The item in words, for error messages.
pub(super) fn kind(item: &Item) -> String {
    match item {
        Item::Text(text) => format!("{text:?}"),
        Item::Number(number) => number.to_string(),
        Item::Bool(flag) => flag.to_string(),
        Item::List(_) => "a list".to_owned(),
        Item::Table(_) => "a table".to_owned(),
        Item::Other(kind) => (*kind).to_owned(),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(valid) {
        return Err(format!(
            "{name:?} is no name of a rule: 1 to {NAME_BYTES_MAX} lower-case letters, digits, - and _"
        ));
    }
    Ok(())
}

pub(super) fn rule(name: &str, entries: &[(String, Item)]) -> Result<Rule, Vec<RuleError>> {
    let mut reader = Reader { problems: Vec::new(), tables: Tables::default() };
    if let Err(what) = check_name(name) {
        reader.unknown(String::new(), what);
    }
    for (key, _) in entries.iter().filter(|(key, _)| !KEYS.contains(&key.as_str())) {
        reader.unknown(key.clone(), format!("unknown key{}", hint(key, KEYS)));
    }
    let all = entries;
    let entries = Entries(entries);
    let from = entries.get("from").map(|item| reader.filters(item)).unwrap_or_default();
    let to = entries.get("to").and_then(|item| reader.template(item));
    match (entries.get("from"), entries.get("to")) {
        (Some(_), None) => {
            reader.wrong("from", "needs to, the topic of what comes out; or neither, in a bridge's rule");
        }
        (None, Some(_)) => reader.wrong("to", "needs from, what goes in; or neither, in a bridge's rule"),
        _ => {}
    }
    let decode = reader.decode(&entries);
    let condition = entries.get("where").and_then(|item| reader.condition(item));
    let mut group_by = entries.get("group_by").map(|item| reader.group_by(item)).unwrap_or_default();
    let window = entries.get("window").and_then(|item| reader.window(item));
    if let Some(time) = window.as_ref().and_then(|window| window.event_time.as_ref()) {
        reader.per_message("window.time", time, "the time of a message is known before its window");
    }
    let qos = entries.get("qos").map_or(Some(2), |item| reader.number("qos", item, (0, 2), None));
    let qos = qos.and_then(|qos| QoS::from_u8(u8::try_from(qos).ok()?)).unwrap_or_default();
    let retain = entries.get("retain").is_some_and(|item| reader.flag("retain", item));
    let limits = reader.limits(&entries);
    let jq = reader.jq(&entries);
    let windowed = entries.get("window").is_some();
    let Selection { select, to, watched } = select::read(&mut reader, &entries, &mut group_by, windowed, to);
    reader.check_levels(&entries, &from);
    if !reader.problems.is_empty() {
        return Err(reader.problems);
    }
    let Tables { fields, aggregates } = reader.tables;
    Ok(Rule {
        name: Arc::from(name),
        from,
        to,
        below: None,
        decode,
        condition,
        group_by,
        window,
        select,
        jq,
        watched,
        qos,
        retain,
        limits,
        fields,
        aggregates,
        fingerprint: fingerprint(all),
    })
}
